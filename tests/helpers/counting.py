"""An environment and a reward that give away which pair of observations a reward was made of."""

import gymnasium
import numpy as np

from grd_offline import RewardModel

ID = "tests/Counting-v0"
LENGTH = 3


class Counting(gymnasium.Env):
    """Each observation is one more than the one shown before, also across episodes of 3 steps.

    So a step within an episode leads from k to k + 1, and a pair across a reset does not.
    """

    observation_space = gymnasium.spaces.Box(0, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, terminates=False):
        self.shown, self.terminates = -1.0, terminates

    def _look(self):
        self.shown += 1
        return np.array([self.shown], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._look(), {}

    def step(self, action):
        self.time += 1
        over = self.time == LENGTH
        return self._look(), 5.0, over and self.terminates, over and not self.terminates, {}


class Pair:
    """r = (s' - s) + 10 a; remembers how many steps it was asked for."""

    kind = "pair"
    needs_next = True
    needs_termination = False

    def __init__(self):
        self.asked = 0

    def predict(self, batch):
        self.asked += len(batch)
        progress = batch.next_observations - batch.observations
        return (progress + 10 * batch.actions)[:, 0].astype(np.float64)


def make_model():
    one = np.ones(1, np.int64)
    return RewardModel(Pair(), ("s0",), ("a0",), one, one, one)


def register():
    if ID not in gymnasium.registry:
        gymnasium.register(ID, entry_point="counting:Counting")

"""A point on a line that is to be held at 0: small enough to be learned in seconds."""

import gymnasium
import numpy as np

ID = "tests/PointMass-v0"
LENGTH = 20


class PointMass(gymnasium.Env):
    """s = (place, noise that does not matter); the action moves the point; r = -place^2."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, ends=False):
        self.ends = ends

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = self.np_random.uniform(-2, 2), 0
        return self._look(), {}

    def _look(self):
        return np.array([self.place, self.np_random.normal()], np.float32)

    def step(self, action):
        reward = -(self.place**2)
        self.place = np.clip(self.place + 0.5 * float(action[0]), -3, 3)
        self.time += 1
        lost = self.ends and abs(self.place) > 2.5
        return self._look(), reward, bool(lost), self.time >= LENGTH, {}


def register():
    if ID not in gymnasium.registry:
        gymnasium.register(ID, entry_point="point_mass:PointMass")

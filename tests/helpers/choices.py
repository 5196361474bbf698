"""A small task in all kinds of spaces: take the action that the observation names.

Each step pays 1 for the right action. Observations and actions come in the kinds that the keyword
arguments say, so that every kind of space goes the same way.
"""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

ID = "tests/Choices-v0"
KINDS = 3
OBSERVATIONS = ("box", "discrete", "dict", "tuple")


class ChoicesEnv(gymnasium.Env):
    """Observations: box, discrete, dict, tuple or image. Actions: discrete, box or several."""

    metadata = {"render_modes": []}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, render_mode=None, observed="dict", acted="discrete", length=8, ends=False):
        self.observed, self.acted, self.length, self.ends = observed, acted, length, ends
        self.observation_space = {
            "box": Box(0, 1, (KINDS,), np.float32),
            "discrete": Discrete(KINDS, start=5),
            "dict": Dict(
                goal=Dict(kind=Discrete(KINDS), x=Box(-1, 1, (), np.float32)), t=Box(0, 9, (2,))
            ),
            "tuple": Tuple((Discrete(KINDS), Box(0, 1, (1,), np.float32))),
            "image": Box(0, 255, (8, 8, 3), np.uint8),
        }[observed]
        self.action_space = {
            "discrete": Discrete(KINDS, start=1),
            "box": Box(-1, 1, (1,), np.float32),
            "several": MultiDiscrete([KINDS, 2]),
        }[acted]

    def _observe(self):
        self.kind = int(self.np_random.integers(KINDS))
        x = np.float32(self.np_random.uniform(-1, 1))
        return {
            "box": np.eye(KINDS, dtype=np.float32)[self.kind],
            "discrete": self.kind + 5,
            "dict": {"goal": {"kind": self.kind, "x": x}, "t": np.full(2, self.time, np.float32)},
            "tuple": (self.kind, np.abs(x)[None]),
            "image": np.zeros((8, 8, 3), np.uint8),
        }[self.observed]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        chosen = {
            "discrete": lambda: int(action) - 1,
            "box": lambda: round(float(action[0])) + 1,
            "several": lambda: int(action[0]),
        }[self.acted]()
        is_right = chosen == self.kind
        self.time += 1
        over = self.time >= self.length
        terminated = self.ends and not is_right
        return self._observe(), float(is_right), terminated, over and not terminated, {}


def register():
    if ID not in gymnasium.registry:
        gymnasium.register(ID, ChoicesEnv)

"""An environment whose step never returns: `hanging:Hanging-v0`."""

import os
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np

LENGTH = 20


class Hanging(gymnasium.Env):
    """Hangs at a step of an episode; `mode="exit"` leaves Python instead."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, after=10**9, mode="hang", scale=1.0):
        self.steps, self.after, self.mode, self.scale = 0, after, mode, scale

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        self.time += 1
        if self.steps > self.after:
            if self.mode == "exit":
                sys.exit(7)
            if "HANGING_FOLDER" in os.environ:
                Path(os.environ["HANGING_FOLDER"], f"hangs-{os.getpid()}").touch()
            while True:
                time.sleep(1)
        observation = np.full(2, self.time, np.float32)
        return observation, self.scale * float(self.time), False, self.time >= LENGTH, {}


if "Hanging-v0" not in gymnasium.registry:
    gymnasium.register("Hanging-v0", entry_point="hanging:Hanging")

"""An environment that misbehaves: `odd_fleet_environments:Fleet-v1`."""

import os
import signal

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Odd(gym.Env):
    """Misbehaves at step 2 of every episode that begins after `after` others."""

    def __init__(self, mode="fine", after=1):
        self.mode, self.after, self.episodes = mode, after, 0
        self.action_space = spaces.Box(-2.0, 3.0, (2,), np.float64)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        if mode == "image":
            self.observation_space = spaces.Box(0, 255, (8, 8, 3), np.uint8)
        if mode == "unbounded":
            self.action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        if mode == "choices":
            self.action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.state = 0, self.np_random.normal(size=2)
        self.episodes += 1
        return self.state, {}

    def step(self, action):
        assert np.all((action >= -2) & (action <= 3))
        self.state += action
        action *= 0
        reward = 1.0
        if self.t == 2 and self.episodes > self.after:
            if self.mode == "raise":
                raise RuntimeError("the motor\nis on fire")
            if self.mode == "exit":
                os._exit(3)
            if self.mode == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.mode == "nan":
                self.state[1] = np.nan
            if self.mode == "inf":
                reward = np.inf
        if self.mode == "forgetful" and self.t == 3:
            self.state = np.random.default_rng().normal(size=2)
        self.t += 1
        return self.state, reward, False, False, {}


gym.register("Fleet-v1", entry_point=Odd)

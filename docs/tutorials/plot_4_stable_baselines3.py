"""
The reward model in Stable-Baselines3
=====================================

You have data of a task with one number per episode, and want to train a policy with
`Stable-Baselines3 <https://stable-baselines3.readthedocs.io>`_. This tutorial decomposes the
data, and lets an environment pay the reward that was found. It takes about 30 seconds. Install the
library first: ``pip install stable-baselines3``.

The trainings are far too short to say how good a policy becomes. They show how the parts fit
together. What policies reach with such rewards stands in :doc:`/results`.
"""

# %%
# A reward model
# --------------
#
# The task is ``Pendulum-v1``: swing a pendulum up and hold it there. We record 100 episodes in
# which only the sum of the rewards is told, and decompose them. If you have a folder of a
# decomposition already, take its name instead.

from pathlib import Path

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from stable_baselines3 import DQN, SAC
from stable_baselines3.common.env_util import make_vec_env

import grd_offline
from grd_offline import DecomposeSettings, LearnedReward, RewardModel
from grd_offline.interop import LearnedRewardVecEnv

folder = Path("tutorial-sb3")
folder.mkdir(exist_ok=True)
data = folder / "pendulum.h5"
grd_offline.collect("Pendulum-v1", data, episodes=100, workers=1, keep_true_rewards=True)
settings = DecomposeSettings(fit="closed-form", truth="true_rewards")
result = grd_offline.decompose(data, folder / "pendulum-grd", settings)
print(result.metrics["verdict"]["text"])
print(f"correlation with the true rewards: {result.metrics['truth']['pearson']:.3f}")

# %%
# The verdict comes first. A policy exploits every error of a reward, so do not train on a reward
# that the verdict does not recommend.
#
# What does the model need?
# -------------------------
#
# A model says what it depends on. All wrappers give it what it needs. If you call it yourself,
# you have to give it what these two say.

model = RewardModel.load(folder / "pendulum-grd")
print("needs next observations:", model.needs_next_observations)
print("needs terminations:     ", model.needs_termination)
print("states that matter:     ", np.array(model.observation_names)[model.state_mask == 1])

# %%
# One environment
# ---------------
#
# ``LearnedReward`` is a Gymnasium wrapper. The environment now pays the reward of the model, and
# its own reward stands in ``info["true_reward"]``.

env = LearnedReward(gymnasium.make("Pendulum-v1"), model)
env.reset(seed=0)
env.action_space.seed(0)
steps = [env.step(env.action_space.sample()) for _ in range(200)]
learned = np.array([step[1] for step in steps])
true = np.array([step[4]["true_reward"] for step in steps])

plt.figure(figsize=(9, 2.8), layout="constrained")
plt.plot(true, "k.", label="true reward")
plt.plot(learned, label="reward of the model")
plt.xlabel("step of a new episode")
plt.legend()
plt.show()

# %%
# The episode is new: it was not in the data.
#
# The model has to see observations and actions as its data had them. So wrappers that scale or
# stack them belong *outside* of ``LearnedReward``. Other shapes are refused with a message. Other
# units are not noticed, and give wrong rewards.
#
# A vector of environments
# ------------------------
#
# Stable-Baselines3 works with vectors of environments, which reset themselves in the step in
# which an episode ends. ``LearnedRewardVecEnv`` looks up the true last observation of the
# episode, and knows a time limit from a termination.

venv = LearnedRewardVecEnv(make_vec_env("Pendulum-v1", n_envs=2, seed=0), model)
venv.reset()
observations, rewards, dones, infos = venv.step(np.zeros((2, 1), np.float32))
print("the model pays   ", rewards.round(3))
print("the task would pay", [round(info["true_reward"], 3) for info in infos])

# %%
# Train
# -----
#
# From here on everything is Stable-Baselines3. The algorithm sees only the learned reward. The
# monitor inside the vector still reports the true return of each episode, so that you can see
# whether the policy gets better at the task and not only at the model.

agent = SAC("MlpPolicy", venv, learning_starts=400, policy_kwargs={"net_arch": [32, 32]}, seed=0)
agent.learn(1_200)
returns = [episode["r"] for episode in agent.ep_info_buffer]
print("true returns of the training episodes:", np.round(returns).astype(int))

# %%
# Six episodes teach nothing that one could measure. For a real training, raise the number of
# steps, and compare with a policy that was trained on the true reward, if there is one, with at
# least five seeds.
#
# Save the policy as usual. It needs neither the model nor this package afterwards.

agent.save(folder / "policy")
action, _ = SAC.load(folder / "policy").predict(observations, deterministic=True)
print("actions:", action.ravel())

# %%
# A model of a table
# ------------------
#
# A model that was learned from a table, as in :doc:`plot_1_own_table`, has no environment. You
# have to write one. Four rules make it fit the model:
#
# - Its observations are the states in the order of ``model.observation_names``. A column of text
#   became one column of 0 and 1 for each label.
# - Its actions are those of ``model.action_names``, in this order. If the action was a column of
#   text, use a ``Discrete`` space: action 0 is the first label. If it was a column of numbers such
#   as 0 and 1, say ``categories="window"`` in ``from_dataframe``, so that it fits ``Discrete(2)``.
# - Its own reward does not matter, because the wrapper replaces it.
# - Policies maximise. If the outcome is a cost, change its sign before you decompose the table.
#
# Here the table has the temperature of a room every hour, and whether the window was open. The
# outcome is how satisfied people were with the whole day.

rng = np.random.default_rng(0)
hours = pd.DataFrame({"day": np.repeat(np.arange(150), 8), "hour": np.tile(np.arange(8), 150)})
hours["temperature"] = rng.normal(22, 4, len(hours)).round(1)
hours["window"] = rng.choice(["closed", "open"], len(hours))
fresh = (hours.window == "open") * (hours.temperature - 20)
satisfied = fresh - 0.1 * (hours.temperature - 21) ** 2
hours["score"] = satisfied.groupby(hours.day).transform("sum").round(2)

episodes = grd_offline.from_dataframe(hours, episode="day", step="hour", actions="window")
settings = DecomposeSettings(fit="closed-form")
room_model = grd_offline.decompose(episodes, folder / "room-grd", settings).model
print("observations:", room_model.observation_names, " actions:", room_model.action_names)

# %%
# The environment needs an idea of how the next state comes about. Here a new temperature is drawn
# every hour. In your case this may be a simulation, or the ``dynamics_model`` of the
# decomposition.


class Room(gymnasium.Env):
    """A room whose window is closed (0) or open (1) for an hour."""

    observation_space = gymnasium.spaces.Box(-10, 50, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.hour = 0
        return self._measure(), {}

    def step(self, action):
        self.hour += 1
        return self._measure(), 0.0, False, self.hour == 8, {}

    def _measure(self):
        return np.array([self.np_random.normal(22, 4)], np.float32)


venv = LearnedRewardVecEnv(make_vec_env(Room, n_envs=2, seed=0), room_model)
small = {"policy_kwargs": {"net_arch": [32, 32]}, "learning_rate": 3e-3, "learning_starts": 100}
small |= {"train_freq": 1, "gradient_steps": 2, "exploration_fraction": 1.0}
agent = DQN("MlpPolicy", venv, gamma=0.0, seed=0, **small)
agent.learn(1_000)
for temperature in (14.0, 26.0):
    action, _ = agent.predict(np.array([temperature], np.float32), deterministic=True)
    print(f"at {temperature:.0f} degrees the window is", ["closed", "open"][int(action)])

# %%
# Other libraries
# ---------------
#
# :doc:`/interop` has the same for Gymnasium vectors, TorchRL, d3rlpy, CORL, ONNX and
# ``torch.export``. A model can also be called directly: ``model.predict(observations, actions,
# next_observations, terminations)`` takes arrays with one row per step.

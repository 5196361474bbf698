"""
The reward model in Stable-Baselines3
=====================================

You have data of a task with one number per episode, and want to train a policy with
`Stable-Baselines3 <https://stable-baselines3.readthedocs.io>`_. This tutorial decomposes the
data, and lets an environment pay the reward that was found. It takes about 20 seconds.

The training at the end is far too short to say how good a policy becomes. It shows how the parts
fit together. What policies reach with such rewards stands in :doc:`/results`.
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
from stable_baselines3 import SAC
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
# Other libraries
# ---------------
#
# :doc:`/interop` has the same for Gymnasium vectors, TorchRL, d3rlpy, CORL, ONNX and
# ``torch.export``. A model can also be called directly: ``model.predict(observations, actions,
# next_observations, terminations)`` takes arrays with one row per step.

"""
Training online
===============

Sometimes there are no data yet: an agent learns while it acts, and hears only how well each
episode went. ``train_online`` does this. Two steps alternate: a reward is fitted to the returns
of all episodes so far, and the policy is trained on this reward. This tutorial runs it in a small
form, and shows what to look at. It takes about 20 seconds.

A run of this size says nothing about how good policies become. :doc:`/results` has runs of full
length.
"""

# %%
# A small run
# -----------
#
# The task is the pendulum again, with episodes of 50 steps. The method ``grd`` hears only
# returns. The method ``oracle`` sees the true reward of every step, and shows what would be
# possible. The networks are small and the run is short. With the defaults of the command, a run
# takes a million steps.

import csv
import json
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import grd_offline
from grd_offline import RewardModel, load_actor

folder = Path("tutorial-online")
shutil.rmtree(folder, ignore_errors=True)  # a run does not overwrite an earlier one
small = {"hidden": (32, 32), "batch": 64, "round_updates": 25, "learning_rate": 1e-3}
result = grd_offline.train_online(
    "Pendulum-v1",
    folder,
    methods=("grd", "oracle"),
    steps=4_000,
    warmup=1_000,
    max_episode_steps=50,
    eval_every=500,
    eval_episodes=3,
    workers=0,
    **small,
)
print("complete:", result.is_complete, " steps:", result.step)
print("members:", ", ".join(result.policies))

# %%
# Each combination of a method and a seed is a *member* of the run. All members are trained side
# by side. Members that differ only in their seed form a *group*. Here every group has one seed,
# so that nothing can be said about chance. Use five seeds for results that you want to believe.
#
# How good are the rewards?
# -------------------------
#
# At each evaluation, the rewards that ``grd`` has found are compared with the true rewards of the
# episodes of the evaluation. The training never sees this comparison.

rows = [row for row in result.evaluations if row["member"].startswith("grd")]
steps = [row["step"] for row in rows]
correlations = [np.nan if row["correlation"] is None else row["correlation"] for row in rows]

figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
axes[0].plot(steps, correlations, "o-")
axes[0].set(xlabel="environment steps", ylabel="correlation with the true reward", ylim=(0, 1.02))
for member in result.policies:
    returns = [row["mean_return"] for row in result.evaluations if row["member"] == member]
    axes[1].plot(steps, returns, "o-", label=member)
axes[1].set(xlabel="environment steps", ylabel="true return of the policy")
axes[1].legend()
plt.show()

# %%
# The left picture is the interesting one. After the first twenty episodes the reward is roughly
# right. Later searches, with more episodes, find its exact form. The right picture shows that
# 4,000 steps are not enough to learn the task, with either reward.
#
# What a run leaves
# -----------------
#
# Everything is in the folder of the run:

for path in sorted(folder.iterdir()):
    print(path.name)

# %%
# ``members/NAME`` holds the reward model, the masks, the policies, and one episode with its
# rewards, all of them for each evaluation. The episode can be drawn:

member = folder / "members" / "grd-closed-form-seed0"
names = ("first evaluation", "last evaluation")
files = sorted((member / "episodes").glob("*.csv"))
figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), sharey=True, layout="constrained")
for axis, path, name in zip(axes, (files[0], files[-1]), names, strict=True):
    with path.open() as file:
        episode = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
    axis.plot([row["true_reward"] for row in episode], "k.", label="truth")
    axis.plot([row["reward"] for row in episode], label="found")
    axis.set(xlabel="step", title=name)
axes[0].legend()
plt.show()

# %%
# The masks say which inputs the reward depends on, and what the policy needs to see:

masks = json.loads(sorted((member / "masks").glob("*.json"))[-1].read_text())
model = RewardModel.load(member)
print(
    "in the reward:       ",
    dict(zip(model.observation_names, masks["state_to_reward"], strict=True)),
)
print("in the compact state:", dict(zip(model.observation_names, masks["compact"], strict=True)))

# %%
# The reward model is that of the best evaluation. Other code can use it, as
# :doc:`plot_4_stable_baselines3` shows, and it can use the policies. A policy needs numpy alone:

actor = load_actor(result.policies["grd-closed-form-seed0"])
hanging = np.array([-1.0, 0.0, 0.0])  # cosine and sine of the angle, angular velocity
print("action in the lowest position:", actor.act(hanging).round(2))

# %%
# The same on the command line
# ----------------------------
#
# .. code-block:: sh
#
#     grd-offline train-online --env Pendulum-v1 --method grd,oracle --seeds 5 \
#         --steps 20000 --out runs/p
#     grd-offline plot runs/p
#
# The command shows the curves while it runs, and writes ``report.html``. With Ctrl-C it saves its
# state, and ``grd-offline train-online --resume runs/p`` goes on from there. :doc:`/online`
# describes all methods, fits and settings.

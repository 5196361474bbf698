"""
Training offline, and judging rewards
=====================================

What is a decomposition worth? One answer is to train policies on its rewards, and to see what
they reach. This tutorial trains a policy from a dataset alone, and then lets ``judge`` compare
the rewards of several methods. It takes about 30 seconds.

The networks and the runs are very small, so that the page can be built. The last section says
what a judgement needs before you believe it.
"""

# %%
# Data
# ----
#
# The task is a small random world, ``grd/Factored-v0``, with four states and two actions. Actions
# are random. The data show only returns. The true rewards are kept aside for the comparison.

import shutil
from pathlib import Path

import matplotlib.pyplot as plt

import grd_offline
from grd_offline import DecomposeSettings

folder = Path("tutorial-offline")
shutil.rmtree(folder, ignore_errors=True)  # a run does not overwrite an earlier one
folder.mkdir()
data = folder / "world.h5"
sizes = {"states": 4, "actions": 2, "reward_states": 2, "indirect": 1, "scales": False}
world = {"env_args": sizes, "max_episode_steps": 20}
collected = grd_offline.collect(
    "grd/Factored-v0",
    data,
    episodes=150,
    policy="random",
    workers=1,
    keep_true_rewards=True,
    **world,
)
print(f"{len(collected.returns)} episodes, mean return {collected.returns.mean():.1f}")

# %%
# Decompose, then train
# ---------------------
#
# ``decompose`` writes ``relabelled.h5``: the same data with a reward at every step.
# ``train_offline`` learns from this file alone. It makes an environment only to evaluate the
# policy.

settings = DecomposeSettings(fit="closed-form")
decomposed = grd_offline.decompose(data, folder / "world-grd", settings)
print(decomposed.metrics["verdict"]["text"])

small = {"batch": 64, "hidden": (32, 32), "learning_rate": 3e-3, "target_rate": 0.05}
small |= {"discount": 0.8, "updates": 200, "eval_every": 100, "eval_episodes": 10, "workers": 0}
small |= {"environment": "grd/Factored-v0"} | world
run = folder / "run"
trained = grd_offline.train_offline(decomposed.relabelled, run, seeds=1, **small)
for row in trained.evaluations:
    print(f"after {row['step']:.0f} updates: return {row['mean_return']:.1f}")

# %%
# The policy is better than the random actions of its data, whose mean return is printed above.
#
# Is this due to the rewards?
# ---------------------------
#
# ``judge`` answers by comparison. It decomposes the data with each method, and trains policies on
# the rewards of each of them. It also trains them on two references: the true rewards, and the
# delayed rewards as they were observed. Everything else is equal: the same seed starts from the
# same weights and sees the same batches.

judged = grd_offline.judge(
    data,
    folder / "judgement",
    methods=("grd", "uniform"),
    fit="closed-form",
    seeds=2,
    **small,
)
print(f"mean return of the data: {judged.data_mean_return:.1f}\n")
print("rewards    return of each seed   correlation with the true rewards")
for verdict in judged.verdicts:
    scores = "  ".join(f"{score:6.1f}" for score in verdict.scores)
    print(f"{verdict.source:10} {scores:20}  {verdict.pearson:.2f}")

# %%

plt.figure(figsize=(7, 2.6), layout="constrained")
for place, verdict in enumerate(judged.verdicts):
    plt.plot(verdict.scores, [place] * len(verdict.scores), "o", markersize=9)
plt.axvline(judged.data_mean_return, color="k", linestyle=":", label="mean return of the data")
plt.yticks(range(len(judged.verdicts)), [verdict.source for verdict in judged.verdicts])
plt.xlabel("true return of the policy; each dot is a seed")
plt.legend()
plt.show()

# %%
# How to read it
# --------------
#
# - ``true`` is the reference. A method is good if its policies reach about as much.
# - ``observed`` pays the return at the last step. It shows how hard the task is without a
#   decomposition.
# - ``uniform`` gives each step of an episode the same. A method that does not beat it has not
#   found out which steps matter, or the task does not need it.
# - The correlation with the true rewards is a different question. Rewards may be imperfect and
#   still good enough to act on, and the other way round.
#
# When to believe it
# ------------------
#
# Two seeds crown nobody: with two seeds a difference has to be very large before it means
# anything. A judgement that you want to show should have at least five seeds, the default number
# of updates (100,000), and more than one dataset. Repeat it with the other algorithm (``--algo
# td3bc``): it imitates the data more, and the methods may come out closer together.
#
# .. code-block:: sh
#
#     grd-offline judge world.h5 --env grd/Factored-v0 --methods grd,rrd,uniform --seeds 5
#
# The command also writes ``report.html``. :doc:`/offline` has the details, and the judgement of
# 1,000 episodes of HalfCheetah.

"""
MuJoCo: next states and terminations
====================================

A reward belongs to a transition: a state, an action, the next state, and whether the episode
ended there. This tutorial collects short episodes of two MuJoCo tasks, and shows what goes wrong
if the data lack the next state or the terminations. The true rewards are known, so every claim
can be checked. It takes about 25 seconds.
"""

# %%
# Collect
# -------
#
# ``collect`` runs a policy and delivers one number per episode, at its end. With
# ``keep_true_rewards`` the true rewards are stored in a field of their own. No fit looks at this
# field.
#
# The policy ``explore`` draws another way of moving for each episode, so that episodes differ.

from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import grd_offline
from grd_offline import ClosedForm, EpisodeSet, read, read_truth

folder = Path("tutorial-mujoco")
folder.mkdir(exist_ok=True)


def collect(task: str, episodes: int, limit: int) -> tuple[EpisodeSet, np.ndarray]:
    """Episodes of a task, and the true rewards of all their steps."""
    path = folder / f"{task}.h5"
    options = {"policy": "explore", "keep_true_rewards": True, "workers": 1}
    grd_offline.collect(task, path, episodes=episodes, max_episode_steps=limit, **options)
    return read(path), np.concatenate(read_truth(path, "true_rewards"))


hopper, hopper_truth = collect("Hopper", 120, 1000)
cheetah, cheetah_truth = collect("HalfCheetah", 60, 100)
for name, data in (("Hopper", hopper), ("HalfCheetah", cheetah)):
    ended = np.mean([episode.terminations[-1] for episode in data])
    shortest, longest = data.lengths.min(), data.lengths.max()
    print(f"{name}: {data}, {shortest} to {longest} steps long, {ended:.0%} terminated")

# %%
# Hopper falls after a few steps, and then the episode *terminates*: the task is over. HalfCheetah
# cannot fall. Its episodes are *truncated* by the time limit, which is no event of the task.

episode = hopper[0]
print("observations", episode.observations.shape, " actions", episode.actions.shape)
print("terminations", episode.terminations.astype(int))

# %%
# Note the shapes. An episode of T steps has T + 1 observations: the last one is the state in
# which the last action ended. Keep it when you record data of your own. Files in the layout of
# D4RL lack it.
#
# The moment of a step
# --------------------
#
# HalfCheetah is paid for its speed, averaged over the time of a step. The state at the start of
# the step holds only the speed at that moment. We fit the reward twice: once with the state at
# the start, and once with the default. The default compares the start, the midpoint and the end
# of the step.


def fit(data: EpisodeSet, truth: np.ndarray, **settings: str) -> tuple[ClosedForm, np.ndarray]:
    """A fit, its rewards, and how good both look from the outside and are in truth."""
    model = ClosedForm(order=2, **settings).fit(data)
    rewards = np.concatenate(list(model.relabel(data)))
    pearson = np.corrcoef(rewards, truth)[0, 1]
    print(f"R² of the returns {model.score(data):.4f}, true rewards: correlation {pearson:.3f}")
    return model, rewards


start, at_start = fit(cheetah, cheetah_truth, state_at="start")
chosen, at_midpoint = fit(cheetah, cheetah_truth)
print("The default looks at the midpoint of a step:", chosen.function_.at_midpoint)

# %%
# Both fits explain the returns almost perfectly. But one of them is much worse on single steps.
# The error is a term that cancels: what a step has too much, the next step has too little. The
# sum over the episode does not change, so no return can show the error. When returns cannot
# decide, the default takes the midpoint (s + s') / 2, which is right for averages over a step.

figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
part = slice(0, 40)
axes[0].plot(cheetah_truth[part], "k.-", label="truth")
axes[0].plot(at_midpoint[part], label="default")
axes[0].plot(at_start[part], "--", label="state at the start")
axes[0].set(xlabel="step", ylabel="reward", title="40 steps")
axes[0].legend()
for rewards, label in ((at_midpoint, "default"), (at_start, "state at the start")):
    axes[1].plot(np.cumsum(rewards[:100] - cheetah_truth[:100]), label=label)
axes[1].axhline(0, color="k", linewidth=0.5)
axes[1].set(xlabel="step", ylabel="sum of the errors so far", title="errors cancel")
axes[1].legend()
plt.show()

# %%
# The right picture shows the sum of all errors so far. It stays small for both fits, because the
# errors cancel. A return sees only where the curve ends.
#
# Terminations
# ------------
#
# Hopper is paid 1 for every step on which it is healthy, and nothing on the step on which it
# falls. So the fall itself has a price. We fit the reward with the terminations, and then with
# data that do not say how episodes ended.

known, _ = fit(hopper, hopper_truth)
blind_episodes = [
    replace(one, terminations=np.zeros_like(one.terminations), truncations=one.terminations)
    for one in hopper
]
names = {"observation_names": hopper.observation_names, "action_names": hopper.action_names}
blind, rewards = fit(EpisodeSet.from_episodes(blind_episodes, **names), hopper_truth)

# %%
# Without the terminations, the price of the fall has to come from somewhere. The fit takes it
# from the states in which Hopper leans over, so that falling slowly seems to cost more than it
# does:

for model, name in ((known, "with terminations"), (blind, "without")):
    effects = sorted(model.function_.explain().effects, key=lambda effect: -abs(effect.share))
    print(f"{name}:", ", ".join(" x ".join(effect.inputs) for effect in effects))

# %%
# Again the returns are explained perfectly in both cases. In a table of your own, name the
# columns ``terminated`` and ``truncated``, or give them to ``from_dataframe``. If an episode ends
# because the recording ends, it is truncated.
#
# Check a whole decomposition against the truth
# ---------------------------------------------
#
# ``decompose`` compares with true rewards itself if you name their field:

settings = grd_offline.DecomposeSettings(fit="closed-form", truth="true_rewards")
result = grd_offline.decompose(folder / "Hopper.h5", folder / "hopper-grd", settings)
print(result.metrics["verdict"]["text"])
for name, value in result.metrics["truth"].items():
    print(f"{name}: {value:.4f}")

# %%
# What to take from it
# --------------------
#
# - Record the last observation of each episode, and how the episode ended.
# - Leave the moment of the step to the default, unless you know it (``state_at``).
# - A perfect R² on returns says nothing about single steps. :doc:`/concepts/returns` explains
#   why.

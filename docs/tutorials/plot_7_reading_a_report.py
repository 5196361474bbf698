"""
Reading a report
================

Every decomposition comes with ``report.html``. This tutorial goes through its parts with two
cases: one that can be believed, and one that cannot. The second has the same data, but only 15 of
the 150 episodes. It takes about 15 seconds.
"""

# %%
# Two decompositions
# ------------------
#
# The data come from a small random world whose rewards are known. Neither fit sees these rewards.
# We look at them only at the end.

from pathlib import Path
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np

import grd_offline
from grd_offline import DecomposeSettings, read, read_truth, write_dataset

folder = Path("tutorial-report")
folder.mkdir(exist_ok=True)
sizes = {"states": 4, "actions": 2, "reward_states": 2, "indirect": 1, "scales": False}
grd_offline.collect(
    "grd/Factored-v0",
    folder / "many.h5",
    episodes=150,
    policy="random",
    workers=1,
    keep_true_rewards=True,
    env_args=sizes,
    max_episode_steps=20,
)
episodes = read(folder / "many.h5")
write_dataset(folder / "few.h5", episodes[:15])

settings = DecomposeSettings(fit="closed-form")
many = grd_offline.decompose(folder / "many.h5", folder / "many-grd", settings)
few = grd_offline.decompose(folder / "few.h5", folder / "few-grd", settings)
print("The pages to open in a browser:")
for result in (many, few):
    print(" ", result.folder / "report.html")

# %%
# The verdict
# -----------
#
# The page begins with one line. ``decompose`` prints the same line, and the card of the reward
# model repeats it.

for result in (many, few):
    print(f"{result.metrics['episodes']:3} episodes: {result.metrics['verdict']['text']}")

# %%
# There are three verdicts:
#
# - *These rewards can be used*: nothing that can be checked without the true rewards speaks
#   against them.
# - *Use these rewards with care*: something is open, and the line says what.
# - *Do not rely on these rewards*: the rewards are probably wrong. Do not look at the curves,
#   however convincing they are. Get more episodes, shorter episodes, or better inputs first.
#
# Importance
# ----------
#
# The first chart of the page is headed *What drives the reward*. Each bar is the share of the
# variation of the reward that comes from one input, alone or together with others. An effect of
# two inputs counts for both, so the bars can add up to more than 100 %. ``result.shares`` has the
# effects one by one:

for name, share in many.shares:
    print(f"{share:6.1%}  {name}")

# %%
# A share says how much an input makes rewards *differ* in these data. An input that is always the
# same has none, however much it is worth. If a column holds text, each of its labels is an input,
# and one label is missing: the others are measured against it.
#
# Episodes
# --------
#
# Below follows one episode at a time, with the reward of each step, its 90 % band, and the inputs
# that matter most. Choose a step with the slider: bars lead from the mean reward of the data to
# the reward of this step, and show what each effect adds. Look at the best and at the worst
# episode first, and ask somebody who knows the task whether the credit makes sense.
#
# Returns
# -------
#
# A fifth of the episodes was held out of a first fit, and then predicted. The section *returns*
# shows predicted against observed returns. Points on the diagonal are good.

figure, axes = plt.subplots(1, 2, figsize=(7.5, 3.4), layout="constrained")
for axis, result in zip(axes, (many, few), strict=True):
    held = result.metrics["held_out"]
    bars = 1.64 * np.array(held["std"])
    axis.errorbar(held["observed"], held["predicted"], bars, fmt="o", elinewidth=0.8)
    axis.axline((0, 0), slope=1, color="k", linewidth=0.5)
    r2 = result.metrics["held_out_return_r2"]
    title = f"{result.metrics['episodes']} episodes: R² = {r2:.2f}"
    axis.set(xlabel="observed return", ylabel="predicted return", title=title)
plt.show()

# %%
# R² is the part of the differences between returns that the rewards explain. 1 is perfect, and 0
# is no better than predicting the mean return every time. Two rules:
#
# - Only returns that were **held out** count. With few episodes a fit can follow its own returns
#   closely and still know nothing:

for result in (many, few):
    m = result.metrics
    print(f"{m['episodes']:3} episodes: R² on the returns of the fit {m['returns_kept_r2']:.3f}")
    print(
        f"    on {m['held_out_returns']} returns that were held out {m['held_out_return_r2']:.3f}"
    )

# %%
# - R² can only **refute** rewards. A low value shows that they are wrong. A high value does not
#   show that they are right at single steps, because errors of neighbouring steps cancel in the
#   sum. :doc:`/concepts/returns` has examples.
#
# Effects
# -------
#
# The reward is a sum of effects. Each effect is a curve of one input, or a surface of two. Look
# at the band around a curve first. Where a flat line fits into the band, the data do not show an
# effect.

figure, axes = plt.subplots(1, 2, figsize=(7.5, 3), sharey=True, layout="constrained")
for axis, result in zip(axes, (many, few), strict=True):
    for effect in result.model.function.explain().effects:
        if len(effect.inputs) == 1 and effect.inputs[0].startswith("s"):
            (grid,) = effect.grids
            axis.fill_between(
                grid, effect.mean - 1.64 * effect.std, effect.mean + 1.64 * effect.std, alpha=0.25
            )
            axis.plot(grid, effect.mean, label=effect.inputs[0])
    axis.set(xlabel="value of the input", title=f"{result.metrics['episodes']} episodes")
    axis.legend()
axes[0].set(ylabel="effect on the reward")
plt.show()

# %%
# On the left, the bands are narrow, and the two states are the true parents of the reward. On the
# right, one of the two inputs is wrong, and its curve looks just as smooth. A band tells what the
# data leave open *if the model is right*. It cannot tell that an input is missing. This is why
# the verdict comes before the curves.
#
# What the data can tell
# ----------------------
#
# The findings are sentences with a level: *fine*, *note*, *careful* or *unreliable*. The worst of
# them decides the verdict. These are those of the 15 episodes:

for finding in few.findings:
    print(fill(f"[{finding.level}] {finding.text}", 88), "\n")

# %%
# The most useful finding is often the one that counts: so many returns have to determine so many
# numbers. It says how many episodes you need, before you collect them.
#
# The graph
# ---------
#
# The section *causal graph* shows which inputs drive the reward, which states drive which, and
# the compact state: the states that a policy needs. :doc:`/concepts/graph` explains it. The masks
# are answers to "does it carry evidence?", not "is it zero?". With few episodes, weak inputs are
# missing.

for result in (many, few):
    mask = result.masks["state_to_reward"]
    names = [name for name, on in zip(episodes.observation_names, mask, strict=True) if on]
    print(f"{result.metrics['episodes']:3} episodes: the reward depends on {', '.join(names)}")

# %%
# What was the truth?
# -------------------
#
# Now we look at the true rewards of all 150 episodes. The model of 15 episodes is applied to all
# of them.

truth = np.concatenate(read_truth(folder / "many.h5", "true_rewards"))
parts = [(e.observations[:-1], e.actions, e.observations[1:], e.terminations) for e in episodes]
steps = [np.concatenate(part) for part in zip(*parts, strict=True)]
for result in (many, few):
    rewards = result.model.predict(*steps)
    inside = np.abs(rewards - truth) < 1.64 * result.model.uncertainty(*steps)
    correlation = np.corrcoef(rewards, truth)[0, 1]
    print(f"{result.metrics['episodes']:3} episodes:", end=" ")
    print(f"correlation with the true rewards {correlation:.2f}, bands hold {inside.mean():.0%}")

# %%
# The verdict was right about both, without having seen any of this. The bands of the second model
# are much too narrow, which shows once more that a band is no substitute for a verdict.
#
# When not to believe a report
# ----------------------------
#
# - The verdict says so.
# - Fewer than about 50 episodes, or fewer than ten held-out returns.
# - Episodes were chosen by their outcome, or inputs were computed from the outcome.
# - Two inputs rise and fall together: then the credit may belong to either. A finding names them.
# - You want to use the rewards far away from the data. Curves are held constant beyond the data.
# - The reward depends on something that happened earlier and is not part of the state.
#
# If you know the true rewards of even a few episodes, compare with them: ``grd-offline evaluate
# FOLDER --truth true_rewards``. :doc:`/report` lists every part of the page.

"""
A real dataset
==============

In real data the reward is noisy, some of its causes are not recorded, and nothing comes in
episodes. This tutorial takes such data and decides what an episode is. It then decomposes the
data and reads the warnings. It takes about 20 seconds and no network.

The data are the share prices of Google from August 2004 to October 2008, day by day. They come
with Matplotlib. The number of shares that were traded is known for every day. We pretend to know
it only for periods of three to eight days, and look for the days on which much was traded. So the
true answer is known, and nothing about the data is made up.
"""

# %%
# The data
# --------
#
# The inputs have to be known at each step, and must not contain the answer. We take four:
#
# - ``range``: the highest less the lowest price of the day, in percent of the price,
# - ``gap``: by how much the first price differs from the last one of the day before, in percent,
# - ``move``: the last less the first price of the day, in percent,
# - ``year``: the date as a number, because trading changed over the years.

from pathlib import Path
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.cbook import get_sample_data

import grd_offline
from grd_offline import DecomposeSettings

folder = Path("tutorial-real-data")
folder.mkdir(exist_ok=True)
prices = get_sample_data("goog.npz")["price_data"]
prices = pd.DataFrame({name: prices[name] for name in prices.dtype.names})
days = pd.DataFrame(
    {
        "date": prices.date,
        "range": 100 * (prices.high - prices.low) / prices.open,
        "gap": 100 * (prices.open / prices.close.shift(1) - 1),
        "move": 100 * (prices.close - prices.open) / prices.open,
        "year": 2004 + (prices.date - pd.Timestamp("2004-01-01")).dt.days / 365.25,
        "millions": prices.volume / 1e6,
    }
)[1:].reset_index(drop=True)
days.head()

# %%
# What is an episode?
# -------------------
#
# This is the most important decision. Two rules help.
#
# **Short episodes tell more.** Every episode is one equation. A thousand days in periods of five
# give two hundred equations; in periods of a month they would give fifty.
#
# **Episodes should differ.** If every episode were a week from Monday to Friday, each would have
# one Monday, and no return could show what a Monday is worth. Periods of different lengths avoid
# this.

rng = np.random.default_rng(0)
starts = np.cumsum(rng.integers(3, 9, len(days)))
days["period"] = np.searchsorted(starts, np.arange(len(days)), side="right")
days["total"] = days.groupby("period").millions.transform("sum")

episodes = grd_offline.from_dataframe(
    days.drop(columns="millions"), episode="period", step="date", returns="total"
)
print(episodes)

# %%
# Note the ``drop``: the column that holds the answer must not be an input.
#
# Decompose
# ---------
#
# There are no actions, and none are needed. ``fit="closed-form"`` saves time here, because the
# networks that would otherwise compete have too few returns to learn from.

settings = DecomposeSettings(fit="closed-form")
result = grd_offline.decompose(episodes, folder / "google-grd", settings)
print(fill(result.metrics["verdict"]["text"], 88), "\n")
for name, share in result.shares:
    print(f"{share:6.1%}  {name}")

# %%
# The verdict says "with care". The findings give the reasons:

for finding in result.findings:
    print(fill(f"- {finding.level}: {finding.text}", 88))

# %%
# Read them one by one. About a quarter of the differences between the periods is not explained:
# news moves trading, and news is not among the inputs. The shape of one effect is not determined,
# so do not read details into its curve. But you can rank days by the rewards.

effects = {effect.inputs: effect for effect in result.model.function.explain().effects}
figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True, layout="constrained")
for axis, name in zip(axes, ("range", "gap", "year"), strict=True):
    effect = effects[name,]
    low, high = effect.mean - 1.64 * effect.std, effect.mean + 1.64 * effect.std
    axis.fill_between(effect.grids[0], low, high, alpha=0.3)
    axis.plot(effect.grids[0], effect.mean)
    axis.plot(days[name], np.full(len(days), -14.0), "k|", alpha=0.1)
    axis.set(xlabel=name)
axes[0].set(ylabel="effect [million shares]", ylim=(-15, 35))
plt.show()

# %%
# The marks at the bottom are the days. Where there are few marks, the band is wide.
#
# Check against the truth
# -----------------------
#
# Now we look at the numbers that the fit has not seen. Two comparisons are fair: with the even
# share, which gives each day of a period the same, and within periods, where the even share knows
# nothing.

found = days.merge(result.rewards_)
sizes = found.groupby("period").millions.transform("size")


def compare(rewards: pd.Series) -> str:
    """Correlation with the truth over all days, and within periods."""
    truth = found.millions
    within = [one - one.groupby(found.period).transform("mean") for one in (rewards, truth)]
    apart = within[0].corr(within[1])
    return f"{rewards.corr(truth):.2f} over all days, {apart:.2f} within periods"


print("decomposition:", compare(found.reward))
print(f"even share:    {(found.total / sizes).corr(found.millions):.2f} over all days")
inside = ((found.reward - found.millions).abs() < 1.64 * found.spread).mean()
print(f"the 90 % bands hold {inside:.0%} of the days")

# %%
# One of the findings gave a higher correlation than this. It speaks of the part of the reward
# that the inputs determine. The true value of a single day also holds noise, which nobody can
# predict from the inputs. The bands include this noise.

part = found[(found.year > 2007) & (found.year < 2007.25)]
plt.figure(figsize=(9, 3), layout="constrained")
half = 1.64 * part.spread
plt.fill_between(part.date, part.reward - half, part.reward + half, alpha=0.3)
plt.plot(part.date, part.reward, label="found, with 90 % band")
plt.step(part.date, part.total / sizes[part.index], "C1", where="mid", label="even share")
plt.plot(part.date, part.millions, "k.", label="truth")
plt.ylabel("million shares")
plt.legend()
plt.show()

# %%
# What to take from it
# --------------------
#
# - The decomposition finds most of the busy days from the totals alone.
# - It is far from perfect, and it says so: the verdict, the wide bands and the unexplained
#   quarter.
# - The rewards do not name causes. A large range does not make people trade; both follow from
#   news.
#
# Larger real datasets
# --------------------
#
# Four datasets with a known truth come as recipes: hired bikes, flights and the fuel of an
# aircraft. The recipes download the data with pip, so they need a network:
#
# .. code-block:: sh
#
#     grd-offline collect --recipe bike-windows
#     grd-offline decompose bike-windows.h5 --truth true_rewards
#
# :doc:`/real-data` shows what came out: a correlation with the truth of .90 on ``bike-windows``,
# and one dataset on which a simpler method is better.

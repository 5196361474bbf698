"""
Rewards for a table of your own
===============================

You have a table with one row per step, and one number per episode. This tutorial takes such a
table to a reward for every row. It shows what to do with text, which columns need a name, and how
to check the result. It takes about 15 seconds.

The example is a fleet of electric vans. The meter of the charging station gives the energy of a
whole tour. Nobody knows how much each minute of a tour took.
"""

# %%
# A table
# -------
#
# We make the table up, so that we know the truth and can check the result at the end. Every row
# is one minute of a tour. ``energy`` is the outcome of the tour in kWh, and it is repeated in
# each of its rows.

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import grd_offline

folder = Path("tutorial-own-table")
folder.mkdir(exist_ok=True)
rng = np.random.default_rng(3)
USUAL_SPEED = {"city": 30, "hill": 45, "motorway": 95}

rows = []
for number in range(240):
    load, outside = rng.uniform(100, 900), rng.uniform(-5, 25)
    for minute in range(rng.integers(8, 25)):
        road = rng.choice(list(USUAL_SPEED), p=[0.5, 0.2, 0.3])
        heating = int(rng.random() < (0.8 if outside < 10 else 0.1))
        speed = rng.normal(USUAL_SPEED[road], 8)
        rows.append((f"T{number:03d}", minute, speed, load, road, outside, heating))
        load *= rng.choice([1.0, 0.7], p=[0.8, 0.2])  # a parcel leaves the van
names = ["tour", "minute", "speed", "load", "road", "outside", "heating"]
table = pd.DataFrame(rows, columns=names).round({"speed": 1, "load": 0, "outside": 1})

truth = 0.04 + 1.2e-5 * table.speed**2 + 3e-4 * table.load * (table.road == "hill")
truth += 0.06 * table.heating + rng.normal(0, 0.01, len(table))
table["energy"] = truth.groupby(table.tour).transform("sum").round(3)
table.to_csv(folder / "tours.csv", index=False)
table.head()

# %%
# Say what the columns are
# ------------------------
#
# ``from_dataframe`` needs to know four things:
#
# - ``episode``: the column that tells the episodes apart,
# - ``step``: the column that gives the order of their rows,
# - ``returns``: the column with the outcome,
# - ``actions``: the inputs that somebody chose. Leave it out if there are none.
#
# The rows may come in any order. A step may be a number or a time, such as ``2024-03-01 08:51``.
#
# All other columns describe the state. Common names such as ``episode``, ``step``, ``t``,
# ``return`` and ``action`` are recognised without being named.

table = pd.read_csv(folder / "tours.csv")
episodes = grd_offline.from_dataframe(
    table, episode="tour", step="minute", returns="energy", actions="heating"
)
print(episodes)
print("states: ", episodes.observation_names)
print("actions:", episodes.action_names)

# %%
# The column ``road`` holds text. It became one column of 0 and 1 for each of its labels. A column
# of numbers that stand for categories, such as a product number, would need
# ``categories="product"``.
#
# Look at what was made of the table before you go on. Mistakes in a table mostly show here: an
# outcome among the states, a number of an order that is unique to its episode, or too many
# episodes of one step.

# %%
# Decompose
# ---------
#
# ``decompose`` finds the rewards and writes everything into a folder. With 240 tours this takes
# about ten seconds.

result = grd_offline.decompose(episodes, folder / "tours-grd")
print(result.metrics["verdict"]["text"])
for name, share in result.shares:
    print(f"{share:6.1%}  {name}")

# %%
# The first line is the verdict. It is the first thing to read, and there are three of them: "can
# be used", "with care" and "do not rely on". :doc:`plot_7_reading_a_report` explains them.
#
# The shares say how much of the variation of the reward comes from each effect. An effect of two
# inputs, written with an ``x``, is what these inputs do together beyond what each of them does
# alone.
#
# Labels of text are compared with each other, so one of them is always missing. Here
# ``road=hill`` stands for the difference between a hill and the other two roads. Nothing is lost:
# a minute that is not on a hill is in the city or on a motorway, and apart from the speed these
# are alike.

# %%
# Back to the table
# -----------------
#
# ``result.rewards_`` has one row per step: the keys of your table, the reward, and its standard
# deviation under the name ``spread``. It joins your table by its keys.

found = table.merge(result.rewards_)
found.to_csv(folder / "tours-with-rewards.csv", index=False)
found[["tour", "minute", "speed", "load", "road", "heating", "reward", "spread"]].head()

# %%
# The rewards of an episode add up to about its outcome, not exactly. What is left over is noise
# that no input explains. ``DecomposeSettings(exact_returns=True)`` spreads the rest evenly over
# the steps.

sums = found.groupby("tour").reward.sum()
outcomes = table.groupby("tour").energy.first()
print(f"largest difference between a sum and its outcome: {(sums - outcomes).abs().max():.3f} kWh")

# %%
# What does each input cost?
# --------------------------
#
# An effect is a curve that you can look at. Its band is 1.64 standard deviations wide to each
# side, so it should hold the true curve with a probability of 90 %. An effect is measured against
# the average over the data: below zero is less energy than usual.

effects = result.model.function.explain().effects
speed = next(effect for effect in effects if effect.inputs == ("speed",))

figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
low, high = speed.mean - 1.64 * speed.std, speed.mean + 1.64 * speed.std
axes[0].fill_between(speed.grids[0], low, high, alpha=0.3)
axes[0].plot(speed.grids[0], speed.mean)
axes[0].set(xlabel="speed [km/h]", ylabel="effect on a minute [kWh]", title="speed")
step = found[found.tour == "T001"]
axes[1].errorbar(step.minute, step.reward, 1.64 * step.spread, fmt="o", label="found, with band")
axes[1].plot(step.minute, truth[found.tour == "T001"], "k_", markersize=12, label="truth")
axes[1].set(xlabel="minute of tour T001", ylabel="energy [kWh]", title="one tour")
axes[1].legend()
plt.show()

# %%
# Check against the truth
# -----------------------
#
# We made the data up, so we can do what is mostly impossible: compare with the true energy of
# every minute. If you know the truth of even a few episodes, do the same. It is the only proof. A
# good fit of the outcomes proves nothing about single steps; :doc:`/concepts/returns` explains
# why.

inside = ((found.reward - truth).abs() < 1.64 * found.spread).mean()
print(f"correlation with the true energy per minute: {np.corrcoef(found.reward, truth)[0, 1]:.3f}")
print(f"share of the true values inside the 90 % bands: {inside:.0%}")

# %%
# Use the model on other rows
# ---------------------------
#
# The folder holds the reward as a function. It takes states and actions in the order and the
# units of the table, and needs no outcome. Here: one minute on a hill at 45 km/h with 800 kg,
# without and with heating.

model = grd_offline.RewardModel.load(folder / "tours-grd")
print(model)
minute = {"speed": 45, "load": 800, "road=hill": 1, "outside": 5}
state = np.array([[minute.get(name, 0) for name in episodes.observation_names]])
for heating in (0, 1):
    reward, spread = (f(state, [[heating]])[0] for f in (model.predict, model.uncertainty))
    true = 0.04 + 1.2e-5 * 45**2 + 3e-4 * 800 + 0.06 * heating
    print(f"heating {heating}: {reward:.3f} ± {spread:.3f} kWh, in truth {true:.3f}")

# %%
# The same on the command line
# ----------------------------
#
# All of this is one command, which also writes the rewards as ``relabelled.csv``:
#
# .. code-block:: sh
#
#     grd-offline decompose tours.csv \
#         --columns episode=tour,step=minute,actions=heating,return=energy
#
# ``report.html`` in the folder shows the same curves, all tours, and what the data cannot tell.
# :doc:`/own-data` lists everything that a table may hold: Parquet files, outcomes in a file of
# their own, success or failure instead of a number, and embeddings.

"""A small table of trips with a known reward for every step."""

import numpy as np

NAMES = ("trip", "minute", "speed", "load", "weather", "throttle", "fuel", "true_reward")


def make_trips(trips=60, seed=0, least=6, most=14):
    """Columns by name. A minute costs 0.002 speed² + 3 throttle, and 2 more in rain."""
    rng = np.random.default_rng(seed)
    columns = {name: [] for name in NAMES}
    for trip in range(trips):
        steps = int(rng.integers(least, most))
        speed, throttle = rng.normal(60, 15, steps).round(3), rng.uniform(0, 1, steps).round(3)
        weather = rng.choice(["rain", "snow", "sun"], steps)
        cost = 0.002 * speed**2 + 3 * throttle + 2 * (weather == "rain")
        columns["trip"] += [f"T{trip}"] * steps
        columns["minute"] += range(steps)
        columns["speed"] += speed.tolist()
        columns["load"] += rng.uniform(0, 1, steps).round(3).tolist()
        columns["weather"] += weather.tolist()
        columns["throttle"] += throttle.tolist()
        columns["fuel"] += [round(float(cost.sum()), 4)] * steps
        columns["true_reward"] += cost.tolist()
    return columns


def as_csv(columns, separator=","):
    """The text of a CSV file."""
    rows = zip(*columns.values(), strict=True)
    lines = [separator.join(columns), *(separator.join(map(str, row)) for row in rows)]
    return "\n".join(lines) + "\n"

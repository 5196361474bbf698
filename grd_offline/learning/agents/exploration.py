"""Open-loop exploration: the actions of a whole episode, drawn before it starts.

Nothing here looks at an observation, so an episode's actions are one array and cost no time per
step. `random` draws every action anew. `explore` draws one way of moving per episode (noise,
drifting noise, a rhythmic gait, a habit), so that returns differ widely between episodes: what a
return decomposition learns from is that difference.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from grd_offline.core.typing import Array

Generator = np.random.Generator


def draw_box_actions(
    policy: str, low: ArrayLike, high: ArrayLike, steps: int, generator: Generator
) -> NDArray[np.float32]:
    """(steps, *shape) actions inside the box between `low` and `high`, which may be infinite."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    bounded = (np.isfinite(low) & np.isfinite(high)).ravel()
    shape = (steps, low.size)
    if policy == "random":
        signal = _uniform_noise(shape, generator)
        signal[:, ~bounded] = generator.standard_normal((steps, np.count_nonzero(~bounded)))
    else:
        draw = (_uniform_noise, _drifting_noise, _noisy_gait)[generator.integers(3)]
        signal = draw(shape, generator)
    actions = _stretch(signal, low.ravel(), high.ravel()).reshape(steps, *low.shape)
    with np.errstate(over="ignore"):
        lowest, highest = float32_bounds(low, high)
        return np.clip(actions.astype(np.float32), lowest, highest)


def draw_discrete_actions(
    policy: str, choices: int, steps: int, generator: Generator
) -> NDArray[np.int64]:
    """(steps,) choices between 0 and `choices` - 1.

    `explore` prefers some choices (by a random amount) and repeats the last one (with a random
    probability).
    """
    if policy == "random":
        return generator.integers(choices, size=steps)
    preference = generator.dirichlet(np.full(choices, generator.choice([0.5, 2.0, 50.0])))
    drawn = generator.choice(choices, size=steps, p=preference)
    repeat_probability = generator.choice([0.0, generator.uniform(0.3, 0.95)])
    is_new = generator.random(steps) >= repeat_probability
    is_new[0] = True
    # Each step takes the choice drawn at the latest step that drew a new one.
    latest_new = np.maximum.accumulate(np.where(is_new, np.arange(steps), 0))
    return np.asarray(drawn[latest_new], np.int64)


def _uniform_noise(shape: tuple[int, int], generator: Generator) -> Array:
    return generator.uniform(-1.0, 1.0, shape)


def _drifting_noise(shape: tuple[int, int], generator: Generator) -> Array:
    """Ornstein-Uhlenbeck noise: amplitude, correlation time and offset differ by episode."""
    steps, size = shape
    amplitude = generator.uniform(0.2, 1.0)
    correlation_time = np.exp(generator.uniform(np.log(2.0), np.log(50.0)))
    offset = generator.uniform(0.0, 0.6) * generator.standard_normal(size)
    decay = float(np.exp(-1.0 / correlation_time))
    shocks = generator.standard_normal((steps, size))
    shocks[1:] *= np.sqrt(1.0 - decay**2)
    return offset + amplitude * _accumulate(shocks, decay)


def _noisy_gait(shape: tuple[int, int], generator: Generator) -> Array:
    """One rhythm for all dimensions, each with its own phase, swing and offset, plus noise."""
    steps, size = shape
    cycles_per_step = np.exp(generator.uniform(np.log(0.01), np.log(0.25)))
    phase = generator.uniform(0.0, 2.0 * np.pi, size)
    swing = generator.uniform(0.3, 1.2) * generator.uniform(0.0, 1.0, size)
    offset = generator.uniform(0.0, 0.4) * generator.standard_normal(size)
    noise = generator.uniform(0.0, 0.3) * generator.standard_normal((steps, size))
    angle = phase + 2.0 * np.pi * cycles_per_step * np.arange(steps)[:, None]
    gait: Array = offset + swing * np.sin(angle) + noise
    return gait


def _accumulate(shocks: Array, decay: float) -> Array:
    """x_t = decay x_{t-1} + shock_t, by doubling: log2(steps) array operations and no loop."""
    total, reach = shocks.copy(), 1
    while reach < len(total):
        total[reach:] += decay**reach * total[:-reach]
        reach *= 2
    return total


def _stretch(signal: Array, low: Array, high: Array) -> Array:
    """A signal of about [-1, 1] in the units of each dimension.

    [-1, 1] becomes [low, high]. Without limits the signal stays as it is; with one limit its size
    is the distance from that limit.
    """
    has_low, has_high = np.isfinite(low), np.isfinite(high)
    bounded = has_low & has_high
    finite_low, finite_high = np.where(has_low, low, 0.0), np.where(has_high, high, 0.0)
    # Halved before the sum, which could overflow otherwise.
    middle = finite_low / 2 + finite_high / 2
    half_width = np.where(bounded, finite_high / 2 - finite_low / 2, 1.0)
    stretched: Any = np.where(bounded, middle, 0.0) + half_width * signal
    stretched = np.where(has_low & ~has_high, finite_low + np.abs(signal), stretched)
    return np.asarray(np.where(has_high & ~has_low, finite_high - np.abs(signal), stretched))


def float32_bounds(low: Array, high: Array) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The outermost float32 numbers that still lie within [low, high]."""
    lowest, highest = low.astype(np.float32), high.astype(np.float32)
    lowest = np.where(lowest < low, np.nextafter(lowest, np.float32(np.inf)), lowest)
    highest = np.where(highest > high, np.nextafter(highest, np.float32(-np.inf)), highest)
    return lowest, highest

"""The pictures and figures of these pages: `python docs/concepts/pictures.py` makes them again.

Each function of `EXAMPLES` computes one example and returns the figures that its page cites, by
name. A test compares them with the page.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from grd_offline.core.graph import compact_closure, compact_one_hop

Array = NDArray[np.float64]
Figures = dict[str, str]
HERE = Path(__file__).parent
COLOURS = BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"


def correlate(left: Array, right: Array) -> float:
    """The Pearson correlation of two arrays."""
    return float(np.corrcoef(left.ravel(), right.ravel())[0, 1])


def explain(predicted: Array, observed: Array) -> float:
    """R²: the share of the variance of `observed` that `predicted` explains."""
    return 1 - float(((observed - predicted) ** 2).mean() / observed.var())


def make_axes(count: int, name: str) -> tuple[list[Axes], Callable[[], None]]:
    """Axes side by side, and a function that writes them as a picture."""
    mpl.rcParams.update({"svg.hashsalt": "grd-offline", "svg.fonttype": "path", "font.size": 9})
    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    axes = [figure.add_subplot(1, count, place + 1) for place in range(count)]
    metadata = {"Date": None, "Creator": None}
    return axes, lambda: figure.savefig(HERE / f"{name}.svg", metadata=metadata)


def show_sums(*, draw: bool) -> Figures:
    """One return fits many rewards; a hundred returns and one function fit one line."""
    rng = np.random.default_rng(0)
    rewards = np.array([[1, 1, 1, 1, 1, 1], [0, 0, 0, 6, 0, 0], [3, 2, 1, 0, 0, 0]], np.float64)
    states = rng.normal(0, 1, (100, 8))
    returns = (0.5 + 2 * states).sum(1) + rng.normal(0, 0.1 * np.sqrt(8), 100)
    sums = np.stack([np.full(100, 8.0), states.sum(1)], 1)
    constant, slope = np.linalg.lstsq(sums, returns, rcond=None)[0]
    if draw:
        axes, save = make_axes(2, "sums")
        for reward, colour, shift in zip(rewards, COLOURS, (-0.25, 0, 0.25), strict=True):
            axes[0].bar(np.arange(1, 7) + shift, reward, 0.25, color=colour)
        axes[0].set(xlabel="step", ylabel="reward", title="three episodes with a return of 6")
        axes[1].plot(sums[:, 1], returns, ".", color=BLUE)
        line = np.array([-8.0, 8.0])
        axes[1].plot(line, 8 * constant + slope * line, color=ORANGE)
        axes[1].set(xlabel="sum of x over an episode", ylabel="return", title="100 returns")
        save()
    return {"constant": f"{constant:.2f}", "slope": f"{slope:.2f}"}


def show_potentials(*, draw: bool) -> Figures:
    """A term h(s') - h(s) changes every reward and hardly any return."""
    rng = np.random.default_rng(1)
    states = np.zeros((200, 201))
    for t in range(200):
        states[:, t + 1] = 0.9 * states[:, t] + rng.normal(0, 1, 200)
    now, later = states[:, :-1], states[:, 1:]
    true = now + now**2 / 4
    other = true + 5 * (later - now)
    short = explain(other[:, :50].sum(1), true[:, :50].sum(1))
    if draw:
        axes, save = make_axes(2, "potentials")
        axes[0].plot(true[0, :50], color="k", label="reward")
        axes[0].plot(other[0, :50], color=ORANGE, linewidth=1, label="reward + 5 s' - 5 s")
        axes[0].set(xlabel="step", title="the first 50 steps of an episode")
        axes[0].legend()
        axes[1].plot(true.sum(1), other.sum(1), ".", color=BLUE)
        axes[1].axline((0, 0), slope=1, color="k", linewidth=0.5)
        axes[1].set(xlabel="return of the reward", ylabel="of the changed reward")
        axes[1].set(title="200 returns")
        save()
    return {
        "R² of 50 steps": f"{short:.3f}",
        "R² of 200 steps": f"{explain(other.sum(1), true.sum(1)):.3f}",
        "potential correlation": f"{correlate(true, other):.2f}",
    }


def show_lengths(*, draw: bool) -> Figures:
    """A reward per step and a reward at the end differ only where lengths differ."""
    rng = np.random.default_rng(2)
    lengths = rng.integers(5, 16, 60)
    per_step, at_end = 0.5 * lengths, np.full(60, 5.0)
    if draw:
        axes, save = make_axes(2, "lengths")
        axes[0].plot([10] * 60, [5] * 60, "o", color=BLUE)
        axes[0].set(title="all episodes have 10 steps", xlim=(4, 16), ylim=(0, 9))
        axes[1].plot(lengths, per_step, "o", color=BLUE, label="0.5 per step")
        axes[1].plot(lengths, at_end, "s", color=ORANGE, markersize=4, label="5 at the end")
        axes[1].set(title="lengths differ", xlim=(4, 16), ylim=(0, 9))
        axes[1].legend(loc="upper left")
        for axis in axes:
            axis.set(xlabel="steps of the episode", ylabel="return")
        save()
    return {"per step": f"{per_step[lengths == 15][0]:.1f}", "at end": f"{at_end[0]:.1f}"}


def show_correlated(*, draw: bool) -> Figures:
    """Where two inputs rise and fall together, only the sum of their weights is known."""
    rng = np.random.default_rng(3)
    found: Figures = {}
    axes, save = make_axes(2, "correlated") if draw else ([], lambda: None)
    for place, (alike, name) in enumerate(((0.0, "independent"), (0.995, "alike"))):
        first = rng.normal(0, 1, (100, 10))
        second = alike * first + np.sqrt(1 - alike**2) * rng.normal(0, 1, (100, 10))
        sums = np.stack([first.sum(1), second.sum(1)], 1)
        # Noise of variance 10, weights of variance 1.
        covariance = np.linalg.inv(sums.T @ sums / 10 + np.eye(2))
        both = float(np.sqrt(covariance.sum()))
        found[f"{name} each"] = f"{np.sqrt(covariance[0, 0]):.2f}"
        found[f"{name} sum"] = f"{both:.2f}"
        if draw:
            angles = np.linspace(0, 2 * np.pi, 200)
            circle = np.linalg.cholesky(covariance) @ np.stack([np.cos(angles), np.sin(angles)])
            for size in (1, 2):
                axes[place].plot(1 + size * circle[0], 1 + size * circle[1], color=BLUE)
            axes[place].plot(1, 1, "k+")
            title = f"correlation of the inputs: {alike:g}"
            axes[place].set(xlabel="weight of x", ylabel="weight of y", title=title)
            axes[place].set(xlim=(-1, 3), ylim=(-1, 3), aspect="equal")
    save()
    return found


def show_constant_input(*, draw: bool) -> Figures:
    """An input that takes the same values in every episode has the same sum in every return."""
    rng = np.random.default_rng(4)
    hours = np.tile(np.arange(24), (200, 1))
    worth = np.sin(2 * np.pi * (hours - 6) / 24)
    whole = worth.sum(1)
    starts = rng.integers(0, 24, 200)
    lengths = rng.integers(4, 13, 200)
    parts = np.array(
        [worth[0, np.arange(s, s + n) % 24].sum() for s, n in zip(starts, lengths, strict=True)]
    )
    if draw:
        axes, save = make_axes(2, "hours")
        titles = ("whole days", "4 to 12 hours")
        for axis, returns, title in zip(axes, (whole, parts), titles, strict=True):
            axis.hist(returns, np.linspace(-8, 8, 33), color=BLUE)
            axis.set(xlabel="sum over the episode", ylabel="episodes", title=title)
        save()
    return {"whole spread": f"{abs(whole.std()):.2f}", "parts spread": f"{parts.std():.2f}"}


STATES = ("speed", "motor", "battery", "charger", "radio")
PLACES = {
    "charger": (0, 0.5), "battery": (1, 0.5), "motor": (2, 0.5), "speed": (3, 0.5),
    "radio": (1, -0.3), "reward": (4, 0.5),
}  # fmt: skip


def show_graph(*, draw: bool) -> Figures:
    """The compact state of a small graph, in both readings."""
    edges = [("charger", "battery"), ("battery", "motor"), ("motor", "speed"), ("battery", "radio")]
    state_to_state = np.eye(len(STATES), dtype=np.int64)
    for cause, effect in edges:
        state_to_state[STATES.index(cause), STATES.index(effect)] = 1
    state_to_reward = np.array([1, 0, 0, 0, 0])
    masks = {
        "one hop": compact_one_hop(state_to_reward, state_to_state),
        "closure": compact_closure(state_to_reward, state_to_state),
    }
    names = np.array(STATES)
    kept = {name: names[mask == 1].tolist() for name, mask in masks.items()}
    if draw:
        axes, save = make_axes(2, "graph")
        for axis, (name, chosen) in zip(axes, kept.items(), strict=True):
            for cause, effect in [*edges, ("speed", "reward")]:
                arrow = {"arrowstyle": "->", "shrinkA": 15, "shrinkB": 15}
                axis.annotate("", PLACES[effect], PLACES[cause], arrowprops=arrow)
            for node, place in PLACES.items():
                colour = ORANGE if node == "reward" else BLUE if node in chosen else "#bbbbbb"
                axis.text(*place, node, size=7, ha="center", va="center", color="white", bbox={
                    "boxstyle": "round", "facecolor": colour, "edgecolor": "none"
                })  # fmt: skip
            axis.set(xlim=(-0.5, 4.5), ylim=(-0.8, 1.2), title=name)
            axis.set_axis_off()
        save()
    return {name: ", ".join(chosen) for name, chosen in kept.items()}


EXAMPLES: Mapping[str, Callable[..., Figures]] = {
    "returns": show_sums,
    "returns, potentials": show_potentials,
    "returns, lengths": show_lengths,
    "returns, correlated inputs": show_correlated,
    "returns, hours": show_constant_input,
    "graph": show_graph,
}
"""By the page that cites the figures, and what they are about."""

if __name__ == "__main__":
    for name, example in EXAMPLES.items():
        print(name, example(draw=True))

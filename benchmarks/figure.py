"""Draw the picture in the README: one held-out episode, its true rewards and what came back.

python benchmarks/figure.py docs/decomposition.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from factored_worlds import make_episodes

from grd_offline.core.steps import StepBatch
from grd_offline.methods import make_decomposer
from grd_offline.worlds.synthetic import FactoredWorld, WorldSettings

WIDTH, HEIGHT, LEFT, GAP = 860, 150, 70, 46


def main(path: Path) -> None:
    world = FactoredWorld(WorldSettings(family="hard", graph_seed=3))
    rng = np.random.default_rng(0)
    fitted = make_decomposer("grd").fit(make_episodes(world.rollout(rng, 500)), rng=rng)
    test = world.rollout(rng, 1)
    actions, terminations = test.actions[0], np.zeros(len(test.actions[0]), np.bool_)
    steps = (test.observations[0, :-1], actions, test.observations[0, 1:], terminations)
    rewards = fitted.predict(*steps)
    band = 1.645 * fitted.function_.predict_std(StepBatch(*steps))
    true = test.rewards[0]
    observed = np.where(np.arange(len(true)) == len(true) - 1, true.sum(), 0.0)
    page = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {2 * (HEIGHT + GAP) + 14}' "
        "font-family='system-ui, sans-serif' font-size='14'>",
        f"<rect width='{WIDTH}' height='{2 * (HEIGHT + GAP) + 14}' fill='#ffffff'/>",
        panel(GAP - 14, "What you have: one number per episode", [(observed, "#57606a")], None),
        panel(
            HEIGHT + 2 * GAP - 14,
            "What comes back: a reward for every step, with its 90 % band (blue); "
            "the true rewards, never seen (orange)",
            [(true, "#d97706"), (rewards, "#0369a1")],
            (rewards - band, rewards + band),
        ),
        "</svg>",
    ]
    path.write_text("\n".join(page) + "\n")
    print(f"wrote {path}: correlation {np.corrcoef(rewards, true)[0, 1]:.3f}")


def panel(top: float, title: str, lines: list, band: tuple | None) -> str:
    values = np.concatenate([line for line, _ in lines] + list(band or ()))
    low, high = min(values.min(), 0), max(values.max(), 0)

    def place(t: int, value: float) -> str:
        x = LEFT + t / (len(lines[0][0]) - 1) * (WIDTH - LEFT - 20)
        return f"{x:.1f},{top + HEIGHT * (1 - (value - low) / (high - low)):.1f}"

    parts = [f"<text x='{LEFT}' y='{top - 10}' fill='#1b1f24'>{title}</text>"]
    for value in (low, high):
        y = place(0, value).split(",")[1]
        parts.append(
            f"<text x='{LEFT - 8}' y='{y}' fill='#57606a' text-anchor='end' "
            f"dominant-baseline='middle'>{value:.1f}</text>"
        )
    zero = place(0, 0).split(",")[1]
    parts.append(f"<line x1='{LEFT}' x2='{WIDTH - 20}' y1='{zero}' y2='{zero}' stroke='#d0d7de'/>")
    if band is not None:
        edge = [place(t, v) for t, v in enumerate(band[1])]
        edge += [place(t, v) for t, v in reversed(list(enumerate(band[0])))]
        parts.append(f"<polygon points='{' '.join(edge)}' fill='#0369a1' opacity='.2'/>")
    for line, colour in lines:
        points = " ".join(place(t, v) for t, v in enumerate(line))
        parts.append(
            f"<polyline points='{points}' fill='none' stroke='{colour}' stroke-width='2'/>"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

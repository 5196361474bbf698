"""The page a person looks at: one file that opens offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _HEIGHT = 320, 150
_LEFT, _FOOT, _EDGE = 46, 18, 6  # room for the numbers beside and below a drawing, and around it
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1b1f24; background: #fff }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2rem }
table { border-collapse: collapse } td, th { padding: .2rem .8rem .2rem 0; text-align: left }
figure { display: inline-block; margin: .5rem 1rem .5rem 0 } figcaption { font-size: .85rem }
.careful { border-left: 4px solid #b45309; padding-left: .6rem }
.fine { border-left: 4px solid #0369a1; padding-left: .6rem }
svg { background: #f6f8fa; max-width: 100% } svg text { font-size: 11px; fill: currentColor }
@media (prefers-color-scheme: dark) {
  body { color: #e6edf3; background: #0d1117 } svg { background: #161b22 } }
"""


def write_report(
    metrics: Mapping[str, Any],
    masks: Mapping[str, Any],
    effects: Mapping[str, Any],
    episodes: Sequence[Mapping[str, Sequence[float]]],
) -> str:
    """The page as text; every name that came from the data is escaped."""
    parts = [
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f"<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(str(metrics['data']))}: return decomposition</title>"
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>What drives the return in {escape(str(metrics['data']))}</h1>",
        f"<p>{_headline(metrics, effects)}</p>",
        "<h2>What the data can and cannot tell</h2>",
        *(
            f"<p class='{escape(f['level'])}'>{escape(f['text'])}</p>"
            for f in metrics["identifiability"]["findings"]
        ),
        "<h2>Effects</h2>",
        *(_draw_effect(effect) for effect in _ranked(effects) if len(effect["inputs"]) == 1),
        _effect_table(effects),
        "<h2>Rewards in the first episodes</h2>",
        *(_draw_episode(episode, i) for i, episode in enumerate(episodes)),
        "<h2>Causal graph</h2>",
        _mask_table(masks),
        "<h2>Settings</h2>",
        _table(metrics["settings"]),
        "</body></html>",
    ]
    return "\n".join(parts)


def _ranked(effects: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Effects by their share, largest first."""
    return sorted(effects["effects"], key=lambda effect: -effect["share"])


def _headline(metrics: Mapping[str, Any], effects: Mapping[str, Any]) -> str:
    names = [_name_together(effect["inputs"]) for effect in _ranked(effects)[:3]]
    drivers = "; ".join(names) or "nothing that was found"
    explained = metrics.get("held_out_return_r2")
    how = "" if explained is None else f" It explains {explained:.1%} of the returns held out."
    return escape(f"Most of the reward comes from {drivers}. Fit: {metrics['fit']}.{how}")


def _name_together(inputs: Sequence[str]) -> str:
    return inputs[0] if len(inputs) == 1 else f"{' and '.join(inputs)} together"


def _effect_table(effects: Mapping[str, Any]) -> str:
    ranked = _ranked(effects)
    rows = "".join(
        f"<tr><td>{escape(' x '.join(e['inputs']))}</td><td>{e['share']:.1%}</td></tr>"
        for e in ranked
    )
    head = "<tr><th>effect</th><th>share of the variance</th></tr>"
    below = any(e["share"] < 0 for e in ranked)
    note = "<p>A share below 0: the effect mostly works against the others.</p>" if below else ""
    return f"<table>{head}{rows}</table>{note}"


def _draw_effect(effect: Mapping[str, Any]) -> str:
    name = escape(effect["inputs"][0])
    svg = _draw_band(effect["grids"][0], effect["mean"], effect["std"], name)
    return f"<figure>{svg}<figcaption>{name}: {effect['share']:.1%}</figcaption></figure>"


def _draw_episode(episode: Mapping[str, Sequence[float]], index: int) -> str:
    rewards = episode["rewards"]
    thin = max(1, len(rewards) // 500)
    label = f"episode {index}"
    svg = _draw_band(range(0, len(rewards), thin), rewards[::thin], episode["std"][::thin], label)
    return f"<figure>{svg}<figcaption>{label}, reward per step with its band</figcaption></figure>"


def _draw_band(xs: Sequence[float], mean: Sequence[float], std: Sequence[float], label: str) -> str:
    low = [m - 1.645 * s for m, s in zip(mean, std, strict=True)]
    high = [m + 1.645 * s for m, s in zip(mean, std, strict=True)]
    bottom, top = min(low), max(high)
    left, right = xs[0], xs[-1]

    width, height = _WIDTH - _LEFT - _EDGE, _HEIGHT - _FOOT - _EDGE

    def place(x: float, y: float) -> str:
        across = _LEFT + (x - left) / ((right - left) or 1) * width
        return f"{across:.1f},{_EDGE + (top - y) / ((top - bottom) or 1) * height:.1f}"

    line = " ".join(place(x, y) for x, y in zip(xs, mean, strict=True))
    edge = [place(x, y) for x, y in zip(xs, high, strict=True)]
    edge += [place(x, y) for x, y in reversed(list(zip(xs, low, strict=True)))]
    numbers = (
        (_LEFT - 4, _EDGE + 8, "end", top),
        (_LEFT - 4, _EDGE + height, "end", bottom),
        (_LEFT, _HEIGHT - 5, "start", left),
        (_WIDTH - _EDGE, _HEIGHT - 5, "end", right),
    )
    return (
        f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' width='{_WIDTH}' role='img' aria-label='{label}'>"
        f"<polygon points='{' '.join(edge)}' fill='#0369a1' opacity='.2'/>"
        f"<polyline points='{line}' fill='none' stroke='#0369a1' stroke-width='1.5'/>"
        + "".join(
            f"<text x='{x}' y='{y}' text-anchor='{anchor}'>{_show(value)}</text>"
            for x, y, anchor, value in numbers
        )
        + "</svg>"
    )


def _show(value: float) -> str:
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def _mask_table(masks: Mapping[str, Any]) -> str:
    names = list(masks["state_names"]) + list(masks["action_names"])
    to_reward = list(masks["state_to_reward"]) + list(masks["action_to_reward"])
    states = len(masks["state_names"])
    rows = []
    for i, name in enumerate(names):
        effects = masks["state_to_state"][i] if i < states else masks["action_to_state"][i - states]
        reached = [masks["state_names"][j] for j, on in enumerate(effects) if on]
        compact = i < states and masks["compact"]["closure"][i]
        cells = (
            name,
            "yes" if to_reward[i] else "",
            "yes" if compact else "",
            ", ".join(reached[:12]),
        )
        rows.append("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in cells) + "</tr>")
    titles = ("input", "drives reward", "compact state", "drives the next")
    head = "<tr>" + "".join(f"<th>{title}</th>" for title in titles) + "</tr>"
    return f"<table>{head}{''.join(rows[:200])}</table>"


def _table(values: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(str(k))}</td><td>{escape(str(v))}</td></tr>" for k, v in values.items()
    )
    return f"<table>{rows}</table>"

"""The page of a decomposition, made from its folder alone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from grd_offline.errors import DataError
from grd_offline.files.plain import folder_errors, read_json
from grd_offline.names import rename_result
from grd_offline.report.film import Film
from grd_offline.report.packing import encode, pack
from grd_offline.report.page import (
    PAGE_BYTES,
    count_fixed_bytes,
    embed,
    join_names,
    make_chart,
    make_command,
    make_facts,
    make_navigation,
    make_page,
    make_section,
    make_settings,
    make_table,
    show_number,
    show_share,
)
from grd_offline.report.viewer import MOST_INPUTS, Tracks, pack_tracks, read_tracks

MOST_EFFECTS = 24
"""Drawn; the table has all."""
MOST_NODES = 24
"""States in the drawing of the graph, and actions; the heat maps have all."""
MOST_POINTS = 2000
TOO_NARROW = 0.8
"""Bands that are meant to hold 90 % and hold less than this are said to be too narrow."""
CLEARLY = 0.95
"""Effects that are all pinned down so far need no drawing that says so."""
MASKS = ("state_to_reward", "action_to_reward", "state_to_state", "action_to_state")
NINETY = show_share(0.9)
MISFIT = "metrics, masks and effects do not fit together"
Contents = Mapping[str, Any]


class Decomposed:
    """A decomposition's folder, read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metrics: Contents = rename_result(_read_json(folder, "metrics.json"))
        self.masks: Contents = _read_json(folder, "masks.json")
        effects: Contents = _read_json(folder, "effects.json")
        with folder_errors(folder, MISFIT):
            self.effects = sorted(effects["effects"], key=lambda effect: -float(effect["share"]))
            self.inputs = _rank_inputs(self.effects, self.masks)
            self.tracks: Tracks = read_tracks(
                folder, self.metrics, self.masks, self.inputs[:MOST_INPUTS]
            )

    def make_page(self, film: Film | None = None) -> str:
        """The page as text."""
        with folder_errors(self.folder, MISFIT):
            return self._make_page(film)

    def _make_page(self, film: Film | None) -> str:
        payload: dict[str, Any] = {
            "kind": "decomposition",
            "effects": [_pack_effect(effect) for effect in self.effects[:MOST_EFFECTS]],
            "graph": pack_graph(self.masks),
            "returns": self._pack_returns(),
            "calibration": self.metrics.get("calibration"),
            "pinned": self.metrics["identifiability"].get("pinned_down", {}),
            "film": None if film is None else film.clips,
        }
        sections = [
            ("episodes", "Episodes", self._tell_episodes(film)),
            ("effects", "Effects", self._tell_effects()),
            ("graph", "Causal graph", self._tell_graph()),
            ("returns", "Returns", self._tell_returns()),
            ("limits", "What the data can tell", self._tell_limits()),
            ("again", "Make it again", self._tell_settings()),
        ]
        body = (
            self._tell_headline()
            + make_navigation((name, title) for name, title, _ in sections)
            + f"<main>{''.join(html for _, _, html in sections)}</main>"
        )
        used = count_fixed_bytes() + len(body.encode()) + len(embed(payload))
        payload["viewer"] = pack_tracks(self.tracks, max(PAGE_BYTES - used, 200_000))
        return make_page(f"{self.metrics['data']}: return decomposition", body, payload)

    def _tell_headline(self) -> str:
        metrics = self.metrics
        about = [
            str(metrics["data"]),
            str(metrics.get("environment") or ""),
            f"{metrics['episodes']:,} episodes",
            f"{metrics['steps']:,} steps",
        ]
        marked = " · ".join(escape(part) for part in about if part)
        return (
            f"<header class='hero'><p class='eyebrow'>Return decomposition</p>"
            f"<h1>{self._say_drivers()}</h1>"
            f"<p class='lead'>{escape(' '.join(self._say_how_sure()))}</p>"
            f"{make_facts(self._list_facts())}<p class='source'>{marked}</p></header>"
        )

    def _say_drivers(self) -> str:
        """The headline: HTML, with the names marked."""
        if not self.effects:
            names = self.inputs
            if not names:
                return "Nothing was found to drive the reward."
            shown = [*names[:3], *([f"{len(names) - 3} more"] if len(names) > 3 else [])]
            verb = "drives" if len(names) == 1 else "drive"
            return f"{_mark(shown)} {verb} the reward."
        top = self.effects[0]
        if top["share"] >= 0.6 or len(self.effects) == 1:
            name = _mark([name_together(top["inputs"])])
            verb = "drives" if len(top["inputs"]) == 1 else "drive"
            part = "" if top["share"] > 0.995 else f"{show_share(top['share'])} of "
            return f"{name} {verb} {part}the reward's variation."
        names = [name_together(effect["inputs"]) for effect in self.effects[:3]]
        return f"Most of the reward comes from {_mark(names)}."

    def _say_how_sure(self) -> list[str]:
        metrics, said = self.metrics, []
        others = [e for e in self.effects[1:] if e["share"] > 0.001]
        if self.effects and self.effects[0]["share"] >= 0.6 and others:
            named = [f"{name_together(e['inputs'])} ({show_share(e['share'])})" for e in others[:3]]
            more = [f"{len(others) - 3} more"] if len(others) > 3 else []
            said.append(f"The rest comes from {join_names(named + more)}.")
        explained = metrics.get("held_out_return_r2")
        if explained is None:
            said.append("Too few episodes to hold any out: how well it predicts is not known.")
        elif explained <= 0:
            said.append("It explains nothing of the returns of episodes that it had not seen.")
        else:
            said.append(
                f"The rewards found explain {show_share(explained)} of how returns differ between "
                f"episodes that the fit had not seen."
            )
        truth = metrics.get("truth")
        if truth is not None:
            said.append(
                f"Against the true reward of every step the correlation is {truth['pearson']:.2f}, "
                f"and the {NINETY} bands hold {show_share(truth['coverage_90'])} of the steps."
            )
        careful = [f for f in metrics["identifiability"]["findings"] if f["level"] == "careful"]
        if careful:
            count = "One finding calls" if len(careful) == 1 else f"{len(careful)} findings call"
            said.append(f"{count} for care: see what the data can tell.")
        return said

    def _list_facts(self) -> list[tuple[str, str]]:
        metrics, masks = self.metrics, self.masks
        facts = []
        if metrics.get("held_out_return_r2") is not None:
            counted = f"{metrics['held_out_returns']:,} returns held out"
            facts.append(
                (show_share(metrics["held_out_return_r2"]), f"of {counted} explained (R²)")
            )
            facts.append(
                (
                    show_share(metrics["held_out_return_coverage_90"]),
                    f"inside their {NINETY} interval",
                )
            )
        driving = sum(masks["state_to_reward"]) + sum(masks["action_to_reward"])
        inputs = len(masks["state_names"]) + len(masks["action_names"])
        facts.append((f"{driving} of {inputs}", "inputs drive the reward"))
        compact = masks["compact"]["closure"]
        facts.append((f"{sum(compact)} of {len(compact)}", "state dimensions a policy needs"))
        if "truth" in metrics:
            facts.append((f"{metrics['truth']['pearson']:.2f}", "correlation with the true reward"))
        return facts

    def _tell_episodes(self, film: Film | None) -> str:
        shown, total = len(self.tracks.chosen), len(self.tracks.returns)
        lead = f"""The reward found for every step, and what it adds up to. The band is where
            {NINETY} of rewards are expected."""
        truth = self.metrics.get("truth")
        if truth is not None and truth["coverage_90"] < TOO_NARROW:
            held = show_share(truth["coverage_90"])
            lead += f" Here it is too narrow: it holds {held} of the true rewards."
        if shown < total:
            lead += f" {shown} of {total:,} episodes are here, evenly by their return."
        picture = ""
        if film is not None:
            picture = f"<p class='note'>{escape(film.note)}</p>"
            if film.clips:
                picture = (
                    "<figure class='film'><div class='frame' role='img' "
                    "aria-label='The episode as rendered'></div>"
                    f"<figcaption><button type='button' id='play'>Play</button> "
                    f"<span>{escape(film.note)}</span></figcaption></figure>"
                )
        controls = (
            "<div class='controls'>"
            "<label>Episode <select id='episode'></select></label>"
            "<label>Order by <select id='order'><option value='index'>number</option>"
            "<option value='return'>return</option></select></label>"
            "<span class='buttons' role='group' aria-label='Go to an episode'>"
            "<button type='button' id='previous'>Previous</button>"
            "<button type='button' id='next'>Next</button>"
            "<button type='button' data-landmark='best'>Best</button>"
            "<button type='button' data-landmark='median'>Median</button>"
            "<button type='button' data-landmark='worst'>Worst</button></span></div>"
        )
        steps = (
            "<div class='controls steps'><label class='wide'>Step "
            "<input type='range' id='step' min='0' value='0'></label>"
            "<span class='buttons' role='group' aria-label='Zoom along the steps'>"
            "<button type='button' data-zoom='in'>Zoom in</button>"
            "<button type='button' data-zoom='out'>Zoom out</button>"
            "<button type='button' data-zoom='all'>All</button></span></div>"
            "<output id='reading' for='step'></output>"
        )
        chart = make_chart("viewer", "The rewards of one episode")
        note = "<p class='note' id='thinned'></p>"
        text = escape(lead)
        return make_section("episodes", "Episodes", text, controls, picture, chart, steps, note)

    def _tell_effects(self) -> str:
        if not self.effects:
            fit = escape(str(self.metrics["fit"]))
            lead = f"The reward of a fit by {fit} is not a sum of effects that could be drawn."
            return make_section("effects", "Effects", lead)
        lead = (
            "The reward is a sum of these. Each says what its input adds to the reward, over the "
            f"range that the data have; the band is where {NINETY} of its posterior lies."
        )
        drawn = self.effects[:MOST_EFFECTS]
        cards = [self._make_card(index, effect) for index, effect in enumerate(drawn)]
        rows = [(" x ".join(e["inputs"]), f"{e['share']:.1%}") for e in self.effects]
        table = make_table(
            ("effect", "share of the reward's variance"), rows, "Shares of the effects", (1,)
        )
        more = "Every effect and its share" if len(rows) > 1 else "Its share"
        below = ""
        if any(effect["share"] < 0 for effect in self.effects):
            below = (
                "<p class='note'>A share below 0: the effect mostly works against the others.</p>"
            )
        return make_section(
            "effects",
            "What each input adds to the reward",
            lead,
            f"<div class='cards'>{''.join(cards)}</div>",
            f"<details><summary>{more}</summary>{table}{below}</details>",
        )

    def _make_card(self, index: int, effect: Contents) -> str:
        name = " x ".join(effect["inputs"])
        mean = np.asarray(effect["mean"], np.float64)
        kind = {1: "curve", 2: "surface", 3: "cube"}[len(effect["inputs"])]
        label = (
            f"Effect of {name} as a {kind}: between {show_number(mean.min())} and "
            f"{show_number(mean.max())}, {show_share(effect['share'])} of the reward's variance"
        )
        width = max(0.0, min(1.0, float(effect["share"]))) * 100
        extra = ""
        if kind == "cube":
            third = escape(effect["inputs"][2])
            extra = (
                f"<label class='wide'>{third} <input type='range' class='slice' min='0' "
                f"max='{mean.shape[2] - 1}' value='{mean.shape[2] // 2}'></label>"
            )
        return (
            f"<figure class='card'><figcaption><span class='name'>{escape(name)}</span>"
            f"<span class='share'>{show_share(effect['share'])}</span></figcaption>"
            f"<span class='meter'><span style='width:{width:.1f}%'></span></span>"
            f"{make_chart('effect', label, index=index)}{extra}</figure>"
        )

    def _tell_graph(self) -> str:
        masks = self.masks
        states, actions = masks["state_names"], masks["action_names"]
        driving = [n for n, on in zip(states, masks["state_to_reward"], strict=True) if on]
        driving += [n for n, on in zip(actions, masks["action_to_reward"], strict=True) if on]
        compact = [n for n, on in zip(states, masks["compact"]["closure"], strict=True) if on]
        lead = (
            "Left: a step's state and action. Right: the reward, and the next state. A line says "
            "that one drives the other, and its thickness how strongly. Filled: the compact state, "
            "from which a path leads to the reward."
        )
        said = join_names([*driving[:6], *(["others"] if len(driving) > 6 else [])]) or "nothing"
        label = (
            f"Causal graph of {len(states)} state and {len(actions)} action dimensions: the reward "
            f"is driven by {said}; the compact state has {len(compact)} dimensions"
        )
        names = ("state to reward", "action to reward", "state to state", "action to state")
        parts = zip(names, MASKS, strict=True)
        shares = [f"{name} {np.mean(masks[mask]):.0%}" for name, mask in parts]
        maps = f"The four masks as heat maps, edges on: {join_names(shares)}"
        tabs = make_tabs(
            "drawing",
            (
                (
                    "Graph",
                    "<div class='controls'><label>Show <select id='node'></select></label>"
                    "<label class='wide'>Strongest lines <input type='range' id='edges' min='1'>"
                    "</label></div>" + make_chart("graph", label),
                ),
                (
                    "Heat maps",
                    f"<div class='scroll' tabindex='0' role='region' aria-label='Heat maps'>"
                    f"{make_chart('maps', maps)}</div><p class='note'>Rows are causes, columns are "
                    "effects. Colour: strength against the strongest of the same map, on a "
                    "square-root scale; blank where there is no edge.</p>",
                ),
            ),
        )
        return make_section("graph", "What drives what", lead, tabs)

    def _tell_returns(self) -> str:
        observed, found = self.tracks.returns.T
        gap = float(np.sqrt(np.mean((observed - found) ** 2)))
        held = self.metrics.get("held_out")
        scatter = (
            f"Predicted against observed returns: observed from {show_number(observed.min())} to "
            f"{show_number(observed.max())}, typical gap {show_number(gap)}"
        )
        parts = [
            "<figure><figcaption>Predicted against observed</figcaption>"
            f"{make_chart('returns', scatter)}</figure>"
        ]
        calibration = self.metrics.get("calibration") or {}
        if calibration.keys() & {"held_out_returns", "true_rewards"}:
            pairs = calibration.get("held_out_returns") or []
            at = [c for level, c in zip(calibration["levels"], pairs, strict=False) if level == 0.9]
            label = "Calibration: how many values lie inside intervals of each level"
            if at:
                label += (
                    f"; the {NINETY} intervals hold {show_share(at[0])} of the returns held out"
                )
            parts.append(
                "<figure><figcaption>Calibration: do intervals hold what they promise?</figcaption>"
                f"{make_chart('calibration', label)}</figure>"
            )
        lead = "Points on the line are predicted exactly."
        if held:
            lead += " Those in colour were held out: the fit that predicts them never saw them."
        else:
            lead += " All were part of the fit: none are known that were held out."
        return make_section("returns", "Returns", lead, f"<div class='pair'>{''.join(parts)}</div>")

    def _tell_limits(self) -> str:
        found = self.metrics["identifiability"]
        findings = "".join(
            f"<li class='{'careful' if f['level'] == 'careful' else 'fine'}'>"
            f"<strong>{'Careful' if f['level'] == 'careful' else 'Fine'}</strong> "
            f"{escape(f['text'])}</li>"
            for f in found["findings"]
        )
        lead = (
            "Returns fix rewards only up to what cancels over an episode: what moves reward from "
            "one step to another without changing any return cannot be seen in returns."
        )
        parts = [f"<ul class='findings'>{findings}</ul>" if findings else ""]
        if not findings:
            parts.append("<p>This fit was not examined: only the closed form can be.</p>")
        pinned = found.get("pinned_down") or {}
        if pinned:
            worst = min(pinned, key=lambda name: pinned[name])
            if pinned[worst] > CLEARLY:
                text = f"Every effect is pinned down to {show_share(pinned[worst])} or more."
                parts.append(f"<p class='note'>{escape(text)}</p>")
            else:
                label = (
                    f"How far the data pin down each of {len(pinned)} effects; the least, {worst}, "
                    f"to {show_share(pinned[worst])}"
                )
                parts.append(
                    "<figure><figcaption>How far the data, rather than the prior, pin down each "
                    f"effect</figcaption>{make_chart('pinned', label)}</figure>"
                )
        hidden = found.get("telescoping") or {}
        if hidden:
            noise = float(hidden["return_noise"])
            rows = [
                (name, show_number(value), "hidden" if value < noise else "would show")
                for name, value in sorted(hidden.items(), key=lambda item: item[1])
                if name != "return_noise"
            ]
            parts.append(
                "<details><summary>Could a term that cancels between steps hide in an input?"
                "</summary><p class='note'>By how much a term of a tenth of the reward's spread, "
                f"h(next state) - h(state), would change returns; their noise is "
                f"{escape(show_number(noise))}.</p>"
                + make_table(("input", "change of the return", ""), rows, "Hidden terms", (1,))
                + "</details>"
            )
        return make_section("limits", "What the data can and cannot tell", lead, *parts)

    def _tell_settings(self) -> str:
        metrics = self.metrics
        versions = metrics.get("versions")
        command = metrics.get("command")
        if command is None:
            command = shlex.join(["grd-offline", "decompose", str(metrics["data"])])
        judged = [
            (
                entry["fit"],
                f"{entry['held_out_return_r2']:.4f}",
                show_share(entry["held_out_return_coverage_90"]),
                entry["held_out_returns"],
            )
            for entry in metrics["alternatives"]
        ]
        head = ("fit", "R² of returns held out", "inside 90 % intervals", "returns")
        parts = [
            make_command(str(command)),
            f"<p>Fit: <strong>{escape(str(metrics['fit']))}</strong>, since "
            f"{escape(str(metrics['reason']))}.</p>",
            make_table(head, judged, "Fits that were compared", (1, 2, 3)) if judged else "",
            "".join(f"<p class='note'>Warning: {escape(w)}</p>" for w in metrics["warnings"]),
            "<div class='pair'>",
            f"<div><h3>Settings</h3>{make_settings(metrics['settings'], 'Settings')}</div>",
            f"<div><h3>Versions</h3>{make_settings(versions, 'Versions')}</div>"
            if versions
            else "",
            "</div>",
        ]
        lead = f"Made in {show_number(float(metrics['seconds']))} s by this command."
        return make_section("again", "Make it again", lead, *parts)

    def _pack_returns(self) -> dict[str, Any]:
        returns = self.tracks.returns
        keep = np.linspace(0, len(returns) - 1, min(len(returns), MOST_POINTS)).round().astype(int)
        held = self.metrics.get("held_out")
        return {
            "observed": pack(returns[keep, 0]),
            "found": pack(returns[keep, 1]),
            "episodes": keep.tolist(),
            "held_out": held and {name: pack(values) for name, values in held.items()},
        }


def make_tabs(name: str, tabs: Sequence[tuple[str, str]]) -> str:
    """Panels of which one is seen; arrow keys move between their tabs."""
    buttons, panels = [], []
    for index, (title, html) in enumerate(tabs):
        chosen = index == 0
        buttons.append(
            f"<button type='button' role='tab' id='{name}-tab-{index}' "
            f"aria-controls='{name}-panel-{index}' aria-selected='{str(chosen).lower()}' "
            f"tabindex='{0 if chosen else -1}'>{escape(title)}</button>"
        )
        panels.append(
            f"<div role='tabpanel' id='{name}-panel-{index}' aria-labelledby='{name}-tab-{index}'"
            f"{'' if chosen else ' hidden'}>{html}</div>"
        )
    return f"<div class='tabs' role='tablist'>{''.join(buttons)}</div>{''.join(panels)}"


def name_together(inputs: Sequence[str]) -> str:
    """An effect of several inputs is one thing."""
    return inputs[0] if len(inputs) == 1 else f"{join_names(inputs)} together"


def pack_graph(masks: Contents) -> dict[str, Any]:
    """The four masks with their strengths, and which nodes fit into a drawing."""
    levels = {name: _grade(masks[name], masks["score"][name]) for name in MASKS}
    closure = np.asarray(masks["compact"]["closure"])
    leaving = levels["state_to_state"].astype(np.float64) @ closure + np.asarray(closure)
    rank_states = 1e6 * levels["state_to_reward"] + 1e5 * closure + leaving
    rank_actions = 1e6 * levels["action_to_reward"] + levels["action_to_state"] @ closure
    return {
        "states": list(masks["state_names"]),
        "actions": list(masks["action_names"]),
        "compact": closure.tolist(),
        "masks": {name: encode(level) for name, level in levels.items()},
        "shown_states": _top(rank_states),
        "shown_actions": _top(rank_actions),
    }


def _grade(mask: Any, score: Any) -> Any:
    """0 without an edge, else 1 to 255: the root of its strength against the strongest."""
    on, strength = np.asarray(mask, bool), np.maximum(np.asarray(score, np.float64), 0.0)
    largest = float(strength[on].max()) if on.any() else 0.0
    share = np.sqrt(strength / largest) if largest > 0 else np.ones_like(strength)
    return np.where(on, 1 + np.rint(254 * np.minimum(share, 1.0)), 0).astype(np.uint8)


def _top(rank: Any) -> list[int]:
    return sorted(np.argsort(-np.asarray(rank, np.float64), kind="stable")[:MOST_NODES].tolist())


def _pack_effect(effect: Contents) -> dict[str, Any]:
    return {
        "inputs": list(effect["inputs"]),
        "share": float(effect["share"]),
        "grids": [pack(grid) for grid in effect["grids"]],
        "mean": pack(effect["mean"]),
        "std": pack(effect["std"]),
    }


def _rank_inputs(effects: Sequence[Contents], masks: Contents) -> list[str]:
    """Inputs that drive the reward, the strongest first."""
    weights: dict[str, float] = {}
    for effect in effects:
        for name in effect["inputs"]:
            weights[name] = weights.get(name, 0.0) + abs(float(effect["share"]))
    if not effects:
        for kind in ("state", "action"):
            names, on = masks[f"{kind}_names"], masks[f"{kind}_to_reward"]
            scores = masks["score"][f"{kind}_to_reward"]
            weights |= {n: s for n, m, s in zip(names, on, scores, strict=True) if m}
    return sorted(weights, key=lambda name: -weights[name])


def _mark(names: Sequence[str]) -> str:
    return join_names([f"<em>{escape(name)}</em>" for name in names])


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    try:
        contents = read_json(folder / name)
    except FileNotFoundError:
        raise DataError(f"not a decomposition: no {name}", file=folder) from None
    if not isinstance(contents, dict):
        raise DataError("expected an object", file=folder / name)
    return contents

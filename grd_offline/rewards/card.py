"""The card of a reward model: what data, what fit, how good, how to use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from grd_offline.core.outcomes import describe_bands
from grd_offline.io.files.models import as_plain
from grd_offline.rewards.contract import RewardFunction

_DATA = {
    "data": "file",
    "environment": "environment",
    "episodes": "episodes",
    "steps": "steps",
    "member": "member of an online training run",
    "step": "environment steps of training until then",
}
_FIT = {
    "method": "method",
    "fit": "fit",
    "discount": "discount inside a return",
    "grd_offline": "version of grd-offline",
}
_QUALITY = {
    "held_out_return_r2": "R² on the returns of episodes held out",
    "held_out_return_coverage_90": "share of those returns inside their 90 % interval",
    "held_out_returns": "returns held out",
    "verdict": "verdict",
    "mean_return": "true return of the policy trained with it, mean of an evaluation",
    "correlation_last_episode": "correlation with the true reward over the last training episode",
}


def _tell_unit(function: RewardFunction) -> str:
    unit = function.outcome.unit
    return f"\n\n{fill(unit, 88)}" if unit else ""


def write_card(
    about: Mapping[str, Any],
    *,
    function: RewardFunction,
    observation_names: Sequence[str],
    action_names: Sequence[str],
    masks: Mapping[str, Sequence[int]],
    knows_std: bool,
) -> str:
    """The card as Markdown; entries of `about` that are not known here appear under their name."""
    parents = [
        *_chosen(observation_names, masks["state_mask"]),
        *_chosen(action_names, masks["action_mask"]),
        *(["terminated"] if function.needs_termination else []),
    ]
    compact = _chosen(observation_names, masks["compact_mask"])
    states, actions = len(observation_names), len(action_names)
    known = {*_DATA, *_FIT, *_QUALITY}
    other = {name: name for name in about if name not in known}
    return f"""# Reward model

The reward of a step, learned from returns of whole episodes by grd-offline:
{function.description}.{_tell_unit(function)}

## Use

```python
from grd_offline import RewardModel

{_write_usage(function, knows_std)}
```

Observations are (N, {states}), actions (N, {actions}), both in the units of the data; discrete
actions are one-hot.{_write_terminations(function)}
`model.compact_mask` says which dimensions a policy needs.

| | |
|---|---|
| observations | {_listed(observation_names)} |
| actions | {_listed(action_names)} |
| the reward is a function of | {describe_inputs(function)} |
| the reward depends on | {_listed(parents) or "nothing: it is the same everywhere"} |
| the compact state | {_listed(compact) or "nothing"} |

## What it was learned from

{_table(about, _DATA)}

## How it was fitted

{_ONLINE if "member" in about else ""}{_table(about, _FIT | other)}

## How good it is

{_table(about, _QUALITY)}
{_write_bands(function, knows_std)}
A high R² on returns proves nothing per step: rewards are known only up to what cancels over an
episode. Adding h(next state) - h(state) changes every step and no return. Far from the data,
{function.far_from_data}.
"""


def describe_inputs(function: RewardFunction) -> str:
    """Describe the inputs of the reward in words."""
    if function.at_midpoint:
        said = "R(s, a, s'), at the midpoint (s + s')/2 of each transition"
    elif function.needs_next:
        said = "R(s, a, s'): state, action and next state"
    else:
        said = "R(s, a): state and action"
    if function.needs_termination:
        said += ", and whether the episode terminated at this step"
    return said


def _write_bands(function: RewardFunction, knows_std: bool) -> str:
    """Write the conditions of the standard deviation of a step."""
    if not knows_std:
        return ""
    outcome = function.outcome
    bands = describe_bands(outcome, function.knows_std)
    said = f"The interval of a {outcome.singular} says nothing about single steps. {bands}"
    return f"\n{fill(said, 98)}\n"


def _write_terminations(function: RewardFunction) -> str:
    if not function.needs_termination:
        return ""
    return (
        " Terminations are (N,), True where the episode terminated at\n"
        "that step, False everywhere else, also where it was truncated."
    )


def _write_usage(function: RewardFunction, knows_std: bool) -> str:
    """Lines of Python that use the model."""
    steps = "observations, actions"
    if function.needs_next:
        steps += ", next_observations"
    if function.needs_termination:
        steps += ", terminations" if function.needs_next else ", terminations=terminations"
    width = len(f"spread = model.uncertainty({steps})")
    usage = [
        ('model = RewardModel.load("this folder")', ""),
        (f"rewards = model.predict({steps})", "(N,)"),
        (
            f"spread = model.uncertainty({steps})",
            "(N,) standard deviation" if knows_std else "(N,) nan: not known of this model",
        ),
        ("module = model.torch()", "a torch module with gradients"),
    ]
    return "\n".join(f"{line:{width}}  # {what}" if what else line for line, what in usage)


_ONLINE = """By `grd-offline train-online`, from the returns of a policy's own episodes while it
was trained. Every setting is in `settings.json` of the run, three folders up.

"""


def _chosen(names: Sequence[str], mask: Sequence[int]) -> list[str]:
    return [name for name, on in zip(names, mask, strict=True) if on]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(as_plain(name) for name in names)


def _table(about: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    rows = [
        f"| {as_plain(label)} | {_told(about[name])} |"
        for name, label in labels.items()
        if about.get(name) is not None
    ]
    return "\n".join(["| | |", "|---|---|", *rows]) if rows else "Nothing more is known."


def _told(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return as_plain(value)

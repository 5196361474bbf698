"""What a run trains: one flat set of settings, and the members that follow from it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from grd_offline.agents.policy import BACKBONES
from grd_offline.errors import DataError
from grd_offline.losses import SparsityWeights
from grd_offline.methods.paper import find_lambdas

METHODS = ("grd", "grd-no-compact", "rrd", "rrd-unbiased", "ircr", "none", "oracle")
FITS = ("quadratic", "joint-net", "paper")
COMPACT = ("closure", "one_hop")
LAMBDAS = {
    "lambda_state_reward": "state_to_reward",
    "lambda_action_reward": "action_to_reward",
    "lambda_state_state": "state_to_state",
    "lambda_self": "self_to_self",
    "lambda_action_state": "action_to_state",
}
"""Names for `--set`, and the paper's five sparsity weights that they are."""


@dataclass(frozen=True)
class Member:
    """One of the agents that are trained side by side."""

    method: str
    fit: str | None
    """None for methods other than grd."""
    seed: int
    lambdas: SparsityWeights
    learning_rate: float
    model_rate: float
    policy_discount: float
    target_rate: float
    centre_rate: float
    critic_norm: float = 0.0
    """1: hidden layers of the critics are normalised. Unless `--set`: where the discount is 1."""
    varied: Mapping[str, float] = field(default_factory=dict)
    """What `--set` gave several values, and this member's."""

    @property
    def group(self) -> str:
        """All but the seed: members of a group differ by chance alone."""
        parts = [self.method] if self.fit is None else [self.method, self.fit]
        return "-".join([*parts, *(f"{n}={_name_number(v)}" for n, v in self.varied.items())])

    @property
    def name(self) -> str:
        """Also the name of its folder."""
        return f"{self.group}-seed{self.seed}"

    @property
    def kind(self) -> str:
        """Which source of rewards it uses; members of one kind learn in one batch."""
        if self.fit is not None:
            return self.fit
        return "rrd" if self.method.startswith("rrd") else self.method


@dataclass(frozen=True)
class OnlineSettings:
    """Everything that decides what a run does, apart from the machine it runs on."""

    environment: str
    """Gymnasium id, or the name alone: Walker2d is the latest Walker2d."""
    methods: tuple[str, ...] = ("grd",)
    """Each with every seed."""
    fits: tuple[str, ...] = ("quadratic",)
    """How grd finds the reward; each with every seed."""
    backbone: str = "sac"
    """What learns the policy."""
    seeds: int = 1
    """Members of each method, seeded from `seed` on."""
    seed: int = 0
    """Of the first."""
    steps: int = 1_000_000
    """Environment steps of each member (paper: 3,000,000)."""
    warmup: int = 10_000
    """Steps with random actions before anything is learned (paper)."""
    round_steps: int = 100
    """Steps between two blocks of updates (paper)."""
    round_updates: int = 100
    """Updates in a block (paper)."""
    batch: int = 256
    """N: steps per update (paper)."""
    episodes: int = 4
    """M: whole episodes per update of the reward (paper)."""
    replay: int = 1_000_000
    """Steps that are remembered (paper)."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of every network (paper)."""
    learning_rate: float = 3e-4
    """Adam's, of actor and critics (paper)."""
    model_rate: float = 3e-4
    """Adam's, of the reward's networks (paper)."""
    policy_discount: float = 0.99
    """Of the policy's own future; the return that is decomposed is not discounted (paper)."""
    target_rate: float = 0.005
    """How fast target networks follow. The paper prints 0.0005, its authors' code has this."""
    centre_rate: float = 0.01
    """How fast the mean reward is learned that is taken off where the policy's discount is 1."""
    exploration: float = 0.1
    """Noise of TD3's and DDPG's actions while collecting."""
    compact: str = "closure"
    """What the policy sees: every cause of the reward, or parents and their parents ("one_hop")."""
    compact_patience: int = 10_000
    """Steps that a dimension is outside the compact state before the policy stops seeing it."""
    eval_every: int = 10_000
    """Steps between evaluations (paper)."""
    eval_episodes: int = 10
    """Episodes per evaluation, with the true return (paper)."""
    overlap: bool = True
    """Collect while updating, with the policy of one block before; False: strictly in turn."""
    max_episode_steps: int | None = None
    """Truncate episodes here. None: the environment's own limit, or 1000 where it has none."""
    env_args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments for the environment: plain JSON values."""
    sets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Several values of a setting, each with every method and seed; see `SETTABLE`."""

    def __post_init__(self) -> None:
        _check_names("methods", self.methods, METHODS)
        _check_names("fits", self.fits, FITS)
        _check_names("backbone", (self.backbone,), BACKBONES)
        _check_names("compact", (self.compact,), COMPACT)
        for name, most in _COUNTS.items():
            _check_number(name, getattr(self, name), 1, most)
        for name in ("seed", "warmup", "compact_patience"):
            _check_number(name, getattr(self, name), 0, 2**63)
        if self.max_episode_steps is not None:
            _check_number("max_episode_steps", self.max_episode_steps, 1, _LONG)
        if len(self.hidden) > MOST_LAYERS:
            raise DataError(f"expected at most {MOST_LAYERS} layers", field="hidden")
        for width in self.hidden:
            _check_number("hidden", width, 1, MOST_WIDTH)
        for name in (*_ABOVE_ZERO, "centre_rate", "exploration"):
            _check_share(name, getattr(self, name))
        for name, kind in (("environment", str), ("overlap", bool), ("env_args", Mapping)):
            if not isinstance(getattr(self, name), kind):
                raise DataError(f"got {getattr(self, name)!r:.40}, which it cannot be", field=name)
        for name, values in self.sets.items():
            if name not in SETTABLE:
                raise DataError(f"expected one of {', '.join(SETTABLE)}, got {name!r}", field="set")
            if not values:
                raise DataError("expected at least one value", field=name)
            if len(set(values)) < len(values):
                raise DataError("the same value twice", field=name)
            if name in LAMBDAS and not any(m.startswith("grd") for m in self.methods):
                raise DataError("expected grd among the methods, with fit paper", field=name)
            if name in LAMBDAS and "paper" not in self.fits:
                raise DataError("expected paper among the fits: no other has it", field=name)
            for value in values:
                _check_share(name, value)
                if name == "critic_norm" and value not in (0, 1):
                    raise DataError(f"expected 0 or 1, got {value!r}", field=name)

    def make_members(self) -> list[Member]:
        """Every method, fit, value and seed once; those of a kind stand together."""
        lambdas = find_lambdas(self.environment)
        base = Member(
            method="",
            fit=None,
            seed=0,
            lambdas=lambdas,
            learning_rate=self.learning_rate,
            model_rate=self.model_rate,
            policy_discount=self.policy_discount,
            target_rate=self.target_rate,
            centre_rate=self.centre_rate,
        )
        choices: list[tuple[str, str | None]] = []
        for method in self.methods:
            fits = self.fits if method.startswith("grd") else (None,)
            choices += [(method, fit) for fit in fits]
        members = []
        for method, fit in choices:
            # A weight that only one fit has makes no members of others.
            used = [name for name in self.sets if fit == "paper" or name not in LAMBDAS]
            values = [[(name, value) for value in self.sets[name]] for name in used]
            for chosen in itertools.product(*values):
                varied = {name: value for name, value in chosen if len(self.sets[name]) > 1}
                for seed in range(self.seed, self.seed + self.seeds):
                    member = replace(base, method=method, fit=fit, seed=seed, varied=varied)
                    members.append(_change(member, dict(chosen)))
        order = [member.kind for member in members]
        return sorted(members, key=lambda member: order.index(member.kind))

    def to_json(self) -> dict[str, Any]:
        """Plain values for `settings.json`."""
        plain = asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in plain.items()}


_ABOVE_ZERO = ("learning_rate", "model_rate", "policy_discount", "target_rate")
_LONG = 2**40
_COUNTS = {
    "seeds": 1000, "steps": _LONG, "round_steps": 10**6, "round_updates": 10**6, "batch": 2**17,
    "episodes": 2**12, "replay": 2**32, "eval_every": _LONG, "eval_episodes": 10**4,
}  # fmt: skip
"""Settings that count something, each with the most that makes sense."""
MOST_LAYERS, MOST_WIDTH = 16, 2**14
SETTABLE = (*LAMBDAS, *_ABOVE_ZERO, "centre_rate", "critic_norm")


def _change(member: Member, changes: Mapping[str, float]) -> Member:
    discount = changes.get("policy_discount", member.policy_discount)
    member = replace(member, critic_norm=float(discount == 1))
    for name, value in changes.items():
        if name in LAMBDAS:
            member = replace(member, lambdas=member.lambdas._replace(**{LAMBDAS[name]: value}))
        else:
            member = replace(member, **{name: value})  # type: ignore[arg-type]
    return member


def parse_sets(texts: tuple[str, ...]) -> dict[str, tuple[float, ...]]:
    """`NAME=V1,V2,...` as given on the command line."""
    sets: dict[str, tuple[float, ...]] = {}
    for text in texts:
        name, found, values = text.partition("=")
        try:
            numbers = tuple(float(value) for value in values.split(","))
        except ValueError:
            numbers = ()
        if not found or not numbers:
            raise DataError(f"expected NAME=VALUE,VALUE,..., got {text!r}", field="set")
        if name.strip() in sets:
            raise DataError(f"{name.strip()} twice: give all its values at once", field="set")
        sets[name.strip()] = numbers
    return sets


def _name_number(value: float) -> str:
    """Short where that is the same number."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _check_names(name: str, values: tuple[str, ...], known: tuple[str, ...]) -> None:
    if not values:
        raise DataError("expected at least one", field=name)
    for value in values:
        if value not in known:
            raise DataError(f"expected one of {', '.join(known)}, got {value!r}", field=name)
    if len(set(values)) < len(values):
        raise DataError("the same twice", field=name)


def _check_number(name: str, value: object, lowest: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
        raise DataError(f"expected a whole number of at least {lowest}, got {value!r}", field=name)
    if value > most:
        raise DataError(f"expected at most {most:,}, got {value!r:.40}", field=name)


def _check_share(name: str, value: object) -> None:
    if not isinstance(value, int | float):
        raise DataError(f"expected a number, got {value!r:.40}", field=name)
    if name in _ABOVE_ZERO and not 0 < value <= 1:
        raise DataError(f"expected more than 0 and at most 1, got {value!r}", field=name)
    if not 0 <= value <= 1:
        raise DataError(f"expected at least 0 and at most 1, got {value!r}", field=name)

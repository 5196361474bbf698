"""The settings of `train-online`, and the members of a run that follow from them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from grd_offline.core.errors import DataError
from grd_offline.core.settings import (
    COUNT,
    RATE,
    SHARE,
    Setting,
    Settings,
    describe_settings,
    setting,
)
from grd_offline.learning.agents.algorithms import list_online
from grd_offline.learning.runs.member import RunMember, env_args_setting
from grd_offline.methods.registry import list_fits, list_names

if TYPE_CHECKING:
    from grd_offline.networks.losses import SparsityWeights

METHODS, FITS = list_names(online=True), list_fits(online=True)
COMPACT = ("closure", "one_hop")
LAMBDAS = {
    "lambda_state_reward": "state_to_reward",
    "lambda_action_reward": "action_to_reward",
    "lambda_state_state": "state_to_state",
    "lambda_self": "self_to_self",
    "lambda_action_state": "action_to_state",
}
"""Names for `--set`, and the five sparsity weights of the paper that they stand for."""
_RATES = ("learning_rate", "model_rate", "policy_discount", "target_rate", "centre_rate")
SETTABLE = (*LAMBDAS, *_RATES, "critic_norm")
"""Settings that may have several values in one run."""


@dataclass(frozen=True)
class Member(RunMember):
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
    """1 normalises the hidden layers of the critics. The default is 1 if the discount is 1."""
    varied: Mapping[str, float] = field(default_factory=dict)
    """Settings that have several values in this run, and the value of this member."""

    @property
    def group(self) -> str:
        parts = [self.method] if self.fit is None else [self.method, self.fit]
        return "-".join([*parts, *(f"{n}={_name_number(v)}" for n, v in self.varied.items())])

    @property
    def kind(self) -> str:
        """The source of rewards. Members with the same source learn in one batch."""
        if self.fit is not None:
            return self.fit
        return "rrd" if self.method.startswith("rrd") else self.method


DISCRETE: dict[str, Any] = {
    "backbone": "dqn",
    "steps": 50_000,
    "warmup": 1_000,
    "round_updates": 50,
    "batch": 128,
    "hidden": (128, 128),
    "learning_rate": 2e-3,
    "target_rate": 0.02,
    "target_steps": 5,
    "scale_states": True,
    "eval_every": 5_000,
}
"""Defaults where actions are discrete: such tasks are mostly small. `docs/support.md` says how they
were chosen."""
MANY_STATES = 128
"""From so many states on, a member has two environments by default: their physics takes longer than
the updates."""
MOST_LAYERS, MOST_WIDTH = 16, 2**14
_ANY: dict[str, Any] = {"at_least": 0, "at_most": 2**63}
_ROUND: dict[str, Any] = {"at_least": 1, "at_most": 10**6}


@dataclass(frozen=True)
class OnlineSettings(Settings):
    """Everything that decides what a run does, apart from the machine that it runs on."""

    environment: str = setting(
        MISSING,
        "Gymnasium id of the environment. The name alone means its latest version.",
        option="--env",
    )
    methods: tuple[str, ...] = setting(
        ("grd",),
        "Where the policy's reward comes from. grd learns masks and a reward from returns. "
        "none uses the delayed reward as it is. oracle uses the true reward. "
        "Each method is trained with every seed.",
        names=METHODS,
        option="--method",
    )
    fits: tuple[str, ...] = setting(
        ("closed-form",),
        "Model of the reward that grd fits. Each model is trained with every seed.",
        names=FITS,
        option="--fit",
    )
    backbone: str = setting(
        "sac",
        "Algorithm that trains the policy. dqn is for discrete actions, the others for continuous "
        "actions.",
        names=list_online,
    )
    seeds: int = setting(1, "Number of seeds. They count up from --seed.", at_least=1, at_most=1000)
    seed: int = setting(0, "First of the seeds.", **_ANY)
    steps: int = setting(
        1_000_000,
        "Number of environment steps of each member, in whole blocks (paper: 3,000,000).",
        **COUNT,
    )
    warmup: int = setting(
        10_000, "Steps with random actions before learning begins (paper).", **_ANY
    )
    round_steps: int = setting(100, "Steps between two blocks of updates (paper).", **_ROUND)
    round_updates: int = setting(100, "Number of updates in a block (paper).", **_ROUND)
    environments: int = setting(
        1,
        "Number of environments that each member steps side by side. Each of them takes its part "
        "of the steps between two blocks of updates.",
        at_least=1,
        at_most=1000,
    )
    batch: int = setting(
        256, "Batch size N: number of steps per update (paper).", at_least=1, at_most=2**17
    )
    episodes: int = setting(
        4, "Number M of whole episodes per update of the reward (paper).", at_least=1, at_most=2**12
    )
    replay: int = setting(
        1_000_000, "Number of steps that the replay holds (paper).", at_least=1, at_most=2**32
    )
    hidden: tuple[int, ...] = setting(
        (256, 256),
        "Widths of the hidden layers of every network (paper).",
        at_least=1,
        at_most=MOST_WIDTH,
    )
    critic_width: int = setting(
        512,
        "Width of the hidden layers of the critics of CrossQ (2048 in its paper).",
        at_least=1,
        at_most=MOST_WIDTH,
    )
    learning_rate: float = setting(
        3e-4,
        "Adam's learning rate for actor and critics (paper). The default of CrossQ is 1e-3.",
        **RATE,
    )
    model_rate: float = setting(
        3e-4, "Adam's learning rate for the networks of the reward (paper).", **RATE
    )
    policy_discount: float = setting(
        0.99,
        "Discount factor of the policy. The return that is decomposed is not discounted (paper).",
        **RATE,
    )
    target_rate: float = setting(
        0.005,
        "Rate at which target networks follow the trained networks. This is the value of the "
        "authors' code. The paper prints 0.0005.",
        **RATE,
    )
    target_steps: int = setting(
        1,
        "Number of steps whose rewards a target of the critics sums before it asks for the value "
        "of the next state (n-step returns).",
        at_least=1,
        at_most=100,
    )
    centre_rate: float = setting(
        0.01,
        "Rate at which the mean reward is learned. It is subtracted where the discount factor of "
        "the policy is 1.",
        **SHARE,
    )
    exploration: float = setting(
        0.1,
        "Noise of the actions of TD3 and DDPG during collection, or fraction of random actions of "
        "DQN.",
        **SHARE,
    )
    scale_states: bool = setting(
        False,
        "Divide the states that the policy sees by their bounds in the observation space, where "
        "these are below 1.",
    )
    compact: str = setting(
        "closure",
        "States that the policy sees. closure: every cause of the reward. one_hop: the parents "
        "of the reward and their parents.",
        names=COMPACT,
    )
    compact_patience: int = setting(
        10_000,
        "Steps that a dimension is outside of the compact state before it is hidden from the "
        "policy.",
        **_ANY,
    )
    eval_every: int = setting(10_000, "Steps between two evaluations (paper).", **COUNT)
    eval_episodes: int = setting(
        10, "Number of episodes per evaluation (paper).", at_least=1, at_most=10**4
    )
    overlap: bool = setting(
        True,
        "Collect during the updates, with the policy of one block before. Otherwise collection "
        "and updates alternate strictly.",
    )
    max_episode_steps: int | None = setting(
        None,
        "Truncate episodes after this number of steps. The default is the limit of the "
        "environment, or 1000 if it has none.",
        **COUNT,
    )
    env_args: Mapping[str, Any] = env_args_setting()
    sets: Mapping[str, tuple[float, ...]] = setting(
        None,
        "Values of a setting. Each value is trained with every method and seed. This option can be "
        "repeated. "
        f"The settings are {', '.join(SETTABLE)}.",
        factory=dict,
        option="--set",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.hidden) > MOST_LAYERS:
            raise DataError(f"expected at most {MOST_LAYERS} layers", field="hidden")
        if self.round_steps % self.environments:
            raise DataError(
                f"expected a divisor of {self.round_steps}, the steps of a round (round_steps), "
                f"got {self.environments}",
                field="environments",
            )
        for name, values in self.sets.items():
            self._check_values(name, values)

    def _check_values(self, name: str, values: tuple[float, ...]) -> None:
        if name not in SETTABLE:
            raise DataError(f"expected one of {', '.join(SETTABLE)}, got {name!r}", field="set")
        if not values:
            raise DataError("expected at least one value", field=name)
        if len(set(values)) < len(values):
            raise DataError("got the same value twice", field=name)
        if name in LAMBDAS and not any(m.startswith("grd") for m in self.methods):
            raise DataError("expected grd among the methods, with fit paper", field=name)
        if name in LAMBDAS and "paper" not in self.fits:
            raise DataError("expected paper among the fits: no other has it", field=name)
        facts = describe_settings(type(self)).get(name)
        for value in values:
            (facts.setting if facts else Setting("", **SHARE)).check(name, value, float)
            if name == "critic_norm" and value not in (0, 1):
                raise DataError(f"expected 0 or 1, got {value!r}", field=name)

    def make_members(self) -> list[Member]:
        """Every combination of method, fit, value and seed. Members of a kind stand together."""
        from grd_offline.methods.models.generative import (
            find_lambdas,  # needs torch: not for a help text
        )

        rates = [getattr(self, name) for name in _RATES]
        base = Member("", None, 0, find_lambdas(self.environment), *rates)
        choices = [
            (method, fit)
            for method in self.methods
            for fit in (self.fits if method.startswith("grd") else (None,))
        ]
        members = []
        for method, fit in choices:
            # A weight that only one fit has makes no members of others.
            used = [name for name in self.sets if fit == "paper" or name not in LAMBDAS]
            values = [[(name, value) for value in self.sets[name]] for name in used]
            for chosen in itertools.product(*values):
                varied = {name: value for name, value in chosen if len(self.sets[name]) > 1}
                given: dict[str, Any] = dict(chosen)
                weights = {LAMBDAS[name]: given.pop(name) for name in used if name in LAMBDAS}
                discount = given.get("policy_discount", self.policy_discount)
                given = {"critic_norm": float(discount == 1), **given}
                given |= {"lambdas": base.lambdas._replace(**weights), "varied": varied}
                members += [
                    replace(base, method=method, fit=fit, seed=seed, **given)
                    for seed in range(self.seed, self.seed + self.seeds)
                ]
        order = [member.kind for member in members]
        return sorted(members, key=lambda member: order.index(member.kind))


def parse_sets(texts: tuple[str, ...]) -> dict[str, tuple[float, ...]]:
    """Read texts of the form `NAME=V1,V2,...`."""
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
    """The number as text: short if that is the same number."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)

"""The settings of `collect`, `train-online` and `train-offline`, and the members of their runs.

Nothing here needs torch.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grd_offline.core.errors import DataError
from grd_offline.core.settings import (
    COUNT,
    LARGEST_COUNT,
    LARGEST_STEP_LIMIT,
    RATE,
    SHARE,
    Setting,
    Settings,
    describe_settings,
    setting,
)
from grd_offline.core.threads import count_cores
from grd_offline.learning.agents import EXPLORATIONS
from grd_offline.learning.agents.algorithms import list_offline, list_online
from grd_offline.methods.registry import list_fits, list_names

if TYPE_CHECKING:
    from grd_offline.networks.losses import SparsityWeights


def check_trusted(
    environment: str,
    env_args: Mapping[str, Any] | None = None,
    *,
    named: Collection[str] = (),
    given: Mapping[str, Any] | None = None,
) -> None:
    """Refuse what an environment out of a file would import or read, unless the user names it too.

    That is the module of an id such as `module:id`, and each argument that is the path of a file.
    """
    if ":" in environment and environment not in named:
        trust = f"if you trust it, add --env {shlex.quote(environment)}"
        raise DataError(f"{environment} imports a Python module: {trust}", field="env")
    for name, value in (env_args or {}).items():
        if is_path(value) and value != (given or {}).get(name):
            trust = f"if you trust it, add --env-arg {shlex.quote(f'{name}={value}')}"
            raise DataError(f"{name}={value!r:.80} may read that file: {trust}", field="env-arg")


def is_path(value: Any) -> bool:
    """Whether an argument of an environment names a file in some folder."""
    return isinstance(value, str) and any(mark in value for mark in "/\\")


def env_args_setting() -> Any:
    """The setting that has the arguments of an environment."""
    return setting(
        None,
        "Argument of the environment. The value is JSON or text. This option can be repeated.",
        factory=dict,
        option="--env-arg",
    )


def step_limit_setting(**bounds: Any) -> Any:
    """The setting that has the largest number of steps of an episode."""
    return setting(
        None,
        "Truncate episodes after this number of steps. The default is the limit of the "
        "environment, or 1000 if it has none.",
        **bounds,
    )


class RunMember(ABC):
    """One of the policies that are trained side by side."""

    seed: int

    @property
    @abstractmethod
    def group(self) -> str:
        """The name without the seed. Members of a group differ by their seed alone."""

    @property
    def name(self) -> str:
        """The name of the member, and of its folder."""
        return f"{self.group}-seed{self.seed}"


POLICY_NOISES = ("deterministic", "sampled")
OF_TRAINED_POLICIES = ("checkpoints", "policy_noise", "random_share", "switch_every")
"""Settings that only trained policies have a use for."""

REAL_DATA = ("bike-days", "bike-windows", "flights", "a320")
"""Real data that `grd_offline.learning.collecting.real_data` can make."""


@dataclass(frozen=True)
class CollectSettings(Settings):
    """Settings of `collect`. All of them except `workers` determine the data."""

    environment: str = setting(
        MISSING,
        "Gymnasium id of the environment. A name without a version means the latest version.",
        option="--env",
    )
    env_args: Mapping[str, Any] = env_args_setting()
    episodes: int = setting(100, "Number of episodes.", at_least=1)
    first_episode: int = setting(
        0,
        "Number of the first episode. Episodes with the same seed and number are the same, so that "
        "a collection can be continued or divided.",
        at_least=0,
        at_most=LARGEST_COUNT,
    )
    policy: str = setting(
        "explore",
        "Policy that acts. random draws every action independently. explore moves in another way "
        "in each episode: with noise, with drifting noise or with a gait. RUN is the folder of a "
        "training run, of one of its members, or of one policy.",
    )
    checkpoints: str = setting(
        "best",
        "Policies of RUN to use. FIRST and LAST are numbers of training steps. Each episode draws "
        "one of these policies at random.",
    )
    policy_noise: str = setting(
        "sampled",
        "Whether the policies of RUN act with the noise that they explored with.",
        names=POLICY_NOISES,
    )
    random_share: float = setting(
        0.0, "Fraction of the episodes that act at random instead of with a policy of RUN.", **SHARE
    )
    switch_every: int | None = setting(
        None,
        "Draw another policy of RUN after this number of steps. By default, one policy acts in the "
        "whole episode.",
        at_least=1,
    )
    seed: int = setting(0, "Random seed. The same seed gives the same data.", at_least=0)
    workers: int = setting(
        None,
        "Number of processes that step environments. The default is one for each core.",
        at_least=1,
        factory=count_cores,
    )
    delay: int | str = setting(
        "end",
        "When the reward is delivered: at the end of the episode, or every K steps and at the end.",
    )
    discount: float = setting(
        1.0,
        "Discount factor of the rewards within a delivered sum. The steps are counted from the "
        "start of the episode.",
        **RATE,
    )
    keep_true_rewards: bool = setting(
        False,
        "Also store the true reward of each step, so that a decomposition can be compared with it.",
    )
    max_episode_steps: int | None = step_limit_setting(at_least=1, at_most=LARGEST_STEP_LIMIT)

    def __post_init__(self) -> None:
        from grd_offline.learning.agents.actors import check_checkpoints

        super().__post_init__()
        delay: Any = self.delay
        is_whole = isinstance(delay, int) and not isinstance(delay, bool)
        if delay != "end" and not (is_whole and 1 <= delay <= LARGEST_COUNT):
            expected = f'"end" or a whole number of at least 1 and at most {LARGEST_COUNT:,}'
            raise DataError(f"expected {expected}, got {delay!r:.40}", field="delay")
        if self.policy not in EXPLORATIONS and not Path(self.policy).is_dir():
            expected = f"{', '.join(EXPLORATIONS)} or the folder of a policy or a training run"
            raise DataError(f"expected {expected}, got {self.policy!r}", field="policy")
        check_checkpoints(self.checkpoints)
        described = describe_settings(CollectSettings)
        for name in OF_TRAINED_POLICIES:
            if self.policy in EXPLORATIONS and getattr(self, name) != described[name].default:
                reason = f"expected a trained policy to go with it, got {self.policy}"
                raise DataError(reason, field=name)
        try:
            json.dumps(dict(self.env_args), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise DataError(f"expected plain JSON values: {error}", field="env_args") from None


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
_WIDTH: dict[str, Any] = {"at_least": 1, "at_most": MOST_WIDTH}


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
        (256, 256), "Widths of the hidden layers of every network (paper).", **_WIDTH
    )
    critic_width: int = setting(
        512, "Width of the hidden layers of the critics of CrossQ (2048 in its paper).", **_WIDTH
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
    max_episode_steps: int | None = step_limit_setting(**COUNT)
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
            expected = f"a divisor of {self.round_steps}, the steps of a round (round_steps)"
            raise DataError(f"expected {expected}, got {self.environments}", field="environments")
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
        # It needs torch: not for a help text.
        from grd_offline.methods.paper import find_lambdas

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


SOURCES = ("relabelled", "observed", "true")
"""Rewards that a file may hold: those of a decomposition, the delayed ones, the true ones."""
JUDGED = ("grd", "uniform", "ircr", "rrd")
"""Methods that `judge` compares by default."""
_SIZE: dict[str, Any] = {"above": 0, "at_most": 10**6}
MOST_SEEDS = 1000
SEEDS_END = 2**60
"""Seeds are smaller than this: networks are seeded with four times the seed."""


@dataclass(frozen=True)
class OfflineMember(RunMember):
    """One of the policies that are trained side by side."""

    source: str
    seed: int

    @property
    def group(self) -> str:
        return self.source


@dataclass(frozen=True)
class OfflineSettings(Settings):
    """Everything that decides what a run does, apart from the data and the machine."""

    rewards: tuple[str, ...] = setting(
        ("relabelled",),
        "Rewards that the policies learn from. relabelled: the rewards of a decomposition. "
        "observed: the delayed rewards. true: the rewards that collect --keep-true-rewards "
        "stores. Each source is trained with every seed.",
    )
    environment: str | None = setting(
        None,
        "Gymnasium id of the environment to evaluate in. The name alone means its latest version. "
        "Without this option nothing is evaluated, because an environment that a file names is "
        "never built.",
        option="--env",
    )
    algorithm: str = setting(
        "iql",
        "Algorithm that trains the policies: iql (Kostrikov et al., 2021) or td3bc (Fujimoto and "
        "Gu, 2021).",
        names=list_offline,
        option="--algo",
    )
    seeds: int = setting(
        5, "Number of seeds. They count up from --seed.", at_least=1, at_most=MOST_SEEDS
    )
    seed: int = setting(
        0,
        "First seed. The same seed of another reward source has the same start and the same "
        "batches.",
        at_least=0,
    )
    updates: int = setting(
        100_000, "Number of updates of each policy (both papers: 1,000,000).", at_least=1
    )
    batch: int = setting(
        256, "Number of steps per update (both papers).", at_least=1, at_most=65_536
    )
    discount: float = setting(0.99, "Discount factor of the policy (both papers).", **RATE)
    hidden: tuple[int, ...] = setting(
        (256, 256), "Widths of the hidden layers of every network (both papers).", at_least=1
    )
    learning_rate: float = setting(
        3e-4, "Adam's learning rate for every network (both papers).", **RATE
    )
    target_rate: float = setting(
        0.005, "Rate at which target networks follow the trained networks (both papers).", **RATE
    )
    alpha: float = setting(
        2.5,
        "td3bc: weight of the value relative to imitation (paper: 2.5). Diverse data need a larger "
        "weight.",
        **_SIZE,
    )
    expectile: float = setting(
        0.7,
        "iql: the value of a state is this expectile of its action values (paper, MuJoCo).",
        **RATE,
    )
    temperature: float = setting(
        3.0, "iql: inverse temperature, the preference for better actions (paper, MuJoCo).", **_SIZE
    )
    pessimism: float = setting(
        0.0,
        "Subtract this many standard deviations from every reward that a decomposition found, so "
        "that policies avoid steps whose reward is not known well.",
        at_least=0,
        at_most=10**6,
    )
    averaging: float = setting(
        0.02,
        "Average the policy weights over this final fraction of training. 0 uses the last weights.",
        **SHARE,
    )
    eval_every: int = setting(10_000, "Updates between two evaluations.", at_least=1)
    eval_episodes: int = setting(10, "Number of episodes per evaluation.", at_least=1)
    max_episode_steps: int | None = setting(
        None,
        "Truncate evaluation episodes, and the episodes of flat files that hold no timeouts, after "
        "this number of steps. The default is the limit of the environment, or 1000 if it has "
        "none.",
        at_least=1,
    )
    env_args: Mapping[str, Any] = env_args_setting()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.rewards:
            # Names of folders come of them.
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,63}", name):
                reason = f"expected letters, digits, '.', '_', '=' and '-', got {name!r:.70}"
                raise DataError(reason, field="rewards")
        if self.seed + self.seeds > SEEDS_END:
            raise DataError("expected seeds below 2^60", field="seed")

    def make_members(self) -> list[OfflineMember]:
        seeds = range(self.seed, self.seed + self.seeds)
        return [OfflineMember(source, seed) for source in self.rewards for seed in seeds]

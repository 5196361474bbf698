"""One small reward model of every kind, made by hand: no fit, so that tests of them are quick."""

import numpy as np
import torch

from grd_offline import RewardModel
from grd_offline.networks.members.nn import PairRewardNet, RewardNet
from grd_offline.rewards.constant import ConstantFunction
from grd_offline.rewards.effects import EffectModel
from grd_offline.rewards.network import NetworkFunction, NetworkReward
from grd_offline.rewards.quadratic import QuadraticFunction

STATES, ACTIONS = 5, 2
STATE_NAMES = tuple(f"s{i}" for i in range(STATES))
ACTION_NAMES = tuple(f"a{i}" for i in range(ACTIONS))
ARGUMENTS = ("observations", "actions", "next_observations", "terminations")

EXACT = {"residual_variance": 0.0, "constant_variance": 0.0, "inflation": 1.0}


def make_effects(columns=(0, 3, 5)):
    """Mains of every input, a pair of the first two, a triple of all."""
    rng = np.random.default_rng(3)
    effects = ((0,), (1,), (2,), (0, 1), (0, 1, 2))
    sizes = (4, 4, 3, 3, 2)
    weights = sum(size ** len(effect) for size, effect in zip(sizes, effects, strict=True))
    grid = np.linspace(-1, 1, 33)
    tables = np.stack(
        [np.stack([np.sin((k + 1 + i) * grid) for k in range(4)], 1) for i in (0, 1, 2)]
    )
    return EffectModel(
        observation_names=STATE_NAMES,
        action_names=ACTION_NAMES,
        columns=np.array(columns),
        low=np.full(3, -2.0),
        high=np.array([2.0, 2.5, 3.0]),
        tables=tables,
        effects=effects,
        sizes=sizes,
        constant=0.7,
        weights=rng.normal(size=weights),
        centres=0.1 * rng.normal(size=weights),
        factor=0.1 * rng.normal(size=(weights, 3)),
        residual_variance=0.01,
        constant_variance=0.01,
        noise_variance=0.04,
        inflation=1.2,
        shares=np.full(5, 0.2),
    )


def make_no_effects():
    """What a fit finds where every step is worth the same, but for rounding."""
    return EffectModel(
        observation_names=STATE_NAMES,
        action_names=ACTION_NAMES,
        columns=np.zeros(0, np.int64),
        low=np.zeros(0),
        high=np.zeros(0),
        tables=np.zeros((0, 33, 1)),
        effects=(),
        sizes=(),
        constant=1 - 6e-16,
        weights=np.zeros(0),
        centres=np.zeros(0),
        factor=np.zeros((0, 0)),
        **EXACT,
        noise_variance=0.0,
        shares=np.zeros(0),
    )


def make_network(net="dense", needs_next=False):
    """Two members on some of the columns, each with a mask of its own."""
    generator = torch.Generator().manual_seed(4)
    columns = [0, 2, 4, 5, 6] + ([7, 11] if needs_next else [])
    made = (
        PairRewardNet(2, len(columns), features=3, generator=generator)
        if net == "pair"
        else RewardNet(2, len(columns), hidden=(8, 6), activation="tanh", generator=generator)
    )
    module = NetworkReward(made, members=2, columns=columns, needs_next=needs_next)
    with torch.no_grad():
        module.mask[0, 1] = 0
        module.mean.copy_(torch.linspace(-1, 1, len(columns)))
        module.std.copy_(torch.linspace(0.5, 2, len(columns)))
        module.scale.fill_(3)
        module.offset.fill_(-0.5)
    return NetworkFunction(module, states=STATES, actions=ACTIONS)


def make_quadratic():
    rng = np.random.default_rng(5)
    inputs = STATES + ACTIONS
    return QuadraticFunction(
        states=STATES,
        mean=rng.normal(size=inputs),
        std=rng.uniform(0.5, 2, inputs),
        constant=0.3,
        linear=rng.normal(size=inputs),
        products=rng.normal(size=(inputs, inputs)) / inputs,
    )


FUNCTIONS = {
    "effects": make_effects,
    "effects-next": lambda: make_effects((0, 6, 10)),
    "effects-midpoint": lambda: make_effects((13, 16, 7)),
    "effects-none": make_no_effects,
    "network": make_network,
    "network-pair": lambda: make_network("pair"),
    "network-next": lambda: make_network(needs_next=True),
    "quadratic": make_quadratic,
    "constant": lambda: ConstantFunction(1.5, states=STATES, actions=ACTIONS),
}


def find_needed(kind):
    """The arguments that a model of this kind cannot do without."""
    if kind == "effects-midpoint":
        return ARGUMENTS
    return ARGUMENTS[: 3 if kind.endswith("next") else 2]


def make_model(kind, **changes):
    return RewardModel(
        **{
            "function": FUNCTIONS[kind](),
            "observation_names": STATE_NAMES,
            "action_names": ACTION_NAMES,
            "state_mask": np.array([1, 0, 0, 1, 0]),
            "action_mask": np.array([1, 0]),
            "compact_mask": np.array([1, 0, 1, 1, 0]),
            "step_std": 0.5,
            "about": {"data": "<b>x|y</b>.h5", "fit": kind, "held_out_return_r2": 0.98765},
            **changes,
        }
    )


def make_sized(states, actions, mask=None):
    """A quadratic of an environment's sizes."""
    rng = np.random.default_rng(0)
    size = states + actions
    function = QuadraticFunction(
        states=states,
        mean=np.zeros(size),
        std=np.ones(size),
        constant=0.1,
        linear=rng.normal(size=size),
        products=rng.normal(size=(size, size)),
    )
    return RewardModel(
        function=function,
        observation_names=tuple(f"s{i}" for i in range(states)),
        action_names=tuple(f"a{i}" for i in range(actions)),
        state_mask=np.ones(states, np.int64),
        action_mask=np.ones(actions, np.int64),
        compact_mask=np.ones(states, np.int64) if mask is None else np.array(mask),
    )


def make_ends(states, actions):
    """r = (s0 + s0') / 2 + 1000 where the episode terminated, of an environment's sizes."""
    first_midpoint = 2 * states + actions + 1
    function = EffectModel(
        observation_names=tuple(f"s{i}" for i in range(states)),
        action_names=tuple(f"a{i}" for i in range(actions)),
        columns=np.array([first_midpoint, states + actions]),
        low=np.array([-1000.0, 0.0]),
        high=np.array([1000.0, 1.0]),
        tables=np.array([[[-1000.0], [1000.0]], [[0.0], [1000.0]]]),
        effects=((0,), (1,)),
        sizes=(1, 1),
        constant=0.0,
        weights=np.ones(2),
        centres=np.zeros(2),
        factor=np.zeros((2, 1)),
        **EXACT,
        noise_variance=1.0,
        shares=np.full(2, 0.5),
    )
    return RewardModel(
        function=function,
        observation_names=function.observation_names,
        action_names=function.action_names,
        state_mask=np.ones(states, np.int64),
        action_mask=np.zeros(actions, np.int64),
        compact_mask=np.ones(states, np.int64),
    )


def make_steps(count=50, seed=0):
    """Observations, actions and next observations, float32, and terminations.

    Some observations and actions lie beyond the effects' grids.
    """
    rng = np.random.default_rng(seed)
    shapes = (count, STATES), (count, ACTIONS), (count, STATES)
    steps = (rng.normal(scale=1.3, size=shape).astype(np.float32) for shape in shapes)
    return (*steps, np.arange(count) % 3 == 1)

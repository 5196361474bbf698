"""Networks with a leading member axis: one tensor holds K networks, one product steps them all.

Members are seeds, settings or bootstrap samples; none of them sees another. Only sizes go in here;
training, devices and logs are elsewhere. Every forward is a pure function of tensors, without
`.item()` and without shapes that depend on values, so that `torch.compile` and CUDA graphs can
wrap it from outside. Noise comes from the generator that is passed in, or from `Uniform`: numbers
as a function of member, update and place, without any state but a counter.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import layer_norm, relu, silu

if TYPE_CHECKING:
    from jaxtyping import Float, Int

_ACTIVATIONS: dict[str, Any] = {"relu": relu, "silu": silu, "tanh": torch.tanh}
_ALIGNMENT = 8
EDGES = ("state_to_reward", "action_to_reward", "state_to_state", "action_to_state")


class Masks(NamedTuple):
    """A number per edge of the graph, for each member: 0/1, a probability, or a strength."""

    state_to_reward: Tensor  # (member, state)
    action_to_reward: Tensor  # (member, action)
    state_to_state: Tensor  # (member, cause, effect)
    action_to_state: Tensor  # (member, action, state)


class Mixture(NamedTuple):
    """A mixture of Gaussians per output; all three are (member, batch, output, mixture)."""

    logits: Tensor
    means: Tensor
    log_stds: Tensor


class Stack(nn.Module):
    """K fully connected networks of equal size; linear at the end, like `torch.nn.Linear` at start.

    Layer l of member k: x -> activation(x W_kl + b_kl), all members in one batched product.
    """

    def __init__(
        self,
        members: int,
        sizes: Sequence[int],
        *,
        activation: str = "relu",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        if members < 1 or len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(f"expected members and sizes of at least 1, got {members}, {sizes}")
        if activation not in _ACTIVATIONS:
            known = ", ".join(_ACTIVATIONS)
            raise ValueError(f"activation: expected one of {known}, got {activation!r}")
        self.activation = activation
        self.leaves: list[list[tuple[Tensor, Tensor]]] | None = None
        """Weight and bias of each layer of each network as tensors of their own, where set."""
        self._normed: tuple[bool, ...] = ()
        self._is_normed: Tensor | None = None
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for fan_in, fan_out in itertools.pairwise(sizes):
            bound = fan_in**-0.5
            self.weights.append(_uniform((members, fan_in, fan_out), bound, generator))
            self.biases.append(_uniform((members, 1, fan_out), bound, generator))

    def normalise(self, networks: Sequence[bool]) -> None:
        """Give hidden layers of these networks mean 0 and variance 1 before the activation."""
        device = self.weights[0].device
        self._normed = tuple(networks) if any(networks) else ()
        self._is_normed = torch.tensor(networks, device=device).view(-1, 1, 1)

    def forward(
        self, inputs: Float[Tensor, "member *rows input"], *, frozen: bool = False, repeats: int = 1
    ) -> Float[Tensor, "network *rows output"]:
        """Apply each member to its own batch; `frozen` lets no gradient reach the weights.

        With `repeats` so many networks in a row share the batch of one member.
        """
        hidden = self.apply_layers(inputs.flatten(1, -2), frozen, repeats)
        return hidden.reshape(len(hidden), *inputs.shape[1:-1], hidden.shape[-1])

    def apply_layers(self, hidden: Tensor, frozen: bool, repeats: int) -> Tensor:
        """(member, batch, input) -> (network, batch, output)"""
        if self.leaves is not None:
            return self._apply_one_by_one(hidden, frozen, repeats)
        if repeats > 1:
            hidden = hidden.repeat_interleave(repeats, 0)
        for layer in range(len(self.weights)):
            if layer:
                if self._normed:
                    normed = layer_norm(hidden, hidden.shape[-1:])
                    assert self._is_normed is not None
                    hidden = torch.where(self._is_normed, normed, hidden)
                hidden = _ACTIVATIONS[self.activation](hidden)
            hidden = self.multiply(layer, hidden, frozen)
        return hidden

    def multiply(self, layer: int, hidden: Tensor, frozen: bool) -> Tensor:
        """(network, row, output) the linear part of a layer."""
        if self.leaves is not None:
            pairs = [network[layer] for network in self.leaves]
            if frozen:
                pairs = [(weight.detach(), bias.detach()) for weight, bias in pairs]
            triples = zip(hidden, pairs, strict=True)
            products = [torch.addmm(bias, rows, weight) for rows, (weight, bias) in triples]
            return torch.stack(products)
        weight: Tensor = self.weights[layer]
        bias: Tensor = self.biases[layer]
        if frozen:
            weight, bias = weight.detach(), bias.detach()
        # Not baddbmm: it copies the bias over all rows first.
        if hidden.is_cuda:
            return _multiply_aligned(hidden, weight) + bias
        return torch.bmm(hidden, weight).add_(bias)

    def fold(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of each layer, as a policy that is exported has them."""
        layers = zip(self.weights, self.biases, strict=True)
        return [(weight.detach(), bias.detach()) for weight, bias in layers]

    def _apply_one_by_one(self, inputs: Tensor, frozen: bool, repeats: int) -> Tensor:
        """One product per network: on a CPU faster than batched ones while networks are few."""
        assert self.leaves is not None
        outputs = []
        for network, layers in enumerate(self.leaves):
            hidden = inputs[network // repeats]
            for layer, (weight, bias) in enumerate(layers):
                if frozen:
                    weight, bias = weight.detach(), bias.detach()
                if layer:
                    if self._normed and self._normed[network]:
                        hidden = layer_norm(hidden, hidden.shape[-1:])
                    hidden = _ACTIVATIONS[self.activation](hidden)
                hidden = torch.addmm(bias, hidden, weight)
            outputs.append(hidden)
        return torch.stack(outputs) if len(outputs) > 1 else outputs[0].unsqueeze(0)


def _multiply_aligned(inputs: Tensor, weight: Tensor) -> Tensor:
    """(member, row, output); sizes are filled up to what tensor cores take whole.

    One output is a sum, which compiled code computes along with what comes before and after it.
    """
    size, outputs = weight.shape[1:]
    if outputs == 1:
        return (inputs * weight.transpose(1, 2)).sum(2, keepdim=True)
    wider, taller = -size % _ALIGNMENT, -outputs % _ALIGNMENT
    if wider:
        inputs = torch.nn.functional.pad(inputs, (0, wider))
    if wider or taller:
        weight = torch.nn.functional.pad(weight, (0, taller, 0, wider))
    product = torch.bmm(inputs, weight)
    return product[..., :outputs] if taller else product


class RewardNet(nn.Module):
    """phi_rew: a fully connected net on masked inputs (the paper's has 256-256-1 units).

    r_hat = FCs([C_sr * s, C_ar * a]) (Eq. 23 with sampled masks, Eq. 24 with greedy ones).

    Inputs are states and actions side by side (and, where a method wants them, more columns).
    """

    def __init__(
        self, members: int, inputs: int, *, hidden: Sequence[int] = (256, 256), **stack: Any
    ) -> None:
        """Create the net; `Stack` has the other keywords."""
        super().__init__()
        self.stack = Stack(members, (inputs, *hidden, 1), **stack)

    def forward(
        self,
        inputs: Float[Tensor, "member *batch input"],
        mask: Float[Tensor, "member *#batch input"],
    ) -> Float[Tensor, "member *batch"]:
        """Reward of each row; `mask` may have size 1 on any batch axis."""
        return cast(Tensor, self.stack(inputs * mask)).squeeze(-1)


class PairRewardNet(nn.Module):
    """A reward that is a sum of learned effects: one per input, one per pair of inputs.

        r_hat = c + sum_i m_i u_i . z_i + sum_{i<j} m_i m_j z_i' W_ij z_j
        z_i   = tanh(p_i x_i + q_i) - centre_i

    Each input has a few features of its own; `centre` holds their means over the data, so that a
    mask of zero takes an input out exactly and pair effects hold no main effects. Given the
    returns of a few hundred episodes this finds the reward where a free net finds something else
    with nearly the same returns. What needs three inputs at once it cannot express.
    """

    def __init__(
        self, members: int, inputs: int, *, features: int = 8, generator: Generator | None = None
    ) -> None:
        super().__init__()
        if min(members, inputs, features) < 1:
            found = f"{members}, {inputs}, {features}"
            raise ValueError(f"expected members, inputs and features of at least 1, got {found}")
        shape, total = (members, 1, inputs, features), inputs * features
        self.rates = nn.Parameter(torch.randn(shape, generator=generator))
        self.shifts = nn.Parameter(torch.randn(shape, generator=generator))
        self.main = nn.Parameter(torch.zeros(members, 1, total))
        pairs = torch.randn((members, total, total), generator=generator)
        self.pairs = nn.Parameter(pairs * (0.02 * total**-0.5))
        self.constant = nn.Parameter(torch.zeros(members, 1))
        self.centre = nn.Buffer(torch.zeros(shape))
        upper = torch.ones(inputs, inputs).triu(1)
        upper = upper.repeat_interleave(features, 0).repeat_interleave(features, 1)
        self.upper = nn.Buffer(upper, persistent=False)
        self.features = features

    def compute_features(
        self, inputs: Float[Tensor, "member row input"]
    ) -> Float[Tensor, "member row input feature"]:
        """tanh(p x + q) of every input, before centring."""
        return torch.tanh(torch.addcmul(self.shifts, inputs.unsqueeze(-1), self.rates))

    def forward(
        self,
        inputs: Float[Tensor, "member *batch input"],
        mask: Float[Tensor, "member *#batch input"],
    ) -> Float[Tensor, "member *batch"]:
        """Reward of each row; `mask` may have size 1 on any batch axis."""
        rows = inputs.flatten(1, -2)
        masks = mask.expand(inputs.shape).flatten(1, -2)
        features = self.compute_features(rows) - self.centre
        features = (features * masks.unsqueeze(-1)).flatten(2)  # (member, row, input * feature)
        slopes = torch.baddbmm(self.main, features, self.pairs * self.upper)
        rewards = (slopes * features).sum(-1) + self.constant
        return rewards.reshape(inputs.shape[:-1])


class DynamicsNet(nn.Module):
    """phi_dyn: one mixture density net, shared by all dimensions of the state (Eq. 25).

    P(s_i' | C_ss[:, i] * s, C_as[:, i] * a) for the dimension i.

    With `embedding` 0, as printed, the net is not told which dimension it predicts: two with equal
    masks get equal predictions. Otherwise a learned vector of that size per dimension is appended.
    """

    def __init__(
        self,
        members: int,
        states: int,
        actions: int,
        *,
        hidden: Sequence[int] = (256, 256),
        mixtures: int = 3,
        embedding: int = 0,
        log_std_range: tuple[float, float] = (-7.0, 7.0),
        activation: str = "relu",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        sizes = (states + actions + embedding, *hidden, 3 * mixtures)
        self.stack = Stack(members, sizes, activation=activation, generator=generator)
        self.embedding: nn.Parameter | None = None
        if embedding:
            vectors = torch.randn((members, states, embedding), generator=generator)
            self.embedding = nn.Parameter(vectors)
        self.mixtures, self.log_std_range = mixtures, log_std_range

    def forward(
        self,
        inputs: Float[Tensor, "member batch input"],
        mask: Float[Tensor, "member #batch input output"],
        dimensions: Int[Tensor, "output"],
    ) -> Mixture:
        """The distribution of the next state's `dimensions`, whose columns `mask` holds.

        A random subset of dimensions per update makes many of them affordable.
        """
        masked = inputs.unsqueeze(-2) * mask.transpose(-1, -2)  # (member, batch, output, input)
        if self.embedding is not None:
            chosen = self.embedding.index_select(1, dimensions).unsqueeze(1)
            masked = torch.cat([masked, chosen.expand(-1, masked.shape[1], -1, -1)], -1)
        raw = cast(Tensor, self.stack(masked))
        logits, means, log_stds = torch.tensor_split(raw, 3, -1)
        return Mixture(logits, means, log_stds.clamp(*self.log_std_range))


class GraphMasks(nn.Module):
    """The causal graph as free parameters: two logits per edge, for existing and for not (phi_cau).

    In training masks are sampled (Eq. 21), in use the likelier of the two is taken (Eq. 22).
    """

    state_to_reward: nn.Parameter
    action_to_reward: nn.Parameter
    state_to_state: nn.Parameter
    action_to_state: nn.Parameter

    def __init__(
        self,
        members: int,
        states: int,
        actions: int,
        *,
        start: float = 0.0,
        spread: float = 0.0,
        generator: Generator | None = None,
    ) -> None:
        """`start` is psi_0 - psi_1 at first; `spread` the std of normal noise on each logit."""
        super().__init__()
        shapes = ((states,), (actions,), (states, states), (actions, states))
        for name, shape in zip(EDGES, shapes, strict=True):
            logits = torch.zeros(members, *shape, 2)
            if spread:
                logits += spread * torch.randn(logits.shape, generator=generator)
            logits[..., 0] += start / 2
            logits[..., 1] -= start / 2
            self.register_parameter(name, nn.Parameter(logits))

    def compute_probabilities(self) -> Masks:
        """P(edge) = exp(psi_0) / (exp(psi_0) + exp(psi_1)) of each edge (Eq. 20)."""
        return Masks(*(torch.softmax(getattr(self, name), -1)[..., 0] for name in EDGES))

    def choose(self) -> Masks:
        """The greedy choice: 1 where psi_0 >= psi_1 (Eq. 22)."""
        pairs = (getattr(self, name).detach() for name in EDGES)
        return Masks(*((pair[..., 0] >= pair[..., 1]).to(pair.dtype) for pair in pairs))

    def sample_reward(self, copies: int, **how: Any) -> Float[Tensor, "member copy input"]:
        """`copies` samples of the masks into the reward, states and actions side by side."""
        return _sample(torch.cat([self.state_to_reward, self.action_to_reward], 1), copies, **how)

    def sample_dynamics(self, copies: int, **how: Any) -> Float[Tensor, "member copy input state"]:
        """`copies` samples of the masks into the next state, rows: states, then actions."""
        return _sample(torch.cat([self.state_to_state, self.action_to_state], 1), copies, **how)


def sample_edges(
    logits: Float[Tensor, "*edges 2"], noise: Float[Tensor, "*edges 2"], *, temperature: float
) -> Float[Tensor, "*edges"]:
    """Hard Gumbel-softmax with a straight-through gradient: 0/1 forward, soft backward (Eq. 21).

    soft = softmax((psi + g) / temperature)_0, g standard Gumbel; hard = 1 where soft >= 1/2. The
    value is hard, the gradient that of soft.
    """
    soft = torch.softmax((logits + noise) / temperature, -1)[..., 0]
    hard = (soft >= 0.5).to(soft.dtype)
    # In this order the value is exactly 0 or 1.
    return hard + (soft - soft.detach())


def draw_gumbel(
    shape: Sequence[int], *, device: torch.device, generator: Generator | None
) -> Tensor:
    """Standard Gumbel noise: -log(-log u)."""
    uniform = torch.rand(tuple(shape), device=device, generator=generator)
    tiny = torch.finfo(uniform.dtype).tiny
    return -torch.log(-torch.log(uniform.clamp(tiny, 1 - 2**-24)))


def _sample(
    logits: Tensor, copies: int, *, temperature: float = 1.0, generator: Generator | None = None
) -> Tensor:
    shape = (logits.shape[0], copies, *logits.shape[1:])
    noise = draw_gumbel(shape, device=logits.device, generator=generator)
    return sample_edges(logits.unsqueeze(1).expand(shape), noise, temperature=temperature)


def _uniform(shape: tuple[int, ...], bound: float, generator: Generator | None) -> nn.Parameter:
    return nn.Parameter((2 * torch.rand(shape, generator=generator) - 1) * bound)


Module = TypeVar("Module", bound=nn.Module)


def build_members(build: Callable[[Generator], Module], seeds: Sequence[int]) -> Module:
    """One module for all members, each started from its own seed as if it were alone."""
    parts = [build(Generator().manual_seed(seed)) for seed in seeds]
    together = [dict(part.named_parameters()) for part in parts]
    for name, parameter in parts[0].named_parameters():
        parameter.data = torch.cat([part[name].detach() for part in together], 0)
    return parts[0]


_GOLDEN = -7046029254386353131  # 2^64 divided by the golden ratio, as a signed number
_FIRST = -4658895280553007687
_SECOND = -7723592293110705685
_BITS = 23  # so many, and a half added, are exact in a float: never 0, never 1


class UniformNumbers:
    """`count` numbers per member and update, uniform in the open interval from 0 to 1.

    Those of another `stream` or another update have nothing to do with these. A member's numbers
    depend on its own seed alone, so it gets the same ones in a group as alone, and a run that is
    resumed goes on where it stopped. They are made on the device, for all members at once, by
    mixing 64-bit integers (SplitMix64).
    """

    def __init__(self, seeds: Sequence[int], count: int, *, stream: int, device: Any) -> None:
        # Multiplied here once: inside a compiled kernel places are taken for 32-bit numbers.
        self._places = (torch.arange(count) * _GOLDEN).to(device)
        self._keys = _mix(torch.tensor(list(seeds)) * _GOLDEN + stream).to(device)

    def draw(
        self, counter: Int[Tensor, ""], part: slice = slice(None)
    ) -> Float[Tensor, "member count"]:
        """The numbers of an update, or some of them."""
        keys = _mix(self._keys + counter * _GOLDEN)
        bits = _shift(_mix(keys.unsqueeze(1) + self._places[part]), 64 - _BITS)
        return (bits.to(torch.float32) + 0.5) * 2.0**-_BITS


def to_normal(uniform: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Standard normal numbers: the inverse of the distribution function."""
    return torch.erfinv(2 * uniform - 1) * math.sqrt(2)


def to_gumbel(uniform: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Standard Gumbel numbers: -log(-log u)."""
    return -torch.log(-torch.log(uniform))


def to_index(
    uniform: Float[Tensor, "member count"], sizes: Int[Tensor, "member"]
) -> Int[Tensor, "member count"]:
    """Whole numbers from 0 to each member's size - 1, all equally likely."""
    index = (uniform.to(torch.float64) * sizes.unsqueeze(1)).to(torch.int64)
    return torch.minimum(index, (sizes - 1).clamp_min(0).unsqueeze(1))


def _mix(value: Tensor) -> Tensor:
    value = (value ^ _shift(value, 30)) * _FIRST
    value = (value ^ _shift(value, 27)) * _SECOND
    return value ^ _shift(value, 31)


def _shift(value: Tensor, places: int) -> Tensor:
    """Shift right, filling up with zeros: the sign is a bit like any other."""
    return (value >> places) & ((1 << (64 - places)) - 1)

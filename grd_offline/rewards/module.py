"""A reward model as a torch module: shapes checked, gradients to its inputs, any device."""

from __future__ import annotations

from torch import Tensor, nn


class RewardModule(nn.Module):
    """(..., state), (..., action) [, (..., state)] -> (...,) the reward of each step.

    Made by `RewardModel.torch`, as a copy of its own: moving it to a device or changing its type
    leaves the model alone. Its numbers are frozen.
    """

    def __init__(self, reward: nn.Module, *, states: int, actions: int, needs_next: bool) -> None:
        super().__init__()
        self.reward = reward
        self.states, self.actions, self.needs_next = states, actions, needs_next

    def forward(
        self, observations: Tensor, actions: Tensor, next_observations: Tensor | None = None
    ) -> Tensor:
        """The reward of each step; next observations are used where the reward needs them."""
        leading = observations.shape[:-1]
        _check("observations", observations, (*leading, self.states))
        _check("actions", actions, (*leading, self.actions))
        if next_observations is not None:
            _check("next_observations", next_observations, (*leading, self.states))
        elif self.needs_next:
            raise ValueError("next_observations: expected them, this reward depends on them")
        rewards: Tensor = self.reward(
            observations, actions, next_observations if self.needs_next else None
        )
        return rewards


def _check(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    # Columns are picked by number from all parts side by side: with one part too wide and the
    # next too narrow, the wrong ones would be picked without a word.
    if tensor.shape != shape:
        raise ValueError(f"{name}: expected shape {tuple(shape)}, got {tuple(tensor.shape)}")

"""Small agents of every algorithm, and batches for them."""

import torch

from grd_offline.learning.agents.agent import PolicyBatch
from grd_offline.learning.agents.algorithms import find_algorithm


def make_agent(name, is_discrete, seeds):
    ones = torch.ones(len(seeds))
    return find_algorithm(name).find_class(is_discrete=is_discrete)(
        3, 2, seeds=seeds, hidden=(8,), rates=ones * 1e-3, discounts=ones * 0.9,
        target_rates=ones * 0.1, centre_rates=ones * 0.1,
    )  # fmt: skip


def draw_batch(agent, generator):
    def draw(*shape):
        return torch.rand((agent.members, 7, *shape), generator=generator)

    return PolicyBatch(
        observations=draw(3), actions=draw(2), next_observations=draw(3),
        terminated=torch.zeros(2, 7), rewards=draw(), uniform=draw(2 * agent.noise_size),
    )  # fmt: skip

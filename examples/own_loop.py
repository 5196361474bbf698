"""The reward inside a loop of one's own: batches in numpy, gradients to actions in torch."""

import sys

import numpy as np
import torch

from grd_offline import RewardModel, to_d4rl

folder = sys.argv[1] if len(sys.argv) > 1 else "sample-grd"


def main() -> None:
    model = RewardModel.load(folder)
    data = to_d4rl(folder, rewards="observed_rewards")
    rng = np.random.default_rng(0)
    rows = rng.integers(len(data["rewards"]), size=256)
    names = ("observations", "actions", "next_observations", "terminals")
    steps = [data[name][rows] for name in names]
    rewards, spread = model.predict(*steps), model.uncertainty(*steps)
    print(f"a batch: mean reward {rewards.mean():.3f}, mean spread {spread.mean():.3f}")

    # A policy that climbs the reward of the next step: gradients flow through the model.
    reward = model.torch()
    observations, _, following, terminals = (torch.from_numpy(part) for part in steps)
    scaled = (observations - observations.mean(0)) / observations.std(0)
    policy = torch.nn.Linear(observations.shape[1], steps[1].shape[1])
    optimiser = torch.optim.Adam(policy.parameters(), 0.03)
    for step in range(61):
        gain = reward(observations, torch.tanh(policy(scaled)), following, terminals).mean()
        optimiser.zero_grad()
        (-gain).backward()
        optimiser.step()
        if step % 20 == 0:
            print(f"after {step} updates the mean reward is {gain:.3f}")


if __name__ == "__main__":
    main()

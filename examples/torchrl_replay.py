"""A TorchRL replay buffer of relabelled data, and one that relabels what it samples."""

import sys

from torchrl.data import LazyTensorStorage, ReplayBuffer

from grd_offline.interop import LearnedRewardTransform, to_tensordict

folder = sys.argv[1] if len(sys.argv) > 1 else "sample-grd"


def main() -> None:
    data = to_tensordict(folder)
    buffer = ReplayBuffer(storage=LazyTensorStorage(len(data)), batch_size=64)
    buffer.extend(data)
    print(f"mean reward of a batch: {buffer.sample()['next', 'reward'].mean():.3f}")

    # The same from data with their own rewards: they are replaced when a batch is drawn.
    observed = to_tensordict(folder, rewards="observed_rewards")
    buffer = ReplayBuffer(storage=LazyTensorStorage(len(observed)), batch_size=64)
    buffer.append_transform(LearnedRewardTransform(folder))
    buffer.extend(observed)
    print(f"mean reward of a batch: {buffer.sample()['next', 'reward'].mean():.3f}")


if __name__ == "__main__":
    main()

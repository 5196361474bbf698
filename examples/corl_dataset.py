"""The dictionary that CORL's scripts train on, where they call d4rl.qlearning_dataset(env)."""

import sys

from grd_offline import RewardModel, to_d4rl

folder = sys.argv[1] if len(sys.argv) > 1 else "sample-grd"


def main() -> None:
    dataset = to_d4rl(folder)  # rewards="observed_rewards" for those that the data had
    mean, std = dataset["observations"].mean(0), dataset["observations"].std(0) + 1e-3
    for name in ("observations", "next_observations"):
        dataset[name] = (dataset[name] - mean) / std
    for name, array in dataset.items():
        print(f"{name:18} {array.dtype!s:8} {array.shape}")
    compact = RewardModel.load(folder).compact_mask.astype(bool)
    print(
        f"a policy needs {compact.sum()} of {len(compact)} dimensions: "
        f"{dataset['observations'][:, compact].shape}"
    )


if __name__ == "__main__":
    main()

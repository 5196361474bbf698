"""The reward in onnxruntime, as a program without this package would use it."""

import subprocess
import sys

import numpy as np
import onnxruntime

from grd_offline import RewardModel, to_d4rl

folder = sys.argv[1] if len(sys.argv) > 1 else "sample-grd"


def main() -> None:
    command = ["grd-offline", "export", folder, "--to", "onnx", "--out", "reward.onnx"]
    subprocess.run(command, check=True)
    session = onnxruntime.InferenceSession("reward.onnx")
    data = to_d4rl(folder)
    data["terminations"] = data.pop("terminals")  # as Gymnasium calls them
    inputs = {entry.name: data[entry.name] for entry in session.get_inputs()}
    (rewards,) = session.run(["rewards"], inputs)
    expected = RewardModel.load(folder).predict(**inputs)
    print(f"{len(rewards)} rewards, largest difference {np.abs(rewards - expected).max():.1e}")


if __name__ == "__main__":
    main()

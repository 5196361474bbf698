"""Stable-Baselines3's SAC on the learned reward; the Monitor inside reports the true return."""

import sys

from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env

from grd_offline.interop import LearnedRewardVecEnv

folder = sys.argv[1] if len(sys.argv) > 1 else "sample-grd"
# The task of datasets/sample.h5.
TASK = "Hopper-v5"
OPTIONS = {"ctrl_cost_weight": 0.5}


def main() -> None:
    venv = make_vec_env(TASK, n_envs=2, seed=0, env_kwargs=OPTIONS)
    agent = SAC("MlpPolicy", LearnedRewardVecEnv(venv, folder), learning_starts=100, seed=0)
    agent.learn(260)
    returns = [float(episode["r"]) for episode in agent.ep_info_buffer or ()]
    print(f"{len(returns)} episodes, mean true return {sum(returns) / len(returns):.2f}")


if __name__ == "__main__":
    main()

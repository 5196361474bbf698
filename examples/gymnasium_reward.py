"""Environments that pay the learned reward and show the compact state only."""

import sys

import gymnasium

from grd_offline import CompactObservation, LearnedReward, VectorLearnedReward

folder = sys.argv[1] if len(sys.argv) > 1 else "sample-grd"
# The task of datasets/sample.h5.
TASK = "Hopper-v5"
OPTIONS = {"ctrl_cost_weight": 0.5}


def main() -> None:
    env = gymnasium.make(TASK, **OPTIONS)
    env = CompactObservation(LearnedReward(env, folder), folder)
    observation, _ = env.reset(seed=0)
    learned = true = 0.0
    ended = False
    while not ended:
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        learned, true = learned + float(reward), true + info["true_reward"]
        ended = terminated or truncated
    print(f"one episode: learned return {learned:.2f}, true return {true:.2f}")
    print(f"the policy sees {observation.shape[0]} of {env.unwrapped.observation_space.shape[0]}")

    envs = gymnasium.make_vec(TASK, num_envs=4, **OPTIONS)
    envs = VectorLearnedReward(envs, folder)
    envs.reset(seed=0)
    _, rewards, *_ = envs.step(envs.action_space.sample())
    print(f"four environments at once: {rewards.round(3)}")


if __name__ == "__main__":
    main()

"""Environments that pay the learned reward and show the compact state only."""

import sys

import gymnasium

from grd_offline import CompactObservation, LearnedReward, VectorLearnedReward

folder = sys.argv[1] if len(sys.argv) > 1 else "sample-grd"
# The world of datasets/sample.h5.
SIZES = {"states": 6, "actions": 2, "reward_states": 2, "reward_actions": 1, "indirect": 1}
WORLD = {**SIZES, "min_length": 30, "length": 40}


def main() -> None:
    env = gymnasium.make("grd/Factored-v0", **WORLD)
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

    envs = gymnasium.make_vec("grd/Factored-v0", num_envs=4, **WORLD)
    envs = VectorLearnedReward(envs, folder)
    envs.reset(seed=0)
    _, rewards, *_ = envs.step(envs.action_space.sample())
    print(f"four environments at once: {rewards.round(3)}")


if __name__ == "__main__":
    main()

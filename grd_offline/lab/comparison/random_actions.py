"""Mean returns of uniformly random actions: the zero of normalised scores.

`benchmarks/random_returns.py` measured them over 100 episodes.
"""

RANDOM_RETURNS = {
    "Ant-v5": -56.13,  # standard error 9.5
    "HalfCheetah-v5": -286,  # standard error 8.4
    "Hopper-v5": 16.67,  # standard error 1.8
    "Humanoid-v5": 112.6,  # standard error 3.6
    "HumanoidStandup-v5": 3.332e04,  # standard error 2e+02
    "Reacher-v5": -43.29,  # standard error 0.39
    "Swimmer-v5": 0.8029,  # standard error 0.93
    "Walker2d-v5": 1.77,  # standard error 0.77
    "grd/PaddedAnt-v0": -56.13,  # standard error 9.5
    "CartPole-v1": 23.68,  # standard error 1.2
    "Acrobot-v1": -497.1,  # standard error 1.9
}

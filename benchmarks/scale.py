"""Memory and time of the whole suite, worked out from measured rates.

python benchmarks/scale.py

Rates are of whole runs of 100,000 to 1,000,000 steps: from
benchmarks/results/online (members times steps divided by seconds) and from
benchmarks/results/online_speed.txt. The printed tables are in docs/results.md.
"""

from __future__ import annotations

from dataclasses import dataclass

STEPS, SEEDS = 3_000_000, 5
CAPACITY, LONGEST = 1_000_000, 1000
LIGHT, NET = 6, 5
"""Methods of experiments/main.toml without a network for the reward (grd with closed-form and
quadratic, grd-no-compact with closed-form, ircr, none, oracle), and with one (grd with joint-net
and paper, grd-no-compact with paper, rrd, rrd-unbiased)."""


@dataclass(frozen=True)
class Task:
    """Sizes, and member-steps per second on one H200 with 16 processors."""

    name: str
    states: int
    actions: int
    light: float
    net: float
    measured: str
    """What the rate without a network is of."""

    @property
    def replay_bytes(self) -> int:
        """Memory of one member's replay: see `grd_offline.learning.online.replay.Replay`."""
        rows = CAPACITY + CAPACITY // 8 + 2 * (LONGEST + 1)
        return rows * (4 * (self.states + self.actions + 3) + 1) + CAPACITY * (3 * 8 + 4)

    @property
    def hours(self) -> float:
        """Hours of one H200 for all methods and seeds."""
        return SEEDS * STEPS * (LIGHT / self.light + NET / self.net) / 3600

    @property
    def longest_job(self) -> float:
        """Hours of the longest job: four baselines of five seeds."""
        return SEEDS * STEPS * (2 / self.light + 2 / self.net) / 3600


TEN, TWENTY = "10 members", "20 members"
SMALL_NET = 11_469
"""Of `--fit paper`, 20 members of HalfCheetah, a whole run."""
SWIMMER_NET = 9_778
"""Of `--fit paper`, 20 members of Swimmer, a whole run."""
HUMANOID_NET = SMALL_NET / 3.3
"""On a CPU an update of joint-net takes 3.3 times as long with Humanoid's sizes. A guess here."""
ANT_NET = SMALL_NET / 2
"""A guess between the two."""
HUMANOID = 10 * 1_000_000 / 842.2
STANDUP = 10 * 891_000 / 1735.6
"""Sixteen processors are too few for its environments: 61 % of the time is waiting for them. With
an evaluation every 50,000 steps, and not every 10,000, it had 9,798 beside another training."""
TASKS = (
    Task("Ant", 105, 8, 16_960, ANT_NET, TEN),
    Task("HalfCheetah", 17, 6, 40_111, SMALL_NET, TWENTY),
    Task("Walker2d", 17, 6, 34_262, SMALL_NET, TWENTY),
    Task("Humanoid", 348, 17, HUMANOID, HUMANOID_NET, TEN),
    Task("Reacher", 10, 2, 10 * 1_000_000 / 367.0, SMALL_NET, TEN),
    Task("Swimmer", 8, 2, 10 * 1_000_000 / 363.0, SWIMMER_NET, TEN),
    Task("Hopper", 11, 3, 39_107, SMALL_NET, TWENTY),
    Task("HumanoidStandup", 348, 17, STANDUP, HUMANOID_NET, TEN),
)
CORE_MS = {"small": (28.5, 27.8 * 4.61 / 0.72), "large": (47.0, 46.2 * 6.35 / 0.80)}
"""Milliseconds of one core for an update, without and with a network for the reward, at the sizes
of HalfCheetah and of Humanoid. Those with a network are ratios to SAC times SAC's."""
LARGE = ("Humanoid", "HumanoidStandup")


def main() -> None:
    members = SEEDS * (LIGHT + NET)
    print(
        "| task | replay of a member | of all 55 members | light methods | with networks | hours |"
    )
    print("|---|---|---|---|---|---|")
    for task in TASKS:
        memory = task.replay_bytes / 1e9
        print(
            f"| {task.name} | {memory:.2f} GB | {members * memory:.0f} GB | {task.light:,.0f} "
            f"({task.measured}) | {task.net:,.0f} | {task.hours:.1f} |"
        )
    total = sum(task.hours for task in TASKS)
    longest = max(task.longest_job for task in TASKS)
    print(f"\none H200: {total:.0f} h; eight: at least {total / 8:.1f} h, and at most", end=" ")
    print(f"{total / 8 + longest:.1f} h (the longest job takes {longest:.1f} h)")
    light = net = 0.0
    for task in TASKS:
        fast, slow = CORE_MS["large" if task.name in LARGE else "small"]
        light += SEEDS * LIGHT * STEPS * fast / 3.6e6
        net += SEEDS * NET * STEPS * slow / 3.6e6
    print(f"CPU: {light:,.0f} core-hours without and {net:,.0f} with networks for the reward")
    print(
        f"one member on one core: {STEPS * CORE_MS['small'][0] / 3.6e6:.0f} h (HalfCheetah, light)"
    )
    print(f"    to {STEPS * CORE_MS['large'][1] / 3.6e6:.0f} h (Humanoid, with a network)")


if __name__ == "__main__":
    main()

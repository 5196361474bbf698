"""The folder of an offline run, written while it trains.

settings.json                   settings, members, units of the rewards, versions, the command
log.csv                         every 1,000 updates: losses
evaluations.csv                 every evaluation of every member, in the columns of online runs
members/NAME/policies/          step-000010000/, ..., best/: for `collect --policy`
"""

from collections.abc import Mapping
from typing import Any

from grd_offline.io.files.runs import OFFLINE
from grd_offline.learning.offline.run import OfflineRun
from grd_offline.learning.runs.folder import RunFolder

LOG_COLUMNS = (
    "step", "seconds", "member", "group", "seed", "critic_loss", "actor_loss", "value_loss",
    "skipped",
)  # fmt: skip


class OfflineFolder(RunFolder):
    """Hears of a run and writes its files."""

    format = OFFLINE
    log_columns = LOG_COLUMNS
    correlations: Mapping[str, float | None]
    """Correlation of the rewards of each source with the true rewards. None if those are not
    known."""

    def _describe_run(self, run: OfflineRun) -> dict[str, Any]:
        return {"reward_units": {name: units._asdict() for name, units in run.units.items()}}

    def _describe_policy(self, run: OfflineRun, index: int, step: int) -> dict[str, Any]:
        correlation = self.correlations.get(run.members[index].source)
        return {
            "correlation": "" if correlation is None else correlation,
            "policy_states": run.states,
        }

    def _describe_learning(self, run: OfflineRun) -> list[dict[str, Any]]:
        agent, skipped = run.learner.agent, run.learner.count_skipped()
        losses = agent.losses.numpy(force=True)
        return [
            {
                "skipped": int(skipped[index]),
                **{
                    f"{name}_loss": float(values[index])
                    for name, values in zip(agent.loss_names, losses, strict=True)
                },
            }
            for index in range(len(run.members))
        ]

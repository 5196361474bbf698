"""The part that the members of online and offline runs share. It needs neither numpy nor torch."""

from abc import ABC, abstractmethod
from typing import Any

from grd_offline.core.settings import setting


def env_args_setting() -> Any:
    """The setting that has the arguments of an environment."""
    return setting(
        None,
        "Argument of the environment. The value is JSON or text. This option can be repeated.",
        factory=dict,
        option="--env-arg",
    )


class RunMember(ABC):
    """One of the policies that are trained side by side."""

    seed: int

    @property
    @abstractmethod
    def group(self) -> str:
        """The name without the seed. Members of a group differ by their seed alone."""

    @property
    def name(self) -> str:
        """The name of the member, and of its folder."""
        return f"{self.group}-seed{self.seed}"

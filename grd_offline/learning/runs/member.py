"""The part that the members of online and offline runs share. It needs neither numpy nor torch."""

from abc import ABC, abstractmethod


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

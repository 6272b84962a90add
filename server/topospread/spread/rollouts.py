"""The outcome of a rolling update, as it is reported."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from topospread.wording import counted

if TYPE_CHECKING:
    from topospread.kube.rollouts import Rollout


class RolloutEnd(Enum):
    """The end of a rollout."""

    COMPLETES = "completes"
    MAY_WAIT = "may wait"
    WAITS = "waits"
    UNKNOWN = "was not followed to its end"


@dataclass(frozen=True, slots=True)
class RolloutWait:
    """A state in which a new pod finds no node, and no old one goes.

    Attributes:
        old, new: pods that run.
        message: kube-scheduler's words for the one that waits.
        lacks_resources: some node refuses it for its resources alone.
    """

    old: int
    new: int
    message: str
    lacks_resources: bool = False

    @property
    def text(self) -> str:
        """For people."""
        beside = [counted(self.old, "old pod")] if self.old else []
        beside += [counted(self.new, "new one") if beside else counted(self.new, "new pod")]
        if not self.new and self.old:
            beside = beside[:1]
        return f"beside {' and '.join(beside)} the next finds no node: {self.message}"


@dataclass(frozen=True, slots=True)
class RolloutOutcome:
    """The end of a rollout, or what is known of it.

    Attributes:
        rollout: how the pods are replaced.
        replicas: how many there are to be.
        wait: the first that was found; None where none was.
        proven: all courses were looked at, and all that may refuse pods.
        courses: how many were drawn by chance, and followed to their end.
        waiting: how many of these wait.
    """

    end: RolloutEnd
    rollout: Rollout
    replicas: int
    wait: RolloutWait | None = None
    proven: bool = True
    courses: int = 0
    waiting: int = 0

    @property
    def is_likely(self) -> bool:
        """Whether it waits, or did in one of the courses that were drawn."""
        return self.end is RolloutEnd.WAITS or self.waiting > 0

    @property
    def text(self) -> str:
        """For people: what it comes to, and why."""
        what = f"a rollout of {counted(self.replicas, 'replica')}"
        if self.end is RolloutEnd.UNKNOWN:
            return f"{what} was not looked at: none of its courses was followed to an end"
        if self.wait is None:
            return f"{what} completes" + ("" if self.proven else ", as far as was looked at")
        found = f"{given_text(self.rollout, self.replicas)}: {self.wait.text}"
        if self.end is RolloutEnd.WAITS:
            until = " until there is more room" if self.wait.lacks_resources else " forever"
            return f"{what} waits{until}; {found}"
        return (
            f"{what} may wait, as chance decides which old pod goes first and which node takes a "
            f"new one ({self.waiting} of {self.courses} courses drawn wait); {found}"
        )


def given_text(rollout: Rollout, replicas: int | None) -> str:
    """What the strategy comes to."""
    if rollout.doubles:
        return "all new pods come before an old one goes"
    if rollout.ordered:
        return "one pod goes before its successor comes"
    text = f"maxUnavailable is {rollout.max_unavailable}"
    if rollout.max_unavailable.is_percentage and replicas is not None:
        text += f", of {replicas} replicas {rollout.max_unavailable.of(replicas, up=False)}"
    return text

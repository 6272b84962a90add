"""A case that may be better than the pod's own, and what makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from topospread.service.explaining.case import Case
    from topospread.service.explaining.findings import Change
    from topospread.spread.constraints import Constraint


class Candidate(NamedTuple):
    """A case to try, the changes that lead to it, and how they are told."""

    case: Case
    changes: tuple[Change, ...]
    text: str


def called(case: Case, position: int) -> tuple[int, str]:
    """A hard constraint's index, and how it is called in texts."""
    index = case.specs(hard=True)[position][0]
    return index, f"constraint {index} ({case.hard[position].topology_key})"


def exchanged(case: Case, position: int, constraint: Constraint) -> Case:
    """The case with another constraint in the place of one."""
    constraints = list(case.hard)
    constraints[position] = constraint
    return case.with_hard(constraints)


def plural(number: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{number} {noun}{'s' * (number != 1)}"

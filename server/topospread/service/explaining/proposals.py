"""Changes that may let a pod in, and their order."""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum, auto
from typing import TYPE_CHECKING, NamedTuple

from topospread.kube.label_syntax import label_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.service.explaining.context import EvaluationContext
    from topospread.spread.constraints import Constraint
    from topospread_proto.v1.explanation_pb2 import SuggestedChange


class Rank(IntEnum):
    """The order of suggestions: what mends the cause first, what nobody adds at will last."""

    KEY = auto()
    """A key that no node has, or that usable nodes lack where spreading closes none: the one that
    is meant, or the label."""

    OUT_OF_REACH = auto()
    """minDomains beyond the domains that there are."""

    RESTORE = auto()
    """Cordons, where nothing else keeps pods from the nodes; a resource's own taint."""

    HONOR = auto()
    """Domains that count, and whose nodes the pod cannot use."""

    UNCORDON = auto()
    MIN_DOMAINS = auto()
    """minDomains beyond the domains that are left once taints are honoured."""

    ADD_NODES = auto()
    """Nodes in a domain that is open: what an autoscaler does."""

    LABEL = auto()
    MAX_SKEW = auto()
    """Also minDomains of domains that there are, without nodes that the pod is for."""

    SOFT = auto()
    TOLERATE = auto()
    IGNORE = auto()
    ADD_DOMAINS = auto()


class ProposedChange(NamedTuple):
    """A variant to try, the changes that lead to it, and their description."""

    rank: Rank
    context: EvaluationContext
    changes: Sequence[SuggestedChange]
    text: str


def name_constraint(change: SuggestedChange, context: EvaluationContext, position: int) -> None:
    """Write into a change which constraint it concerns."""
    change.constraint_index = context.specs(hard=True)[position][0]
    change.topology_key = context.hard[position].topology_key


def constraint_label(context: EvaluationContext, position: int) -> str:
    """The name of a hard constraint in texts."""
    index = context.specs(hard=True)[position][0]
    return f"constraint {index} ({label_text(context.hard[position].topology_key)})"


def with_constraint(
    context: EvaluationContext, position: int, constraint: Constraint
) -> EvaluationContext:
    """The context with one constraint replaced."""
    constraints = list(context.hard)
    constraints[position] = constraint
    return with_constraints(context, constraints)


def with_constraints(
    context: EvaluationContext, constraints: Sequence[Constraint]
) -> EvaluationContext:
    """The context with other hard constraints, all of whose keys a node that counts has."""
    keys = tuple(dict.fromkeys(each.topology_key for each in constraints))
    return context.with_hard(
        [replace(each, eligibility=replace(each.eligibility, keys=keys)) for each in constraints]
    )

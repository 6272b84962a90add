"""Other values for a pod's constraints: what would be if its author had written them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from topospread.errors import FieldViolation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from topospread.kube.objects import Pod, SpreadConstraint


@dataclass(frozen=True, slots=True)
class ConstraintChange:
    """New values for the constraints with one key; None leaves a value as it is.

    Attributes:
        when_unsatisfiable: only those that say this; empty: all with the key.
        clear_min_domains: takes minDomains away.
    """

    topology_key: str
    when_unsatisfiable: str = ""
    max_skew: int | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    new_when_unsatisfiable: str | None = None
    clear_min_domains: bool = False

    def concerns(self, constraint: SpreadConstraint) -> bool:
        """Whether a constraint is meant."""
        said = self.when_unsatisfiable
        return constraint.topology_key == self.topology_key and (
            not said or constraint.when_unsatisfiable == said
        )

    def made(self, constraint: SpreadConstraint) -> SpreadConstraint:
        """A constraint with the new values."""
        values: dict[str, object] = {
            "max_skew": self.max_skew,
            "min_domains": self.min_domains,
            "node_affinity_policy": self.node_affinity_policy,
            "node_taints_policy": self.node_taints_policy,
            "when_unsatisfiable": self.new_when_unsatisfiable,
        }
        given = {name: value for name, value in values.items() if value is not None}
        if self.clear_min_domains:
            given["min_domains"] = None
        return replace(constraint, **given)  # type: ignore[arg-type] # names and types are its own


def changed_constraints(pod: Pod, changes: Sequence[ConstraintChange], used: set[int]) -> Pod:
    """A pod with other constraints.

    Args:
        pod: as its author wrote it.
        changes: applied in order.
        used: gets the positions of those that concerned a constraint.
    """
    constraints = list(pod.constraints)
    for number, change in enumerate(changes):
        for position, constraint in enumerate(constraints):
            if change.concerns(constraint):
                constraints[position] = change.made(constraint)
                used.add(number)
    return replace(pod, constraints=tuple(constraints))


def unmet(changes: Iterable[ConstraintChange], used: set[int]) -> Iterator[FieldViolation]:
    """The changes that concern no constraint of any pod."""
    for number, change in enumerate(changes):
        if number not in used:
            yield FieldViolation(
                f"scenario.changes.constraintChanges[{number}].match.topologyKey",
                "none of the pods has such a constraint of its own",
                "Not found",
                change.topology_key,
            )

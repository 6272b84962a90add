"""The request of a simulation as plain values: pods, nodes, and changed constraints."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.errors import FieldViolation
from topospread.kube.objects import HOSTNAME_LABEL, Node
from topospread.service.decisions.node_fit import Fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from topospread.kube.objects import Pod, SpreadConstraint
    from topospread.service.decisions.request import DecisionRequest, PodRef


UNNAMED: Final = "node"


@dataclass(frozen=True, slots=True)
class PodsToPlace:
    """Pods of one template, or one pod of the state.

    Attributes:
        pod: the bytes of a v1.Pod, or its name in the state.
        path: where that stands in the request.
        replicas: how many, under names of their own; None: one, under the pod's own name.
        generate_name: begins the names of a pod that has none.
    """

    pod: bytes | PodRef
    path: str
    replicas: int | None = None
    generate_name: str = ""


@dataclass(frozen=True, slots=True)
class AddedPod:
    """A pod that is added to the state.

    Attributes:
        pod: the bytes of a v1.Pod, or its name in the state.
        path: where that stands in the request.
        node: that it runs on; empty for its own.
    """

    pod: bytes | PodRef
    path: str
    node: str


@dataclass(frozen=True, slots=True)
class DrainedNode:
    """A node that is drained.

    Attributes:
        stays: it is still there, tainted.
    """

    node: str
    stays: bool = False


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """The request of a simulation; `decision` has the fields that all decision calls share.

    Attributes:
        pods: to place, in order.
        groups: nodes that join, or with `fewest` may join.
        added: pods to add to the state.
        removed: pods of the state.
        fewest: look for the fewest nodes with which all pods fit.
        reschedule: place the pods of drained nodes anew, before all others.
        pause: called between pods; lets other threads have their turn, and may raise to stop.
    """

    decision: DecisionRequest
    pods: Sequence[PodsToPlace]
    groups: Sequence[NodeGroup] = ()
    drained: Sequence[DrainedNode] = ()
    added: Sequence[AddedPod] = ()
    removed: Sequence[PodRef] = ()
    constraints: Sequence[ConstraintChange] = ()
    fit: Fit = Fit.NODE_AND_RESOURCES
    seed: str = ""
    fewest: bool = False
    reschedule: bool = False
    pause: Callable[[], None] = lambda: time.sleep(0)


@dataclass(frozen=True, slots=True)
class ConstraintChange:
    """New values for the constraints with one key; None leaves a value as it is.

    Attributes:
        when_unsatisfiable: only those with this value; empty: all with the key.
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
        """Whether the change applies to a constraint."""
        action = self.when_unsatisfiable
        return constraint.topology_key == self.topology_key and (
            not action or constraint.when_unsatisfiable == action
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


def unused_changes(changes: Iterable[ConstraintChange], used: set[int]) -> Iterator[FieldViolation]:
    """The changes that concern no constraint of any pod."""
    for number, change in enumerate(changes):
        if number not in used:
            yield FieldViolation(
                f"scenario.changes.constraintChanges[{number}].match.topologyKey",
                "none of the pods has such a constraint of its own",
                "Not found",
                change.topology_key,
            )


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Equal nodes that may join.

    Attributes:
        name: of the group, in answers.
        template: what each is like; its name begins the nodes' names.
        count: how many; None: as many as may be, where the fewest are looked for.
        variants: labels that the nodes take in turn, one mapping a zone; none when they are alike.
    """

    name: str
    template: Node
    count: int | None
    variants: Sequence[Mapping[str, str]] = ()


def expand_group(group: NodeGroup, count: int, is_taken: Callable[[str], bool]) -> list[Node]:
    """The first nodes of a group.

    Each has a name of its own and that as its hostname label, whatever the template's: two nodes
    never share a host.

    Args:
        group: like what.
        count: how many.
        is_taken: whether a node of this name exists already.
    """
    begin = group.template.name or group.name or UNNAMED
    found: list[Node] = []
    number = 0
    while len(found) < count:
        checkpoint()
        name = f"{begin}-{number}"
        number += 1
        if is_taken(name):
            continue
        varied = group.variants[len(found) % len(group.variants)] if group.variants else {}
        labels = {**group.template.labels, **varied, HOSTNAME_LABEL: name}
        found.append(replace(group.template, name=name, labels=labels))
    return found


def expand_groups(
    groups: Sequence[NodeGroup], counts: Sequence[int], is_known: Callable[[str], bool]
) -> list[list[Node]]:
    """The nodes of each group, all under names that differ.

    Args:
        groups: the node groups.
        counts: how many of each.
        is_known: whether the state has a node of this name.
    """
    names: set[str] = set()
    nodes: list[list[Node]] = []
    for group, count in zip(groups, counts, strict=True):
        here = expand_group(group, count, lambda name: name in names or is_known(name))
        names.update(node.name for node in here)
        nodes.append(here)
    return nodes

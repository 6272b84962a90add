"""Rules on workloads whose pods keep one another apart: by required anti-affinity or host ports.

At most one of the pods is in a domain then, or on a node: replicas need as many domains, and a
rollout with maxUnavailable 0 one more, however they are spread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.spread.linting.catalog import LintFinding, Severity
from topospread.spread.linting.rollouts import FEW, ROLLOUT_DEADLOCK, slower
from topospread.spread.linting.rules import TOO_FEW_DOMAINS
from topospread.spread.rollouts import given_text
from topospread.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from topospread.kube.rollouts import Rollout
    from topospread.spread.linting.capacities import ReplicaCapacity
    from topospread.spread.linting.workloads import LintedWorkload, Repulsion

_ONE_BY_ONE: Final = frozenset({"Pod", "Job", "CronJob"})
"""Kinds whose pods need not run at the same time."""


def repelling_findings(
    workload: LintedWorkload, capacities: Mapping[str, ReplicaCapacity]
) -> Iterator[LintFinding]:
    """What is wrong with a workload whose pods keep one another apart.

    Args:
        workload: that is linted.
        capacities: by topology key, that of the nodes under the empty one.
    """
    if workload.kind in _ONE_BY_ONE:
        return
    for repulsion in workload.repulsions:
        if workload.kind == "DaemonSet":
            yield from _on_each_node(workload.rollout, repulsion)
            continue
        capacity, replicas = capacities.get(repulsion.topology_key), workload.replicas
        if replicas is None and capacity is not None:
            replicas = capacity.running  # an autoscaler sets it
        if replicas:
            yield from _of(workload, replicas, repulsion, capacity)


def _of(
    workload: LintedWorkload, replicas: int, repulsion: Repulsion, capacity: ReplicaCapacity | None
) -> Iterator[LintFinding]:
    if capacity is not None and capacity.keyless:
        return
    is_apart, noun = _is_apart(repulsion), repulsion.noun
    if capacity is not None and replicas > capacity.usable:
        yield TOO_FEW_DOMAINS.found(
            -1,
            f"{is_apart}: {capacity.usable} of {replicas} replicas find a place, one to a {noun}",
            mend=_fewer(repulsion),
        )
        return
    rollout = workload.rollout
    is_slow = rollout is None or repulsion.is_scoped or rollout.unavailable(replicas)
    if rollout is None or is_slow or capacity is not None:
        return  # of a cluster's nodes the rollout was carried out
    needed = replicas + (replicas if rollout.doubles else 1)
    text = (
        f"{is_apart}, and {given_text(rollout, replicas)}: a rollout of "
        f"{counted(replicas, 'replica')} needs {needed} {noun}s; with fewer that the pod can use "
        f"it waits forever, with {needed} or more it ends"
    )
    is_few = replicas == 1 or (replicas <= FEW and noun == "node")
    severity = Severity.INFO if is_few else None
    mend = slower(rollout, repulsion, replicas)
    yield ROLLOUT_DEADLOCK.found(-1, text, severity, mend=mend)


def _on_each_node(rollout: Rollout | None, repulsion: Repulsion) -> Iterator[LintFinding]:
    """A DaemonSet that adds the new pod of a node before the old one goes."""
    if rollout is None or repulsion.is_scoped:
        return
    yield ROLLOUT_DEADLOCK.found(
        -1,
        f"maxSurge is {rollout.max_surge}, and {_is_apart(repulsion)}: the new pod of a node "
        "cannot start beside the old one, and the rollout waits forever",
        Severity.ERROR,
        mend="Leave maxSurge out, and set maxUnavailable to at least 1.",
    )


def _is_apart(repulsion: Repulsion) -> str:
    if not repulsion.ports:
        return f"required anti-affinity keeps its pods apart by {repulsion.topology_key}"
    ports = ", ".join(repulsion.ports)
    return f"host port{'s' * (len(repulsion.ports) != 1)} {ports} can be had once on a node"


def _fewer(repulsion: Repulsion) -> str:
    instead = "reach the pods by a Service" if repulsion.ports else "prefer anti-affinity only"
    return f"Lower replicas, add {repulsion.noun}s that the pod can use, or {instead}."

"""Rules on workloads whose pods keep one another apart: by required anti-affinity or host ports.

At most one of the pods is in a domain then, or on a node: replicas need as many domains, and a
rollout with maxUnavailable 0 one more, however they are spread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.kube.objects import HOSTNAME_LABEL
from topospread.spread.linting.catalog import LintFinding, Severity
from topospread.spread.linting.rollouts import FEW, ROLLOUT_DEADLOCK
from topospread.spread.linting.rules import TOO_FEW_DOMAINS
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
    is_apart, noun = _is_apart(repulsion), _noun(repulsion)
    if capacity is not None and replicas > capacity.usable:
        yield TOO_FEW_DOMAINS.found(
            -1,
            f"{is_apart}: {capacity.usable} of {replicas} replicas find a place, one to a {noun}",
            mend=_fewer(repulsion),
        )
        return
    rollout = workload.rollout
    if rollout is None or repulsion.is_scoped or rollout.unavailable(replicas):
        return
    needed = replicas + (replicas if rollout.doubles else 1)
    text = f"{is_apart}, and "
    text += "all new pods come before an old one goes" if rollout.doubles else "maxUnavailable is 0"
    text += f": a rollout of {counted(replicas, 'replica')} needs {needed} {noun}s"
    mend = _slower(workload, repulsion, replicas)
    if capacity is None:
        text += f"; with fewer that the pod can use it waits forever, with {needed} or more it ends"
        is_few = replicas == 1 or (replicas <= FEW and noun == "node")
        severity = Severity.INFO if is_few else None
        yield ROLLOUT_DEADLOCK.found(-1, text, severity, mend=mend)
    elif needed > capacity.usable:
        text += f", and the pod can use {capacity.usable}: it waits forever"
        yield ROLLOUT_DEADLOCK.found(-1, text, Severity.ERROR, mend=mend)
    elif 0 < capacity.total < needed:
        text += (
            f", and of {capacity.usable} that the pod can use {capacity.total} have room for it now"
        )
        yield ROLLOUT_DEADLOCK.found(-1, text, mend=mend)


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


def _noun(repulsion: Repulsion) -> str:
    return "node" if repulsion.ports or repulsion.topology_key == HOSTNAME_LABEL else "domain"


def _fewer(repulsion: Repulsion) -> str:
    instead = "reach the pods by a Service" if repulsion.ports else "prefer anti-affinity only"
    return f"Lower replicas, add {_noun(repulsion)}s that the pod can use, or {instead}."


def _slower(workload: LintedWorkload, repulsion: Repulsion, replicas: int) -> str:
    noun = _noun(repulsion)
    if replicas == 1 or (workload.rollout is not None and workload.rollout.doubles):
        mend = f"Keep enough {noun}s that the pod can use"
    else:
        mend = f"Set maxUnavailable to at least 1, or keep more {noun}s than replicas"
    if not repulsion.ports and workload.rollout is not None:
        mend += f", or name {workload.rollout.hash_label} in matchLabelKeys of the anti-affinity"
    return f"{mend}."

"""The rollout of a workload that a selector knows: its pods of the newest state, or none yet."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.checkpoints import checkpoint
from topospread.codec.rollouts import REVISION_LABELS
from topospread.index.changes import PodRow
from topospread.kube.demands import holds_of
from topospread.service.decisions.cycle import Cycle
from topospread.service.decisions.pods import needed_groups
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit
from topospread.service.placement.place import choose
from topospread.service.placement.tasks import Rejection
from topospread.service.rollouts.walk import MOST_PODS, RolloutWalk
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb

if TYPE_CHECKING:
    from topospread.index.pods import PodMembers
    from topospread.kube.demands import Demand
    from topospread.kube.rollouts import Rollout
    from topospread.kube.selectors import Selector
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.pods import JudgedPod
    from topospread.spread.rollouts import RolloutOutcome

_NUMBER: Final = re.compile(r"(\d{1,9})$")
_REVISIONS: Final = frozenset(REVISION_LABELS.values())


def rollout_at(
    engine: Engine,
    replica: Replica,
    pod: JudgedPod,
    encoded: bytes,
    selector: Selector,
    rollout: Rollout,
    replicas: int | None,
) -> RolloutOutcome | None:
    """What becomes of a rollout; of a workload without pods, once it has its replicas.

    None where it has no replicas, or they find no place, or wait already in their order.

    Args:
        engine: knows the pods of the state.
        replica: follows the cluster.
        pod: a new one.
        encoded: its v1.Pod.
        selector: of the workload's pods.
        rollout: how they are replaced.
        replicas: how many there are to be; None for as many as there are.
    """
    view, members = _counted(engine, replica, pod)
    old, waiting = _pods_of(engine, view, members, pod.pod.shape.pod.namespace, selector)
    wanted = len(old) + waiting if replicas is None else replicas
    if not wanted or (rollout.ordered and waiting):
        return None
    if not old and not waiting:
        settled = _settled(view, pod, _older(engine, encoded), wanted)
        if settled is None:
            return None
        view, old = settled
    # What lacks is made before: of the old template, as those that wait.
    waiting = max(waiting, wanted - len(old))
    return RolloutWalk(view, pod, rollout, wanted, old, waiting).outcome()


def _counted(engine: Engine, replica: Replica, pod: JudgedPod) -> tuple[View, PodMembers]:
    """The newest view, which counts what a pod needs, and its pods."""
    while True:
        engine.with_groups_counted([pod], replica, replica.current_view())
        view, members = replica.view_and_members()
        groups = needed_groups([pod], view.snapshot)
        if not view.snapshot.missing(groups):
            return replace(view, snapshot=view.snapshot.only(groups)), members
        checkpoint()


def _pods_of(
    engine: Engine, view: View, members: PodMembers, namespace: str, selector: Selector
) -> tuple[list[PodRow], int]:
    """The pods of a workload that run, by their numbers, and how many wait."""
    classes = [
        each
        for each in view.snapshot.pod_classes.get(namespace, ())
        if selector.matches(dict(each.labels))
    ]
    running: dict[tuple[int, str], PodRow] = {}
    waiting = 0
    for pod_class, name, node in members.of(classes):
        checkpoint()
        if not node:
            waiting += 1
            continue
        demand = engine.template_of(pod_class)[1]
        holds = holds_of(demand, namespace, name)
        found = _NUMBER.search(name)
        running[int(found[1]) if found else -1, name] = PodRow(
            pod_class.labels, node, counted=True, requests=demand.requests, holds=holds
        )
    return [row for _, row in sorted(running.items())], waiting


class _Older(NamedTuple):
    """What pods of an older revision are: their labels, and what they demand."""

    labels: tuple[tuple[str, str], ...]
    demand: Demand


def _older(engine: Engine, encoded: bytes) -> _Older:
    pod = pb.Pod.FromString(encoded)
    for label in _REVISIONS & pod.metadata.labels.keys():
        pod.metadata.labels[label] = "-"
    demand = engine.demand_of(pod.SerializeToString())
    return _Older(tuple(sorted(pod.metadata.labels.items())), demand)


def _settled(
    view: View, pod: JudgedPod, older: _Older, replicas: int
) -> tuple[View, list[PodRow]] | None:
    """A view in which the replicas run, as pods of an older revision; None where they do not."""
    if replicas > MOST_PODS:
        return None
    snapshot, shape = view.snapshot, pod.pod.shape
    effective = shape.effective_constraints(pod.rules, snapshot)
    groups, namespace = snapshot.groups, shape.pod.namespace
    own = tuple(sorted(shape.pod.labels.items()))
    state, rows = snapshot, []
    for number in range(replicas):
        checkpoint()
        name = f"{pod.pod.name}-{number}" if pod.pod.name else str(number)
        here = replace(view, snapshot=state)
        cycle = Cycle("", shape.pod, pod.rules, effective, here, name, demand=pod.demand)
        node = choose(cycle, suited(cycle.asked, Fit.ALL))
        if isinstance(node, Rejection):
            return None
        holds = holds_of(pod.demand, namespace, name)
        row = PodRow(own, node, counted=True, requests=pod.demand.requests, holds=holds)
        state = state.adjusted(namespace, [(row, 1)], groups)
        held = holds_of(older.demand, namespace, name)
        rows.append(replace(row, labels=older.labels, holds=held))
    settled = snapshot.adjusted(namespace, [(row, 1) for row in rows], groups)
    return replace(view, snapshot=settled), rows

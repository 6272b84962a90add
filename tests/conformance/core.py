"""The core by itself: spreading over an index, without a store, a replica, a service or a call."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tests.conformance.cases import MEMBERS, Decision, Json
from tests.conformance.objects import object_of, objects_of, rules_of, status_of
from topospread.codec.pods import pod_from_proto
from topospread.codec.rows import ChangeDecoder
from topospread.codec.stored import stored
from topospread.errors import InvalidRequest
from topospread.index.builder import Builder
from topospread.index.changes import IndexChange
from topospread.index.snapshot import Snapshot
from topospread.kube.objects import Pod
from topospread.kube.workloads import default_selector
from topospread.spread.constraints import PodConstraints, needs_default_selector, pod_constraints
from topospread.spread.filtering import PodMove, Verdicts, filter_nodes, pre_filter
from topospread.spread.scoring import score
from topospread.spread.settings import Rules
from topospread.spread.verdicts import (
    FITS,
    SKIP,
    SUCCESS,
    VERDICTS,
    error,
    error_message,
    fit_message,
)
from topospread_client import pod_from_manifest
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

KEPT = 50
"""Clusters that stay folded; the fit messages come back to big ones after some small ones."""


class Core:
    """kube, spread and index, called directly."""

    members = MEMBERS

    def __init__(self) -> None:
        self._folded: deque[tuple[Json, Builder]] = deque(maxlen=KEPT)

    def evaluate(self, case: Decision) -> Json:
        """See Evaluator."""
        return answer_at(self._builder(case.cluster), case)

    def condition(self, case: Decision) -> Json | None:
        """See Evaluator."""
        return condition_of(self.evaluate(case), self._builder(case.cluster).snapshot.node_count)

    def _builder(self, cluster: Json) -> Builder:
        for known, builder in self._folded:
            if known is cluster:
                return builder
        self._folded.append((cluster, folded(cluster)))
        return self._folded[-1][1]


def folded(cluster: Json, builder: Builder | None = None) -> Builder:
    """A builder that knows the cluster."""
    builder = builder or Builder()
    builder.fold(changes_of(objects_of(cluster)))
    return builder


def changes_of(objects: Iterable[ClusterObject], *, gone: bool = False) -> Iterable[IndexChange]:
    """What becomes of the index when objects are written, or deleted."""
    decoder = ChangeDecoder()
    for message in objects:
        written = stored(message)
        yield decoder.change(written.key, None if gone else written)


def change_of(manifest: Json, *, gone: bool = False) -> IndexChange:
    """One object's change."""
    (change,) = changes_of([object_of(manifest)], gone=gone)
    return change


def pod_of(manifest: Json) -> Pod:
    """A pod, incoming or of a what-if."""
    return pod_from_proto(pod_from_manifest(manifest))


def answer_at(builder: Builder, case: Decision) -> Json:
    """The answer at the builder's newest snapshot; the case's cluster is not looked at."""
    try:
        rules = rules_of(case)
    except InvalidRequest as refused:
        return {"newError": str(refused)}
    constraints, snapshot = prepared(builder, pod_of(case.pod), rules)
    hard = constraints.hard
    if hard.error:
        return {"preFilter": status_of(error(hard.error))}
    answer: Json = {"preFilter": status_of(SUCCESS if hard.constraints else SKIP)}
    candidates = snapshot.nodes.order
    if hard.constraints:
        if case.ops:
            answer["ops"] = [status_of(SUCCESS)] * len(case.ops)
        verdicts = verdicts_on(constraints, snapshot, case.ops)
        answer["filter"] = {
            snapshot.nodes.names[slot]: status_of(VERDICTS[verdicts[slot]]) for slot in candidates
        }
        candidates = candidates[verdicts[candidates] == FITS]
    if case.filter_nodes is not None:
        candidates = np.array([snapshot.slot(name) for name in case.filter_nodes], dtype=np.intp)
    return answer | scored(constraints, snapshot, candidates)


def prepared(builder: Builder, pod: Pod, rules: Rules) -> tuple[PodConstraints, Snapshot]:
    """The pod's constraints, and a snapshot that counts what they need."""
    workloads = builder.snapshot.namespace(pod.namespace)
    deduced = None
    if needs_default_selector(pod, rules):
        deduced = default_selector(pod, workloads.services, workloads.lookup)
    constraints = pod_constraints(pod, rules, deduced)
    both = (*constraints.hard.constraints, *constraints.soft.constraints)
    groups = [c.group for c in both if not c.counts_nothing]
    if not builder.snapshot.missing(groups):
        return constraints, builder.snapshot
    return constraints, builder.ensure_counted(groups)


def verdicts_on(
    constraints: PodConstraints, snapshot: Snapshot, ops: Sequence[Json] = ()
) -> Verdicts:
    """[slots] the verdicts after the what-ifs."""
    moves = [
        PodMove(pod_of(op["pod"]), snapshot.slot(op["node"]), {"add": 1, "remove": -1}[op["op"]])
        for op in ops
    ]
    states = pre_filter(constraints.hard.constraints, snapshot, moves)
    return filter_nodes(states, snapshot)


def scored(constraints: PodConstraints, snapshot: Snapshot, candidates: NDArray[np.intp]) -> Json:
    """The members preScore, score and normalized; none without candidates."""
    if not candidates.size:
        return {}
    soft = constraints.soft
    if soft.error:
        return {"preScore": status_of(error(soft.error))}
    if not soft.constraints:
        return {"preScore": status_of(SKIP)}
    scores = score(
        soft.constraints, snapshot, candidates, require_all_keys=constraints.require_all_keys
    )
    names = [snapshot.nodes.names[slot] for slot in candidates]
    return {
        "preScore": status_of(SUCCESS),
        "score": dict(zip(names, scores.raw.tolist(), strict=True)),
        "normalized": dict(zip(names, scores.normalized.tolist(), strict=True)),
    }


def condition_of(answer: Json, nodes: int) -> Json | None:
    """The condition of a pod with this answer in a cluster of so many nodes."""
    if not nodes:
        return {"reason": "Unschedulable", "message": fit_message(0, {})}
    status = answer.get("preFilter") or {}
    if status.get("code") == "Error":
        return {"reason": "SchedulerError", "message": error_message(status["reasons"][0])}
    verdicts = answer.get("filter")
    if verdicts is None or any(verdict["code"] == "Success" for verdict in verdicts.values()):
        return None
    reasons = Counter(reason for verdict in verdicts.values() for reason in verdict["reasons"])
    return {"reason": "Unschedulable", "message": fit_message(nodes, reasons)}

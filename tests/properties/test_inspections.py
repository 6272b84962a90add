"""ListConstraints counts as Filter does: as the reference model counts, and as ExplainPod says."""

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given

from tests.conformance.calls import OverGrpc
from tests.conformance.cases import Decision
from tests.properties.expected import answer_to
from tests.properties.questions import odd_cases
from tests.reference import filtering
from tests.reference.constraints import Gates, Question
from tests.reference.snapshot import Snapshot
from tests.reference.strategies import cases, kind_of
from topospread.codec.pods import pod_from_proto
from topospread.kube.affinity import pinned_node
from topospread.kube.objects import DO_NOT_SCHEDULE
from topospread_client import pod_from_manifest
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import decision_service_pb2 as engine
from topospread_proto.v1 import inspector_service_pb2 as pb
from topospread_proto.v1.explanation_pb2 import ConstraintExplanation, Explanation

EVERY = 1000


@given(decision=kind_of(cases(), cases(), odd_cases()))
def test_rows_of_a_pending_pod_are_what_filter_counts(server: OverGrpc, decision: Decision) -> None:
    decision = waiting(decision)
    pod = pod_from_proto(pod_from_manifest(decision.pod))
    if "newError" in answer_to(decision) or pinned_node(pod.requirements) is not None:
        return
    explained = explanation(server, decision)
    rows = rows_of(server, decision)
    for each in explained.constraints:
        found = [row for row in rows if row.constraint.id == each.constraint.id]
        assert any(agrees(row, each) for row in found), (each, found)
    counts_are_the_models(decision, rows)
    blocks_what_it_alone_refuses(server, decision, explained, rows)


def waiting(decision: Decision) -> Decision:
    """The question, about a pod of the cluster that waits for a node; what is stored has a uid."""
    pod = decision.pod | {"spec": {**decision.pod.get("spec", {})}}
    pod["spec"].pop("nodeName", None)
    pod["metadata"] = {**pod["metadata"], "name": "the-one-that-waits", "uid": "its-own"}
    pod["metadata"].pop("deletionTimestamp", None)
    pod["status"] = {"phase": "Pending"}
    cluster = {**decision.cluster, "pods": [*decision.cluster.get("pods", []), pod]}
    return replace(decision, pod=pod, cluster=cluster, ops=[], filter_nodes=None)


def explanation(server: OverGrpc, decision: Decision, *, bare: bool = False) -> Explanation:
    """What ExplainPod says of it, with all of the scheduler's filters."""
    place = server.load(decision.cluster)
    pod = pod_from_manifest(decision.pod)
    settings = server.settings(decision)
    if bare:
        del pod.spec.topology_spread_constraints[:]
        settings = common.Settings(args=common.PodTopologySpreadArgs(defaulting_type="List"))
    found: engine.ExplainPodResponse = server.engine.ExplainPod(
        engine.ExplainPodRequest(
            cluster=place.name,
            pod=common.PodSource(object=pod),
            settings=settings,
            consistency=common.Consistency(at_least_as_fresh=place.revision),
            domain_limit=EVERY,
        )
    )
    return found.explanation


def rows_of(server: OverGrpc, decision: Decision) -> list[pb.ConstraintStatus]:
    """The constraints of pods that wait."""
    place = server.load(decision.cluster)
    found: pb.ListConstraintsResponse = server.inspector.ListConstraints(
        pb.ListConstraintsRequest(
            cluster=place.name,
            settings=server.settings(decision),
            consistency=common.Consistency(at_least_as_fresh=place.revision),
            domain_limit=EVERY,
        )
    )
    return [row for row in found.constraints if row.pending_pod_count]


def agrees(row: pb.ConstraintStatus, explained: ConstraintExplanation) -> bool:
    """Whether a row has the numbers of an explanation; of a soft one those that are the same."""
    numbers = (
        row.domain_count == explained.domain_count
        and row.eligible_domain_count == explained.eligible_domain_count
    )
    if row.constraint.when_unsatisfiable != DO_NOT_SCHEDULE:
        return numbers
    eligible = [each for each in explained.domains if each.eligible_node_count]
    return (
        numbers
        and row.global_minimum == explained.minimum.value
        and row.minimum_reason == explained.minimum.reason
        and row.lowest_pod_count == explained.minimum.lowest_pod_count
        and counts_of(row) == {each.value: each.pod_count for each in eligible}
        and row.allowed_domain_count == sum(each.allowed for each in eligible)
    )


def counts_of(row: pb.ConstraintStatus) -> dict[str, int]:
    """Pods by eligible domain."""
    assert not row.unlisted_domain_count
    return {each.value: each.pod_count for each in row.domains}


def counts_are_the_models(decision: Decision, rows: list[pb.ConstraintStatus]) -> None:
    question = Question(
        decision.pod, decision.args or {}, Gates.parse(decision.gates), decision.cluster
    )
    status, spread = filtering.pre_filter(question, Snapshot(decision.cluster))
    if spread is None:
        return
    hard = [row for row in rows if row.constraint.when_unsatisfiable == DO_NOT_SCHEDULE]
    for constraint, counts, minimum in zip(
        spread.constraints, spread.counts, spread.minima(), strict=True
    ):
        skew = max(counts.values(), default=0) - minimum if counts else 0
        assert any(
            (row.constraint.topology_key, row.constraint.max_skew)
            == (constraint.topology_key, constraint.max_skew)
            and counts_of(row) == counts
            and (row.skew, row.global_minimum) == (skew, minimum)
            for row in hard
        ), (constraint, counts, status)


def blocks_what_it_alone_refuses(
    server: OverGrpc,
    decision: Decision,
    explained: Explanation,
    rows: list[pb.ConstraintStatus],
) -> None:
    usable = explanation(server, decision, bare=True).fitting_node_count
    blocking = set(blocking_ids(explained, usable))
    for each in explained.constraints:
        found = [row for row in rows if row.constraint.id == each.constraint.id]
        blocked = {row.state == pb.SPREAD_STATE_BLOCKED for row in found}
        assert (each.constraint.id in blocking) in blocked, (each, found)


def blocking_ids(explained: Explanation, usable: int) -> Iterator[str]:
    """The hard constraints that keep the pod pending though a node could take it."""
    if explained.fitting_node_count or not usable:
        return
    for each in explained.constraints:
        if each.constraint.when_unsatisfiable != DO_NOT_SCHEDULE:
            continue
        open_nodes = sum(d.usable_node_count for d in each.domains if d.allowed)
        if each.rejected_alone_node_count or not open_nodes:
            yield each.constraint.id

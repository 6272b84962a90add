"""Decisions through either client, on a real server."""

from __future__ import annotations

import pytest

from tests.client.manifests import TWO_ZONES, incoming, pod, spread
from tests.client.scripted import evaluation
from topospread_client import (
    InvalidRequest,
    ServerFault,
    best,
    error_from_status,
    feasible,
    normalized_by_node,
    pod_from_manifest,
    raw_by_node,
    trace_id,
    verdicts_by_node,
)
from topospread_client._methods import METHODS
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import decision_service_pb2 as pb
from topospread_proto.v1.placement_service_pb2 import PlacePodRequest, PlacePodResponse

SKEWED = common.Verdict(
    code=common.VERDICT_CODE_UNSCHEDULABLE,
    reasons=["node(s) didn't match pod topology spread constraints"],
)
CONSTRAINT = "pod.object.spec.topologySpreadConstraints[0]"
PASSES = common.Verdict(code=common.VERDICT_CODE_SUCCESS)
SOFT = spread("kubernetes.io/hostname", "ScheduleAnyway")


@pytest.fixture
def fresh(client):
    """The two zones, and the demand to see all of them."""
    return client.apply_objects(TWO_ZONES).meta.revision


def test_filter_judges_every_node(client, fresh):
    verdicts = client.filter(incoming(), consistency=fresh)
    assert verdicts_by_node(verdicts) == {"a1": SKEWED, "a2": SKEWED, "b1": PASSES}
    assert feasible(verdicts) == ["b1"]


def test_filter_keeps_the_order_of_candidates(client, fresh):
    verdicts = client.filter(incoming(), candidates=["b1", "a2"], consistency=fresh)
    assert list(verdicts_by_node(verdicts).items()) == [("b1", PASSES), ("a2", SKEWED)]
    again = client.filter(incoming(), candidates=iter(["b1", "a2"]), consistency=fresh)
    assert again.verdicts == verdicts.verdicts


def test_scores_are_aligned_with_the_nodes_that_pass(client, fresh):
    scores = client.score(incoming(spread(maxSkew=2), SOFT), consistency=fresh)
    assert scores.verdict == PASSES
    assert set(raw_by_node(scores)) == set(normalized_by_node(scores)) == {"a1", "a2", "b1"}


def test_positions_in_the_node_table_are_answered_to_who_names_it(client, fresh):
    """It is the caller then who knows the names."""
    table = client.get_node_table(consistency=fresh)
    scores = client.score(incoming(SOFT), node_table_id=table.node_table_id, consistency=fresh)
    assert [table.node_names[at] for at in scores.node_indices] == ["a1", "a2", "b1"]
    with pytest.raises(ServerFault):
        raw_by_node(scores)


def test_scores_of_chosen_nodes_and_of_none(client, fresh):
    some = client.score(incoming(SOFT), candidates=["b1", "a1"], consistency=fresh)
    assert list(raw_by_node(some)) == ["b1", "a1"]
    again = client.score(incoming(SOFT), candidates=iter(["b1", "a1"]), consistency=fresh)
    assert list(normalized_by_node(again)) == ["b1", "a1"]
    assert raw_by_node(client.score(incoming(SOFT), candidates=[], consistency=fresh)) == {}


def test_evaluate_counts_verdicts_and_names_the_best(client, fresh):
    evaluation = client.evaluate_pod(incoming(spread(), SOFT), consistency=fresh)
    assert (evaluation.node_count, evaluation.feasible_node_count, best(evaluation)) == (3, 1, "b1")
    assert [(v.verdict, v.node_count) for v in evaluation.verdict_counts] == [
        (SKEWED, 2),
        (PASSES, 1),
    ]
    assert evaluation.message == ""
    assert len(trace_id(evaluation) or "") == 32
    assert evaluation.meta.revision


@pytest.mark.parametrize("form", ["message", "manifest", "bytes", "name", "reference"])
def test_a_pod_may_be_given_in_many_forms(client, fresh, form):
    waiting = incoming()
    written = client.apply_objects([waiting])
    message = pod_from_manifest(waiting)
    given = {
        "message": message,
        "manifest": waiting,
        "bytes": message.SerializeToString(),
        "name": "default/incoming",
        "reference": common.PodReference(name="incoming"),
    }[form]
    after = written.meta.revision
    assert best(client.evaluate_pod(given, consistency=after)) == "b1"


def test_what_if_pods_are_added_and_removed(client, fresh):
    removed = client.evaluate_pod(
        incoming(), remove_pods=[(pod("web-0"), "a1"), (pod("web-1"), "a2")], consistency=fresh
    )
    assert best(removed) in {"a1", "a2"}
    added = client.pre_filter(incoming(), add_pods=[(pod("more"), "b1")], consistency=fresh)
    assert list(added.extension_verdicts) == [PASSES]
    assert set(feasible(client.filter(cycle=added.cycle))) == {"a1", "a2", "b1"}


def test_validation_lists_everything_wrong_at_once(client, fresh):
    asked = incoming(spread(maxSkew=0, minDomains=0))
    with pytest.raises(InvalidRequest) as refused:
        client.evaluate_pod(asked, consistency=fresh, validation="STRICT")
    assert [violation.text for violation in refused.value.violations] == [
        f"{CONSTRAINT}.maxSkew: Invalid value: must be greater than zero",
        f"{CONSTRAINT}.minDomains: Invalid value: must be greater than zero",
    ]
    assert refused.value.traceparent is not None


def test_a_batch_has_one_result_a_pod(client, fresh):
    batch = client.batch_evaluate_pods(
        [incoming(), incoming(spread(maxSkew=0)), incoming(spread(minDomains=3))],
        consistency=fresh,
        validation="STRICT",
    )
    fits, refused, waits = batch.results
    assert (best(fits.response), best(waits.response)) == ("b1", None)
    error = error_from_status(refused.error)
    assert isinstance(error, InvalidRequest)
    assert error.violations[0].field == "pods[1].object.spec.topologySpreadConstraints[0].maxSkew"
    assert batch.meta.revision


NOT_READ = {
    "metadata": {"annotations": {"a": "b"}, "creationTimestamp": "2026-01-02T03:04:05Z"},
    "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [{"name": "i"}],
        "overhead": {"cpu": "1"},
        "resources": {"requests": {"cpu": "1"}},
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    },
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "c", "restartCount": 1}],
        "initContainerStatuses": [{"name": "i"}],
        "startTime": "2026-01-02T03:04:05Z",
    },
}
"""What no decision reads of a pod."""


def with_unread(manifest, unread=NOT_READ):
    return manifest | {part: manifest.get(part, {}) | unread[part] for part in unread}


@pytest.mark.parametrize("constraint", [spread(), SOFT], ids=["hard", "soft"])
def test_decisions_are_the_same_for_a_manifest_and_for_its_message(client, fresh, constraint):
    manifest = with_unread(incoming(constraint, tolerations=[{"operator": "Exists"}]))
    message = pod_from_manifest(manifest)
    for method in (client.pre_filter, client.filter, client.score, client.evaluate_pod):
        first, second = (method(pod, consistency=fresh) for pod in (manifest, message))
        for answer in (first, second):
            answer.meta.traceparent = ""
            if not isinstance(answer, pb.EvaluatePodResponse):
                answer.cycle = ""
        assert first == second
    several = client.batch_evaluate_pods([manifest, message], consistency=fresh)
    assert several.results[0] == several.results[1]


def test_decisions_send_of_a_manifest_what_they_read(connect, script):
    script.answer(METHODS["EvaluatePod"], evaluation("r"))
    script.answer(METHODS["BatchEvaluatePods"], pb.BatchEvaluatePodsResponse())
    client = connect(script.address)
    client.evaluate_pod(with_unread(incoming()))
    client.batch_evaluate_pods([with_unread(incoming())])
    (_, one, _), (_, batch, _) = script.seen
    expected = pod_from_manifest(with_unread(incoming(), {part: {} for part in NOT_READ}))
    assert pb.EvaluatePodRequest.FromString(one).pod.object == expected
    assert pb.BatchEvaluatePodsRequest.FromString(batch).pods[0].object == expected


def test_placements_send_all_of_a_manifest(connect, script):
    script.answer(METHODS["PlacePod"], PlacePodResponse(verdict=PASSES))
    connect(script.address).place_pod(with_unread(incoming()))
    ((_, sent, _),) = script.seen
    assert PlacePodRequest.FromString(sent).pod.object == pod_from_manifest(with_unread(incoming()))

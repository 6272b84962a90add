"""Decisions through either client, on a real server."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, replace

import pytest

from tests.client.manifests import TWO_ZONES, ZONE, incoming, node, pod, spread
from tests.client.scripted import evaluation
from topospread_client import (
    Consistency,
    ConstraintValidation,
    CycleExpired,
    DomainCount,
    InvalidRequest,
    ManifestError,
    NotFound,
    PodReference,
    Settings,
    Verdict,
    VerdictCode,
    pod_from_manifest,
)
from topospread_client import _rpcs as rpcs
from topospread_proto.v1 import decision_service_pb2 as pb
from topospread_proto.v1.common_pb2 import VERDICT_CODE_SUCCESS
from topospread_proto.v1.common_pb2 import Verdict as VerdictMessage
from topospread_proto.v1.placement_service_pb2 import PlacePodRequest, PlacePodResponse

SKEWED = Verdict(
    VerdictCode.UNSCHEDULABLE, ("node(s) didn't match pod topology spread constraints",)
)
CONSTRAINT = "pod.object.spec.topologySpreadConstraints[0]"
PASSES = Verdict(VerdictCode.SUCCESS)
SOFT = spread("kubernetes.io/hostname", "ScheduleAnyway")


@pytest.fixture
def fresh(client):
    """The two zones, and the demand to see all of them."""
    return Consistency(at_least_as_fresh=client.apply_objects(TWO_ZONES).revision)


def test_pre_filter_has_the_counts_of_each_hard_constraint(client, fresh):
    answer = client.pre_filter(incoming(), consistency=fresh, with_counts=True)
    assert answer.verdict == PASSES
    (zone,) = answer.constraints
    constraint = zone.constraint
    assert (constraint.topology_key, constraint.max_skew, constraint.min_domains) == (ZONE, 1, 1)
    assert (zone.self_match, zone.eligible_domain_count, zone.global_minimum) == (True, 2, 1)
    assert zone.domain_counts == (DomainCount("a", 2), DomainCount("b", 1))


def test_filter_judges_every_node(client, fresh):
    verdicts = client.filter(incoming(), consistency=fresh)
    assert verdicts.by_node() == {"a1": SKEWED, "a2": SKEWED, "b1": PASSES}
    assert verdicts.feasible() == ["b1"]
    assert {status: nodes for status, nodes in verdicts.counts().items() if nodes} == {
        SKEWED: 2,
        PASSES: 1,
    }


def test_filter_keeps_the_order_of_candidates(client, fresh):
    verdicts = client.filter(incoming(), candidates=["b1", "a2"], consistency=fresh)
    assert list(verdicts.by_node().items()) == [("b1", PASSES), ("a2", SKEWED)]
    again = client.filter(incoming(), candidates=iter(["b1", "a2"]), consistency=fresh)
    assert again.by_node() == verdicts.by_node()


def test_a_pod_without_hard_constraints_passes_everywhere(client, fresh):
    verdicts = client.filter(incoming(SOFT), consistency=fresh)
    assert verdicts.verdict.code is VerdictCode.SKIP
    assert set(verdicts.by_node().values()) <= {PASSES}


def test_node_names_are_sent_once_and_again_when_nodes_change(client, fresh):
    first = client.filter(incoming(), consistency=fresh)
    assert client._session.tables[client._session.cluster].node_table_id == first.node_table_id
    again = client.filter(incoming(), consistency=fresh)
    assert again.node_names is client._session.tables[client._session.cluster].node_names
    written = client.apply_objects([node("c1", "c")])
    changed = client.filter(incoming(), consistency=Consistency(at_least_as_fresh=written.revision))
    assert list(changed.node_names) == ["a1", "a2", "b1", "c1"]
    assert changed.node_table_id != first.node_table_id
    assert changed.feasible() == ["c1"]


def test_scores_are_aligned_with_the_nodes_that_pass(client, fresh):
    asked = incoming(spread(maxSkew=2), SOFT)
    by_name = client.score(asked, consistency=fresh)
    client.get_node_table()
    by_position = client.score(asked, consistency=fresh)
    assert by_name.verdict == PASSES
    assert by_position.raw_by_node() == by_name.raw_by_node()
    assert by_position.normalized_by_node() == by_name.normalized_by_node()
    assert set(by_name.node_names) == {"a1", "a2", "b1"}


def test_scores_of_chosen_nodes_and_of_none(client, fresh):
    some = client.score(incoming(SOFT), candidates=["b1", "a1"], consistency=fresh)
    assert list(some.node_names) == ["b1", "a1"]
    assert len(some) == 2
    again = client.score(incoming(SOFT), candidates=iter(["b1", "a1"]), consistency=fresh)
    assert list(again.node_names) == ["b1", "a1"]
    assert len(client.score(incoming(SOFT), candidates=[], consistency=fresh)) == 0


def test_pod_without_soft_constraints_is_not_scored(client, fresh):
    scores = client.score(incoming(), consistency=fresh)
    assert scores.verdict.code is VerdictCode.SKIP
    assert len(scores) == 0


def test_evaluate_counts_verdicts_and_names_the_best(client, fresh):
    evaluation = client.evaluate_pod(incoming(spread(), SOFT), consistency=fresh)
    assert (evaluation.node_count, evaluation.feasible_node_count, evaluation.best) == (3, 1, "b1")
    assert {v.verdict: v.node_count for v in evaluation.verdict_counts} == {SKEWED: 2, PASSES: 1}
    assert evaluation.message == ""
    assert evaluation.trace_id is not None
    assert len(evaluation.trace_id) == 32
    assert evaluation.revision


def test_pod_that_fits_nowhere_has_a_response(client, fresh):
    evaluation = client.evaluate_pod(incoming(spread(minDomains=3)), consistency=fresh)
    assert evaluation.best is None
    assert evaluation.reason == "Unschedulable"
    assert evaluation.message == f"0/3 nodes are available: 3 {SKEWED.reasons[0]}."


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
        "reference": PodReference("incoming"),
    }[form]
    after = Consistency(at_least_as_fresh=written.revision)
    assert client.evaluate_pod(given, consistency=after).best == "b1"


def test_a_reference_without_namespace_means_default(client, fresh):
    written = client.apply_objects([incoming()])
    after = Consistency(at_least_as_fresh=written.revision)
    assert client.evaluate_pod("incoming", consistency=after).best == "b1"


def test_what_if_pods_are_added_and_removed(client, fresh):
    removed = client.evaluate_pod(
        incoming(), remove_pods=[(pod("web-0"), "a1"), (pod("web-1"), "a2")], consistency=fresh
    )
    assert removed.best in {"a1", "a2"}
    added = client.pre_filter(incoming(), add_pods=[(pod("more"), "b1")], consistency=fresh)
    assert added.extension_verdicts == (PASSES,)
    assert set(client.filter(cycle=added.cycle).feasible()) == {"a1", "a2", "b1"}


def test_a_cycle_answers_from_the_frozen_counts(client, fresh):
    before = client.pre_filter(incoming(), consistency=fresh)
    client.apply_objects([pod("web-3", "b1"), pod("web-4", "b1")])
    verdicts = client.filter(cycle=before.cycle)
    assert verdicts.feasible() == ["b1"]
    assert verdicts.revision == before.revision


def test_an_unknown_cycle_needs_the_pod(client, fresh):
    with pytest.raises(CycleExpired):
        client.filter(cycle="unknown")
    remade = client.filter(incoming(), cycle="unknown", consistency=fresh)
    assert remade.cycle_remade
    assert remade.feasible() == ["b1"]


def test_settings_of_the_request_replace_those_of_the_profile(client, fresh):
    plain = pod("incoming")
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}},
    }
    after = Consistency(at_least_as_fresh=client.apply_objects([service]).revision)
    constraint = {key: value for key, value in spread().items() if key != "labelSelector"}
    args = {"defaultingType": "List", "defaultConstraints": [constraint]}
    asked = client.evaluate_pod(plain, settings=Settings(args=args), consistency=after)
    assert asked.feasible_node_count == 1
    off = Settings(args=args, feature_gates={"DefaultPodTopologySpread": False})
    assert client.evaluate_pod(plain, settings=off, consistency=after).feasible_node_count == 3


def test_refused_args_name_the_fields(client, fresh):
    args = {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 0}]}
    with pytest.raises(InvalidRequest) as refused:
        client.evaluate_pod(incoming(), settings=Settings(args=args), consistency=fresh)
    fields = {violation.field for violation in refused.value.violations}
    assert "settings.args.defaultConstraints[0].maxSkew" in fields
    assert "settings.args.defaultConstraints[0].topologyKey" in fields


def test_validation_lists_everything_wrong_at_once(client, fresh):
    asked = incoming(spread(maxSkew=0, minDomains=0))
    with pytest.raises(InvalidRequest) as refused:
        client.evaluate_pod(asked, consistency=fresh, validation=ConstraintValidation.STRICT)
    assert [violation.text for violation in refused.value.violations] == [
        f"{CONSTRAINT}.maxSkew: Invalid value: must be greater than zero",
        f"{CONSTRAINT}.minDomains: Invalid value: must be greater than zero",
    ]
    assert refused.value.traceparent is not None


def test_a_batch_has_one_result_a_pod(client, fresh):
    batch = client.batch_evaluate_pods(
        [incoming(), incoming(spread(maxSkew=0)), incoming(spread(minDomains=3))],
        consistency=fresh,
        validation=ConstraintValidation.STRICT,
    )
    fits, refused, waits = batch.results
    assert (fits.best, waits.best) == ("b1", None)
    assert isinstance(refused, InvalidRequest)
    assert refused.violations[0].field == "pods[1].object.spec.topologySpreadConstraints[0].maxSkew"
    assert fits.revision == waits.revision == batch.revision


def test_an_unknown_cluster_is_not_found(client):
    with pytest.raises(NotFound):
        client.evaluate_pod(incoming())


def test_invalid_arguments_are_refused_before_the_call(client):
    with pytest.raises(InvalidRequest, match="no serialized"):
        client.rank_deletions(pods=[b"\xff\xff"])
    with pytest.raises(InvalidRequest, match="STRICT"):
        client.evaluate_pod(incoming(), validation="VERY")
    with pytest.raises(ManifestError):
        client.evaluate_pod({"kind": "Pod", "spec": {"nodeName": 1}})
    both = Consistency(at_least_as_fresh="x", fully_consistent=True)
    with pytest.raises(InvalidRequest, match="exclude each other"):
        client.evaluate_pod(incoming(), consistency=both)


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
        assert (first.revision, type(first)) == (second.revision, type(second))
        if method == client.evaluate_pod:
            assert replace(first, traceparent=None) == replace(second, traceparent=None)
    several = client.batch_evaluate_pods([manifest, message], consistency=fresh)
    assert several.results[0] == several.results[1]


def test_decisions_send_of_a_manifest_what_they_read(connect, script):
    script.answer(rpcs.EVALUATE_POD, evaluation("r"))
    script.answer(rpcs.BATCH_EVALUATE_PODS, pb.BatchEvaluatePodsResponse())
    client = connect(script.address)
    client.evaluate_pod(with_unread(incoming()))
    client.batch_evaluate_pods([with_unread(incoming())])
    (_, one, _), (_, batch, _) = script.seen
    expected = pod_from_manifest(with_unread(incoming(), {part: {} for part in NOT_READ}))
    assert pb.EvaluatePodRequest.FromString(one).pod.object == expected
    assert pb.BatchEvaluatePodsRequest.FromString(batch).pods[0].object == expected


def test_placements_send_all_of_a_manifest(connect, script):
    script.answer(
        rpcs.PLACE_POD, PlacePodResponse(verdict=VerdictMessage(code=VERDICT_CODE_SUCCESS))
    )
    connect(script.address).place_pod(with_unread(incoming()))
    ((_, sent, _),) = script.seen
    assert PlacePodRequest.FromString(sent).pod.object == pod_from_manifest(with_unread(incoming()))


def test_evaluation_can_be_copied_and_compared_before_it_is_read(client, fresh):
    first = client.evaluate_pod(incoming(), consistency=fresh)
    assert pickle.loads(pickle.dumps(first)) == first
    second = client.evaluate_pod(incoming(), consistency=fresh)
    assert copy.deepcopy(second) == copy.copy(second) == second
    assert replace(second, traceparent=first.traceparent) == first
    assert hash(first) != hash(second)
    with pytest.raises(AttributeError, match="no attribute 'worst'"):
        _ = first.worst
    with pytest.raises(FrozenInstanceError):
        first.top_nodes = ()

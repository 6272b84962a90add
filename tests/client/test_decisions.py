"""Decisions through either client, on a real server."""

from __future__ import annotations

import pytest

from tests.client.manifests import TWO_ZONES, ZONE, incoming, node, pod, spread
from topospread_client.answers import Code, Status
from topospread_client.errors import CycleExpired, InvalidRequest, NotFound
from topospread_client.manifests import ManifestError, pod_from_manifest
from topospread_client.requests import Consistency, Settings

SKEWED = Status(Code.UNSCHEDULABLE, ("node(s) didn't match pod topology spread constraints",))
PASSES = Status(Code.SUCCESS)
SOFT = spread("kubernetes.io/hostname", "ScheduleAnyway")


@pytest.fixture
def fresh(client):
    """The two zones, and the demand to see all of them."""
    return Consistency(at_least_as_fresh=client.apply(TWO_ZONES).revision)


def test_pre_filter_tells_what_each_hard_constraint_counts(client, fresh):
    answer = client.pre_filter(incoming(), consistency=fresh, with_counts=True)
    assert answer.status == PASSES
    (zone,) = answer.constraints
    assert (zone.topology_key, zone.max_skew, zone.min_domains) == (ZONE, 1, 1)
    assert (zone.self_match, zone.eligible_domains, zone.global_minimum) == (True, 2, 1)
    assert dict(zone.pods) == {"a": 2, "b": 1}


def test_filter_judges_every_node(client, fresh):
    verdicts = client.filter(incoming(), consistency=fresh)
    assert verdicts.by_node() == {"a1": SKEWED, "a2": SKEWED, "b1": PASSES}
    assert verdicts.feasible() == ["b1"]
    assert {status: nodes for status, nodes in verdicts.counts().items() if nodes} == {
        SKEWED: 2,
        PASSES: 1,
    }


def test_filter_answers_in_the_order_of_the_nodes_asked_about(client, fresh):
    verdicts = client.filter(incoming(), nodes=["b1", "a2"], consistency=fresh)
    assert list(verdicts.by_node().items()) == [("b1", PASSES), ("a2", SKEWED)]


def test_a_pod_without_hard_constraints_passes_everywhere(client, fresh):
    verdicts = client.filter(incoming(SOFT), consistency=fresh)
    assert verdicts.status.code is Code.SKIP
    assert set(verdicts.by_node().values()) <= {PASSES}


def test_names_come_along_once_and_again_when_the_nodes_change(client, fresh):
    first = client.filter(incoming(), consistency=fresh)
    assert client.session.tables[client.session.cluster].id == first.node_table
    again = client.filter(incoming(), consistency=fresh)
    assert again.names is client.session.tables[client.session.cluster].names
    written = client.apply([node("c1", "c")])
    changed = client.filter(incoming(), consistency=Consistency(at_least_as_fresh=written.revision))
    assert list(changed.names) == ["a1", "a2", "b1", "c1"]
    assert changed.node_table != first.node_table
    assert changed.feasible() == ["c1"]


def test_scores_are_aligned_with_the_nodes_that_pass(client, fresh):
    asked = incoming(spread(maxSkew=2), SOFT)
    by_name = client.score(asked, consistency=fresh)
    client.node_table()
    by_position = client.score(asked, consistency=fresh)
    assert by_name.status == PASSES
    assert by_position.raw_by_node() == by_name.raw_by_node()
    assert by_position.normalized_by_node() == by_name.normalized_by_node()
    assert set(by_name.names) == {"a1", "a2", "b1"}


def test_scores_of_chosen_nodes_and_of_none(client, fresh):
    some = client.score(incoming(SOFT), nodes=["b1", "a1"], consistency=fresh)
    assert list(some.names) == ["b1", "a1"]
    assert len(some) == 2
    assert len(client.score(incoming(SOFT), nodes=[], consistency=fresh)) == 0


def test_a_pod_that_is_not_scored_says_so(client, fresh):
    scores = client.score(incoming(), consistency=fresh)
    assert scores.status.code is Code.SKIP
    assert len(scores) == 0


def test_evaluate_counts_verdicts_and_names_the_best(client, fresh):
    evaluation = client.evaluate(incoming(spread(), SOFT), consistency=fresh)
    assert (evaluation.nodes, evaluation.feasible, evaluation.best) == (3, 1, "b1")
    assert {v.status: v.nodes for v in evaluation.verdicts} == {SKEWED: 2, PASSES: 1}
    assert evaluation.message == ""
    assert evaluation.trace_id is not None
    assert len(evaluation.trace_id) == 32
    assert evaluation.revision


def test_a_pod_that_fits_nowhere_is_an_answer(client, fresh):
    evaluation = client.evaluate(incoming(spread(minDomains=3)), consistency=fresh)
    assert evaluation.best is None
    assert evaluation.reason == "Unschedulable"
    assert evaluation.message == f"0/3 nodes are available: 3 {SKEWED.reasons[0]}."


@pytest.mark.parametrize("form", ["message", "manifest", "bytes", "reference"])
def test_a_pod_may_be_given_in_four_forms(client, fresh, form):
    waiting = incoming()
    written = client.apply([waiting])
    message = pod_from_manifest(waiting)
    given = {
        "message": message,
        "manifest": waiting,
        "bytes": message.SerializeToString(),
        "reference": "default/incoming",
    }[form]
    after = Consistency(at_least_as_fresh=written.revision)
    assert client.evaluate(given, consistency=after).best == "b1"


def test_a_reference_without_namespace_means_default(client, fresh):
    written = client.apply([incoming()])
    after = Consistency(at_least_as_fresh=written.revision)
    assert client.evaluate("incoming", consistency=after).best == "b1"


def test_what_ifs_add_and_remove_pods(client, fresh):
    removed = client.evaluate(
        incoming(), remove_pods=[(pod("web-0"), "a1"), (pod("web-1"), "a2")], consistency=fresh
    )
    assert removed.best in {"a1", "a2"}
    added = client.pre_filter(incoming(), add_pods=[(pod("more"), "b1")], consistency=fresh)
    assert added.extensions == (PASSES,)
    assert set(client.filter(cycle=added.cycle).feasible()) == {"a1", "a2", "b1"}


def test_a_cycle_answers_from_the_frozen_counts(client, fresh):
    before = client.pre_filter(incoming(), consistency=fresh)
    client.apply([pod("web-3", "b1"), pod("web-4", "b1")])
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
    after = Consistency(at_least_as_fresh=client.apply([service]).revision)
    constraint = {key: value for key, value in spread().items() if key != "labelSelector"}
    args = {"defaultingType": "List", "defaultConstraints": [constraint]}
    asked = client.evaluate(plain, settings=Settings(args=args), consistency=after)
    assert asked.feasible == 1
    off = Settings(args=args, gates={"DefaultPodTopologySpread": False})
    assert client.evaluate(plain, settings=off, consistency=after).feasible == 3


def test_refused_args_name_the_fields(client, fresh):
    args = {"defaultingType": "List", "defaultConstraints": [{"maxSkew": 0}]}
    with pytest.raises(InvalidRequest) as refused:
        client.evaluate(incoming(), settings=Settings(args=args), consistency=fresh)
    fields = {violation.field for violation in refused.value.violations}
    assert "defaultConstraints[0].maxSkew" in fields
    assert "defaultConstraints[0].topologyKey" in fields


def test_validation_lists_everything_wrong_at_once(client, fresh):
    asked = incoming(spread(maxSkew=0, minDomains=0))
    with pytest.raises(InvalidRequest) as refused:
        client.evaluate(asked, consistency=fresh, validate=True)
    assert [violation.text for violation in refused.value.violations] == [
        "spec.topologySpreadConstraints[0].maxSkew: Invalid value: must be greater than zero",
        "spec.topologySpreadConstraints[0].minDomains: Invalid value: must be greater than zero",
    ]
    assert refused.value.traceparent is not None


def test_a_batch_has_one_result_a_pod(client, fresh):
    batch = client.batch_evaluate(
        [incoming(), incoming(spread(maxSkew=0)), incoming(spread(minDomains=3))],
        consistency=fresh,
        validate=True,
    )
    fits, refused, waits = batch.results
    assert (fits.best, waits.best) == ("b1", None)
    assert isinstance(refused, InvalidRequest)
    assert refused.violations[0].field == "spec.topologySpreadConstraints[0].maxSkew"
    assert fits.revision == waits.revision == batch.revision


def test_an_unknown_cluster_is_not_found(client):
    with pytest.raises(NotFound):
        client.evaluate(incoming())


def test_what_cannot_be_sent_is_refused_before_the_call(client):
    with pytest.raises(InvalidRequest, match="no serialized"):
        client.evaluate(b"\xff\xff")
    with pytest.raises(ManifestError):
        client.evaluate({"kind": "Pod", "spec": {"nodeName": 1}})
    both = Consistency(at_least_as_fresh="x", fully_consistent=True)
    with pytest.raises(InvalidRequest, match="exclude each other"):
        client.evaluate(incoming(), consistency=both)

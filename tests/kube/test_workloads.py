"""The selector that default constraints get."""

import pytest
from hypothesis import given

from tests.kube import values
from tests.reference import defaults as reference
from tests.reference import strategies
from topospread.kube.objects import (
    LabelExpression,
    LabelSelector,
    OwnerReference,
    Pod,
    Workload,
)
from topospread.kube.selectors import Selector, selector_from_pairs
from topospread.kube.workloads import default_selector

LABELS = {"app": "a", "tier": "be"}
APP = Workload("Service", "default", "app", match_labels=(("app", "a"),))
TIER = Workload("Service", "default", "tier", match_labels=(("tier", "be"),))
OTHER = Workload("Service", "default", "other", match_labels=(("app", "b"),))
ALL = Workload("Service", "default", "all")
RC = Workload("ReplicationController", "default", "own", match_labels=(("app", "z"),))
RS = Workload("ReplicaSet", "default", "own", LabelSelector((("rev", "1"),)))
BROKEN = Workload(
    "StatefulSet", "default", "own", LabelSelector((), (LabelExpression("rev", "Like"),))
)


def found(*workloads: Workload, owner: OwnerReference | None = None) -> Selector:
    index = {(w.kind, w.name): w for w in workloads}
    pod = Pod("p", labels=LABELS, owner=owner)
    return default_selector(pod, workloads, lambda kind, name: index.get((kind, name)))


def owned_by(workload: Workload, version: str) -> OwnerReference:
    return OwnerReference(version, workload.kind, workload.name)


def test_services_that_match_are_merged():
    assert found(APP, TIER, OTHER, ALL) == selector_from_pairs(LABELS.items())


def test_without_a_service_nothing_is_selected():
    assert found().empty
    assert found(ALL, OTHER).empty


def test_a_replication_controllers_labels_take_the_place_of_the_services():
    expected = selector_from_pairs([("app", "z"), ("tier", "be")])
    assert found(APP, TIER, RC, owner=owned_by(RC, "v1")) == expected


def test_a_replica_sets_selector_is_added():
    expected = selector_from_pairs([("app", "a"), ("rev", "1")])
    assert found(APP, RS, owner=owned_by(RS, "apps/v1")) == expected


@pytest.mark.parametrize(
    ("workload", "version"),
    [
        (RS, "v1"),
        (RS, "apps/v1beta2"),
        (RS, "extensions/v1"),
        (RS, "a/apps/v1"),
        (RS, ""),
        (RC, "apps/v1"),
        (Workload("Deployment", "default", "own", RS.selector), "apps/v1"),
        (BROKEN, "apps/v1"),
    ],
)
def test_owners_that_are_not_looked_at(workload, version):
    assert found(APP, workload, owner=owned_by(workload, version)) == found(APP)


def test_an_owner_that_is_not_there_adds_nothing():
    assert found(APP, owner=owned_by(RS, "apps/v1")) == found(APP)


@given(cluster=strategies.clusters(), pod=strategies.incoming_pods())
def test_deducing_agrees_with_the_reference(cluster, pod):
    incoming = values.pod(pod)
    kinds = ("services", "replicationControllers", "replicaSets", "statefulSets")
    workloads = [values.workload(w) for kind in kinds for w in cluster[kind]]
    own = [w for w in workloads if w.namespace == incoming.namespace]
    index = {(w.kind, w.name): w for w in own}
    got = default_selector(incoming, own, lambda kind, name: index.get((kind, name)))
    expected = reference.deduced_selector(cluster, pod)
    assert got.empty == expected.empty
    for each in cluster["pods"]:
        labels = each["metadata"]["labels"]
        assert got.matches(labels) == expected.matches(labels)

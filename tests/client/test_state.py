"""Writing and reading a cluster's state through either client, on a real server."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.client.manifests import TWO_ZONES, incoming, node, pod
from topospread_client import (
    ClusterObject,
    Consistency,
    ErrorReason,
    InvalidRequest,
    Kind,
    NoFeedProgress,
    NotFound,
    ObjectOutcome,
    ObjectReference,
    ResourceVersion,
    RevisionUnavailable,
    WatchEventType,
    object_from_manifest,
)
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube


def seen(answer):
    return Consistency(at_least_as_fresh=answer.revision)


def test_apply_returns_the_outcome_of_each_object(client):
    first = client.apply_objects(TWO_ZONES)
    assert first.counts() == {ObjectOutcome.CREATED: 6}
    assert [result.name for result in first.results][:3] == ["a1", "a2", "b1"]
    moved = pod("web-0", "b1")
    second = client.apply_objects([TWO_ZONES[0], moved])
    assert [result.outcome for result in second.results] == [
        ObjectOutcome.UNCHANGED,
        ObjectOutcome.UPDATED,
    ]
    assert second.trace_id is not None


def test_objects_may_be_messages_bare_or_in_their_envelope(client):
    bare = kube.Node(metadata=kube.ObjectMeta(name="bare"))
    wrapped = object_from_manifest(node("wrapped", "a"))
    client.apply_objects([bare, wrapped])
    newest = Consistency(fully_consistent=True)
    kept = client.get_object(Kind.NODE, "bare", consistency=newest).object
    assert isinstance(kept, ClusterObject)
    assert kept.node.metadata.name == "bare"


def test_a_long_list_is_written_in_steps_that_report_progress(client):
    steps = []
    nodes = [node(f"n{number:04}", "a") for number in range(1203)]
    written = client.apply_objects(nodes, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(500, 1203), (1000, 1203), (1203, 1203)]
    assert [result.name for result in written.results] == [f"n{n:04}" for n in range(1203)]
    assert len(client.get_node_table(consistency=seen(written)).node_names) == 1203


def test_empty_write_makes_no_call(client):
    assert client.apply_objects([]).results == ()
    assert client.delete_objects([]).results == ()


def test_a_kind_that_is_not_kept_is_refused_before_the_call(client):
    with pytest.raises(InvalidRequest, match="ConfigMap"):
        client.apply_objects([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}])


def test_an_object_without_name_is_refused_by_the_server(client):
    with pytest.raises(InvalidRequest) as refused:
        client.apply_objects([{"apiVersion": "v1", "kind": "Node", "metadata": {}}])
    assert refused.value.violations[0].field.endswith("metadata.name")


def test_delete_reports_missing_objects(client):
    client.apply_objects(TWO_ZONES)
    written = client.delete_objects(
        [ObjectReference(Kind.POD, "web-0", "default"), ObjectReference(Kind.NODE, "z9")]
    )
    assert [result.outcome for result in written.results] == [
        ObjectOutcome.DELETED,
        ObjectOutcome.NOT_FOUND,
    ]
    with pytest.raises(NotFound):
        client.get_object(Kind.POD, "web-0", namespace="default", consistency=seen(written))


def versioned(version, zone="a"):
    made = node("n", zone)
    made["metadata"]["resourceVersion"] = version
    return made


def outcome(written):
    (result,) = written.results
    return result.outcome


def test_other_content_at_an_equal_version_is_written_and_at_an_older_one_is_not(client):
    client.apply_objects([versioned("7")])
    assert outcome(client.apply_objects([versioned("7", "b")])) is ObjectOutcome.UPDATED
    assert outcome(client.apply_objects([versioned("7", "b")])) is ObjectOutcome.UNCHANGED
    written = client.apply_objects([versioned("6", "c")])
    assert outcome(written) is ObjectOutcome.IGNORED_STALE
    kept = client.get_object(Kind.NODE, "n", consistency=seen(written)).object.node.metadata
    assert kept.labels["topology.kubernetes.io/zone"] == "b"


@pytest.mark.parametrize("force", [False, True])
def test_object_older_than_its_deletion_is_ignored(client, force):
    client.apply_objects([versioned("9" if force else "7"), *TWO_ZONES])
    gone = ObjectReference(Kind.NODE, "n", resource_version="7")
    assert outcome(client.delete_objects([gone], force=force)) is ObjectOutcome.DELETED
    assert outcome(client.apply_objects([versioned("6")])) is ObjectOutcome.IGNORED_STALE
    assert outcome(client.apply_objects([versioned("7")])) is ObjectOutcome.IGNORED_STALE
    assert outcome(client.apply_objects([versioned("10")])) is ObjectOutcome.CREATED


def test_newer_object_is_deleted_only_by_force(client):
    client.apply_objects([versioned("9")])
    gone = ObjectReference(Kind.NODE, "n", resource_version="7")
    assert outcome(client.delete_objects([gone])) is ObjectOutcome.IGNORED_STALE
    assert outcome(client.delete_objects([gone], force=True)) is ObjectOutcome.DELETED


@pytest.mark.parametrize("force", [False, True])
def test_object_older_than_a_list_without_it_is_ignored(client, force):
    client.apply_objects([versioned("9" if force else "7"), *TWO_ZONES])
    listed = [each for each in TWO_ZONES if each["kind"] == "Node"]
    replaced = client.replace_objects(Kind.NODE, listed, resource_version="7", force=force)
    assert replaced.deleted_count == 1
    assert outcome(client.apply_objects([versioned("7")])) is ObjectOutcome.IGNORED_STALE
    assert outcome(client.apply_objects([versioned("10")])) is ObjectOutcome.CREATED


def test_get_returns_the_stored_fields(client):
    written = client.apply_objects(TWO_ZONES)
    found = client.get_object(Kind.POD, "web-0", namespace="default", consistency=seen(written))
    assert found.object.pod.spec.node_name == "a1"
    assert found.revision


QUERIES = {
    "app=web": "ab",
    "app==web,!canary": "a",
    "app!=web": "cd",
    "canary": "b",
    "tier in (db, cache)": "cd",
    "tier notin (db),app!=web": "d",
    "": "abcd",
    " ": "abcd",
}


@pytest.mark.parametrize("query", QUERIES)
def test_label_queries_are_those_of_kubectl(client, query):
    labels = {
        "a": {"app": "web"},
        "b": {"app": "web", "canary": ""},
        "c": {"tier": "db"},
        "d": {"tier": "cache"},
    }
    pods = [
        {"kind": "Pod", "metadata": {"name": name, "namespace": "q", "labels": each}}
        for name, each in labels.items()
    ]
    written = client.apply_objects(pods)
    found = client.list_objects(Kind.POD, label_selector=query, consistency=seen(written))
    assert "".join(each.pod.metadata.name for each in found) == QUERIES[query]


def test_list_fetches_all_pages(client):
    written = client.apply_objects(TWO_ZONES)
    pages = client.list_objects(Kind.POD, page_size=1, consistency=seen(written))
    assert [each.pod.metadata.name for each in pages] == ["web-0", "web-1", "web-2"]
    page = client.list_objects_page(Kind.NODE, page_size=2, consistency=seen(written))
    assert len(page.objects) == 2
    assert page.next_page_token
    with pytest.raises(InvalidRequest) as refused:
        client.list_objects_page(Kind.POD, page_token=page.next_page_token)
    assert refused.value.reason == ErrorReason.PAGE_TOKEN_MISMATCH


def test_iteration_over_a_list_has_the_objects_of_its_first_page_s_revision(client):
    client.apply_objects(TWO_ZONES)
    listed = iter(client.list_objects(Kind.POD, page_size=1))
    found = [next(listed)]
    client.delete_objects([ObjectReference(Kind.POD, "web-1", "default")])
    client.apply_objects([pod("web-1-2", "b1"), pod("web-2", "b1", app="other")])
    found += listed
    assert [each.pod.metadata.name for each in found] == ["web-0", "web-1", "web-2"]
    assert found[2].pod.metadata.labels["app"] == "web"
    names = [each.pod.metadata.name for each in client.list_objects(Kind.POD, page_size=1)]
    assert names == ["web-0", "web-1-2", "web-2"]


def test_iteration_over_a_list_that_can_not_go_on_says_so(connect, address):
    """It never goes on with objects of another state, and does not begin anew by itself."""
    client = connect(address, cluster="listed-and-deleted")
    client.apply_objects(TWO_ZONES)
    listed = iter(client.list_objects(Kind.POD, page_size=1))
    assert next(listed).pod.metadata.name == "web-0"
    client.delete_cluster("listed-and-deleted")
    client.apply_objects(TWO_ZONES)
    with pytest.raises(RevisionUnavailable, match="begin it anew") as refused:
        list(listed)
    assert refused.value.reason == ErrorReason.REVISION_OF_OTHER_HISTORY


def test_list_selects_by_namespace_and_labels(client):
    elsewhere = pod("other", "a1", app="db")
    elsewhere["metadata"]["namespace"] = "data"
    after = seen(client.apply_objects([*TWO_ZONES, elsewhere]))
    in_data = client.list_objects(Kind.POD, namespace="data", consistency=after)
    assert [each.pod.metadata.name for each in in_data] == ["other"]
    selector = kube.LabelSelector(match_labels={"app": "web"})
    webs = client.list_objects(Kind.POD, label_selector=selector, consistency=after)
    assert [each.pod.metadata.name for each in webs] == ["web-0", "web-1", "web-2"]


def test_replace_makes_a_kind_equal_to_a_list(client):
    client.apply_objects(TWO_ZONES)
    replaced = client.replace_objects(Kind.NODE, [node("a1", "a"), node("c1", "c")])
    assert (replaced.created_count, replaced.unchanged_count, replaced.deleted_count) == (1, 1, 2)
    assert list(client.get_node_table(consistency=seen(replaced)).node_names) == ["a1", "c1"]


def test_replace_streams_long_lists(client):
    replaced = client.replace_objects(Kind.NODE, [node(f"n{n}", "a") for n in range(1100)])
    assert replaced.created_count == 1100


def test_replace_refuses_objects_of_another_kind(client):
    with pytest.raises(InvalidRequest, match="another kind"):
        client.replace_objects(Kind.NODE, [pod("web-0")])


def test_an_error_among_the_objects_of_a_replace_changes_nothing(client):
    client.apply_objects([node("a1", "a"), node("b1", "b")])

    def broken():
        yield node("c1", "c")
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        client.replace_objects(Kind.NODE, broken())
    assert {found.node.metadata.name for found in client.list_objects(Kind.NODE)} == {"a1", "b1"}


def test_watch_sends_changes_in_order(client):
    start = client.apply_objects(TWO_ZONES).revision
    client.apply_objects([pod("web-9", "b1")])
    client.delete_objects([ObjectReference(Kind.POD, "web-0", "default")])
    client.apply_objects([node("c1", "c")])
    changes = client.watch_objects(revision=start, kinds=[Kind.POD], timeout=60)
    events = (
        event
        for change in changes
        for event in change.events
        if event.type is not WatchEventType.BOOKMARK
    )
    made, gone = islice(events, 2)
    assert (made.type, made.ref.kind, made.ref.name) == (WatchEventType.APPLIED, Kind.POD, "web-9")
    assert made.object.pod.spec.node_name == "b1"
    assert (gone.type, gone.ref.name, gone.object) == (WatchEventType.DELETED, "web-0", None)


def test_watch_may_begin_with_all_objects_up_to_a_bookmark(client):
    written = client.apply_objects(TWO_ZONES)
    client.get_node_table(consistency=seen(written))
    there = []
    for change in client.watch_objects(kinds=[Kind.NODE], send_initial=True, timeout=60):
        there += [event.ref.name for event in change.events if event.object is not None]
        if any(event.type is WatchEventType.BOOKMARK for event in change.events):
            assert change.revision == written.revision
            assert all(event.ref is None for event in change.events if event.object is None)
            break
    assert there == ["a1", "a2", "b1"]


def test_reservations_are_watched_like_objects(client):
    start = client.apply_objects(TWO_ZONES).revision
    client.reserve_node(pod("web-9"), "b1")
    changes = client.watch_objects(revision=start, kinds=[Kind.RESERVATION], timeout=60)
    event = next(event for change in changes for event in change.events if event.object is not None)
    assert (event.ref.kind, event.ref.name) == (Kind.RESERVATION, "web-9")
    assert event.object.reservation.node == "b1"


def test_readers_wait_for_the_observed_version_of_a_writer(client):
    read = [ResourceVersion(Kind.NODE, "70"), ResourceVersion(Kind.POD, "77")]
    client.apply_objects(TWO_ZONES, observed=read)
    waiting = Consistency(not_older_than=[ResourceVersion(Kind.POD, "75")])
    assert set(client.evaluate_pod(incoming(), consistency=waiting).meta.observed) == set(read)
    further = ResourceVersion(Kind.NODE, "80")
    client.apply_objects([], observed=[further])
    found = client.get_node_table(consistency=Consistency(not_older_than=[further]))
    assert further in found.meta.observed
    missing = Consistency(not_older_than=[ResourceVersion(Kind.SERVICE, "1")])
    with pytest.raises(NoFeedProgress):
        client.evaluate_pod(incoming(), consistency=missing)


def test_watch_from_another_history_asks_to_list_again(client):
    client.apply_objects(TWO_ZONES)
    revision = client.apply_objects([node("c1", "c")]).revision
    client.delete_cluster(client._session.cluster)
    client.apply_objects(TWO_ZONES)
    with pytest.raises(RevisionUnavailable):
        next(iter(client.watch_objects(revision=revision, timeout=60)))


def test_clusters_have_the_state_in_the_server(client):
    written = client.apply_objects(TWO_ZONES)
    client.get_node_table(consistency=seen(written))
    mine = client.get_cluster()
    cluster = mine.cluster
    assert (cluster.loaded, cluster.node_count, cluster.pod_count) == (True, 3, 3)
    assert cluster.revision == mine.revision == written.revision
    assert cluster.store_identity
    assert mine.trace_id is not None
    assert cluster.name in [each.name for each in client.list_clusters(page_size=1)]
    assert client.list_clusters_page(page_size=1).clusters
    with pytest.raises(NotFound):
        client.get_cluster(cluster="missing")


def test_server_info_has_version_and_limits(client):
    info = client.get_server_info()
    assert info.version
    assert "topospread.v1" in info.api_versions
    assert info.limits.max_batch_objects == 500
    assert info.store == "memory:"
    assert info.start_time is not None


def test_a_dropped_cluster_is_gone(client):
    written = client.apply_objects(TWO_ZONES)
    client.get_node_table(consistency=seen(written))
    assert client.delete_cluster(client._session.cluster).object_count == 6
    assert client._session.cluster not in client._session.tables
    with pytest.raises(NotFound):
        client.get_object(Kind.NODE, "a1")

"""Writing and reading a cluster's state through either client, on a real server."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.client.manifests import TWO_ZONES, node, pod
from topospread_client.answers import Kind, Outcome
from topospread_client.errors import InvalidRequest, NotFound, RevisionUnavailable
from topospread_client.manifests import object_from_manifest
from topospread_client.requests import Consistency, Reference
from topospread_proto.v1 import kubernetes_pb2 as kube


def seen(answer):
    return Consistency(at_least_as_fresh=answer.revision)


def test_apply_tells_what_became_of_each_object(client):
    first = client.apply(TWO_ZONES)
    assert first.counts() == {Outcome.CREATED: 6}
    assert [result.name for result in first.results][:3] == ["a1", "a2", "b1"]
    moved = pod("web-0", "b1")
    second = client.apply([TWO_ZONES[0], moved])
    assert [result.outcome for result in second.results] == [Outcome.UNCHANGED, Outcome.UPDATED]
    assert second.trace_id is not None


def test_objects_may_be_messages_bare_or_in_their_envelope(client):
    bare = kube.Node(metadata=kube.ObjectMeta(name="bare"))
    wrapped = object_from_manifest(node("wrapped", "a"))
    client.apply([bare, wrapped])
    assert client.get(Kind.NODE, "bare", consistency=Consistency(fully_consistent=True))


def test_a_long_list_is_written_in_steps_that_report_progress(client):
    steps = []
    nodes = [node(f"n{number:04}", "a") for number in range(1203)]
    written = client.apply(nodes, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(500, 1203), (1000, 1203), (1203, 1203)]
    assert [result.name for result in written.results] == [f"n{n:04}" for n in range(1203)]
    assert len(client.node_table(consistency=seen(written)).names) == 1203


def test_nothing_to_write_makes_no_call(client):
    assert client.apply([]).results == ()
    assert client.delete([]).results == ()


def test_a_kind_that_is_not_kept_is_refused_before_the_call(client):
    with pytest.raises(InvalidRequest, match="ConfigMap"):
        client.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}])


def test_an_object_without_name_is_refused_by_the_server(client):
    with pytest.raises(InvalidRequest) as refused:
        client.apply([{"apiVersion": "v1", "kind": "Node", "metadata": {}}])
    assert refused.value.violations[0].field.endswith("metadata.name")


def test_delete_reports_what_was_not_there(client):
    client.apply(TWO_ZONES)
    written = client.delete([Reference(Kind.POD, "web-0", "default"), Reference(Kind.NODE, "z9")])
    assert [result.outcome for result in written.results] == [Outcome.DELETED, Outcome.NOT_FOUND]
    with pytest.raises(NotFound):
        client.get(Kind.POD, "web-0", namespace="default", consistency=seen(written))


def versioned(version, zone="a"):
    made = node("n", zone)
    made["metadata"]["resourceVersion"] = version
    return made


def outcome(written):
    (result,) = written.results
    return result.outcome


def test_other_content_at_an_equal_version_is_written_and_at_an_older_one_is_not(client):
    client.apply([versioned("7")])
    assert outcome(client.apply([versioned("7", "b")])) is Outcome.UPDATED
    assert outcome(client.apply([versioned("7", "b")])) is Outcome.UNCHANGED
    written = client.apply([versioned("6", "c")])
    assert outcome(written) is Outcome.IGNORED_STALE
    kept = client.get(Kind.NODE, "n", consistency=seen(written)).object.node.metadata
    assert kept.labels["topology.kubernetes.io/zone"] == "b"


@pytest.mark.parametrize("force", [False, True])
def test_what_comes_later_than_a_deletion_of_its_version_is_ignored(client, force):
    client.apply([versioned("9" if force else "7"), *TWO_ZONES])
    gone = Reference(Kind.NODE, "n", resource_version="7")
    assert outcome(client.delete([gone], force=force)) is Outcome.DELETED
    assert outcome(client.apply([versioned("6")])) is Outcome.IGNORED_STALE
    assert outcome(client.apply([versioned("7")])) is Outcome.IGNORED_STALE
    assert outcome(client.apply([versioned("10")])) is Outcome.CREATED


def test_only_force_deletes_what_is_newer(client):
    client.apply([versioned("9")])
    gone = Reference(Kind.NODE, "n", resource_version="7")
    assert outcome(client.delete([gone])) is Outcome.IGNORED_STALE
    assert outcome(client.delete([gone], force=True)) is Outcome.DELETED


@pytest.mark.parametrize("force", [False, True])
def test_what_comes_later_than_a_list_without_it_is_ignored(client, force):
    client.apply([versioned("9" if force else "7"), *TWO_ZONES])
    listed = [each for each in TWO_ZONES if each["kind"] == "Node"]
    replaced = client.replace(Kind.NODE, listed, resource_version="7", force=force)
    assert replaced.deleted == 1
    assert outcome(client.apply([versioned("7")])) is Outcome.IGNORED_STALE
    assert outcome(client.apply([versioned("10")])) is Outcome.CREATED


def test_get_returns_what_is_kept(client):
    written = client.apply(TWO_ZONES)
    found = client.get(Kind.POD, "web-0", namespace="default", consistency=seen(written))
    assert found.object.pod.spec.node_name == "a1"
    assert found.revision


def test_list_fetches_all_pages(client):
    written = client.apply(TWO_ZONES)
    pages = client.list(Kind.POD, page_size=1, consistency=seen(written))
    assert [each.pod.metadata.name for each in pages] == ["web-0", "web-1", "web-2"]
    page = client.list_page(Kind.NODE, page_size=2, consistency=seen(written))
    assert len(page.objects) == 2
    assert page.next_page_token


def test_list_selects_by_namespace_and_labels(client):
    elsewhere = pod("other", "a1", app="db")
    elsewhere["metadata"]["namespace"] = "data"
    after = seen(client.apply([*TWO_ZONES, elsewhere]))
    in_data = client.list(Kind.POD, namespace="data", consistency=after)
    assert [each.pod.metadata.name for each in in_data] == ["other"]
    selector = kube.LabelSelector(match_labels={"app": "web"})
    webs = client.list(Kind.POD, label_selector=selector, consistency=after)
    assert [each.pod.metadata.name for each in webs] == ["web-0", "web-1", "web-2"]


def test_replace_makes_a_kind_equal_to_a_list(client):
    client.apply(TWO_ZONES)
    replaced = client.replace(Kind.NODE, [node("a1", "a"), node("c1", "c")])
    assert (replaced.created, replaced.unchanged, replaced.deleted) == (1, 1, 2)
    assert list(client.node_table(consistency=seen(replaced)).names) == ["a1", "c1"]


def test_replace_streams_long_lists(client):
    replaced = client.replace(Kind.NODE, [node(f"n{n}", "a") for n in range(1100)])
    assert replaced.created == 1100


def test_replace_refuses_objects_of_another_kind(client):
    with pytest.raises(InvalidRequest, match="another kind"):
        client.replace(Kind.NODE, [pod("web-0")])


def test_an_error_among_the_objects_of_a_replace_changes_nothing(client):
    client.apply([node("a1", "a"), node("b1", "b")])

    def broken():
        yield node("c1", "c")
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        client.replace(Kind.NODE, broken())
    assert {found.node.metadata.name for found in client.list(Kind.NODE)} == {"a1", "b1"}


def test_watch_sends_changes_in_order(client):
    start = client.apply(TWO_ZONES).revision
    client.apply([pod("web-9", "b1")])
    client.delete([Reference(Kind.POD, "web-0", "default")])
    client.apply([node("c1", "c")])
    changes = client.watch(revision=start, kinds=[Kind.POD], timeout=60)
    events = (event for change in changes for event in change.events)
    made, gone = islice(events, 2)
    assert (made.kind, made.name, made.object.pod.spec.node_name) == (Kind.POD, "web-9", "b1")
    assert (gone.name, gone.object) == ("web-0", None)


def test_watch_from_another_history_asks_to_list_again(client):
    client.apply(TWO_ZONES)
    revision = client.apply([node("c1", "c")]).revision
    client.drop_cluster(client.session.cluster)
    client.apply(TWO_ZONES)
    with pytest.raises(RevisionUnavailable):
        next(iter(client.watch(revision=revision, timeout=60)))


def test_clusters_tells_how_the_server_follows_each(client):
    written = client.apply(TWO_ZONES)
    client.node_table(consistency=seen(written))
    status = client.clusters()
    mine = next(each for each in status.clusters if each.name == client.session.cluster)
    assert (mine.loaded, mine.nodes, mine.pods, mine.revision) == (True, 3, 3, written.revision)
    assert status.server_version
    assert status.store == "memory:"
    assert status.started_at is not None
    assert status.trace_id is not None


def test_a_dropped_cluster_is_gone(client):
    written = client.apply(TWO_ZONES)
    client.node_table(consistency=seen(written))
    assert client.drop_cluster(client.session.cluster) == 6
    assert client.session.cluster not in client.session.tables
    with pytest.raises(NotFound):
        client.get(Kind.NODE, "a1")

"""Writing and reading a cluster's state through either client, on a real server."""

from __future__ import annotations

import pytest

from tests.client.manifests import TWO_ZONES, node, pod
from topospread_client import (
    InvalidRequest,
    NotFound,
    RevisionUnavailable,
    kind_of,
    object_from_manifest,
    trace_id,
)
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2 as common


def seen(answer):
    return answer.meta.revision


def test_apply_returns_the_outcome_of_each_object(client):
    first = client.apply_objects(TWO_ZONES)
    assert {result.outcome for result in first.results} == {pb.OBJECT_OUTCOME_CREATED}
    assert [result.name for result in first.results][:3] == ["a1", "a2", "b1"]
    moved = pod("web-0", "b1")
    second = client.apply_objects([TWO_ZONES[0], moved])
    assert [result.outcome for result in second.results] == [
        pb.OBJECT_OUTCOME_UNCHANGED,
        pb.OBJECT_OUTCOME_UPDATED,
    ]
    assert trace_id(second) is not None


def test_objects_may_be_messages_bare_or_in_their_envelope(client):
    bare = kube.Node(metadata=kube.ObjectMeta(name="bare"))
    wrapped = object_from_manifest(node("wrapped", "a"))
    client.apply_objects([bare, wrapped])
    newest = {"fully_consistent": True}
    kept = client.get_object("NODE", "bare", consistency=newest).object
    assert kind_of(kept) == common.KIND_NODE
    assert kept.node.metadata.name == "bare"


def test_a_long_list_is_written_in_steps_that_report_progress(client):
    steps = []
    nodes = [node(f"n{number:04}", "a") for number in range(1203)]
    written = client.apply_objects(nodes, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(500, 1203), (1000, 1203), (1203, 1203)]
    assert [result.name for result in written.results] == [f"n{n:04}" for n in range(1203)]
    assert len(client.get_node_table(consistency=seen(written)).node_names) == 1203


def test_delete_reports_missing_objects(client):
    client.apply_objects(TWO_ZONES)
    written = client.delete_objects(
        [{"kind": "POD", "name": "web-0", "namespace": "default"}, {"kind": "NODE", "name": "z9"}]
    )
    assert [result.outcome for result in written.results] == [
        pb.OBJECT_OUTCOME_DELETED,
        pb.OBJECT_OUTCOME_NOT_FOUND,
    ]
    with pytest.raises(NotFound):
        client.get_object("POD", "web-0", namespace="default", consistency=seen(written))


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
    found = client.list_objects("POD", label_selector=query, consistency=seen(written))
    assert "".join(each.pod.metadata.name for each in found) == QUERIES[query]


def test_list_fetches_all_pages(client):
    written = client.apply_objects(TWO_ZONES)
    pages = client.list_objects("POD", page_size=1, consistency=seen(written))
    assert [each.pod.metadata.name for each in pages] == ["web-0", "web-1", "web-2"]
    page = client.list_objects_page("NODE", page_size=2, consistency=seen(written))
    assert len(page.objects) == 2
    assert page.next_page_token
    with pytest.raises(InvalidRequest) as refused:
        client.list_objects_page("POD", page_token=page.next_page_token)
    assert refused.value.reason == "PAGE_TOKEN_MISMATCH"


def test_iteration_over_a_list_goes_on_after_its_last_object(client):
    client.apply_objects(TWO_ZONES)
    listed = iter(client.list_objects("POD", page_size=1))
    found = [next(listed)]
    client.delete_objects([{"kind": "POD", "name": "web-1", "namespace": "default"}])
    client.apply_objects([pod("a", "b1"), pod("web-1-2", "b1"), pod("web-2", "b1", app="other")])
    found += listed
    assert [each.pod.metadata.name for each in found] == ["web-0", "web-1-2", "web-2"]
    assert found[2].pod.metadata.labels["app"] == "other"
    names = [each.pod.metadata.name for each in client.list_objects("POD", page_size=1)]
    assert names == ["a", "web-0", "web-1-2", "web-2"]


def test_iteration_over_a_list_that_can_not_go_on_says_so(connect, address):
    """It never goes on with objects of another state, and does not begin anew by itself."""
    client = connect(address, cluster="listed-and-deleted")
    client.apply_objects(TWO_ZONES)
    listed = iter(client.list_objects("POD", page_size=1))
    assert next(listed).pod.metadata.name == "web-0"
    client.delete_cluster("listed-and-deleted")
    client.apply_objects(TWO_ZONES)
    with pytest.raises(RevisionUnavailable, match="begin it anew") as refused:
        list(listed)
    assert refused.value.reason == "REVISION_OF_OTHER_HISTORY"


def test_replace_makes_a_kind_equal_to_a_list(client):
    client.apply_objects(TWO_ZONES)
    replaced = client.replace_objects(
        "NODE", [node("a1", "a"), node("c1", "c")], kinds=["NODE", "POD"]
    )
    assert (replaced.created_count, replaced.unchanged_count, replaced.deleted_count) == (1, 1, 2)
    assert list(client.get_node_table(consistency=seen(replaced)).node_names) == ["a1", "c1"]


def test_replace_streams_long_lists(client):
    replaced = client.replace_objects("NODE", [node(f"n{n}", "a") for n in range(1100)])
    assert replaced.created_count == 1100


def test_an_error_among_the_objects_of_a_replace_changes_nothing(client):
    client.apply_objects([node("a1", "a"), node("b1", "b")])

    def broken():
        yield node("c1", "c")
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        client.replace_objects("NODE", broken())
    assert {found.node.metadata.name for found in client.list_objects("NODE")} == {"a1", "b1"}


def test_clusters_have_the_state_in_the_server(client):
    written = client.apply_objects(TWO_ZONES)
    client.get_node_table(consistency=seen(written))
    mine = client.get_cluster()
    cluster = mine.cluster
    assert (cluster.loaded, cluster.node_count, cluster.pod_count) == (True, 3, 3)
    assert cluster.revision == mine.meta.revision == written.meta.revision
    assert cluster.store_identity
    assert trace_id(mine) is not None
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
    assert info.HasField("start_time")

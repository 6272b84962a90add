"""The verbs that write and read a cluster's state, against a real server."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.cli.manifests import CLUSTER, POD
from tests.servers import served


@pytest.fixture
def loaded(topospread):
    """The command, with the cluster written."""
    assert topospread("apply", "-f", "-", stdin=CLUSTER).code == 0
    return topospread


def test_apply_counts_outcomes_by_kind(topospread):
    said = topospread("apply", "-f", "-", stdin=CLUSTER)
    assert said.code == 0
    assert said.lines[:4] == [
        "KIND     CREATED  UPDATED  UNCHANGED  IGNORED STALE",
        "Node           3        0          0              0",
        "Pod            2        0          0              0",
        "Service        1        0          0              0",
    ]
    assert [line.split(":")[0] for line in said.lines[4:]] == ["revision", "trace"]
    skipped = "skipped: 1 ConfigMap, 1 Deployment (kinds that spreading does not look at)\n"
    assert said.err == skipped


@pytest.mark.parametrize("options", [(), ("--replace",)], ids=["written", "replaced"])
def test_apply_names_each_object_by_its_name_alone(topospread, options):
    whole = f"{CLUSTER}---\nkind: Pod\nmetadata: {{name: p}}\n...\n"
    said = topospread("apply", *options, "-f", "-", "-o", "name", stdin=whole)
    assert said.lines == [
        "node/a1",
        "node/a2",
        "node/b1",
        "pod/shop/web-0",
        "pod/shop/web-1",
        "service/shop/web",
        "pod/default/p",
    ]
    assert topospread("get", *said.lines[:3], "-o", "name").lines == said.lines[:3]


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_apply_prints_json(topospread, form):
    said = topospread("apply", "-f", "-", "-o", form, stdin=CLUSTER)
    value = json.loads(said.out) if form == "json" else yaml.safe_load(said.out)
    assert value["skipped"] == [
        {"kind": "ConfigMap", "count": 1},
        {"kind": "Deployment", "count": 1},
    ]
    assert (value["apiVersion"], value["kind"]) == ("topospread.io/v1", "ObjectResultList")
    assert value["items"][3] == {
        "kind": "Pod",
        "namespace": "shop",
        "name": "web-0",
        "outcome": "Created",
        "warnings": [],
    }
    assert value["revision"]
    assert len(value["traceId"]) == 32


def test_apply_sets_the_namespace_of_objects_without_one(topospread):
    nameless = "kind: Pod\nmetadata: {name: p}\n---\nkind: Node\nmetadata: {name: n}\n"
    said = topospread("apply", "-f", "-", "-n", "other", "-o", "name", stdin=nameless)
    assert said.lines == ["pod/other/p", "node/n"]


@pytest.mark.parametrize("verb", [("apply",), ("apply", "--replace"), ("delete",)], ids=" ".join)
def test_objects_without_a_name_are_named_by_their_lines_and_nothing_is_done(loaded, verb):
    objects = [f"{{kind: Node, metadata: {{name: n{number}}}}}" for number in range(600)]
    objects[2] = objects[599] = "{kind: Node, metadata: {generateName: n}}"
    said = loaded(*verb, "-f", "-", stdin="\n---\n".join([*objects, "..."]))
    assert said.code == 2
    assert said.err.splitlines() == [
        f"topospread: standard input:{line}: Node n: metadata.name: name is required"
        for line in (5, 1199)
    ]
    assert loaded("get", "nodes", "-o", "name").lines == ["node/a1", "node/a2", "node/b1"]


def test_an_older_version_is_written_only_by_force(topospread):
    def versioned(version, node):
        metadata = f"{{name: p, namespace: shop, resourceVersion: '{version}'}}"
        return f"kind: Pod\nmetadata: {metadata}\nspec: {{nodeName: {node}}}\n"

    topospread("apply", "-f", "-", stdin=versioned(20, "a1"))
    older = topospread("apply", "-f", "-", stdin=versioned(10, "b1"))
    assert older.code == 0
    assert "1 older than what is stored: --force writes them all the same" in older.err
    forced = topospread("apply", "-f", "-", "--force", "-o", "json", stdin=versioned(10, "b1"))
    assert [each["outcome"] for each in json.loads(forced.out)["items"]] == ["Updated"]


def test_replace_removes_objects_that_the_input_lacks(loaded):
    only = "kind: Node\nmetadata: {name: b1, labels: {topology.kubernetes.io/zone: b}}\n...\n"
    said = loaded("apply", "--replace", "-f", "-", stdin=only)
    assert said.code == 0
    assert said.lines[:2] == [
        "KIND  CREATED  UPDATED  UNCHANGED  IGNORED STALE  DELETED",
        "Node        0        0          1              0        2",
    ]
    assert loaded("get", "nodes", "-o", "name").lines == ["node/b1"]
    assert len(loaded("get", "pods", "-o", "name").lines) == 2


def test_replace_refuses_an_object_that_is_given_twice_before_it_writes(loaded):
    text = (
        "kind: Node\nmetadata: {name: new}\n---\n"
        "kind: Pod\nmetadata: {name: x}\nspec: {}\n---\n"
        "kind: Pod\nmetadata: {name: x, namespace: default}\nspec: {}\n...\n"
    )
    said = loaded("apply", "--replace", "-f", "-", stdin=text)
    assert (said.code, said.out) == (2, "")
    assert "standard input:8: Pod default/x: is in standard input:4, too" in said.err
    assert "give each object once" in said.err
    assert "node/new" not in loaded("get", "nodes", "-o", "name").lines


@pytest.mark.parametrize("between", ["---\n", ""])
def test_replace_takes_json_documents_behind_which_the_end_is_marked(loaded, between):
    nodes = [f'{{"kind": "Node", "metadata": {{"name": "{name}"}}}}\n' for name in ("a1", "b1")]
    said = loaded("apply", "--replace", "-f", "-", stdin=between.join(nodes))
    assert said.code == 2
    assert "may have been cut" in said.err
    said = loaded("apply", "--replace", "-f", "-", stdin=between.join(nodes) + "...\n")
    assert (said.code, said.err) == (0, "")
    assert loaded("get", "nodes", "-o", "name").lines == ["node/a1", "node/b1"]


def test_replace_refuses_input_that_was_cut(loaded):
    listed = loaded("get", "nodes", "-o", "yaml").out
    cuts = [at for at in range(len(listed)) if listed[at - 1] == "\n"]
    assert len(cuts) > 20
    for at in [*cuts[1::7], len(listed) // 2]:
        said = loaded("apply", "--replace", "-f", "-", stdin=listed[:at])
        assert (said.code, said.out) == (2, ""), listed[:at]
    page = '{"kind": "NodeList", "metadata": {"continue": "x"}, "items": []}'
    said = loaded("apply", "--replace", "-f", "-", stdin=page)
    assert said.code == 2
    assert "standard input:1: this is one page of a longer list" in said.err
    assert len(loaded("get", "nodes", "-o", "name").lines) == 3
    assert loaded("apply", "--replace", "-f", "-", "-o", "name", stdin=listed).code == 0


def test_apply_of_no_objects_writes_nothing(topospread):
    said = topospread("apply", "-f", "-", stdin="kind: Secret\nmetadata: {name: s}\n")
    assert (said.code, said.out) == (0, "")
    assert "skipped: 1 Secret" in said.err


def test_get_shows_nodes_pods_and_workloads(loaded):
    nodes = loaded("get", "nodes")
    assert nodes.lines[0].split() == ["NAME", "ZONE", "HOSTNAME", "SCHEDULING", "TAINTS"]
    assert nodes.lines[1].split() == ["a1", "a", "<none>", "yes", "<none>"]
    pods = loaded("get", "pods", "-n", "shop")
    assert pods.lines[1].split()[:3] == ["shop", "web-0", "a1"]
    workloads = loaded("get", "workloads")
    assert workloads.lines[1].split() == ["Service", "shop", "web", "<none>", "app=web"]


@pytest.mark.parametrize("kind", ["pods", "pod", "po", "Pod", "PODS"])
def test_kinds_may_be_plural_or_short(loaded, kind):
    assert loaded("get", kind, "-o", "name").lines == ["pod/shop/web-0", "pod/shop/web-1"]


def test_get_prints_manifests_that_can_be_applied_again(loaded):
    listed = loaded("get", "pods", "-o", "json")
    assert json.loads(listed.out)["kind"] == "List"
    again = loaded("apply", "-f", "-", "-o", "json", stdin=listed.out)
    assert {each["outcome"] for each in json.loads(again.out)["items"]} == {"Unchanged"}
    one = loaded("get", "pod", "web-0", "-n", "shop", "-o", "yaml")
    assert yaml.safe_load(one.out)["metadata"]["name"] == "web-0"


QUERIES = {
    "app=web": ["web-0", "web-1"],
    "app == web": ["web-0", "web-1"],
    "app!=web": ["db-0"],
    "tier": ["db-0"],
    "!tier": ["web-0", "web-1"],
    "app in (db, cache)": ["db-0"],
    "app notin (db),!tier": ["web-0", "web-1"],
    "app in (web,db),tier=back": ["db-0"],
}


@pytest.mark.parametrize(("query", "names"), QUERIES.items(), ids=QUERIES)
def test_get_selects_by_labels(loaded, query, names):
    labels = "{app: db, tier: back}"
    database = f"kind: Pod\nmetadata: {{name: db-0, namespace: shop, labels: {labels}}}\n"
    loaded("apply", "-f", "-", stdin=database)
    found = loaded("get", "pods", "-l", query, "-o", "name").lines
    assert sorted(found) == sorted(f"pod/shop/{name}" for name in names)


def test_get_finds_nothing(loaded):
    said = loaded("get", "pods", "-n", "nowhere")
    assert (said.code, said.out, said.err) == (0, "", "no pods found\n")
    missing = loaded("get", "pod", "web-9", "-n", "shop")
    assert missing.code == 2
    assert "web-9" in missing.err


def test_delete_by_name_and_by_file(loaded):
    named = loaded("delete", "pod", "web-0", "-n", "shop", "-o", "name")
    assert (named.code, named.lines) == (0, ["pod/shop/web-0"])
    filed = loaded("delete", "-f", "-", "-o", "name", stdin=CLUSTER)
    assert filed.code == 2, "web-0 is gone already"
    assert "pod/shop/web-0 not found\n" in filed.err
    assert "pod/shop/web-0" not in filed.lines
    assert "node/b1" in filed.lines
    calm = loaded("delete", "-f", "-", "--ignore-not-found", "-o", "json", stdin=CLUSTER)
    assert calm.code == 0
    assert {each["outcome"] for each in json.loads(calm.out)["items"]} == {"NotFound"}


def test_status_shows_the_server_and_its_clusters(loaded, cluster):
    loaded("evaluate", "-f", "-", stdin=POD)
    said = loaded("status")
    assert said.code == 0
    assert "store:         memory:" in said.lines
    assert any(re.fullmatch("settings: +[0-9a-f]{12}", line) for line in said.lines)
    row = next(line for line in said.lines if line.startswith(cluster)).split()
    assert row[1:5] == ["ok", "3", "2", "1"]
    assert cluster in loaded("status", "-o", "name").lines
    value = json.loads(loaded("status", "-o", "json").out)
    mine = next(each for each in value["clusters"] if each["name"] == cluster)
    assert (mine["loaded"], mine["nodeCount"], mine["podCount"]) == (True, 3, 2)


def test_all_namespaces_may_be_typed_where_they_are_the_default(loaded):
    assert loaded("get", "-A", "pods", "-o", "name").lines == ["pod/shop/web-0", "pod/shop/web-1"]
    assert loaded("plan-rebalance", "--all-namespaces").code in {0, 1}
    for arguments in (
        ("get", "pods", "-A", "-n", "shop"),
        ("get", "pods", "-A", "web-0"),
        ("plan-rebalance", "-A", "-n", "shop"),
    ):
        assert loaded(*arguments).code == 2, arguments


def test_status_right_after_apply_has_its_counts(topospread, cluster):
    # No List, after which apply itself would ask for the counts.
    single = CLUSTER.partition("---")[2]
    assert topospread("apply", "-f", "-", stdin=single).code == 0
    row = next(line for line in topospread("status").lines if line.startswith(cluster)).split()
    assert row[1:5] == ["ok", "0", "2", "1"]
    assert row[6] == "0", "nothing lags"


def test_status_of_clusters_that_are_not_loaded_has_no_counts(topospread, cluster):
    other = f"{cluster}-other"
    topospread("apply", "-f", "-", "--cluster", other, stdin="kind: Node\nmetadata: {name: n}\n")
    row = next(line for line in topospread("status").lines if line.startswith(other))
    assert "not loaded until it is asked about" in row
    assert row.split()[-6:-1] == ["-"] * 5


def test_status_of_a_named_cluster_is_of_that_alone(loaded, cluster, topospread):
    other = f"{cluster}-other"
    assert topospread("apply", "-f", "-", "--cluster", other, stdin=CLUSTER).code == 0
    assert topospread("status", "--cluster", other, "-o", "name").lines == [other]
    (found,) = json.loads(topospread("status", "--cluster", other, "-o", "json").out)["clusters"]
    assert (found["loaded"], found["nodeCount"], found["lag"]) == (True, 3, 0)
    missing = topospread("status", "--cluster", "nope")
    assert (missing.code, missing.out) == (2, "")
    assert missing.err.startswith("topospread: no cluster nope: there are ")


def test_status_of_a_cluster_that_is_not_there_names_at_most_ten(bare):
    with served() as server:
        where = ("--address", server.address)
        missing = bare("status", "--cluster", "nope", *where)
        assert missing.err == "topospread: no cluster nope: there is none yet\n"
        assert bare("status", *where).lines[-1].startswith("no cluster yet")
        node = "kind: Node\nmetadata: {name: n}\n"
        for number in range(11):
            bare("apply", "-f", "-", "--cluster", f"c{number:02}", *where, stdin=node)
        names = ", ".join(f"c{number:02}" for number in range(10))
        said = bare("status", "--cluster", "nope", *where)
        assert said.err == f"topospread: no cluster nope: there are {names}, …\n"


def test_version_needs_no_server(bare):
    said = bare("version")
    assert said.code == 0
    assert said.out.startswith("topospread ")
    assert (
        bare("version", "-o", "name").out.strip()
        == json.loads(bare("version", "-o", "json").out)["version"]
    )


def test_options_may_stand_before_the_verb_or_after_it(bare, address, cluster, monkeypatch):
    where = ("--address", address, "--cluster", cluster)
    assert bare(*where, "apply", "-f", "-", stdin=CLUSTER).code == 0
    assert bare("get", "nodes", "-o", "name", *where).lines == ["node/a1", "node/a2", "node/b1"]
    monkeypatch.setenv("TOPOSPREAD_ADDRESS", "127.0.0.1:1")
    assert bare(*where, "get", "nodes").code == 0, "what is said wins over the environment"
    assert bare("--address", "127.0.0.1:1", "get", "nodes", *where).code == 0
    assert json.loads(bare("-o", "json", *where, "get", "nodes").out)["kind"] == "List"
    assert bare("-o", "yaml", *where, "get", "node", "a1", "-o", "name").lines == ["node/a1"]

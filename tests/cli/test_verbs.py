"""The verbs that write and read a cluster's state, against a real server."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from tests.cli.manifests import CLUSTER, POD
from tests.cli.processes import TOPOSPREAD, environment
from tests.servers import served
from tests.waiting import PATIENCE
from topospread_client import Client


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


@pytest.mark.parametrize("between", ["---\n", ""])
def test_replace_takes_json_documents_behind_which_the_end_is_marked(loaded, between):
    nodes = [f'{{"kind": "Node", "metadata": {{"name": "{name}"}}}}\n' for name in ("a1", "b1")]
    said = loaded("apply", "--replace", "-f", "-", stdin=between.join(nodes))
    assert said.code == 2
    assert "may have been cut" in said.err
    said = loaded("apply", "--replace", "-f", "-", stdin=between.join(nodes) + "...\n")
    assert (said.code, said.err) == (0, "")
    assert loaded("get", "nodes", "-o", "name").lines == ["node/a1", "node/b1"]


def test_replace_takes_the_version_of_the_oldest_kubelet(loaded):
    def node(name, kubelet):
        status = {"nodeInfo": {"kubeletVersion": kubelet}}
        return json.dumps({"kind": "Node", "metadata": {"name": name}, "status": status})

    nodes = node("a1", "v1.37.2") + "\n" + node("a2", "v1.36.9-eks-1") + "\n...\n"
    assert loaded("apply", "--replace", "-f", "-", stdin=nodes).code == 0
    assert "1.36" in loaded("status").out


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


def test_get_prints_manifests_that_can_be_applied_again(loaded):
    listed = loaded("get", "pods", "-o", "json")
    assert json.loads(listed.out)["kind"] == "List"
    again = loaded("apply", "-f", "-", "-o", "json", stdin=listed.out)
    assert {each["outcome"] for each in json.loads(again.out)["items"]} == {"Unchanged"}
    one = loaded("get", "pod", "web-0", "-n", "shop", "-o", "yaml")
    assert yaml.safe_load(one.out)["metadata"]["name"] == "web-0"


def test_status_shows_the_server_and_its_clusters(loaded, cluster):
    loaded("evaluate", "-f", "-", stdin=POD)
    said = loaded("status")
    assert said.code == 0
    assert "store:         memory:" in said.lines
    assert any(re.fullmatch("settings: +[0-9a-f]{12}", line) for line in said.lines)
    row = next(line for line in said.lines if line.startswith(cluster)).split()
    assert row[1:9] == ["ok", "-", "(as", "1.38)", "-", "3", "2", "1"], "no version, no sync"
    assert cluster in loaded("status", "-o", "name").lines
    value = json.loads(loaded("status", "-o", "json").out)
    mine = next(each for each in value["clusters"] if each["name"] == cluster)
    assert (mine["loaded"], mine["nodeCount"], mine["podCount"]) == (True, 3, 2)


def test_status_right_after_apply_has_its_counts(topospread, cluster):
    # No List, after which apply itself would ask for the counts.
    single = CLUSTER.partition("---")[2]
    assert topospread("apply", "-f", "-", stdin=single).code == 0
    row = next(line for line in topospread("status").lines if line.startswith(cluster)).split()
    assert row[1:9] == ["ok", "-", "(as", "1.38)", "-", "0", "2", "1"]
    assert row[10] == "0", "nothing lags"


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


def known(address):
    """Names of the server's clusters."""
    with Client(address) as client:
        return [each.name for each in client.list_clusters()]


@pytest.mark.parametrize("right", [True, False])
def test_at_a_terminal_its_name_is_asked_for(loaded, address, cluster, right):
    ours, theirs = pty.openpty()
    command = [*TOPOSPREAD, "delete", "cluster", cluster]
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(TOPOSPREAD_ADDRESS=address),
    ) as process:
        os.write(ours, f"{cluster if right else 'other'}\n".encode())
        _, err = process.communicate(timeout=PATIENCE)
    os.close(ours)
    os.close(theirs)
    assert "Type its name" in err
    there = cluster in known(address)
    assert (process.returncode, there) == ((0, False) if right else (2, True))


def test_a_place_is_held_for_as_long_as_is_asked_for(loaded):
    for verb in (("place",), ("reserve", "b1")):
        said = loaded(*verb, "-f", "-", "--ttl", "3600", "-o", "json", stdin=POD)
        (item,) = json.loads(said.out)["items"]
        left = datetime.fromisoformat(item["expireTime"]) - datetime.now(UTC)
        assert timedelta(minutes=50) < left < timedelta(minutes=70)

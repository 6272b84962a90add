"""A dump that is applied again: what the state has and the dump lacks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Command

GONE = (
    "34 pods of the state are not in this input: if it is all that there is, --replace removes them"
)


def node(number: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}}


def pod(number: int, namespace: str = "") -> dict[str, Any]:
    namespace = namespace or ("shop", "data")[number % 2]
    metadata = {"name": f"p{number}", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n0"}}


def dump(*objects: dict[str, Any]) -> str:
    """As `kubectl get -o json` prints it."""
    return json.dumps({"apiVersion": "v1", "items": objects, "kind": "List"})


NODES = [node(number) for number in range(3)]


@pytest.fixture
def applied(topospread: Command) -> Command:
    """The command, after a dump of 159 pods."""
    said = topospread("apply", "-f", "-", stdin=dump(*NODES, *map(pod, range(159))))
    assert (said.code, said.err) == (0, "")
    return topospread


def test_a_dump_that_lacks_pods_says_how_many_and_how_they_go(applied: Command) -> None:
    fewer = dump(*NODES, *map(pod, range(125)))
    said = applied("apply", "-f", "-", stdin=fewer)
    assert (said.code, said.err) == (0, f"{GONE}\n")
    document = json.loads(applied("apply", "-f", "-", "-o", "json", stdin=fewer).out)
    assert document["notInInput"] == [{"kind": "Pod", "count": 34}]
    assert applied("apply", "-f", "-", "--replace", stdin=fewer).err == ""
    again = applied("apply", "-f", "-", "-o", "json", stdin=fewer)
    assert (again.err, json.loads(again.out)["notInInput"]) == ("", [])
    assert len(applied("get", "-A", "pods", "-o", "name").lines) == 125


def test_nodes_are_counted_too(applied: Command) -> None:
    said = applied("apply", "-f", "-", stdin=dump(*NODES[:2], *map(pod, range(158))))
    assert said.err.startswith("1 node and 1 pod of the state are not in this input")


@pytest.mark.parametrize(
    "given",
    [
        json.dumps(pod(0)),
        "\n---\n".join(json.dumps(pod(number)) for number in range(100)),
        dump(*(pod(number, "shop") for number in range(0, 100, 2))),
        dump(NODES[0], pod(1)),
    ],
    ids=["one pod", "documents", "one namespace", "a node and a pod"],
)
def test_input_that_is_no_dump_of_all_brings_no_advice_to_remove(
    applied: Command, given: str
) -> None:
    assert applied("apply", "-f", "-", stdin=given).err == ""

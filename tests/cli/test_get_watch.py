"""`topospread get --watch`, as a process of its own that is ended by Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import contextmanager

import pytest

from tests.cli.conftest import check_document
from tests.cli.processes import TOPOSPREAD, environment
from tests.cli.spreads import NODES, node, pod
from tests.waiting import PATIENCE
from topospread.cli.errors import BAD_INPUT, DONE


@pytest.fixture
def loaded(topospread):
    given = NODES + pod("web", 0, "a1") + pod("db", 0, "a1", namespace="data")
    assert topospread("apply", "-f", "-", stdin=given).code == DONE
    return topospread


@pytest.fixture
def watching(address, cluster):
    @contextmanager
    def begin(*arguments):
        variables = {"TOPOSPREAD_ADDRESS": address, "TOPOSPREAD_CLUSTER": cluster}
        with subprocess.Popen(
            [*TOPOSPREAD, "get", *arguments, "--watch"],
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                yield process.stdout.readline
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE) == 130
            finally:
                process.kill()

    return begin


def test_objects_that_change_follow_the_list(loaded, watching):
    with watching("pods", "-n", "shop") as line:
        heading = line()
        assert heading.split()[:3] == ["NAMESPACE", "NAME", "NODE"]
        assert line().split()[:3] == ["shop", "web-0", "a1"]
        given = pod("x", 0, "b1", namespace="data") + pod("long-name", 1, "b1")
        loaded("apply", "-f", "-", stdin=given)
        assert line().split()[:3] == ["shop", "long-name-1", "b1"]
        loaded("delete", "pod", "web-0", "-n", "shop")
        gone = line()
        assert gone.split()[:3] == ["shop", "web-0", "a1"]
        assert gone.index("web-0") == heading.index("NAME", 9)


def test_objects_that_lose_their_labels_are_printed_once_more(loaded, watching):
    with watching("pods", "-l", "app=web", "-o", "name") as line:
        assert line() == "pod/shop/web-0\n"
        other = pod("web", 0, "a1").replace("{app: web}", "{app: other}")
        loaded("apply", "-f", "-", stdin=other)
        assert line() == "pod/shop/web-0\n"
        loaded("delete", "pod", "web-0", "-n", "shop")
        loaded("apply", "-f", "-", stdin=pod("web", 7, "b1"))
        assert line() == "pod/shop/web-7\n"


def test_only_objects_that_are_named_are_watched(loaded, watching):
    with watching("node/a1", "node/b1", "-o", "json") as line:
        assert [json.loads(line())["metadata"]["name"] for _ in range(2)] == ["a1", "b1"]
        loaded("apply", "-f", "-", stdin=node("a2", "z") + node("b1", "z"))
        document = json.loads(line())
        check_document(document)
        assert document["metadata"]["name"] == "b1"
        assert document["metadata"]["labels"]["topology.kubernetes.io/zone"] == "z"


MISTAKES = {
    ("constraints",): "`report --watch` shows the changes of constraints",
    ("reservations",): "`watch reservations` shows the changes of reservations",
    ("pods", "--from", "examples/cluster"): "--watch needs a server",
}


@pytest.mark.parametrize("asked", MISTAKES, ids=" ".join)
def test_watch_of_what_does_not_change_here_is_refused(loaded, asked):
    said = loaded("get", "-w", *asked)
    assert (said.code, said.out) == (BAD_INPUT, "")
    assert MISTAKES[asked] in said.err

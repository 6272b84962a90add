"""Watches, each as a process of its own that is ended by Ctrl-C: `watch`, `get` and `report`."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

from tests.cli.conftest import check_document
from tests.cli.manifests import POD
from tests.cli.processes import TOPOSPREAD, environment, run, serving
from tests.cli.spreads import NODES, STATES, node, pod
from tests.servers import Peer, served, two_zones
from tests.servers import pod as pod_on
from tests.telemetry.expositions import value
from tests.waiting import PATIENCE, until
from topospread.cli.errors import BAD_INPUT, DONE, INTERRUPTED, OUT_OF_REACH
from topospread.rpc import server as grpc_server


@contextmanager
def running(*arguments, stdout=subprocess.PIPE, **variables):
    """A watch, whose answer is a pipe, or what is given; it ends with what Ctrl-C ends with."""
    with subprocess.Popen(
        [*TOPOSPREAD, *arguments],
        env=environment(TERM="xterm", LINES="7", COLUMNS="120", **variables),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == INTERRUPTED
        finally:
            process.kill()


@pytest.fixture
def watching(address, cluster):
    """Begins a watch of the test's cluster."""
    return partial(running, TOPOSPREAD_ADDRESS=address, TOPOSPREAD_CLUSTER=cluster)


@pytest.fixture
def written(topospread):
    """The command, with pods in two namespaces."""
    given = NODES + pod("web", 0, "a1") + pod("db", 0, "a1", namespace="data")
    assert topospread("apply", "-f", "-", stdin=given).code == DONE
    return topospread


@pytest.fixture
def reported(topospread):
    """The command, with a constraint in each state."""
    assert topospread("apply", "-f", "-", stdin=STATES).code == DONE
    return topospread


@pytest.mark.parametrize("form", ["table", "json", "name"])
def test_initial_objects_and_changes_are_printed(loaded, watching, form):
    with watching("watch", "nodes", "--send-initial", "-o", form) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        assert loaded("delete", "node", "a1").code == DONE
        # A revision may hold the name of the node by chance.
        last = '"Deleted"' if form == "json" else "a1"
        while last not in lines[-1]:
            lines.append(process.stdout.readline())
    if form != "json":
        words = ["node/b1"] if form == "name" else ["applied", "node/b1"]
        assert lines[2].split() == words
        return
    documents = [json.loads(line) for line in lines]
    for document in documents:
        check_document(document)
    assert [each["type"] for each in documents if each["type"] != "Bookmark"] == [
        *["Applied"] * 3,
        "Deleted",
    ]
    assert documents[0]["object"]["kind"] == "Node"


HERE = "pod/shop/web-0"
WATCHED = {
    (HERE, "no"): {"node/a1", "node/a2", "node/b1", HERE},
    ("pods", "svc", "-n", "shop"): {HERE, "pod/shop/web-1", "pod/shop/web-2", "service/shop/web"},
    ("po/web-0", "svc", "-n", "shop"): {HERE, "service/shop/web"},
}


@pytest.mark.parametrize("arguments", WATCHED, ids=" ".join)
def test_watch_shows_the_objects_that_are_meant(loaded, watching, arguments):
    other = "kind: Pod\nmetadata: {name: web-0, namespace: elsewhere}\n"
    loaded("apply", "-f", "-", stdin=f"{other}---\n{POD}")
    with watching("watch", *arguments, "--send-initial", "-o", "name") as process:
        shown = WATCHED[arguments]
        assert {process.stdout.readline().strip() for _ in shown} == shown
        loaded("delete", "pod/elsewhere/web-0")
        loaded("delete", HERE)
        assert process.stdout.readline().strip() == HERE


def test_objects_that_change_follow_the_list(written, watching):
    with watching("get", "pods", "-n", "shop", "--watch") as process:
        heading = process.stdout.readline()
        assert heading.split()[:3] == ["NAMESPACE", "NAME", "NODE"]
        assert process.stdout.readline().split()[:3] == ["shop", "web-0", "a1"]
        given = pod("x", 0, "b1", namespace="data") + pod("long-name", 1, "b1")
        written("apply", "-f", "-", stdin=given)
        assert process.stdout.readline().split()[:3] == ["shop", "long-name-1", "b1"]
        written("delete", "pod", "web-0", "-n", "shop")
        gone = process.stdout.readline()
        assert gone.split()[:3] == ["shop", "web-0", "a1"]
        assert gone.index("web-0") == heading.index("NAME", 9)


def test_objects_that_lose_their_labels_are_printed_once_more(written, watching):
    with watching("get", "pods", "-l", "app=web", "-o", "name", "--watch") as process:
        assert process.stdout.readline() == "pod/shop/web-0\n"
        other = pod("web", 0, "a1").replace("{app: web}", "{app: other}")
        written("apply", "-f", "-", stdin=other)
        assert process.stdout.readline() == "pod/shop/web-0\n"
        written("delete", "pod", "web-0", "-n", "shop")
        written("apply", "-f", "-", stdin=pod("web", 7, "b1"))
        assert process.stdout.readline() == "pod/shop/web-7\n"


def test_only_objects_that_are_named_are_watched(written, watching):
    with watching("get", "node/a1", "node/b1", "-o", "json", "--watch") as process:
        names = [json.loads(process.stdout.readline())["metadata"]["name"] for _ in range(2)]
        assert names == ["a1", "b1"]
        written("apply", "-f", "-", stdin=node("a2", "z") + node("b1", "z"))
        document = json.loads(process.stdout.readline())
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


def change(command):
    """Even web out; log goes."""
    assert command("delete", "pod", "log-0", "-n", "shop").code == DONE
    more = pod("web", 8, "b1") + pod("web", 9, "b1")
    assert command("apply", "-f", "-", stdin=more).code == DONE


def rows_until(process, *wanted):
    """Rows by owner and state, to the last one of these that had not come."""
    missing, seen = set(wanted), []
    while missing:
        cells = process.stdout.readline().split()
        seen.append((cells[1], cells[5]))
        missing.discard(seen[-1])
    return seen


def test_changed_rows_follow_the_report(reported, watching):
    with watching("report", "--watch") as process:
        columns = "NAMESPACE OWNER KEY WHEN SKEW STATE PENDING BLOCKED SPREAD"
        assert process.stdout.readline().split() == columns.split()
        assert rows_until(process, ("StatefulSet/cart", "Satisfied")) == [
            ("StatefulSet/db", "Blocked"),
            ("StatefulSet/web", "Violated"),
            ("DaemonSet/log", "Ineffective"),
            ("StatefulSet/cart", "Satisfied"),
        ]
        change(reported)
        changed = rows_until(process, ("DaemonSet/log", "Gone"), ("StatefulSet/web", "Satisfied"))
        assert {owner for owner, _ in changed} == {"DaemonSet/log", "StatefulSet/web"}


def test_columns_of_a_report_stay_where_they_were(reported, watching):
    with watching("report", "--watch", "-n", "shop") as process:
        heading = process.stdout.readline()
        rows_until(process, ("StatefulSet/cart", "Satisfied"))
        reported("apply", "-f", "-", stdin=pod("a", 0, "a1", kind="Job"))
        row = process.stdout.readline()
        assert row.index("Job/a") == heading.index("OWNER")
        assert row.index("Satisfied") == heading.index("STATE")


def test_names_of_constraints_that_change_are_printed(reported, watching):
    first = reported("report", "web", "-o", "name").lines
    with watching("report", "--watch", "web", "-o", "name") as process:
        assert process.stdout.readline().split() == first
        change(reported)
        assert process.stdout.readline().split() == first


def test_each_change_of_a_constraint_is_a_document(reported, watching):
    gone: set[str] = set()
    only = ("--state", "violated,ineffective", "-o", "json")
    with watching("report", "--watch", *only) as process:
        seen = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [each["type"] for each in seen] == ["Applied", "Applied"]
        assert [each["constraint"]["skew"] for each in seen] == [3, 0]
        change(reported)
        while len(gone) < 2:
            seen.append(json.loads(process.stdout.readline()))
            if seen[-1]["type"] == "Deleted":
                gone.add(seen[-1]["constraint"]["owner"]["name"])
    assert gone == {"web", "log"}
    for document in seen:
        check_document(document)


def test_a_report_is_drawn_again_on_a_terminal(reported, watching):
    written = ""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 7, 120, 0, 0))

    def screen_of(text):
        """What a screen shows once this is in it."""
        nonlocal written
        while True:
            screens = written.split("\x1b[H\x1b[J")
            if text in screens[-1]:
                return re.sub(r"\x1b\[[0-9;]*m", "", screens[-1]).splitlines()
            written += os.read(ours, 65536).decode()

    def owners(rows):
        return [row.split()[1].partition("/")[2] for row in rows]

    try:
        with watching("report", "--watch", stdout=its):
            shown = screen_of("1 satisfied")
            assert shown[0].split()[:2] == ["NAMESPACE", "OWNER"]
            assert owners(shown[1:4]) == ["db", "web", "log"]
            assert shown[4:] == [
                "... and 1 more",
                "4 constraints: 1 blocked, 1 violated, 1 ineffective, 1 satisfied",
            ]
            change(reported)
            assert owners(screen_of("1 blocked, 2 satisfied")[1:4]) == ["db", "web", "cart"]
    finally:
        os.close(ours)
        os.close(its)


def test_watch_continues_when_its_connection_is_cut(monkeypatch):
    monkeypatch.setattr(grpc_server, "MAX_AGE_GRACE_MS", 50)
    labels = {"method": "ClusterStateService/WatchObjects", "code": "CANCELLED"}
    with served(max_connection_age=1.0) as server, Peer(server.address) as peer:

        def cut(times):
            name = "topospread_calls_total"
            return (value(server.metrics.expose()[0], name, **labels) or 0) >= times

        peer.apply(*two_zones())
        names = ("watch", "pods", "-o", "name")
        with running(*names, TOPOSPREAD_ADDRESS=server.address) as process:
            for number in (1, 2):
                until(partial(cut, number), "the watch is cut")
                peer.apply(pod_on(f"p{number}", "a1"))
                assert process.stdout.readline() == f"pod/default/p{number}\n"
            process.send_signal(signal.SIGINT)
            assert process.stderr.read().split() == ["topospread:", "interrupted"]


LASTING = (
    ("watch", "pods", "--send-initial"),
    ("get", "pods", "--watch"),
    ("report", "--watch"),
)


def test_watches_go_on_after_a_restart_that_takes_longer_than_a_first_call_waits(tmp_path):
    store = ("--http", "off", "--store", f"sqlite:///{tmp_path}/state.db")
    with ExitStack() as opened:
        with serving(*store) as (_, address):
            at = {"TOPOSPREAD_ADDRESS": address}

            def write(*objects):
                assert run("apply", "-f", "-", stdin="".join(objects), **at).returncode == DONE

            write(NODES, pod("old", 0, "a1"))
            watches = [
                opened.enter_context(running(*words, "-o", "json", **at)) for words in LASTING
            ]
            for each in watches:
                read_until(each, '"old')
            write(pod("seen", 0, "a1"))
            for each in watches:
                read_until(each, '"seen')
        assert run("status", **at).returncode == OUT_OF_REACH
        with serving("--listen", address, *store):
            write(pod("new", 0, "b1"))
            for each in watches:
                read_until(each, '"new')
            opened.close()


def read_until(process, text):
    """Read lines to one with this text."""
    while text not in (line := process.stdout.readline()):
        assert line, process.communicate()[1]

"""`topospread report --watch`, as a process of its own that is ended by Ctrl-C."""

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
from contextlib import contextmanager

import pytest

from tests.cli.conftest import check_document
from tests.cli.processes import TOPOSPREAD, environment
from tests.cli.spreads import STATES, pod
from tests.waiting import PATIENCE
from topospread.cli.errors import DONE


@pytest.fixture
def loaded(topospread):
    assert topospread("apply", "-f", "-", stdin=STATES).code == DONE
    return topospread


@pytest.fixture
def watching(address, cluster):
    """Watches in a process of its own; its answer is a pipe, or what is given."""

    @contextmanager
    def begin(*arguments, stdout=subprocess.PIPE):
        variables = {"TOPOSPREAD_ADDRESS": address, "TOPOSPREAD_CLUSTER": cluster}
        with subprocess.Popen(
            [*TOPOSPREAD, "report", "--watch", *arguments],
            env=environment(TERM="xterm", LINES="7", COLUMNS="120", **variables),
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
                process.send_signal(signal.SIGINT)
                assert process.wait(PATIENCE) == 130
            finally:
                process.kill()

    return begin


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


def test_changed_rows_follow_the_table(loaded, watching):
    with watching() as process:
        columns = "NAMESPACE OWNER KEY WHEN SKEW STATE PENDING BLOCKED SPREAD"
        heading = process.stdout.readline()
        assert heading.split() == columns.split()
        assert rows_until(process, ("StatefulSet/cart", "Satisfied")) == [
            ("StatefulSet/db", "Blocked"),
            ("StatefulSet/web", "Violated"),
            ("DaemonSet/log", "Ineffective"),
            ("StatefulSet/cart", "Satisfied"),
        ]
        change(loaded)
        changed = rows_until(process, ("DaemonSet/log", "Gone"), ("StatefulSet/web", "Satisfied"))
        assert {owner for owner, _ in changed} == {"DaemonSet/log", "StatefulSet/web"}


def test_columns_stay_where_they_were(loaded, watching):
    with watching("-n", "shop") as process:
        heading = process.stdout.readline()
        rows_until(process, ("StatefulSet/cart", "Satisfied"))
        loaded("apply", "-f", "-", stdin=pod("a", 0, "a1", kind="Job"))
        row = process.stdout.readline()
        assert row.index("Job/a") == heading.index("OWNER")
        assert row.index("Satisfied") == heading.index("STATE")


def test_names_of_what_changes_are_printed(loaded, watching):
    first = loaded("report", "web", "-o", "name").lines
    with watching("web", "-o", "name") as process:
        assert process.stdout.readline().split() == first
        change(loaded)
        assert process.stdout.readline().split() == first


def test_each_change_is_a_document(loaded, watching):
    gone: set[str] = set()
    with watching("--state", "violated,ineffective", "-o", "json") as process:
        seen = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [each["type"] for each in seen] == ["Applied", "Applied"]
        assert [each["constraint"]["skew"] for each in seen] == [3, 0]
        change(loaded)
        while len(gone) < 2:
            seen.append(json.loads(process.stdout.readline()))
            if seen[-1]["type"] == "Deleted":
                gone.add(seen[-1]["constraint"]["owner"]["name"])
    assert gone == {"web", "log"}
    for document in seen:
        check_document(document)


def test_table_is_drawn_anew_on_a_terminal(loaded, watching):
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

    try:
        with watching(stdout=its):
            shown = screen_of("1 satisfied")
            assert shown[0].split()[:2] == ["NAMESPACE", "OWNER"]
            assert [row.split()[1] for row in shown[1:4]] == [
                "StatefulSet/db",
                "StatefulSet/web",
                "DaemonSet/log",
            ]
            assert shown[4:] == [
                "... and 1 more",
                "4 constraints: 1 blocked, 1 violated, 1 ineffective, 1 satisfied",
            ]
            change(loaded)
            shown = screen_of("1 blocked, 2 satisfied")
            assert [row.split()[1] for row in shown[1:4]] == [
                "StatefulSet/db",
                "StatefulSet/web",
                "StatefulSet/cart",
            ]
    finally:
        os.close(ours)
        os.close(its)

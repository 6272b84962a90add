"""Watches go on when their server is back; a call to a server that is not there ends soon."""

from __future__ import annotations

import signal
import subprocess
from contextlib import ExitStack

from tests.cli.processes import TOPOSPREAD, environment, run, serving
from tests.cli.spreads import NODES, pod
from tests.waiting import PATIENCE
from topospread.cli.errors import DONE, INTERRUPTED, OUT_OF_REACH

WATCHES = (
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
            watches = [opened.enter_context(_watch(*arguments, **at)) for arguments in WATCHES]
            for each in watches:
                opened.callback(each.kill)
                _read_until(each, '"old')
            write(pod("seen", 0, "a1"))
            for each in watches:
                _read_until(each, '"seen')
        assert run("status", **at).returncode == OUT_OF_REACH
        with serving("--listen", address, *store):
            write(pod("new", 0, "b1"))
            for each in watches:
                _read_until(each, '"new')
                each.send_signal(signal.SIGINT)
                assert each.wait(PATIENCE) == INTERRUPTED


def _watch(*arguments, **variables):
    return subprocess.Popen(
        [*TOPOSPREAD, *arguments, "-o", "json"],
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _read_until(process, text):
    """Read lines to one with this text."""
    while text not in (line := process.stdout.readline()):
        assert line, process.communicate()[1]

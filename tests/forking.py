"""Command lines as processes that need not import anything first.

An interpreter takes most of a second of a processor to import the server, and tests start hundreds
of servers. Here they are forks of one process that has it imported: `python -m tests.forking`,
which has a single thread and no state but modules. What a fork does is what `python -m topospread`
does from its first line on, with its own arguments, variables and files.
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.redis_server import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONGEST = 1 << 17
"""Bytes of a request: arguments and variables."""

_ONE_AT_A_TIME = threading.Lock()


class ForkedProcess:
    """A fork that runs `topospread`, as far as subprocess.Popen tells of it.

    Attributes:
        pid: of the operating system.
        stdout: what it prints.
        returncode: once it has ended, and that was asked for.
    """

    def __init__(
        self, arguments: Sequence[str], variables: Mapping[str, str], stderr: int | None
    ) -> None:
        read, write = os.pipe()
        self._status, status = os.pipe()
        request = json.dumps([list(arguments), dict(variables), os.getcwd()]).encode()
        template = _template()
        with open(os.devnull) as nothing, _ONE_AT_A_TIME:
            files = [nothing.fileno(), write, 2 if stderr is None else stderr, status]
            socket.send_fds(template, [request], files)
            self.pid = int.from_bytes(template.recv(8))
        os.close(write)
        os.close(status)
        assert self.pid, "the process that forks has ended"
        self.stdout = os.fdopen(read, encoding="utf-8")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, if it has ended; the negative number of the signal that ended it."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code.

        Raises:
            TimeoutExpired: it has not ended in time.
        """
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("topospread", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            status = os.read(self._status, 8)
            os.close(self._status)
            assert len(status) == 8, "the process that waits for the fork was killed"
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(status))
        return self.returncode


@functools.cache
def _template() -> socket.socket:
    """The connection to the process that forks, which is started once."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made = subprocess.Popen(
        [sys.executable, "-m", "tests.forking", str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        # NumPy's threads would be there before the fork, and not after it.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    theirs.close()

    def end() -> None:
        ours.close()
        made.wait()

    atexit.register(end)
    return ours


def main(asked: socket.socket) -> None:
    """Fork for each request until there are none; returns in the forks alone."""
    for module in ("topospread.app.runner", "topospread.cli.commands.serve", "redis.sentinel"):
        importlib.import_module(module)
    gc.freeze()
    faulthandler.enable()
    while True:
        request, files, _, _ = socket.recv_fds(asked, LONGEST, 4)
        if not request:
            sys.exit()
        if not os.fork():
            _become(request, files, asked)
            return
        for each in files:
            os.close(each)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _become(request: bytes, files: Sequence[int], asked: socket.socket) -> None:
    """Leave a child behind that runs the command line, and report how it ends."""
    *standard, status = files
    if child := os.fork():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        asked.send(child.to_bytes(8))
        asked.close()
        for each in standard:
            os.close(each)
        os.write(status, os.waitpid(child, 0)[1].to_bytes(8))
        os._exit(0)
    asked.close()
    os.close(status)
    for at, each in enumerate(standard):
        os.dup2(each, at)
        os.close(each)
    # Those of before know whether the files of before could be sought in.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    arguments, variables, folder = json.loads(request)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.argv = ["topospread", *arguments]


def _run() -> Any:
    return runpy.run_module("topospread", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
    _run()

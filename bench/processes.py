"""Processes: servers that are measured through /proc, and workers that measure in turns."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from topospread.cli.errors import BadInput, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection


_TICKS: Final = os.sysconf("SC_CLK_TCK")
_LISTENS: Final = " listens on "
_END_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Running:
    """A process under measurement.

    Attributes:
        address: host:port where it serves.
        started, ready: when it was started and when it served, on the monotonic clock.
        output: what else it prints, line by line.
    """

    pid: int
    address: str
    started: float = 0.0
    ready: float = 0.0
    output: IO[str] | None = None

    def cpu(self) -> float:
        """Seconds of CPU that all its threads used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def resident(self) -> float:
        """MB (10⁶ bytes) of memory that it holds."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise Unreachable(f"the process {self.pid} is gone")


def machine_cpu() -> float:
    """Seconds of CPU that everything on this machine used so far."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    idle, waiting = fields[3], fields[4]
    return (sum(fields) - idle - waiting) / _TICKS


def require_proc() -> None:
    """Refuse to measure without the figures of /proc.

    Raises:
        BadInput: this is not Linux.
    """
    if not Path("/proc/self/stat").exists():
        raise BadInput("bench reads CPU and memory of its servers from /proc: run it on Linux")


@contextmanager
def server(
    store: str,
    *flags: str,
    environ: Mapping[str, str] | None = None,
    preload: str = "default",
) -> Iterator[Running]:
    """A `topospread serve` of its own, ready to answer.

    Args:
        store: address of the store that it follows.
        flags: more settings.
        environ: variables beside those of this process; no OTEL_* of this process is passed on.
        preload: clusters that are there before it is ready.
    """
    command = (
        *("-m", "topospread", "serve", "--listen", "127.0.0.1:0", "--http", "off"),
        *("--preload", preload, "--log-level", "warning"),
        *flags,
    )
    # The address may hold a password, which would show in `ps`.
    with started(command, {"TOPOSPREAD_STORE": store, **(environ or {})}) as running:
        yield running


@contextmanager
def started(
    command: Sequence[str], environ: Mapping[str, str], python: str = sys.executable
) -> Iterator[Running]:
    """A Python process that prints `… listens on HOST:PORT` once it serves.

    Raises:
        Unreachable: it ended before that; its output is on stderr.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OTEL_", "TOPOSPREAD_"))
    }
    begun = time.monotonic()
    process = subprocess.Popen(
        [python, *command],
        env={**inherited, **environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if _LISTENS not in line:
            raise Unreachable("a server of the bench did not start")
        address = line.partition(_LISTENS)[2].strip()
        yield Running(process.pid, address, begun, time.monotonic(), process.stdout)
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


class WorkerProcess:
    """A process that holds a subject and calls functions with it."""

    def __init__(self, link: Connection[Any, Any]) -> None:
        self._link = link

    def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``work(subject, *arguments)`` in the process and return what it returns.

        Args:
            work: a function of a module: the process imports it.
            arguments: what pickles.

        Raises:
            Unreachable: the process ended; its output is on stderr.
        """
        try:
            self._link.send((work, arguments))
            return self._link.recv()
        except (EOFError, OSError) as cause:
            raise Unreachable("a measuring process of the bench ended early") from cause


@contextmanager
def worker_process(make: Callable[..., Any], *arguments: Any) -> Iterator[WorkerProcess]:
    """A process with the subject that ``make(*arguments)`` returns, until this is left.

    A subject with a `close` is closed then.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_live, args=(theirs, make, arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        yield WorkerProcess(ours)
    finally:
        ours.close()
        process.join(20.0)
        if process.is_alive():
            process.kill()
            process.join()


def _live(link: Connection[Any, Any], make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    subject = make(*arguments)
    with ExitStack() as closing:
        if hasattr(subject, "close"):
            closing.callback(subject.close)
        while True:
            try:
                work, given = link.recv()
            except EOFError:
                return
            link.send(work(subject, *given))

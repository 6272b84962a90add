"""The state of processes, from /proc."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def suspended(pid: int) -> Iterator[None]:
    """A process stands still, as one whose share of the processors is used up does.

    What callers send meanwhile is there at once when it goes on.
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: stopped(pid), "the process stands still")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def stopped(pid: int) -> bool:
    """Whether SIGSTOP has reached all its threads: the first that runs tells the others."""
    threads = [_stat(pid, f"task/{thread}/") for thread in os.listdir(f"/proc/{pid}/task")]
    return all(said[:1] == ["T"] for said in threads)


def _stat(pid: int, thread: str = "") -> list[str]:
    """The fields from the state on, which follow a name that may hold anything."""
    return _said(f"/proc/{pid}/{thread}stat").rpartition(")")[2].split()


def _said(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""

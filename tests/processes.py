"""What the system says of processes: whose they are, whether they stand still or have ended."""

from __future__ import annotations

import os


def parent(pid: int) -> int:
    """The process that started it; 0 once it is gone."""
    said = _stat(pid)
    return int(said[1]) if said else 0


def command(pid: int) -> str:
    """What it was started with; empty once it has ended."""
    return _said(f"/proc/{pid}/cmdline")


def gone(pid: int) -> bool:
    """Whether it has ended, also if nobody has taken note of it yet."""
    said = _stat(pid)
    return not said or said[0] == "Z"


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

"""The state of processes, from /proc."""

from __future__ import annotations

import os


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

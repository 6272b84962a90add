"""Shows in half a minute what topospread does: `make demo`.

Starts a server of its own with a store in a temporary file, loads the sample cluster, and judges
three pods: one that fits, one that fits in a single zone, one that fits nowhere. Then it ends.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from examples.scheduler_loop import schedule
from topospread_client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
TOPOSPREAD = [sys.executable, "-m", "topospread"]
FITS, NO_NODE_FITS = 0, 1
STORIES = [
    ("A pod that fits", "fits.yaml", FITS),
    ("A pod that fits in one zone only", "fits-one-zone.yaml", FITS),
    ("A pod that fits nowhere", "fits-nowhere.yaml", NO_NODE_FITS),
]


def main() -> None:
    """Run the demonstration; an answer that is not the expected one ends it with an error."""
    with (
        tempfile.TemporaryDirectory(prefix="topospread-demo-") as folder,
        serving(folder) as address,
    ):
        step("The sample cluster: 60 nodes in 5 zones, 400 pods")
        topospread("apply", "-f", "examples/cluster", "--address", address)
        for title, file, expected in STORIES:
            step(title)
            path = f"examples/pods/{file}"
            topospread("evaluate", "-f", path, "--address", address, expected=expected)
        step("Nine waiting pods, placed one after the other by examples/scheduler_loop.py")
        topospread("apply", "-f", "examples/waiting", "--address", address)
        with Client(address) as client:
            schedule(client)
        step("How the server follows the cluster")
        topospread("status", "--address", address)


@contextmanager
def serving(folder: str) -> Iterator[str]:
    """A server on a port that the system chooses; yields its address and stops it in the end."""
    store = f"sqlite:///{folder}/state.db"
    where = ["--listen", "127.0.0.1:0", "--http", "off", "--store", store]
    command = [*TOPOSPREAD, "serve", *where, "--log-level", "warning"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            first = server.stdout.readline() if server.stdout else ""
            match = re.search(r"listens on (\S+)", first)
            if match is None:
                raise SystemExit("demo: the server did not start; see its messages above")
            yield match.group(1)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=30)


def topospread(*arguments: str, expected: int = 0) -> None:
    """Run a command line as a person would."""
    print(f"$ topospread {' '.join(arguments)}", flush=True)
    code = subprocess.run([*TOPOSPREAD, *arguments], cwd=ROOT, check=False).returncode
    if code != expected:
        raise SystemExit(f"demo: that ended with {code}, not {expected}")


def step(title: str) -> None:
    """Head what follows."""
    print(f"\n=== {title}\n", flush=True)


if __name__ == "__main__":
    main()

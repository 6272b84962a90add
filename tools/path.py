"""`python -m tools.path EvaluatePod`: count the server's files that a decision's call enters.

Servers in this process have examples/cluster. Counted are the files that the deciding thread enters
(of all threads the one that enters most) for a pod whose shape is known, where no result is
remembered (judged) and where it is (remembered), each in the shortest of several calls: some calls
do housekeeping too.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import yaml

from tools.loc import ROOT
from topospread.app.server import Server
from topospread.config.loading import load_settings
from topospread_client import Client

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

SERVER: Final = str(ROOT / "server")
SETTINGS: Final = {"listen": "127.0.0.1:0", "http": "off", "store": "memory:"}
CALLS: Final = 5
"""Of each kind; before them comes one that makes what a new server lacks."""


class Profiler:
    """A record of the server's files that each thread enters, of threads that start after it."""

    def __init__(self) -> None:
        self._entered: defaultdict[int, set[str]] = defaultdict(set)
        threading.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(SERVER):
            self._entered[threading.get_ident()].add(file)

    def files(self, call: Callable[[], object]) -> set[str]:
        """Return the files of the thread that enters most of them during a call."""
        self._entered.clear()
        call()
        return max(list(self._entered.values()), key=len)


CALLED: Final[dict[str, Callable[[Client, Any], object]]] = {
    "EvaluatePod": Client.evaluate_pod,
    "PreFilter": Client.pre_filter,
    "Filter": Client.filter,
    "Score": Client.score,
    "PlacePod": Client.place_pod,
}


def entered(method: str) -> dict[str, set[str]]:
    """Return the files that a method enters: where no result is remembered, and where it is."""
    profiler = Profiler()
    pod = yaml.safe_load((ROOT / "examples/pods/fits.yaml").read_text("utf-8"))
    call = CALLED[method]
    found = {}
    for way, remembers in (("judged", False), ("remembered", True)):
        if remembers and method != "EvaluatePod":
            continue  # of the others no result is
        with Server(load_settings(SETTINGS, {})) as server, Client(server.address) as client:
            server.parts.engine.remembers = remembers
            for each in (ROOT / "examples/cluster").glob("*.yaml"):
                client.apply_objects(list(yaml.load_all(each.read_text("utf-8"), yaml.CSafeLoader)))
            call(client, pod)
            calls = [profiler.files(lambda: call(client, pod)) for _ in range(CALLS)]
        found[way] = min(calls, key=len)
    return found


def main(arguments: list[str]) -> None:
    """Print the files of a method's ways, and how many they are."""
    if len(arguments) != 1 or arguments[0] not in CALLED:
        sys.exit(f"usage: python -m tools.path {'|'.join(CALLED)}")
    for way, files in entered(arguments[0]).items():
        for file in sorted(files):
            print(file.removeprefix(f"{ROOT}/"))
        print(f"{arguments[0]}, {way}: {len(files)} files")


if __name__ == "__main__":
    main(sys.argv[1:])

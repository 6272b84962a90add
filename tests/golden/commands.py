"""Command lines whose output and exit code are recorded, each for a cause of its own."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, Final

from tests.golden.answers import HIDDEN, hide_text

OFFLINE: Final = {
    "fits": "evaluate --from examples/cluster -f examples/pods/fits.yaml -o json",
    "fits nowhere": "evaluate --from examples/cluster -f examples/pods/fits-nowhere.yaml -o json",
    "of the state": "evaluate --from examples/explain/outage.yaml jobs/worker-8 -o json",
    "explained": "explain --from examples/report data/orders-2 -o json",
    "pending": "explain --from examples/report --pending -o json",
    "explained for people": "explain --from examples/cluster -f examples/pods/fits-nowhere.yaml",
    "report": "report --from examples/report -o json",
    "report of the sample": "report --from examples/cluster -o json",
    "report fails": "report --from examples/report --fail-on violated -o json",
    "mistakes": "lint -f examples/explain/typo.yaml -o json",
    "mistakes in a cluster": "lint -f examples/explain/typo.yaml --from examples/cluster -o json",
    "no mistakes": "lint -f examples/simulate/web.yaml -o json",
    "simulated": (
        "simulate --from examples/simulate/cluster.yaml -f examples/simulate/web.yaml -o json"
    ),
    "drained": (
        "simulate --from examples/cluster --drain general-eu-central-a-00 --reschedule -o json"
    ),
    "plan": "plan-rebalance --from examples/rebalance -o json",
    "no plan": "plan-rebalance --from examples/report -o json",
    "deleted of the state": "rank-deletions --from examples/cluster -n shop -l app=web -o json",
}
"""What is asked about files."""

OF_A_SERVER: Final = {
    "nodes": "get nodes --cluster report -o json",
    "pods": "get pods --cluster report -A -o json",
    "constraints": "get constraints --cluster report -o json",
    "table": "get pods --cluster report -A",
    "report of a server": "report --cluster report -o json",
    "deleted": "rank-deletions -f examples/scale-down --cluster report -o json",
    "dump": "dump --cluster report",
    "placed": "place -f examples/pods/fits.yaml --cluster sample -o json",
    "reserved": (
        "reserve -f examples/pods/fits.yaml general-eu-central-d-01 --cluster sample -o json"
    ),
    "held": "get reservations --cluster sample -A -o json",
    "released": "release shop/web-next --cluster sample -o json",
    "released again": "release shop/web-next --cluster sample -o json",
    "no such cluster": "get nodes --cluster nowhere -o json",
    "no such node": "get nodes nobody --cluster report",
    "no such pod": "evaluate default/nobody --cluster report -o json",
    "refused": "evaluate -f examples/pods/fits.yaml --cluster Nowhere -o json",
}
"""What is asked of a server that has the clusters sample and report."""

MISTAKEN: Final = {
    "unknown verb": "aply",
    "unknown option": "status --fast",
    "no file": "apply",
    "no such file": "apply -f none.yaml",
    "no such file, as JSON": "apply -f none.yaml -o json",
    "no selector": "rank-deletions --from examples/cluster -l a=b=c -o json",
    "plain text afar": "status --address 10.9.8.7:1",
    "no server": "status --address 127.0.0.1:1 --timeout 5",
    "no server, as JSON": "status --address 127.0.0.1:1 --timeout 5 -o json",
    "no such settings": "config check none.yaml",
}
"""What nothing is asked of."""

_IDS: Final = frozenset(
    {"revision", "reservationId", "expireTime", "storeIdentity", "requestId", "traceId"}
)
_TIMES: Final = re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z\b")


def all_commands(address: str) -> dict[str, list[str]]:
    """Return the arguments of each command line by its title.

    Args:
        address: of the server; empty leaves out what is asked of one.
    """
    chosen = {**OFFLINE, **MISTAKEN}
    found = {title: shlex.split(line) for title, line in chosen.items()}
    if address:
        for title, line in OF_A_SERVER.items():
            found[title] = [*shlex.split(line), "--address", address]
    return found


def comparable(code: int, out: str, err: str, address: str) -> dict[str, Any]:
    """Return what a command line printed and how it ended, without ids and times."""
    shown: dict[str, Any] = {"exit code": code}
    for name, text in (("stdout", out), ("stderr", err)):
        try:
            shown[name] = _hidden(json.loads(text))
        except ValueError:
            plain = text.replace(address, "ADDRESS") if address else text
            shown[name] = _TIMES.sub(HIDDEN, hide_text(plain)).splitlines()
    return shown


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: HIDDEN if key in _IDS else _hidden(each) for key, each in value.items()}
    return [_hidden(each) for each in value] if isinstance(value, list) else value

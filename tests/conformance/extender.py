"""The scheduler extender, asked as kube-scheduler asks it: a pod and the names of nodes."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.conformance.cases import Decision, Json
from tests.conformance.reconfigured import Reconfigured, configured_server
from tests.servers import Peer
from tests.waiting import PATIENCE
from topospread.app.server import Server
from topospread.spread.verdicts import error_message, fit_message

UNKNOWN_NODE = "node-of-no-cluster"
"""It passes only where the plugin skips: so much an answer tells of PreFilter."""


@contextmanager
def over_extender() -> Iterator["OverExtender"]:
    """A server of its own, behind its extender."""
    with (
        configured_server(http="127.0.0.1:0") as (server, peer, file),
        httpx.Client(
            base_url=f"http://{server.http_address}", trust_env=False, timeout=PATIENCE
        ) as client,
    ):
        evaluator = OverExtender(peer, server, file, client)
        yield evaluator
        evaluator.close()


class OverExtender(Reconfigured):
    """A server behind its extender; clusters come to it over gRPC, rules by its configuration.

    It tells verdicts on nodes and no other member of an answer, and is asked no what-ifs.
    """

    members = frozenset({"filter"})

    def __init__(self, peer: Peer, server: Server, file: Path, client: httpx.Client) -> None:
        super().__init__(peer, server, file)
        self._client = client

    def evaluate(self, case: Decision) -> Json:
        """See Evaluator."""
        nodes = [node["metadata"]["name"] for node in case.cluster.get("nodes") or ()]
        result = self.ask("filter", case, [*nodes, UNKNOWN_NODE])
        if result["Error"] or UNKNOWN_NODE in result["NodeNames"]:
            return {}
        return {"filter": {name: status_in(result, name) for name in nodes}}

    def condition(self, case: Decision) -> Json | None:
        """See Evaluator; the scheduler makes it of what the extender says of all nodes."""
        nodes = [node["metadata"]["name"] for node in case.cluster.get("nodes") or ()]
        if not nodes:
            return {"reason": "Unschedulable", "message": fit_message(0, {})}
        result = self.ask("filter", case, nodes)
        if result["Error"]:
            return {"reason": "SchedulerError", "message": error_message(result["Error"])}
        if result["NodeNames"]:
            return None
        reasons = Counter(status_in(result, name)["reasons"][0] for name in nodes)
        return {"reason": "Unschedulable", "message": fit_message(len(nodes), reasons)}

    def ask(self, verb: str, case: Decision, names: list[str]) -> Json:
        """What the extender answers, at a state that has all of the case's cluster."""
        place = self.load(case.cluster)
        self.settings(case)
        self.await_revision(place)
        args = {"Pod": case.pod, "Nodes": None, "NodeNames": names}
        answer = self._client.post(f"/extender/v1/{place.name}/{verb}", json=args)
        assert answer.status_code == httpx.codes.OK, answer.text
        result: Json = answer.json()
        return result


def status_in(result: Json, name: str) -> Json:
    """The verdict on a node; of the message, upstream's reason, which is what it begins with."""
    if name in result["NodeNames"]:
        return {"code": "Success", "reasons": []}
    for member, code in (
        ("FailedNodes", "Unschedulable"),
        ("FailedAndUnresolvableNodes", "UnschedulableAndUnresolvable"),
    ):
        if name in result[member]:
            reason, _, _ = result[member][name].partition(": ")
            return {"code": code, "reasons": [reason]}
    raise AssertionError(f"nothing is said of {name}")

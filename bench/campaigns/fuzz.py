"""Mutated requests to a server, and what came of them.

A finding is a call that ends INTERNAL, UNKNOWN or DATA_LOSS, one that hangs, a page that answers
500, or a server that afterwards does not answer as before: docs/security.md promises that there is
none.
"""

from __future__ import annotations

import gzip
import http.client
import json
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import click
import grpc
from google.protobuf.message_factory import GetMessageClass

from bench.campaigns.campaign import Outcome, campaign, run, seed_option
from bench.campaigns.findings import Findings, resident
from bench.campaigns.mutation import mutated_bytes, mutated_message
from tests.servers import Peer, evaluate_request, incoming, node, pod, served, two_zones
from topospread.generated.cluster_autoscaler import expander_pb2
from topospread_client import pod_from_manifest
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    common_pb2,
    decision_service_pb2,
    inspector_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
)

if TYPE_CHECKING:
    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.message import Message

    from topospread.app.server import Server

SAMPLES: Final = Path(__file__).parents[2] / "tests" / "samples"
"""What a real kube-scheduler and a real cluster-autoscaler sent."""

FILES: Final = (
    decision_service_pb2,
    inspector_service_pb2,
    cluster_state_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
    expander_pb2,
)
FAULTS: Final = {"INTERNAL", "UNKNOWN", "DATA_LOSS"}
DEADLINE: Final = 30.0
"""Seconds of a call: what takes longer hangs. A watch lasts for as long as it may."""

WATCH: Final = 0.05


class Fuzzer:
    """Mutated requests to one server.

    Args:
        server: which, with the extender on.
        seed: of all that is random.
    """

    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._random = Random(seed)
        self._methods = [
            method
            for file in FILES
            for service in file.DESCRIPTOR.services_by_name.values()
            for method in service.methods
        ]
        self.found = Findings()

    def run(self, requests: int) -> Findings:
        """Send so many; one in ten over HTTP."""
        half = 0
        with Peer(self._server.address) as peer:
            peer.apply(*two_zones())
            for number in range(requests):
                if number % 10 == 9:
                    self._browse()
                else:
                    self._call(peer, self._random.choice(self._methods))
                self.found.sent += 1
                if number == requests // 2:
                    half = resident()
                if number % 500 == 499:
                    self._look(peer)
            self._look(peer)
        self.found.grown = resident() - half
        return self.found

    def _call(self, peer: Peer, method: MethodDescriptor) -> None:
        path = f"/{method.containing_service.full_name}/{method.name}"
        raws = [self._raw(method) for _ in range(self._random.choice((1, 1, 1, 2, 3)))]
        if not method.client_streaming:
            raws = raws[:1]
        stub: Any = peer.channel.stream_stream(path)
        lasts = method.name in ("WatchObjects", "WatchConstraints")
        call = stub(iter(raws), timeout=WATCH if lasts else DEADLINE)
        try:
            for _ in call:
                pass
            code = "OK"
        except grpc.RpcError as error:
            code = _code(error)
        self.found.codes[code] += 1
        if code in FAULTS or (code == "DEADLINE_EXCEEDED" and not lasts):
            self.found.faults.append(f"{path} {code} {call.details()!r} {raws!r}")

    def _raw(self, method: MethodDescriptor) -> bytes:
        message = example(GetMessageClass(method.input_type), self._random)
        if self._random.random() < 0.8:
            mutated_message(message, self._random)
        raw = message.SerializeToString()
        return mutated_bytes(raw, self._random) if self._random.random() < 0.3 else raw

    def _browse(self) -> None:
        """One request to an HTTP path."""
        verb, path, body, headers = http_request(self._random)
        host, _, port = self._server.http_address.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=DEADLINE)
        try:
            connection.request(verb, path, body, headers)
            answer = connection.getresponse()
            answer.read()
            code = str(answer.status)
        except TimeoutError:
            code = "hangs"
        except (OSError, http.client.HTTPException):
            code = "closed"
        finally:
            connection.close()
        self.found.codes[f"HTTP {code}"] += 1
        if code in {"500", "hangs"}:
            self.found.faults.append(f"{path} {code} {headers} {body!r}")

    def _look(self, peer: Peer) -> None:
        """A cluster that no mutation writes to is judged as ever."""
        peer.apply(*two_zones(), cluster="untouched")
        answer = peer.evaluate(cluster="untouched")
        if (answer.node_count, answer.feasible_node_count) != (3, 1):
            self.found.faults.append(
                f"untouched: {answer.feasible_node_count} of {answer.node_count} nodes"
            )


_ARGUMENTS: Final[tuple[dict[str, Any], ...]] = (
    {"Pod": incoming(), "Nodes": None, "NodeNames": ["a1", "a2", "b1"]},
    *(json.loads(path.read_bytes()) for path in sorted(SAMPLES.glob("extender-*.raw"))),
)
_OPTIONS: Final = (SAMPLES / "expander-request-real-ca.bin").read_bytes()


def http_request(random: Random) -> tuple[str, str, bytes, dict[str, str]]:
    """Return the verb, path, body and headers of a request that almost is one of a scheduler."""
    name = random.choice(("filter", "prioritize", "bind", "preempt", ""))
    path = random.choice((f"/extender/v1/{name}", f"/extender/{name}", "/metrics", "/", "/readyz"))
    path += random.choice(("", "", "?cluster=x", "?place=true", "/%00", "/../x", "?" + "a" * 3000))
    body = _changed_json(random.choice(_ARGUMENTS), random)
    if random.random() < 0.3:
        body = mutated_bytes(body, random)
    headers = {"content-type": "application/json"}
    if random.random() < 0.2:
        body = gzip.compress(body)
        headers["content-encoding"] = random.choice(("gzip", "deflate", "gzip, gzip", "x"))
    if random.random() < 0.1:
        name = "x-" + "y" * random.choice((1, 500, 60_000))
        headers[name] = "z" * random.choice((0, 100, 9000))
    return random.choice(("POST", "POST", "GET", "PUT")), path, body, headers


def example(kind: type[Message], random: Random) -> Message:
    """A valid request of a kind, as far as one is known."""
    given = pod_from_manifest(incoming())
    examples: dict[str, Message] = {
        "EvaluatePodRequest": evaluate_request(top_k=3),
        "ApplyObjectsRequest": cluster_state_service_pb2.ApplyObjectsRequest(
            objects=[node("n", "a"), pod("p", "n")]
        ),
        "PlacePodRequest": placement_service_pb2.PlacePodRequest(
            pod=common_pb2.PodSource(object=given)
        ),
        "ReserveNodeRequest": placement_service_pb2.ReserveNodeRequest(
            pod=common_pb2.PodSource(object=given), node="b1"
        ),
        "ReleaseReservationRequest": placement_service_pb2.ReleaseReservationRequest(
            pod=common_pb2.PodReference(name="incoming")
        ),
        "PreFilterRequest": decision_service_pb2.PreFilterRequest(
            pod=common_pb2.PodSource(object=given), with_counts=True
        ),
        "FilterRequest": decision_service_pb2.FilterRequest(pod=common_pb2.PodSource(object=given)),
        "ScoreRequest": decision_service_pb2.ScoreRequest(pod=common_pb2.PodSource(object=given)),
        "BatchEvaluatePodsRequest": decision_service_pb2.BatchEvaluatePodsRequest(
            pods=[common_pb2.PodSource(object=given)] * 2
        ),
        "ExplainPodRequest": decision_service_pb2.ExplainPodRequest(
            pod=common_pb2.PodSource(object=given)
        ),
        "BestOptionsRequest": expander_pb2.BestOptionsRequest.FromString(_OPTIONS),
    }
    message = kind()
    if (example := examples.get(kind.DESCRIPTOR.name)) is not None:
        message.CopyFrom(example)
    return message


def _changed_json(value: Any, random: Random) -> bytes:
    """A document with a few values exchanged, anywhere in it."""
    document = json.loads(json.dumps(value))
    for _ in range(random.randint(0, 3)):
        place, at = document, random.choice(list(document))
        while isinstance(place[at], dict | list) and place[at] and random.random() < 0.8:
            place = place[at]
            at = (
                random.choice(list(place))
                if isinstance(place, dict)
                else random.randrange(len(place))
            )
        place[at] = random.choice(
            (None, 0, -1, 1e300, "", "x", [], {}, [None], [[]], True, {"a": 1})
        )
    return json.dumps(document).encode()


def _code(error: grpc.RpcError) -> str:
    code: grpc.StatusCode = error.code()
    return code.name


@campaign(
    "fuzz",
    click.option("--requests", type=click.IntRange(1), default=100_000, show_default=True),
    seed_option,
)
def command(requests: int, seed: int) -> Outcome:
    """Send mutated requests of every method and of HTTP; any fault or hang is a finding."""
    with served(http="127.0.0.1:0", extender="filter") as server:
        return Fuzzer(server, seed).run(requests).outcome()


if __name__ == "__main__":
    sys.exit(run(command))

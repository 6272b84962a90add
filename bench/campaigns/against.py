"""Answers of another commit's server and of this one's, to the same questions.

    python -m bench.campaigns.against [REV] --requests 100000 --check

Both get the same objects and the same requests: all that tests/golden asks, mutations of it for
every method, requests to HTTP, and command lines about examples/. Equal must be status, message,
details and answer, without meta, ids and times. What only the old one has is listed.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING, Any, Final

import click
import grpc

from bench.campaigns.campaign import Outcome, campaign, note, run, seed_option
from bench.campaigns.checkout import checkout_of, this_checkout
from bench.campaigns.differences import Differences
from bench.campaigns.fuzz import http_request
from bench.campaigns.traffic import Request, Traffic
from tests.golden.answers import failure, hide, plain
from tests.golden.commands import all_commands, comparable
from tests.golden.questions import (
    METHODS,
    NOW,
    SETTINGS,
    Conversation,
    ask_everything,
    ask_refusals,
    bookmarked,
    manifests,
)
from tests.servers import Peer, two_zones
from topospread_proto.v1 import cluster_state_service_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.campaigns.checkout import Api, Checkout

OLD: Final = "4f2d1d9bc9bdc8be505d7a9e540aeda33e00bdf4"
"""The commit before the redesign; it knows the labels that controllers give to pods."""

EXPLAINED: Final[Mapping[str, str]] = {
    r"BestOptions: .*\nold .*nodeBytesMap": "templates are told in the order of the options",
    r"BestOptions: .*(options|debug)": (
        "domains that node groups could open count, and pods to come; the rule that decided is told"
    ),
    "only in old: .*StreamEvaluatePods": "removed: BatchEvaluatePods does the same",
    "only in old: .*AcceptStore": "removed: a store is followed once all was listed into it",
    r"refusals: ReplaceObjects: INVALID_FIELDS start\.kinds": "a feed names its kinds",
    r"only in old: field WatchConstraintsRequest\.revision": "each watch begins with everything",
    r"only in old: field GetServerInfoResponse\.(differing|pending)_settings": (
        "removed: Prometheus compares settings"
    ),
    r"(PlanRebalance|plan): .*groups\[\]\.reason\n.*new .*explain one of its pods": (
        "a group without a plan points to explain, and says what keeps the next replica out"
    ),
    r"Constraints: .*\nnew .*maxSkew -?\d+ must be greater than zero": (
        "a constraint that the API server refuses says so in its own row"
    ),
    r"\bdefaulted\nold nothing": "an evaluation says that its constraints are the profile's",
    r"only in old: .*(RemovePods|remove_pods)": (
        "removed: no pod is to be removed, a workload's own come again"
    ),
    r"\b(suggestions?|cause|missing_?[kK]eys)\b": (
        "suggestions mend the cause, which a line says; keys that nodes lack are named"
    ),
    r"command explained for people: stdout\[\]": (
        "explain names the keys that nodes lack, and has another order of suggestions"
    ),
    r"\badvice\b": "a node in the domain that is open comes before others",
    r"must be one of KIND_|an object without content": (
        "volumes, what they rest on, devices and Jobs are stored"
    ),
    r"^(Get|Watch|List|Delete)Objects?: (code|events|message|details\[\])": (
        "a kind that is asked for may be one of those"
    ),
    r"Simulate: rescheduled: warnings": "pods that nothing makes again after a drain are named",
    r"command no such pod: stderr\.error\.message": (
        "evaluate looks for workloads, too, and says so"
    ),
    r"kubernetesVersion\b": "answers name the version whose rules they follow",
    r"unknown feature gate; known": "a feature gate of Kubernetes 1.38",
    r"\b(unknownKinds|notModelled)\b": "what is not looked at is named",
    r"FIT_NODE_AND_RESOURCES": "renamed: FIT_ALL asks all filters",
    r"\b(gatedPodCount|waitingReason|counted)\b|items\[\]\.message|constraints?(\[\])?\.message": (
        "reports say why pods wait, whose are counted, and why no node takes the next replica"
    ),
    r"\bdecider\b|RankDeletions: .*(outcomes|pods|strategy|keepsLongest)": (
        "a StatefulSet's and a Job's own order is shown, and who decides"
    ),
    r"PlanRebalance: .*notes\[\]": "the note on soft constraints names include_soft",
    r"\b(certain|alternatives|alternativeCount|(lowest|highest)(Last)?Skew(After)?)\b|LAST SKEW": (
        "what a controller leaves to chance is told, and how far off plans may end"
    ),
    r"\b(fewestEvictionCount|replacementMayWait)\b|PlanRebalance: .*optimality": (
        "a plan is proven if it holds whatever the scheduler chooses"
    ),
    r"\b1 objects\b": "one object is no objects",
    r"INVALID_FIELDS replicaSelector|\bcapacities\b": "ExplainPod tells the room for replicas",
    r"stdout\.workloads\b": "Simulate says what it places of workloads that are there",
    r"command no mistakes: .*(mend|text)": "RolloutSkew says how often, and what its mend costs",
    r"command unknown verb: stderr\[\]": "click's own words, without a suggestion",
}
"""Reasons of differences that are meant, by what is found in a group and the two values.

Each must be needed, where enough was asked."""

KEYS: Final[Mapping[str, str]] = {}
"""Keys of `-o json` that have another name since OLD."""

UNDER_WAY: Final = 8
"""Calls to each server at once, and clusters that are written."""

_BLOCK: Final = 2000
_DEADLINE: Final = 60.0
_WRITES: Final = 0.25
_HTTP: Final = 0.05
"""The shares of writes and of HTTP requests."""

_AGAIN: Final = 3
"""Times that a read whose answers differ is asked again: some do so only now and then."""

_ENOUGH: Final = 20_000
"""Requests after which an explanation that explains nothing is a finding."""

_CROWDED: Final = 20
"""Times that a request is sent while there is no room for it: the expander takes few at once."""

_LAST: Final = {
    "WatchObjects": bookmarked,
    "WatchConstraints": lambda answer: not answer.partial,
}
"""The answer after which a watch is ended."""


class Side:
    """One of the two servers.

    Args:
        api: as it has it.
        address: host:port of gRPC.
        http: host:port of HTTP.

    Attributes:
        peer: calls it.
    """

    def __init__(self, api: Api, address: str, http: str) -> None:
        self.api = api
        self.address = address
        self.http = http
        self.peer = Peer(address)
        self._stubs: dict[tuple[str, bool], Any] = {}

    def begin(self, request: Request) -> Any:
        """Begin a call."""
        method = request.method
        single = not (method.client_streaming or method.server_streaming)
        channel = self.peer.channel
        if (stub := self._stubs.get((request.path, single))) is None:
            made: Any = channel.unary_unary if single else channel.stream_stream
            stub = self._stubs[request.path, single] = made(request.path)
        if single:
            return stub.future(request.messages[0], timeout=_DEADLINE)
        return stub(iter(request.messages), timeout=_DEADLINE)

    def finish(self, request: Request, call: Any) -> Any:
        """Return the answer of a call: a message, or why it was refused."""
        last = _LAST.get(request.method.name)
        try:
            if not (request.method.client_streaming or request.method.server_streaming):
                return self.api.answer(request.path, call.result())
            whole = None
            for raw in call:
                answer = self.api.answer(request.path, raw)
                if whole is None:
                    whole = answer
                else:
                    whole.MergeFrom(answer)
                if last is not None and last(answer):
                    call.cancel()
                    break
        except grpc.RpcError as error:
            return failure(error)
        return whole

    def send(self, verb: str, path: str, body: bytes, headers: dict[str, str]) -> Any:
        """Send an HTTP request; status and, of the extender, the answer."""
        connection = http.client.HTTPConnection(self.http, timeout=_DEADLINE)
        try:
            connection.request(verb, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            return ["closed"]
        finally:
            connection.close()
        if not path.startswith("/extender"):
            return [answer.status]
        try:
            return [answer.status, json.loads(content)]
        except ValueError:
            return [answer.status, content.decode("utf-8", "replace")]


class Comparison:
    """Sends the same to two servers.

    Attributes:
        found: what differed.
        codes: of this checkout's answers, by method.
    """

    def __init__(self, old: Side, new: Side, requests: int, seed: int) -> None:
        self._old, self._new = old, new
        self._requests, self._seed = requests, seed
        self.found = Differences(EXPLAINED)
        self.codes: dict[str, Counter[str]] = defaultdict(Counter)

    def run(self) -> None:
        """Compare everything but the command lines."""
        self._interfaces()
        asked = self._questions()
        paths = self._old.api.methods.keys() & self._new.api.methods.keys()
        traffic = Traffic(asked, paths, self._new.api.names - self._old.api.names)
        writes, browsed = int(self._requests * _WRITES), int(self._requests * _HTTP)
        with ThreadPoolExecutor(UNDER_WAY) as pool:
            note(f"{self._requests - writes - browsed} reads")
            self._reads(pool, traffic, self._requests - writes - browsed)
            note(f"{writes} writes")
            lanes = [pool.submit(self._lane, traffic, n, writes // UNDER_WAY)
                     for n in range(UNDER_WAY)]  # fmt: skip
            for lane in lanes:
                lane.result()
        note(f"{browsed} HTTP requests")
        random = Random(self._seed)
        for _ in range(browsed):
            given = http_request(random)
            old, new = (side.send(*given) for side in (self._old, self._new))
            self.found.compare("HTTP", old, new, f"{given[0]} {given[1]} {given[2]!r}")

    def _interfaces(self) -> None:
        old, new = self._old.api.names, self._new.api.names
        for name in sorted(old - new):
            self.found.add(f"only in old: {name}")

    def _questions(self) -> list[Sequence[Any]]:
        """Ask both what tests/golden asks; returns what was asked."""
        note("the questions of tests/golden")
        talks = [Conversation(side.address, side.http) for side in (self._old, self._new)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(_ask_all, talks))
        for talk in talks:
            talk.close()
        old, new = (talk.answers for talk in talks)
        for part, answers in new.items():
            for title, answer in answers.items():
                self.found.compare(f"{part}: {title}", old[part].get(title), answer)
        return talks[1].asked

    def _reads(self, pool: ThreadPoolExecutor, traffic: Traffic, many: int) -> None:
        random = Random(self._seed)
        while many > 0:
            block = [traffic.read(random) for _ in range(min(many, _BLOCK))]
            for request, old, new in pool.map(self._ask, block):
                if not self._compare(request, old, new):
                    self._again(request)
            many -= len(block)

    def _again(self, request: Request) -> None:
        """Ask again what was answered differently, and note where it is not so each time."""
        for _ in range(_AGAIN):
            _, old, new = self._ask(request)
            if _equal(old, new):
                self.found.add(f"{request.method.name}: not each time", request=request.shown)
                return

    def _lane(self, traffic: Traffic, number: int, many: int) -> None:
        """Write to a cluster of its own, one call after the other, and compare what it has then."""
        cluster, random = f"lane-{number}", Random(f"{self._seed} {number}")
        self._fill(cluster)
        for _ in range(many):
            request = traffic.write(cluster, random)
            self._settle(cluster)
            self._compare(*self._ask(request))
            if request.method.name == "DeleteCluster":
                self._fill(cluster)
        watch = state.WatchObjectsRequest(cluster=cluster, send_initial=True)
        path, method = METHODS[watch.DESCRIPTOR.full_name]
        whole = Request(path, method, [watch.SerializeToString()], f"all of {cluster} after writes")
        self._settle(cluster)
        self._compare(*self._ask(whole))

    def _fill(self, cluster: str) -> None:
        for side in (self._old, self._new):
            side.peer.apply(*manifests("report/*.yaml"), cluster=cluster)
            side.peer.apply(*two_zones(), cluster=cluster)

    def _settle(self, cluster: str) -> None:
        """Wait until both servers know what was written before, as places and watches do not."""
        asked = state.GetClusterRequest(cluster=cluster, consistency=NOW)
        for side in (self._old, self._new):
            side.peer.state.GetCluster(asked, timeout=_DEADLINE)

    def _ask(self, request: Request) -> tuple[Request, Any, Any]:
        """Send a request to both; where one has no room now, to both again."""
        for _ in range(_CROWDED):
            old, new = self._send(request)
            if not (_full(old) or _full(new)):
                return request, old, new
            time.sleep(0.05)
        return request, *self._send(request)

    def _send(self, request: Request) -> tuple[Any, Any]:
        calls = [side.begin(request) for side in (self._old, self._new)]
        return self._old.finish(request, calls[0]), self._new.finish(request, calls[1])

    def _compare(self, request: Request, old: Any, new: Any) -> bool:
        self.codes[request.method.name][new["code"] if isinstance(new, dict) else "OK"] += 1
        if _equal(old, new):
            self.found.equal += 1
            return True
        old, new = (each if isinstance(each, dict) else _plain(each) for each in (old, new))
        return self.found.compare(request.method.name, old, new, request.shown)


def _equal(old: Any, new: Any) -> bool:
    """Whether two answers are the same, by their bytes where both are messages."""
    if isinstance(old, dict) or isinstance(new, dict) or old is None or new is None:
        return bool(old == new)
    for each in (old, new):
        hide(each)
    return bool(
        old.SerializeToString(deterministic=True) == new.SerializeToString(deterministic=True)
    )


def _full(answer: Any) -> bool:
    return (
        isinstance(answer, dict)
        and answer["code"] == "RESOURCE_EXHAUSTED"
        and any(each.get("reason") == "QUEUE_FULL" for each in answer.get("details", ()))
    )


def _plain(answer: Any) -> Any:
    return None if answer is None else plain(answer)


def _ask_all(talk: Conversation) -> None:
    ask_everything(talk)
    ask_refusals(talk)


def _compare_commands(found: Differences, old: Checkout, new: Checkout, sides: list[Side]) -> None:
    """Run the command lines of tests/golden in both checkouts, on the examples of this one."""
    note("command lines")

    def ran(chosen: tuple[Checkout, Side]) -> dict[str, Any]:
        checkout, side = chosen
        commands = all_commands(side.address)
        return {
            title: comparable(*checkout.command(arguments), side.address)
            for title, arguments in commands.items()
        }

    with ThreadPoolExecutor(2) as pool:
        before, after = pool.map(ran, zip((old, new), sides, strict=True))
    for title, shown in after.items():
        found.compare(f"command {title}", renamed(before[title], KEYS), shown)


def renamed(value: Any, keys: Mapping[str, str]) -> Any:
    """Return JSON with other keys."""
    if isinstance(value, dict):
        return {keys.get(key, key): renamed(each, keys) for key, each in value.items()}
    return [renamed(each, keys) for each in value] if isinstance(value, list) else value


@campaign(
    "against",
    click.argument("revision", metavar="[REV]", default=OLD),
    click.option("--requests", type=click.IntRange(0), default=2000, show_default=True),
    seed_option,
)
def command(revision: str, requests: int, seed: int) -> Outcome:
    """Compare answers with those of another commit, by default of the one before the redesign."""
    note(f"setting up {revision}")
    old, new = checkout_of(revision), this_checkout()
    settings = {name: str(value) for name, value in SETTINGS.items()}
    with ExitStack() as ends:
        first, second = sides = [
            Side(each.api, *ends.enter_context(each.serving(settings))) for each in (old, new)
        ]
        comparison = Comparison(first, second, requests, seed)
        comparison.run()
        _compare_commands(comparison.found, old, new, sides)
        for side in sides:
            side.peer.channel.close()
    found = comparison.found
    figures = {
        "equal": found.equal,
        "different": found.different,
        "codes": {name: dict(codes.most_common()) for name, codes in comparison.codes.items()},
        "explained": found.excused(),
        "unexplained": found.unexplained(),
    }
    return Outcome(figures, found.findings(whole=requests >= _ENOUGH))


if __name__ == "__main__":
    sys.exit(run(command))

"""The race itself: callers against servers, while pods and nodes come and go."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from bench.race import scenario
from topospread_client import (
    Conflict,
    DeadlineExceeded,
    LimitExceeded,
    Unavailable,
    pod_from_manifest,
)
from topospread_proto.v1.cluster_state_service_pb2 import ObjectReference
from topospread_proto.v1.common_pb2 import KIND_POD, VERDICT_CODE_SUCCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread_client import Client
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod
    from topospread_proto.v1.placement_service_pb2 import PlacePodResponse, ReserveNodeResponse

SHORT, LONG = 1.0, 60.0
"""Seconds that places are held for: those that are left alone end while the race is on."""

TURN: Final = 0.02
"""Seconds between two rounds of changes to the cluster."""

PAUSE: Final = 0.02
"""Seconds until a call that could not be carried out is tried again."""

LIVE: Final = 300
"""Pods that run at once, more or less."""

PATIENCE: Final = 10.0
"""Seconds that a caller waits for one answer."""

BOUND, LEFT = 0.85, 0.9
"""Fates of what is placed, from 0 to 1: it is bound below the first, released below the second, and
left alone from there on.
"""

_TRY_AGAIN: Final = (Conflict, DeadlineExceeded, LimitExceeded, Unavailable)


@dataclass(slots=True)
class CallCounts:
    """Counts of calls by their results.

    Attributes:
        failed: calls that ended with an error that allows to try again, by its name.
    """

    held: int = 0
    refused: int = 0
    conflicts: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)

    def add(self, other: CallCounts) -> None:
        """Add the counts of another caller."""
        self.held += other.held
        self.refused += other.refused
        self.conflicts += other.conflicts
        self.failed += other.failed
        self.latencies += other.latencies


@dataclass(slots=True)
class RaceSettings:
    """Settings of a race.

    Attributes:
        clients: one a server.
        placements: how many to hold in all.
        mishap: happens when half of them are held.
    """

    clients: Sequence[Client]
    callers: int
    placements: int
    nodes: int
    namespaces: Sequence[str]
    seed: int
    fault: Callable[[], None] | None = None


class Race:
    """One race; :meth:`run` it once.

    Attributes:
        recovered: seconds from the end of the mishap until a place was held again.
    """

    def __init__(self, settings: RaceSettings, progress: Callable[[int], None]) -> None:
        self._entry = settings
        self._progress = progress
        self._tallies = [CallCounts() for _ in range(settings.callers)]
        self._placed: deque[tuple[Pod, str]] = deque()
        self._left: deque[tuple[str, str, str]] = deque(maxlen=settings.callers)
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        self.recovered: float | None = None

    def prepare(self) -> None:
        """Make the cluster."""
        nodes = [scenario.node(number) for number in range(self._entry.nodes)]
        self._entry.clients[0].apply_objects([*nodes, *scenario.services(self._entry.namespaces)])

    def run(self) -> tuple[CallCounts, float]:
        """Run the race: the counts of all callers, and the seconds that it took.

        Raises:
            TopospreadClientError: a call failed for good.
        """
        threads = [
            threading.Thread(target=self._run_thread, args=(self._call, caller), daemon=True)
            for caller in range(self._entry.callers)
        ]
        others = [
            threading.Thread(target=self._run_thread, args=(work, -1), daemon=True)
            for work in (self._feed, self._inject_fault)
        ]
        began = time.monotonic()
        for thread in (*threads, *others):
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - began
        self._over.set()
        for thread in others:
            thread.join()
        if self._failures:
            raise self._failures[0]
        total = CallCounts()
        for counts in self._tallies:
            total.add(counts)
        return total, seconds

    def _run_thread(self, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except BaseException as failure:  # noqa: BLE001 - raised again by run()
            self._failures.append(failure)
            self._over.set()

    # ------------------------------ callers

    def _call(self, caller: int) -> None:
        settings, counts = self._entry, self._tallies[caller]
        client = settings.clients[caller % len(settings.clients)]
        random = Random(f"{settings.seed} {caller}")
        number = 0
        while not self._over.is_set():
            done = self._held()
            if caller == 0:
                self._progress(done)
            if done >= settings.placements or number > 10 * settings.placements:
                return
            number += 1
            if self._left and random.random() < 0.5:
                self._place_again(client, random, counts)
                continue
            pod_id = (
                random.choice(settings.namespaces),
                scenario.any_app(random),
                f"{caller}-{number}",
            )
            if random.random() < 0.2:
                self._leave(client, pod_id, random, counts)
            else:
                pod = pod_from_manifest(scenario.pod(*pod_id))
                self._place(client, pod, random, counts, random.random())

    def _leave(
        self, client: Client, pod_id: tuple[str, str, str], random: Random, counts: CallCounts
    ) -> None:
        """Place a pod that is placed again before it is bound; half ask for less at first."""
        pod = pod_from_manifest(scenario.pod(*pod_id, loose=random.random() < 0.5))
        self._place(client, pod, random, counts, LEFT)
        self._left.append(pod_id)

    def _place_again(self, client: Client, random: Random, counts: CallCounts) -> None:
        """A pod that was left, or a successor of the same name that servers do not know yet."""
        try:
            pod_id = self._left.popleft()
        except IndexError:
            return  # another caller was first
        pod = pod_from_manifest(scenario.pod(*pod_id, incarnation=random.randrange(2)))
        self._place(client, pod, random, counts, random.random())

    def _place(
        self, client: Client, pod: Pod, random: Random, counts: CallCounts, fate: float
    ) -> None:
        began = time.monotonic()
        try:
            answer, node = _place_or_reserve(client, pod, random, self._entry.nodes, fate)
        except _TRY_AGAIN as error:
            counts.failed[type(error).__name__] += 1
            self._over.wait(PAUSE)
            return
        counts.latencies.append(time.monotonic() - began)
        counts.conflicts += answer.conflict_count
        if not node:
            counts.refused += 1
            return
        counts.held += 1
        if fate < BOUND:
            self._placed.append((pod, node))
        elif fate < LEFT:
            with suppress(*_TRY_AGAIN):
                meta = pod.metadata
                client.release_reservation(
                    f"{meta.namespace}/{meta.name}", reservation_id=answer.reservation_id
                )

    # ------------------------------ what happens to the servers

    def _inject_fault(self, number: int) -> None:
        """Inject the fault when half of the places are held."""
        del number
        fault = self._entry.fault
        if fault is None:
            return
        while self._held() < self._entry.placements / 2 and not self._over.wait(PAUSE):
            pass
        fault()
        over, held = time.monotonic(), self._held()
        while self._held() == held and not self._over.wait(PAUSE / 10):
            pass
        self.recovered = time.monotonic() - over

    def _held(self) -> int:
        return sum(each.held for each in self._tallies)

    # ------------------------------ what happens to the cluster

    def _feed(self, number: int) -> None:
        """Bind what was placed, let pods end, change nodes: as a cluster's sync would write."""
        random = Random(f"{self._entry.seed} {number}")
        running: list[Pod] = []
        ending: list[Pod] = []
        tainted: set[int] = set()
        gone: set[int] = set()
        turn = 0
        while not self._over.wait(TURN):
            turn += 1
            client = random.choice(self._entry.clients)
            with suppress(*_TRY_AGAIN):
                self._bind(client, running)
                self._end(client, running, ending, random)
                if turn % 5 == 0:
                    self._change_nodes(client, random, tainted, gone)

    def _bind(self, client: Client, running: list[Pod]) -> None:
        bound: list[Pod] = []
        while self._placed and len(bound) < 200:
            pod, node = self._placed.popleft()
            pod.spec.node_name = node
            bound.append(pod)
        if bound:
            client.apply_objects(bound, timeout=PATIENCE)
            running += bound

    def _end(self, client: Client, running: list[Pod], ending: list[Pod], random: Random) -> None:
        """End pods: half of them terminate first; the others are deleted at once, or fail."""
        if ending:
            client.delete_objects([_reference(pod) for pod in ending], timeout=PATIENCE)
            ending.clear()
        surplus = len(running) - LIVE
        if surplus <= 0:
            return
        random.shuffle(running)
        chosen = [running.pop() for _ in range(surplus)]
        for pod in chosen[::2]:
            pod.metadata.deletion_timestamp.seconds = 1
        for pod in chosen[1::4]:
            pod.status.phase = "Failed"
        client.apply_objects(chosen, timeout=PATIENCE)
        ending += chosen

    def _change_nodes(
        self, client: Client, random: Random, tainted: set[int], gone: set[int]
    ) -> None:
        """Change one node: taint it, move it out of its zone, mend it, remove or add one."""
        number = random.randrange(self._entry.nodes)
        name = scenario.node(number)["metadata"]["name"]
        if number in gone or number in tainted:
            gone.discard(number)
            tainted.discard(number)
            client.apply_objects([scenario.node(number)], timeout=PATIENCE)
        elif random.random() < 0.5 and len(gone) < self._entry.nodes // 4:
            gone.add(number)
            client.delete_objects([{"kind": "NODE", "name": name}], timeout=PATIENCE)
        elif len(tainted) < self._entry.nodes // 3:
            tainted.add(number)
            zoned = random.random() < 0.5
            changed = scenario.node(number, tainted=zoned, zoned=zoned)
            client.apply_objects([changed], timeout=PATIENCE)


def _place_or_reserve(
    client: Client, pod: Pod, random: Random, nodes: int, fate: float
) -> tuple[PlacePodResponse | ReserveNodeResponse, str]:
    """Place a pod: mostly anywhere, sometimes among candidates, or on a chosen node."""
    way = random.random()
    ttl = LONG if fate < LEFT else SHORT
    if way < 0.1:
        node: str = scenario.node(random.randrange(nodes))["metadata"]["name"]
        reserved = client.reserve_node(pod, node, reservation_ttl=ttl, timeout=PATIENCE)
        return reserved, node if reserved.verdict.code == VERDICT_CODE_SUCCESS else ""
    candidates = None
    if way < 0.2:
        chosen = random.sample(range(nodes), min(nodes, 12))
        candidates = [str(scenario.node(number)["metadata"]["name"]) for number in chosen]
    fit = "NODE" if way < 0.4 and candidates is None else None
    placed = client.place_pod(
        pod,
        candidates=candidates,
        fit=fit,
        reservation_ttl=ttl,
        seed=str(random.random()),
        timeout=PATIENCE,
    )
    return placed, placed.node


def _reference(pod: Pod) -> ObjectReference:
    meta = pod.metadata
    return ObjectReference(kind=KIND_POD, name=meta.name, namespace=meta.namespace, uid=meta.uid)

"""Callers beside the changes: they live in a process of their own, so that they measure the server.

They ask at a pace, not as fast as they can: the machine is for the changes.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from bench.soak import templates
from topospread_client import Client, Conflict, TopospreadClientError
from topospread_proto.v1.common_pb2 import PodReference

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.synchronize import Event

    from bench.soak.templates import Template

PAUSE: Final = 0.05
"""Seconds between two calls of one caller."""

HELD: Final = 1.0
"""Seconds that a place is held for by callers that do not give it back."""

PATIENCE: Final = 10.0
"""Seconds that a caller waits for one answer."""

SHOWN: Final = 5


@dataclass(slots=True)
class CallStatistics:
    """Counts and durations of calls.

    Attributes:
        seconds: of each call that was answered, by its name.
        conflicts: Places that others' changes made void again and again: a declared answer.
        failed: calls that failed otherwise, by error; there should be none.
        messages: of the first of those.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    conflicts: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)

    def add(self, other: CallStatistics) -> None:
        """Add the counts of another caller."""
        for name, seconds in other.seconds.items():
            self.seconds.setdefault(name, []).extend(seconds)
        self.conflicts += other.conflicts
        self.failed += other.failed
        self.messages = (self.messages + other.messages)[:SHOWN]


class Callers:
    """Some threads that ask one server.

    Args:
        address: of the server.
        cluster: that they ask about.
        callers: how many.
        seed: of what they ask.
        over: set when they are to stop.
    """

    def __init__(self, address: str, cluster: str, callers: int, seed: int, over: Event) -> None:
        self._stack = ExitStack()
        self._clients = [
            self._stack.enter_context(Client(address, cluster=cluster, timeout=PATIENCE))
            for _ in range(callers)
        ]
        self._randoms = [Random(f"{seed} {caller}") for caller in range(callers)]
        self._over = over
        self._asked = [0] * callers

    def close(self) -> None:
        """End the connections."""
        self._stack.close()

    def ask(self, about: Sequence[Template]) -> CallStatistics:
        """Call about pods of these templates until the end, each caller at least once."""
        total = CallStatistics()
        with ThreadPoolExecutor(len(self._clients)) as threads:
            callers = range(len(self._clients))
            for counted in threads.map(lambda caller: self._call(caller, about), callers):
                total.add(counted)
        return total

    def _call(self, caller: int, about: Sequence[Template]) -> CallStatistics:
        client, random = self._clients[caller], self._randoms[caller]
        counts, over = CallStatistics(), False
        while not over:
            self._asked[caller] += 1
            number = self._asked[caller] * len(self._clients) + caller
            try:
                self._once(client, random.choice(about), number, random.random(), counts)
            except Conflict:
                counts.conflicts += 1
            except TopospreadClientError as error:
                counts.failed[type(error).__name__] += 1
                counts.messages = [*counts.messages, str(error)][:SHOWN]
            over = self._over.wait(PAUSE)
        return counts

    def _once(
        self, client: Client, template: Template, number: int, way: float, counts: CallStatistics
    ) -> None:
        pod = templates.pending_pod(template, number)
        pod.metadata.name = f"asked-{number:08}"
        began = time.perf_counter()
        if way < 0.50:
            name = "evaluate"
            client.evaluate_pod(pod)
        elif way < 0.70:
            name = "filter"
            client.filter(templates.pod_with_new_selector(template, number))
        elif way < 0.72:
            name = "explain"
            client.explain_pod(pod)
        else:
            name = "place"
            client.place_pod(pod, fit="NODE", reservation_ttl=HELD, seed=str(number))
        counts.seconds.setdefault(name, []).append(time.perf_counter() - began)
        if way > 0.80:
            began = time.perf_counter()
            client.release_reservation(
                PodReference(
                    name=pod.metadata.name, namespace=template.namespace, uid=pod.metadata.uid
                )
            )
            counts.seconds.setdefault("release", []).append(time.perf_counter() - began)


def ask(callers: Callers, about: Sequence[Template]) -> CallStatistics:
    """Run Callers.ask in a child."""
    return callers.ask(about)

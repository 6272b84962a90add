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

from topospread.cli.bench.soak import templates
from topospread_client import Client, Conflict, Fit, PodReference, TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.synchronize import Event

    from topospread.cli.bench.soak.templates import Template

PAUSE: Final = 0.05
"""Seconds between two calls of one caller."""

HELD: Final = 1.0
"""Seconds that a place is held for by callers that do not give it back."""

PATIENCE: Final = 10.0
"""Seconds that a caller waits for one answer."""

SHOWN: Final = 5


@dataclass(slots=True)
class Tally:
    """What callers counted.

    Attributes:
        seconds: of each call that was answered, by its name.
        conflicts: Places that others' changes made void again and again: a declared answer.
        failed: calls that failed otherwise, by error; there should be none.
        said: what the first of those said.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    conflicts: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Count others', too."""
        for name, seconds in other.seconds.items():
            self.seconds.setdefault(name, []).extend(seconds)
        self.conflicts += other.conflicts
        self.failed += other.failed
        self.said = (self.said + other.said)[:SHOWN]


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

    def ask(self, about: Sequence[Template]) -> Tally:
        """Ask about pods of these templates until it is over, each caller at least once."""
        total = Tally()
        with ThreadPoolExecutor(len(self._clients)) as threads:
            callers = range(len(self._clients))
            for tally in threads.map(lambda caller: self._call(caller, about), callers):
                total.add(tally)
        return total

    def _call(self, caller: int, about: Sequence[Template]) -> Tally:
        client, random = self._clients[caller], self._randoms[caller]
        tally, over = Tally(), False
        while not over:
            self._asked[caller] += 1
            number = self._asked[caller] * len(self._clients) + caller
            try:
                self._once(client, random.choice(about), number, random.random(), tally)
            except Conflict:
                tally.conflicts += 1
            except TopospreadClientError as error:
                tally.failed[type(error).__name__] += 1
                tally.said = [*tally.said, str(error)][:SHOWN]
            over = self._over.wait(PAUSE)
        return tally

    def _once(
        self, client: Client, template: Template, number: int, way: float, tally: Tally
    ) -> None:
        pod = templates.incoming(template, number)
        pod.metadata.name = f"asked-{number:08}"
        began = time.perf_counter()
        if way < 0.50:
            name = "evaluate"
            client.evaluate_pod(pod)
        elif way < 0.70:
            name = "filter"
            client.filter(templates.never_seen(template, number))
        elif way < 0.72:
            name = "explain"
            client.explain_pod(pod)
        else:
            name = "place"
            client.place_pod(pod, fit=Fit.NODE, reservation_ttl=HELD, seed=str(number))
        tally.seconds.setdefault(name, []).append(time.perf_counter() - began)
        if way > 0.80:
            began = time.perf_counter()
            client.release_reservation(
                PodReference(pod.metadata.name, template.namespace, pod.metadata.uid)
            )
            tally.seconds.setdefault("release", []).append(time.perf_counter() - began)


def ask(callers: Callers, about: Sequence[Template]) -> Tally:
    """In a child: see Callers.ask."""
    return callers.ask(about)

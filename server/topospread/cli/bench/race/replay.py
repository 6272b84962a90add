"""Goes through a recorded race again and judges each place at the moment that it was held."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from topospread.cli.bench.race import judge, scenario
from topospread.codec.reservations import reservation_row
from topospread.codec.stored import object_from_stored
from topospread.kube.demands import CPU
from topospread.store.api import Kind, LogEntry
from topospread_client import manifest_from_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from topospread.index.changes import ReservationRow
    from topospread.store.api import Transaction

Json = dict[str, Any]


@dataclass(slots=True)
class Found:
    """What the log says.

    Attributes:
        placements: places that were held: new ones and moves, not renewals.
        renewals: the same place written again; judged as well.
        breaches: for each place that the state just before it did not allow, what it was.
        doubles: moments at which a pod counted twice: bound, and held for.
        ended: reservations that ended, in whatever way.
    """

    placements: int = 0
    renewals: int = 0
    breaches: list[str] = field(default_factory=list)
    doubles: list[str] = field(default_factory=list)
    ended: int = 0


class Replay:
    """The state of the race at one point of its log, as plain manifests."""

    def __init__(self) -> None:
        self.found = Found()
        self._nodes: dict[str, Json] = {}
        self._pods: dict[tuple[str, str], Json] = {}
        self._services: dict[tuple[str, str], Json] = {}
        self._held: dict[tuple[str, str], ReservationRow] = {}

    def play(self, transactions: Iterable[Transaction], progress: Callable[[int], None]) -> Found:
        """Judge everything.

        Args:
            transactions: the whole log, in order.
            progress: told how many transactions are done.
        """
        for done, transaction in enumerate(transactions, start=1):
            for entry in transaction.entries:
                self._change(entry, transaction.revision.number)
            self._look_for_doubles(transaction)
            progress(done)
        return self.found

    def _change(self, entry: LogEntry, number: int) -> None:
        key = entry.key
        pod = (key.namespace, key.name)
        if key.kind is Kind.RESERVATION:
            self._change_reservation(entry, pod, number)
            return
        manifest = None
        if entry.object is not None:
            manifest = manifest_from_object(object_from_stored(entry.object))
        if key.kind is Kind.NODE:
            _put(self._nodes, key.name, manifest)
        elif key.kind is Kind.POD:
            _put(self._pods, pod, manifest)
        else:
            _put(self._services, pod, manifest)

    def _change_reservation(self, entry: LogEntry, pod: tuple[str, str], number: int) -> None:
        before = self._held.pop(pod, None)
        if entry.object is None:
            self.found.ended += before is not None
            return
        row = reservation_row(entry.object)
        if before is not None and (before.uid, before.node_name) == (row.uid, row.node_name):
            self.found.renewals += 1
        else:
            self.found.placements += 1
        # What was held for the pod, or for a predecessor of its name, ends with this write.
        self._judge(pod, row, number)
        self._held[pod] = row

    def _judge(self, pod: tuple[str, str], row: ReservationRow, number: int) -> None:
        what = f"revision {number}: {pod[0]}/{pod[1]} on {row.node_name}"
        if row.node_name not in self._nodes:
            self.found.breaches.append(f"{what}: there is no such node")
            return
        asked = scenario.pod_named(*pod, cpu=dict(row.requests).get(CPU, scenario.STRICT))
        if dict(row.labels) != asked["metadata"]["labels"]:
            self.found.breaches.append(f"{what}: other labels are held than were asked for")
        if not judge.allows(self._cluster(pod[0]), asked, row.node_name, scenario.ARGS):
            self.found.breaches.append(what)

    def _cluster(self, namespace: str) -> Json:
        """The state as the judge reads it; what is held is a pod on its node."""
        pods = [each for (space, _), each in self._pods.items() if space == namespace]
        pods += [
            {
                "metadata": {"namespace": space, "name": name, "labels": dict(row.labels)},
                "spec": {"nodeName": row.node_name},
            }
            for (space, name), row in self._held.items()
            if space == namespace
        ]
        services = [each for (space, _), each in self._services.items() if space == namespace]
        return {"nodes": list(self._nodes.values()), "pods": pods, "services": services}

    def _look_for_doubles(self, transaction: Transaction) -> None:
        """After a transaction, no pod of it is both bound and held for."""
        for entry in transaction.entries:
            pod = (entry.key.namespace, entry.key.name)
            held, bound = self._held.get(pod), self._pods.get(pod)
            if held is None or bound is None or not bound["spec"].get("nodeName"):
                continue
            if held.is_for(bound["metadata"].get("uid", "")):
                number = transaction.revision.number
                self.found.doubles.append(f"revision {number}: {pod[0]}/{pod[1]}")


def _put(content: dict[Any, Json], key: Any, manifest: Json | None) -> None:
    if manifest is None:
        content.pop(key, None)
    else:
        content[key] = manifest

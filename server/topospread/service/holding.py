"""Holding places: judged at one revision, written only if nothing relevant came after it.

One place is held at a time in each namespace of a cluster: threads of one server would only make
one another's judgements void. Other servers do so all the same; then what they wrote is fetched and
the pod is judged again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from topospread.codec.demands import Demands
from topospread.codec.frames import framed
from topospread.codec.reservations import Reservation, stored_reservation
from topospread.codec.stored import object_from_stored
from topospread.errors import (
    Conflict,
    DeadlineExceeded,
    IdentityChanged,
    InvalidRequest,
    NotFound,
    RevisionUnavailable,
    StoreUnavailable,
    Unavailable,
)
from topospread.kube.violations import required
from topospread.replica.view import Token
from topospread.service.asks import PodRef
from topospread.spread.verdicts import SUCCESS, Status
from topospread.store.api import Key, Kind, LogEntry, Put, Transaction, Unchanged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.index.changes import ReservationRow
    from topospread.kube.demands import Demand
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.asks import Ask
    from topospread.service.cycle import Cycle
    from topospread.service.engine import Engine
    from topospread.service.shapes import ShapedPod
    from topospread.service.write import Traced
    from topospread.store.api import Applied, Store, StoredObject

DEFAULT_LIFETIME: Final = 60_000
"""Milliseconds that a place is held: some times what a scheduler needs to bind a pod."""

STRIPES: Final = 256
"""Locks that namespaces share: more than there are threads to meet at one by accident."""

_NODES: Final = "nodes/"
"""The scope of node changes."""

GIVE_UP: Final = 0.05
"""Seconds before the deadline at which the last try is made, so that its end can still be told."""


@dataclass(slots=True)
class Wanted:
    """A place that is asked for.

    Attributes:
        ask: about the pod; its nodes are the candidates.
        pod: the pod, as its shape.
        demand: what it takes.
        node: that it is bound to; empty while it waits.
        lifetime: milliseconds that the place is held for.
        conflicts: how often others' changes made a judgement void.
    """

    ask: Ask
    pod: ShapedPod
    demand: Demand
    node: str = ""
    lifetime: int = DEFAULT_LIFETIME
    conflicts: int = 0

    @property
    def namespace(self) -> str:
        """Of the pod."""
        return self.pod.shape.pod.namespace


@dataclass(slots=True)
class Held:
    """What became of it.

    Attributes:
        token: of the revision: that of the write, or else the one it was judged at.
        node: the place; empty when it was refused.
        status: Success, or why it was refused.
        message: as kube-scheduler words it on a pod that fits nowhere.
        already_bound: the pod runs there; nothing was written.
        expires_at: milliseconds since 1970 on the store's clock.
    """

    token: str
    node: str = ""
    status: Status = SUCCESS
    message: str = ""
    already_bound: bool = False
    expires_at: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no place is held."""

    status: Status
    message: str = ""


Choose = Callable[["Cycle", "ReservationRow | None"], str | Refusal]
"""Chooses a node, or says why none, given the cycle and what is held for the pod already."""


class Holding:
    """Holds places in the clusters of one store.

    Args:
        engine: judges pods.
        store: keeps what is held.
    """

    def __init__(self, engine: Engine, store: Store) -> None:
        self.engine = engine
        self.store = store
        self._demands = Demands()
        self._locks = [threading.Lock() for _ in range(STRIPES)]

    def wanted(self, ask: Ask, pod: bytes | PodRef, lifetime: int) -> Wanted:
        """A place for a pod.

        Args:
            ask: all but its subject.
            pod: the bytes of a v1.Pod, or a pod of the state.
            lifetime: milliseconds.

        Raises:
            InvalidRequest: no pod, or one without a name: it could not be held for anybody.
            NotFound: the pod is not in the state.
        """
        if isinstance(pod, PodRef):
            stored = self.store.get(ask.cluster, Key(Kind.POD, pod.namespace, pod.name))
            if stored is None:
                raise NotFound(f"pod {pod.namespace}/{pod.name} is not in cluster {ask.cluster!r}")
            pod = object_from_stored(stored).pod.SerializeToString()
        subject = self.engine.shaped(framed(pod))
        if not subject.name:
            raise InvalidRequest.of([required("metadata.name", "name is required")])
        demand, node = self._demands.of(pod)
        ask.subject = subject
        return Wanted(ask, subject, demand, node, lifetime)

    def hold(self, wanted: Wanted, choose: Choose, traced: Traced) -> Held:
        """Choose a node and hold it for the pod.

        Args:
            wanted: for which pod.
            choose: the node.
            traced: wraps writes to the store in spans.

        Raises:
            Conflict: others changed the state again and again until the deadline.
            InvalidRequest, NotFound, Unavailable: see Engine.begin and Writer.apply.
        """
        give_up_at = wanted.ask.deadline - GIVE_UP
        with self._turn(wanted, give_up_at):
            made_fresh = False
            while True:
                resolved = self.engine.begin(wanted.ask)
                cycle, replica = resolved.cycle, resolved.replica
                if bound := self._bound(wanted, cycle, replica):
                    return Held(cycle.view.token, bound, already_bound=True)
                held = _held(cycle)
                chosen = choose(cycle, held)
                if isinstance(chosen, Refusal):
                    # Room that was made a moment ago is not to be missed.
                    if made_fresh or _caught_up(replica).revision == cycle.view.revision:
                        return Held(cycle.view.token, "", chosen.status, chosen.message)
                    made_fresh = True
                    continue
                stored = _reservation(wanted, cycle, chosen, held)
                try:
                    applied = self._write(wanted, cycle.view, stored, traced)
                except Conflict as conflict:
                    wanted.conflicts += 1
                    if time.monotonic() >= give_up_at:
                        raise _too_often(wanted) from conflict
                    _caught_up(replica)
                    made_fresh = True
                else:
                    expires_at = applied.at + wanted.lifetime
                    entry = LogEntry(stored.key, replace(stored, expires_at=expires_at))
                    self.show(wanted.ask.cluster, applied, entry)
                    token = Token(applied.identity, applied.revision).encode()
                    return Held(token, chosen, expires_at=expires_at)

    def show(self, cluster: str, applied: Applied, entry: LogEntry) -> None:
        """Have a write of this server seen by its next decision."""
        replica = self.engine.replicas.at_hand(cluster)
        if replica is None:
            return
        entries = (entry, *(LogEntry(key, None) for key in applied.ended))
        transaction = Transaction(applied.revision, applied.previous.tag, entries)
        if not replica.take(applied.identity, transaction):
            # Others wrote in between; the next in line would only learn of it by a conflict.
            with suppress(StoreUnavailable, RevisionUnavailable, IdentityChanged, Unavailable):
                replica.pull()

    @contextmanager
    def _turn(self, wanted: Wanted, until: float) -> Iterator[None]:
        lock = self._locks[hash((wanted.ask.cluster, wanted.namespace)) % STRIPES]
        if not lock.acquire(timeout=max(0.0, until - time.monotonic())):
            raise DeadlineExceeded(
                f"others were placed in namespace {wanted.namespace!r} until the deadline"
            )
        try:
            yield
        finally:
            lock.release()

    def _bound(self, wanted: Wanted, cycle: Cycle, replica: Replica) -> str:
        """The node that the pod runs on already; empty when it does not."""
        if wanted.node:
            return wanted.node
        if not replica.is_counted(wanted.namespace, cycle.name):
            return ""
        stored = self.store.get(cycle.cluster, Key(Kind.POD, wanted.namespace, cycle.name))
        if stored is None or (cycle.uid and stored.uid not in ("", cycle.uid)):
            return ""
        return object_from_stored(stored).pod.spec.node_name

    def _write(self, wanted: Wanted, view: View, stored: StoredObject, traced: Traced) -> Applied:
        with traced("reserve", 1):
            return self.store.apply(
                wanted.ask.cluster,
                [Put(stored, lifetime=wanted.lifetime)],
                precondition=Unchanged(view.revision, (wanted.namespace, _NODES)),
                identity=view.identity,
                timeout=max(0.001, wanted.ask.deadline - time.monotonic()),
            )


def _held(cycle: Cycle) -> ReservationRow | None:
    """What is held for the cycle's pod already."""
    return cycle.view.snapshot.reservations.of(cycle.pod.namespace, cycle.name, cycle.uid)


def _reservation(
    wanted: Wanted, cycle: Cycle, node: str, held: ReservationRow | None
) -> StoredObject:
    # Who renews without a uid does not make it anybody's.
    uid = cycle.uid or ("" if held is None else held.uid)
    pod = replace(cycle.pod, name=cycle.name, uid=uid)
    constraints = cycle.constraints.hard.constraints
    return stored_reservation(Reservation(pod, node, dict(wanted.demand.requests), constraints))


def _caught_up(replica: Replica) -> View:
    """The newest state that the store has.

    Raises:
        Unavailable: the state is being loaded anew.
    """
    try:
        return replica.pull()
    except (RevisionUnavailable, IdentityChanged) as cause:
        raise Unavailable("the state is being loaded anew: try again") from cause


def _too_often(wanted: Wanted) -> Conflict:
    return Conflict(
        f"namespace {wanted.namespace!r} or the nodes changed {wanted.conflicts} times while a "
        "place was sought: try again"
    )

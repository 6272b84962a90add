"""One batch of placements: several pods of a namespace judged at one revision, and one write.

Each pod is judged as if the places of those before it were held already. The write goes through
only if nothing relevant came after the revision; otherwise what came is fetched, and all are judged
again. So are those who were judged after a pod whose caller has gone before the write.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from topospread.cache import BUDGETS, Cache
from topospread.checkpoints import checkpoint, computing_for
from topospread.codec.reservations import ReservationTemplate, reservation_key, reservation_row
from topospread.codec.stored_pods import bound_pod
from topospread.errors import (
    CallerGone,
    ClusterLoading,
    Conflict,
    DeadlineExceeded,
    IdentityChanged,
    RevisionUnavailable,
    StoreUnavailable,
    Superseded,
    Unavailable,
)
from topospread.kube.objects import TERMINAL_PHASES
from topospread.replica.view import Token
from topospread.service.placement.requests import (
    PlacementResult,
    PlacementTask,
    Rejection,
    too_late,
)
from topospread.service.state.write import failure_deadline
from topospread.store.model import Key, Kind, LogEntry, Put, Transaction, Unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.index.changes import ReservationRow
    from topospread.kube.demands import Demand
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.decisions.cycle import Cycle
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.pods import EffectiveConstraints
    from topospread.service.placement.requests import NamespaceQueue, PlacementRequest
    from topospread.store.api import Store
    from topospread.store.model import Applied, StoredObject

COMPUTED: Final = 0.05
"""Seconds of processor time after which a round writes what it has: those in line wait for it."""

PATIENT: Final = 5.0
"""Seconds that no store takes for one write: past its own time-out, which costs nothing to keep."""

_NODES: Final = "nodes/"
"""The scope of node changes."""


@dataclass(slots=True)
class PendingPlacement:
    """A task's place, not yet written.

    Attributes:
        view: that it was judged at.
        stored: the reservation to write.
        differences: reservations that will (+1) and will not (−1) be held.
    """

    task: PlacementTask
    view: View
    stored: StoredObject
    node: str
    differences: Sequence[tuple[ReservationRow, int]]


class PlacementBatches:
    """Holds places in the clusters of one store; one batch at a time in each namespace.

    Args:
        engine: judges pods.
        store: keeps what is held.
        thread_time: processor time of the calling thread, in seconds.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        thread_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._engine = engine
        self._store = store
        self._thread_time = thread_time
        self._claims: Cache[tuple[EffectiveConstraints, Demand], ReservationTemplate] = Cache(
            BUDGETS["claims"]
        )

    def run(
        self, own: PlacementTask, tasks: Sequence[PlacementTask], queue: NamespaceQueue
    ) -> None:
        """Give a task its result, and others of its namespace as far as there is time for them.

        Args:
            own: the task that this thread waits for.
            tasks: it and others, in order; those without a result afterwards stand in line again.
            queue: of all of them.
        """
        fresh = False
        left = list(tasks)
        try:
            self._catch_up_with_own(own.placement, queue)
            while not own.done:
                fresh = self._once(own, left, queue, fresh=fresh)
                left = [task for task in left if not task.done]
        finally:
            queue.tasks.extendleft(reversed([task for task in left if task is not own]))

    def show(self, cluster: str, applied: Applied, entries: Sequence[LogEntry]) -> bool:
        """Have a write of this server seen by its next decision; whether it is."""
        replica = self._engine.replicas.get(cluster)
        if replica is None:
            return True
        ended = (LogEntry(key, None) for key in applied.ended)
        transaction = Transaction(applied.revision, applied.previous.tag, (*entries, *ended))
        return replica.apply_local(applied.identity, transaction)

    def _catch_up_with_own(self, placement: PlacementRequest, queue: NamespaceQueue) -> None:
        """Fetch what came before this server's last write here, lest its absence is a conflict."""
        number = queue.behind.pop(placement.place, 0)
        replica = self._engine.replicas.get(placement.decision.cluster)
        view = None if replica is None else replica.view
        if replica is not None and view is not None and view.revision.number < number:
            with suppress(StoreUnavailable, RevisionUnavailable, IdentityChanged):
                replica.catch_up()

    def _once(
        self,
        own: PlacementTask,
        tasks: Sequence[PlacementTask],
        queue: NamespaceQueue,
        *,
        fresh: bool,
    ) -> bool:
        """Judge and write; returns whether what comes next is judged at the newest state.

        Tasks that are not done afterwards are to be judged again.
        """
        if own.is_late:
            tasks = [own]  # its last try: no other write is to end as soon as this one must
        found: list[tuple[PlacementTask, PendingPlacement | PlacementResult]] = []
        decided: list[PendingPlacement] = []
        pods: set[str] = set()
        began, busy = self._thread_time(), False
        for task in tasks:
            if task.placement.pod.name in pods:
                continue  # its turn comes when there is a place for the first of them
            if task is not own and (gone := _gone(task)) is not None:
                task.fail(gone)
                continue
            pods.add(task.placement.pod.name)
            if busy and task is not own:
                continue
            try:
                with computing_for(task.caller):
                    checkpoint()
                    judged = self._judge(task, decided)
            except Exception as failure:  # noqa: BLE001 - raised where it is waited for
                task.fail(failure)
                continue
            finally:
                busy = busy or self._thread_time() - began >= COMPUTED
            found.append((task, judged))
            if isinstance(judged, PendingPlacement):
                decided.append(judged)
        refused = [(task, held) for task, held in found if isinstance(held, PlacementResult)]
        if refused and not fresh:
            # Room that was made a moment ago is not to be missed, nor that a pod has ended.
            try:
                behind = self._is_behind(*refused[0])
            except Unavailable as failure:
                for task, _ in refused:
                    task.fail(failure)
                return False
            if behind:
                return True
        valid = _until_gone(found, decided, own)
        decided = [held for _, held in valid if isinstance(held, PendingPlacement)]
        if decided and not self._write(decided, queue):
            return True
        for task, held in valid:
            if isinstance(held, PlacementResult):
                task.answer(held)
        return False

    def _judge(
        self, task: PlacementTask, before: Sequence[PendingPlacement]
    ) -> PendingPlacement | PlacementResult:
        """Choose a node for a task's pod, as if the places of those before it were held."""
        placement = task.placement
        resolved = self._engine.new_cycle(placement.decision)
        cycle, view = resolved.cycle, resolved.cycle.view
        if bound := self._bound(placement, cycle, resolved.replica):
            return PlacementResult(view.token, bound, already_bound=True)
        held = None
        assumed = [difference for each in before for difference in each.differences]
        replaced = view.snapshot.reservations.get(f"{placement.namespace}/{cycle.name}")
        if placement.is_repeat:
            self._check_own(placement, cycle.name, resolved.replica)
        if replaced is not None and replaced.is_for(cycle.uid):
            held = replaced  # the cycle does not count it
        elif replaced is not None:
            # A predecessor's: it ends with the write of this one.
            assumed.append((replaced, -1))
        if assumed:
            others = view.snapshot.adjusted(placement.namespace, assumed, cycle.effective.groups)
            cycle = replace(cycle, view=replace(view, snapshot=others))
        chosen = task.choose(cycle, held)
        if isinstance(chosen, Rejection):
            return PlacementResult(view.token, "", chosen.status, chosen.message)
        stored = self._reservation(placement, cycle, chosen, held, view)
        differences = [(reservation_row(stored), 1)]
        if replaced is not None:
            differences.append((replaced, -1))
        return PendingPlacement(task, view, stored, chosen, differences)

    def _bound(self, placement: PlacementRequest, cycle: Cycle, replica: Replica) -> str:
        """The node that the pod is bound to already and counts on; empty when there is none."""
        if placement.node:
            return placement.node
        if not replica.is_counted(placement.namespace, cycle.name):
            return ""
        stored = self._store.get(cycle.cluster, Key(Kind.POD, placement.namespace, cycle.name))
        if stored is None or (cycle.uid and stored.uid not in ("", cycle.uid)):
            return ""
        # The store may know of its end before the replica does.
        pod = bound_pod(stored.payload, TERMINAL_PHASES)
        return pod.node if pod.counted else ""

    @staticmethod
    def _check_own(placement: PlacementRequest, name: str, replica: Replica) -> None:
        """See that a repeated call takes nothing away that another caller may hold by now.

        Raises:
            Superseded: what is held for the pod is not what the call's first run held.
            Unavailable: the store cannot be read now.
        """
        try:
            reservations = replica.catch_up().snapshot.reservations
        except (RevisionUnavailable, IdentityChanged) as cause:
            raise _anew(cause) from cause
        found = reservations.get(f"{placement.namespace}/{name}")
        if found is not None and not found.id.endswith(_written(placement.request_id)):
            raise Superseded(
                "the call is a repeat, and another call holds a node for the pod by now, which "
                "stays: place it anew, with another request id, if it is still meant to be"
            )

    def _reservation(
        self,
        placement: PlacementRequest,
        cycle: Cycle,
        node: str,
        held: ReservationRow | None,
        view: View,
    ) -> StoredObject:
        judged = (cycle.effective, placement.demand)
        claim = self._claims.get(judged)
        if claim is None:
            constraints = cycle.constraints.hard.constraints
            claim = ReservationTemplate(cycle.pod, placement.demand.requests, constraints)
            size = 800 + cycle.effective.nbytes + claim.nbytes + placement.demand.nbytes
            if not cycle.effective.is_large:
                self._claims.put(judged, claim, size)
        # Who renews without a uid does not make it anybody's.
        uid = cycle.uid or ("" if held is None else held.uid)
        # Greater than any before it: what was written for the pod is part of the view.
        call = placement.request_id or secrets.randbits(64)
        name = f"{view.revision.number + 1}{_written(call)}"
        return claim.held(reservation_key(placement.namespace, cycle.name), uid, node, name)

    def _is_behind(self, task: PlacementTask, held: PlacementResult) -> bool:
        """Whether the store has more than the state that a task was refused at; it is here then.

        Raises:
            Unavailable: the store cannot be read now.
        """
        replica = self._engine.replicas.get(task.placement.decision.cluster)
        if replica is None:
            return False
        view = replica.current_view()
        try:
            return replica.catch_up().token != held.token
        except RevisionUnavailable as cause:
            self._await_renewal([task], view, cause)
            return True
        except IdentityChanged as cause:
            raise _anew(cause) from cause

    def _write(self, decided: Sequence[PendingPlacement], queue: NamespaceQueue) -> bool:
        """Hold what was decided; returns False when it has to be judged again."""
        oldest = min((each.view for each in decided), key=lambda view: view.revision.number)
        first = decided[0].task
        cluster, namespace = first.placement.place
        puts = [Put(each.stored, lifetime=each.task.placement.lifetime) for each in decided]
        try:
            with first.traced("reserve", len(puts)):
                applied = self._store.apply(
                    cluster,
                    puts,
                    precondition=Unchanged(oldest.revision, (namespace, _NODES)),
                    identity=oldest.identity,
                    force=True,  # the precondition covers all that was there before
                    timeout=min(map(_seconds_left, decided), key=lambda left: left or PATIENT),
                )
        except Conflict as conflict:
            self._overtaken(decided, conflict)
            return False
        except RevisionUnavailable as cause:
            # Nothing was written; what it was judged at is no part of the log any more.
            for each in decided:
                each.task.writing = False
            self._await_renewal([each.task for each in decided], oldest, cause)
            return False
        except Exception as failure:  # noqa: BLE001 - raised where it is waited for
            for each in decided:
                each.task.fail(failure)
            return True
        self._answer(decided, applied, queue)
        return True

    def _answer(
        self, decided: Sequence[PendingPlacement], applied: Applied, queue: NamespaceQueue
    ) -> None:
        stored = [
            replace(each.stored, expires_at=applied.at + each.task.placement.lifetime)
            for each in decided
        ]
        token = Token(applied.identity, applied.revision).encode()
        cluster, namespace = decided[0].task.placement.place
        try:
            if not self.show(cluster, applied, [LogEntry(row.key, row) for row in stored]):
                queue.behind[cluster, namespace] = applied.revision.number
        finally:
            # Last: callers go on with an answer at once, and their next decisions are to see it.
            for each, row in zip(decided, stored, strict=True):
                each.task.answer(
                    PlacementResult(
                        token, each.node, expires_at=row.expires_at, id=row.resource_version
                    )
                )

    def _overtaken(self, decided: Sequence[PendingPlacement], conflict: Conflict) -> None:
        """Fetch the writes that came first; tasks whose time is over fail."""
        now = time.monotonic()
        for each in decided:
            each.task.writing = False
            each.task.placement.conflicts += 1
            if now >= each.task.give_up_at:
                each.task.fail(_too_often(each.task.placement, conflict))
        tasks = [each.task for each in decided]
        replica = self._engine.replicas.get(tasks[0].placement.decision.cluster)
        if replica is None:
            return
        view = replica.current_view()
        try:
            replica.catch_up()
        except RevisionUnavailable as cause:
            self._await_renewal(tasks, view, cause)
        except IdentityChanged as cause:
            self._fail(tasks, _anew(cause))
        except StoreUnavailable as failure:
            self._fail(tasks, failure)

    def _await_renewal(
        self, tasks: Sequence[PlacementTask], lost: View, cause: RevisionUnavailable
    ) -> None:
        """Wait for a view that the log continues; tasks whose time is over by then fail."""
        tasks = [task for task in tasks if not task.done]
        replica = self._engine.replicas.get(tasks[0].placement.decision.cluster) if tasks else None
        if replica is None:
            return
        try:
            replica.wait_replaced(lost, min(task.give_up_at for task in tasks))
        except DeadlineExceeded:
            self._fail([task for task in tasks if task.is_late], _anew(cause))
        except Exception as failure:  # noqa: BLE001 - raised where it is waited for
            self._fail(tasks, failure)

    @staticmethod
    def _fail(tasks: Sequence[PlacementTask], failure: Exception) -> None:
        for task in tasks:
            if not task.done:
                task.fail(failure)


def _written(request_id: int) -> str:
    """The digits of a call's id at the end of a reservation's id."""
    return f"{request_id:020d}"


def _gone(task: PlacementTask) -> Exception | None:
    """The error of a task whose caller has gone; None while it waits."""
    if task.abandoned or task.is_late:
        return too_late(task.placement)
    return _caller_gone(task)


def _caller_gone(task: PlacementTask) -> Exception | None:
    try:
        with computing_for(task.caller):
            checkpoint()
    except (CallerGone, DeadlineExceeded) as gone:
        return gone
    return None


def _until_gone(
    found: Sequence[tuple[PlacementTask, PendingPlacement | PlacementResult]],
    decided: Sequence[PendingPlacement],
    own: PlacementTask,
) -> Sequence[tuple[PlacementTask, PendingPlacement | PlacementResult]]:
    """The judged tasks that may be written and answered.

    No place is written for a caller who has gone meanwhile; and as those behind it were judged as
    if it were held, they are judged again. So is this thread's own task when it has become late
    beside others: its last try is alone.
    """
    for position, (task, held) in enumerate(found):
        if isinstance(held, PlacementResult):
            continue
        task.writing = True  # before the look at whether it was abandoned: see PlacementTask
        if task.is_late and not task.abandoned and len(decided) == 1:
            continue  # its last try
        gone = _caller_gone(task) if task is own else _gone(task)
        if gone is not None:
            task.fail(gone)
        if gone is not None or (task is own and task.is_late):
            return found[:position]
    return found


def _seconds_left(decided: PendingPlacement) -> float | None:
    """The time left for one write; None where the store's own time-out ends sooner anyway."""
    left = decided.task.placement.decision.deadline - time.monotonic()
    return None if left > PATIENT else max(0.001, failure_deadline(left))


def _too_often(placement: PlacementRequest, cause: Exception) -> Conflict:
    conflict = Conflict(
        f"namespace {placement.namespace!r} or the nodes changed {placement.conflicts} times "
        "while a place was sought: try again"
    )
    conflict.__cause__ = cause
    return conflict


def _anew(cause: Exception) -> Unavailable:
    failure = ClusterLoading("the state is being loaded anew: try again")
    failure.__cause__ = cause
    return failure

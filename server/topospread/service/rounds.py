"""One round of holding places: several pods of a namespace judged at one revision, and one write.

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

from topospread.bounded import Bounded
from topospread.checkpoints import checkpoint, computing_for
from topospread.codec.movable import bound_pod
from topospread.codec.reservations import Claim, reservation_key, reservation_row
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
from topospread.service.wanted import Held, Job, Refusal, too_late
from topospread.service.write import told_before
from topospread.store.api import Key, Kind, LogEntry, Put, Transaction, Unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.index.changes import ReservationRow
    from topospread.kube.demands import Demand
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.cycle import Cycle
    from topospread.service.engine import Engine
    from topospread.service.shapes import Judgeable
    from topospread.service.wanted import Line, Wanted
    from topospread.store.api import Applied, Store, StoredObject

COMPUTED: Final = 0.05
"""Seconds of processor time after which a round writes what it has: those in line wait for it."""

PATIENT: Final = 5.0
"""Seconds that no store takes for one write: past its own time-out, which costs nothing to keep."""

_NODES: Final = "nodes/"
"""The scope of node changes."""


@dataclass(slots=True)
class Decided:
    """A job's place, not yet written.

    Attributes:
        view: that it was judged at.
        stored: the reservation to write.
        differences: reservations that will (+1) and will not (−1) be held.
    """

    job: Job
    view: View
    stored: StoredObject
    node: str
    differences: Sequence[tuple[ReservationRow, int]]


class Rounds:
    """Holds places in the clusters of one store; one round at a time in each namespace.

    Args:
        engine: judges pods.
        store: keeps what is held.
        entering_wait: as Holding's.
        thread_time: processor time of the calling thread, in seconds.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        entering_wait: Callable[[], Callable[[], None]],
        thread_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self._engine = engine
        self._store = store
        self._entering_wait = entering_wait
        self._thread_time = thread_time
        self._claims: Bounded[tuple[Judgeable, Demand], Claim] = Bounded(engine.budgets["claims"])

    def run(self, own: Job, jobs: Sequence[Job], line: Line) -> None:
        """Give a job its result, and others of its namespace as far as there is time for them.

        Args:
            own: the job that this thread waits for.
            jobs: it and others, in order; those without a result afterwards stand in line again.
            line: of all of them.
        """
        fresh = False
        left = list(jobs)
        try:
            self._catch_up_with_own(own.wanted, line)
            while not own.done:
                fresh = self._once(own, left, line, fresh=fresh)
                left = [job for job in left if not job.done]
        finally:
            line.jobs.extendleft(reversed([job for job in left if job is not own]))

    def show(self, cluster: str, applied: Applied, entries: Sequence[LogEntry]) -> bool:
        """Have a write of this server seen by its next decision; whether it is."""
        replica = self._engine.replicas.at_hand(cluster)
        if replica is None:
            return True
        ended = (LogEntry(key, None) for key in applied.ended)
        transaction = Transaction(applied.revision, applied.previous.tag, (*entries, *ended))
        return replica.take(applied.identity, transaction)

    def _catch_up_with_own(self, wanted: Wanted, line: Line) -> None:
        """Fetch what came before this server's last write here, lest its absence is a conflict."""
        number = line.behind.pop(wanted.place, 0)
        replica = self._engine.replicas.at_hand(wanted.ask.cluster)
        view = None if replica is None else replica.view
        if replica is not None and view is not None and view.revision.number < number:
            with suppress(StoreUnavailable, RevisionUnavailable, IdentityChanged):
                replica.pull()

    def _once(self, own: Job, jobs: Sequence[Job], line: Line, *, fresh: bool) -> bool:
        """Judge and write; returns whether what comes next is judged at the newest state.

        Jobs that are not done afterwards are to be judged again.
        """
        if own.is_late:
            jobs = [own]  # its last try: no other write is to end as soon as this one must
        found: list[tuple[Job, Decided | Held]] = []
        decided: list[Decided] = []
        pods: set[str] = set()
        began, busy = self._thread_time(), False
        for job in jobs:
            if job.wanted.pod.name in pods:
                continue  # its turn comes when there is a place for the first of them
            if job is not own and (gone := _gone(job)) is not None:
                job.fail(gone)
                continue
            pods.add(job.wanted.pod.name)
            if busy and job is not own:
                continue
            try:
                with computing_for(job.caller):
                    checkpoint()
                    judged = self._judge(job, decided)
            except Exception as failure:  # noqa: BLE001 - raised where it is waited for
                job.fail(failure)
                continue
            finally:
                busy = busy or self._thread_time() - began >= COMPUTED
            found.append((job, judged))
            if isinstance(judged, Decided):
                decided.append(judged)
        refused = [(job, held) for job, held in found if isinstance(held, Held)]
        if refused and not fresh:
            # Room that was made a moment ago is not to be missed, nor that a pod has ended.
            try:
                behind = self._is_behind(*refused[0])
            except Unavailable as failure:
                for job, _ in refused:
                    job.fail(failure)
                return False
            if behind:
                return True
        valid = _until_gone(found, decided, own)
        decided = [held for _, held in valid if isinstance(held, Decided)]
        if decided and not self._write(decided, line):
            return True
        for job, held in valid:
            if isinstance(held, Held):
                job.answer(held)
        return False

    def _judge(self, job: Job, before: Sequence[Decided]) -> Decided | Held:
        """Where a job's pod is to go, as if the places of those before it were held."""
        wanted = job.wanted
        resolved = self._engine.begin(wanted.ask)
        cycle, view = resolved.cycle, resolved.cycle.view
        if bound := self._bound(wanted, cycle, resolved.replica):
            return Held(view.token, bound, already_bound=True)
        held = None
        assumed = [difference for each in before for difference in each.differences]
        replaced = view.snapshot.reservations.get(f"{wanted.namespace}/{cycle.name}")
        if wanted.is_repeat:
            self._check_own(wanted, cycle.name, resolved.replica)
        if replaced is not None and replaced.is_for(cycle.uid):
            held = replaced  # the cycle does not count it
        elif replaced is not None:
            # A predecessor's: it ends with the write of this one.
            assumed.append((replaced, -1))
        if assumed:
            others = view.snapshot.adjusted(wanted.namespace, assumed, cycle.judgeable.groups)
            cycle = replace(cycle, view=replace(view, snapshot=others))
        chosen = job.choose(cycle, held)
        if isinstance(chosen, Refusal):
            return Held(view.token, "", chosen.status, chosen.message)
        stored = self._reservation(wanted, cycle, chosen, held, view)
        differences = [(reservation_row(stored), 1)]
        if replaced is not None:
            differences.append((replaced, -1))
        return Decided(job, view, stored, chosen, differences)

    def _bound(self, wanted: Wanted, cycle: Cycle, replica: Replica) -> str:
        """The node that the pod is bound to already and counts on; empty when there is none."""
        if wanted.node:
            return wanted.node
        if not replica.is_counted(wanted.namespace, cycle.name):
            return ""
        stored = self._store.get(cycle.cluster, Key(Kind.POD, wanted.namespace, cycle.name))
        if stored is None or (cycle.uid and stored.uid not in ("", cycle.uid)):
            return ""
        # The store may know of its end before the replica does.
        pod = bound_pod(stored.payload, TERMINAL_PHASES)
        return pod.node if pod.counted else ""

    @staticmethod
    def _check_own(wanted: Wanted, name: str, replica: Replica) -> None:
        """See that a repeated call takes nothing away that somebody else may hold by now.

        Raises:
            Superseded: what is held for the pod is not what the call's first run held.
            Unavailable: that cannot be told now.
        """
        try:
            reservations = replica.pull().snapshot.reservations
        except (RevisionUnavailable, IdentityChanged) as cause:
            raise _anew(cause) from cause
        found = reservations.get(f"{wanted.namespace}/{name}")
        if found is not None and not found.id.endswith(_written(wanted.request_id)):
            raise Superseded(
                "the call is a repeat, and another call holds a node for the pod by now, which "
                "stays: place it anew, with another request id, if it is still meant to be"
            )

    def _reservation(
        self, wanted: Wanted, cycle: Cycle, node: str, held: ReservationRow | None, view: View
    ) -> StoredObject:
        judged = (cycle.judgeable, wanted.demand)
        claim = self._claims.get(judged)
        if claim is None:
            constraints = cycle.constraints.hard.constraints
            claim = Claim(cycle.pod, wanted.demand.requests, constraints)
            size = 800 + cycle.judgeable.nbytes + claim.nbytes + wanted.demand.nbytes
            self._claims.put(judged, claim, size)
        # Who renews without a uid does not make it anybody's.
        uid = cycle.uid or ("" if held is None else held.uid)
        # Greater than any before it: what was written for the pod is part of the view.
        call = wanted.request_id or secrets.randbits(64)
        name = f"{view.revision.number + 1}{_written(call)}"
        return claim.held(reservation_key(wanted.namespace, cycle.name), uid, node, name)

    def _is_behind(self, job: Job, held: Held) -> bool:
        """Whether the store has more than the state that a job was refused at; it is here then.

        Raises:
            Unavailable: that cannot be told now.
        """
        replica = self._engine.replicas.at_hand(job.wanted.ask.cluster)
        if replica is None:
            return False
        view = replica.loaded()
        try:
            return replica.pull().token != held.token
        except RevisionUnavailable as cause:
            self._await_renewal([job], view, cause)
            return True
        except IdentityChanged as cause:
            raise _anew(cause) from cause

    def _write(self, decided: Sequence[Decided], line: Line) -> bool:
        """Hold what was decided; returns False when it has to be judged again."""
        oldest = min((each.view for each in decided), key=lambda view: view.revision.number)
        first = decided[0].job
        cluster, namespace = first.wanted.place
        puts = [Put(each.stored, lifetime=each.job.wanted.lifetime) for each in decided]
        try:
            with first.traced("reserve", len(puts)):
                applied = self._store.apply(
                    cluster,
                    puts,
                    precondition=Unchanged(oldest.revision, (namespace, _NODES)),
                    identity=oldest.identity,
                    force=True,  # the precondition says all about what was there before
                    timeout=min(map(_seconds_left, decided), key=lambda left: left or PATIENT),
                )
        except Conflict as conflict:
            self._overtaken(decided, conflict)
            return False
        except RevisionUnavailable as cause:
            # Nothing was written; what it was judged at is no part of the log any more.
            for each in decided:
                each.job.writing = False
            self._await_renewal([each.job for each in decided], oldest, cause)
            return False
        except Exception as failure:  # noqa: BLE001 - raised where it is waited for
            for each in decided:
                each.job.fail(failure)
            return True
        self._answer(decided, applied, line)
        return True

    def _answer(self, decided: Sequence[Decided], applied: Applied, line: Line) -> None:
        stored = [
            replace(each.stored, expires_at=applied.at + each.job.wanted.lifetime)
            for each in decided
        ]
        token = Token(applied.identity, applied.revision).encode()
        cluster, namespace = decided[0].job.wanted.place
        try:
            if not self.show(cluster, applied, [LogEntry(row.key, row) for row in stored]):
                line.behind[cluster, namespace] = applied.revision.number
        finally:
            # Last: callers go on with an answer at once, and their next decisions are to see it.
            for each, row in zip(decided, stored, strict=True):
                each.job.answer(
                    Held(token, each.node, expires_at=row.expires_at, id=row.resource_version)
                )

    def _overtaken(self, decided: Sequence[Decided], conflict: Conflict) -> None:
        """Others were first: fetch what they did. Whose time is over is told so."""
        now = time.monotonic()
        for each in decided:
            each.job.writing = False
            each.job.wanted.conflicts += 1
            if now >= each.job.give_up_at:
                each.job.fail(_too_often(each.job.wanted, conflict))
        jobs = [each.job for each in decided]
        replica = self._engine.replicas.at_hand(jobs[0].wanted.ask.cluster)
        if replica is None:
            return
        view = replica.loaded()
        try:
            replica.pull()
        except RevisionUnavailable as cause:
            self._await_renewal(jobs, view, cause)
        except IdentityChanged as cause:
            self._fail(jobs, _anew(cause))
        except StoreUnavailable as failure:
            self._fail(jobs, failure)

    def _await_renewal(self, jobs: Sequence[Job], lost: View, cause: RevisionUnavailable) -> None:
        """Wait for a view that the log continues; whose time is over by then is told so."""
        jobs = [job for job in jobs if not job.done]
        replica = self._engine.replicas.at_hand(jobs[0].wanted.ask.cluster) if jobs else None
        if replica is None:
            return
        try:
            leave = self._entering_wait()
            try:
                replica.renewed(lost, min(job.give_up_at for job in jobs))
            finally:
                leave()
        except DeadlineExceeded:
            self._fail([job for job in jobs if job.is_late], _anew(cause))
        except Exception as failure:  # noqa: BLE001 - raised where it is waited for
            self._fail(jobs, failure)

    @staticmethod
    def _fail(jobs: Sequence[Job], failure: Exception) -> None:
        for job in jobs:
            if not job.done:
                job.fail(failure)


def _written(request_id: int) -> str:
    """The digits of a call's id at the end of a reservation's."""
    return f"{request_id:020d}"


def _gone(job: Job) -> Exception | None:
    """Why nobody waits for a job any more; None when somebody does."""
    if job.abandoned or job.is_late:
        return too_late(job.wanted)
    return _caller_gone(job)


def _caller_gone(job: Job) -> Exception | None:
    try:
        with computing_for(job.caller):
            checkpoint()
    except (CallerGone, DeadlineExceeded) as gone:
        return gone
    return None


def _until_gone(
    found: Sequence[tuple[Job, Decided | Held]], decided: Sequence[Decided], own: Job
) -> Sequence[tuple[Job, Decided | Held]]:
    """What may be written and answered, now that all are judged.

    No place is written for a caller who has gone meanwhile; and as those behind it were judged as
    if it were held, they are judged again. So is this thread's own job when it has become late
    beside others: its last try is alone.
    """
    for position, (job, held) in enumerate(found):
        if isinstance(held, Held):
            continue
        job.writing = True  # before the look at whether it was abandoned: see Job
        if job.is_late and not job.abandoned and len(decided) == 1:
            continue  # its last try
        gone = _caller_gone(job) if job is own else _gone(job)
        if gone is not None:
            job.fail(gone)
        if gone is not None or (job is own and job.is_late):
            return found[:position]
    return found


def _seconds_left(decided: Decided) -> float | None:
    """For one write; None for the store's own time-out where that ends sooner in any case."""
    left = decided.job.wanted.ask.deadline - time.monotonic()
    return None if left > PATIENT else max(0.001, told_before(left))


def _too_often(wanted: Wanted, cause: Exception) -> Conflict:
    conflict = Conflict(
        f"namespace {wanted.namespace!r} or the nodes changed {wanted.conflicts} times while a "
        "place was sought: try again"
    )
    conflict.__cause__ = cause
    return conflict


def _anew(cause: Exception) -> Unavailable:
    failure = ClusterLoading("the state is being loaded anew: try again")
    failure.__cause__ = cause
    return failure

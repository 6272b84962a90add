"""Holds places for pods, so that schedulers on any number of servers keep maxSkew together.

Pods of one namespace are placed by one thread of a server at a time, for all that wait: threads
would only make one another's judgements void. Each pod is judged as if the places of those before
it were held already, and all are written at once, if nothing relevant came since the state that
they were judged at. Otherwise they are judged again.
"""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topospread.cache import BUDGETS, Cache
from topospread.checkpoints import checkpoint, computing_for
from topospread.codec.reservations import ReservationTemplate, reservation_key
from topospread.codec.stored_pods import bound_pod
from topospread.errors import (
    ClusterLoading,
    Conflict,
    DeadlineExceeded,
    IdentityChanged,
    InvalidPod,
    RevisionUnavailable,
    StoreUnavailable,
    Superseded,
    TopospreadError,
)
from topospread.kube.objects import TERMINAL_PHASES
from topospread.kube.violations import required
from topospread.replica.view import Token
from topospread.service.decisions.request import PodRef
from topospread.service.placement.tasks import (
    PendingPlacement,
    PlacementRequest,
    PlacementResult,
    PlacementTask,
    Rejection,
    WaitingTasks,
)
from topospread.service.state.write import failure_deadline
from topospread.store.api import get_one
from topospread.store.checks import wrong_words
from topospread.store.model import (
    Key,
    Kind,
    LogEntry,
    Put,
    Transaction,
    Unchanged,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.index.changes import ReservationRow
    from topospread.kube.demands import Demand
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.decisions.cycle import Cycle
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.pods import EffectiveConstraints
    from topospread.service.decisions.request import DecisionRequest
    from topospread.service.placement.tasks import Choose
    from topospread.service.state.write import Traced
    from topospread.store.api import Store
    from topospread.store.model import Applied, StoredObject

COMPUTED: Final = 0.05
"""Seconds of processor time after which what was judged is written: the longer it is judged, the
more likely others write meanwhile.
"""

CONTENDED: Final = 1.0
"""Seconds after a conflict in which the next one is likely: places are then sought at a state that
was fetched for them, which costs less than to be judged and written twice.
"""

PATIENT: Final = 5.0
"""Seconds that no store takes for one write: past its own time-out, which costs nothing to keep."""


class Places:
    """Holds places in the clusters of one store.

    Args:
        engine: judges pods.
        store: keeps what is held.
        thread_time: processor time of the calling thread, in seconds.
    """

    def __init__(
        self, engine: Engine, store: Store, *, thread_time: Callable[[], float] = time.thread_time
    ) -> None:
        self.engine = engine
        self.store = store
        self._thread_time = thread_time
        self._templates: Cache[tuple[EffectiveConstraints, Demand], ReservationTemplate] = Cache(
            BUDGETS["claims"]
        )
        self.waiting = WaitingTasks()
        self._took = 0.0  # seconds, by the last write
        self._contended: dict[tuple[str, str], float] = {}  # until when, on the monotonic clock

    def new_request(
        self,
        request: DecisionRequest,
        pod: bytes | PodRef,
        lifetime: int,
        *,
        request_id: int = 0,
        is_repeat: bool = False,
    ) -> PlacementRequest:
        """A request to hold a place for a pod.

        Args:
            request: without its pod; its nodes are the candidates.
            pod: the bytes of a v1.Pod, or a pod of the state.
            lifetime: milliseconds.
            request_id: the hash of the call's own id; 0 for none.
            is_repeat: the call was made before, and its answer was lost.

        Raises:
            InvalidRequest: no pod, or one without a name, for which no place can be held.
            NotFound: the pod is not in the state.
        """
        subject, demand, node, _ = self.engine.with_requests(request, pod)
        if not subject.name:
            raise InvalidPod.of([required("metadata.name", "name is required")])
        key = Key(Kind.RESERVATION, subject.shape.pod.namespace, subject.name)
        if wrong := wrong_words(key, subject.uid):
            raise InvalidPod.of([each.below("metadata") for each in wrong])
        if isinstance(pod, PodRef):
            node = ""  # read from the state when the pod is judged
        decision = request._replace(pod=subject, demand=demand)
        return PlacementRequest(
            decision, subject, demand, node, lifetime, request_id, is_repeat=is_repeat
        )

    def hold(self, placement: PlacementRequest, choose: Choose, traced: Traced) -> PlacementResult:
        """Choose a node and hold it for the pod, together with those who wait for the same.

        Args:
            placement: for which pod.
            choose: the node.
            traced: wraps writes to the store in spans.

        Raises:
            Conflict: others changed the state again and again until the deadline.
            DeadlineExceeded: others were placed in the namespace until then.
            InvalidRequest, NotFound, Unavailable: see Engine.new_cycle and Writer.apply.
        """
        task = PlacementTask(placement, choose, traced, threading.Condition(self.waiting.lock))
        self.waiting.join(task)
        while self.waiting.leads(task):
            self._lead(task)
        return task.result()

    def place_many(self, tasks: Sequence[PlacementTask]) -> list[PlacementTask]:
        """Judge tasks and write their places in one step; returns those to be judged again.

        Nobody else of this server places in their scope meanwhile.

        Args:
            tasks: of different pods of one namespace, in the order in which they are judged.
        """
        left = _left(tasks)
        try:
            if left:
                self._judge_and_write(left)
        except Exception as failure:  # noqa: BLE001 - raised where it is waited for
            _fail(left, failure)
        return [task for task in left if not task.done]

    def _lead(self, own: PlacementTask) -> None:
        """Place those who wait, until one's own task is done; the others are left to their turn."""
        scope = own.placement.scope
        left: list[PlacementTask] = []
        try:
            while not own.done:
                # Fewer, larger writes get on better beside another server's.
                self.waiting.take(scope, left)
                left = self.place_many(left)
        finally:
            self.waiting.release(scope, left, self._took)

    def show(self, cluster: str, applied: Applied, entries: Sequence[LogEntry]) -> None:
        """Have a write of this server seen by its next decision."""
        replica = self.engine.replicas.get(cluster)
        if replica is not None:
            ended = (LogEntry(key, None) for key in applied.ended)
            transaction = Transaction(applied.revision, applied.previous.tag, (*entries, *ended))
            replica.apply_local(applied.identity, transaction)

    # ------------------------------ one try

    def _judge_and_write(self, tasks: Sequence[PlacementTask]) -> None:
        judged: list[tuple[PlacementTask, PendingPlacement | PlacementResult]] = []
        places: list[PendingPlacement] = []
        assumed: list[tuple[ReservationRow, int]] = []
        self._fetch_before(tasks[0].placement)
        began = self._thread_time() if len(tasks) > 1 else 0.0
        for task in tasks:
            if judged and self._thread_time() - began >= COMPUTED:
                break
            if places and judged[-1][1] is places[-1]:
                assumed += places[-1].differences()
            try:
                with computing_for(task.caller):
                    checkpoint()
                    found = self._judge(task, assumed, places)
            except Exception as failure:  # noqa: BLE001 - raised where it is waited for
                task.fail(failure)
                continue
            judged.append((task, found))
            if isinstance(found, PendingPlacement):
                places.append(found)
        results = [(task, found) for task, found in judged if isinstance(found, PlacementResult)]
        # Room that was made a moment ago is not to be missed, nor that a pod has ended.
        unsure = [(task, found) for task, found in results if not (found.node or task.newest)]
        if unsure and not self._are_newest(unsure):
            return
        if places:
            if not self._begin(judged):
                return
            if not self._write(places):
                for task, _ in judged:
                    task.writing = False
                return
        for task, found in results:
            task.answer(found)

    def _fetch_before(self, placement: PlacementRequest) -> None:
        """Fetch what a judgement would lack, and the write find out, with all to be done again.

        That is what came before this server's own last write, and what others write one after the
        other: while a scheduler binds a burst, the sync writes of each pod.
        """
        replica = self.engine.replicas.get(placement.decision.cluster)
        if replica is None:
            return
        # After a conflict of its own it was fetched.
        contended_until = 0.0 if placement.conflicts else self._contended.get(placement.scope, 0.0)
        if contended_until > time.monotonic() or replica.lacks_own_write(placement.namespace):
            with suppress(StoreUnavailable, RevisionUnavailable, IdentityChanged):
                replica.catch_up()

    def _note_contended(self, scope: tuple[str, str]) -> None:
        now = time.monotonic()
        self._contended = {each: until for each, until in self._contended.items() if until > now}
        self._contended[scope] = now + CONTENDED

    def _judge(
        self,
        task: PlacementTask,
        assumed: Sequence[tuple[ReservationRow, int]],
        places: Sequence[PendingPlacement],
    ) -> PendingPlacement | PlacementResult:
        """Choose a node for a task's pod, as if the places of those before it were held."""
        placement = task.placement
        resolved = self.engine.new_cycle(placement.decision)
        cycle, view = resolved.cycle, resolved.cycle.view
        version = cycle.rules.version
        if bound := self._bound(placement, cycle, resolved.replica):
            return PlacementResult(view.token, version, bound, already_bound=True)
        if placement.is_repeat:
            _check_own(placement, cycle.name, resolved.replica)
        differences = list(assumed)
        held = replaced = view.snapshot.reservations.get(f"{placement.namespace}/{cycle.name}")
        if replaced is not None and not replaced.is_for(cycle.uid):
            # A predecessor's: it ends with the write of this one. One's own the cycle leaves out.
            differences.append((replaced, -1))
            held = None
        if differences:
            others = view.snapshot.adjusted(placement.namespace, differences, cycle.needed)
            keys = (each.stored.key for each in places)
            others = others.without_nominated(f"{key.namespace}/{key.name}" for key in keys)
            cycle = replace(cycle, view=replace(view, snapshot=others))
        chosen = task.choose(cycle, held)
        if isinstance(chosen, Rejection):
            return PlacementResult(view.token, version, "", chosen.status, chosen.message)
        stored = self._reservation(placement, cycle, chosen, held)
        return PendingPlacement(task, view, version, stored, chosen, replaced)

    def _bound(self, placement: PlacementRequest, cycle: Cycle, replica: Replica) -> str:
        """The node that the pod is bound to already and counts on; empty when there is none."""
        if placement.node:
            return placement.node
        if not replica.is_counted(placement.namespace, cycle.name):
            return ""
        stored = get_one(self.store, cycle.cluster, Key(Kind.POD, placement.namespace, cycle.name))
        if stored is None or (cycle.uid and stored.uid not in ("", cycle.uid)):
            return ""
        # The store may know of its end before the replica does.
        pod = bound_pod(stored.payload, TERMINAL_PHASES)
        return pod.node if pod.counted else ""

    def _reservation(
        self, placement: PlacementRequest, cycle: Cycle, node: str, held: ReservationRow | None
    ) -> StoredObject:
        judged = (cycle.effective, placement.demand)
        template = self._templates.get(judged)
        if template is None:
            constraints = cycle.constraints.hard.constraints
            template = ReservationTemplate(cycle.pod, placement.demand, constraints)
            size = 800 + cycle.effective.nbytes + template.nbytes + placement.demand.nbytes
            if not cycle.effective.is_large:
                self._templates.put(judged, template, size)
        # Who renews without a uid does not make it anybody's.
        uid = cycle.uid or ("" if held is None else held.uid)
        # Greater than any before it: what was written for the pod is part of the view.
        call = placement.request_id or secrets.randbits(64)
        name = f"{cycle.view.revision.number + 1}{_digits(call)}"
        return template.held(reservation_key(placement.namespace, cycle.name), uid, node, name)

    # ------------------------------ the store

    def _begin(self, judged: Sequence[tuple[PlacementTask, object]]) -> bool:
        """Have callers wait for the write; not if one has gone: those behind it counted its place.

        So nothing is written for a caller that was answered already.
        """
        for task, _ in judged:
            task.fail_if_gone()
        with self.waiting.lock:
            if any(task.done for task, _ in judged):
                return False
            for task, _ in judged:
                task.writing = True
        return True

    def _write(self, places: Sequence[PendingPlacement]) -> bool:
        """Hold what was chosen, and answer; returns False when that has to be done again."""
        first = places[0]  # no other was judged at an older state
        cluster, _ = first.task.placement.scope
        scopes = set[str]().union(*(each.task.placement.depends_on for each in places))
        left = max(each.task.placement.decision.deadline for each in places) - time.monotonic()
        tasks = [each.task for each in places]
        began = time.monotonic()
        try:
            with first.task.traced("reserve", len(places)):
                applied = self.store.apply(
                    cluster,
                    [Put(each.stored, lifetime=each.task.placement.lifetime) for each in places],
                    precondition=Unchanged(first.view.revision, tuple(sorted(scopes))),
                    identity=first.view.identity,
                    force=True,  # the precondition covers all that was there before
                    timeout=None if left > PATIENT else max(0.001, failure_deadline(left)),
                )
        except Conflict as conflict:
            self._note_contended(first.task.placement.scope)
            for task in tasks:
                task.placement.conflicts += 1
                task.late = _too_often(task.placement, conflict)
            self._fetch(tasks, conflict.revision)
        except (RevisionUnavailable, IdentityChanged) as lost:
            self._await_renewal(tasks, first.view, lost)
        except Exception as failure:  # noqa: BLE001 - raised where it is waited for
            _fail(tasks, failure)
        else:
            self._took = time.monotonic() - began
            self._answer(places, applied)
            return True
        return False

    def _answer(self, places: Sequence[PendingPlacement], applied: Applied) -> None:
        rows = [
            replace(each.stored, expires_at=applied.at + each.task.placement.lifetime)
            for each in places
        ]
        token = Token(applied.identity, applied.revision).encode()
        try:
            cluster = places[0].task.placement.decision.cluster
            self.show(cluster, applied, [LogEntry(row.key, row) for row in rows])
        finally:
            # Last: callers go on with an answer at once, and their next decisions are to see it.
            for each, row in zip(places, rows, strict=True):
                each.task.answer(
                    PlacementResult(
                        token,
                        each.version,
                        each.node,
                        expires_at=row.expires_at,
                        id=row.resource_version,
                    )
                )

    def _are_newest(self, refused: Sequence[tuple[PlacementTask, PlacementResult]]) -> bool:
        """Whether the store has no more than what refusals rest on; else it is here then."""
        tasks = [task for task, _ in refused]
        replica = self.engine.replicas.get(tasks[0].placement.decision.cluster)
        if replica is None:
            return True
        self._fetch(tasks)
        newest = replica.view
        return tasks[0].newest and all(
            newest is not None and found.token == newest.token for _, found in refused
        )

    def _fetch(self, tasks: Sequence[PlacementTask], number: int | None = None) -> None:
        """Have the replica as new as the store, or at least as a revision."""
        replica = self.engine.replicas.get(tasks[0].placement.decision.cluster)
        if replica is None:
            return
        view = replica.current_view()
        if number is not None and view.revision.number >= number:
            return  # following the log has brought it
        try:
            replica.catch_up()
        except (RevisionUnavailable, IdentityChanged) as lost:
            self._await_renewal(tasks, view, lost)
        except StoreUnavailable as failure:
            _fail(tasks, failure)
        else:
            for task in tasks:
                task.newest = True

    def _await_renewal(
        self, tasks: Sequence[PlacementTask], lost: View, cause: TopospreadError
    ) -> None:
        """Wait for a view that the log continues; without one tasks fail."""
        cluster = tasks[0].placement.decision.cluster
        for task in tasks:
            task.late = _anew(cause)
        try:
            if isinstance(cause, IdentityChanged):
                self.engine.replicas.reconcile(cluster)
            replica = self.engine.replicas.get(cluster)
            if replica is not None:
                replica.wait_replaced(lost, min(task.give_up_at for task in tasks))
        except DeadlineExceeded:
            pass  # those whose time is over fail next
        except TopospreadError as failure:
            _fail(tasks, failure)


def _left(tasks: Sequence[PlacementTask]) -> list[PlacementTask]:
    """Those that are to be judged, whose callers wait."""
    for task in tasks:
        if not task.done:
            task.fail_if_gone()
    return [task for task in tasks if not task.done]


def _fail(tasks: Sequence[PlacementTask], failure: Exception) -> None:
    for task in tasks:
        task.fail(failure)


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
    if found is not None and not found.id.endswith(_digits(placement.request_id)):
        raise Superseded(
            "the call is a repeat, and another call holds a node for the pod by now, which "
            "stays: place it anew, with another request id, if it is still meant to be"
        )


def _digits(request_id: int) -> str:
    """The digits of a call's id at the end of a reservation's id."""
    return f"{request_id:020d}"


def _too_often(placement: PlacementRequest, cause: Exception) -> Conflict:
    conflict = Conflict(
        f"namespace {placement.namespace!r} or the nodes changed {placement.conflicts} times "
        "while a place was sought: try again"
    )
    conflict.__cause__ = cause
    return conflict


def _anew(cause: Exception) -> ClusterLoading:
    failure = ClusterLoading("the state is being loaded anew: try again")
    failure.__cause__ = cause
    return failure

"""Requests to hold a place for a pod, their results, and those who wait for one."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import Computation, current_computation
from topospread.codec.reservations import reservation_row
from topospread.errors import CallerGone, DeadlineExceeded, TopospreadError
from topospread.spread.verdicts import SUCCESS, Status
from topospread.store.model import (
    DEFAULT_LIFETIME,
    DEVICES_SCOPE,
    NAMESPACES_SCOPE,
    NODES_SCOPE,
    VOLUMES_SCOPE,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.index.changes import ReservationRow
    from topospread.kube.demands import Demand
    from topospread.kube.versions import KubernetesVersion
    from topospread.replica.view import View
    from topospread.service.decisions.cycle import Cycle
    from topospread.service.decisions.pods import ShapedPod
    from topospread.service.decisions.request import DecisionRequest
    from topospread.service.state.write import Traced
    from topospread.store.model import StoredObject

MOST: Final = 16
"""Places of one write: past it, those who wait would rather wait for the next than share a fate."""

TURNS: Final = 10
"""Turns in which a server rests once, about: often enough for callers elsewhere who wait for some
seconds, rare enough to cost a tenth of the places at most.
"""

MAX_REST: Final = 0.25
"""Seconds: a store that takes longer for a write is not only far away."""

GIVE_UP: Final = 0.05
"""Seconds before the deadline after which no write begins, so that its result reaches the caller;
a quarter of what is left if that is less.
"""


@dataclass(slots=True)
class PlacementRequest:
    """A request to hold a place for a pod.

    Attributes:
        decision: about the pod; its nodes are the candidates.
        pod: the pod, as its shape.
        demand: what it takes.
        node: that the pod is bound to according to the caller; otherwise empty.
        lifetime: milliseconds that the place is held for.
        request_id: random, of the call.
        is_repeat: the call was made before, and its answer was lost.
        conflicts: how often others' changes made a judgement void.
        not_modelled: what the last judgement did not look at.
    """

    decision: DecisionRequest
    pod: ShapedPod
    demand: Demand
    node: str = ""
    lifetime: int = DEFAULT_LIFETIME
    request_id: int = 0
    is_repeat: bool = False
    conflicts: int = 0
    not_modelled: Sequence[str] = ()

    @property
    def namespace(self) -> str:
        """The namespace of the pod."""
        return self.pod.shape.pod.namespace

    @property
    def scope(self) -> tuple[str, str]:
        """Cluster and namespace: where only one server at a time can hold places."""
        return self.decision.cluster, self.namespace

    @property
    def depends_on(self) -> set[str]:
        """Scopes of changes that make a judgement void, see Key.scope.

        Its namespace and the nodes; of a pod with volumes or resource claims all that concerns
        these, of one with inter-pod affinity the namespaces that its terms name, and the labels of
        namespaces where a term selects by them.
        """
        scopes = {self.namespace, NODES_SCOPE}
        if self.demand.volumes:
            scopes.add(VOLUMES_SCOPE)
        if self.demand.resource_claims:
            scopes.add(DEVICES_SCOPE)
        for term in (*self.demand.affinity, *self.demand.anti_affinity):
            scopes.update(term.namespaces)
            if term.namespace_selector is not None:
                scopes.add(NAMESPACES_SCOPE)
        return scopes


@dataclass(slots=True)
class PlacementResult:
    """The result of a PlacementRequest.

    Attributes:
        token: of the revision: that of the write, or else the one it was judged at.
        version: of Kubernetes, by whose rules it was judged.
        node: the place; empty when it was refused.
        status: Success, or why it was refused.
        message: as kube-scheduler words it on a pod that fits nowhere.
        already_bound: the pod is bound there and counts; nothing was written.
        expires_at: milliseconds since 1970 on the store's clock.
        id: of what is held.
    """

    token: str
    version: KubernetesVersion
    node: str = ""
    status: Status = SUCCESS
    message: str = ""
    already_bound: bool = False
    expires_at: int = 0
    id: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason why no place is held.

    Attributes:
        not_modelled: what could make room for it and is not looked at.
    """

    status: Status
    message: str = ""
    not_modelled: tuple[str, ...] = field(default=(), compare=False)


Choose = Callable[["Cycle", "ReservationRow | None"], str | Rejection]
"""Chooses a node, or returns why none, given the cycle and the reservation of the pod."""


@dataclass(slots=True, eq=False)
class PlacementTask:
    """A place that a thread waits for, and that its own or another thread seeks.

    Attributes:
        changed: is notified when there is a result, or when its thread may place those who wait.
        caller: for whom it is sought, by whichever thread does it.
        give_up_at: when no more writes begin, on the monotonic clock.
        newest: the state is as new as the call, so that it may be refused.
        writing: its place is being written, so that the result is waited for until the deadline.
        late: the error if its time ends; None until something made a judgement void.
        done: whether there is a result; the first one stays.
    """

    placement: PlacementRequest
    choose: Choose
    traced: Traced
    changed: threading.Condition
    caller: Computation | None = field(default_factory=current_computation)
    give_up_at: float = field(init=False)
    newest: bool = False
    writing: bool = False
    late: TopospreadError | None = None
    done: bool = False
    _result: PlacementResult | None = None
    _failure: BaseException | None = None

    def __post_init__(self) -> None:
        """Note when it gives up."""
        deadline = self.placement.decision.deadline
        self.give_up_at = deadline - min(GIVE_UP, max(0.0, deadline - time.monotonic()) / 4)

    def answer(self, result: PlacementResult) -> None:
        """Set the result: the place, or the reason for none."""
        with self.changed:
            if not self.done:
                self._result, self.done = result, True
                self.changed.notify()

    def fail(self, failure: BaseException) -> None:
        """Set an error as the result."""
        with self.changed:
            if not self.done:
                self._failure, self.done = failure, True
                self.changed.notify()

    def fail_if_gone(self) -> None:
        """Set the error if its caller has gone or its time is over."""
        if time.monotonic() >= self.give_up_at:
            self.fail(self.late or _too_late(self.placement))
        elif self.caller is not None:
            try:
                self.caller.check_caller()
            except (CallerGone, DeadlineExceeded) as gone:
                self.fail(gone)

    def result(self) -> PlacementResult:
        """The result; raises the error that was set."""
        if self._failure is not None:
            try:
                raise self._failure
            finally:
                self._failure = None  # and no cycle with this frame in its traceback
        assert self._result is not None, "it is done"
        return self._result


@dataclass(slots=True)
class PendingPlacement:
    """A task's place, not yet written.

    Attributes:
        view: that it was judged at.
        version: as the result's.
        stored: the reservation to write.
        replaced: the pod's reservation so far, which this one replaces.
    """

    task: PlacementTask
    view: View
    version: KubernetesVersion
    stored: StoredObject
    node: str
    replaced: ReservationRow | None

    def differences(self) -> Sequence[tuple[ReservationRow, int]]:
        """Reservations that will (+1) and will not (−1) be held."""
        held = (reservation_row(self.stored), 1)
        return (held,) if self.replaced is None else (held, (self.replaced, -1))


class WaitingTasks:
    """Tasks that wait, by cluster and namespace; one thread at a time places those of one.

    Attributes:
        lock: of all that is here, and of all tasks.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._waiting: dict[tuple[str, str], list[PlacementTask]] = {}
        self._busy: set[tuple[str, str]] = set()
        self._rests: dict[tuple[str, str], float] = {}

    def join(self, task: PlacementTask) -> None:
        """Have a task wait."""
        with self.lock:
            self._waiting.setdefault(task.placement.scope, []).append(task)

    def leads(self, task: PlacementTask) -> bool:
        """Wait until a task is done, or its thread is to place those who wait in its scope.

        That is when nobody else does, after a rest: see release().
        """
        scope = task.placement.scope
        with self.lock:
            while not task.done:
                now = time.monotonic()
                left = (task.placement.decision.deadline if task.writing else task.give_up_at) - now
                rest = self._rests.get(scope, 0.0) - now
                if left <= 0:
                    task.fail(task.late or _too_late(task.placement))
                    if task in (waiting := self._waiting.get(scope, [])):
                        waiting.remove(task)
                elif scope in self._busy:
                    task.changed.wait(left)
                elif 0 < rest < left / 2:
                    task.changed.wait(rest)
                else:
                    self._rests.pop(scope, None)
                    self._busy.add(scope)
                    return True
            if scope not in self._busy:
                self._call_first(scope)  # release() may have called this one
            return False

    def take(self, scope: tuple[str, str], taken: list[PlacementTask]) -> None:
        """Add the first of those who wait; a pod that is placed twice is placed in two turns."""
        names = {task.placement.pod.name for task in taken}
        rest: list[PlacementTask] = []
        with self.lock:
            for task in self._waiting.pop(scope, ()):
                name = task.placement.pod.name
                (rest if name in names or len(taken) >= MOST else taken).append(task)
                names.add(name)
            if rest:
                self._waiting[scope] = rest

    def release(self, scope: tuple[str, str], left: list[PlacementTask], took: float) -> None:
        """Let the thread of the first of those who wait place them.

        A write goes through if no other lands while it is on its way: beside a server that never
        rests, another one finds no gap. So now and then nothing is placed for as long as a write
        takes.

        Args:
            scope: cluster and namespace.
            left: tasks that were taken and are not done: they wait first.
            took: seconds, of a write.
        """
        now = time.monotonic()
        with self.lock:
            self._busy.discard(scope)
            if random.randrange(TURNS) == 0:
                self._rests = {each: until for each, until in self._rests.items() if until > now}
                self._rests[scope] = now + min(took, MAX_REST)
            if waiting := left + self._waiting.pop(scope, []):
                self._waiting[scope] = waiting
            self._call_first(scope)

    def _call_first(self, scope: tuple[str, str]) -> None:
        if waiting := self._waiting.get(scope):
            waiting[0].changed.notify()


def _too_late(placement: PlacementRequest) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"others were placed in namespace {placement.namespace!r} until the deadline"
    )

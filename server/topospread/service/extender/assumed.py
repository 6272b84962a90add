"""Pods that filter answered a moment ago, counted where they are assumed to go.

A scheduler binds a pod some time before the state has it. Until then the pods that come after it
are to count it, but which of the answered nodes the scheduler chose it does not tell. So a pod that
comes while another is on its way is answered the nodes of one domain alone, wherever the scheduler
puts it there. It is this server's memory: other servers do not count these pods, mode place does.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from sys import getsizeof
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.cache import BUDGETS, LARGEST_KEY
from topospread.checkpoints import checkpoint
from topospread.index.changes import ReservationRow
from topospread.service.decisions.evaluate import matching

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.decisions.cycle import Cycle
    from topospread.service.decisions.pods import ShapedPod

ASSUMED_SECONDS: Final = 1.0
"""For a binding to be seen. Past it the pod was not bound, and must keep no place any longer."""

_Scope = tuple[str, str]
"""Cluster and namespace."""

AssumedPlaces = Sequence[tuple[ReservationRow, int]]
"""Where pods of some labels are assumed to be, and how many; without a node where not known."""


_POD: Final = 400
_PLACE: Final = 400
_NAMESPACE: Final = 700
"""Bytes, about, of a pod, a place and a namespace, without the text that callers wrote."""


@dataclass(slots=True, eq=False)
class _Place:
    """Where pods of the same labels are assumed to be, and how many.

    Attributes:
        size: bytes, about, of the row.
    """

    row: ReservationRow
    size: int
    pods: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Assumed:
    """A pod that was answered.

    Attributes:
        until: on the clock.
        size: bytes, about, without its place.
    """

    place: _Place
    until: float
    size: int


@dataclass(slots=True, eq=False)
class _Pods:
    """The pods of one cluster and namespace.

    Attributes:
        by_name: the one that was answered first first.
        size: bytes, about.
        looked_at: identity and number of the revision in which they were looked for last.
    """

    by_name: OrderedDict[str, _Assumed] = field(default_factory=OrderedDict)
    places: dict[ReservationRow, _Place] = field(default_factory=dict)
    size: int = 0
    looked_at: tuple[str, int] = ("", 0)


class AssumedPods:
    """Remembers for a moment which pods filter answered, and where they are assumed to go.

    Where there are too many, the cluster that has the most loses its oldest, of the namespace that
    has the most: so nobody's pods drive out those of others that have less.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._budget = BUDGETS["bursts"]
        self._budget.add(self)
        # All, the one that was answered first first.
        self._order: OrderedDict[tuple[_Scope, str], _Assumed] = OrderedDict()
        self._scopes: dict[_Scope, _Pods] = {}
        self._clusters: Counter[str] = Counter()
        self._bytes = 0

    @property
    def size(self) -> int:
        """Bytes, about."""
        return self._bytes

    def before(self, replica: Replica | None, pod: ShapedPod) -> AssumedPlaces:
        """The pods of the namespace that were answered before this one and are not seen yet.

        To be asked before the state is taken that they are added to, lest one is in neither.

        Args:
            replica: of the pod's cluster.
            pod: is left out itself.
        """
        if replica is None or replica.view is None or not self._order:
            return ()
        scope = (replica.cluster, pod.shape.pod.namespace)
        with self._lock:
            self._expire()
            self._drop_seen(scope, replica, replica.view)
            here = self._scopes.get(scope)
            if here is None:
                return ()
            own = here.by_name.get(pod.name)
            place = None if own is None else own.place
            return [(each.row, each.pods - (each is place)) for each in here.places.values()]

    def answered(self, cluster: str, pod: ShapedPod, node: str = "") -> None:
        """Note that a pod was answered nodes; `node`: where it is assumed to go, if known."""
        if not pod.name:
            return
        scope, until = (cluster, pod.shape.pod.namespace), self._clock() + ASSUMED_SECONDS
        row = ReservationRow("", tuple(sorted(pod.shape.pod.labels.items())), node)
        row_size = _PLACE + sum(_size_of(each) for each in row.labels)
        size = _POD + getsizeof(pod.name)
        with self._lock:
            self._drop(scope, pod.name)
            if row_size + size > LARGEST_KEY:
                return
            here = self._scopes.get(scope)
            if here is None:
                here = self._scopes[scope] = _Pods()
                self._grow(scope, here, _NAMESPACE)
            place = here.places.get(row)
            if place is None:
                place = here.places[row] = _Place(row, row_size)
                self._grow(scope, here, row_size)
            place.pods += 1
            made = _Assumed(place, until, size)
            self._order[scope, pod.name] = here.by_name[pod.name] = made
            self._grow(scope, here, size)
            while self._bytes > self._budget.most:
                self._evict()

    def _grow(self, scope: _Scope, here: _Pods, size: int) -> None:
        here.size += size
        self._clusters[scope[0]] += size
        self._bytes += size

    def _evict(self) -> None:
        scope, here = max(
            self._scopes.items(), key=lambda item: (self._clusters[item[0][0]], item[1].size)
        )
        self._drop(scope, next(iter(here.by_name)))
        self._budget.evicted += 1

    def _drop_seen(self, scope: _Scope, replica: Replica, view: View) -> None:
        """Forget those that the state has, if it is another one than at the last look."""
        here, at = self._scopes.get(scope), (view.identity, view.revision.number)
        if here is None or here.looked_at == at:
            return
        here.looked_at = at
        for name in [name for name in here.by_name if replica.is_counted(scope[1], name)]:
            self._drop(scope, name)

    def _expire(self) -> None:
        now = self._clock()
        while self._order:
            key, first = next(iter(self._order.items()))
            if first.until > now:
                return
            self._drop(*key)

    def _drop(self, scope: _Scope, name: str) -> None:
        gone = self._order.pop((scope, name), None)
        if gone is None:
            return
        here, place = self._scopes[scope], gone.place
        del here.by_name[name]
        self._grow(scope, here, -gone.size)
        place.pods -= 1
        if not place.pods:
            del here.places[place.row]
            self._grow(scope, here, -place.size)
        if not here.by_name:
            del self._scopes[scope]
            self._grow(scope, here, -_NAMESPACE)
            if not self._clusters[scope[0]]:
                del self._clusters[scope[0]]


def _size_of(label: tuple[str, str]) -> int:
    """Bytes of a label, with its place among others."""
    return getsizeof(label) + getsizeof(label[0]) + getsizeof(label[1]) + 8


def counted_beside(cycle: Cycle, places: AssumedPlaces) -> AssumedPlaces:
    """Those of the pods that the hard constraints of the cycle's pod count."""
    selectors = {each.group.selector for each in cycle.constraints.hard.constraints}
    counts: dict[tuple[tuple[str, str], ...], bool] = {}
    for row, _ in places:
        if row.labels not in counts:
            labels = dict(row.labels)
            counts[row.labels] = any(selector.matches(labels) for selector in selectors)
            checkpoint()
    return [(row, number) for row, number in places if number and counts[row.labels]]


def with_assumed(cycle: Cycle, places: AssumedPlaces) -> Cycle:
    """The cycle at a state that counts pods where they are assumed to be."""
    if not places:
        return cycle
    view = cycle.view
    snapshot = view.snapshot.adjusted(cycle.pod.namespace, places, cycle.needed)
    return replace(cycle, view=replace(view, snapshot=snapshot))


def in_one_domain(cycle: Cycle, fit: Sequence[str]) -> tuple[Sequence[str], str]:
    """Those of the nodes that fit that are in the domains with the fewest pods, and one of them.

    Where in these the scheduler puts the pod makes no difference to its hard constraints.
    """
    snapshot = cycle.view.snapshot
    slots = snapshot.nodes.slots(fit)
    at = slots[int(np.argmin(matching(cycle, slots)))]
    same = np.ones(slots.size, dtype=np.bool_)
    for state in cycle.states:
        ids = snapshot.domains(state.constraint.topology_key).ids
        same &= ids[slots] == ids[at]
    left = list(compress(fit, same.tolist()))
    return left, left[0]

"""Looks at the constraints of all clusters in the background, for metrics.

It keeps the Inspector's rows in step, too, so that the first list of a caller is quick.
"""

from __future__ import annotations

import heapq
import logging
import math
import threading
import time
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.checkpoints import Computation
from topospread.errors import CallerGone, TooLarge, TopospreadError
from topospread.kube.objects import DO_NOT_SCHEDULE
from topospread.service.inspecting.cluster_inspector import totals
from topospread.service.inspecting.statuses import ConstraintFilter
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from topospread.replica.replica import Replica
    from topospread.replica.replicas import Replicas
    from topospread.service.inspecting.inspector import Inspector
    from topospread.service.inspecting.statuses import ConstraintStatus, State

LOG: Final = logging.getLogger(__name__)

TICK: Final = 1.0
"""Seconds between two looks for clusters that changed."""

PAUSE: Final = 5.0
"""Seconds between two looks at one cluster, at least: Prometheus scrapes less often."""

SHARE: Final = 50
"""Of the time, one part in so many goes into looking, unless that takes LONGEST seconds."""

LONGEST: Final = 30.0
"""Seconds without a look, whatever the last one cost: alerts rest on it."""

BREATH: Final = 0.002
"""Seconds of a look, and then seconds that others get: a thread that computes makes every array
operation of a decision wait."""

LOOK_SECONDS: Final = 120.0
"""Seconds that one look may take."""

CLUSTERS_PAUSE: Final = 10.0
"""Seconds between two looks for clusters of the store that nobody has asked about."""

FOLLOWED_AT_ONCE: Final = 16
"""Of these: each loads a whole state."""


class Missing(Enum):
    """Why the constraints of a cluster are not counted, or not those of its newest state."""

    NOT_FOLLOWED = "not_followed"
    LOADING = "loading"
    TOO_MANY = "too_many"
    FAILED = "failed"


def _is_soft(status: ConstraintStatus) -> bool:
    return status.key.constraint.when_unsatisfiable != DO_NOT_SCHEDULE


CHOICES: Final[Mapping[str, Callable[[ConstraintStatus], bool]]] = {
    "violated": lambda status: status.state != pb.SPREAD_STATE_SATISFIED,
    "hard": lambda status: not _is_soft(status),
    "all": lambda _: True,
}
"""Constraints that may be shown one by one, by the value of --constraint-metrics."""


class ShownConstraints(NamedTuple):
    """The constraints of a cluster as they were when it was looked at.

    Attributes:
        totals: constraints by state; empty before they were counted.
        shown: those that are shown one by one; of all clusters together at most the limit.
        omitted: by state, how many of those chosen are not shown.
        age_seconds: since the cluster was looked at, or was seen to be unchanged; before that,
            since it is known.
        missing: why they are not counted; None where they are.
    """

    cluster: str
    totals: Mapping[State, int]
    shown: Sequence[ConstraintStatus]
    omitted: Mapping[State, int]
    age_seconds: float
    missing: Missing | None = None


@dataclass(slots=True, eq=False)
class _Look:
    """What is known of a cluster.

    Attributes:
        confirmed_at: when this was last the newest state, on the clock; before the first look,
            since when the cluster is known.
        begun_at: when the last look began; 0 before the first one.
        chosen: the constraints that may be shown, the worst first.
        warned, refused: whether the log has it that not all are shown, and that there are too many.
    """

    replica: Replica
    confirmed_at: float
    begun_at: float = 0.0
    revision: object = None
    statuses: Mapping[str, ConstraintStatus] | None = None
    totals: Mapping[State, int] = field(default_factory=dict)
    chosen: Sequence[ConstraintStatus] = ()
    shown: Sequence[ConstraintStatus] = ()
    omitted: Mapping[State, int] = field(default_factory=dict)
    missing: Missing | None = Missing.LOADING
    warned: bool = False
    refused: bool = False


class ConstraintMonitor:
    """Looks at the constraints of each cluster of the store, from start() to stop().

    Those that nobody has asked about are followed, too, as far as the limit of clusters allows.

    Args:
        inspector: counts them.
        replicas: follow the clusters.
        chosen: which are shown one by one, a key of CHOICES.
        limit: how many, of all clusters together; hard ones stay before soft ones, the worst first.
        clusters: names of those that the store has; raises StoreUnavailable.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        inspector: Inspector,
        replicas: Replicas,
        chosen: str,
        limit: int,
        clusters: Callable[[], Iterable[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inspector = inspector
        self._replicas = replicas
        self._is_chosen = CHOICES[chosen]
        self._limit = limit
        self._clusters = clusters
        self._clock = clock
        self._asked_at = -math.inf
        self._unfollowed: dict[str, float] = {}
        self._looks: dict[str, _Look] = {}
        self._breathed = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="constraints", daemon=True)

    def start(self) -> None:
        """Look from now on, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; one that is under way ends soon."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def constraints(self) -> Sequence[ShownConstraints]:
        """What was last seen of each cluster that the store has."""
        now = self._clock()
        found = [
            ShownConstraints(
                replica.cluster,
                look.totals,
                look.shown,
                look.omitted,
                now - look.confirmed_at,
                look.missing,
            )
            for replica in self._replicas.running()
            if (look := self._looks.get(replica.cluster)) is not None and look.replica is replica
        ]
        missing = Missing.NOT_FOLLOWED
        unfollowed = self._unfollowed.items()
        return [
            *found,
            *(ShownConstraints(n, {}, (), {}, now - at, missing) for n, at in unfollowed),
        ]

    def look(self) -> float:
        """Look at the clusters that changed; returns the seconds of processor time it took."""
        began = time.thread_time()
        if self._clock() >= self._asked_at + CLUSTERS_PAUSE:
            self._asked_at = self._clock()
            self._follow()
        known, looks = self._looks, dict[str, _Look]()
        for replica in self._replicas.running():
            look = known.get(replica.cluster)
            if look is None or look.replica is not replica:
                look = _Look(replica, self._clock())
            looks[replica.cluster] = look
        gone = known.keys() - looks.keys()
        self._looks = looks
        # Those that have waited longest come first, however many there are.
        due = [each for each in looks.values() if self._is_due(each)]
        changed = [self._look_at(each) for each in sorted(due, key=lambda each: each.begun_at)]
        if gone or any(changed):
            self._choose()
        return time.thread_time() - began

    def _follow(self) -> None:
        try:
            unknown = [name for name in self._clusters() if self._replicas.get(name) is None]
        except TopospreadError as error:
            LOG.debug("the store's clusters are not known: %s", error)
            return
        unfollowed = unknown[FOLLOWED_AT_ONCE:]
        for name in unknown[:FOLLOWED_AT_ONCE]:
            try:
                self._replicas.follow(name)
            except TopospreadError as error:
                LOG.debug("cluster %s is not followed: %s", name, error)
                unfollowed.append(name)
        now = self._clock()
        self._unfollowed = {name: self._unfollowed.get(name, now) for name in unfollowed}

    # ------------------------------ one cluster

    def _is_due(self, look: _Look) -> bool:
        view, now = look.replica.view, self._clock()
        if view is None:
            return False
        if look.statuses is not None and look.revision == (view.identity, view.revision):
            look.confirmed_at, look.missing = now, None
            return False
        return look.statuses is None or now >= look.begun_at + PAUSE

    def _look_at(self, look: _Look) -> bool:
        if self._stopped.is_set():
            return False
        look.begun_at = now = self._clock()
        deadline = time.monotonic() + LOOK_SECONDS
        replica = look.replica
        try:
            with Computation(deadline, self._goes_on):
                # Not as a call, which would be counted as one that resolved a revision.
                inspection = self._inspector.of(replica).inspect(replica.current_view(), deadline)
        except CallerGone:
            return False
        except TopospreadError as error:
            # It stays so until somebody does something, unlike what else may be in the way.
            too_many = isinstance(error, TooLarge)
            look.missing = Missing.TOO_MANY if too_many else Missing.FAILED
            new = too_many and not look.refused
            level = logging.WARNING if new else logging.DEBUG
            LOG.log(level, "constraints of cluster %s were not counted: %s", replica.cluster, error)
            look.refused = look.refused or new
            return False
        look.refused = False
        # Not the inspection, which would keep its state in memory.
        before, look.statuses = look.statuses, inspection.statuses
        look.revision = inspection.view.identity, inspection.view.revision
        look.confirmed_at, look.missing = now, None
        if before == look.statuses:
            return False
        look.totals = totals(look.statuses.values())
        worst = inspection.matching(ConstraintFilter())
        look.chosen = sorted(filter(self._is_chosen, worst), key=_is_soft)
        return True

    def _goes_on(self) -> bool:
        """Let others go on, in the middle of a look; returns whether it goes on itself."""
        spent = time.thread_time()
        if spent < self._breathed + BREATH:
            return not self._stopped.is_set()
        self._breathed = spent
        return not self._stopped.wait(BREATH)

    # ------------------------------ all of them

    def _choose(self) -> None:
        """Choose what is shown: the worst of all clusters."""
        looks = [each for each in self._looks.values() if each.statuses is not None]
        ranked = heapq.merge(
            *([(_rank(status), look, status) for status in look.chosen] for look in looks),
            key=lambda each: each[0],
        )
        shown: dict[_Look, list[ConstraintStatus]] = {look: [] for look in looks}
        for _, look, status in islice(ranked, self._limit):
            shown[look].append(status)
        for look, statuses in shown.items():
            look.omitted = totals(look.chosen[len(statuses) :])
            look.shown = statuses
            self._warn(look)

    def _warn(self, look: _Look) -> None:
        omitted = len(look.chosen) - len(look.shown)
        if omitted and not look.warned and self._limit:
            LOG.warning(
                "%d constraints of cluster %s have no metrics of their own: "
                "--max-constraint-series is %d",
                omitted,
                look.replica.cluster,
                self._limit,
            )
        look.warned = bool(omitted)

    def _run(self) -> None:
        pause = 0.0
        while not self._stopped.wait(pause):
            pause = LONGEST
            try:
                pause = pause_after(self.look())
            except Exception:
                LOG.exception("constraints were not counted; they are again in %g s", pause)


def pause_after(spent: float) -> float:
    """Seconds to wait after looks that took so many seconds of processor time."""
    return min(LONGEST, TICK + spent * SHARE)


def _rank(status: ConstraintStatus) -> tuple[object, ...]:
    return (_is_soft(status), *status.by_severity)

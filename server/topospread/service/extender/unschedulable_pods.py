"""Pods that were answered with no node, until they fit or are no longer pending.

kube-scheduler tries such a pod again at the next event of the cluster. That event may reach it some
milliseconds before the state here has it; the pod is then refused once more, by the older state,
and no later event is due. So what was refused is remembered and judged again when the state
changes. A pod that then fits is woken: by a write to it, which the scheduler takes for an event.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, Protocol

from topospread.cache import BUDGETS
from topospread.errors import NotFound, TopospreadError
from topospread.service.decisions.pods import ShapedPod
from topospread.service.decisions.request import DecisionRequest
from topospread.service.extender.extend import filter_candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.replica.replica import Replica
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.pods import PodShape

LOG: Final = logging.getLogger(__name__)

MOST_PODS: Final = 10_000
LONGEST: Final = 900.0
"""Seconds that a refusal is remembered: kube-scheduler asks again every five minutes by itself."""

PAUSE: Final = 0.05
"""Seconds between two looks at the state."""

SHARE: Final = 10
"""Of the time, one part in so many goes into judging again at most."""

AT_ONCE: Final = 0.05
"""Seconds of judging in a row."""

FAILED_PAUSE: Final = 5.0
"""Seconds after a mistake of ours, which the log has."""

RATE: Final = 20.0
"""Pods woken in a second, and at once after a pause."""

AGAIN: Final = 0.5
LONGEST_AGAIN: Final = 60.0
"""Seconds before a pod is woken once more that was refused again, doubling each time."""

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""Seconds without a write after one that failed, doubling."""

JUDGING_SECONDS: Final = 2.0

_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
"""What pods and namespaces are named: what else a caller sends must not become a part of a URL."""


@dataclass(frozen=True, slots=True)
class UnschedulablePod:
    """A pod that is pending because it fits none of its candidates."""

    namespace: str
    name: str
    uid: str


class Wake(Protocol):
    """A function that makes the scheduler try a pod again."""

    def __call__(self, pod: UnschedulablePod, message: str, /) -> None:
        """Write to the pod, so that the scheduler tries it again.

        Args:
            pod: which.
            message: why, for people.

        Raises:
            NotFound: the pod is gone.
            TopospreadError: it cannot be written to now.
        """
        ...


@dataclass(slots=True, eq=False)
class _CandidateSet:
    """Names of nodes, which pods that are refused together share.

    Attributes:
        digest: of the names; different sets have different ones.
        joined: the names, as they are kept.
        groups: how many share them.
    """

    digest: bytes
    joined: bytes
    groups: int = 0

    @property
    def names(self) -> Sequence[str]:
        return self.joined.decode().split("\0")


@dataclass(slots=True, eq=False)
class _PodGroup:
    """Pods that one judgement answers for: of one shape, with the same candidates.

    Attributes:
        size: bytes of the shape, about.
        judged_at: identity and number of the revision of the last judgement; None: judge anew.
        pods: when each was refused, by the clock; the oldest first.
    """

    shape: PodShape
    candidates: _CandidateSet
    size: int
    judged_at: tuple[str, int] | None = None
    pods: OrderedDict[UnschedulablePod, float] = field(default_factory=OrderedDict)

    @property
    def key(self) -> tuple[PodShape, bytes]:
        return self.shape, self.candidates.digest


class UnschedulablePods:
    """Remembers pods of one cluster that were refused, and wakes those that fit again.

    Args:
        engine: judges them.
        cluster: the pods' own.
        wake: writes to a pod.
        count: called with the result of each wake: ``woken``, ``gone`` or ``failed``.
        clock: monotonic seconds, for the rate of wakes and for how long a pod is remembered.
    """

    def __init__(
        self,
        engine: Engine,
        cluster: str,
        wake: Wake,
        count: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cluster = cluster
        self._engine = engine
        self._wake = wake
        self._count = count
        self._clock = clock
        self._lock = threading.Lock()
        self._budget = BUDGETS["refused"]
        self._budget.add(self)
        self._groups: dict[tuple[PodShape, bytes], _PodGroup] = {}
        self._candidates: dict[bytes, _CandidateSet] = {}
        self._pods: OrderedDict[UnschedulablePod, _PodGroup] = OrderedDict()
        self._bytes = 0
        # How often each pod was woken without being accepted since, and when last.
        self._woken: OrderedDict[UnschedulablePod, tuple[int, float]] = OrderedDict()
        self._tokens = RATE
        self._filled_at = self._clock()
        self._retry_at = 0.0
        self._failures = 0
        self._added = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="refused-pods", daemon=True)

    def start(self) -> None:
        """Start the thread that looks for pods that fit again."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopped.set()
        self._added.set()
        if self._thread.ident is not None:
            self._thread.join()

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def size(self) -> int:
        """Bytes, about: pods by their shape, and the names of their candidates."""
        return self._bytes

    # ------------------------------ what the extender answered

    def refused(self, pod: ShapedPod, names: Sequence[str], size: int) -> None:
        """Note that a pod fits none of these nodes.

        Args:
            pod: which; without a proper name and a uid it is not remembered.
            names: of the nodes that the scheduler offered.
            size: bytes of the pod, about.
        """
        waiting = _unschedulable_pod(pod)
        named = _NAME.fullmatch(waiting.name) and _NAME.fullmatch(waiting.namespace)
        if not named or not waiting.uid or not names:
            return
        joined = "\0".join(names).encode()
        digest = blake2b(joined, digest_size=16).digest()
        with self._lock:
            self._drop(waiting)
            group = self._groups.get((pod.shape, digest))
            if group is None:
                group = self._add_group(pod.shape, digest, joined, size)
            # The state may have changed since it was judged.
            group.judged_at = None
            group.pods[waiting] = self._clock()
            self._pods[waiting] = group
            while len(self._pods) > MOST_PODS or self._bytes > self._budget.most:
                # The one that has waited longest: its scheduler asks again soonest.
                self._drop(next(iter(self._pods)))
                self._budget.evicted += 1
        self._added.set()

    def accepted(self, pod: ShapedPod) -> None:
        """Note that a pod fits some node."""
        if (self._pods or self._woken) and pod.name:
            waiting = _unschedulable_pod(pod)
            with self._lock:
                self._drop(waiting)
                self._woken.pop(waiting, None)

    def _add_group(self, shape: PodShape, digest: bytes, joined: bytes, size: int) -> _PodGroup:
        candidates = self._candidates.get(digest)
        if candidates is None:
            candidates = self._candidates[digest] = _CandidateSet(digest, joined)
            self._bytes += len(joined)
        candidates.groups += 1
        group = _PodGroup(shape, candidates, size)
        self._groups[group.key] = group
        self._bytes += size
        return group

    def _drop(self, waiting: UnschedulablePod) -> None:
        group = self._pods.pop(waiting, None)
        if group is None:
            return
        del group.pods[waiting]
        if group.pods:
            return
        del self._groups[group.key]
        self._bytes -= group.size
        group.candidates.groups -= 1
        if not group.candidates.groups:
            del self._candidates[group.candidates.digest]
            self._bytes -= len(group.candidates.joined)

    # ------------------------------ judging again

    def _run(self) -> None:
        while not self._stopped.is_set():
            if not self._pods:
                self._added.wait()
                self._added.clear()
            # Of this thread's own: while it waits for the API server it delays nothing else.
            began = time.thread_time()
            try:
                self._look()
            except Exception:
                # It must not end in silence: pods would wait for minutes again.
                LOG.exception("cluster %s: judging refused pods again failed", self.cluster)
                self._stopped.wait(FAILED_PAUSE)
            spent = time.thread_time() - began
            self._stopped.wait(max(PAUSE, spent * (SHARE - 1)))

    def _look(self) -> None:
        """Judge again what was refused by an older state, and wake what fits."""
        now, began = self._clock(), time.thread_time()
        self._forget_old(now)
        replica = self._engine.replicas.get(self.cluster)
        view = None if replica is None else replica.view
        if replica is None or view is None or now < self._retry_at:
            return
        at = (view.identity, view.revision.number)
        with self._lock:
            groups = [group for group in self._groups.values() if group.judged_at != at]
        for group in groups:
            if self._stopped.is_set() or time.thread_time() - began > AT_ONCE:
                return
            with self._lock:
                if self._groups.pop(group.key, None) is None:
                    continue
                # To the end, so that all have their turn.
                self._groups[group.key] = group
                group.judged_at = at
                pods = list(group.pods)
            if not self._judged_again(replica, group, pods):
                group.judged_at = None

    def _judged_again(
        self, replica: Replica, group: _PodGroup, pods: Sequence[UnschedulablePod]
    ) -> bool:
        """Judge a group, and wake its pods if they fit; returns whether nothing is left to do."""
        names = group.candidates.names
        early = False
        for waiting in pods:
            if replica.is_counted(waiting.namespace, waiting.name):
                with self._lock:
                    self._drop(waiting)
                continue
            if self._is_early(waiting):
                early = True
                continue
            if self._stopped.is_set() or not self._may_wake():
                return False
            # Anew for each: those that were woken before it may have taken the room.
            fit = self._fits(group.shape, waiting, names)
            if not fit:
                return True
            if not self._did_wake(waiting, fit):
                return False
        return not early

    def _fits(self, shape: PodShape, waiting: UnschedulablePod, names: Sequence[str]) -> int:
        pod = ShapedPod(shape, waiting.name, waiting.uid)
        request = DecisionRequest(time.monotonic() + JUDGING_SECONDS, self.cluster, pod)
        try:
            return len(filter_candidates(self._engine, request, names).fit)
        except TopospreadError as error:
            LOG.debug("pod %s/%s: %s", waiting.namespace, waiting.name, error)
            return 0

    # ------------------------------ waking

    def _did_wake(self, waiting: UnschedulablePod, fit: int) -> bool:
        """Wake a pod; returns whether others may be woken now."""
        with self._lock:
            group = self._pods.get(waiting)
            if group is None:
                return True  # the scheduler came by itself
            since = group.pods[waiting]
        self._tokens -= 1
        try:
            self._wake(waiting, f"{fit} of the nodes on which it was refused fit now")
        except NotFound:
            self._count("gone")
        except TopospreadError as error:
            self._count("failed")
            if not self._failures:
                LOG.warning("refused pods that fit now cannot be woken: %s", error)
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures, 10))
            self._failures += 1
            self._retry_at = self._clock() + pause
            return False
        else:
            self._count("woken")
            self._failures = 0
        with self._lock:
            times, _ = self._woken.pop(waiting, (0, 0.0))
            self._woken[waiting] = (times + 1, self._clock())
            if len(self._woken) > MOST_PODS:
                self._woken.popitem(last=False)
            group = self._pods.get(waiting)
            # It may have been refused once more meanwhile.
            if group is not None and group.pods[waiting] == since:
                self._drop(waiting)
        return True

    def _may_wake(self) -> bool:
        now = self._clock()
        self._tokens = min(RATE, self._tokens + (now - self._filled_at) * RATE)
        self._filled_at = now
        return self._tokens >= 1.0

    def _is_early(self, waiting: UnschedulablePod) -> bool:
        times, last = self._woken.get(waiting, (0, 0.0))
        pause = min(LONGEST_AGAIN, AGAIN * 2 ** min(times - 1, 10)) if times else 0.0
        return self._clock() - last < pause

    def _forget_old(self, now: float) -> None:
        with self._lock:
            while self._pods:
                waiting, group = next(iter(self._pods.items()))
                if now - group.pods[waiting] < LONGEST:
                    return
                self._drop(waiting)


def _unschedulable_pod(pod: ShapedPod) -> UnschedulablePod:
    return UnschedulablePod(pod.shape.pod.namespace, pod.name, pod.uid)

"""The order in which pods are deleted when a workload shrinks, regardless of domains.

Sources: OpenKruise's ``ActivePodsWithRanks`` and its scale-down proposal of 2021-06-24; Kubernetes'
``ActivePodsWithRanks`` with KEP-2255 (deletion cost) and KEP-2185 (logarithmic buckets). *Smaller*
means: goes first. Both end in a tie-breaker of ours, the UID, so that the order is total.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
_COST: Final = re.compile(r"0|-[0-9]+|[1-9][0-9]*", re.ASCII)
_LONGEST: Final = 10
"""Digits of the largest int32."""

_SECOND: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class DeletionCandidate:
    """A pod that may go. Times are seconds since 1970; None is the zero time.

    Attributes:
        node: that it is bound to; empty while it waits.
        ready: whether its Ready condition is True; `ready_since` is when it became so.
        deletion_cost: of its annotation, see :func:`deletion_cost`.
        restarts: the most restarts of any of its containers.
        sidecar_restarts: the most restarts of any of its restartable init containers.
        owner_key: equal for pods that Kubernetes ranks together on a node: those of all ReplicaSets
            of one Deployment.
    """

    namespace: str
    name: str
    uid: str = ""
    node: str = ""
    phase: str = ""
    ready: bool = False
    ready_since: int | None = None
    deletion_cost: int = 0
    restarts: int = 0
    sidecar_restarts: int = 0
    created: int | None = None
    owner_key: str = ""


def deletion_cost(annotations: Mapping[str, str]) -> int:
    """A pod's deletion cost, lower goes first; 0 when the annotation is absent or no int32.

    As Kubernetes reads it: ``+10`` and ``008`` are no costs, ``-08`` is one.
    """
    text = annotations.get(DELETION_COST, "")
    if not _COST.fullmatch(text):
        return 0
    digits = text.lstrip("-").lstrip("0") or "0"
    if len(digits) > _LONGEST:
        return 0
    cost = -int(digits) if text.startswith("-") else int(digits)
    return cost if -(1 << 31) <= cost < 1 << 31 else 0


def in_order(pods: Sequence[DeletionCandidate], ranks: Sequence[float]) -> list[int]:
    """Positions of pods in the order of deletion, the first to go first.

    Unassigned before assigned; Pending, Unknown, Running; not ready before ready; lower deletion
    cost; **higher rank**; ready for a shorter time; more restarts; newer; and the UID.

    Args:
        pods: to order.
        ranks: [pods] the higher, the sooner.
    """
    return sorted(range(len(pods)), key=lambda i: (*_before(pods[i]), -ranks[i], *_after(pods[i])))


def _before(pod: DeletionCandidate) -> tuple[bool, int, bool, int]:
    """The sort key before the rank."""
    return bool(pod.node), _PHASES.get(pod.phase, 0), pod.ready, pod.deletion_cost


def _after(pod: DeletionCandidate) -> tuple[int, int, int, int, int, str, str, str]:
    """The sort key among pods of one rank."""
    since = _newest_first(pod.ready_since) if pod.ready else (0, 0)
    return *since, -pod.restarts, *_newest_first(pod.created), *_identity(pod)


def _newest_first(time: int | None) -> tuple[int, int]:
    return (0, 0) if time is None else (1, -time)


def _identity(pod: DeletionCandidate) -> tuple[str, str, str]:
    return pod.uid, pod.namespace, pod.name


def same_node_ranks(pods: Sequence[DeletionCandidate]) -> list[int]:
    """[pods] ranks by which pods that stack on a node go before those that are alone on theirs.

    Of the n pods of a node, in the order of deletion, the first gets n − 1 and the last 0.
    """
    ranks = [0] * len(pods)
    unranked = [0] * len(pods)
    here: dict[str, list[int]] = {}
    for position in in_order(pods, unranked):
        if pods[position].node:
            here.setdefault(pods[position].node, []).append(position)
    for stacked in here.values():
        for rank, position in enumerate(reversed(stacked)):
            ranks[position] = rank
    return ranks


# ------------------------------ Kubernetes' own


def replica_set_order(
    pods: Sequence[DeletionCandidate], ranks: Sequence[float], now: int
) -> list[int]:
    """Positions of pods in the order in which a ReplicaSet would delete them.

    As :func:`in_order`, but ages are compared by the integer part of their binary logarithm, and
    pods of one such bucket go by their UIDs; and sidecars' restarts come after other restarts.

    Upstream compares two pods of exactly one age by their restarts instead, which makes circles
    possible: a before b by restarts, b before c and c before a by UIDs. Here pods of one age stay
    together, at the place of the smallest UID among them, which is upstream's answer for any two
    pods and a total order for more.

    Args:
        pods: to order.
        ranks: [pods] the higher, the sooner.
        now: nanoseconds since 1970.
    """
    chosen = sorted(range(len(pods)), key=lambda i: (*_before(pods[i]), -ranks[i]))
    ordered: list[int] = []
    for _, equal in groupby(chosen, key=lambda i: (*_before(pods[i]), -ranks[i])):
        ordered += _by_age(pods, list(equal), now)
    return ordered


def _by_age(pods: Sequence[DeletionCandidate], equal: Sequence[int], now: int) -> Iterator[int]:
    """Order pods that differ only in their time of readiness and what comes after it."""
    for same_age in _aged(pods, equal, lambda p: p.ready_since if p.ready else None, now):
        for same_restarts in _grouped(
            same_age, lambda i: (-pods[i].restarts, -pods[i].sidecar_restarts)
        ):
            for twins in _aged(pods, same_restarts, lambda p: p.created, now):
                yield from sorted(twins, key=lambda i: _identity(pods[i]))


def _aged(
    pods: Sequence[DeletionCandidate],
    positions: Sequence[int],
    time_of: Callable[[DeletionCandidate], int | None],
    now: int,
) -> Iterator[list[int]]:
    """Pods of one age together; the zero time first, then by bucket, then by UID."""
    by_time: dict[int | None, list[int]] = {}
    for position in positions:
        by_time.setdefault(time_of(pods[position]), []).append(position)

    def place(item: tuple[int | None, list[int]]) -> tuple[int, int, tuple[str, str, str]]:
        time, alike = item
        bucket = (0, 0) if time is None else (1, _bucket(now - time * _SECOND))
        return *bucket, min(_identity(pods[i]) for i in alike)

    for _, alike in sorted(by_time.items(), key=place):
        yield alike


def _bucket(age: int) -> int:
    """KEP-2185's: the integer part of the logarithm of nanoseconds."""
    return -1 if age <= 0 else int(math.log2(age))


def _grouped(
    positions: Iterable[int], key: Callable[[int], tuple[int, int]]
) -> Iterator[list[int]]:
    for _, alike in groupby(sorted(positions, key=key), key=key):
        yield list(alike)

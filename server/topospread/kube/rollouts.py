"""How controllers replace the pods of a workload, as manifests say it.

A Deployment makes new pods while there are fewer than replicas and maxSurge, and takes old ones
away while more than replicas without maxUnavailable are there. A StatefulSet takes the pod with the
highest number away, and goes on once the new one of that number runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from typing_extensions import override

from topospread.kube.workloads import TEMPLATE_HASH


@dataclass(frozen=True, slots=True)
class Share:
    """A number of pods, or a percentage of the replicas, as maxSurge and maxUnavailable are."""

    number: int
    is_percentage: bool = False

    def of(self, replicas: int, *, up: bool) -> int:
        """Pods, of so many replicas; a percentage is rounded."""
        if not self.is_percentage:
            return self.number
        exact = self.number * replicas / 100
        return math.ceil(exact) if up else math.floor(exact)

    @override
    def __str__(self) -> str:
        return f"{self.number}{'%' * self.is_percentage}"


@dataclass(frozen=True, slots=True)
class Rollout:
    """How new pods take the place of old ones.

    Attributes:
        max_surge: how many pods there may be beyond the replicas; rounded up.
        max_unavailable: how many replicas may lack; rounded down.
        hash_label: the label that tells revisions apart, which the controller adds.
        doubles: all new pods are there before the first old one goes (blue-green).
        ordered: the pod with the highest number goes first, and the new one takes its place.
        partition: so many pods keep their template; of ordered ones those with lower numbers.
    """

    max_surge: Share
    max_unavailable: Share
    hash_label: str = TEMPLATE_HASH
    doubles: bool = False
    ordered: bool = False
    partition: int = 0

    def surge(self, replicas: int) -> int:
        """Pods beyond the replicas, at most."""
        return replicas if self.doubles else self.max_surge.of(replicas, up=True)

    def unavailable(self, replicas: int) -> int:
        """Replicas that may lack; where both would be 0, upstream takes 1."""
        if self.doubles:
            return 0
        lacking = self.max_unavailable.of(replicas, up=False)
        return lacking or (0 if self.surge(replicas) else 1)

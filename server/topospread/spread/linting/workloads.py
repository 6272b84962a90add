"""Workloads as lint sees them: the pod they make, how many, and how they are rolled out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from topospread.kube.workloads import TEMPLATE_HASH

if TYPE_CHECKING:
    from topospread.errors import FieldViolation
    from topospread.kube.objects import LabelSelector, Pod


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
    """

    max_surge: Share
    max_unavailable: Share
    hash_label: str = TEMPLATE_HASH
    doubles: bool = False

    def surge(self, replicas: int) -> int:
        """Pods beyond the replicas, at most."""
        return replicas if self.doubles else self.max_surge.of(replicas, up=True)

    def unavailable(self, replicas: int) -> int:
        """Replicas that may lack; where both would be 0, upstream takes 1."""
        if self.doubles:
            return 0
        lacking = self.max_unavailable.of(replicas, up=False)
        return lacking or (0 if self.surge(replicas) else 1)


@dataclass(frozen=True, slots=True)
class LintedWorkload:
    """A workload, or a pod that nothing controls.

    Attributes:
        pod: what it makes, with the labels of its template, and those of its controller that are
            known.
        replicas: how many; None where the manifest does not say, as an autoscaler sets them.
        selector: its own; None where it has none.
        added_labels: keys of labels that its controller adds, known or not.
        rollout: None where no pod is added before the one that it replaces is gone.
        has_volume_claims: each replica has volumes of its own.
        repelling_keys: topology keys of required anti-affinity between its own pods.
        unknown_fields: those that Kubernetes does not have, by their paths in the pod.
        ignored: codes, in small letters, that its annotation silences.
    """

    kind: str
    pod: Pod
    replicas: int | None = 1
    selector: LabelSelector | None = None
    added_labels: tuple[str, ...] = ()
    rollout: Rollout | None = None
    has_volume_claims: bool = False
    repelling_keys: tuple[str, ...] = ()
    unknown_fields: tuple[FieldViolation, ...] = ()
    ignored: frozenset[str] = frozenset()

    @property
    def is_pod(self) -> bool:
        """Whether it is a pod rather than what makes pods."""
        return self.kind == "Pod"

    @property
    def may_be_many(self) -> bool:
        """Whether there may be several of its pods at once."""
        return not self.is_pod and (self.replicas is None or self.replicas > 1)


@dataclass(frozen=True, slots=True)
class DomainNumbers:
    """What is known of the cluster for one constraint.

    Attributes:
        domains: eligible ones: they have a node that counts.
        usable: those of them with such a node that the scheduler's other filters leave.
        lowest: the fewest matching pods that one of them has now.
    """

    domains: int
    usable: int
    lowest: int = 0

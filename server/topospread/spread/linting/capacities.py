"""Room for a workload's replicas in the domains of a key, and how many of them it can hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DomainCapacity:
    """Domains that are alike.

    Attributes:
        domains: how many.
        replicas: pods of the workload that run in each now.
        free: more of them for which each has room now.
        is_usable: it has a node to which the scheduler's other filters let the pod.
    """

    domains: int
    replicas: int
    free: int
    is_usable: bool = True


@dataclass(frozen=True, slots=True)
class ReplicaCapacity:
    """The domains of a key: those that count for a constraint; all where pods are kept apart.

    Attributes:
        keyless: usable nodes without the key, on which nothing keeps pods apart.
    """

    domains: tuple[DomainCapacity, ...]
    keyless: int = 0

    @property
    def usable(self) -> int:
        """Usable domains."""
        return sum(each.domains for each in self.domains if each.is_usable)

    @property
    def running(self) -> int:
        """Replicas that run now."""
        return sum(each.domains * each.replicas for each in self.domains)

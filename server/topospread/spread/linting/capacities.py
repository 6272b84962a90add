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

    @property
    def total(self) -> int:
        """Replicas that one of them holds once those that run there have gone."""
        return self.replicas + self.free if self.is_usable else 0


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

    @property
    def total(self) -> int:
        """Replicas for which there is room, those that run among them."""
        return sum(each.domains * each.total for each in self.domains)

    def places(self, max_skew: int, min_domains: int = 1) -> int:
        """As many replicas as a constraint and the room let there be at once."""
        least = 0
        if self.domains and sum(each.domains for each in self.domains) >= min_domains:
            least = min(each.total for each in self.domains)
        return sum(each.domains * min(each.total, least + max_skew) for each in self.domains)

    def may_hold_up(self, replicas: int, unavailable: int, max_skew: int) -> bool:
        """Whether new replicas, spread by themselves, may wait for a domain full of old ones.

        The others take maxSkew more than it and no more, and as many old pods may go as new ones
        came, and `unavailable` more: none of these need be of that domain.
        """
        fewest: dict[int, int] = {}
        for each in self.domains:
            if each.is_usable and each.replicas:
                fewest[each.free] = min(each.replicas, fewest.get(each.free, each.replicas))
        for free, old in sorted(fewest.items()):
            top = free + max_skew
            new = sum(each.domains * min(each.total, top) for each in self.domains)
            new -= min(free + old, top) - free
            if new >= replicas:
                return False
            if new + unavailable <= self.running - old:
                return True
        return False

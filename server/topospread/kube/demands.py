"""The resources that a pod takes from its node, and the fields of it that are not modelled.

Source: ``PodRequests`` of component-helpers' ``resource`` package (KEP-753 for sidecars, KEP-2837
for resources of the whole pod). Amounts are in the scheduler's units: thousandths for cpu, whole
ones for all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.kube.quantities import thousandths, whole_units

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from fractions import Fraction

CPU: Final = "cpu"
MEMORY: Final = "memory"
HUGE_PAGES: Final = "hugepages-"

HOST_PORTS: Final = "ports"
VOLUMES: Final = "volumes"
POD_AFFINITY: Final = "inter-pod affinity"
SCHEDULING_GATES: Final = "scheduling gates"

LARGEST: Final = 1 << 50
"""Units past which more makes no difference, so that sums over the pods of a node stay exact."""

Requests = tuple[tuple[str, int], ...]
"""(resource, amount) sorted by resource: equal requests are equal tuples."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A pod's demand of its node.

    Attributes:
        requests: what it takes.
        not_modelled: kinds of constraints that it has and that are not evaluated here.
    """

    requests: Requests = ()
    not_modelled: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes, about, of its requests."""
        return sum([170 + len(name) for name, _ in self.requests])


NO_DEMAND: Final = Demand()


@dataclass(frozen=True, slots=True)
class Container:
    """Requests of one container; a sidecar is an init container that goes on running."""

    requests: Mapping[str, Fraction]
    sidecar: bool = False


def in_units(amounts: Mapping[str, Fraction]) -> dict[str, int]:
    """Amounts in the scheduler's units, none above LARGEST."""
    return {
        name: min(thousandths(amount) if name == CPU else whole_units(amount), LARGEST)
        for name, amount in amounts.items()
    }


def pod_requests(
    containers: Sequence[Container],
    init_containers: Sequence[Container] = (),
    overhead: Mapping[str, Fraction] | None = None,
    whole_pod: Mapping[str, Fraction] | None = None,
) -> Requests:
    """The requests of a pod, in the scheduler's units.

    The larger of what its containers with the sidecars take together, and what any step of its
    initialization takes with the sidecars begun before it; for the resources that the pod has
    requests of its own for, those instead; and its overhead.
    """
    running = _sum(each.requests for each in containers)
    begun: dict[str, Fraction] = {}
    beginning: dict[str, Fraction] = {}
    for each in init_containers:
        # What a step does not name is as large as it was when a sidecar last changed it.
        for name, amount in each.requests.items():
            step = begun[name] + amount if name in begun else amount
            if each.sidecar:
                running[name] = running[name] + amount if name in running else amount
                begun[name] = step
            beginning[name] = max(beginning[name], step) if name in beginning else step
    total = _largest(running, beginning)
    for name, amount in (whole_pod or {}).items():
        if name in (CPU, MEMORY) or name.startswith(HUGE_PAGES):
            total[name] = amount
    units = in_units(_sum((total, overhead or {})))
    return tuple(sorted((name, amount) for name, amount in units.items() if amount))


def _sum(parts: Iterable[Mapping[str, Fraction]]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def _largest(left: Mapping[str, Fraction], right: Mapping[str, Fraction]) -> dict[str, Fraction]:
    names = dict.fromkeys((*left, *right))
    return {
        name: max(amounts)
        for name in names
        if (amounts := [side[name] for side in (left, right) if name in side])
    }

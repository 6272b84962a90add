"""The resources that a pod takes from its node, and the fields of it that are not modelled.

Quantities are read as apimachinery's ``resource.ParseQuantity`` does: decimal numbers with a binary
suffix (Ki … Ei), a decimal one (n, u, m, none, k, M … E) or an exponent (e3, E-2). What is finer
than a billionth is rounded up, and so are amounts when they are asked for in a unit: thousandths
for cpu, whole ones for all others, as the scheduler counts. Pods are added up as ``PodRequests`` of
component-helpers' ``resource`` package does (KEP-753 for sidecars, KEP-2837 for resources of the
whole pod).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_QUANTITY: Final = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([A-Za-z]*+)([+-]?[0-9]*)")
_BINARY: Final = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
}
_LARGEST: Final = 2**63 - 1
_FINEST: Final = 10**9
_LONGEST: Final = 64
_EXPONENT: Final = 64


class QuantityError(ValueError):
    """Text that is no quantity."""


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Fraction:
    """The amount that a quantity stands for.

    Raises:
        QuantityError: the text is none, or far longer than any that is meant.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise QuantityError(f"{text[:_LONGEST]!r} is no quantity")
    sign, whole, part, suffix, exponent = match.groups()
    if not whole and not part:
        raise QuantityError(f"{text!r} has no digits")
    number = Fraction(int(whole or "0"))
    if part:
        number += Fraction(int(part), 10 ** len(part))
    amount = number * _factor(text, suffix, exponent)
    billionths = _ceiling(amount * _FINEST)
    amount = min(Fraction(billionths, _FINEST), Fraction(_LARGEST))
    return -amount if sign == "-" else amount


def whole_units(quantity: Fraction) -> int:
    """``Value()``: rounded up to whole units."""
    return _up(quantity)


def thousandths(quantity: Fraction) -> int:
    """``MilliValue()``: rounded up to thousandths."""
    return _up(quantity * 1000)


def _factor(text: str, suffix: str, exponent: str) -> Fraction:
    if not exponent:
        if suffix in _BINARY:
            return Fraction(_BINARY[suffix])
        if suffix in _DECIMAL:
            return _DECIMAL[suffix]
    elif suffix in ("e", "E") and exponent not in ("+", "-"):
        power = int(exponent)
        if abs(power) <= _EXPONENT:
            return Fraction(10) ** power
    raise QuantityError(f"{text!r} has an unknown suffix")


def _up(amount: Fraction) -> int:
    """Away from zero for what is above it, as upstream scales."""
    return min(_ceiling(amount), _LARGEST) if amount >= 0 else -min(_ceiling(-amount), _LARGEST)


def _ceiling(amount: Fraction) -> int:
    return -(-amount.numerator // amount.denominator)


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

"""Reads quantities by resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.errors import InvalidRequest
from topospread.kube.demands import QuantityError, parse_quantity
from topospread.kube.violations import invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from fractions import Fraction

    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb

    Amounts = Callable[[Mapping[str, pb.Quantity], str], dict[str, Fraction]]


def amounts(given: Mapping[str, pb.Quantity], path: str) -> dict[str, Fraction]:
    """Quantities by resource."""
    found: dict[str, Fraction] = {}
    # Sorted: a map's keys come in another order in each process.
    for name, quantity in sorted(given.items()):
        try:
            found[name] = parse_quantity(quantity.string)
        except QuantityError as cause:
            raise InvalidRequest.of(
                [invalid(f"{path}[{name}]", quantity.string, str(cause))]
            ) from cause
    return found


def lenient_amounts(given: Mapping[str, pb.Quantity], path: str = "") -> dict[str, Fraction]:
    """Quantities by resource of an object of the cluster; an invalid one is left out."""
    del path
    found: dict[str, Fraction] = {}
    for name, quantity in given.items():
        try:
            found[name] = parse_quantity(quantity.string)
        except QuantityError:
            continue
    return found

"""Taints and tolerations.

Source: ``Toleration.ToleratesTaint`` of core/v1; upstream facts 17 and 18, KEP-5471 for Lt and Gt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.kube.label_syntax import parse_canonical_int64

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topospread.kube.objects import Taint, Toleration

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"

EFFECTS: Final = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)


def tolerated(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    *,
    comparison_operators: bool = False,
) -> bool:
    """Whether every taint that keeps pods away is tolerated.

    Args:
        taints: a node's; only NoSchedule and NoExecute count.
        tolerations: the pod's.
        comparison_operators: whether the operators Lt and Gt mean anything (an alpha gate of 1.36);
            a toleration that uses them matches nothing otherwise.
    """
    return all(
        any(_tolerates(toleration, taint, comparison_operators) for toleration in tolerations)
        for taint in taints
        if taint.effect in (NO_SCHEDULE, NO_EXECUTE)
    )


def untolerated(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    *,
    comparison_operators: bool = False,
) -> Iterator[Taint]:
    """The taints that keep a pod away; arguments as of :func:`tolerated`."""
    for taint in taints:
        if not tolerated((taint,), tolerations, comparison_operators=comparison_operators):
            yield taint


def taint_text(taint: Taint) -> str:
    """A taint as kubectl writes it: ``dedicated=gpu:NoSchedule``."""
    return f"{taint.key}{f'={taint.value}' * bool(taint.value)}:{taint.effect}"


def by_key(tolerations: Sequence[Toleration]) -> Mapping[str, Sequence[Toleration]]:
    """Tolerations by the key that they name, each once; those of all keys under ""."""
    found: dict[str, list[Toleration]] = {}
    for toleration in dict.fromkeys(tolerations):
        found.setdefault(toleration.key, []).append(toleration)
    return found


def _tolerates(toleration: Toleration, taint: Taint, comparison_operators: bool) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            return comparison_operators and _compares(toleration, taint)
    return False


def _compares(toleration: Toleration, taint: Taint) -> bool:
    """Gt: the taint's number is above the toleration's. Both must be in canonical form."""
    bound = parse_canonical_int64(toleration.value)
    number = parse_canonical_int64(taint.value)
    if bound is None or number is None:
        return False
    return number > bound if toleration.operator == "Gt" else number < bound

"""Which taints a pod tolerates.

Source: ``Toleration.ToleratesTaint`` of core/v1, upstream facts 17 and 18, KEP-5471 for Lt and Gt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.kube.affinity import NO_EXECUTE, NO_SCHEDULE
from topospread.kube.label_syntax import parse_canonical_int64

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from topospread.kube.objects import Taint, Toleration

_Scope = tuple[str, str]
"""A key and an effect; an empty one stands for all."""

_HIGHEST: Final = (1 << 63) - 1
_LOWEST: Final = -(1 << 63)


class Tolerations:
    """The tolerations of a pod, prepared: to ask about a taint is to look it up, however many.

    Args:
        tolerations: the pod's.
        comparison_operators: whether the operators Lt and Gt mean anything (an alpha gate of 1.36);
            a toleration that uses them matches nothing otherwise.
    """

    __slots__ = ("_above", "_all_values", "_below", "_values")

    def __init__(
        self, tolerations: Iterable[Toleration], *, comparison_operators: bool = False
    ) -> None:
        self._all_values: set[_Scope] = set()
        self._values: set[tuple[_Scope, str]] = set()
        # The bound that most numbers pass.
        self._above: dict[_Scope, int] = {}
        self._below: dict[_Scope, int] = {}
        for each in tolerations:
            scope = each.key, each.effect
            match each.operator:
                case "" | "Equal":
                    self._values.add((scope, each.value))
                case "Exists":
                    self._all_values.add(scope)
                case "Lt" | "Gt" if comparison_operators:
                    self._add_bound(scope, each)

    def _add_bound(self, scope: _Scope, toleration: Toleration) -> None:
        """Gt: the taint's number is above the toleration's. Both must be in canonical form."""
        bound = parse_canonical_int64(toleration.value)
        if bound is None:
            return
        if toleration.operator == "Gt":
            self._above[scope] = min(bound, self._above.get(scope, bound))
        else:
            self._below[scope] = max(bound, self._below.get(scope, bound))

    def tolerate(self, taints: Iterable[Taint]) -> bool:
        """Whether every taint that keeps pods away is tolerated; only those of two effects do."""
        return next(self.untolerated(taints), None) is None

    def untolerated(self, taints: Iterable[Taint]) -> Iterator[Taint]:
        """The taints that keep the pod away."""
        for taint in taints:
            if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not self._tolerates(taint):
                yield taint

    def _tolerates(self, taint: Taint) -> bool:
        scopes = [(key, effect) for key in (taint.key, "") for effect in (taint.effect, "")]
        if any(
            scope in self._all_values or (scope, taint.value) in self._values for scope in scopes
        ):
            return True
        if not self._above and not self._below:
            return False
        number = parse_canonical_int64(taint.value)
        return number is not None and any(
            number > self._above.get(scope, _HIGHEST) or number < self._below.get(scope, _LOWEST)
            for scope in scopes
        )

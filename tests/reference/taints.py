"""Which nodes' taints a pod tolerates, as nodeTaintsPolicy: Honor asks.

Source: Toleration.ToleratesTaint of k8s.io/api, facts F17, F18.
"""

import re

from tests.reference.objects import Json, spec_of
from tests.reference.selectors import parse_int64

CANONICAL_INTEGER = re.compile(r"0|-?[1-9][0-9]*")


def accepts(pod: Json, node: Json, *, comparison_operators: bool) -> bool:
    """Whether the pod tolerates every NoSchedule and NoExecute taint of the node.

    PreferNoSchedule and spec.unschedulable say nothing here (F17).

    Args:
        pod: the incoming pod.
        node: the node.
        comparison_operators: the gate TaintTolerationComparisonOperators.
    """
    tolerations = spec_of(pod).get("tolerations") or []
    return all(
        any(
            tolerates(toleration, taint, comparison_operators=comparison_operators)
            for toleration in tolerations
        )
        for taint in spec_of(node).get("taints") or []
        if taint.get("effect") in ("NoSchedule", "NoExecute")
    )


def tolerates(toleration: Json, taint: Json, *, comparison_operators: bool) -> bool:
    """Whether one toleration covers one taint.

    An empty effect or key covers any; an empty operator means Equal; tolerationSeconds does not
    matter (F17, F18).
    """
    for part in ("effect", "key"):
        wanted = toleration.get(part) or ""
        if wanted and wanted != (taint.get(part) or ""):
            return False
    value, tainted = toleration.get("value") or "", taint.get("value") or ""
    match toleration.get("operator") or "Equal":
        case "Equal":
            return bool(value == tainted)
        case "Exists":
            return True
        case "Gt" | "Lt" as operator:
            return comparison_operators and compares(tainted, operator, value)
    return False


def compares(tainted: str, operator: str, bound: str) -> bool:
    """Whether the taint's value is above (Gt) or below (Lt) the toleration's.

    Both must be int64 in canonical form: "007" and "+7" are not (F18).
    """
    left, right = canonical_int64(tainted), canonical_int64(bound)
    if left is None or right is None:
        return False
    return left > right if operator == "Gt" else left < right


def canonical_int64(text: str) -> int | None:
    """The text as an int64 written the one way a person would write it, or None."""
    return parse_int64(text) if CANONICAL_INTEGER.fullmatch(text) else None

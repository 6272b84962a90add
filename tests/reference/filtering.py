"""PreFilter, its what-ifs (AddPod, RemovePod) and Filter: where the pod may go.

Sources: KEP-895 "MaxSkew", KEP-3022 "Implementation details"; facts F9 to F16, F33, F34.
"""

from dataclasses import dataclass
from typing import Any

from tests.reference.constraints import HARD, Constraint, Question, has_all_keys
from tests.reference.objects import Json, labels_of, namespace_of
from tests.reference.selectors import SelectorError
from tests.reference.snapshot import Snapshot

Status = dict[str, Any]

SKEWED = "node(s) didn't match pod topology spread constraints"
KEYLESS = "node(s) didn't match pod topology spread constraints (missing required label)"

SUCCESS: Status = {"code": "Success", "reasons": []}
SKIP: Status = {"code": "Skip", "reasons": []}


@dataclass(frozen=True)
class Spread:
    """The hard constraints, and for each the matching pods of every eligible domain.

    A domain is eligible when some node with its value has all keys of all hard constraints and is
    included by the constraint's policies; `counts[i]` has exactly those domains (F9, F15).
    """

    constraints: list[Constraint]
    counts: list[dict[str, int]]

    def minima(self) -> list[int]:
        """The global minimum of each constraint.

        KEP-3022: with fewer eligible domains than minDomains it is 0; so it is with none (F14). It
        is the true minimum, whatever the what-ifs before did (F34).
        """
        return [
            0 if len(counts) < constraint.min_domains else min(counts.values(), default=0)
            for constraint, counts in zip(self.constraints, self.counts, strict=True)
        ]


def pre_filter(question: Question, snapshot: Snapshot) -> tuple[Status, Spread | None]:
    """PreFilter: the counts that Filter judges by; None unless the status is Success."""
    try:
        constraints = question.constraints(HARD)
    except SelectorError as error:
        reason = (
            f"get constraints from pod: obtaining pod's hard topology spread constraints: {error}"
        )
        return {"code": "Error", "reasons": [reason]}, None
    if not constraints:
        return SKIP, None
    spread = Spread(constraints, [{} for _ in constraints])
    for name, node in snapshot.nodes.items():
        if not has_all_keys(labels_of(node), constraints):
            continue
        for constraint, counts in zip(constraints, spread.counts, strict=True):
            # Of an included zone, the pods on an excluded node are not counted (F11).
            if question.includes(constraint, node):
                domain = labels_of(node)[constraint.topology_key]
                found = snapshot.count(name, constraint.selector, namespace_of(question.pod))
                counts[domain] = counts.get(domain, 0) + found
    return SUCCESS, spread


def apply_op(question: Question, snapshot: Snapshot, spread: Spread, op: Json) -> Status:
    """AddPod or RemovePod: what if this pod were, or were not, on this node? Always Success.

    deletionTimestamp is not looked at, so that removing a terminating pod, which was never counted,
    drives a count down, even below zero; and an empty selector counts here (F2, F33).
    """
    node = snapshot.nodes.get(op["node"])
    pod, change = op["pod"], {"add": 1, "remove": -1}[op["op"]]
    if node is None or namespace_of(pod) != namespace_of(question.pod):
        return SUCCESS
    if not has_all_keys(labels_of(node), spread.constraints):
        return SUCCESS
    for constraint, counts in zip(spread.constraints, spread.counts, strict=True):
        if constraint.selector.matches(labels_of(pod)) and question.includes(constraint, node):
            counts[labels_of(node)[constraint.topology_key]] += change
    return SUCCESS


def filter_node(question: Question, spread: Spread, minima: list[int], node: Json) -> Status:
    """Filter: the verdict on one node, given `spread.minima()`.

    KEP-3022's formula, for each constraint in order, the first failure deciding (F12):
    existing matching pods + 1 if the pod matches itself − global minimum <= maxSkew.
    A node outside the inclusion policies is judged like any other; a domain that is not eligible
    counts 0 (F10, F11).
    """
    for index, constraint in enumerate(spread.constraints):
        domain = labels_of(node).get(constraint.topology_key)
        if domain is None:
            return {"code": "UnschedulableAndUnresolvable", "reasons": [KEYLESS]}
        matching = spread.counts[index].get(domain, 0)
        self_match = int(constraint.selector.matches(labels_of(question.pod)))  # F13
        if matching + self_match - minima[index] > constraint.max_skew:
            return {"code": "Unschedulable", "reasons": [SKEWED]}
    return SUCCESS

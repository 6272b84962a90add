"""PreScore, Score and NormalizeScore: where the pod should go.

Sources: KEP-895 "Priority", KEP-1258; facts F26 to F32.
"""

import math
from dataclasses import dataclass

from tests.reference.constraints import SOFT, Constraint, Question, has_all_keys
from tests.reference.filtering import SKIP, SUCCESS, Status
from tests.reference.objects import Json, labels_of, name_of, namespace_of
from tests.reference.selectors import SelectorError
from tests.reference.snapshot import Snapshot

HOSTNAME = "kubernetes.io/hostname"
BEST = 100


@dataclass(frozen=True)
class SoftSpread:
    """The soft constraints over the candidate nodes, as PreScore prepares them.

    Attributes:
        constraints: the soft constraints.
        counts: for each, the matching pods of every domain a scored candidate is in; none for
            the hostname, whose pods are counted on each node (F29).
        weights: for each, the factor that keeps small topologies from being watered down (F28).
        ignored: names of candidates that lack a key: not scored (F27).
    """

    constraints: list[Constraint]
    counts: list[dict[str, int]]
    weights: list[float]
    ignored: frozenset[str]


def pre_score(
    question: Question, snapshot: Snapshot, candidates: list[Json]
) -> tuple[Status, SoftSpread | None]:
    """PreScore over the nodes that passed Filter; None unless the status is Success.

    minDomains plays no part here (F15).
    """
    try:
        constraints = question.constraints(SOFT)
    except SelectorError as error:
        reason = (
            f"calculating preScoreState: obtaining pod's soft topology spread constraints: {error}"
        )
        return {"code": "Error", "reasons": [reason]}, None
    if not constraints or not snapshot.nodes:
        return SKIP, None  # F32
    scored = [
        node
        for node in candidates
        if not question.requires_all_keys or has_all_keys(labels_of(node), constraints)
    ]
    ignored = {name_of(node) for node in candidates} - {name_of(node) for node in scored}
    domains = [{domain_of(node, c) for node in scored} for c in constraints]
    spread = SoftSpread(
        constraints=constraints,
        counts=[
            {} if c.topology_key == HOSTNAME else dict.fromkeys(found, 0)
            for c, found in zip(constraints, domains, strict=True)
        ],
        weights=[
            math.log((len(scored) if c.topology_key == HOSTNAME else len(found)) + 2)
            for c, found in zip(constraints, domains, strict=True)
        ],
        ignored=frozenset(ignored),
    )
    count_domains(question, snapshot, spread)
    return SUCCESS, spread


def domain_of(node: Json, constraint: Constraint) -> str:
    """The node's domain. A missing key, which only System allows, counts as a domain "" (F26)."""
    return labels_of(node).get(constraint.topology_key, "")


def count_domains(question: Question, snapshot: Snapshot, spread: SoftSpread) -> None:
    """Add up the matching pods of the candidates' domains, on all eligible nodes (F28).

    Nodes that did not pass Filter count too, as long as their domain has a candidate.
    """
    for name, node in snapshot.nodes.items():
        if question.requires_all_keys and not has_all_keys(labels_of(node), spread.constraints):
            continue
        for constraint, counts in zip(spread.constraints, spread.counts, strict=True):
            domain = domain_of(node, constraint)
            if domain in counts and question.includes(constraint, node):
                counts[domain] += snapshot.count(
                    name, constraint.selector, namespace_of(question.pod)
                )


def score_node(question: Question, snapshot: Snapshot, spread: SoftSpread, node: Json) -> int:
    """Score of one candidate: the more matching pods around it, the higher; 0 when ignored.

    round(sum of count · weight + maxSkew − 1) over the constraints whose key the node has, half
    away from zero (F30). The incoming pod does not count itself (F32).
    """
    if name_of(node) in spread.ignored:
        return 0
    score = 0.0
    for index, constraint in enumerate(spread.constraints):
        if constraint.topology_key not in labels_of(node):
            continue
        if constraint.topology_key == HOSTNAME:
            # Counted on this very node, whatever its label says and whatever the policies (F29).
            count = snapshot.count(name_of(node), constraint.selector, namespace_of(question.pod))
        else:
            count = spread.counts[index][domain_of(node, constraint)]
        score += count * spread.weights[index] + (constraint.max_skew - 1)
    return round_half_away(score)


def normalize(scores: dict[str, int], ignored: frozenset[str]) -> dict[str, int]:
    """NormalizeScore: turn the scores round into 0..100, fewest pods best.

    100 · (max + min − score) / max in integers, so that the worst node gets 100 · min / max and not
    0; all 100 when max is 0; ignored nodes get 0 and set neither min nor max (F27, F31).
    """
    counted = [score for name, score in scores.items() if name not in ignored]
    least, most = min(counted, default=0), max(counted, default=0)
    # A score of −1 (only a maxSkew of 0, which no API server lets pass, makes one) is upstream's
    # own mark of an ignored node, and its maximum starts at 0.
    most = max(most, 0)
    return {
        name: 0
        if name in ignored or score == -1
        else BEST
        if most == 0
        else divide(BEST * (most + least - score), most)
        for name, score in scores.items()
    }


def round_half_away(value: float) -> int:
    """Go's math.Round: halves go away from zero; Python's round() takes them to even (F30)."""
    whole = math.floor(abs(value))
    if abs(value) - whole >= 0.5:
        whole += 1
    return whole if value >= 0 else -whole


def divide(dividend: int, divisor: int) -> int:
    """Go's integer division, which cuts towards zero; Python's // goes down."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend >= 0) == (divisor >= 0) else -quotient

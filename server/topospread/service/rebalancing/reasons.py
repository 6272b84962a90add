"""Why there is no plan for a group of constraints, as far as its pods tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.service.explaining.context import EvaluationContext
from topospread.service.explaining.explain import explain_at
from topospread.service.rebalancing.inventory import skew
from topospread.service.rebalancing.model import CLAIMS_UNKNOWN
from topospread.wording import have

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.service.rebalancing.inventory import ConstraintComponent, SkewLimit
    from topospread.service.rebalancing.model import MovablePod, RebalanceModel

NO_PLAN: Final = (
    "no evictions that are allowed bring its constraints within maxSkew together:"
    " explain one of its pods (topospread explain)"
)
NO_CAPACITY: Final = (
    "the nodes that its pods may go to have no room for them:"
    " explain one of its pods (topospread explain)"
)

MOST_EXPLAINED: Final = 3
"""Groups of one plan whose pods are explained; it takes some judgements of each."""


def no_plan_reason(
    component: ConstraintComponent,
    made: RebalanceModel,
    state: Snapshot,
    *,
    explains: bool,
    lacks_capacity: bool = False,
) -> str:
    """Why no evictions bring constraints within maxSkew.

    Args:
        component: the constraints.
        made: their pods.
        state: the state without a plan.
        explains: say what keeps the next replica out, and what would let it in.
        lacks_capacity: there would be a plan if the nodes had more room.
    """
    uneven = [
        limit
        for limit, meant in component.limits.items()
        if meant and skew(limit, state) > limit.max_skew
    ]
    cause = _cause(uneven, made, state) if explains else ""
    if lacks_capacity:
        return NO_CAPACITY + cause
    others = "".join(_others_text(limit, made, state) for limit in uneven[:1])
    return NO_PLAN + cause + others + _claims_text(made)


def _others_text(limit: SkewLimit, made: RebalanceModel, state: Snapshot) -> str:
    """How many of the pods that a constraint counts are no pods that could be moved for it."""
    total = int(state.domain_counts(limit.group, limit.eligibility, limit.topology_key).sum())
    own = sum(
        limit.group.selector.matches(each.pod_class.shape.pod.labels) for each in made.movable_pods
    )
    if own >= total:
        return ""
    others = total - own
    return (
        f"; {others} of the {total} pods that count {have(others)} no such constraint, or"
        f" {'is' if others == 1 else 'are'} not selected: others are not evicted for it"
    )


def _cause(uneven: Sequence[SkewLimit], made: RebalanceModel, state: Snapshot) -> str:
    """What keeps the next replica of such a pod out, and what would let it in; mostly nothing.

    Of pods with claims nothing is said: those of the next one are not known.
    """
    like = next((e for e in made.movable_pods if set(uneven) & {*e.pod_class.limits}), None)
    if like is None or like.facts.claims:
        return ""
    found = explain_at(_next_replica(like, state), limit=1)
    if not found.cause:
        return ""
    text = f"; the next replica finds no node: {found.cause}"
    if found.suggestions:
        text += f"; what would let it in: {found.suggestions[0].text}"
    return text


def _next_replica(like: MovablePod, state: Snapshot) -> EvaluationContext:
    shaped, member = like.pod_class, like.member
    return EvaluationContext(
        state,
        shaped.shape.pod,
        shaped.rules,
        shaped.effective.constraints,
        like.facts.demand,
        name=member.name,
        uid=member.uid,
        bound_to=member.node,
    )


def _claims_text(made: RebalanceModel) -> str:
    """Why a component's pods may be held by volumes; empty where none has a claim."""
    unknown = sum(each.stays == CLAIMS_UNKNOWN for each in made.movable_pods)
    known = sum(each.facts.claims and not each.stays for each in made.movable_pods)
    if unknown:
        return f"; {unknown} of its pods {have(unknown)} claims whose volumes are not in the state"
    if known:
        return f"; {known} of its pods {have(known)} claims: volumes may hold pods where they are"
    return ""

"""What keeps a pod out: who holds the minimum, and what closes the domains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.kube.affinity import taint_text
from topospread.kube.demands import amount_text
from topospread.kube.label_syntax import label_text
from topospread.service.explaining.constraint_reports import domains_text
from topospread.service.explaining.new_nodes import are_elsewhere, scarce_resources
from topospread.service.explaining.topology_keys import has_key, meant_on
from topospread.service.fit import node_affinity, taint_toleration
from topospread.service.fit.node_unschedulable import CORDONED_TAINT
from topospread.spread.linting.rules import DEPRECATED
from topospread.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.service.explaining.context import EvaluationContext
    from topospread.spread.topology import Bools
    from topospread_proto.v1.explanation_pb2 import ConstraintExplanation

MOST_NAMED: Final = 3
"""Constraints, and taints of one constraint, that the cause names."""

MOST_NODES: Final = 200
"""Nodes whose taints are looked at."""


def refusing_constraints(context: EvaluationContext) -> list[int]:
    """Positions of the hard constraints that refuse a node that the other filters leave."""
    return [
        position
        for position, allowed in enumerate(context.allowing)
        if (context.usable & ~allowed).any()
    ]


def unusable_holders(context: EvaluationContext, position: int) -> Bools:
    """[slots] nodes of the domains with the fewest pods; none where the pod can use one of them."""
    column = context.snapshot.domains(context.hard[position].topology_key)
    nodes: Bools = column.spread(_lowest(context, position)) & context.snapshot.alive
    return np.zeros_like(nodes) if (nodes & context.usable).any() else nodes


def has_tainted_holders(context: EvaluationContext) -> bool:
    """Whether taints, beside cordons, keep the pod from nodes that hold a minimum."""
    tainted = context.refused_by_plugin(taint_toleration.NAME) & ~context.snapshot.nodes.cordoned
    return bool(tainted.any()) and any(
        (unusable_holders(context, position) & tainted).any()
        for position in refusing_constraints(context)
    )


def cause_text(context: EvaluationContext, explained: Sequence[ConstraintExplanation]) -> str:
    """The cause in a line; empty where a node fits, or where no constraint refuses one.

    A pod that is larger than any node has no other cause, nor has one that no node's taints admit.

    Args:
        context: the pod at its state.
        explained: the account of each constraint, hard and soft.
    """
    if context.fits or context.constraints.hard.error or not context.snapshot.node_count:
        return ""
    if too_large := "; ".join(_too_large(context)):
        return too_large
    hard = {index: position for position, (index, _) in enumerate(context.specs(hard=True))}
    texts = [
        text
        for each in explained
        if each.index in hard and (text := _of_constraint(context, hard[each.index], each))
    ]
    if not texts:
        return _nominated(context) or _all_tainted(context)
    # Who holds a minimum unused is said with the reason already.
    noted = any(each.minimum.note and each.rejected_domain_count for each in explained)
    return "; ".join([*texts[:MOST_NAMED], *(() if noted else _open_nodes(context))])


def _too_large(context: EvaluationContext) -> Iterator[str]:
    """What the pod requests and no node that is for it has as much of, used or not."""
    nodes, order = context.snapshot.nodes, context.snapshot.nodes.order
    order = order[context.meant_nodes[order]]
    for name, amount in scarce_resources(context).items():
        elsewhere = are_elsewhere(context, {name: amount})
        none = f"no node{' that the pod may use' * elsewhere} has {name}"
        allocatable = nodes.allocatable(name)[order]
        largest = int(allocatable.max())
        if not largest:
            yield none
            continue
        node = nodes.node(int(order[allocatable.argmax()]))
        where = f" on {node.name}" if node is not None else ""
        text = f"{none} {amount_text(name, amount)}"
        yield f"{text}: the largest allocatable is {amount_text(name, largest)}{where}"


def _nominated(context: EvaluationContext) -> str:
    """The nodes that would fit if no pods were nominated there."""
    number = int(np.count_nonzero(context.passing & context.usable))
    text = f"spreading closes {counted(number, 'node')} for the pods that are nominated there"
    return f"{text}: they count as if they ran" if number else ""


def _all_tainted(context: EvaluationContext) -> str:
    outside = context.snapshot.alive & context.refused_by_plugin(node_affinity.NAME)
    left = context.snapshot.alive & ~outside
    if (left & ~context.refused_by_plugin(taint_toleration.NAME)).any():
        return ""
    taints = taints_text(context, left)
    if not taints:
        return ""
    node, it = ("node that the pod selects", "it") if outside.any() else ("node", "the pod")
    return f"no {node} is without a taint that {it} does not tolerate: {taints}"


def _of_constraint(
    context: EvaluationContext, position: int, account: ConstraintExplanation
) -> str:
    key = context.hard[position].topology_key
    shown = label_text(key)
    if not has_key(context.snapshot, key):
        meant = meant_on(context.snapshot, key)
        text = f"no node has the label {shown}"
        if meant in DEPRECATED:
            return f"{text} (nodes have {label_text(meant)}, whose successor it is)"
        return f"{text} ({label_text(meant)} is meant?)" if meant else text
    if not (context.snapshot.alive & ~context.allowing[position]).any():
        return ""
    minimum, closed = account.minimum, account.rejected_domain_count
    if not closed:
        lacking = context.only_blocked_by(position) & (context.snapshot.domains(key).ids < 0)
        number = int(np.count_nonzero(lacking))
        return f"{shown}: {counted(number, 'usable node')} without the label" if number else ""
    lowest = np.flatnonzero(_lowest(context, position))
    who = minimum.note or f"held by {domains_text(context.snapshot.domains(key), lowest)}"
    text = f"{shown}: maxSkew {account.constraint.max_skew} above the minimum closes "
    text += f"{closed} of {counted(account.domain_count, 'domain')}; the minimum is "
    text += f"{minimum.value}, {who}"
    if taints := taints_text(context, unusable_holders(context, position)):
        text += f" ({taints})"
    return text


def _lowest(context: EvaluationContext, position: int) -> Bools:
    """[domains] those with the fewest pods."""
    constraint, state = context.hard[position], context.states[position]
    present: Bools = context.snapshot.membership(
        constraint.eligibility, constraint.topology_key
    ).present
    if not present.any():
        return present
    lowest: Bools = present & (state.counts == state.counts[present].min())
    return lowest


def taints_text(context: EvaluationContext, nodes: Bools) -> str:
    """The first taints of some nodes that the pod does not tolerate, beside those of cordons."""
    found: dict[str, None] = {}
    for slot in np.flatnonzero(nodes)[:MOST_NODES].tolist():
        node = context.snapshot.nodes.node(slot)
        if node is not None:
            for taint in context.tolerations.untolerated(node.taints):
                if taint.key != CORDONED_TAINT.key or not node.unschedulable:
                    found[taint_text(taint)] = None
    more = len(found) - MOST_NAMED
    return ", ".join([*list(found)[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


def _open_nodes(context: EvaluationContext) -> Iterator[str]:
    """What refuses the nodes that spreading leaves."""
    left = int(np.count_nonzero(context.passing))
    refused = context.refused_by(context.passing)
    if left and refused:
        reasons = ", ".join(f"{number} {why}" for why, number in refused.most_common())
        yield f"of {counted(left, 'node')} that spreading leaves: {reasons}"

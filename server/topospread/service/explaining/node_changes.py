"""Changes of nodes that are there, and of the pod's tolerations, that may let a pod in."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.index.overlay import Overlay
from topospread.kube.affinity import named_values, taint_text
from topospread.kube.label_syntax import label_key_errors, label_text
from topospread.kube.objects import HOSTNAME_LABEL, Node, Taint, Toleration
from topospread.kube.taints import means_stay_away
from topospread.service.explaining.cause import has_tainted_holders
from topospread.service.explaining.copied_nodes import free_names, is_place
from topospread.service.explaining.proposals import ProposedChange, Rank
from topospread.service.explaining.topology_keys import has_key, meant_on
from topospread.service.fit.node_unschedulable import CORDONED_TAINT
from topospread.spread.linting.rules import DEPRECATED
from topospread.wording import counted
from topospread_proto.v1 import explanation_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.service.explaining.context import EvaluationContext
    from topospread.spread.topology import Bools

OS_LABEL, ARCH_LABEL, WINDOWS = "kubernetes.io/os", "kubernetes.io/arch", "windows"

WAYS_TO_LABEL: Final = 4
"""Values that a missing label is tried with."""

WAYS_TO_TOLERATE: Final = 2
"""Combinations of taints that are tried, one at a time."""

MOST_TOLERATED: Final = 3
"""Taints of a node that are tolerated together."""

MOST_UNCORDONED: Final = 1000
"""Nodes that are uncordoned at once."""

MOST_LOOKED_AT: Final = 5000
"""Nodes whose taints are looked at."""


def label_nodes(context: EvaluationContext, position: int) -> Iterator[ProposedChange]:
    """Propose a label with the key on a node that lacks it and is refused for nothing else."""
    key = context.hard[position].topology_key
    lacking = context.only_blocked_by(position) & (context.snapshot.domains(key).ids < 0)
    slot = _first(context, lacking)
    node = None if slot is None else context.snapshot.nodes.node(slot)
    meant = meant_on(context.snapshot, key)
    if node is None or label_key_errors(key) or (meant and meant not in DEPRECATED):
        return
    number = int(np.count_nonzero(lacking))
    domains = context.snapshot.domains(key).ids >= 0
    closed = context.snapshot.alive & ~context.allowing[position] & domains
    before = [node.labels[meant]] if meant in node.labels else []
    for value in (*before, *_values(context, position, node)):
        other = replace(node, labels={**node.labels, key: value})
        labelled = context.with_overlay(Overlay(changed=[other]))
        if labelled.fits:
            yield ProposedChange(
                Rank.LABEL if closed.any() else Rank.KEY,
                labelled,
                [pb.SuggestedChange(label_nodes=pb.LabelNodes(node_count=number, domain=value))],
                _label_text(context, key, value, number),
            )
            return


def _label_text(context: EvaluationContext, key: str, value: str, number: int) -> str:
    example = "with its name" if key == HOSTNAME_LABEL else f"for example {key}={label_text(value)}"
    usable = f"{example}; {counted(number, 'usable node')} lack{'s' * (number == 1)} it"
    if has_key(context.snapshot, key):
        return f"label a node with {key} ({usable})"
    return f"label nodes with {key}, which none has ({usable})"


def _values(context: EvaluationContext, position: int, node: Node) -> Iterator[str]:
    constraint, state = context.hard[position], context.states[position]
    if constraint.is_hostname:
        yield node.name
        return
    column = context.snapshot.domains(constraint.topology_key)
    present = context.snapshot.membership(constraint.eligibility, constraint.topology_key).present
    nameless = not is_place(constraint.topology_key)
    known = [d for d in np.flatnonzero(present).tolist() if column.values[d] or nameless]
    known.sort(key=lambda d: (int(state.counts[d]), column.values[d]))
    yield from (column.values[d] for d in known[:WAYS_TO_LABEL])
    yield next(free_names(context.snapshot, constraint.topology_key))


def _first(context: EvaluationContext, mask: Bools) -> int | None:
    slots = _by_name(context, mask)
    return slots[0] if slots else None


def uncordon(context: EvaluationContext) -> Iterator[ProposedChange]:
    """Propose to uncordon nodes that the constraints allow and nothing else refuses."""
    cordoned = context.passing & context.snapshot.nodes.cordoned & ~context.usable
    if not cordoned.any():
        return
    freed: list[Node] = []
    for slot in _by_name(context, cordoned)[:MOST_UNCORDONED]:
        checkpoint()
        node = context.snapshot.nodes.node(slot)
        assert node is not None, "nodes that pass are there"
        taints = tuple(taint for taint in node.taints if taint.key != CORDONED_TAINT.key)
        if context.tolerations.tolerate(taints):
            freed.append(replace(node, unschedulable=False, taints=taints))
    if not freed:
        return
    without = context.with_overlay(Overlay(changed=freed))
    fits = [node for node in freed if without.fitting[without.snapshot.slot(node.name)]]
    if not fits:
        return
    more = len(fits) - 1
    others = f" and {more} more" if more else ""
    where = "which spreading leaves open" if context.hard else "which the pod can use otherwise"
    yield ProposedChange(
        Rank.UNCORDON if has_tainted_holders(context) else Rank.RESTORE,
        without,
        [pb.SuggestedChange(uncordon_nodes=pb.UncordonNodes(node_count=len(fits)))],
        f"uncordoning {fits[0].name}{others}, {where}",
    )


def tolerate(context: EvaluationContext) -> Iterator[ProposedChange]:
    """Propose tolerations of what taints nodes that the constraints allow."""
    together: Counter[tuple[Taint, ...]] = Counter()
    for slot in _by_name(context, context.passing & ~context.usable)[:MOST_LOOKED_AT]:
        checkpoint()
        node = context.snapshot.nodes.node(slot)
        assert node is not None, "nodes that pass are there"
        refusing = set(context.tolerations.untolerated(node.taints))
        if 0 < len(refusing) <= MOST_TOLERATED and not any(
            means_stay_away(taint) or _is_for_others(context, taint, node) for taint in refusing
        ):
            together[tuple(sorted(refusing, key=taint_text))] += 1
    requested = {name for name, _ in context.demand.requests}
    order = sorted(together, key=lambda taints: (-together[taints], [*map(taint_text, taints)]))
    for taints in order[:WAYS_TO_TOLERATE]:
        written = [*map(taint_text, taints)]
        number = counted(together[taints], "node")
        text = f"tolerations for the taints {' and '.join(written)} of {number}"
        if len(written) == 1:
            text = f"a toleration for the taint {written[0]} of {number}"
        own = all(taint.key in requested for taint in taints)
        yield ProposedChange(
            Rank.RESTORE if own else Rank.TOLERATE,
            _tolerating(context, taints),
            [pb.SuggestedChange(add_toleration=pb.AddToleration(taint=each)) for each in written],
            text,
        )


def _is_for_others(context: EvaluationContext, taint: Taint, node: Node) -> bool:
    """Whether a taint keeps a node for pods that ask for its devices, system or architecture."""
    requested, requirements = context.demand.requests, context.constraints.requirements
    platforms = {taint.key} & {OS_LABEL, ARCH_LABEL}
    if node.labels.get(OS_LABEL) == WINDOWS:
        platforms.add(OS_LABEL)
    if any(named_values(requirements, key) is None for key in platforms):
        return True
    offers = any(name == taint.key and amount for name, amount in node.allocatable)
    return offers and all(name != taint.key for name, _ in requested)


def _tolerating(context: EvaluationContext, taints: Sequence[Taint]) -> EvaluationContext:
    more = (Toleration(taint.key, "Equal", taint.value, taint.effect) for taint in taints)
    tolerations = (*context.pod.tolerations, *more)
    constraints = [
        constraint
        if constraint.eligibility.tolerations is None
        else replace(
            constraint, eligibility=replace(constraint.eligibility, tolerations=tolerations)
        )
        for constraint in context.hard
    ]
    return replace(
        context.with_hard(constraints), pod=replace(context.pod, tolerations=tolerations)
    )


def _by_name(context: EvaluationContext, mask: Bools) -> list[int]:
    order = context.snapshot.nodes.order
    slots: list[int] = order[mask[order]].tolist()
    return slots

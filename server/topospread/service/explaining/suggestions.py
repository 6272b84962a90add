"""Suggestions that would let in a pod that fits nowhere; each was tried out.

Each candidate is a case that differs from the pod's own in what is suggested, and is judged by the
same code; candidates in which the pod still fits nowhere are dropped.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.index.overlay import Overlay
from topospread.kube.affinity import taint_text, untolerated
from topospread.kube.objects import (
    HONOR,
    HOSTNAME_LABEL,
    IGNORE,
    SCHEDULE_ANYWAY,
    Node,
    Taint,
    Toleration,
)
from topospread.service.explaining.context import (
    ProposedChange,
    constraint_label,
    plural,
    with_constraint,
)
from topospread.service.fit.node_unschedulable import CORDONED_TAINT
from topospread_proto.v1 import explanation_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from topospread.service.explaining.context import EvaluationContext
    from topospread.spread.topology import Bools, GroupKey


MOST_ADVISED: Final = 8
"""Constraints that are advised on, of those that refuse a node; each costs some judgements."""

MOST_IMAGINED: Final = 1000
"""Nodes that are imagined at once; minDomains far beyond what there is get no such advice."""

WAYS_TO_LABEL: Final = 4
"""Values that a missing label is tried with."""

WAYS_TO_TOLERATE: Final = 2
"""Taints that are tried, one at a time."""

MOST_LOOKED_AT: Final = 5000
"""Nodes whose taints are looked at."""


def suggestions(context: EvaluationContext) -> list[pb.Suggestion]:
    """Changes that would let the pod in; none when it fits somewhere or cannot be judged."""
    if context.fits or context.constraints.hard.error or not context.snapshot.node_count:
        return []
    found: list[pb.Suggestion] = []
    refusing = [
        position
        for position, allowed in enumerate(context.allowing)
        if (context.usable & ~allowed).any()
    ]
    for position in refusing[:MOST_ADVISED]:
        for way in PROPOSERS:
            for each in _effective(way(context, position)):
                for change in each.changes:
                    _name_constraint(change, context, position)
                found.append(each)
    for of_all in (uncordon, tolerate):
        found.extend(_effective(of_all(context)))
    if not found and context.hard:
        found.extend(_effective(all_skews(context)))
    return found


def _effective(candidates: Iterable[ProposedChange]) -> Iterator[pb.Suggestion]:
    for candidate in candidates:
        checkpoint()
        if fits := candidate.context.fits:
            yield pb.Suggestion(
                changes=candidate.changes, text=candidate.text, fitting_node_count=fits
            )


def _name_constraint(change: pb.SuggestedChange, context: EvaluationContext, position: int) -> None:
    change.constraint_index = context.specs(hard=True)[position][0]
    change.topology_key = context.hard[position].topology_key


def max_skew(context: EvaluationContext, position: int) -> Iterator[ProposedChange]:
    """Propose the smallest maxSkew that opens a usable domain."""
    constraint, state = context.hard[position], context.states[position]
    ids = context.snapshot.domains(constraint.topology_key).ids
    nodes = context.only_blocked_by(position) & (ids >= 0)
    if not nodes.any():
        return
    least = int(state.counts[ids[nodes]].min()) + int(constraint.self_match)
    skew = least - state.global_minimum
    if skew <= constraint.max_skew:
        return
    name = constraint_label(context, position)
    yield ProposedChange(
        with_constraint(context, position, replace(constraint, max_skew=skew)),
        [pb.SuggestedChange(set_max_skew=pb.SetMaxSkew(max_skew=skew))],
        f"maxSkew {skew} instead of {constraint.max_skew} in {name}",
    )


def min_domains(context: EvaluationContext, position: int) -> Iterator[ProposedChange]:
    """Propose as minDomains the number of domains there are."""
    constraint, eligible = context.hard[position], context.states[position].eligible_domains
    if not 0 < eligible < constraint.min_domains:
        return
    name = constraint_label(context, position)
    yield ProposedChange(
        with_constraint(context, position, replace(constraint, min_domains=eligible)),
        [pb.SuggestedChange(set_min_domains=pb.SetMinDomains(min_domains=eligible))],
        f"minDomains {eligible} instead of {constraint.min_domains} in {name}",
    )


def policies(context: EvaluationContext, position: int) -> Iterator[ProposedChange]:
    """Propose the other nodeTaintsPolicy, and the other nodeAffinityPolicy."""
    gates = context.rules.gates
    if not gates.node_inclusion_policy:
        return
    constraint = context.hard[position]
    name = constraint_label(context, position)
    eligibility = constraint.eligibility
    honored = eligibility.tolerations is not None
    taints = replace(
        eligibility,
        tolerations=None if honored else context.pod.tolerations,
        comparison_operators=gates.taint_comparison_operators and not honored,
    )
    policy = IGNORE if honored else HONOR
    yield ProposedChange(
        with_constraint(context, position, replace(constraint, eligibility=taints)),
        [
            pb.SuggestedChange(
                set_node_taints_policy=pb.SetNodeTaintsPolicy(node_taints_policy=policy)
            )
        ],
        f"nodeTaintsPolicy: {policy} in {name}",
    )
    requirements = context.constraints.requirements
    if requirements.matches_all:
        return
    honored = eligibility.requirements is not None
    policy = IGNORE if honored else HONOR
    affinity = replace(eligibility, requirements=None if honored else requirements)
    yield ProposedChange(
        with_constraint(context, position, replace(constraint, eligibility=affinity)),
        [
            pb.SuggestedChange(
                set_node_affinity_policy=pb.SetNodeAffinityPolicy(node_affinity_policy=policy)
            )
        ],
        f"nodeAffinityPolicy: {policy} in {name}",
    )


def soft(context: EvaluationContext, position: int) -> Iterator[ProposedChange]:
    """Propose ScheduleAnyway; a pod may have one such constraint for a key."""
    key = context.hard[position].topology_key
    if any(spec.topology_key == key for _, spec in context.specs(hard=False)):
        return
    left = [c for other, c in enumerate(context.hard) if other != position]
    keys = tuple(dict.fromkeys(c.topology_key for c in left))
    name = constraint_label(context, position)
    yield ProposedChange(
        context.with_hard(
            [replace(c, eligibility=replace(c.eligibility, keys=keys)) for c in left]
        ),
        [
            pb.SuggestedChange(
                set_when_unsatisfiable=pb.SetWhenUnsatisfiable(when_unsatisfiable=SCHEDULE_ANYWAY)
            )
        ],
        f"whenUnsatisfiable: {SCHEDULE_ANYWAY} in {name}",
    )


def all_skews(context: EvaluationContext) -> Iterator[ProposedChange]:
    """Propose a larger maxSkew for all constraints at once: the least that opens a usable node."""
    slots = context.usable.copy()
    for constraint in context.hard:
        slots &= context.snapshot.domains(constraint.topology_key).ids >= 0
    if not slots.any():
        return
    nodes = np.flatnonzero(slots)
    excess = np.zeros(nodes.size, dtype=np.int64)
    skews = []
    for constraint, state in zip(context.hard, context.states, strict=True):
        ids = context.snapshot.domains(constraint.topology_key).ids[nodes]
        skew = state.counts[ids] + int(constraint.self_match) - state.global_minimum
        skews.append(skew)
        excess += np.maximum(skew - constraint.max_skew, 0)
    best = int(np.argmin(excess))
    changes, texts, constraints = list[pb.SuggestedChange](), list[str](), list(context.hard)
    for position, (constraint, skew) in enumerate(zip(context.hard, skews, strict=True)):
        needed = int(skew[best])
        if needed > constraint.max_skew:
            name = constraint_label(context, position)
            constraints[position] = replace(constraint, max_skew=needed)
            change = pb.SuggestedChange(set_max_skew=pb.SetMaxSkew(max_skew=needed))
            _name_constraint(change, context, position)
            changes.append(change)
            texts.append(f"maxSkew {needed} instead of {constraint.max_skew} in {name}")
    yield ProposedChange(context.with_hard(constraints), changes, " and ".join(texts))


def fewer_pods(context: EvaluationContext, position: int) -> Iterator[ProposedChange]:
    """Propose fewer pods in the domain that is closest to taking the pod."""
    constraint, state = context.hard[position], context.states[position]
    column = context.snapshot.domains(constraint.topology_key)
    nodes = context.only_blocked_by(position) & (column.ids >= 0)
    excess = state.counts + int(constraint.self_match) - state.global_minimum - constraint.max_skew
    domains = np.unique(column.ids[nodes])
    domains = domains[(excess[domains] > 0) & (excess[domains] <= state.counts[domains])]
    if constraint.counts_nothing or not domains.size:
        return
    least = int(excess[domains].min())
    domain = min(domains[excess[domains] == least].tolist(), key=lambda each: column.values[each])
    counted = context.snapshot.mask(constraint.eligibility) & (column.ids == domain)
    taken = _taken(context.snapshot.node_counts(constraint.group), counted, nodes, least)
    without = _without(context, {constraint.group: taken})
    # Which of the pods other selectors match, too, is not known: it must make no difference.
    others = _also_counted(context, constraint.group, taken)
    if others and _without(context, {constraint.group: taken, **others}).fits != without.fits:
        return
    value, key = column.values[domain], constraint.topology_key
    yield ProposedChange(
        without,
        [pb.SuggestedChange(remove_pods=pb.RemovePods(domain=value, pod_count=least))],
        f"{plural(least, 'matching pod')} fewer in {key}={value}",
    )


def _taken(counts: NDArray[np.int32], counted: Bools, first: Bools, pods: int) -> dict[int, int]:
    """The slots from which so many pods would be removed, with their numbers.

    From the nodes that the pod could go to before others, so that constraints over hostnames open,
    too; and from the fullest.
    """
    taken: dict[int, int] = {}
    slots = np.flatnonzero(counted & (counts > 0)).tolist()
    for slot in sorted(slots, key=lambda each: (not first[each], -counts[each])):
        here = min(pods, int(counts[slot]))
        taken[slot] = -here
        pods -= here
        if not pods:
            break
    return taken


def _also_counted(
    context: EvaluationContext, removed: GroupKey, taken: Mapping[int, int]
) -> dict[GroupKey, dict[int, int]]:
    """What other groups lose at most when so many pods of one are removed from these slots."""
    lost: dict[GroupKey, dict[int, int]] = {}
    for group in {c.group for c in context.hard if not c.counts_nothing} - {removed}:
        counts = context.snapshot.node_counts(group)
        here = {slot: -min(-pods, int(counts[slot])) for slot, pods in taken.items()}
        if any(here.values()):
            lost[group] = here
    return lost


def _without(
    context: EvaluationContext, removed: Mapping[GroupKey, Mapping[int, int]]
) -> EvaluationContext:
    groups = dict(context.snapshot.groups)
    for group, taken in removed.items():
        groups[group] = groups[group].changed(taken)
    return replace(context, snapshot=replace(context.snapshot, groups=groups))


def more_domains(context: EvaluationContext, position: int) -> Iterator[ProposedChange]:
    """Propose nodes like an existing one, each in a domain of its own."""
    constraint, state = context.hard[position], context.states[position]
    missing = constraint.min_domains - state.eligible_domains
    number = max(1, missing)
    like = _template(context, position)
    if like is None or number > MOST_IMAGINED:
        return
    key = constraint.topology_key
    new = _in_new_domains(context, like, key, number)
    one = context.with_overlay(Overlay(joined=new[:1]))
    more = one if number == 1 else context.with_overlay(Overlay(joined=new))
    text = f"{plural(number, 'more domain')} of {key}"
    if missing > 0 and constraint.min_domains > 1:
        text += f": minDomains {constraint.min_domains}, eligible {state.eligible_domains}"
        if number > 1 and one.fits:
            text += " (1 is enough for this pod)"
    else:
        text += ", with a node that the pod can use"
    yield ProposedChange(
        more,
        [pb.SuggestedChange(add_domains=pb.AddDomains(domain_count=number))],
        text,
    )


def _template(context: EvaluationContext, position: int) -> Node | None:
    """The node to copy: one that only this constraint refuses; else one that the pod could use."""
    for mask in (context.only_blocked_by(position), context.usable, context.snapshot.alive):
        slot = _first(context, mask)
        if slot is not None:
            return context.snapshot.nodes.node(slot)
    return None


def _in_new_domains(context: EvaluationContext, like: Node, key: str, number: int) -> list[Node]:
    values, names = context.snapshot.domains(key).number, context.snapshot.nodes
    made: list[Node] = []
    free = 0
    while len(made) < number:
        free += 1
        name = f"new-{free}"
        if name in values or names.slot(name) >= 0:
            continue
        labels = {**like.labels, HOSTNAME_LABEL: name, key: name}
        made.append(replace(like, name=name, labels=labels))
    return made


def label_nodes(context: EvaluationContext, position: int) -> Iterator[ProposedChange]:
    """Propose a label with the key on a node that lacks it and is refused for nothing else."""
    key = context.hard[position].topology_key
    column = context.snapshot.domains(key)
    lacking = context.only_blocked_by(position) & (column.ids < 0)
    slot = _first(context, lacking)
    node = None if slot is None else context.snapshot.nodes.node(slot)
    if node is None:
        return
    number = int(np.count_nonzero(lacking))
    for value in _values(context, position, node):
        other = replace(node, labels={**node.labels, key: value})
        labelled = context.with_overlay(Overlay(changed=[other]))
        if labelled.fits:
            example = "the node's name" if key == HOSTNAME_LABEL else f"for example {value}"
            yield ProposedChange(
                labelled,
                [pb.SuggestedChange(label_nodes=pb.LabelNodes(node_count=number, domain=value))],
                f"label {key} on a node that lacks it ({example}): {number} usable "
                f"node{'s do' if number != 1 else ' does'}",
            )
            return


def _values(context: EvaluationContext, position: int, node: Node) -> Iterator[str]:
    constraint, state = context.hard[position], context.states[position]
    if constraint.is_hostname:
        yield node.name
        return
    column = context.snapshot.domains(constraint.topology_key)
    present = context.snapshot.membership(constraint.eligibility, constraint.topology_key).present
    known = np.flatnonzero(present).tolist()
    known.sort(key=lambda d: (int(state.counts[d]), column.values[d]))
    yield from (column.values[d] for d in known[:WAYS_TO_LABEL])
    yield next(
        name for n in range(1, len(column.values) + 2) if (name := f"new-{n}") not in column.number
    )


def _first(context: EvaluationContext, mask: Bools) -> int | None:
    slots = _by_name(context, mask)
    return slots[0] if slots else None


def uncordon(context: EvaluationContext) -> Iterator[ProposedChange]:
    """Propose to uncordon a node that the constraints allow."""
    cordoned = context.passing & context.snapshot.nodes.cordoned & ~context.usable
    number = int(np.count_nonzero(cordoned))
    if not number:
        return
    freed: list[Node] = []
    for slot in _by_name(context, cordoned)[:MOST_IMAGINED]:
        checkpoint()
        node = context.snapshot.nodes.node(slot)
        assert node is not None, "nodes that pass are there"
        taints = tuple(taint for taint in node.taints if taint.key != CORDONED_TAINT.key)
        freed.append(replace(node, unschedulable=False, taints=taints))
    text = f"uncordon {plural(number, 'node')} that spreading leaves open"
    yield ProposedChange(
        context.with_overlay(Overlay(changed=freed)),
        [pb.SuggestedChange(uncordon_nodes=pb.UncordonNodes(node_count=number))],
        text,
    )


def tolerate(context: EvaluationContext) -> Iterator[ProposedChange]:
    """Propose a toleration of a taint on nodes that the constraints allow."""
    compares = context.rules.gates.taint_comparison_operators
    alone: Counter[Taint] = Counter()
    for slot in _by_name(context, context.passing & ~context.usable)[:MOST_LOOKED_AT]:
        checkpoint()
        node = context.snapshot.nodes.node(slot)
        assert node is not None, "nodes that pass are there"
        refusing = set(
            untolerated(node.taints, context.pod.tolerations, comparison_operators=compares)
        )
        if len(refusing) == 1:
            alone.update(refusing)
    alone.pop(CORDONED_TAINT, None)
    order = sorted(alone, key=lambda taint: (-alone[taint], taint.key, taint.value))
    for taint in order[:WAYS_TO_TOLERATE]:
        written = taint_text(taint)
        yield ProposedChange(
            _tolerating(context, taint),
            [pb.SuggestedChange(add_toleration=pb.AddToleration(taint=written))],
            f"a toleration for the taint {written} of {plural(alone[taint], 'node')}",
        )


def _tolerating(context: EvaluationContext, taint: Taint) -> EvaluationContext:
    more = Toleration(taint.key, "Equal", taint.value, taint.effect)
    tolerations = (*context.pod.tolerations, more)
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


PROPOSERS: Final = (more_domains, min_domains, policies, label_nodes, fewer_pods, max_skew, soft)
"""For each constraint, in the order of the suggestions."""

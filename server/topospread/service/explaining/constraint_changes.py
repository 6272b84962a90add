"""Changes of one hard constraint, or of all of them, that may let a pod in."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.kube.label_syntax import label_text
from topospread.kube.objects import HONOR, IGNORE, SCHEDULE_ANYWAY
from topospread.service.explaining.node_changes import label_nodes
from topospread.service.explaining.proposals import (
    ProposedChange,
    Rank,
    constraint_label,
    name_constraint,
    with_constraint,
    with_constraints,
)
from topospread.service.explaining.topology_keys import has_key, meant_on
from topospread_proto.v1 import explanation_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.service.explaining.context import EvaluationContext
    from topospread.spread.constraints import Constraint


def topology_key(context: EvaluationContext, position: int) -> Iterator[ProposedChange]:
    """Propose the key that is meant by one that no node has."""
    constraint = context.hard[position]
    meant = meant_on(context.snapshot, constraint.topology_key)
    if not meant or any(each.topology_key == meant for each in context.hard):
        return
    index = context.specs(hard=True)[position][0]
    change = pb.SuggestedChange(set_topology_key=pb.SetTopologyKey(topology_key=meant))
    text = (
        f"topologyKey {label_text(meant)} instead of {label_text(constraint.topology_key)} in "
        f"constraint {index}"
    )
    renamed = with_constraint(context, position, replace(constraint, topology_key=meant))
    if has_key(context.snapshot, meant):
        yield ProposedChange(Rank.KEY, renamed, [change], text)
        return
    for labelled in label_nodes(renamed, position):
        for each in labelled.changes:
            name_constraint(each, renamed, position)
        changes = [change, *labelled.changes]
        yield labelled._replace(changes=changes, text=f"{text}, and {labelled.text}")


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
        Rank.MAX_SKEW,
        with_constraint(context, position, replace(constraint, max_skew=skew)),
        [pb.SuggestedChange(set_max_skew=pb.SetMaxSkew(max_skew=skew))],
        f"maxSkew {skew} instead of {constraint.max_skew} in {name}",
    )


def min_domains(context: EvaluationContext, position: int) -> Iterator[ProposedChange]:
    """Propose as minDomains the number of domains there are."""
    constraint, eligible = context.hard[position], context.states[position].eligible_domains
    if not 0 < eligible < constraint.min_domains:
        return
    there = int(np.count_nonzero(context.snapshot.domains(constraint.topology_key).nodes))
    rank = Rank.MIN_DOMAINS if constraint.honors_taints else Rank.MAX_SKEW
    name = constraint_label(context, position)
    yield ProposedChange(
        Rank.OUT_OF_REACH if there < constraint.min_domains else rank,
        with_constraint(context, position, replace(constraint, min_domains=eligible)),
        [pb.SuggestedChange(set_min_domains=pb.SetMinDomains(min_domains=eligible))],
        f"minDomains {eligible} instead of {constraint.min_domains} in {name}",
    )


def policies(context: EvaluationContext, position: int) -> Iterator[ProposedChange]:
    """Propose the other nodeTaintsPolicy, and the other nodeAffinityPolicy."""
    if not context.rules.gates.node_inclusion_policy:
        return
    constraint, name = context.hard[position], constraint_label(context, position)
    for policy in _policies(context):
        value = IGNORE if policy.is_honored(constraint) else HONOR
        yield ProposedChange(
            Rank.HONOR if value == HONOR else Rank.IGNORE,
            with_constraint(context, position, policy.set_to(value, constraint, context)),
            [policy.change(value)],
            f"{policy.name}: {value} in {name}",
        )


def honor_everywhere(context: EvaluationContext) -> Iterator[ProposedChange]:
    """Propose Honor for all constraints at once that do not have it, of either policy."""
    if not context.rules.gates.node_inclusion_policy:
        return
    for policy in _policies(context):
        changes, texts, constraints = list[pb.SuggestedChange](), list[str](), list(context.hard)
        for position, constraint in enumerate(context.hard):
            if not policy.is_honored(constraint):
                constraints[position] = policy.set_to(HONOR, constraint, context)
                changes.append(policy.change(HONOR))
                name_constraint(changes[-1], context, position)
                texts.append(constraint_label(context, position))
        if len(changes) > 1:
            text = f"{policy.name}: {HONOR} in {' and '.join(texts)}"
            yield ProposedChange(Rank.HONOR, context.with_hard(constraints), changes, text)


class _Policy(NamedTuple):
    """One of the two policies on which nodes count.

    Attributes:
        name: of the field.
        is_honored: whether a constraint has Honor.
        set_to: the constraint with Honor or Ignore.
        change: the message that says so.
    """

    name: str
    is_honored: Callable[[Constraint], bool]
    set_to: Callable[[str, Constraint, EvaluationContext], Constraint]
    change: Callable[[str], pb.SuggestedChange]


def _policies(context: EvaluationContext) -> Iterator[_Policy]:
    """Those that may make a difference to the pod."""
    yield _TAINTS
    if not context.constraints.requirements.matches_all:
        yield _AFFINITY


def _with_taints(policy: str, constraint: Constraint, context: EvaluationContext) -> Constraint:
    compares = context.rules.gates.taint_comparison_operators
    eligibility = replace(
        constraint.eligibility,
        tolerations=context.pod.tolerations if policy == HONOR else None,
        comparison_operators=compares and policy == HONOR,
    )
    return replace(constraint, eligibility=eligibility)


def _with_affinity(policy: str, constraint: Constraint, context: EvaluationContext) -> Constraint:
    requirements = context.constraints.requirements if policy == HONOR else None
    return replace(
        constraint, eligibility=replace(constraint.eligibility, requirements=requirements)
    )


_TAINTS: Final = _Policy(
    "nodeTaintsPolicy",
    lambda constraint: constraint.honors_taints,
    _with_taints,
    lambda policy: pb.SuggestedChange(
        set_node_taints_policy=pb.SetNodeTaintsPolicy(node_taints_policy=policy)
    ),
)
_AFFINITY: Final = _Policy(
    "nodeAffinityPolicy",
    lambda constraint: constraint.eligibility.requirements is not None,
    _with_affinity,
    lambda policy: pb.SuggestedChange(
        set_node_affinity_policy=pb.SetNodeAffinityPolicy(node_affinity_policy=policy)
    ),
)


def soft(context: EvaluationContext, position: int) -> Iterator[ProposedChange]:
    """Propose ScheduleAnyway; a pod may have one such constraint for a key."""
    key = context.hard[position].topology_key
    if any(spec.topology_key == key for _, spec in context.specs(hard=False)):
        return
    left = [c for other, c in enumerate(context.hard) if other != position]
    name = constraint_label(context, position)
    yield ProposedChange(
        Rank.SOFT,
        with_constraints(context, left),
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
            changes.append(pb.SuggestedChange(set_max_skew=pb.SetMaxSkew(max_skew=needed)))
            name_constraint(changes[-1], context, position)
            texts.append(f"maxSkew {needed} instead of {constraint.max_skew} in {name}")
    yield ProposedChange(
        Rank.MAX_SKEW, context.with_hard(constraints), changes, " and ".join(texts)
    )

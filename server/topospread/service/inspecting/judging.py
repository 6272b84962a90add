"""The state of a constraint, by the counts that Filter judges by.

Soft constraints are counted as Filter would count them if they were hard, so that their skew means
the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import is_not
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.index.objects import NAMESPACE
from topospread.index.snapshot import PODS
from topospread.kube.label_syntax import label_text
from topospread.kube.objects import DO_NOT_SCHEDULE, ZONE_LABEL
from topospread.service.explaining.cause import taints_text
from topospread.service.explaining.constraint_reports import (
    domains_text,
    few_domains_text,
    minimum_rule,
    unusable_text,
)
from topospread.service.explaining.findings import constraint_findings, zone_findings
from topospread.service.explaining.topology_keys import meant_on
from topospread.service.fit.profile import gaps_of, may_be_refused, suited
from topospread.service.fit.question import Fit
from topospread.service.inspecting.statuses import DomainSpread
from topospread.spread.filtering import first_rejecting, pre_filter
from topospread.spread.settings import is_bound
from topospread.wording import counted
from topospread_proto.v1 import explanation_pb2 as pb
from topospread_proto.v1 import inspector_service_pb2 as inspector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.service.explaining.context import EvaluationContext
    from topospread.service.inspecting.inventory import PodTemplate, RowPods
    from topospread.service.inspecting.statuses import OwnedConstraint, State
    from topospread.spread.constraints import Constraint
    from topospread.spread.filtering import DomainState
    from topospread.spread.topology import Bools

INEFFECTIVE: Final = frozenset(
    {
        pb.FINDING_CODE_INVALID_CONSTRAINT,
        pb.FINDING_CODE_SELF_MISMATCH,
        pb.FINDING_CODE_NIL_SELECTOR,
        pb.FINDING_CODE_EMPTY_SELECTOR,
        pb.FINDING_CODE_KEY_ON_NO_NODE,
    }
)
"""Findings that leave a constraint without the effect that it names."""

_FALSE: Final = np.False_

TRIED: Final = 16
"""Nodes that are looked at one by one before all are."""


class CountedConstraint(NamedTuple):
    """A constraint counted at a snapshot: as Filter sees a hard one, and what follows from that."""

    state: DomainState | None
    spread: DomainSpread


def count(key: OwnedConstraint, snapshot: Snapshot) -> CountedConstraint:
    """Count the pods of a constraint by domain.

    Args:
        key: the constraint.
        snapshot: the state; it counts the constraint's group.
    """
    constraint = key.constraint
    hard = constraint.when_unsatisfiable == DO_NOT_SCHEDULE
    (state,) = pre_filter((constraint,), snapshot)
    membership = snapshot.membership(constraint.eligibility, constraint.topology_key)
    lowest, because = minimum_rule(constraint, membership, state.counts, hard=hard)
    spread = DomainSpread(
        domains=snapshot.domains(constraint.topology_key),
        membership=membership,
        counts=state.counts,
        # Without memory of its own: there are as many domains as nodes where it is by hostname.
        rejected=state.rejected if hard else np.broadcast_to(_FALSE, state.rejected.shape),
        lowest=lowest,
        highest=int(state.counts[membership.present].max(initial=0)),
        minimum=lowest if because is pb.MINIMUM_REASON_LOWEST else 0,
        minimum_because=because,
    )
    return CountedConstraint(state if hard else None, spread)


@dataclass(frozen=True, slots=True)
class TemplateJudgement:
    """Whether a node takes the next replica of a template.

    Attributes:
        gaps: what was not looked at.
        usable: nodes that the scheduler's other filters leave to it; −1 where one takes it, and
            they were not counted.
        at_most: they may be fewer for what was not looked at.
        blocking: the constraints without which a node could take it, where none does.
        message: kube-scheduler's, where no node takes it.
    """

    gaps: tuple[str, ...]
    usable: int = -1
    at_most: bool = False
    blocking: frozenset[OwnedConstraint] = frozenset()
    message: str = ""


def judge_template(
    template: PodTemplate,
    counted: Mapping[OwnedConstraint, CountedConstraint],
    snapshot: Snapshot,
    *,
    waits: bool,
) -> TemplateJudgement:
    """Judge the next replica of a template.

    Args:
        template: which pods; the node that was seen to take one is noted there.
        counted: all of its constraints.
        snapshot: the state.
        waits: a pod of it waits, so that it is of interest also without hard constraints.
    """
    if template.demand.gated:
        return TemplateJudgement(())
    context = template.context(snapshot)
    fits = TemplateJudgement(_gaps(context, template))
    if not (template.hard or waits) or template.of_other_scheduler:
        return fits
    states = [state for row in template.hard if (state := counted[row].state) is not None]
    if _takes(template, states, snapshot, template.witness):
        return fits
    for slot in _candidates(template, states, snapshot):
        if _takes(template, states, snapshot, slot):
            template.witness = slot
            return fits
    if context.fits:
        template.witness = int(np.flatnonzero(context.fitting)[0])
        return fits
    template.witness = -1
    blocking = [row for i, row in enumerate(template.hard) if _blocks(context, i)]
    return TemplateJudgement(
        tuple(context.not_looked_at),
        int(np.count_nonzero(context.usable)),
        is_bound(fits.gaps),
        frozenset(blocking),
        context.message,
    )


def _gaps(context: EvaluationContext, template: PodTemplate) -> tuple[str, ...]:
    """What is not looked at; worked out once for what it follows from beside the template."""
    snapshot = context.snapshot
    objects, unknown = snapshot.objects, snapshot.objects.unknown(NAMESPACE)
    # Terms of pods that run matter where they may be about namespaces that are not known.
    seen = objects, snapshot.nominated, snapshot.holdings if unknown else None
    if template.gaps is None or any(map(is_not, template.gaps[0], seen)):
        template.gaps = seen, tuple(gaps_of(context.asked, Fit.ALL))
    return template.gaps[1]


def _blocks(context: EvaluationContext, position: int) -> bool:
    """Whether a hard constraint alone refuses all usable nodes, or all that the others leave."""
    usable, allowed = context.usable, context.allowing[position]
    if not usable.any():
        return False
    alone = not (usable & allowed).any()
    return alone or bool((context.only_blocked_by(position) & ~allowed).any())


def _takes(
    template: PodTemplate, states: Sequence[DomainState], snapshot: Snapshot, slot: int
) -> bool:
    """Whether one node is sure to take the next replica, as context() says of it, too."""
    nodes = snapshot.nodes
    if not 0 <= slot < nodes.capacity or not nodes.alive[slot]:
        return False
    if first_rejecting(states, snapshot, slot) >= 0 or not _suits(template, snapshot)[slot]:
        return False
    if may_be_refused(template.context(snapshot).asked, slot):
        return False
    taken = snapshot.usage.on(slot)
    for name, wanted in ((PODS, 1), *template.demand.requests):
        left = int(nodes.allocatable(name)[slot]) - taken.get(name, 0)
        if wanted and left < wanted:
            return False
    return True


def _suits(template: PodTemplate, snapshot: Snapshot) -> Bools:
    """[slots] nodes that suit, other pods apart; worked out once for a node table and volumes."""
    nodes, objects = snapshot.nodes, snapshot.objects if template.demand.volumes else None
    if template.suits is not None and template.suits[:2] == (nodes, objects):
        return template.suits[2]
    mask = suited(template.context(snapshot).asked, Fit.NODE).nodes
    template.suits = (nodes, objects, mask)
    return mask


def _candidates(
    template: PodTemplate, states: Sequence[DomainState], snapshot: Snapshot
) -> Sequence[int]:
    """Some nodes that only their resources could refuse."""
    open_nodes = _suits(template, snapshot)
    for state in states:
        domains = snapshot.domains(state.constraint.topology_key)
        open_nodes = open_nodes & domains.spread(~state.rejected)
    slots = np.flatnonzero(open_nodes)
    step = max(1, slots.size // TRIED)
    found: list[int] = slots[::step][:TRIED].tolist()
    return found


class Verdict(NamedTuple):
    """The state of a constraint, why, and how many waiting pods it blocks."""

    state: State
    message: str
    blocked: int


def judge(
    key: OwnedConstraint,
    pods: RowPods,
    spread: DomainSpread,
    findings: Sequence[pb.Finding],
    judgements: Mapping[PodTemplate, TemplateJudgement],
    snapshot: Snapshot,
) -> Verdict:
    """The worst state that holds."""
    tried = [each for each in pods.waiting if not each.demand.gated]
    blocking = [each for each in tried if key in judgements[each].blocking]
    blocked = sum(pods.waiting[each] for each in blocking)
    useless = next((each for each in findings if each.code in INEFFECTIVE), None)
    if blocked or (blocking and not pods.pending and len(blocking) == len(tried)):
        usable = max(judgements[each].usable for each in blocking)
        at_most = usable > 0 and any(judgements[each].at_most for each in blocking)
        nodes = f"{'at most ' * at_most}{counted(usable, 'node')}"
        why = _why_blocked(key, spread, nodes, snapshot)
        why += _why_unusable(key, spread, blocking[0], snapshot)
        if useless is not None and useless.code == pb.FINDING_CODE_INVALID_CONSTRAINT:
            why = useless.text
        return Verdict(inspector.SPREAD_STATE_BLOCKED, why, blocked)
    if useless is not None:
        return Verdict(inspector.SPREAD_STATE_INEFFECTIVE, useless.text, 0)
    if spread.skew > key.constraint.max_skew:
        why = _why_violated(key, spread, snapshot) + _why_unusable(key, spread, pods.next, snapshot)
        return Verdict(inspector.SPREAD_STATE_VIOLATED, why, 0)
    return Verdict(inspector.SPREAD_STATE_SATISFIED, "", 0)


def waiting_reason(pods: RowPods, judgements: Mapping[PodTemplate, TemplateJudgement]) -> str:
    """Why pods wait, for people: of most of them; empty where none does."""
    held = f"{counted(pods.gated, 'pod')} held back by scheduling gates" if pods.gated else ""
    if not pods.pending:
        return held
    judged = judgements[pods.next]
    fits = "a node would take the next replica" + ", as far as is looked at" * is_bound(judged.gaps)
    message = judged.message or fits
    return f"{message}; {held}" if held else message


def _why_unusable(
    key: OwnedConstraint, spread: DomainSpread, template: PodTemplate, snapshot: Snapshot
) -> str:
    """Why no node of the domains with the minimum takes a replica, as explanations say it.

    Empty where a node of them takes one.
    """
    if spread.minimum_because is not pb.MINIMUM_REASON_LOWEST:
        return ""
    holders = spread.membership.present & (spread.counts == spread.lowest)
    nodes = snapshot.alive & spread.domains.spread(holders)
    context = template.context(snapshot)
    text = unusable_text(context, nodes)
    if not text:
        return ""
    taints = taints_text(context, nodes)
    honor = _HONOR if _are_left_out(key.constraint, template, holders, snapshot) else ""
    return f", {text}{f' ({taints})' * bool(taints)}{honor}"


_HONOR: Final = ", which nodeTaintsPolicy: Honor would leave out"


def _are_left_out(
    constraint: Constraint, template: PodTemplate, holders: Bools, snapshot: Snapshot
) -> bool:
    """Whether taints, were they honoured, left out some domains, and enough others remained."""
    eligibility = constraint.eligibility
    if eligibility.tolerations is not None:
        return False
    honoured = replace(
        eligibility,
        tolerations=template.pod.tolerations,
        comparison_operators=template.rules.gates.taint_comparison_operators,
    )
    left = snapshot.membership(honoured, constraint.topology_key)
    least = max(1, constraint.min_domains)
    return left.size >= least and not (left.present & holders).any()


def _why_blocked(key: OwnedConstraint, spread: DomainSpread, nodes: str, snapshot: Snapshot) -> str:
    allowed, eligible = spread.allowed_domain_count, spread.membership.size
    key_text = label_text(key.constraint.topology_key)
    lacking = f", and no node without the label {key_text}" if 0 < eligible == allowed else ""
    return (
        f"{nodes} could take the next replica, but none where its constraints "
        f"allow it: this one allows {allowed} of {counted(eligible, 'eligible domain')}{lacking}; "
        f"{_minimum(key, spread, snapshot)}"
    )


def _why_violated(key: OwnedConstraint, spread: DomainSpread, snapshot: Snapshot) -> str:
    return (
        f"skew {spread.skew} is above maxSkew {key.constraint.max_skew}: "
        f"{counted(spread.highest, 'pod')} in {_value_with(spread, spread.highest)}; "
        f"{_minimum(key, spread, snapshot)}"
    )


def _minimum(key: OwnedConstraint, spread: DomainSpread, snapshot: Snapshot) -> str:
    if spread.minimum_because is pb.MINIMUM_REASON_NO_DOMAINS:
        shown = label_text(key.constraint.topology_key)
        meant = meant_on(snapshot, key.constraint.topology_key)
        hint = f" ({label_text(meant)} is meant?)" if meant else ""
        return f"no node with {shown} counts{hint}"
    if spread.minimum_because is pb.MINIMUM_REASON_FEW_DOMAINS:
        few = few_domains_text(key.constraint, spread.membership.size)
        return f"the minimum is 0, because {few}"
    return f"the minimum {spread.minimum} is that of {_value_with(spread, spread.lowest)}"


def _value_with(spread: DomainSpread, pods: int) -> str:
    """A domain with so many pods, and how many others have as many."""
    holders = np.flatnonzero(spread.membership.present & (spread.counts == pods))
    return domains_text(spread.domains, holders)


def findings_of_row(
    key: OwnedConstraint, template: PodTemplate, snapshot: Snapshot
) -> tuple[pb.Finding, ...]:
    """What is wrong with a constraint, as an explanation of one of its pods says.

    No API server stores a maxSkew below 1 or an empty key, so an explanation need not say so; a
    state may have them.
    """
    context = template.context(snapshot)
    hard = key.constraint.when_unsatisfiable == DO_NOT_SCHEDULE
    spec = dict(context.specs(hard=hard))[key.index]
    found = [*constraint_findings(context, key.constraint, spec)]
    if spec.max_skew < 1:
        text = f"maxSkew {spec.max_skew} must be greater than zero: the API server refuses it"
        found.insert(0, (pb.FINDING_CODE_INVALID_CONSTRAINT, text))
    if not spec.topology_key:
        text = "topologyKey is empty: the API server refuses it"
        found.insert(0, (pb.FINDING_CODE_INVALID_CONSTRAINT, text))
    if key.constraint.topology_key == ZONE_LABEL:
        found += zone_findings(context)
    return tuple(
        pb.Finding(code=code, constraint_index=key.index, text=text) for code, text in found
    )

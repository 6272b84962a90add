"""Domains that would let a pod in, each with a node like one that is there."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from topospread.index.overlay import Overlay
from topospread.kube.label_syntax import label_text
from topospread.kube.objects import HOSTNAME_LABEL
from topospread.service.explaining.copied_nodes import copied, free_names
from topospread.service.explaining.new_nodes import WAYS_TO_ADD, template_of
from topospread.service.explaining.proposals import ProposedChange, Rank
from topospread.service.explaining.topology_keys import has_key
from topospread.wording import counted
from topospread_proto.v1 import explanation_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.service.explaining.context import EvaluationContext

MOST_IMAGINED: Final = 1000
"""Nodes that are imagined at once; minDomains far beyond what there is get no such advice."""


def add_domains(context: EvaluationContext, position: int) -> Iterator[ProposedChange]:
    """Propose nodes like an existing one, each in a domain of its own."""
    constraint, state = context.hard[position], context.states[position]
    missing = constraint.min_domains - state.eligible_domains
    number, key = max(1, missing), constraint.topology_key
    if number > MOST_IMAGINED or not has_key(context.snapshot, key):
        return
    if constraint.is_hostname and number == 1:
        return  # `add_nodes` proposes it
    like = template_of(context, context.only_blocked_by(position), context.usable)
    if like is None:
        return
    snapshot = context.snapshot
    names = islice(free_names(snapshot, key), number)
    new = [copied(snapshot, like, name, {key: name}) for name in names]
    one = context.with_overlay(Overlay(joined=new[:1]))
    more = one if number == 1 else context.with_overlay(Overlay(joined=new))
    text = f"{counted(number, 'more domain')} of {label_text(key)}"
    if constraint.is_hostname:
        text = counted(number, "more node")
    if missing > 0 and constraint.min_domains > 1:
        text += f": minDomains {constraint.min_domains}, eligible {state.eligible_domains}"
        if number > 1 and one.fits:
            text += " (1 is enough for this pod)"
    else:
        text += ", with a node that the pod can use"
    yield ProposedChange(
        Rank.ADD_NODES if constraint.is_hostname else Rank.ADD_DOMAINS,
        more,
        [pb.SuggestedChange(add_domains=pb.AddDomains(domain_count=number))],
        text,
    )


def add_domains_for_terms(context: EvaluationContext) -> Iterator[ProposedChange]:
    """Propose a new domain of what the pod's own anti-affinity keeps apart."""
    spread_over = {HOSTNAME_LABEL, *context.constraints.hard.keys}
    keys = dict.fromkeys(term.topology_key for term in context.demand.anti_affinity)
    apart = [key for key in keys if key not in spread_over and has_key(context.snapshot, key)]
    like = template_of(context) if apart else None
    if like is None:
        return
    for key in apart[:WAYS_TO_ADD]:
        name = next(free_names(context.snapshot, key))
        node = copied(context.snapshot, like, name, {key: name})
        yield ProposedChange(
            Rank.ADD_DOMAINS,
            context.with_overlay(Overlay(joined=[node])),
            [pb.SuggestedChange(topology_key=key, add_domains=pb.AddDomains(domain_count=1))],
            f"1 more domain of {label_text(key)}, with a node that the pod can use",
        )

"""Advice on the state: fewer pods, more domains, labels, cordons, taints."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.index.supposed import Supposition
from topospread.kube.objects import HOSTNAME_LABEL, Node, Taint, Toleration
from topospread.kube.taints import NO_EXECUTE, NO_SCHEDULE, tolerated
from topospread.service.explaining.candidates import Candidate, called, plural
from topospread.service.explaining.findings import Change, ChangeKind
from topospread.service.fit import CORDONED_TAINT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from topospread.service.explaining.case import Case
    from topospread.spread.topology import Bools

MOST_IMAGINED: Final = 1000
"""Nodes that are imagined at once; minDomains far beyond what there is get no such advice."""

WAYS_TO_LABEL: Final = 4
"""Values that a missing label is tried with."""

WAYS_TO_TOLERATE: Final = 2
"""Taints that are tried, one at a time."""

MOST_LOOKED_AT: Final = 5000
"""Nodes whose taints are looked at."""


def fewer_pods(case: Case, position: int) -> Iterator[Candidate]:
    """Fewer pods in the domain that is closest to taking the pod."""
    constraint, state = case.hard[position], case.states[position]
    column = case.snapshot.domains(constraint.topology_key)
    nodes = case.but_for(position) & (column.ids >= 0)
    excess = state.counts + int(constraint.self_match) - state.global_minimum - constraint.max_skew
    domains = np.unique(column.ids[nodes])
    domains = domains[(excess[domains] > 0) & (excess[domains] <= state.counts[domains])]
    if constraint.group.counts_nothing or not domains.size:
        return
    least = int(excess[domains].min())
    domain = min(domains[excess[domains] == least].tolist(), key=lambda each: column.values[each])
    counted = case.snapshot.mask(constraint.eligibility) & (column.ids == domain)
    taken = _taken(case.snapshot.node_counts(constraint.group), counted, nodes, least)
    groups = dict(case.snapshot.groups)
    groups[constraint.group] = groups[constraint.group].changed(taken)
    value, key = column.values[domain], constraint.topology_key
    index, _ = called(case, position)
    yield Candidate(
        replace(case, snapshot=replace(case.snapshot, groups=groups)),
        (Change(ChangeKind.FEWER_PODS, index, key, domain=value, number=least),),
        f"{plural(least, 'matching pod')} fewer in {key}={value}",
    )


def _taken(counts: NDArray[np.int32], counted: Bools, first: Bools, pods: int) -> dict[int, int]:
    """So many pods less, by slot.

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


def more_domains(case: Case, position: int) -> Iterator[Candidate]:
    """Nodes like one there is, each in a domain of its own."""
    constraint, state = case.hard[position], case.states[position]
    missing = constraint.min_domains - state.eligible_domains
    number = max(1, missing)
    like = _template(case, position)
    if like is None or number > MOST_IMAGINED:
        return
    key = constraint.topology_key
    new = _in_new_domains(case, like, key, number)
    one = case.supposing(Supposition(joined=new[:1]))
    more = one if number == 1 else case.supposing(Supposition(joined=new))
    index, _ = called(case, position)
    text = f"{plural(number, 'more domain')} of {key}"
    if missing > 0 and constraint.min_domains > 1:
        text += f": minDomains {constraint.min_domains}, eligible {state.eligible_domains}"
        if number > 1 and one.fits:
            text += " (1 is enough for this pod)"
    else:
        text += ", with a node that the pod can use"
    yield Candidate(more, (Change(ChangeKind.MORE_DOMAINS, index, key, number=number),), text)


def _template(case: Case, position: int) -> Node | None:
    """A node that nothing else speaks against; else one that the pod could use."""
    for mask in (case.but_for(position), case.usable, case.snapshot.alive):
        slot = _first(case, mask)
        if slot is not None:
            return case.snapshot.nodes.node(slot)
    return None


def _in_new_domains(case: Case, like: Node, key: str, number: int) -> list[Node]:
    values, names = case.snapshot.domains(key).number, case.snapshot.nodes
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


def label_nodes(case: Case, position: int) -> Iterator[Candidate]:
    """The key on a node that lacks it and that nothing else speaks against."""
    key = case.hard[position].topology_key
    column = case.snapshot.domains(key)
    lacking = case.but_for(position) & (column.ids < 0)
    slot = _first(case, lacking)
    node = None if slot is None else case.snapshot.nodes.node(slot)
    if node is None:
        return
    number = int(np.count_nonzero(lacking))
    index, _ = called(case, position)
    for value in _values(case, position, node):
        other = replace(node, labels={**node.labels, key: value})
        labelled = case.supposing(Supposition(changed=[other]))
        if labelled.fits:
            example = "the node's name" if key == HOSTNAME_LABEL else f"for example {value}"
            yield Candidate(
                labelled,
                (Change(ChangeKind.LABEL_NODES, index, key, domain=value, number=number),),
                f"label {key} on a node that lacks it ({example}): {number} usable "
                f"node{'s do' if number != 1 else ' does'}",
            )
            return


def _values(case: Case, position: int, node: Node) -> Iterator[str]:
    constraint, state = case.hard[position], case.states[position]
    if constraint.is_hostname:
        yield node.name
        return
    column = case.snapshot.domains(constraint.topology_key)
    present = case.snapshot.membership(constraint.eligibility, constraint.topology_key).present
    known = np.flatnonzero(present).tolist()
    known.sort(key=lambda d: (int(state.counts[d]), column.values[d]))
    yield from (column.values[d] for d in known[:WAYS_TO_LABEL])
    yield next(
        name for n in range(1, len(column.values) + 2) if (name := f"new-{n}") not in column.number
    )


def _first(case: Case, mask: Bools) -> int | None:
    """The first node of a mask by name."""
    slots = _by_name(case, mask)
    return slots[0] if slots else None


def uncordon(case: Case) -> Iterator[Candidate]:
    """Cordoned nodes that the constraints leave open."""
    cordoned = case.passing & case.snapshot.nodes.cordoned & ~case.usable
    number = int(np.count_nonzero(cordoned))
    if not number:
        return
    freed: list[Node] = []
    for slot in _by_name(case, cordoned)[:MOST_IMAGINED]:
        checkpoint()
        node = case.snapshot.nodes.node(slot)
        assert node is not None, "nodes that pass are there"
        taints = tuple(taint for taint in node.taints if taint.key != CORDONED_TAINT.key)
        freed.append(replace(node, unschedulable=False, taints=taints))
    text = f"uncordon {plural(number, 'node')} that spreading leaves open"
    yield Candidate(
        case.supposing(Supposition(changed=freed)),
        (Change(ChangeKind.UNCORDON, number=number),),
        text,
    )


def tolerate(case: Case) -> Iterator[Candidate]:
    """A toleration for what keeps the pod from nodes that the constraints leave open."""
    compares = case.rules.gates.taint_comparison_operators
    alone: Counter[Taint] = Counter()
    for slot in _by_name(case, case.passing & ~case.usable)[:MOST_LOOKED_AT]:
        checkpoint()
        node = case.snapshot.nodes.node(slot)
        assert node is not None, "nodes that pass are there"
        refusing = {
            taint
            for taint in node.taints
            if taint.effect in (NO_SCHEDULE, NO_EXECUTE)
            and not tolerated((taint,), case.pod.tolerations, comparison_operators=compares)
        }
        if len(refusing) == 1:
            alone.update(refusing)
    alone.pop(CORDONED_TAINT, None)
    order = sorted(alone, key=lambda taint: (-alone[taint], taint.key, taint.value))
    for taint in order[:WAYS_TO_TOLERATE]:
        written = f"{taint.key}{f'={taint.value}' * bool(taint.value)}:{taint.effect}"
        yield Candidate(
            _tolerating(case, taint),
            (Change(ChangeKind.TOLERATE, number=alone[taint], value=written),),
            f"a toleration for the taint {written} of {plural(alone[taint], 'node')}",
        )


def _tolerating(case: Case, taint: Taint) -> Case:
    more = Toleration(taint.key, "Equal", taint.value, taint.effect)
    tolerations = (*case.pod.tolerations, more)
    constraints = [
        constraint
        if constraint.eligibility.tolerations is None
        else replace(
            constraint, eligibility=replace(constraint.eligibility, tolerations=tolerations)
        )
        for constraint in case.hard
    ]
    return replace(case.with_hard(constraints), pod=replace(case.pod, tolerations=tolerations))


def _by_name(case: Case, mask: Bools) -> list[int]:
    order = case.snapshot.nodes.order
    slots: list[int] = order[mask[order]].tolist()
    return slots

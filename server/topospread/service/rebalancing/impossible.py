"""Why constraints cannot be mended: the bound that prevents it, domains that take no pod."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.kube.demands import Demand
from topospread.kube.taints import taint_text, untolerated
from topospread.service.decisions.node_fit import CORDONED_TAINT, Fit, suited
from topospread.service.rebalancing.integer_program import NoTimeLeft, solve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from topospread.index.snapshot import Snapshot
    from topospread.service.decisions.node_fit import Suited
    from topospread.service.rebalancing.integer_program import IntegerProgram
    from topospread.service.rebalancing.inventory import (
        ConstraintComponent,
        ShapedPods,
        SkewLimit,
    )
    from topospread.service.rebalancing.model import RebalanceModel
    from topospread.spread.topology import Bools

NO_NODE: Final = "the domains that lack pods have no node that its pods may go to"
NO_CAPACITY: Final = "the nodes that its pods may go to have no room for them"

_NAMED: Final = 3
"""Domains that a reason names; others are counted."""

_LOOKED_AT: Final = 5000
"""Nodes of a domain whose taints are looked at."""


def why_impossible(
    component: ConstraintComponent,
    model: RebalanceModel,
    snapshot: Snapshot,
    left: Mapping[int, int] | None,
    seconds: float,
) -> str:
    """The bound that prevents a solution: the first without which there is one."""
    if left is not None and _solvable(model.program(), seconds):
        return "too few evictions are allowed on a node"
    if _solvable(model.program(everybody=True), seconds):
        stays = sum(bool(movable.stays) for movable in model.movable_pods)
        return f"{stays} of its {len(model.movable_pods)} pods may not be evicted"
    if _solvable(model.program(everybody=True, anywhere=True), seconds):
        return f"{NO_NODE}{closed_domains(component, model, snapshot, Fit.NODE)}"
    for limit in component.limits:
        size = snapshot.membership(limit.eligibility, limit.topology_key).size
        if size >= limit.min_domains:
            continue
        counts = snapshot.domain_counts(limit.group, limit.eligibility, limit.topology_key)
        pods = int(counts.sum())
        if pods > size * limit.max_skew:
            return (
                f"{limit.topology_key} has {size} eligible domains and minDomains is "
                f"{limit.min_domains}, so each may hold {limit.max_skew} of its {pods} pods: "
                f"{limit.min_domains - size} more domains are needed, or fewer pods"
            )
    if len(component.limits) > 1:
        return "its constraints contradict each other, wherever its pods are"
    return "no way to place its pods fulfils it"


def _solvable(program: IntegerProgram, seconds: float) -> bool:
    try:
        return solve(program, seconds) is not None
    except NoTimeLeft:
        return False


class _PodType(NamedTuple):
    """Pods that may go to the same nodes.

    Attributes:
        nodes: [slots] those nodes.
    """

    pod_class: ShapedPods
    suits: Suited
    nodes: Bools


def closed_domains(
    component: ConstraintComponent, model: RebalanceModel, snapshot: Snapshot, fit: Fit
) -> str:
    """The domains that lack pods and have no node for them, and why; empty without any.

    A domain lacks pods if it is further behind the fullest one than maxSkew allows.

    Args:
        component: the constraints.
        model: made of them.
        snapshot: the state.
        fit: what is asked of the nodes.
    """
    types = list(_types(model, snapshot, fit))
    named: list[str] = []
    unnamed = 0
    for limit in component.limits:
        checkpoint()
        matching = [
            each for each in types if limit.group.selector.matches(each.pod_class.shape.pod.labels)
        ]
        closed = _closed(limit, matching, snapshot)
        here = closed[: _NAMED - len(named)]
        unnamed += len(closed) - len(here)
        named += [_described(limit, domain, matching[0], snapshot) for domain in here]
    if not named:
        return ""
    more = f"; and {unnamed} more" if unnamed else ""
    return f": {'; '.join(named)}{more}"


def _types(model: RebalanceModel, snapshot: Snapshot, fit: Fit) -> Iterator[_PodType]:
    """Each type of pods once, with the nodes that it may go to."""
    first = {pod.type: pod.pod_class for pod in reversed(model.movable_pods)}
    for number, pod_class in sorted(first.items()):
        checkpoint()
        constraints = pod_class.effective.constraints
        suits = suited(
            snapshot,
            pod_class.shape.pod,
            constraints.requirements,
            Demand(model.requests[number]),
            fit,
            comparison_operators=pod_class.rules.gates.taint_comparison_operators,
        )
        nodes = suits.nodes & snapshot.alive
        for key in constraints.hard.keys:
            nodes = nodes & (snapshot.domains(key).ids >= 0)
        yield _PodType(pod_class, suits, nodes)


def _closed(limit: SkewLimit, types: Sequence[_PodType], snapshot: Snapshot) -> Sequence[int]:
    """The domains that lack pods and take none of any type, by value."""
    if not types:
        return ()
    domains = snapshot.domains(limit.topology_key)
    counts = snapshot.domain_counts(limit.group, limit.eligibility, limit.topology_key)
    present = snapshot.membership(limit.eligibility, limit.topology_key).present
    lacking = present & (counts < counts.max(initial=0) - limit.max_skew)
    for each in types:
        ids = domains.ids[each.nodes]
        lacking[ids[ids >= 0]] = False
    closed: list[int] = np.flatnonzero(lacking).tolist()
    return sorted(closed, key=lambda domain: domains.values[domain])


def _described(limit: SkewLimit, domain: int, pods: _PodType, snapshot: Snapshot) -> str:
    """A domain with the reasons of its nodes in kube-scheduler's words, and the usual taint."""
    domains = snapshot.domains(limit.topology_key)
    slots = np.flatnonzero(snapshot.alive & (domains.ids == domain))
    reasons, _ = pods.suits.reasons(slots)
    texts = [f"{nodes} {reason}" for reason, nodes in reasons.most_common()]
    for key in pods.pod_class.effective.constraints.hard.keys:
        lacking = int(np.count_nonzero(snapshot.domains(key).ids[slots] < 0))
        if lacking:
            texts.append(f"{lacking} without {key}")
    taint = _usual_taint(pods.pod_class, slots, snapshot)
    why = ", ".join(texts) + (f", most often {taint}" if taint else "")
    nodes = f"{slots.size} node{'s' * (slots.size != 1)}"
    value = domains.values[domain] or '""'
    return f"{limit.topology_key}={value} ({nodes}: {why})"


def _usual_taint(pod_class: ShapedPods, slots: NDArray[np.intp], snapshot: Snapshot) -> str:
    """The taint that keeps the pods away from most of these nodes; empty without one."""
    found: Counter[str] = Counter()
    for slot in slots[:_LOOKED_AT].tolist():
        node = snapshot.nodes.node(slot)
        if node is not None and node.taints:
            found.update(
                taint_text(taint)
                for taint in untolerated(
                    node.taints,
                    pod_class.shape.pod.tolerations,
                    comparison_operators=pod_class.rules.gates.taint_comparison_operators,
                )
                if taint != CORDONED_TAINT
            )
    return min(found, key=lambda text: (-found[text], text)) if found else ""

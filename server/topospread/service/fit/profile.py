"""The filters of the default profile, in its order, asked about one pod."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.service.fit import (
    dynamic_resources,
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    nominated,
    of_pod,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from topospread.service.fit.nominated import nominated_pods, spread_refusals
from topospread.service.fit.question import (
    SPREADING,
    Fit,
    FitQuestion,
    Refusals,
    Rule,
)
from topospread.spread.settings import EXACT_FIT, NEWEST, OTHER_FIT
from topospread.spread.verdicts import Code, Status, fit_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from topospread.service.fit.nominated import Nominated
    from topospread.service.fit.question import PreFiltered
    from topospread.spread.topology import Bools


def _nothing(asked: FitQuestion) -> None:
    del asked


def _no_gaps(asked: FitQuestion) -> Iterable[str]:
    del asked
    return ()


def _always(asked: FitQuestion) -> bool:
    del asked
    return True


def _has_volumes(asked: FitQuestion) -> bool:
    return bool(asked.demand.volumes)


class Plugin(NamedTuple):
    """A filter of kube-scheduler.

    Attributes:
        name: upstream's.
        looks_at: for people, in what an answer says was not looked at.
        refusals, pre_filter, gaps: see the package.
        of_other_pods: other pods have a part in what it says.
        concerns: whether it may refuse a node for the pod at all.
        beside: what it refuses of nodes with nominated pods, as if these ran there; None: what it
            refuses where all of them run, as it looks at pods of the node alone.
    """

    name: str
    looks_at: str
    refusals: Callable[[FitQuestion], Refusals | None] = _nothing
    pre_filter: Callable[[FitQuestion], PreFiltered | None] = _nothing
    gaps: Callable[[FitQuestion], Iterable[str]] = _no_gaps
    of_other_pods: bool = False
    concerns: Callable[[FitQuestion], bool] = _always
    beside: Callable[[FitQuestion, Nominated], Refusals | None] | None = None

    def is_asked(self, fit: Fit) -> bool:
        """Whether a fit asks it."""
        if self.name == SPREADING:
            return True
        return fit is Fit.ALL or (fit is Fit.NODE and not self.of_other_pods)


PROFILE: Final = (
    Plugin(
        node_name.NAME,
        "spec.nodeName",
        node_name.refusals,
        node_name.pre_filter,
        concerns=lambda asked: bool(asked.demand.node_name),
    ),
    Plugin(node_unschedulable.NAME, "cordons", node_unschedulable.refusals),
    Plugin(taint_toleration.NAME, "taints", taint_toleration.refusals),
    Plugin(node_affinity.NAME, "node affinity", node_affinity.refusals, node_affinity.pre_filter),
    Plugin(
        node_ports.NAME,
        "host ports",
        node_ports.refusals,
        of_other_pods=True,
        concerns=lambda asked: bool(asked.demand.ports),
    ),
    Plugin(node_resources_fit.NAME, "resources", node_resources_fit.refusals, of_other_pods=True),
    Plugin(
        volume_restrictions.NAME,
        "volumes of other pods",
        volume_restrictions.refusals,
        volume_restrictions.pre_filter,
        of_other_pods=True,
        beside=volume_restrictions.refusals_beside,
        concerns=_has_volumes,
    ),
    Plugin(
        node_volume_limits.NAME,
        "volume limits",
        node_volume_limits.refusals,
        gaps=node_volume_limits.gaps,
        of_other_pods=True,
        concerns=_has_volumes,
    ),
    Plugin(
        volume_binding.NAME,
        "volumes",
        volume_binding.refusals,
        volume_binding.pre_filter,
        volume_binding.gaps,
        concerns=_has_volumes,
    ),
    Plugin(
        volume_zone.NAME,
        "volumes' zones",
        volume_zone.refusals,
        volume_zone.pre_filter,
        concerns=_has_volumes,
    ),
    Plugin(SPREADING, "spreading", beside=spread_refusals),
    Plugin(
        inter_pod_affinity.NAME,
        "inter-pod affinity",
        inter_pod_affinity.refusals,
        gaps=inter_pod_affinity.gaps,
        of_other_pods=True,
        beside=inter_pod_affinity.refusals_beside,
    ),
    Plugin(
        dynamic_resources.NAME,
        "resource claims",
        dynamic_resources.refusals,
        dynamic_resources.pre_filter,
        dynamic_resources.gaps,
        of_other_pods=True,
        concerns=lambda asked: bool(asked.demand.resource_claims),
    ),
    Plugin(
        node_declared_features.NAME,
        "declared features",
        node_declared_features.refusals,
        concerns=lambda asked: bool(asked.demand.needed_features),
    ),
)
"""In the order of the default profile; PodTopologySpread is judged elsewhere."""

_FORMER_PROFILE: Final = (PROFILE[1], PROFILE[0]._replace(pre_filter=_nothing), *PROFILE[2:])
"""Of 1.36: NodeName refuses nodes one by one, after NodeUnschedulable."""

Reasons = tuple[Counter[str], Counter[Code]]
"""Nodes by reason, of which one may have several, and nodes by code."""


@dataclass(frozen=True, slots=True, eq=False)
class Suited:
    """The nodes that the filters beside spreading leave to a pod.

    Attributes:
        nodes: [slots] those that they leave; slots without a node have any value.
        refusal: of all nodes, by a plugin that looked at none; None mostly.
        narrowed: what PreFilter refuses, the nodes that it left out; None where it left out none.
        judged: in the profile's order: (plugin, what it refuses); None for nothing.
        beside_nominated: the same of nodes with nominated pods, as if these ran there; spreading
            is among them.
        asked, fit: what was asked.
    """

    asked: FitQuestion
    fit: Fit
    nodes: Bools
    refusal: Rule | None = None
    narrowed: Rule | None = None
    judged: Sequence[tuple[str, Refusals | None]] = ()
    beside_nominated: Sequence[tuple[str, Refusals | None]] = ()

    @property
    def nodes_of_others(self) -> Bools:
        """[slots] nodes that are left if spreading, beside nominated pods, refuses none."""
        if dict(self.beside_nominated).get(SPREADING) is None:
            return self.nodes
        nodes = self.asked.snapshot.alive
        for rule in self.rules():
            if rule.plugin != SPREADING:
                nodes = nodes & ~rule.refused
        return nodes

    @property
    def gaps(self) -> Sequence[str]:
        """As `gaps_of`; worked out each time."""
        return gaps_of(self.asked, self.fit)

    def rules(self, spreading: Sequence[Rule] = ()) -> Iterator[Rule]:
        """Why nodes are refused, with spreading's rules in their place."""
        if self.refusal is not None:
            yield self.refusal
            return
        if self.narrowed is not None:
            yield self.narrowed
        for _, found in self.beside_nominated:
            if found is not None:
                yield from found.rules()
        for plugin, found in self.judged:
            if plugin == SPREADING:
                yield from spreading
            elif found is not None:
                yield from found.rules()

    def reasons(self, slots: NDArray[np.intp], spreading: Sequence[Rule] = ()) -> Reasons:
        """Refusals of nodes: nodes by reason, and by code of the first rule that refuses."""
        reasons: Counter[str] = Counter()
        codes: Counter[Code] = Counter()
        left = slots
        for rule in self.rules(spreading):
            refused = rule.refused[left]
            if not refused.any():
                continue
            here = left[refused]
            codes[rule.code] += int(here.size)
            for reason, by_slot in rule.reasons:
                reasons[reason] += int(np.count_nonzero(by_slot[here]))
            left = left[~refused]
        return +reasons, codes

    def message(self, nodes: int, reasons: Mapping[str, int]) -> str:
        """kube-scheduler's message when no node is left.

        Args:
            nodes: all of the cluster.
            reasons: nodes by reason.
        """
        if self.refusal is None or not nodes:
            return fit_message(nodes, reasons)
        return f"0/{nodes} nodes are available: {self.refusal.reasons[0][0]}."


def suited(asked: FitQuestion, fit: Fit) -> Suited:
    """Ask all filters beside spreading about all nodes."""
    snapshot = asked.snapshot
    if not snapshot.node_count:
        return Suited(asked, fit, snapshot.alive)
    profile = PROFILE if asked.rules.release.names_narrow else _FORMER_PROFILE
    plugins = [each for each in profile if each.is_asked(fit)]
    refusal, kept = _pre_filter(asked, plugins)
    if refusal is not None:
        return Suited(asked, fit, np.zeros_like(snapshot.alive), refusal)
    judged = [(each.name, each.refusals(asked)) for each in plugins]
    beside = _beside_nominated(asked, plugins, judged) if fit is Fit.ALL else ()
    nodes, narrowed = snapshot.alive, None
    if kept is not None:
        by, names = kept
        inside = snapshot.nodes.marks(map(snapshot.slot, names))
        reason = f"node(s) didn't satisfy plugin(s) [{' '.join(by)}]"
        narrowed = Rule(by[0], Code.UNSCHEDULABLE_AND_UNRESOLVABLE, [(reason, ~inside)])
        nodes = nodes & inside
    for _, found in (*beside, *judged):
        if found is not None:
            nodes = nodes & ~found.nodes
    return Suited(asked, fit, nodes, None, narrowed, judged, beside)


def _beside_nominated(
    asked: FitQuestion,
    plugins: Sequence[Plugin],
    judged: Sequence[tuple[str, Refusals | None]],
) -> Sequence[tuple[str, Refusals | None]]:
    """What is refused of nodes with nominated pods, as if these ran there."""
    pods = nominated_pods(asked) if asked.snapshot.nominated else None
    if pods is None:
        return ()
    there = replace(asked, snapshot=pods.snapshot)
    found: list[tuple[str, Refusals | None]] = []
    for plugin, (_, alone) in zip(plugins, judged, strict=True):
        if plugin.beside is not None:
            refused = plugin.beside(asked, pods)
        else:
            refused = plugin.refusals(there) if plugin.of_other_pods else alone
        found.append((plugin.name, pods.only_theirs(refused)))
    return found


def may_be_refused(asked: FitQuestion, slot: int) -> bool:
    """Whether a filter beside resources may refuse one node for what pods are there or come.

    Quick for most pods, which ask other pods nothing.
    """
    snapshot = asked.snapshot
    if any(snapshot.slot(row.node_name) == slot for row in snapshot.nominated.values()):
        return True
    for plugin in PROFILE:
        if not plugin.of_other_pods or plugin.name == node_resources_fit.NAME:
            continue
        before = plugin.pre_filter(asked)
        if before is not None and before.refusal is not None:
            return True
        found = plugin.refusals(asked)
        if found is not None and found.nodes[slot]:
            return True
    return False


def _pre_filter(
    asked: FitQuestion, plugins: Iterable[Plugin]
) -> tuple[Rule | None, tuple[Sequence[str], AbstractSet[str]] | None]:
    """A refusal of all nodes; or the plugins that narrow the nodes, and the names that they leave.

    The plugins are in the order of their names, as upstream gives them.
    """
    by: list[str] = []
    left: AbstractSet[str] = frozenset()
    for plugin in plugins:
        found = plugin.pre_filter(asked)
        if found is None:
            continue
        if found.refusal is not None:
            return _refusing_all(asked, plugin.name, found.refusal), None
        if found.names is None:
            continue
        left = left & found.names if by else found.names
        by.append(plugin.name)
        if not left:
            code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
            reason = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(by))}] simultaneously"
            return _refusing_all(asked, plugin.name, Status(code, (reason,))), None
    return None, (sorted(by), left) if by else None


def _refusing_all(asked: FitQuestion, plugin: str, refusal: Status) -> Rule:
    return Rule(plugin, refusal.code, [(each, asked.snapshot.alive) for each in refusal.reasons])


def gaps_of(asked: FitQuestion, fit: Fit) -> Sequence[str]:
    """What is not looked at, each once: nodes that are left may be refused for it.

    It is what the fit does not ask, what filters cannot see, and what no filter here is about.
    """
    plugins = [each for each in PROFILE if each.is_asked(fit)]
    found = [each.looks_at for each in PROFILE if not each.is_asked(fit) and each.concerns(asked)]
    found += [gap for each in plugins for gap in each.gaps(asked)]
    if fit is Fit.ALL:
        found += nominated.gaps(asked)
    if fit is not Fit.SPREAD_ONLY:
        found += _other_version(asked)
    found += of_pod.gaps(asked, fit)
    return list(dict.fromkeys(found))


def _other_version(asked: FitQuestion) -> Iterator[str]:
    """Of a version that the cluster reports, or that is asked for."""
    version, snapshot = asked.rules.version, asked.snapshot
    known = snapshot.reported_version is not None or not version == snapshot.version == NEWEST
    if known and version != EXACT_FIT:
        yield OTHER_FIT[version > EXACT_FIT]

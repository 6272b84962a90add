"""The judgement of a pod at a snapshot, which may be the real one or a changed one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.errors import InvalidRequest
from topospread.index.overlay import apply_overlay
from topospread.kube.demands import NO_DEMAND, Demand
from topospread.kube.objects import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY
from topospread.kube.tolerations import Tolerations
from topospread.kube.violations import invalid
from topospread.service.decisions.cycle import computed_once
from topospread.service.explaining.copied_nodes import lasting_taints
from topospread.service.fit import node_affinity, taint_toleration
from topospread.service.fit.inter_pod_affinity import counted_groups
from topospread.service.fit.preemption import preemption_gaps
from topospread.service.fit.profile import suited
from topospread.service.fit.question import SPREADING, Fit, FitQuestion, spread_rules
from topospread.spread.filtering import DomainState, filter_nodes, pre_filter
from topospread.spread.scoring import score
from topospread.spread.verdicts import FITS, Status, error_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from topospread.index.overlay import Overlay
    from topospread.index.snapshot import Snapshot
    from topospread.kube.objects import Pod, SpreadConstraint
    from topospread.service.decisions.cycle import Cycle
    from topospread.service.fit.profile import Suited
    from topospread.service.fit.question import Rule
    from topospread.spread.constraints import Constraint, PodConstraints
    from topospread.spread.filtering import Verdicts
    from topospread.spread.settings import Rules
    from topospread.spread.topology import Bools, Ints

MOST_TAINTED: Final = 5000
"""Nodes whose taints are looked at."""

MAX_LIMIT: Final = 1000
"""Domains that are listed of each constraint."""


@dataclass(frozen=True, eq=False)
class EvaluationContext:
    """A pod and the snapshot of its judgement; `with_hard`, `with_overlay` and `replace` vary it.

    Attributes:
        snapshot: the state; it counts all groups of the constraints.
        pod: any pod of its shape.
        constraints: the effective ones, made by the rules.
        demand: what the pod takes from its node.
        fit: how much is asked beside spreading.
        name, uid: the pod's own, so that what is reserved for itself is not counted against it.
        bound_to: the node that the pod runs on already.
    """

    snapshot: Snapshot
    pod: Pod
    rules: Rules
    constraints: PodConstraints
    demand: Demand = NO_DEMAND
    fit: Fit = Fit.ALL
    name: str = ""
    uid: str = ""
    bound_to: str = ""

    @classmethod
    def of(cls, cycle: Cycle, fit: Fit, bound_to: str = "") -> Self:
        """The judgement of a cycle's pod at its state."""
        return cls(
            cycle.view.snapshot,
            cycle.pod,
            cycle.rules,
            cycle.constraints,
            cycle.demand,
            fit,
            cycle.name,
            cycle.uid,
            bound_to,
        )

    @property
    def hard(self) -> tuple[Constraint, ...]:
        """The constraints that Filter judges."""
        return self.constraints.hard.constraints

    @property
    def soft(self) -> tuple[Constraint, ...]:
        """The constraints that Score weighs."""
        return self.constraints.soft.constraints

    @computed_once
    def states(self) -> tuple[DomainState, ...]:
        """Counts by domain of each hard constraint."""
        return pre_filter(self.hard, self.snapshot)

    @computed_once
    def verdicts(self) -> Verdicts:
        """[slots] Filter's verdicts."""
        return filter_nodes(self.states, self.snapshot)

    @property
    def asked(self) -> FitQuestion:
        """What the filters beside spreading are asked."""
        return FitQuestion(
            self.snapshot,
            self.pod,
            self.constraints.requirements,
            self.demand,
            self.rules,
            self.name,
            # Another pod like one that runs has claims of its own.
            "" if self.bound_to else self.uid,
            self.hard,
        )

    @computed_once
    def tolerations(self) -> Tolerations:
        """The pod's."""
        return Tolerations(
            self.pod.tolerations,
            comparison_operators=self.rules.gates.taint_comparison_operators,
        )

    @computed_once
    def suits(self) -> Suited:
        """The verdicts of the scheduler's other filters."""
        return suited(self.asked, self.fit)

    @property
    def not_looked_at(self) -> Sequence[str]:
        """What else decides whether the pod is bound; of one that fits nowhere, preemption, too."""
        if self.fits or self.constraints.hard.error:
            return self.suits.gaps
        spreading = spread_rules(self.verdicts)
        return (*self.suits.gaps, *preemption_gaps(self.asked, self.suits, spreading))

    @computed_once
    def usable(self) -> Bools:
        """[slots] nodes that the filters beside spreading leave."""
        usable: Bools = self.suits.nodes_of_others & self.snapshot.alive
        return usable

    @computed_once
    def passing(self) -> Bools:
        """[slots] nodes that pass Filter; none when a hard constraint does not parse."""
        if self.constraints.hard.error:
            return np.zeros_like(self.snapshot.alive)
        passing: Bools = self.snapshot.alive & (self.verdicts == FITS)
        return passing

    @computed_once
    def fitting(self) -> Bools:
        """[slots] nodes that pass Filter, also beside nominated pods, and the other filters."""
        fitting: Bools = self.passing & self.suits.nodes
        return fitting

    @property
    def fits(self) -> int:
        """The number of nodes that the pod fits."""
        return int(np.count_nonzero(self.fitting))

    @computed_once
    def refusals(self) -> tuple[tuple[Status, Bools], ...]:
        """(status, [slots] nodes that the other filters refuse with it), by the first that does.

        Spreading is among them where it refuses a node for the pods alone that are nominated there.
        """
        return self._by_first(
            rule.within(self.passing) if rule.plugin == SPREADING else rule
            for rule in self.suits.rules()
        )

    @property
    def message(self) -> str:
        """kube-scheduler's where no node is left: each with the reasons of the first filter."""
        if self.constraints.hard.error and self.snapshot.node_count:
            return error_message(self.constraints.hard.error)
        counts = Counter[str]()
        for status, nodes in self.refused:
            counts[status.reasons[0]] += nodes
        return self.suits.message(self.snapshot.node_count, counts)

    def _by_first(self, rules: Iterable[Rule]) -> tuple[tuple[Status, Bools], ...]:
        left = self.snapshot.alive
        found: list[tuple[Status, Bools]] = []
        for rule in rules:
            here = rule.within(left).reasons
            found += [(Status(rule.code, (reason,)), refused) for reason, refused in here]
            left = left & ~rule.refused
        return tuple(found)

    @computed_once
    def allowing(self) -> tuple[Bools, ...]:
        """Masks by slot, for each hard constraint, of nodes that it does not refuse."""
        return tuple(
            self.snapshot.alive & (filter_nodes((state,), self.snapshot) == FITS)
            for state in self.states
        )

    def refused_by_plugin(self, name: str) -> Bools:
        """[slots] nodes that one of the other filters refuses, whichever others do."""
        for plugin, found in self.suits.judged:
            if plugin == name and found is not None:
                refused: Bools = found.nodes & self.snapshot.alive
                return refused
        return np.zeros_like(self.snapshot.alive)

    @computed_once
    def meant_nodes(self) -> Bools:
        """[slots] nodes that are for the pod by its affinity and by taints that last; all if none.

        A taint that keeps a device for those who request it keeps no node from one that does. Of
        more than 5,000 nodes with taints the others are taken for nodes of other pods.
        """
        left = self.snapshot.alive & ~self.refused_by_plugin(node_affinity.NAME)
        tainted = self.refused_by_plugin(taint_toleration.NAME)
        nodes: Bools = left & ~tainted
        requested = {name for name, _ in self.demand.requests}
        for slot in np.flatnonzero(left & tainted)[:MOST_TAINTED].tolist():
            checkpoint()
            node = self.snapshot.nodes.node(slot)
            assert node is not None, "nodes that are refused are there"
            taints = [each for each in lasting_taints(node) if each.key not in requested]
            nodes[slot] = self.tolerations.tolerate(taints)
        return nodes if nodes.any() else self.snapshot.alive

    def only_blocked_by(self, position: int) -> Bools:
        """[slots] usable nodes that no other hard constraint refuses."""
        found = self.usable
        for other, allowed in enumerate(self.allowing):
            if other != position:
                found = found & allowed
        return found

    @computed_once
    def normalized(self) -> tuple[NDArray[np.intp], Ints] | None:
        """(slots, scores) of the fitting nodes; None without any, or without soft constraints."""
        candidates = np.flatnonzero(self.fitting)
        if not self.soft or not candidates.size:
            return None
        scores = score(
            self.soft,
            self.snapshot,
            candidates,
            require_all_keys=self.constraints.require_all_keys,
        )
        return candidates, scores.normalized

    @computed_once
    def _held(self) -> Sequence[tuple[Mapping[str, str], int]]:
        """(labels, slot) of each reservation for others in the pod's namespace."""
        reservations = self.snapshot.reservations
        own = reservations.of(self.pod.namespace, self.name, self.uid)
        prefix = f"{self.pod.namespace}/"
        return [
            (dict(row.labels), slot)
            for key, row in reservations
            if key.startswith(prefix)
            and row is not own
            and (slot := self.snapshot.slot(row.node_name)) >= 0
        ]

    def reserved(self, constraint: Constraint) -> Ints:
        """[slots] places held for pods that the constraint counts."""
        held: Ints = np.zeros(self.snapshot.alive.size, dtype=np.int64)
        if not constraint.counts_nothing:
            for labels, slot in self._held:
                held[slot] += constraint.group.selector.matches(labels)
        return held

    def specs(self, *, hard: bool) -> list[tuple[int, SpreadConstraint]]:
        """The constraints of one phase as they were written, with their places in the list."""
        given = self.pod.constraints or self.rules.profile.defaults
        action = DO_NOT_SCHEDULE if hard else SCHEDULE_ANYWAY
        return [(i, spec) for i, spec in enumerate(given) if spec.when_unsatisfiable == action]

    def with_hard(self, constraints: Sequence[Constraint]) -> EvaluationContext:
        """The context with other hard constraints."""
        hard = replace(self.constraints.hard, constraints=tuple(constraints))
        return replace(self, constraints=replace(self.constraints, hard=hard))

    def with_overlay(self, changes: Overlay) -> EvaluationContext:
        """The context at a snapshot with changes applied."""
        groups = {c.group for c in (*self.hard, *self.soft) if not c.counts_nothing}
        groups.update(counted_groups(self.demand, self.snapshot.objects))
        return replace(self, snapshot=apply_overlay(self.snapshot, changes, groups)[0])

    def refused_by(self, nodes: Bools) -> Counter[str]:
        """The number of nodes by the reasons for which the other filters refuse them."""
        found = Counter[str]()
        for status, refused in self.refusals:
            found[status.reasons[0]] += int(np.count_nonzero(refused & nodes))
        return +found

    @computed_once
    def refused(self) -> tuple[tuple[Status, int], ...]:
        """(status, nodes) of all that refuses a node, in the profile's order.

        A node has the status of the first filter that refuses it; one that lacks several resources
        has several.
        """
        counted: dict[Status, int] = {}
        for status, nodes in self._by_first(self.suits.rules(spread_rules(self.verdicts))):
            if number := int(np.count_nonzero(nodes)):
                counted[status] = counted.get(status, 0) + number
        return tuple(counted.items())


def check_limit(limit: int, path: str = "domainLimit") -> None:
    """Refuse another number of domains, or of what else is listed of a constraint, than may be."""
    if not 0 <= limit <= MAX_LIMIT:
        raise InvalidRequest.of([invalid(path, limit, f"must be 0 to {MAX_LIMIT}")])

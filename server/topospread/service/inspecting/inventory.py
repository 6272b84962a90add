"""The pods of a state by what they demand: which constraints are in force, and whose they are.

Pods of one controller that scheduling cannot tell apart but by labels that no constraint looks at
share a template, so that the pods of a StatefulSet, which have a label each of their own, cost no
more than those of a ReplicaSet.

Pods that can only run on one node have no rows: wherever the others stand, no constraint chooses
their node, and a DaemonSet would have constraints of its own for each node. Nor have those that
wait for another scheduler. Pods that scheduling gates hold, which kube-scheduler does not try, are
counted apart.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from topospread.codec.pods import split_template
from topospread.errors import CorruptValue, InvalidRequest, TooLarge
from topospread.kube.affinity import pinned_node
from topospread.service.explaining.context import EvaluationContext
from topospread.service.explaining.counted_pods import owner_of, owner_of_class
from topospread.service.inspecting.statuses import OwnedConstraint
from topospread.spread.constraints import needs_default_selector
from topospread.spread.settings import DEFAULT_PROFILE, NEWEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from topospread.index.nodes import NodeTable
    from topospread.index.objects import Objects
    from topospread.index.pod_classes import NamespaceClasses, PodClass, PodCounts
    from topospread.index.snapshot import NamespaceWorkloads, Snapshot
    from topospread.kube.demands import Demand
    from topospread.kube.objects import Pod
    from topospread.kube.versions import KubernetesVersion
    from topospread.kube.workloads import KnownControllers
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.pods import EffectiveConstraints, PodShape
    from topospread.service.decisions.request import SettingsOverride
    from topospread.service.explaining.counted_pods import Owner
    from topospread.service.inspecting.statuses import Labels
    from topospread.spread.constraints import PodConstraints
    from topospread.spread.settings import Rules
    from topospread.spread.topology import Bools


LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class PodTemplate:
    """Pods that are alike to scheduling: what the next replica is like.

    Attributes:
        pod: any of them.
        rows: their constraints, hard ones first, of equal ones the first.
        hard: the row of each hard constraint, in their order.
        of_other_scheduler: no profile has the name that they name: theirs decides, and those that
            wait are not tried here.
        witness: slot of a node that was last seen to take another one; −1 for none.
        suits: [slots] nodes that suit them, other pods apart, at a node table and, with volumes, at
            what is known of these.
        gaps: what is not looked at of them, after what that follows from.
    """

    pod: Pod
    rules: Rules
    constraints: PodConstraints
    demand: Demand
    rows: tuple[OwnedConstraint, ...]
    of_other_scheduler: bool = False
    hard: tuple[OwnedConstraint, ...] = field(init=False)
    witness: int = -1
    suits: tuple[NodeTable, Objects | None, Bools] | None = None
    gaps: tuple[tuple[object, ...], tuple[str, ...]] | None = None

    def __post_init__(self) -> None:
        """Find the hard constraints' rows: of equal constraints, the first has one for all."""
        rows = {row.constraint: row for row in self.rows}
        self.hard = tuple(rows[each] for each in self.constraints.hard.constraints)

    def context(self, snapshot: Snapshot) -> EvaluationContext:
        """The judgement of the next replica at a snapshot."""
        return EvaluationContext(snapshot, self.pod, self.rules, self.constraints, self.demand)


@dataclass(slots=True)
class RowPods:
    """The pods that have one constraint of one owner.

    Attributes:
        waiting: pods without a node by template; every template has an entry, 0 where scheduling
            gates hold its pods.
        gated: pods that these hold.
        classes: whose pods they are.
    """

    bound: int = 0
    waiting: dict[PodTemplate, int] = field(default_factory=dict)
    gated: int = 0
    classes: list[PodClass] = field(default_factory=list)

    def add(self, pod_class: PodClass, template: PodTemplate, counts: PodCounts) -> None:
        """Add the pods of a class; those that wait for another scheduler are left out."""
        if template.of_other_scheduler and not counts.bound:
            return
        pending = 0 if template.of_other_scheduler else counts.pending
        if template.demand.gated:
            self.gated += pending
            pending = 0
        self.bound += counts.bound
        self.waiting[template] = self.waiting.get(template, 0) + pending
        self.classes.append(pod_class)

    @property
    def pending(self) -> int:
        """Pods without a node that the scheduler tries."""
        return sum(self.waiting.values())

    @property
    def next(self) -> PodTemplate:
        """The template of the next replica: that of most that wait, rather one without gates."""
        return max(self.waiting, key=lambda each: (not each.demand.gated, self.waiting[each]))

    @property
    def labels(self) -> list[Labels]:
        """The label sets of the pods."""
        return [each.labels for each in self.classes]


@dataclass(slots=True, eq=False)
class _Spec:
    """Pods that differ in nothing but labels and owners, and have constraints of their own.

    Attributes:
        label_keys: labels that their constraints look at.
        templates: by the values of these, and the owner.
    """

    label_keys: tuple[str, ...]
    templates: dict[tuple[tuple[str | None, ...], Owner], PodTemplate] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _KnownClass:
    """A class whose template is known.

    Attributes:
        workloads: what its default constraints were deduced from; None where it needs none.
        template: None where its pods have no rows.
        controller: kind and name of its pods' own controller.
        owner: its pods'; None where it was not looked up.
    """

    workloads: NamespaceWorkloads | None
    template: PodTemplate | None
    controller: tuple[str, str] | None = None
    owner: Owner | None = None


_WITHOUT_ROWS: Final = _KnownClass(None, None)


@dataclass(slots=True, eq=False)
class NamespaceRows:
    """The constraints of a namespace, and the pods of each; immutable.

    Attributes:
        classes: what it was made from.
        workloads, controllers: likewise.
    """

    classes: NamespaceClasses
    workloads: NamespaceWorkloads
    controllers: KnownControllers
    rows: Mapping[OwnedConstraint, RowPods]


class Inventory:
    """Keeps the constraints of one cluster in step with its pod classes; for one thread at a time.

    Args:
        engine: reads pods, and knows the profiles.
        settings: by which pods are judged.
        most: constraints that there may be.
    """

    def __init__(self, engine: Engine, settings: SettingsOverride, most: int) -> None:
        self._engine = engine
        self._settings = settings
        self._most = most
        self._version = NEWEST
        self._rules: dict[str, Rules] = {}
        self._known: dict[PodClass, _KnownClass] = {}
        self._templates: dict[object, PodTemplate] = {}
        self._specs: dict[tuple[str, bytes], _Spec] = {}
        self._constraints: dict[object, OwnedConstraint] = {}
        self._namespaces: dict[str, NamespaceRows] = {}

    def update(self, snapshot: Snapshot, turn: Callable[[], None]) -> Mapping[str, NamespaceRows]:
        """The constraints by namespace at a snapshot; what did not change is the same object.

        Raises:
            InvalidRequest: unknown settings.
            TooLarge: there are more constraints than there may be.
        """
        self._refresh_rules(snapshot.version)
        known, constraints = self._namespaces, 0
        found: dict[str, NamespaceRows] = {}
        for name, classes in snapshot.pod_classes.items():
            turn()
            workloads = snapshot.namespace(name)
            controllers = snapshot.controllers_in(name)
            before = known.get(name)
            moved = before is not None and self._forget_moved(before, controllers)
            if before is None or moved or before.workloads is not workloads:
                kept = {} if before is None else before.rows
                before = self._namespace(name, snapshot, turn, kept)
            elif before.classes is not classes:
                before = self._changed(before, classes, snapshot, turn)
            elif before.controllers is not controllers:
                before = replace(before, controllers=controllers)
            found[name] = before
            constraints += len(before.rows)
            if constraints > self._most:
                self._namespaces = {}
                self._forget(snapshot)
                raise self._too_many()
        if found != known:
            self._namespaces = found
            self._forget(snapshot)
        return found

    def _forget_moved(self, before: NamespaceRows, controllers: KnownControllers) -> bool:
        """Forget classes whose controllers have other controllers now; whether there are any."""
        former = before.controllers
        if former is controllers:
            return False
        changed = {
            key
            for key in former.keys() | controllers.keys()
            if key not in former or key not in controllers or former[key] != controllers[key]
        }
        known = self._known
        moved = [
            each for each in before.classes if each in known and known[each].controller in changed
        ]
        for each in moved:
            del known[each]
        return bool(moved)

    def owner_of(self, pod_class: PodClass, snapshot: Snapshot) -> Owner:
        """The owner of the pods of a class."""
        known = self._known.get(pod_class)
        if known is not None and known.owner is not None:
            return known.owner
        return owner_of_class(pod_class, snapshot.controllers_in(pod_class.namespace))

    def _too_many(self) -> TooLarge:
        return TooLarge(
            f"more than {self._most} constraints are in force in the cluster: raise "
            "--max-cluster-constraints, or ask with settings without default constraints",
            "--max-cluster-constraints",
            self._most,
        )

    @property
    def outdated(self) -> bool:
        """Whether the profiles or the version are others than those that it was kept by."""
        return any(self._rules_for(name) != rules for name, rules in tuple(self._rules.items()))

    def _refresh_rules(self, version: KubernetesVersion) -> None:
        """Forget everything when the profiles or the version are others.

        Raises:
            InvalidRequest: unknown settings; a pod that is too much is just left out.
        """
        self._version = version
        if self.outdated:
            self._rules, self._known, self._templates, self._namespaces = {}, {}, {}, {}
            self._specs, self._constraints = {}, {}
        if not self._rules:
            self._rules[""] = self._rules_for("")

    def _rules_for(self, scheduler: str) -> Rules:
        return self._engine.rules_for(self._settings, scheduler, self._version)

    def _forget(self, snapshot: Snapshot) -> None:
        """Drop what no pod has any more, when that is much."""
        living = sum(map(len, snapshot.pod_classes.values()))
        if len(self._known) <= 2 * living + 100:
            return
        here = {each for classes in snapshot.pod_classes.values() for each in classes}
        self._known = {each: known for each, known in self._known.items() if each in here}
        used = {known.template for known in self._known.values()}
        self._templates = {key: made for key, made in self._templates.items() if made in used}
        self._specs = {}
        rows = {row for template in self._templates.values() for row in template.rows}
        self._constraints = {key: row for key, row in self._constraints.items() if row in rows}

    def _namespace(
        self,
        namespace: str,
        snapshot: Snapshot,
        turn: Callable[[], None],
        kept: Mapping[OwnedConstraint, RowPods],
    ) -> NamespaceRows:
        classes, workloads = snapshot.pod_classes[namespace], snapshot.namespace(namespace)
        rows: dict[OwnedConstraint, RowPods] = {}
        for pod_class, counts in classes.items():
            template = self._template(pod_class, snapshot, workloads, turn)
            if template is None:
                continue
            for row in template.rows:
                pods = rows.get(row)
                if pods is None:
                    pods = rows[row] = RowPods()
                pods.add(pod_class, template, counts)
        rows = {row: pods for row, pods in rows.items() if pods.classes}
        # What did not change is the same object: its constraint need not be judged again.
        for row, pods in rows.items():
            before = kept.get(row)
            if before is not None and before == pods:
                rows[row] = before
        return NamespaceRows(classes, workloads, snapshot.controllers_in(namespace), rows)

    def _changed(
        self,
        before: NamespaceRows,
        classes: NamespaceClasses,
        snapshot: Snapshot,
        turn: Callable[[], None],
    ) -> NamespaceRows:
        """The namespace after pods came or went: only the rows of their classes are made anew."""
        templates = {
            each: self._template(each, snapshot, before.workloads, turn)
            for each in classes.differing(before.classes)
        }
        rows = dict(before.rows)
        having: dict[OwnedConstraint, dict[PodClass, None]] = {}
        for pod_class, template in templates.items():
            for row in () if template is None else template.rows:
                if row not in having:
                    known = rows.get(row)
                    having[row] = dict.fromkeys(() if known is None else known.classes)
                if pod_class in classes:
                    having[row][pod_class] = None
                else:
                    having[row].pop(pod_class, None)
        for row, its in having.items():
            pods = RowPods()
            for pod_class in its:
                template = self._template(pod_class, snapshot, before.workloads, turn)
                if template is not None:
                    pods.add(pod_class, template, classes[pod_class])
            if not pods.classes:
                rows.pop(row, None)
            elif pods != rows.get(row):
                rows[row] = pods
        return replace(before, classes=classes, rows=rows)

    def _template(
        self,
        pod_class: PodClass,
        snapshot: Snapshot,
        workloads: NamespaceWorkloads,
        turn: Callable[[], None],
    ) -> PodTemplate | None:
        known = self._known.get(pod_class)
        if known is not None and known.workloads in (None, workloads):
            return known.template
        turn()
        with suppress(CorruptValue, InvalidRequest):
            controller, rest = split_template(pod_class.template)
            labels = dict(pod_class.labels)
            known_here = snapshot.controllers_in(pod_class.namespace)
            owner = owner_of(controller, labels, known_here)
            place = None if controller is None else (controller.kind, controller.name)
            spec = self._specs.get((pod_class.namespace, rest))
            if spec is not None:
                template = spec.templates.get((tuple(map(labels.get, spec.label_keys)), owner))
                if template is not None:
                    self._known[pod_class] = _KnownClass(None, template, place, owner)
                    return template
            shape, demand = self._engine.template_of(pod_class)
            if pinned_node(shape.pod.requirements) is not None:
                self._known[pod_class] = _WITHOUT_ROWS
                return None
            scheduler = shape.pod.scheduler_name
            rules = self._rules.get(scheduler)
            if rules is None:
                rules = self._rules[scheduler] = self._rules_for(scheduler)
            effective = shape.effective_constraints(rules, snapshot)
            template = self._interned(shape, owner, demand, rules, effective)
            if needs_default_selector(shape.pod, rules):
                self._known[pod_class] = _KnownClass(workloads, template, place, owner)
                return template
            if spec is None:
                spec = _Spec(_label_keys(shape.pod))
                self._specs[pod_class.namespace, rest] = spec
            spec.templates[tuple(map(labels.get, spec.label_keys)), owner] = template
            self._known[pod_class] = _KnownClass(None, template, place, owner)
            return template
        return None

    def _rows(
        self, owner: Owner, pod: Pod, constraints: PodConstraints, rules: Rules
    ) -> Iterable[OwnedConstraint]:
        """The constraints in force, hard ones first; of equal ones the first."""
        written = pod.constraints or rules.profile.defaults
        seen = set()
        for phase in (constraints.hard, constraints.soft):
            if not phase.constraints:
                continue
            action = phase.constraints[0].when_unsatisfiable
            indices = [i for i, each in enumerate(written) if each.when_unsatisfiable == action]
            for index, constraint in zip(indices, phase.constraints, strict=True):
                if constraint not in seen:
                    seen.add(constraint)
                    content = owner, constraint, index, constraints.defaulted
                    row = self._constraints.get(content)
                    if row is None:
                        row = self._constraints[content] = OwnedConstraint(*content)
                    yield row

    def _interned(
        self,
        shape: PodShape,
        owner: Owner,
        demand: Demand,
        rules: Rules,
        effective: EffectiveConstraints,
    ) -> PodTemplate:
        pod, constraints = shape.pod, effective.constraints
        # Whose settings name a profile has all pods judged by it.
        other = rules.profile.name != (pod.scheduler_name or DEFAULT_PROFILE)
        other = other and not self._settings.profile
        key = (owner, rules.profile.name, constraints, pod.tolerations, demand, pod.scheduler_name)
        template = self._templates.get(key)
        if template is None:
            for wrong in filter(None, (constraints.hard.error, constraints.soft.error)):
                where = (pod.namespace, *owner)
                LOG.debug("constraints of %s %s/%s have no rows: %.200s", *where, wrong)
            rows = tuple(self._rows(owner, pod, constraints, rules))
            template = PodTemplate(pod, rules, constraints, demand, rows, other)
            self._templates[key] = template
        return template


def _label_keys(pod: Pod) -> tuple[str, ...]:
    """The labels that a pod's own constraints look at."""
    keys = {key for each in pod.constraints for key in each.match_label_keys}
    for each in pod.constraints:
        if (selector := each.label_selector) is not None:
            keys.update([key for key, _ in selector.match_labels])
            keys.update([expression.key for expression in selector.match_expressions])
    return tuple(sorted(keys))

"""Placement of batches of pods, one by one, on a snapshot plus changes; writes nothing.

How to call it, from any use case that asks "what if"::

    batches = [PodBatch(shape, rules, demand, names=("web-0", "web-1"))]
    view = engine.with_groups_counted([p for each in batches for p in each.judged], replica, view)
    options = PlacementOptions(seed="a")
    simulation = place_batches(view, Overlay(gone=["node-1"]), batches, options)

- A *batch* is pods of one shape under names of their own, placed in order. The shape and rules come
  from :meth:`Engine.intern` and :meth:`Engine.rules_of`, the demand from
  :class:`~topospread.codec.demands.DemandReader`.
- The view must count the groups of all batches (:meth:`Engine.with_groups_counted`).
- Nodes that join come from :mod:`~topospread.service.simulation.request`.

Each pod is placed by :func:`topospread.service.placement.place.choose`, the function that PlacePod
itself calls, on a snapshot that counts the pods placed before it. So a simulation's placements are
those that PlacePod answers when it is called for the same pods, under the same names and with the
same seed, one after the other, on that state; they follow from revision, request and seed alone.
A pod that is refused stays pending and is not tried again: pods after it are placed as if it were
not there.

Snapshots are immutable and counts incremental, so a pod costs a fraction of a millisecond on
thousands of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.checkpoints import checkpoint
from topospread.index.changes import ReservationRow
from topospread.index.overlay import Overlay, apply_overlay
from topospread.kube.demands import holds_of
from topospread.service.decisions.cycle import Cycle
from topospread.service.decisions.extension_points import all_constraints, spread
from topospread.service.decisions.pods import JudgedPod, PodShape, ShapedPod, needed_groups
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit
from topospread.service.fit.taken import TAKEN_BEFORE, takes
from topospread.service.messages import constraint_message
from topospread.service.placement.place import choose
from topospread.service.placement.tasks import Rejection
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import scenario_pb2 as detail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.kube.demands import Demand
    from topospread.replica.view import View
    from topospread.service.decisions.pods import EffectiveConstraints
    from topospread.spread.constraints import Constraint, PodConstraints
    from topospread.spread.settings import Rules
    from topospread.spread.topology import GroupKey


SHOWN: Final = 100
"""Domains that an answer names for a constraint, and constraints that it has."""

KEPT: Final = 10
"""Reasons for pending that are kept with the state behind them, to be explained."""


@dataclass(frozen=True, slots=True, eq=False)
class PodBatch:
    """Pods of one shape, to be placed one after the other.

    Attributes:
        shape: what they have in common.
        rules: that they are judged by.
        demand: what each takes of its node.
        names: one a pod; with the seed they decide between equal nodes.
        uid: of the only pod, where it is one of the state: what is held for it is its own.
        recreated: a new pod in the place of that one, which goes.
        of_crowd: the request did not name this pod: if it is refused, it is reported together with
            all that are asked for with it, or all drained ones of its namespace, that are refused
            for the same reason.
        numbered: the shape of each, where labels number the pods; `shape` is the first's then.
        asked: position among the pods of the request; −1 for pods of drained nodes.
    """

    shape: PodShape
    rules: Rules
    demand: Demand
    names: Sequence[str]
    uid: str = ""
    recreated: bool = False
    of_crowd: bool = False
    numbered: Sequence[PodShape] = ()
    asked: int = -1

    @property
    def shapes(self) -> Sequence[PodShape]:
        """All that differ."""
        return self.numbered or (self.shape,)

    @property
    def pods(self) -> Sequence[ShapedPod]:
        """The first pod of each shape."""
        return [self.pod, *(ShapedPod(each, "", self.uid) for each in self.numbered[1:])]

    @property
    def judged(self) -> Sequence[JudgedPod]:
        """The first pod of each shape, with what it is judged by."""
        return [JudgedPod(pod, self.rules, self.demand) for pod in self.pods]

    @property
    def pod(self) -> ShapedPod:
        """The first of them, or one without a name."""
        return ShapedPod(self.shape, self.names[0] if self.names else "", self.uid)

    @property
    def names_claims(self) -> bool:
        """Whether each may have claims that are named after it."""
        return any(each.from_template for each in self.demand.volumes)

    @property
    def judged_uid(self) -> str:
        """The uid that it has when it is placed."""
        return "" if self.recreated else self.uid

    @property
    def namespace(self) -> str:
        """The namespace of all of them."""
        return self.shape.pod.namespace

    def reference(self, name: str) -> common_pb2.PodReference:
        """A message that names one of them."""
        return common_pb2.PodReference(namespace=self.namespace, name=name, uid=self.uid)


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class PlacementOptions:
    """Options of place_batches.

    Attributes:
        fit: how much is asked beside spreading.
        seed: orders equal nodes, as PlacePod's.
        all_or_nothing: stop at the first pod that fits nowhere.
        between: called between pods, so that other threads have their turn; it may raise to stop.
    """

    fit: Fit = Fit.ALL
    seed: str = ""
    all_or_nothing: bool = False
    between: Callable[[], None] = _nothing


class Placement(NamedTuple):
    """A pod and its node."""

    batch: int
    name: str
    node: str


@dataclass(slots=True, eq=False)
class PendingPods:
    """Pods of one batch, or of one crowd, that fit nowhere for the same reason.

    Attributes:
        pods: the batch and name of each.
        refusal: kube-scheduler's words.
        cycle: the first of them, judged at the state it was refused at: what to explain. None past
            the first KEPT reasons: each would keep the arrays of a state of its own.
    """

    pods: list[tuple[int, str]]
    refusal: Rejection
    cycle: Cycle | None

    @property
    def batch(self) -> int:
        """The position of the first pod's."""
        return self.pods[0][0]


@dataclass(slots=True, eq=False)
class SimulationResult:
    """The result of placing batches.

    Attributes:
        before: the state as it is.
        changed: after the changes, before any pod.
        after: with all pods that found a node.
        placements: in the order of placing.
        evicted: pods and reservations that drained nodes lost, without pods that were removed.
        joined: names of the nodes that joined, by node group.
        not_modelled: what was not looked at of any pod.
    """

    batches: Sequence[PodBatch]
    before: Snapshot
    changed: Snapshot
    after: Snapshot
    placements: list[Placement] = field(default_factory=list)
    pending: list[PendingPods] = field(default_factory=list)
    evicted: int = 0
    joined: Sequence[Sequence[str]] = ()
    not_modelled: Sequence[str] = ()

    @property
    def waiting(self) -> int:
        """Pods that fit nowhere."""
        return sum(len(each.pods) for each in self.pending)


def place_batches(
    view: View, changes: Overlay, batches: Sequence[PodBatch], options: PlacementOptions
) -> SimulationResult:
    """Place pods on a state plus changes.

    Raises:
        What `options.between` raises.
    """
    judged = _judged(batches, view.snapshot)
    asked = [pod for batch in batches for pod in batch.judged]
    groups = tuple(needed_groups(asked, view.snapshot))
    changed, evicted = apply_overlay(view.snapshot, changes, groups)
    run = _PlacementRun(view, changed, groups, options)
    found = SimulationResult(batches, view.snapshot, changed, changed, evicted=evicted)
    for number, own in enumerate(judged):
        if not _place(run, number, own, found):
            break
    found.after = run.state
    found.not_modelled = [*run.not_modelled]
    return found


def _judged(
    batches: Iterable[PodBatch], snapshot: Snapshot
) -> Sequence[Sequence[EffectiveConstraints]]:
    """The constraints of each shape of each batch; equal ones of a batch are one object."""
    judged: list[list[EffectiveConstraints]] = []
    for batch in batches:
        known: dict[PodConstraints, EffectiveConstraints] = {}
        judged.append([])
        for shape in batch.shapes:
            checkpoint()
            effective = shape.effective_constraints(batch.rules, snapshot)
            judged[-1].append(known.setdefault(effective.constraints, effective))
    return judged


def _place(
    run: _PlacementRun,
    number: int,
    judged: Sequence[EffectiveConstraints],
    found: SimulationResult,
) -> bool:
    """Place a batch; returns whether to go on."""
    batch = found.batches[number]
    refused: PendingPods | None = None
    refused_by: EffectiveConstraints | None = None
    for position, name in enumerate(batch.names):
        checkpoint()
        run.options.between()
        of_shape = position if batch.numbered else 0
        shape, effective = batch.shapes[of_shape], judged[of_shape]
        alike = refused is not None and effective is refused_by and not batch.names_claims
        if refused is not None and alike and run.holds_nothing(batch, name):
            # Nothing has changed since, and a name does not make a node fit.
            refused.pods.append((number, name))
            continue
        cycle, chosen = run.place(batch, shape, effective, name)
        if isinstance(chosen, str):
            found.placements.append(Placement(number, name, chosen))
            refused = None
            continue
        refused_by = effective
        if batch.numbered and refused is not None and refused.refusal == chosen:
            refused.pods.append((number, name))
            continue
        reason = batch.asked, batch.namespace, chosen
        if batch.of_crowd and reason in run.crowds:
            run.crowds[reason].pods.append((number, name))
            continue
        kept = cycle if len(found.pending) < KEPT else None
        refused = PendingPods([(number, name)], chosen, kept)
        found.pending.append(refused)
        if batch.of_crowd:
            run.crowds[reason] = refused
        if run.options.all_or_nothing:
            return False
    return True


class _PlacementRun:
    """The state while pods are placed.

    Attributes:
        crowds: those of crowds that are pending, by what is asked for, namespace and reason.
        not_modelled: what was not looked at.
        taken: of claims that pods placed before have chosen for; the state does not say what.
    """

    def __init__(
        self, view: View, state: Snapshot, groups: Sequence[GroupKey], options: PlacementOptions
    ) -> None:
        self.state = state
        self.options = options
        self.crowds: dict[tuple[int, str, Rejection], PendingPods] = {}
        self._view = view
        self._groups = groups
        self.not_modelled: dict[str, None] = {}
        self.taken: set[str] = set()

    def holds_nothing(self, batch: PodBatch, name: str) -> bool:
        held = self.state.reservations
        return not held or held.get(f"{batch.namespace}/{name}") is None

    def place(
        self, batch: PodBatch, shape: PodShape, effective: EffectiveConstraints, name: str
    ) -> tuple[Cycle, str | Rejection]:
        state, namespace = self.state, batch.namespace
        replaced = held = None
        if state.reservations:
            replaced = state.reservations.get(f"{namespace}/{name}")
        if replaced is not None:
            # What is held for the pod is not in its own way, nor what PlacePod would end: a
            # predecessor's.
            held = replaced if replaced.is_for(batch.uid) else None
            state = state.without(namespace, replaced, self._groups)
        pod = shape.pod
        view = replace(self._view, snapshot=state)
        uid = batch.judged_uid
        cycle = Cycle("", pod, batch.rules, effective, view, name, uid, demand=batch.demand)
        suits = suited(cycle.asked, self.options.fit)
        self.not_modelled |= dict.fromkeys(suits.gaps)
        taken = () if self.options.fit is Fit.SPREAD_ONLY else tuple(takes(cycle.asked))
        if not self.taken.isdisjoint(taken):
            self.not_modelled[TAKEN_BEFORE] = None
        chosen = choose(cycle, suits, self.options.seed, held)
        if isinstance(chosen, Rejection):
            self.not_modelled |= dict.fromkeys(chosen.not_modelled)
            return cycle, chosen
        self.taken.update(taken)
        if replaced is not None:
            ended = state.reservations.changed({f"{namespace}/{name}": None})
            state = replace(state, reservations=ended)
        labels = tuple(sorted(pod.labels.items()))
        holds = holds_of(batch.demand, namespace, name)
        row = ReservationRow(batch.uid, labels, chosen, requests=batch.demand.requests, holds=holds)
        placed = state.adjusted(namespace, [(row, 1)], self._groups)
        self.state = placed.without_nominated((f"{namespace}/{name}",))
        return cycle, chosen


def spread_changes(simulation: SimulationResult) -> list[detail.SpreadChange]:
    """The changes of skew for the constraints of a simulation's pods, hard ones first.

    Each constraint once, for the first pods that have it; at most SHOWN.
    """
    first: dict[Constraint, tuple[int, int]] = {}
    for number, batch in enumerate(simulation.batches):
        for position, shape in enumerate(batch.shapes):
            effective = shape.effective_constraints(batch.rules, simulation.before)
            for constraint in all_constraints(effective.constraints):
                first.setdefault(constraint, (number, position))
    found: list[detail.SpreadChange] = []
    for constraint, (number, position) in [*first.items()][:SHOWN]:
        change = _change(constraint, simulation)
        batch = simulation.batches[number]
        if batch.asked >= 0:
            change.pods_index = batch.asked
        if batch.names:
            change.pod.CopyFrom(batch.reference(batch.names[position]))
        found.append(change)
    return found


def _change(constraint: Constraint, simulation: SimulationResult) -> detail.SpreadChange:
    before = spread(constraint, simulation.before)
    after = spread(constraint, simulation.after)
    values = sorted({*before.counts, *after.counts}, key=str.encode)
    pairs = [(value, before.counts.get(value), after.counts.get(value)) for value in values]
    pairs.sort(key=lambda pair: pair[1] == pair[2])
    return detail.SpreadChange(
        constraint=constraint_message(constraint),
        skew_before=before.skew,
        skew_after=after.skew,
        domain_count_before=len(before.counts),
        domain_count_after=len(after.counts),
        domains=[
            detail.DomainChange(value=value, pod_count_before=old, pod_count_after=new)
            for value, old, new in pairs[:SHOWN]
        ],
    )

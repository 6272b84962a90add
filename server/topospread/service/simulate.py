"""Simulate: place pods one by one on a state plus changes, and write nothing.

How to call it, from any use case that asks "what if"::

    batches = [Batch(shape, rules, demand, names=("web-0", "web-1"))]
    view = engine.counted([(each.pod, each.rules) for each in batches], replica, view)
    simulation = simulate(view, Supposition(gone=["node-1"]), batches, Options(seed="a"))

- A *batch* is pods of one shape under names of their own, placed in order. The shape and rules come
  from :meth:`Engine.shaped` and :meth:`Engine.rules_of`, the demand from
  :class:`~topospread.codec.demands.Demands`.
- The view must count the groups of all batches (:meth:`Engine.counted`).
- Nodes that join come from :mod:`~topospread.service.node_groups`.

Each pod is placed by :func:`topospread.service.place.choose`, the function that PlacePod itself
asks, on a snapshot that counts the pods placed before it. So a simulation's placements are those
that PlacePod answers when it is called for the same pods, under the same names and with the same
seed, one after the other, on that state; and they follow from revision, request and seed alone. A
pod that is refused stays pending and is not tried again: pods after it are placed as if it were not
there.

Snapshots are immutable and counts incremental, so a pod costs a fraction of a millisecond on
thousands of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.checkpoints import checkpoint
from topospread.index.changes import ReservationRow
from topospread.index.supposed import Supposition, supposed
from topospread.service.cycle import Cycle
from topospread.service.fit import Fit
from topospread.service.place import Preference, choose
from topospread.service.shapes import Shape, ShapedPod
from topospread.service.wanted import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.kube.demands import Demand
    from topospread.replica.view import View
    from topospread.service.shapes import Judgeable
    from topospread.spread.settings import Rules
    from topospread.spread.topology import GroupKey


KEPT: Final = 10
"""Reasons for pending that are kept with the state behind them, to be explained."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Pods of one shape, to be placed one after the other.

    Attributes:
        shape: what they have in common.
        rules: that they are judged by.
        demand: what each takes of its node.
        names: one a pod; with the seed they decide between equal nodes.
        uid: of the only pod, where it is one of the state: what is held for it is its own.
        of_crowd: nobody asked for this pod by itself: if it is refused, it is told together with
            all of its namespace that are refused for the same reason.
    """

    shape: Shape
    rules: Rules
    demand: Demand
    names: Sequence[str]
    uid: str = ""
    of_crowd: bool = False

    @property
    def pod(self) -> ShapedPod:
        """The first of them, or one without a name."""
        return ShapedPod(self.shape, self.names[0] if self.names else "", self.uid)

    @property
    def namespace(self) -> str:
        """Of all of them."""
        return self.shape.pod.namespace


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Options:
    """How to place.

    Attributes:
        fit: how much is asked beside spreading.
        seed: orders equal nodes, as PlacePod's.
        all_or_nothing: stop at the first pod that fits nowhere.
        between: called between pods, so that other threads have their turn; it may raise to stop.
    """

    fit: Fit = Fit.NODE_AND_RESOURCES
    seed: str = ""
    all_or_nothing: bool = False
    between: Callable[[], None] = _nothing


class Placement(NamedTuple):
    """A pod and its node."""

    batch: int
    name: str
    node: str


@dataclass(slots=True, eq=False)
class Pending:
    """Pods of one batch, or of one crowd, that fit nowhere for the same reason.

    Attributes:
        pods: the batch and name of each.
        refusal: kube-scheduler's words.
        cycle: the first of them, judged at the state it was refused at: what to explain. None past
            the first KEPT reasons: each would keep the arrays of a state of its own.
    """

    pods: list[tuple[int, str]]
    refusal: Refusal
    cycle: Cycle | None

    @property
    def batch(self) -> int:
        """The position of the first pod's."""
        return self.pods[0][0]


@dataclass(slots=True, eq=False)
class Simulation:
    """What would happen.

    Attributes:
        before: the state as it is.
        changed: after the changes, before any pod.
        after: with all pods that found a node.
        placements: in the order of placing.
        evicted: pods and reservations that drained nodes lost, without pods that were removed.
    """

    batches: Sequence[Batch]
    before: Snapshot
    changed: Snapshot
    after: Snapshot
    placements: list[Placement] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    evicted: int = 0

    @property
    def waiting(self) -> int:
        """Pods that fit nowhere."""
        return sum(len(each.pods) for each in self.pending)


def simulate(
    view: View, changes: Supposition, batches: Sequence[Batch], options: Options
) -> Simulation:
    """Place pods on a state plus changes.

    Args:
        view: the state; counts the groups of all batches.
        changes: what to suppose.
        batches: the pods, in order.
        options: how.

    Raises:
        What `options.between` raises.
    """
    judged = [each.shape.judgeable(each.rules, view.snapshot) for each in batches]
    groups = groups_of(judged)
    changed, evicted = supposed(view.snapshot, changes, groups)
    run = _Run(view, changed, groups, options)
    found = Simulation(batches, view.snapshot, changed, changed, evicted=evicted)
    for number, (batch, judgeable) in enumerate(zip(batches, judged, strict=True)):
        if not _place(run, number, batch, judgeable, found):
            break
    found.after = run.state
    return found


def groups_of(judged: Iterable[Judgeable]) -> tuple[GroupKey, ...]:
    """What must be counted to judge them all."""
    return tuple(dict.fromkeys(group for judgeable in judged for group in judgeable.groups))


def _place(run: _Run, number: int, batch: Batch, judgeable: Judgeable, found: Simulation) -> bool:
    """Place a batch; returns whether to go on."""
    refused: Pending | None = None
    for name in batch.names:
        checkpoint()
        run.options.between()
        if refused is not None and run.holds_nothing(batch, name):
            # Nothing has changed since, and a name does not make a node fit.
            refused.pods.append((number, name))
            continue
        cycle, chosen = run.place(batch, judgeable, name)
        if isinstance(chosen, str):
            found.placements.append(Placement(number, name, chosen))
            refused = None
            continue
        reason = batch.namespace, chosen
        if batch.of_crowd and reason in run.crowds:
            run.crowds[reason].pods.append((number, name))
            continue
        kept = cycle if len(found.pending) < KEPT else None
        refused = Pending([(number, name)], chosen, kept)
        found.pending.append(refused)
        if batch.of_crowd:
            run.crowds[reason] = refused
        if run.options.all_or_nothing:
            return False
    return True


class _Run:
    """The state while pods are placed.

    Attributes:
        crowds: those of crowds that are pending, by namespace and reason.
    """

    def __init__(
        self, view: View, state: Snapshot, groups: Sequence[GroupKey], options: Options
    ) -> None:
        self.state = state
        self.options = options
        self.crowds: dict[tuple[str, Refusal], Pending] = {}
        self._view = view
        self._groups = groups
        self._preference = Preference(options.fit, options.seed)

    def holds_nothing(self, batch: Batch, name: str) -> bool:
        """Whether no place is held for a pod of the name."""
        held = self.state.reservations
        return not held or held.get(f"{batch.namespace}/{name}") is None

    def place(self, batch: Batch, judgeable: Judgeable, name: str) -> tuple[Cycle, str | Refusal]:
        """Choose a node for a pod, and count it there."""
        state, namespace = self.state, batch.namespace
        replaced = held = None
        if state.reservations:
            replaced = state.reservations.get(f"{namespace}/{name}")
        if replaced is not None:
            # What is held for the pod is not in its own way, nor what PlacePod would end: a
            # predecessor's.
            held = replaced if replaced.is_for(batch.uid) else None
            state = state.without(namespace, replaced, self._groups)
        pod = batch.shape.pod
        view = replace(self._view, snapshot=state)
        cycle = Cycle("", pod, batch.rules, judgeable, view, name, batch.uid)
        chosen = choose(cycle, batch.demand, self._preference, held)
        if isinstance(chosen, Refusal):
            return cycle, chosen
        if replaced is not None:
            ended = state.reservations.changed({f"{namespace}/{name}": None})
            state = replace(state, reservations=ended)
        labels = tuple(sorted(pod.labels.items()))
        row = ReservationRow(batch.uid, labels, chosen, requests=batch.demand.requests)
        self.state = state.adjusted(namespace, [(row, 1)], self._groups)
        return cycle, chosen

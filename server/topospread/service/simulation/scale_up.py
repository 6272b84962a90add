"""Choice of the node group to grow: each is tried on the live state, and the rules compare them.

An option is simulated as the autoscaler would carry it out: its nodes join, and its pods are placed
on them and on what there is, one by one as PlacePod would, spread and resources considered. How
they stand then is judged over the domains that exist and those that node groups could open, and
once more with as many pods again in the room that is left: those will be there before the next
scale-up. `scale_up_outcomes.py` has the rules.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.errors import DeadlineExceeded, FieldViolation, InvalidRequest
from topospread.index.overlay import Overlay, apply_overlay
from topospread.kube.objects import DO_NOT_SCHEDULE
from topospread.kube.violations import invalid, required
from topospread.service.decisions.extension_points import spread
from topospread.service.simulation.openable_domains import constraints_of, openable_domains
from topospread.service.simulation.request import NodeGroup, expand_group
from topospread.service.simulation.run import PlacementOptions, PodBatch, place_batches
from topospread.service.simulation.scale_up_outcomes import (
    NONE,
    RULES,
    NextScaleUp,
    OptionChoice,
    OptionOutcome,
    Standing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.kube.objects import Node
    from topospread.kube.versions import KubernetesVersion
    from topospread.replica.view import View
    from topospread.service.decisions.engine import Engine, PodWithRequests
    from topospread.service.decisions.request import DecisionRequest
    from topospread.service.simulation.openable_domains import OpenableDomains
    from topospread.service.simulation.run import SimulationResult
    from topospread.service.simulation.scale_up_outcomes import NodeGroupOption, Prefer, Rank
    from topospread.spread.constraints import Constraint

CHECK_EVERY: Final = 8
"""Pods between two looks at the clock."""

AGAIN: Final = "-again"
"""What the names of the pods end with that are placed to see where the next ones would go."""


def choose_options(
    engine: Engine,
    request: DecisionRequest,
    options: Sequence[NodeGroupOption],
    others: Sequence[Node] = (),
    *,
    prefer: Prefer = "spread",
    refuses: bool = False,
) -> OptionChoice:
    """Try all options, and choose.

    Args:
        engine: knows shapes, rules and views.
        request: the cluster and the deadline.
        options: at least one.
        others: templates of the groups that are no option.
        prefer: what decides first among options that place as many pods.
        refuses: choose none where none places a pod; otherwise all of them, for others to choose.

    Raises:
        InvalidRequest: there is no option, or one cannot be read.
        NotFound, Unavailable: the cluster cannot be asked.
        DeadlineExceeded: not all options were tried in time.
    """
    replica, view = engine.replicas.resolve(request.cluster, request.consistency, request.deadline)
    reader = _PodReader(engine, request, view.snapshot.version)
    batches = reader.read(options)
    every = [pod for of_option in batches for each in of_option for pod in each.judged]
    view = engine.with_groups_counted(every, replica, view)
    between = _between(request.deadline)
    growing = [option.template for option in options if option.template is not None]
    constraints = constraints_of(chain.from_iterable(batches), view.snapshot)
    openable = openable_domains(view, constraints, growing, others, between)
    outcomes: list[OptionOutcome | None] = [None] * len(options)
    # Those with most pods first: what cannot catch up any more is not tried.
    order = sorted(range(len(options)), key=lambda n: (-len(options[n].pods), n))
    trial = _Trial(view, openable, prefer, between)
    if trial.pods_may_wait:
        trial.next = _Next(options[order[0]], reader)
    for number in order:
        outcomes[number] = trial.outcome(options[number], batches[number])
    found = [outcome for outcome in outcomes if outcome is not None]
    choice = OptionChoice(view.token, found, prefer)
    if choice.helps:
        choice.best = [n for n, outcome in enumerate(found) if outcome.rank(prefer) == trial.best]
    elif not refuses:
        choice.best = range(len(options))
    return choice


@dataclass(frozen=True, slots=True)
class _Next:
    """The scale-up to come after an option that leaves pods: of the option that has most.

    Attributes:
        option: has the most pods.
        reader: of the pods.
    """

    option: NodeGroupOption
    reader: _PodReader

    def left_by(self, option: NodeGroupOption) -> Sequence[PodBatch]:
        """The pods that an option leaves to this one, where this one has all of its pods, too."""
        own = set(option.pods)
        if not own.issubset(self.option.pods):
            return ()
        left = [pod for pod in self.option.pods if pod not in own]
        return self.reader.batches(replace(self.option, pods=left))


class _Trial:
    """Options tried one after the other.

    Attributes:
        best: the rank of the best so far.
        next: what comes after an option that leaves pods; None where these may not wait.
    """

    def __init__(
        self,
        view: View,
        openable: Mapping[Constraint, OpenableDomains],
        prefer: Prefer,
        between: Callable[[], None],
    ) -> None:
        self._view = view
        self._openable = openable
        self._prefer = prefer
        self._between = between
        self._before = RULES[prefer].index("spread to come")
        self.best: Rank = ()
        self.next: _Next | None = None

    @property
    def pods_may_wait(self) -> bool:
        """Whether pods that an option leaves are placed later in any case.

        A hard constraint may refuse them for good once another domain is open.
        """
        of_zones = [each for each, domains in self._openable.items() if not domains.per_node]
        return bool(of_zones) and not any(_is_hard(each) for each in of_zones)

    def outcome(self, option: NodeGroupOption, batches: Sequence[PodBatch]) -> OptionOutcome:
        """Try an option, as far as it may be the best."""
        left = self.next.left_by(option) if self.next is not None else ()
        could = NextScaleUp(sum(len(each.names) for each in left))
        if self.best and self.best < OptionOutcome(option, len(option.pods), then=could).rank(
            self._prefer
        ):
            return OptionOutcome(option, None)
        found = self._grown(self._view, option, batches)
        state, then = found.after, NONE
        if self.next is not None and left:
            state, then = self._then(self.next.option, left, state)
        every = [*batches, *left]
        constraints = constraints_of(every, found.before)
        outcome = OptionOutcome(
            option,
            len(found.placements),
            self._standing(constraints, state),
            skew=sum(self._skew(each, state) for each in constraints),
            then=then,
            reason=found.pending[0].refusal.message if found.pending else "",
            not_modelled=found.not_modelled,
        )
        before = outcome.rank(self._prefer)[: self._before]
        if not self.best or before <= self.best[: self._before]:
            more = [replace(each, names=[f"{n}{AGAIN}" for n in each.names]) for each in every]
            to_come = self._placed(replace(self._view, snapshot=state), Overlay(), more).after
            outcome = replace(outcome, to_come=self._standing(constraints, to_come))
            rank = outcome.rank(self._prefer)
            self.best = min(self.best, rank) if self.best else rank
        return outcome

    def _grown(
        self, view: View, option: NodeGroupOption, batches: Sequence[PodBatch]
    ) -> SimulationResult:
        """The nodes of an option join, and pods are placed."""
        assert option.template is not None, "options were checked"
        group = NodeGroup(option.group, option.template, option.count)
        nodes = expand_group(group, option.count, lambda name: view.snapshot.slot(name) >= 0)
        found = self._placed(view, Overlay(joined=nodes), batches)
        found.joined = [[node.name for node in nodes]]
        return found

    def _then(
        self, option: NodeGroupOption, left: Sequence[PodBatch], state: Snapshot
    ) -> tuple[Snapshot, NextScaleUp]:
        """The state after the next scale-up, with no more of its nodes than it needs."""
        found = self._grown(replace(self._view, snapshot=state), option, left)
        used = {placement.node for placement in found.placements}
        idle = [name for name in found.joined[0] if name not in used]
        after, _ = apply_overlay(found.after, Overlay(gone=idle), found.after.groups)
        return after, NextScaleUp(len(found.placements), option.count - len(idle))

    def _placed(
        self, view: View, changes: Overlay, batches: Sequence[PodBatch]
    ) -> SimulationResult:
        return place_batches(view, changes, batches, PlacementOptions(between=self._between))

    def _standing(self, constraints: Iterable[Constraint], state: Snapshot) -> Standing:
        hard: list[int] = []
        soft: list[int] = []
        for constraint in constraints:
            if self._openable[constraint].per_node:
                continue
            pods, minimum = self._counts(constraint, state)
            past = [count - minimum - constraint.max_skew for count in pods]
            (hard if _is_hard(constraint) else soft).extend(each for each in past if each > 0)
        return Standing(tuple(sorted(hard, reverse=True)), tuple(sorted(soft, reverse=True)))

    def _skew(self, constraint: Constraint, state: Snapshot) -> int:
        pods, minimum = self._counts(constraint, state)
        return max(pods, default=0) - minimum

    def _counts(self, constraint: Constraint, state: Snapshot) -> tuple[Sequence[int], int]:
        """The pods of each domain that exists or could be opened, and the global minimum."""
        counts = spread(constraint, state).counts
        opened = self._openable[constraint].values.difference(counts)
        pods = [*counts.values(), *(0 for _ in opened)]
        return pods, min(pods, default=0) if len(pods) >= constraint.min_domains else 0


def _is_hard(constraint: Constraint) -> bool:
    return constraint.when_unsatisfiable == DO_NOT_SCHEDULE


def _between(deadline: float) -> Callable[[], None]:
    """A function to call between pods: yields to other threads, and stops at the deadline."""
    pods = 0

    def between() -> None:
        nonlocal pods
        pods += 1
        if pods % CHECK_EVERY == 0:
            time.sleep(0)
            if time.monotonic() > deadline:
                raise DeadlineExceeded("the deadline passed before all options were tried")

    return between


class _PodReader:
    """Reads the pods of options; one that comes in several is read once."""

    def __init__(
        self, engine: Engine, request: DecisionRequest, version: KubernetesVersion
    ) -> None:
        self._engine = engine
        self._request = request
        self._version = version
        self._known: dict[bytes, PodWithRequests] = {}
        self._wrong: list[FieldViolation] = []

    def read(self, options: Sequence[NodeGroupOption]) -> list[list[PodBatch]]:
        """Read the pods of each option, by shape and demand, in the order of the first of each.

        Raises:
            InvalidRequest: everything that cannot be read.
        """
        if not options:
            raise InvalidRequest.of([required("options", "there is nothing to choose from")])
        found = [self._batches(number, option) for number, option in enumerate(options)]
        if self._wrong:
            raise InvalidRequest.of(self._wrong)
        return found

    def _batches(self, number: int, option: NodeGroupOption) -> list[PodBatch]:
        path = f"options[{number}]"
        if option.template is None:
            text = f"no template node is given for group {option.group!r}"
            self._wrong.append(required(f"{path}.nodeGroupId", text))
        most = self._engine.limits.simulated_nodes
        if not 0 <= option.count <= most:
            text = f"must be between 0 and {most}"
            self._wrong.append(invalid(f"{path}.nodeCount", option.count, text))
        return self.batches(option, path)

    def batches(self, option: NodeGroupOption, path: str = "") -> list[PodBatch]:
        """The pods of an option, by shape and demand."""
        names: dict[tuple[object, object, bool], tuple[PodWithRequests, list[str]]] = {}
        for position, encoded in enumerate(option.pods):
            checkpoint()
            pod = self._pod(encoded, f"{path}.podBytes[{position}]")
            if pod is not None:
                alike = names.setdefault((pod.pod.shape, pod.demand, not pod.pod.uid), (pod, []))
                alike[1].append(pod.pod.name)
        return [
            PodBatch(
                pod.pod.shape,
                self._engine.rules_of(pod.pod, self._request, self._version),
                pod.demand,
                tuple(called),
            )
            for pod, called in names.values()
        ]

    def _pod(self, encoded: bytes, path: str) -> PodWithRequests | None:
        pod = self._known.get(encoded)
        if pod is None:
            try:
                pod = self._engine.with_requests(self._request, encoded)
            except InvalidRequest as wrong:
                self._wrong += wrong.below(path)
                return None
            self._known[encoded] = pod
        return pod

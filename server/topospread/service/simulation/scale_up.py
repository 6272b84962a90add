"""Choice of the node group to grow: each is tried on the live state; the one that places most wins.

An option is simulated as the autoscaler would carry it out: its nodes join, and its pods are placed
on them and on what there is, one by one as PlacePod would, spread and resources considered. Options
are compared by pods placed (most), then nodes (fewest), then the highest skew that any of the pods'
constraints is left with (lowest).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.errors import DeadlineExceeded, FieldViolation, InvalidRequest
from topospread.index.overlay import Overlay
from topospread.kube.violations import invalid, required
from topospread.service.decisions.extension_points import all_constraints, spread
from topospread.service.simulation.request import NodeGroup, expand_group
from topospread.service.simulation.run import PlacementOptions, PodBatch, place_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.kube.objects import Node
    from topospread.kube.versions import KubernetesVersion
    from topospread.replica.view import View
    from topospread.service.decisions.engine import Engine, PodWithRequests
    from topospread.service.decisions.request import DecisionRequest
    from topospread.service.simulation.run import SimulationResult

CHECK_EVERY: Final = 8
"""Pods between two looks at the clock."""

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class NodeGroupOption:
    """A node group that could grow.

    Attributes:
        count: nodes that would join.
        pods: those that it would help, each the bytes of a v1.Pod.
        template: of its nodes; None when it is not known.
    """

    group: str
    count: int
    pods: Sequence[bytes]
    template: Node | None


@dataclass(frozen=True, slots=True)
class OptionOutcome:
    """The result of trying an option.

    Attributes:
        placed: pods that found a node; None when it was not tried, because it could not win.
        skew: the highest that a constraint is left with.
        reason: why the first of the others found none; empty when all did.
        not_modelled: what was not looked at.
    """

    option: NodeGroupOption
    placed: int | None
    skew: int = 0
    reason: str = ""
    not_modelled: Sequence[str] = ()

    @property
    def rank(self) -> tuple[int, int, int]:
        """The lowest is the best."""
        return -(self.placed or 0), self.option.count, self.skew

    @property
    def text(self) -> str:
        """The outcome in words."""
        nodes = f"{self.option.count} node{'' if self.option.count == 1 else 's'}"
        pods = len(self.option.pods)
        if self.placed is None:
            return f"{self.option.group} has no more than {pods} pods to place on {nodes}"
        text = f"{self.option.group} places {self.placed} of {pods} pods with {nodes}"
        text += f", skew {self.skew}"
        if self.not_modelled:
            text += f", not looked at: {', '.join(self.not_modelled)}"
        return f"{text} ({self.reason})" if self.reason else text


@dataclass(slots=True, eq=False)
class OptionChoice:
    """The choice between options.

    Attributes:
        token: of the revision.
        outcomes: one an option, in the request's order.
        best: positions of those that are equally good; none where the choice refuses them all.
    """

    token: str
    outcomes: Sequence[OptionOutcome]
    best: Sequence[int] = field(default_factory=list)

    @property
    def helps(self) -> bool:
        """Whether any option places a pod."""
        return any(outcome.placed for outcome in self.outcomes)

    @property
    def text(self) -> str:
        """The reason in words: what was chosen, and what came next."""
        chosen = "; ".join(self.outcomes[number].text for number in self.best[:_SHOWN])
        others = sorted(
            (each for number, each in enumerate(self.outcomes) if number not in self.best),
            key=lambda outcome: outcome.rank,
        )
        left = "; ".join(outcome.text for outcome in others[:_SHOWN])
        text = f"chosen of {len(self.outcomes)} options: {chosen or 'none'}"
        return f"{text}. Others: {left}" if left else text


def choose_options(
    engine: Engine,
    request: DecisionRequest,
    options: Sequence[NodeGroupOption],
    *,
    refuses: bool = False,
) -> OptionChoice:
    """Try all options, and choose.

    Args:
        engine: knows shapes, rules and views.
        request: the cluster and the deadline.
        options: at least one.
        refuses: choose none where none places a pod; otherwise all of them, for others to choose.

    Raises:
        InvalidRequest: there is no option, or one cannot be read.
        NotFound, Unavailable: the cluster cannot be asked.
        DeadlineExceeded: not all options were tried in time.
    """
    replica, view = engine.replicas.resolve(request.cluster, request.consistency, request.deadline)
    batches = _PodReader(engine, request, view.snapshot.version).read(options)
    every = [pod for of_option in batches for each in of_option for pod in each.judged]
    view = engine.with_groups_counted(every, replica, view)
    between = _between(request.deadline)
    outcomes: list[OptionOutcome | None] = [None] * len(options)
    best: tuple[int, int] | None = None
    # Those with most pods first: what cannot catch up any more is not tried.
    for number in sorted(range(len(options)), key=lambda n: (-len(options[n].pods), n)):
        option = options[number]
        if best is not None and (-len(option.pods), option.count) > best:
            outcomes[number] = OptionOutcome(option, None)
            continue
        tried = outcomes[number] = _tried(view, option, batches[number], between)
        reached = tried.rank[:2]
        best = reached if best is None else min(best, reached)
    choice = OptionChoice(view.token, [outcome for outcome in outcomes if outcome is not None])
    if choice.helps:
        lowest = min(outcome.rank for outcome in choice.outcomes if outcome.placed is not None)
        choice.best = [
            number
            for number, outcome in enumerate(choice.outcomes)
            if outcome.placed is not None and outcome.rank == lowest
        ]
    elif not refuses:
        choice.best = range(len(options))
    return choice


def _tried(
    view: View, option: NodeGroupOption, batches: Sequence[PodBatch], between: Callable[[], None]
) -> OptionOutcome:
    assert option.template is not None, "options were checked"
    group = NodeGroup(option.group, option.template, option.count)
    nodes = expand_group(group, option.count, lambda name: view.snapshot.slot(name) >= 0)
    found = place_batches(view, Overlay(joined=nodes), batches, PlacementOptions(between=between))
    reason = found.pending[0].refusal.message if found.pending else ""
    return OptionOutcome(option, len(found.placements), _skew(found), reason, found.not_modelled)


def _skew(found: SimulationResult) -> int:
    seen = {
        constraint: spread(constraint, found.after).skew
        for batch in found.batches
        for constraint in all_constraints(
            batch.shape.effective_constraints(batch.rules, found.before).constraints
        )
    }
    return max(seen.values(), default=0)


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

"""What comes of the options to grow a node group, the rules that compare them, and the choice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.kube.objects import Node

_SHOWN: Final = 3

Prefer = Literal["spread", "nodes"]
"""What decides first among options that place as many pods: an even spread, or fewer nodes."""

Excess = tuple[int, ...]
"""Pods past maxSkew of each domain that has some, the most first.

Compared as tuples: what is done about the fullest domain counts before all others.
"""

Rank = tuple[tuple[Excess, Excess], ...]
"""What the rules compare, in their order."""


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


class Standing(NamedTuple):
    """How pods stand over the domains that exist and those that could be opened.

    Attributes:
        hard, soft: pods past maxSkew, of the constraints with DoNotSchedule and ScheduleAnyway.
    """

    hard: Excess = ()
    soft: Excess = ()

    @property
    def text(self) -> str:
        """The same in words; empty where all are within maxSkew."""
        parts = [
            f"{', '.join(map(str, excess[:_SHOWN]))}{' …' if len(excess) > _SHOWN else ''}"
            f" past maxSkew{of}"
            for of, excess in (("", self.hard), (" (soft)", self.soft))
            if excess
        ]
        return " and ".join(parts)


BALANCED: Final = Standing()
"""All within maxSkew."""


class NextScaleUp(NamedTuple):
    """Pods that the next scale-up would place, and the nodes that it needs for them."""

    pods: int = 0
    nodes: int = 0


NONE: Final = NextScaleUp()


@dataclass(frozen=True, slots=True)
class OptionOutcome:
    """The result of trying an option.

    Attributes:
        placed: pods that found a node; None when it was not tried, because it could not win.
        after: how they stand.
        to_come: how they stand when as many pods again have filled the room that is left; None
            where the option was worse before that.
        skew: the sum over all constraints.
        then: what another option would place of the pods that this one leaves waiting; all else is
            judged with it.
        reason: why the first of the others found no node; empty when all did.
        not_modelled: what was not looked at.
    """

    option: NodeGroupOption
    placed: int | None
    after: Standing = BALANCED
    to_come: Standing | None = None
    skew: int = 0
    then: NextScaleUp = NONE
    reason: str = ""
    not_modelled: Sequence[str] = ()

    @property
    def text(self) -> str:
        """The outcome in words."""
        nodes, pods = _nodes(self.option.count), len(self.option.pods)
        if self.placed is None:
            return f"{self.option.group} has no more than {pods} pods to place on {nodes}"
        parts = [f"places {self.placed} of {pods} pods with {nodes}"]
        if self.then.pods:
            parts.append(f"the next scale-up {self.then.pods} more with {_nodes(self.then.nodes)}")
        parts.append(f"skew {self.skew}")
        if self.after.text:
            parts.append(self.after.text)
        if self.to_come is not None and self.to_come != self.after:
            parts.append(f"with as many again {self.to_come.text or 'within maxSkew'}")
        if self.not_modelled:
            parts.append(f"not looked at: {', '.join(self.not_modelled)}")
        text = f"{self.option.group} {', '.join(parts)}"
        return f"{text} ({self.reason})" if self.reason else text

    def rank(self, prefer: Prefer) -> Rank:
        """What the rules compare, in their order; the lowest is the best.

        Of an option that was not tried it is what it could reach.
        """
        placed = len(self.option.pods) if self.placed is None else self.placed
        measures: dict[str, tuple[Excess, Excess]] = {
            "pods": ((-placed - self.then.pods,), ()),
            "nodes": ((self.option.count + self.then.nodes,), ()),
            "spread": self.after,
            "spread to come": self.to_come or BALANCED,
            "skew": ((self.skew,), ()),
        }
        return tuple([measures[rule] for rule in RULES[prefer]])


def _nodes(number: int) -> str:
    return f"{number} node{'' if number == 1 else 's'}"


RULES: Final[Mapping[Prefer, Sequence[str]]] = {
    "spread": ("pods", "spread", "spread to come", "nodes", "skew"),
    "nodes": ("pods", "nodes", "spread", "spread to come", "skew"),
}
"""What is compared, in the order in which it decides."""


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
    prefer: Prefer
    best: Sequence[int] = field(default_factory=list)

    @property
    def helps(self) -> bool:
        """Whether any option places a pod."""
        return any(outcome.placed for outcome in self.outcomes)

    @property
    def text(self) -> str:
        """The reason in words: what was chosen, by which rule, and what came next."""
        chosen = "; ".join(self.outcomes[number].text for number in self.best[:_SHOWN])
        others = sorted(
            (each for number, each in enumerate(self.outcomes) if number not in set(self.best)),
            key=lambda outcome: outcome.rank(self.prefer),
        )
        left = "; ".join(outcome.text for outcome in others[:_SHOWN])
        text = f"chosen of {len(self.outcomes)} options"
        if self.helps and others:
            text += f" by {self._rule(others[0])}"
        text += f": {chosen or 'none'}"
        return f"{text}. Others: {left}" if left else text

    def _rule(self, next_best: OptionOutcome) -> str:
        """The first rule by which the chosen differ from the best of the others."""
        chosen = self.outcomes[self.best[0]].rank(self.prefer)
        pairs = zip(RULES[self.prefer], chosen, next_best.rank(self.prefer), strict=True)
        return next(rule for rule, own, other in pairs if own != other)

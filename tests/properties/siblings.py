"""One pod judged again and again, as a server judges the pods of one workload."""

from dataclasses import dataclass

from tests.conformance.cases import Decision
from tests.conformance.core import pod_of
from tests.conformance.objects import rules_of
from tests.properties.expected import Verdict
from topospread.index.builder import Builder
from topospread.service.shapes import Shape
from topospread.spread.classes import judge
from topospread.spread.verdicts import VERDICTS

ALL = 1000
"""More nodes than any random cluster has."""


@dataclass(frozen=True)
class Judgement:
    """What judging node classes says.

    Attributes:
        verdicts: nodes by (code, reasons).
        top: (name, raw, normalized) of all feasible nodes, best first.
    """

    verdicts: dict[Verdict, int]
    top: list[tuple[str, int, int]]


class Sibling:
    """A pod whose shape is kept, with all that follows from it."""

    def __init__(self, case: Decision) -> None:
        self._shape = Shape(pod_of(case.pod))
        self._rules = rules_of(case.args, case.gates)

    def judged(self, builder: Builder) -> Judgement | None:
        """The judgement at the newest snapshot; None where nodes must be judged one by one."""
        judgeable = self._shape.judgeable(self._rules, builder.snapshot)
        if judgeable.constraints.hard.error or judgeable.constraints.soft.error:
            return None
        snapshot = builder.snapshot
        if snapshot.missing(judgeable.groups):
            snapshot = builder.keep(judgeable.groups)
        plan = judgeable.plan(snapshot)
        if plan is None:
            return None
        found = judge(plan, snapshot, ALL, lambda: 0.0)
        names = snapshot.nodes.names
        return Judgement(
            verdicts={
                (VERDICTS[verdict].code.label, VERDICTS[verdict].reasons): nodes
                for verdict, nodes in enumerate(found.verdicts)
                if nodes
            },
            top=[(names[slot], raw, normalized) for slot, raw, normalized in found.top],
        )

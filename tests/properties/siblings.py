"""One pod judged again and again, as a server judges the pods of one workload."""

from dataclasses import dataclass

from tests.conformance.cases import Decision
from tests.conformance.core import pod_of
from tests.conformance.objects import rules_of
from tests.properties.expected import Verdict
from topospread.index.builder import Builder
from topospread.service.decisions.pods import PodShape, plan_of
from topospread.spread.classes import judge
from topospread.spread.verdicts import VERDICTS

ALL = 1000
"""More nodes than any random cluster has."""


@dataclass(frozen=True)
class Judgement:
    """The judgement of node classes.

    Attributes:
        verdicts: nodes by (code, reasons).
        top: (name, raw, normalized) of all feasible nodes, best first.
    """

    verdicts: dict[Verdict, int]
    top: list[tuple[str, int, int]]


class Sibling:
    """A pod whose shape is kept, with all that follows from it."""

    def __init__(self, case: Decision) -> None:
        self._shape = PodShape(pod_of(case.pod))
        self._rules = rules_of(case)

    def judged(self, builder: Builder) -> Judgement | None:
        """The judgement at the newest snapshot; None where nodes must be judged one by one."""
        effective = self._shape.effective_constraints(self._rules, builder.snapshot)
        if effective.constraints.hard.error or effective.constraints.soft.error:
            return None
        snapshot = builder.snapshot
        if snapshot.missing(effective.groups):
            snapshot = builder.ensure_counted(effective.groups)
        plan = plan_of(effective, snapshot)
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

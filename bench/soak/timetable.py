"""The timetable of a simulated day, minute by minute, and the number of its changes.

For 5,000 nodes and 50,000 pods of 500 applications with a tail as Zipf's law has it. A pod that
takes another's place makes 4 changes: it waits, is bound, and the other one terminates and goes.

    each application has one new revision              50,000 × 4 =  200,000
    the ReplicaSets of those, the old ones              500 × 2   =    1,000
    a zone does not answer for two hours: a third
      of the nodes, tainted and back                  1,667 × 2   =    3,300
      their pods go elsewhere                        16,700 × 4   =   66,700
    a tenth of the nodes is cordoned, drained, gone,
      and others come with other names                  500 × 3   =    1,500
      their pods                                      5,000 × 4   =   20,000
    each hour a twentieth of the applications grows by
      three tenths, and shrinks again           24 × 750 × 4      =   72,000
    100 jobs an hour, each of 10 pods that wait, run,
      succeed and go                            24 × 1,000 × 4    =   96,000
    6 namespaces an hour come with three applications
      of 4 pods, and go                         24 × 6 × (48 + 12) =   8,600
                                                                  ---------
                                                         about     470,000

Other sizes have as many of everything as fits theirs, and in fewer hours less happens; but each run
has its outage, which begins when half of the time is over. Heartbeats are not among the changes:
feeders do not write what no decision looks at.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from random import Random
from typing import TYPE_CHECKING, Final

from bench.soak.simulated_cluster import ChangeSet, SimulatedApp, SimulatedCluster, SimulatedNode
from bench.soak.templates import ZONES, Template

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MINUTES_A_DAY: Final = 1440
"""Minutes."""

PODS_AN_APP: Final = 100
TAIL: Final = 10
"""The larger, the less the largest applications stand out."""

ROLLED: Final = 10
"""Minutes that a new revision takes to have all pods."""

CHURN: Final = 0.1
"""Share of the nodes that is replaced in a day."""

GROWS: Final = 1 / 20
GROWTH: Final = 0.3
GROWN: Final = 30
"""Which share of the applications grows each hour, by how much, and minutes until it shrinks."""

JOB_PODS: Final = 10
JOBS: Final = 100 / 60 / 50_000
"""Jobs a minute, for each pod of the cluster."""

JOB_LASTS: Final = 5
"""Minutes."""

PREVIEWS: Final = 6 / 60 / 50_000
"""Namespaces that come in a minute, for each pod of the cluster."""

PREVIEW_LASTS: Final = 30
PREVIEW_APPS: Final = 3
PREVIEW_PODS: Final = 4

NAMESPACES: Final = 25
"""Where the lasting applications are."""


@dataclass(frozen=True, slots=True)
class Outage:
    """The outage of a zone, in minutes of the run.

    Attributes:
        evicts: the pods of its nodes are evicted from here on,
        evicted: up to here.
    """

    begins: int
    evicts: int
    evicted: int
    ends: int

    @classmethod
    def of(cls, minutes: int) -> Outage:
        """The outage of a run: from its middle on a twelfth of it; at least six minutes."""
        begins, lasts = minutes // 2, max(6, minutes // 12)
        evicts = begins + max(1, min(5, lasts // 4))
        return cls(begins, evicts, evicts + max(1, min(10, lasts // 4)), begins + lasts)


class Timetable:
    """The timetable of one run.

    Args:
        nodes, pods: how many there are when nothing happens.
        minutes: that are lived through.
        seed: of everything that happens.
    """

    def __init__(self, nodes: int, pods: int, minutes: int, seed: int) -> None:
        self.minutes = minutes
        self._pods = pods
        self._outage = Outage.of(minutes)
        self._random = Random(seed)
        self._cluster = SimulatedCluster(self._random)
        self._lasting: list[SimulatedApp] = []
        self._rolling: dict[SimulatedApp, int] = {}
        self._grown: list[tuple[int, SimulatedApp]] = []
        self._leaving: list[tuple[int, SimulatedNode]] = []
        self._passing: list[tuple[int, SimulatedApp]] = []
        self._renewed = self._jobs = self._previews = 0
        self._joined = nodes
        for number in range(nodes):
            self._cluster.join(f"node-{number:06}", ZONES[number % len(ZONES)])

    def first(self) -> Iterator[ChangeSet]:
        """The cluster as it is when the day begins: its nodes, then all else."""
        yield self._cluster.written()
        self._create_applications()
        yield self._cluster.written()
        self._cluster.settle()
        yield self._cluster.written()

    def through(self) -> Iterator[ChangeSet]:
        """The changes of each minute."""
        for minute in range(self.minutes):
            self._cluster.settle()
            self._nodes(minute)
            self._outages(minute)
            self._revisions(minute)
            self._sizes(minute)
            self._batch(minute)
            self._spaces(minute)
            yield self._cluster.written()

    def last(self) -> Iterator[ChangeSet]:
        """End what is under way; then all is as it was, but for names."""
        for app in list(self._rolling):
            self._cluster.roll(app, len(app.pods))
        for _, app in self._grown:
            self._cluster.scale(app, app.wanted)
        for _, app in self._passing:
            self._end(app)
        for _, node in self._leaving:
            self._cluster.evict(node)
            self._replace(node)
        yield self._cluster.written()
        self._cluster.settle()
        yield self._cluster.written()

    def templates(self) -> Sequence[Template]:
        """The templates of all present pods."""
        return [app.template for app in self._cluster.apps]

    # ------------------------------ minute by minute

    def _create_applications(self) -> None:
        count = max(5, self._pods // PODS_AN_APP)
        weights = [1 / (number + TAIL) for number in range(count)]
        for number, weight in enumerate(weights):
            template = Template(f"team-{number % NAMESPACES}", f"app-{number:04}", 1, number)
            wanted = max(1, round(self._pods * weight / sum(weights)))
            self._lasting.append(self._cluster.start(template, wanted))
        self._random.shuffle(self._lasting)

    def _nodes(self, minute: int) -> None:
        """Nodes are cordoned, drained a minute later, and replaced three minutes later."""
        churn = len(self._cluster.nodes) * CHURN / MINUTES_A_DAY
        for _ in range(_due(churn, minute)):
            staying = [n for n in self._cluster.nodes.values() if not n.cordoned]
            node = self._random.choice(staying)
            if not node.unreachable:
                self._cluster.cordon(node)
                self._leaving.append((minute, node))
        for since, node in self._leaving:
            if minute == since + 1:
                self._cluster.evict(node)
            elif minute == since + 3:
                self._replace(node)
        self._leaving = [each for each in self._leaving if minute < each[0] + 3]

    def _replace(self, node: SimulatedNode) -> None:
        self._cluster.leave(node)
        self._cluster.join(f"node-{self._joined:06}", node.zone)
        self._joined += 1

    def _outages(self, minute: int) -> None:
        outage, zone = self._outage, ZONES[0]
        if minute == outage.begins:
            self._cluster.lose(zone)
        elif outage.evicts <= minute < outage.evicted:
            lost = [node for node in self._cluster.nodes.values() if node.unreachable]
            left = outage.evicted - minute
            having = [node for node in lost if self._cluster.running(node)]
            for node in having[: ceil(len(having) / left)]:
                self._cluster.evict(node)
        elif minute == outage.ends:
            self._cluster.find(zone)

    def _revisions(self, minute: int) -> None:
        for _ in range(_due(len(self._lasting) / MINUTES_A_DAY, minute)):
            app = self._lasting[self._renewed % len(self._lasting)]
            self._renewed += 1
            if app not in self._rolling:
                self._cluster.renew(app)
                self._rolling[app] = ceil(len(app.pods) / ROLLED)
        for app, most in list(self._rolling.items()):
            if not self._cluster.roll(app, most):
                del self._rolling[app]

    def _sizes(self, minute: int) -> None:
        if minute % 60 == 0:
            for app in self._random.sample(self._lasting, ceil(len(self._lasting) * GROWS)):
                self._cluster.scale(app, app.wanted + ceil(app.wanted * GROWTH))
                self._grown.append((minute + GROWN, app))
        for until, app in self._grown:
            if until == minute:
                self._cluster.scale(app, app.wanted)
        self._grown = [each for each in self._grown if each[0] > minute]

    def _batch(self, minute: int) -> None:
        self._pass(minute)
        for _ in range(_due(self._pods * JOBS, minute)):
            self._jobs += 1
            template = Template("batch", f"job-{self._jobs:06}", 0, self._jobs)
            self._passing.append((minute + JOB_LASTS, self._cluster.start(template, JOB_PODS)))

    def _spaces(self, minute: int) -> None:
        for _ in range(_due(self._pods * PREVIEWS, minute)):
            self._previews += 1
            for number in range(PREVIEW_APPS):
                template = Template(f"preview-{self._previews:05}", f"app-{number}", 1, number)
                app = self._cluster.start(template, PREVIEW_PODS)
                self._passing.append((minute + PREVIEW_LASTS, app))

    def _pass(self, minute: int) -> None:
        for until, app in self._passing:
            if until == minute:
                self._end(app)
        self._passing = [each for each in self._passing if each[0] > minute]

    def _end(self, app: SimulatedApp) -> None:
        if app.template.revision:
            self._cluster.end(app)
        else:
            self._cluster.finish(app)


def _due(rate: float, minute: int) -> int:
    """The number of events in a minute, given their average."""
    return int(rate * (minute + 1)) - int(rate * minute)

"""The Inspector: all constraints of clusters, one inspection for all who ask the same.

Under the server's own settings each cluster has one, for as long as it is followed; under settings
of callers there are few at once, which end with the last call that reads them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from topospread.cache import BUDGETS, MIB
from topospread.errors import QueueFull
from topospread.service.decisions.request import NO_OVERRIDE
from topospread.service.inspecting.cluster_inspector import ClusterInspector

if TYPE_CHECKING:
    from collections.abc import Hashable

    from topospread.checkpoints import Turn
    from topospread.replica.replica import Replica
    from topospread.replica.view import Consistency
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.request import SettingsOverride
    from topospread.service.inspecting.cluster_inspector import Inspection

MAX_CONSTRAINTS: Final = 20_000
"""Constraints of a cluster that are looked at, unless a setting says otherwise."""

MAX_OWN_SETTINGS: Final = 8
"""Inspections of the process under settings of callers: each costs what the server's own does."""


@dataclass(slots=True)
class _OwnInspection:
    """An inspection under settings of callers, and how many calls read it."""

    inspector: ClusterInspector
    readers: int = 0


class Inspector:
    """Inspects the clusters that an engine decides for.

    Args:
        engine: knows the states and the rules.
        most: constraints of a cluster that are looked at.
        turn: of all long computations of the process, for those of streams, which have none.
    """

    def __init__(
        self, engine: Engine, most: int = MAX_CONSTRAINTS, turn: Turn | None = None
    ) -> None:
        self.turn: Final = turn
        self._engine = engine
        self._most = most
        self._lock = threading.Lock()
        self._kept: dict[str, ClusterInspector] = {}
        self._own: dict[Hashable, _OwnInspection] = {}
        self._budget = BUDGETS["inspections"]

    def reader(self, cluster: str, settings: SettingsOverride = NO_OVERRIDE) -> InspectionReader:
        """A call's part in the inspection of a cluster; to be closed."""
        return InspectionReader(self, self._engine, cluster, settings)

    def inspect(
        self,
        cluster: str,
        consistency: Consistency,
        deadline: float,
        settings: SettingsOverride = NO_OVERRIDE,
    ) -> Inspection:
        """All constraints once; see InspectionReader.inspect."""
        with self.reader(cluster, settings) as reader:
            return reader.inspect(consistency, deadline)

    def of(self, replica: Replica) -> ClusterInspector:
        """The inspector of the cluster that a replica follows, under the server's own settings."""
        with self._lock:
            known = self._kept.get(replica.cluster)
            if known is None or known.replica is not replica:
                running = {id(each) for each in self._engine.replicas.running()}
                kept = self._kept.items()
                self._kept = {name: each for name, each in kept if id(each.replica) in running}
                known = ClusterInspector(self._engine, replica, NO_OVERRIDE, self._most)
                self._kept[replica.cluster] = known
            return known

    def take(self, replica: Replica, settings: SettingsOverride) -> ClusterInspector:
        """The inspector under some settings, for one more reader; to be let go.

        Raises:
            QueueFull: as many as may be are in use under other settings.
        """
        if settings == NO_OVERRIDE:
            return self.of(replica)
        key = _key(replica, settings)
        with self._lock:
            shared = self._own.get(key)
            if shared is None:
                if len(self._own) >= MAX_OWN_SETTINGS:
                    raise QueueFull(
                        f"constraints are inspected under {MAX_OWN_SETTINGS} settings of other "
                        "calls already, as many as may be at once: ask without settings, or later"
                    )
                made = ClusterInspector(
                    self._engine, replica, settings, self._most, self._check_size
                )
                shared = self._own[key] = _OwnInspection(made)
                self._budget.add(made)
            shared.readers += 1
            return shared.inspector

    def let_go(self, inspector: ClusterInspector, settings: SettingsOverride) -> None:
        """Note that a reader needs it no more; the last one's ends."""
        key = _key(inspector.replica, settings)
        with self._lock:
            shared = self._own.get(key)
            if shared is not None and shared.inspector is inspector:
                shared.readers -= 1
                if not shared.readers:
                    del self._own[key]

    def _check_size(self, inspector: ClusterInspector, size: int) -> None:
        """Refuse what would be too much beside others; one alone is bounded by its constraints."""
        with self._lock:
            own = [each.inspector for each in self._own.values()]
        others = sum([each.size for each in own if each is not inspector])
        if others and others + size > self._budget.most:
            raise QueueFull(
                f"constraints that are inspected under settings of calls would take more than "
                f"{self._budget.most // MIB} MiB: ask without settings, or later"
            )


class InspectionReader:
    """A call that reads the inspections of one cluster; a context manager that lets them go."""

    def __init__(
        self, inspector: Inspector, engine: Engine, cluster: str, settings: SettingsOverride
    ) -> None:
        self._inspector = inspector
        self._engine = engine
        self._cluster = cluster
        self._settings = settings
        self._current: ClusterInspector | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._let_go()

    def _let_go(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            self._inspector.let_go(current, self._settings)

    def inspect(self, consistency: Consistency, deadline: float) -> Inspection:
        """All constraints at a state that is fresh enough.

        Raises:
            InvalidRequest: unknown settings.
            Conflict: the cluster changes faster than its constraints are counted.
            TooLarge: there are more constraints than are looked at.
            QueueFull: too much is inspected under other settings already.
            And what Replicas.resolve raises.
        """
        replica, view = self._engine.replicas.resolve(self._cluster, consistency, deadline)
        if self._current is None or self._current.replica is not replica:
            self._let_go()
            self._current = self._inspector.take(replica, self._settings)
        return self._current.inspect(view, deadline)


def _key(replica: Replica, settings: SettingsOverride) -> Hashable:
    return replica, settings.profile, frozenset(settings.gates.items()), settings.version

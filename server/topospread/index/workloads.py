"""Workloads by namespace: they decide the default constraints of pods that have none (KEP-1258)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.kube.objects import Workload

SERVICE: Final = "Service"


@dataclass(frozen=True, slots=True, eq=False)
class NamespaceWorkloads:
    """The workloads of one namespace; immutable, so its identity tells whether anything changed."""

    objects: Mapping[tuple[str, str], Workload] = field(default_factory=dict)
    services: tuple[Workload, ...] = ()

    def lookup(self, kind: str, name: str) -> Workload | None:
        """One workload by kind and name."""
        return self.objects.get((kind, name))

    def changed(self, kind: str, name: str, workload: Workload | None) -> NamespaceWorkloads:
        """The namespace after one workload changed or, with None, went."""
        objects = dict(self.objects)
        if workload is None:
            objects.pop((kind, name), None)
        else:
            objects[(kind, name)] = workload
        services = self.services
        if kind == SERVICE:
            services = tuple(w for (k, _), w in sorted(objects.items()) if k == SERVICE)
        return NamespaceWorkloads(objects, services)


NO_WORKLOADS: Final = NamespaceWorkloads()

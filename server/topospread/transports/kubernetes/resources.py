"""The kinds that are fed, as an API server names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.store.api import Kind

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind.

    Attributes:
        kind: the store's name for it.
        name: Kubernetes' name, which its lists do not repeat for each object.
        api_version: for example ``apps/v1``.
        path: of the collection over all namespaces.
        selectors: field selectors that leave out what never counts.
    """

    kind: Kind
    name: str
    api_version: str
    path: str
    selectors: tuple[str, ...] = ()

    def query(self, excluded_namespaces: Collection[str]) -> dict[str, str]:
        """The query of a list or watch without some namespaces."""
        selectors = list(self.selectors)
        if self.kind is not Kind.NODE:
            selectors += [f"metadata.namespace!={name}" for name in sorted(excluded_namespaces)]
        return {"fieldSelector": ",".join(selectors)} if selectors else {}


# Pods that have ended count nowhere; kube-scheduler's own watch leaves them out in the same way,
# and tells the end of one as a deletion.
_ENDED: Final = ("status.phase!=Failed", "status.phase!=Succeeded")

RESOURCES: Final = (
    Resource(Kind.NODE, "Node", "v1", "/api/v1/nodes"),
    Resource(Kind.SERVICE, "Service", "v1", "/api/v1/services"),
    Resource(
        Kind.REPLICATION_CONTROLLER,
        "ReplicationController",
        "v1",
        "/api/v1/replicationcontrollers",
    ),
    Resource(Kind.REPLICA_SET, "ReplicaSet", "apps/v1", "/apis/apps/v1/replicasets"),
    Resource(Kind.STATEFUL_SET, "StatefulSet", "apps/v1", "/apis/apps/v1/statefulsets"),
    Resource(Kind.POD, "Pod", "v1", "/api/v1/pods", _ENDED),
)
"""In the order in which they are listed: pods last, when what they stand on is there."""

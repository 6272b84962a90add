"""Ask a server which pods go first."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from tests.conformance.objects import object_of
from tests.servers import Peer, at_least
from tests.waiting import PATIENCE
from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector
from topospread_proto.v1 import deletion_order_pb2
from topospread_proto.v1.planner_service_pb2 import RankDeletionsRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topospread_proto.v1.planner_service_pb2 import RankDeletionsResponse

Json = dict[str, Any]


class Ranker:
    """Asks about a cluster of its own, at its newest write or about what the request gives.

    Attributes:
        revision: of the newest write.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._cluster = f"test-{secrets.token_hex(6)}"
        self.revision = ""

    def apply(self, *manifests: Json) -> None:
        """Write objects."""
        self.revision = self._peer.apply(*map(object_of, manifests), cluster=self._cluster)

    def rank(
        self,
        selector: LabelSelector | Mapping[str, str] | None = None,
        objects: Iterable[Json] = (),
        **fields: Any,
    ) -> RankDeletionsResponse:
        """The answer.

        Args:
            selector: of the pods: a message, or labels.
            objects: pods, nodes and ReplicaSets that the request gives.
            fields: others of the request.
        """
        if selector is not None and not isinstance(selector, LabelSelector):
            selector = LabelSelector(match_labels=selector)
        request = RankDeletionsRequest(
            cluster=self._cluster,
            label_selector=selector,
            consistency=at_least(self.revision) if self.revision else None,
            **fields,
        )
        for made in map(object_of, objects):
            if made.HasField("pod"):
                request.pods.append(made.pod)
            elif made.HasField("node"):
                request.nodes.append(made.node)
            else:
                request.replica_sets.append(made.replica_set)
        answer: RankDeletionsResponse = self._peer.planner.RankDeletions(request, timeout=PATIENCE)
        return answer


def kept(
    key: str, values: Sequence[str] = (), max_skew: int | None = None
) -> deletion_order_pb2.RankConstraint:
    """What pods shall stay spread over."""
    return deletion_order_pb2.RankConstraint(
        topology_key=key, limited_values=values, max_skew=max_skew
    )

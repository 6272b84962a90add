"""grpcplugin.Expander/BestOptions: decode, call the use case, encode."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from topospread.codec.cluster import node_from_proto
from topospread.codec.parsing import request
from topospread.errors import FieldViolation, InvalidRequest
from topospread.generated.cluster_autoscaler import expander_pb2 as pb
from topospread.service.asks import Ask
from topospread.service.expand import Option, choose_options
from topospread_proto.kubernetes.v1 import kubernetes_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.kube.objects import Node
    from topospread.service.engine import Engine
    from topospread.service.expand import Choice
    from topospread.telemetry.tracing import CallSpan

LOG: Final = logging.getLogger(__name__)

SERVICE: Final = "grpcplugin.Expander"
METHOD: Final = "BestOptions"

MAX_DEBUG: Final = 2000
"""Characters of an explanation: node groups may be many, and their ids long."""


class BestOptions:
    """Answers for one cluster: the protocol names none.

    Args:
        engine: knows shapes, rules and views.
        cluster: whose state options are tried on.
        refuses: answer none where no option places a pod.
    """

    def __init__(self, engine: Engine, cluster: str, *, refuses: bool = False) -> None:
        self._engine = engine
        self._refuses = refuses
        self.cluster = cluster

    def serve(
        self, asked: pb.BestOptionsRequest, deadline: float, span: CallSpan
    ) -> pb.BestOptionsResponse:
        """One call.

        Args:
            asked: the request.
            deadline: on the monotonic clock.
            span: of the call.

        Raises:
            What choose_options raises; InvalidRequest for templates that cannot be read.
        """
        ask = Ask(deadline=deadline, cluster=self.cluster)
        choice = choose_options(self._engine, ask, _options(asked), refuses=self._refuses)
        text = choice.text[:MAX_DEBUG]
        LOG.info("expander: cluster %s: %s", self.cluster, text)
        if span.recording:
            _describe(span, choice, self.cluster, text)
        chosen = [choice.outcomes[number].option for number in choice.best]
        return pb.BestOptionsResponse(
            options=[
                pb.Option(node_group_id=option.group, node_count=option.count, debug=text)
                for option in chosen
            ]
        )


def _options(asked: pb.BestOptionsRequest) -> list[Option]:
    templates = asked.node_bytes_map or asked.node_map
    wanted = {option.node_group_id for option in asked.options}
    nodes = _nodes({group: templates[group] for group in wanted if group in templates})
    return [
        Option(
            option.node_group_id,
            option.node_count,
            option.pod_bytes or option.pod,
            nodes.get(option.node_group_id),
        )
        for option in asked.options
    ]


def _nodes(templates: Mapping[str, bytes]) -> dict[str, Node]:
    found: dict[str, Node] = {}
    wrong: list[FieldViolation] = []
    for group, encoded in templates.items():
        try:
            found[group] = node_from_proto(request(kubernetes_pb2.Node, encoded))
        except InvalidRequest as cause:
            wrong += cause.below(f"nodeBytesMap[{group}]")
    if wrong:
        raise InvalidRequest.of(wrong)
    return found


def _describe(span: CallSpan, choice: Choice, cluster: str, text: str) -> None:
    outcomes = choice.outcomes
    span.set_many(
        {
            "topospread.cluster": cluster,
            "topospread.revision": choice.token,
            "topospread.options": len(outcomes),
            "topospread.options.chosen": [outcomes[n].option.group for n in choice.best],
            "topospread.placed": max((outcome.placed or 0 for outcome in outcomes), default=0),
            "topospread.explanation": text,
        }
    )

"""grpcplugin.Expander/BestOptions: decode, call the use case, encode."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from topospread.codec.parsing import parse_request
from topospread.codec.pods import node_from_proto
from topospread.errors import FieldViolation, InvalidRequest
from topospread.generated.cluster_autoscaler import expander_pb2 as pb
from topospread.service.decisions.request import DecisionRequest
from topospread.service.simulation.scale_up import choose_options
from topospread.service.simulation.scale_up_outcomes import NodeGroupOption
from topospread_proto.kubernetes.v1 import kubernetes_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.kube.objects import Node
    from topospread.service.decisions.engine import Engine
    from topospread.service.simulation.scale_up_outcomes import OptionChoice, Prefer
    from topospread.telemetry.spans import CallSpan

LOG: Final = logging.getLogger(__name__)

SERVICE: Final = "grpcplugin.Expander"
METHOD: Final = "BestOptions"

MAX_DEBUG: Final = 2000
"""Characters of an explanation: node groups may be many, and their ids long."""


class BestOptions:
    """The method BestOptions for one cluster: the protocol names none.

    Args:
        engine: makes decisions.
        cluster: whose state the options are tried on.
        prefer: what decides first among options that place as many pods.
        veto: choose no option where none places a pod.
    """

    def __init__(
        self, engine: Engine, cluster: str, *, prefer: Prefer = "spread", veto: bool = False
    ) -> None:
        self._engine = engine
        self._prefer = prefer
        self._veto = veto
        self.cluster = cluster

    def serve(
        self, request: pb.BestOptionsRequest, deadline: float, span: CallSpan
    ) -> pb.BestOptionsResponse:
        """Choose among the options of a request."""
        decision = DecisionRequest(deadline=deadline, cluster=self.cluster)
        options, others = _options(request)
        choice = choose_options(
            self._engine, decision, options, others, prefer=self._prefer, refuses=self._veto
        )
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


def _options(request: pb.BestOptionsRequest) -> tuple[list[NodeGroupOption], list[Node]]:
    """The options, and the templates of the groups that are none."""
    templates = request.node_bytes_map or request.node_map
    # What is wrong is said in the order of the options.
    asked = [option.node_group_id for option in request.options]
    groups = dict.fromkeys([*asked, *sorted(templates)])
    nodes = _nodes({group: templates[group] for group in groups if group in templates})
    options = [
        NodeGroupOption(
            option.node_group_id,
            option.node_count,
            option.pod_bytes or option.pod,
            nodes.get(option.node_group_id),
        )
        for option in request.options
    ]
    growing = {option.group for option in options}
    return options, [nodes[group] for group in sorted(nodes) if group not in growing]


def _nodes(templates: Mapping[str, bytes]) -> dict[str, Node]:
    found: dict[str, Node] = {}
    wrong: list[FieldViolation] = []
    for group, encoded in templates.items():
        try:
            found[group] = node_from_proto(parse_request(kubernetes_pb2.Node, encoded))
        except InvalidRequest as cause:
            wrong += cause.below(f"nodeBytesMap[{group}]")
    if wrong:
        raise InvalidRequest.of(wrong)
    return found


def _describe(span: CallSpan, choice: OptionChoice, cluster: str, text: str) -> None:
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

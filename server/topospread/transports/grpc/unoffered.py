"""The calls of the API that this version does not have, and what to tell who makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.transports.grpc.calls import Method, Unoffered
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    decision_service_pb2,
    lease_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
    server_service_pb2,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_FILES: Final = (
    decision_service_pb2.DESCRIPTOR,
    cluster_state_service_pb2.DESCRIPTOR,
    placement_service_pb2.DESCRIPTOR,
    lease_service_pb2.DESCRIPTOR,
    planner_service_pb2.DESCRIPTOR,
    server_service_pb2.DESCRIPTOR,
)

Services = dict[str, dict[str, tuple[Method, str]]]
"""By full name of the service and name of the method: a method and the name of its pool."""


def completed(offered: Mapping[str, Mapping[str, tuple[Method, str]]], version: str) -> Services:
    """All services of the API, with an answer for what is not offered.

    Args:
        offered: what is.
        version: of the server, for the answer.
    """
    services: Services = {}
    for file in _FILES:
        for name, service in file.services_by_name.items():
            here = services[service.full_name] = dict(offered.get(service.full_name, {}))
            for method in service.methods_by_name:
                text = f"{name}.{method} is not part of topospread {version}"
                here.setdefault(method, (Unoffered(text), "other"))
    return services

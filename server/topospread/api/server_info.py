"""topospread.v1.ServerService: the server's version, features and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from google.protobuf.timestamp_pb2 import Timestamp

from topospread.access.callers import Role
from topospread.calls.call import Call, Method, Unary
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import server_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SERVICE: Final = "topospread.v1.ServerService"

API_VERSIONS: Final = ("topospread.v1",)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The facts that GetServerInfo reports.

    Attributes:
        features: names of optional features; docs/api.md lists them.
        started: seconds since 1970.
        config: (generation, error) of the configuration.
        settings: digest of the settings that answers depend on.
    """

    version: str
    store: str
    started: float
    features: Sequence[str]
    limits: pb.ServerLimits
    config: Callable[[], tuple[int, str]]
    settings: Callable[[], str]


class ServerInfoServicer:
    """The method GetServerInfo."""

    def __init__(self, facts: ServerFacts) -> None:
        self._facts = facts

    def methods(self) -> dict[str, Method]:
        """The method by its name."""
        return {"GetServerInfo": Unary(pb.GetServerInfoRequest, self.get)}

    def get(self, request: pb.GetServerInfoRequest, call: Call) -> pb.GetServerInfoResponse:
        """ServerService.GetServerInfo."""
        del request
        facts = self._facts
        generation, error = facts.config()
        started = Timestamp()
        started.FromMicroseconds(int(facts.started * 1e6))
        # The store and the configuration concern all clusters.
        reads_all = call.caller.may_everywhere(Role.READ)
        return pb.GetServerInfoResponse(
            meta=common_pb2.ResponseMeta(),
            version=facts.version,
            api_versions=API_VERSIONS,
            features=facts.features,
            limits=facts.limits,
            start_time=started,
            store=facts.store if reads_all else "",
            config_generation=generation,
            config_error=error if reads_all else "",
            settings_digest=facts.settings(),
        )

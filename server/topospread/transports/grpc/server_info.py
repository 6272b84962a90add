"""topospread.v1.ServerService: what this server is, can do and takes at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from google.protobuf.timestamp_pb2 import Timestamp

from topospread.access.callers import Role
from topospread.transports.grpc.calls import Call, Method, Unary
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import server_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SERVICE: Final = "topospread.v1.ServerService"

API_VERSIONS: Final = ("topospread.v1",)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What GetServerInfo says.

    Attributes:
        features: what the server does beside, by name; docs/api.md lists them.
        started: seconds since 1970.
        config: (generation, error) of the configuration.
        settings: digest of the settings that answers depend on, and the names of those that another
            server of the store has otherwise.
    """

    version: str
    store: str
    started: float
    features: Sequence[str]
    limits: pb.ServerLimits
    config: Callable[[], tuple[int, str]]
    settings: Callable[[], tuple[str, Sequence[str]]]


class ServerInfoServicer:
    """Each method takes a request and a call."""

    def __init__(self, facts: ServerFacts) -> None:
        self._facts = facts

    def methods(self) -> dict[str, tuple[Method, str]]:
        """The methods by name, with the pool that each runs on."""
        return {"GetServerInfo": (Unary(pb.GetServerInfoRequest, self.get), "other")}

    def get(self, request: pb.GetServerInfoRequest, call: Call) -> pb.GetServerInfoResponse:
        """ServerService.GetServerInfo."""
        del request
        facts = self._facts
        generation, error = facts.config()
        digest, differing = facts.settings()
        started = Timestamp()
        started.FromMicroseconds(int(facts.started * 1e6))
        # These tell of all clusters: where they are, and what their configuration names.
        all_of_it = call.caller.may_everywhere(Role.READ)
        return pb.GetServerInfoResponse(
            meta=common_pb2.ResponseMeta(),
            version=facts.version,
            api_versions=API_VERSIONS,
            features=facts.features,
            limits=facts.limits,
            start_time=started,
            store=facts.store if all_of_it else "",
            config_generation=generation,
            config_error=error if all_of_it else "",
            settings_digest=digest,
            differing_settings=differing if all_of_it else (),
        )

"""topospread.v1.ServerService: the server's version, features and limits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from google.protobuf.timestamp_pb2 import Timestamp

from topospread.access.callers import Role
from topospread.calls.call import Call, Method, Unary
from topospread.codec.parsing import NODES
from topospread.service.decisions.pods import Limits
from topospread.service.state.write import WriteLimits
from topospread.spread.settings import RELEASES
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import server_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.config.settings import ServerSettings
    from topospread.spread.settings import ConfiguredRules

API_VERSIONS: Final = ("topospread.v1",)

_DIGESTED: Final = (
    "max_held_bytes",
    "max_request_bytes",
    "max_decision_bytes",
    "max_clusters",
    "max_cluster_constraints",
)
"""Settings by which one server may refuse what another answers, beside the rules."""


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
        return {"GetServerInfo": Unary(pb.GetServerInfoRequest, self.get)}

    def get(self, request: pb.GetServerInfoRequest, call: Call) -> pb.GetServerInfoResponse:
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


def server_limits(settings: ServerSettings) -> pb.ServerLimits:
    """The limits of one request, as GetServerInfo reports them."""
    asked, written = Limits(), WriteLimits()
    return pb.ServerLimits(
        max_batch_objects=written.batch,
        max_batch_pods=asked.batch_pods,
        max_what_if_pods=asked.what_ifs,
        max_request_bytes=settings.max_request_bytes,
        max_clusters=settings.max_clusters,
        max_simulated_pods=asked.simulated_pods,
        max_simulated_nodes=asked.simulated_nodes,
        max_decision_bytes=settings.max_decision_bytes,
        max_replace_objects=written.replace,
        max_constraints=asked.constraints,
        max_selector_terms=asked.terms,
        max_named_nodes=NODES,
    )


def settings_digest(settings: ServerSettings, rules: ConfiguredRules) -> str:
    """Return a digest of profiles, gates, version and limits; equal ones have the same."""
    limits = [getattr(settings, name) for name in _DIGESTED]
    gates = [rules.gates_of(version) for version in RELEASES]
    content = repr((list(rules.profiles.items()), gates, settings.kubernetes_version, limits))
    return hashlib.sha256(content.encode()).hexdigest()[:12]

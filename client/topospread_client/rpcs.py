"""The calls that this client makes: path, message types, and how each may be treated.

``safe`` calls may be made twice, whatever they ask: they change nothing on the server, or only what
their caller alone has: a feeder's lease is its holder's. The channel repeats them when the server
was out of reach. Others may meet what somebody else wrote after the first time. Some of these name
what they follow, so that the server can tell: those are repeated by the operation (`call_again`).
The rest is its caller's to repeat.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import Message

from topospread_proto.v1 import cluster_state_pb2 as state
from topospread_proto.v1 import feed_pb2 as feed
from topospread_proto.v1 import placement_pb2 as placement
from topospread_proto.v1 import planner_pb2 as planner
from topospread_proto.v1 import spread_engine_pb2 as engine

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)


@dataclass(frozen=True)
class Rpc(Generic[RequestT, ResponseT]):
    """One RPC.

    Attributes:
        service: full name of the service, for example ``topospread.v1.SpreadEngine``.
        method: name of the method, for example ``Filter``.
        request: type of the request message.
        response: type of the response message.
        safe: whether a repetition does no harm, whatever is asked.
    """

    service: str
    method: str
    request: type[RequestT]
    response: type[ResponseT]
    safe: bool = True

    @property
    def path(self) -> str:
        """The HTTP/2 path of the call."""
        return f"/{self.service}/{self.method}"


_ENGINE: Final = "topospread.v1.SpreadEngine"
_STATE: Final = "topospread.v1.ClusterState"
_PLACEMENT: Final = "topospread.v1.Placement"
_PLANNER: Final = "topospread.v1.Planner"
_FEED: Final = "topospread.v1.Feed"

PRE_FILTER: Final = Rpc(_ENGINE, "PreFilter", engine.PreFilterRequest, engine.PreFilterResponse)
FILTER: Final = Rpc(_ENGINE, "Filter", engine.FilterRequest, engine.FilterResponse)
SCORE: Final = Rpc(_ENGINE, "Score", engine.ScoreRequest, engine.ScoreResponse)
EVALUATE: Final = Rpc(_ENGINE, "Evaluate", engine.EvaluateRequest, engine.EvaluateResponse)
EVALUATE_STREAM: Final = Rpc(
    _ENGINE, "EvaluateStream", engine.EvaluateStreamRequest, engine.EvaluateStreamResponse
)
BATCH_EVALUATE: Final = Rpc(
    _ENGINE, "BatchEvaluate", engine.BatchEvaluateRequest, engine.BatchEvaluateResponse
)
EXPLAIN: Final = Rpc(_ENGINE, "Explain", engine.ExplainRequest, engine.ExplainResponse)

APPLY: Final = Rpc(_STATE, "Apply", state.ApplyRequest, state.ApplyResponse, safe=False)
DELETE: Final = Rpc(_STATE, "Delete", state.DeleteRequest, state.DeleteResponse, safe=False)
REPLACE: Final = Rpc(_STATE, "Replace", state.ReplaceRequest, state.ReplaceResponse, safe=False)
GET: Final = Rpc(_STATE, "Get", state.GetRequest, state.GetResponse)
LIST: Final = Rpc(_STATE, "List", state.ListRequest, state.ListResponse)
WATCH: Final = Rpc(_STATE, "Watch", state.WatchRequest, state.WatchResponse)
NODE_TABLE: Final = Rpc(_STATE, "NodeTable", state.NodeTableRequest, state.NodeTableResponse)
LIST_CLUSTERS: Final = Rpc(
    _STATE, "ListClusters", state.ListClustersRequest, state.ListClustersResponse
)
DROP_CLUSTER: Final = Rpc(
    _STATE, "DropCluster", state.DropClusterRequest, state.DropClusterResponse, safe=False
)
ACCEPT_STORE: Final = Rpc(
    _STATE, "AcceptStore", state.AcceptStoreRequest, state.AcceptStoreResponse, safe=False
)

PLACE: Final = Rpc(_PLACEMENT, "Place", placement.PlaceRequest, placement.PlaceResponse, safe=False)
RESERVE: Final = Rpc(
    _PLACEMENT, "Reserve", placement.ReserveRequest, placement.ReserveResponse, safe=False
)
RELEASE: Final = Rpc(
    _PLACEMENT, "Release", placement.ReleaseRequest, placement.ReleaseResponse, safe=False
)
LIST_RESERVATIONS: Final = Rpc(
    _PLACEMENT,
    "ListReservations",
    placement.ListReservationsRequest,
    placement.ListReservationsResponse,
)

RANK_FOR_DELETION: Final = Rpc(
    _PLANNER,
    "RankForDeletion",
    planner.RankForDeletionRequest,
    planner.RankForDeletionResponse,
)
SIMULATE: Final = Rpc(_PLANNER, "Simulate", planner.SimulateRequest, planner.SimulateResponse)
HOLD: Final = Rpc(_FEED, "Hold", feed.HoldRequest, feed.HoldResponse)
LEAVE: Final = Rpc(_FEED, "Leave", feed.LeaveRequest, feed.LeaveResponse)
PLAN_REBALANCE: Final = Rpc(
    _PLANNER, "PlanRebalance", planner.PlanRebalanceRequest, planner.PlanRebalanceResponse
)

ALL: Final[tuple[Rpc[Any, Any], ...]] = (
    PRE_FILTER,
    FILTER,
    SCORE,
    EVALUATE,
    EVALUATE_STREAM,
    BATCH_EVALUATE,
    EXPLAIN,
    APPLY,
    DELETE,
    REPLACE,
    GET,
    LIST,
    WATCH,
    NODE_TABLE,
    LIST_CLUSTERS,
    DROP_CLUSTER,
    PLACE,
    RESERVE,
    RELEASE,
    LIST_RESERVATIONS,
    ACCEPT_STORE,
    RANK_FOR_DELETION,
    SIMULATE,
    HOLD,
    LEAVE,
    PLAN_REBALANCE,
)

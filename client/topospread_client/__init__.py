"""Typed clients, blocking and for asyncio, that need grpcio and protobuf only.

What is named here is the package's; its modules are its own business. They are imported at the
first use of a name: most programs need few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from topospread_client._aio import (
        AsyncClient as AsyncClient,
    )
    from topospread_client._aio_stream import (
        AsyncEvaluateStream as AsyncEvaluateStream,
    )
    from topospread_client._answers import (
        AcceptStoreResponse as AcceptStoreResponse,
        AcquireLeaseResponse as AcquireLeaseResponse,
        Answer as Answer,
        ApplyObjectsResponse as ApplyObjectsResponse,
        BatchEvaluatePodsResponse as BatchEvaluatePodsResponse,
        Cluster as Cluster,
        ConstraintState as ConstraintState,
        DeleteClusterResponse as DeleteClusterResponse,
        DeleteObjectsResponse as DeleteObjectsResponse,
        DomainCount as DomainCount,
        EvaluatePodResponse as EvaluatePodResponse,
        FilterResponse as FilterResponse,
        GetClusterResponse as GetClusterResponse,
        GetLeaseResponse as GetLeaseResponse,
        GetNodeTableResponse as GetNodeTableResponse,
        GetObjectResponse as GetObjectResponse,
        GetReservationResponse as GetReservationResponse,
        GetServerInfoResponse as GetServerInfoResponse,
        Lease as Lease,
        ListClustersResponse as ListClustersResponse,
        ListObjectsResponse as ListObjectsResponse,
        ListReservationsResponse as ListReservationsResponse,
        NodeScore as NodeScore,
        ObjectResult as ObjectResult,
        PlacePodResponse as PlacePodResponse,
        PreFilterResponse as PreFilterResponse,
        ReleaseLeaseResponse as ReleaseLeaseResponse,
        ReleaseReservationResponse as ReleaseReservationResponse,
        RenewLeaseResponse as RenewLeaseResponse,
        ReplaceObjectsResponse as ReplaceObjectsResponse,
        Reservation as Reservation,
        ReserveNodeResponse as ReserveNodeResponse,
        ResponseMeta as ResponseMeta,
        ScoreResponse as ScoreResponse,
        ServerLimits as ServerLimits,
        SpreadConstraint as SpreadConstraint,
        Verdict as Verdict,
        VerdictCount as VerdictCount,
        WatchEvent as WatchEvent,
        WatchObjectsResponse as WatchObjectsResponse,
    )
    from topospread_client._client import (
        Client as Client,
    )
    from topospread_client._connection import (
        Connection as Connection,
    )
    from topospread_client._enums import (
        ConstraintValidation as ConstraintValidation,
        DrainMode as DrainMode,
        ErrorReason as ErrorReason,
        Fit as Fit,
        Kind as Kind,
        MinimumReason as MinimumReason,
        ObjectOutcome as ObjectOutcome,
        Optimality as Optimality,
        RankStrategy as RankStrategy,
        RebalanceOutcome as RebalanceOutcome,
        VerdictCode as VerdictCode,
        WarningKind as WarningKind,
        WatchEventType as WatchEventType,
    )
    from topospread_client._errors import (
        BadConnection as BadConnection,
        Closed as Closed,
        Conflict as Conflict,
        CycleExpired as CycleExpired,
        DeadlineExceeded as DeadlineExceeded,
        Fenced as Fenced,
        InvalidRequest as InvalidRequest,
        LeaseLost as LeaseLost,
        LimitExceeded as LimitExceeded,
        NodeTableChanged as NodeTableChanged,
        NoFeedProgress as NoFeedProgress,
        NotFound as NotFound,
        NotSupported as NotSupported,
        PermissionDenied as PermissionDenied,
        PreconditionFailed as PreconditionFailed,
        ReplaceIncomplete as ReplaceIncomplete,
        RevisionUnavailable as RevisionUnavailable,
        ServerFault as ServerFault,
        StoreIdentityChanged as StoreIdentityChanged,
        TopospreadClientError as TopospreadClientError,
        Unauthenticated as Unauthenticated,
        Unavailable as Unavailable,
        Violation as Violation,
    )
    from topospread_client._explanations import (
        AddDomains as AddDomains,
        AddToleration as AddToleration,
        ConstraintExplanation as ConstraintExplanation,
        ConstraintWarning as ConstraintWarning,
        DomainExplanation as DomainExplanation,
        ExcludedNodes as ExcludedNodes,
        ExplainPodResponse as ExplainPodResponse,
        Explanation as Explanation,
        LabelNodes as LabelNodes,
        MinimumExplanation as MinimumExplanation,
        NodeReason as NodeReason,
        RemovePods as RemovePods,
        ScoreRange as ScoreRange,
        SetMaxSkew as SetMaxSkew,
        SetMinDomains as SetMinDomains,
        SetNodeAffinityPolicy as SetNodeAffinityPolicy,
        SetNodeTaintsPolicy as SetNodeTaintsPolicy,
        SetWhenUnsatisfiable as SetWhenUnsatisfiable,
        SuggestedChange as SuggestedChange,
        Suggestion as Suggestion,
        UncordonNodes as UncordonNodes,
    )
    from topospread_client._label_query import (
        selector_from_query as selector_from_query,
    )
    from topospread_client._manifests import (
        ClusterObject as ClusterObject,
        Manifest as Manifest,
        ManifestError as ManifestError,
        args_from_manifest as args_from_manifest,
        manifest_from_object as manifest_from_object,
        object_from_manifest as object_from_manifest,
        pod_from_manifest as pod_from_manifest,
        selector_from_manifest as selector_from_manifest,
    )
    from topospread_client._ranking import (
        RankConstraint as RankConstraint,
        RankDeletionsResponse as RankDeletionsResponse,
        RankedConstraint as RankedConstraint,
        RankedPod as RankedPod,
        RankOutcome as RankOutcome,
    )
    from topospread_client._rebalancing import (
        EvictionFilters as EvictionFilters,
        EvictionLimits as EvictionLimits,
        PlannedEviction as PlannedEviction,
        PlanRebalanceResponse as PlanRebalanceResponse,
        RebalanceConstraint as RebalanceConstraint,
        RebalanceGroup as RebalanceGroup,
        StuckPods as StuckPods,
    )
    from topospread_client._references import (
        ObjectReference as ObjectReference,
        PodReference as PodReference,
        ResourceVersion as ResourceVersion,
    )
    from topospread_client._requests import (
        Consistency as Consistency,
        KeptObject as KeptObject,
        LabelSelector as LabelSelector,
        PodObject as PodObject,
        PodOnNode as PodOnNode,
        PodSource as PodSource,
        Settings as Settings,
        WhatIf as WhatIf,
        kind_of as kind_of,
    )
    from topospread_client._scenarios import (
        ConstraintChange as ConstraintChange,
        ConstraintMatch as ConstraintMatch,
        ConstraintValues as ConstraintValues,
        DrainedNode as DrainedNode,
        NodeGroup as NodeGroup,
        NodeObject as NodeObject,
        PodsToPlace as PodsToPlace,
        Scenario as Scenario,
        SupposedChanges as SupposedChanges,
    )
    from topospread_client._simulations import (
        DomainChange as DomainChange,
        FewestNodes as FewestNodes,
        JoinedNodes as JoinedNodes,
        PendingPods as PendingPods,
        SimulatedPlacement as SimulatedPlacement,
        SimulateResponse as SimulateResponse,
        SpreadChange as SpreadChange,
    )
    from topospread_client._stream import (
        EvaluateStream as EvaluateStream,
    )
    from topospread_client._tls import (
        Tls as Tls,
    )

_HOMES: Final = {
    name: module
    for module, names in {
        "_aio": "AsyncClient",
        "_aio_stream": "AsyncEvaluateStream",
        "_answers": """
            AcceptStoreResponse AcquireLeaseResponse Answer ApplyObjectsResponse
            BatchEvaluatePodsResponse Cluster ConstraintState DeleteClusterResponse
            DeleteObjectsResponse DomainCount EvaluatePodResponse FilterResponse
            GetClusterResponse GetLeaseResponse GetNodeTableResponse GetObjectResponse
            GetReservationResponse GetServerInfoResponse Lease ListClustersResponse
            ListObjectsResponse ListReservationsResponse NodeScore ObjectResult PlacePodResponse
            PreFilterResponse ReleaseLeaseResponse ReleaseReservationResponse RenewLeaseResponse
            ReplaceObjectsResponse Reservation ReserveNodeResponse ResponseMeta ScoreResponse
            ServerLimits SpreadConstraint Verdict VerdictCount WatchEvent WatchObjectsResponse
        """,
        "_client": "Client",
        "_connection": "Connection",
        "_enums": """
            ConstraintValidation DrainMode ErrorReason Fit Kind MinimumReason ObjectOutcome
            Optimality RankStrategy RebalanceOutcome VerdictCode WarningKind WatchEventType
        """,
        "_errors": """
            BadConnection Closed Conflict CycleExpired DeadlineExceeded Fenced InvalidRequest
            LeaseLost LimitExceeded NoFeedProgress NodeTableChanged NotFound NotSupported
            PermissionDenied PreconditionFailed ReplaceIncomplete RevisionUnavailable
            ServerFault StoreIdentityChanged TopospreadClientError Unauthenticated Unavailable
            Violation
        """,
        "_explanations": """
            AddDomains AddToleration ConstraintExplanation ConstraintWarning DomainExplanation
            ExcludedNodes ExplainPodResponse Explanation LabelNodes MinimumExplanation
            NodeReason RemovePods ScoreRange SetMaxSkew SetMinDomains SetNodeAffinityPolicy
            SetNodeTaintsPolicy SetWhenUnsatisfiable SuggestedChange Suggestion UncordonNodes
        """,
        "_label_query": "selector_from_query",
        "_manifests": """
            ClusterObject Manifest ManifestError args_from_manifest manifest_from_object
            object_from_manifest pod_from_manifest selector_from_manifest
        """,
        "_ranking": """
            RankConstraint RankDeletionsResponse RankOutcome RankedConstraint RankedPod
        """,
        "_rebalancing": """
            EvictionFilters EvictionLimits PlanRebalanceResponse PlannedEviction
            RebalanceConstraint RebalanceGroup StuckPods
        """,
        "_references": "ObjectReference PodReference ResourceVersion",
        "_requests": """
            Consistency KeptObject LabelSelector PodObject PodOnNode PodSource Settings WhatIf
            kind_of
        """,
        "_scenarios": """
            ConstraintChange ConstraintMatch ConstraintValues DrainedNode NodeGroup NodeObject
            PodsToPlace Scenario SupposedChanges
        """,
        "_simulations": """
            DomainChange FewestNodes JoinedNodes PendingPods SimulateResponse SimulatedPlacement
            SpreadChange
        """,
        "_stream": "EvaluateStream",
        "_tls": "Tls",
    }.items()
    for name in names.split()
}
"""The module of each name: what is imported above for those who only read types."""

__all__ = sorted(_HOMES)


if not TYPE_CHECKING:  # for which every name would be there

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return __all__

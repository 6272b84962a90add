"""Typed clients, blocking and for asyncio, that need grpcio and protobuf only.

The names of this package are public; its modules are private. They are imported at the first use
of a name: most programs need few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from topospread_client._aio import (
        AsyncClient as AsyncClient,
    )
    from topospread_client._answers import (
        AcceptStoreResponse as AcceptStoreResponse,
        Answer as Answer,
        BatchEvaluatePodsResponse as BatchEvaluatePodsResponse,
        Cluster as Cluster,
        ConstraintState as ConstraintState,
        DeleteClusterResponse as DeleteClusterResponse,
        DomainCount as DomainCount,
        EvaluatePodResponse as EvaluatePodResponse,
        FilterResponse as FilterResponse,
        GetClusterResponse as GetClusterResponse,
        GetNodeTableResponse as GetNodeTableResponse,
        GetObjectResponse as GetObjectResponse,
        GetServerInfoResponse as GetServerInfoResponse,
        ListClustersResponse as ListClustersResponse,
        ListObjectsResponse as ListObjectsResponse,
        NodeScore as NodeScore,
        PreFilterResponse as PreFilterResponse,
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
    from topospread_client._constraint_statuses import (
        ConstraintDomain as ConstraintDomain,
        ConstraintPod as ConstraintPod,
        ConstraintStatus as ConstraintStatus,
        ConstraintTable as ConstraintTable,
        GetConstraintResponse as GetConstraintResponse,
        ListConstraintsResponse as ListConstraintsResponse,
        NodeCount as NodeCount,
        SpreadStateCount as SpreadStateCount,
        WatchConstraintsResponse as WatchConstraintsResponse,
        WorkloadReference as WorkloadReference,
    )
    from topospread_client._controllers import (
        CONTROLLER_LABELS as CONTROLLER_LABELS,
        NEW_REVISION as NEW_REVISION,
        ORDINAL_LABELS as ORDINAL_LABELS,
    )
    from topospread_client._credentials import (
        Tls as Tls,
    )
    from topospread_client._enums import (
        ConstraintOrder as ConstraintOrder,
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
        SpreadState as SpreadState,
        VerdictCode as VerdictCode,
        FindingCode as FindingCode,
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
    from topospread_client._explain import (
        AddDomains as AddDomains,
        AddToleration as AddToleration,
        ConstraintExplanation as ConstraintExplanation,
        Finding as Finding,
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
    from topospread_client._leases import (
        AcquireLeaseResponse as AcquireLeaseResponse,
        GetLeaseResponse as GetLeaseResponse,
        Lease as Lease,
        ReleaseLeaseResponse as ReleaseLeaseResponse,
        RenewLeaseResponse as RenewLeaseResponse,
    )
    from topospread_client._manifests import (
        args_from_manifest as args_from_manifest,
        ClusterObject as ClusterObject,
        Manifest as Manifest,
        manifest_from_object as manifest_from_object,
        ManifestError as ManifestError,
        object_from_manifest as object_from_manifest,
        pod_from_manifest as pod_from_manifest,
        selector_from_manifest as selector_from_manifest,
        selector_from_query as selector_from_query,
    )
    from topospread_client._placement import (
        GetReservationResponse as GetReservationResponse,
        ListReservationsResponse as ListReservationsResponse,
        PlacePodResponse as PlacePodResponse,
        ReleaseReservationResponse as ReleaseReservationResponse,
        Reservation as Reservation,
        ReserveNodeResponse as ReserveNodeResponse,
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
        kind_of as kind_of,
        LabelSelector as LabelSelector,
        PodObject as PodObject,
        PodOnNode as PodOnNode,
        PodSource as PodSource,
        Settings as Settings,
        WhatIf as WhatIf,
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
    from topospread_client._simulate import (
        DomainChange as DomainChange,
        FewestNodes as FewestNodes,
        JoinedNodes as JoinedNodes,
        PendingPods as PendingPods,
        SimulatedPlacement as SimulatedPlacement,
        SimulateResponse as SimulateResponse,
        SpreadChange as SpreadChange,
    )
    from topospread_client._status import (
        error_from_status as error_from_status,
    )
    from topospread_client._unknown_fields import (
        KUBERNETES_VERSION as KUBERNETES_VERSION,
        unknown_fields as unknown_fields,
    )
    from topospread_client._writing import (
        ApplyObjectsResponse as ApplyObjectsResponse,
        DeleteObjectsResponse as DeleteObjectsResponse,
        ObjectResult as ObjectResult,
        ReplaceObjectsResponse as ReplaceObjectsResponse,
    )

_HOMES: Final = {
    name: module
    for module, names in {
        "_aio": "AsyncClient",
        "_answers": """
            AcceptStoreResponse Answer BatchEvaluatePodsResponse Cluster ConstraintState
            DeleteClusterResponse DomainCount EvaluatePodResponse FilterResponse GetClusterResponse
            GetNodeTableResponse GetObjectResponse GetServerInfoResponse ListClustersResponse
            ListObjectsResponse NodeScore PreFilterResponse ResponseMeta ScoreResponse ServerLimits
            SpreadConstraint Verdict VerdictCount WatchEvent WatchObjectsResponse
        """,
        "_client": "Client",
        "_connection": "Connection",
        "_constraint_statuses": """
            ConstraintDomain ConstraintPod ConstraintStatus ConstraintTable GetConstraintResponse
            ListConstraintsResponse NodeCount SpreadStateCount WatchConstraintsResponse
            WorkloadReference
        """,
        "_controllers": "CONTROLLER_LABELS NEW_REVISION ORDINAL_LABELS",
        "_credentials": "Tls",
        "_enums": """
            ConstraintOrder ConstraintValidation DrainMode ErrorReason FindingCode Fit Kind
            MinimumReason ObjectOutcome Optimality RankStrategy RebalanceOutcome SpreadState
            VerdictCode WatchEventType
        """,
        "_errors": """
            BadConnection Closed Conflict CycleExpired DeadlineExceeded Fenced InvalidRequest
            LeaseLost LimitExceeded NoFeedProgress NodeTableChanged NotFound NotSupported
            PermissionDenied PreconditionFailed ReplaceIncomplete RevisionUnavailable ServerFault
            StoreIdentityChanged TopospreadClientError Unauthenticated Unavailable Violation
        """,
        "_explain": """
            AddDomains AddToleration ConstraintExplanation Finding DomainExplanation
            ExcludedNodes ExplainPodResponse Explanation LabelNodes MinimumExplanation NodeReason
            RemovePods ScoreRange SetMaxSkew SetMinDomains SetNodeAffinityPolicy SetNodeTaintsPolicy
            SetWhenUnsatisfiable SuggestedChange Suggestion UncordonNodes
        """,
        "_leases": """
            AcquireLeaseResponse GetLeaseResponse Lease ReleaseLeaseResponse RenewLeaseResponse
        """,
        "_manifests": """
            ClusterObject Manifest ManifestError args_from_manifest manifest_from_object
            object_from_manifest pod_from_manifest selector_from_manifest selector_from_query
        """,
        "_placement": """
            GetReservationResponse ListReservationsResponse PlacePodResponse
            ReleaseReservationResponse Reservation ReserveNodeResponse
        """,
        "_ranking": "RankConstraint RankDeletionsResponse RankOutcome RankedConstraint RankedPod",
        "_rebalancing": """
            EvictionFilters EvictionLimits PlanRebalanceResponse PlannedEviction RebalanceConstraint
            RebalanceGroup StuckPods
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
        "_simulate": """
            DomainChange FewestNodes JoinedNodes PendingPods SimulateResponse SimulatedPlacement
            SpreadChange
        """,
        "_status": "error_from_status",
        "_unknown_fields": "KUBERNETES_VERSION unknown_fields",
        "_writing": """
            ApplyObjectsResponse DeleteObjectsResponse ObjectResult ReplaceObjectsResponse
        """,
    }.items()
    for name in names.split()
}
"""Module of each public name, as it is imported above for type checkers."""

__all__ = sorted(_HOMES)


__version__: str

if not TYPE_CHECKING:  # type checkers would take every name for public

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("topospread-client")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return __all__

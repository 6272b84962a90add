"""Typed clients, blocking and for asyncio, that need grpcio and protobuf only.

What they answer are the messages of `topospread_proto.v1`. The names of this package are public,
its modules are private. What needs gRPC or protobuf is imported at the first use of its name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from topospread_client._errors import (
    BadConnection as BadConnection,
    Closed as Closed,
    Conflict as Conflict,
    CycleExpired as CycleExpired,
    DeadlineExceeded as DeadlineExceeded,
    InvalidRequest as InvalidRequest,
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

if TYPE_CHECKING:
    from topospread_client._aio import AsyncClient as AsyncClient
    from topospread_client._answers import (
        ConstraintTable as ConstraintTable,
        best as best,
        enum_name as enum_name,
        feasible as feasible,
        kind_of as kind_of,
        normalized_by_node as normalized_by_node,
        raw_by_node as raw_by_node,
        trace_id as trace_id,
        verdicts_by_node as verdicts_by_node,
    )
    from topospread_client._arguments import (
        ObjectLike as ObjectLike,
        PodLike as PodLike,
        SelectorLike as SelectorLike,
    )
    from topospread_client._client import Client as Client
    from topospread_client._connection import Connection as Connection
    from topospread_client._controller_labels import (
        CONTROLLER_LABELS as CONTROLLER_LABELS,
        NEW_REVISION as NEW_REVISION,
        ORDINAL_LABELS as ORDINAL_LABELS,
    )
    from topospread_client._credentials import Tls as Tls
    from topospread_client._manifests import (
        Manifest as Manifest,
        ManifestError as ManifestError,
        args_from_manifest as args_from_manifest,
        manifest_from_object as manifest_from_object,
        object_from_manifest as object_from_manifest,
        pod_from_manifest as pod_from_manifest,
        pod_from_template as pod_from_template,
        selector_from_manifest as selector_from_manifest,
        selector_from_query as selector_from_query,
    )
    from topospread_client._pod_templates import (
        ConstraintList as ConstraintList,
        PodTemplate as PodTemplate,
        SpreadParts as SpreadParts,
        has_known_template as has_known_template,
        is_own_kind as is_own_kind,
        known_template as known_template,
        pod_templates as pod_templates,
        misspelt_constraints as misspelt_constraints,
        spread_parts as spread_parts,
        template_reference as template_reference,
    )
    from topospread_client._status import error_from_status as error_from_status
    from topospread_client._unknown_fields import (
        KUBERNETES_VERSION as KUBERNETES_VERSION,
        unknown_fields as unknown_fields,
    )

_LAZY: Final = {
    name: module
    for module, names in {
        "_aio": "AsyncClient",
        "_answers": """
            ConstraintTable best enum_name feasible kind_of normalized_by_node raw_by_node trace_id
            verdicts_by_node
        """,
        "_arguments": "ObjectLike PodLike SelectorLike",
        "_client": "Client",
        "_connection": "Connection",
        "_controller_labels": "CONTROLLER_LABELS NEW_REVISION ORDINAL_LABELS",
        "_credentials": "Tls",
        "_manifests": """
            Manifest ManifestError args_from_manifest manifest_from_object object_from_manifest
            pod_from_manifest pod_from_template selector_from_manifest selector_from_query
        """,
        "_pod_templates": """
            ConstraintList PodTemplate SpreadParts has_known_template is_own_kind known_template
            misspelt_constraints pod_templates spread_parts template_reference
        """,
        "_status": "error_from_status",
        "_unknown_fields": "KUBERNETES_VERSION unknown_fields",
    }.items()
    for name in names.split()
}
"""Module of each public name that is imported at its first use; the others are errors."""

_ERRORS: Final = {
    n for n, v in globals().items() if getattr(v, "__module__", "") == f"{__name__}._errors"
}

__all__ = sorted(_LAZY.keys() | _ERRORS)

__version__: str

if not TYPE_CHECKING:  # type checkers would take every name for public

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("topospread-client")
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
        return found


def __dir__() -> list[str]:
    return __all__

"""Whether a state has what an answer rests on: a check of nothing does not pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from topospread.cli.errors import BadInput
from topospread_proto.v1 import common_pb2
from topospread_proto.v1.cluster_state_service_pb2 import ListObjectsRequest

if TYPE_CHECKING:
    from topospread.cli.options import ApiCaller
    from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector


def require_pods(
    caller: ApiCaller, namespace: str | None = None, labels: LabelSelector | None = None
) -> None:
    """Refuse an answer about the pods of a state, or of a part of it, that has none.

    Raises:
        BadInput: it has none.
    """
    if _is_there(caller, common_pb2.KIND_POD, namespace=namespace or "", label_selector=labels):
        return
    where = f"namespace {namespace}" if namespace else "the state"
    which = "pods with these labels" if labels is not None else "pods"
    elsewhere = ": -A looks in all namespaces" if namespace and _takes_all() else ""
    raise BadInput(f"there are no {which} in {where}, so nothing was checked{elsewhere}")


def require_nodes(caller: ApiCaller) -> None:
    """Refuse an answer about how pods are spread in a state that has no nodes.

    Raises:
        BadInput: it has none.
    """
    if not _is_there(caller, common_pb2.KIND_NODE):
        raise BadInput(
            "there are no nodes in the state, and without nodes no constraint is violated"
        )


def _is_there(caller: ApiCaller, kind: common_pb2.Kind.ValueType, **wanted: Any) -> bool:
    newest = common_pb2.Consistency(fully_consistent=True)
    request = ListObjectsRequest(kind=kind, page_size=1, consistency=newest, **wanted)
    return bool(caller.call("ListObjects", request).objects)


def _takes_all() -> bool:
    return "all_namespaces" in click.get_current_context().params

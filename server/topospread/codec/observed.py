"""Converts resourceVersions that a sync has read up to, between messages and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.errors import InvalidRequest
from topospread.kube.violations import Problems, duplicate, invalid, unknown
from topospread.store.values import OBSERVABLE, VERSION
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread.store.model import Kind
    from topospread.store.values import Observed

_KINDS: Final = {kind.value: kind for kind in OBSERVABLE}


def check_version(version: str, path: str) -> None:
    """Refuse a text that is no version of the API server.

    Raises:
        InvalidRequest: it cannot be compared as a number.
    """
    if VERSION.fullmatch(version) is None:
        text = "must be decimal digits without leading zeros, 255 at most"
        raise InvalidRequest.of([invalid(path, version[:512], text)])


def observed_from_proto(
    versions: Iterable[common_pb2.ResourceVersion], path: str
) -> dict[Kind, str]:
    """Read the version of each kind.

    Args:
        versions: one of a kind.
        path: where they stand in the request.

    Raises:
        InvalidRequest: a kind that no API server has, or twice, or no version.
    """
    found: dict[Kind, str] = {}
    wrong = Problems()
    for position, each in enumerate(versions):
        here = f"{path}[{position}]"
        kind = _KINDS.get(each.kind)
        if kind is None:
            known = [f"KIND_{one.name}" for one in OBSERVABLE]
            wrong.add(unknown(f"{here}.kind", each.kind, known))
        elif kind in found:
            wrong.add(duplicate(f"{here}.kind", f"KIND_{kind.name}"))
        with wrong.under():
            check_version(each.resource_version, f"{here}.resourceVersion")
            if kind is not None:
                found[kind] = each.resource_version
        if len(wrong.violations) > len(_KINDS):
            break  # as many may be sent as a request holds
    wrong.raise_all()
    return found


def view_meta(token: str, observed: Observed) -> bytes:
    """The serialized ResponseMeta of a state."""
    meta = common_pb2.ResponseMeta(revision=token, observed=observed_messages(observed))
    return meta.SerializeToString()


def observed_messages(observed: Observed) -> list[common_pb2.ResourceVersion]:
    """Messages with the version that each kind was read up to."""
    return [
        common_pb2.ResourceVersion(
            kind=kind.value,  # type: ignore[arg-type] # the numbers are the same
            resource_version=version,
        )
        for kind, version in observed
    ]

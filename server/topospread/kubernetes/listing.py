"""Lists a kind of an API server, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from topospread.errors import ClusterUnavailable, RevisionUnavailable
from topospread.kubernetes.objects import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topospread.kubernetes.api_server import ApiServer
    from topospread.kubernetes.objects import ObservedObject
    from topospread.store.model import Key

PAGE: Final = 500
"""Objects in a page: what client-go asks for."""


def list_objects(
    api: ApiServer,
    path: str,
    query: Mapping[str, str],
    decode: Callable[[Any], ObservedObject | None],
    goes_on: Callable[[int, int], bool],
) -> tuple[list[ObservedObject], str]:
    """All objects of a collection, and the version that they were listed at.

    Args:
        api: where it is read.
        path: of the collection.
        query: without limit and continue.
        decode: an object; None leaves it out.
        goes_on: asked before each page, with the objects so far and how many the API server says
            remain; False stops.

    Raises:
        ClusterUnavailable: no answer, a refusal, or it was stopped.
    """
    found: dict[Key, ObservedObject] = {}
    paged = {**query, "limit": str(PAGE)}
    remaining = 0
    while goes_on(len(found), remaining):
        try:
            page = api.list_page(path, paged)
        except RevisionUnavailable:
            if "limit" not in paged or "continue" not in paged:
                raise
            # The list takes longer than old versions are kept: all at once, as client-go does.
            found.clear()
            paged = dict(query)
            continue
        for manifest in page.get("items") or ():
            if (decoded := decode(manifest)) is not None:
                found[decoded.key] = decoded
        token = page["metadata"].get("continue")
        if not token:
            return list(found.values()), version_of(page)
        count = page["metadata"].get("remainingItemCount")
        remaining = count if isinstance(count, int) else 0
        paged["continue"] = token
    raise ClusterUnavailable("stopping")

"""The format version in a cluster's meta."""

from __future__ import annotations

from topospread.errors import StoreUnavailable
from topospread.store.values import FORMAT


def check_format(found: bytes | None) -> None:
    """Refuse a cluster that another version wrote in a format unknown here."""
    if found is not None and found != str(FORMAT).encode():
        raise StoreUnavailable(
            f"the cluster is stored in format {found[:20]!r}, this version knows {FORMAT}; "
            "use the version that wrote it, or drop the cluster with it and load it again"
        )

"""The docstrings of the clients' methods: the comments of the `.proto` files."""

from __future__ import annotations

from inspect import cleandoc
from typing import Final, TypeVar

from topospread_proto.v1.comments import METHODS

_C = TypeVar("_C", bound=type)

_ALL: Final = "Iterate over all pages; each is asked for when the one before is used up."
_ONE: Final = "Get one page; `next_page_token` is empty on the last one."


def documented(client: _C) -> _C:
    """Give the methods of a client the comments of their calls and of the requests' fields.

    What a method says itself, or what is said of pages, stands between the two.
    """
    for name, (comment, fields) in METHODS.items():
        paged = hasattr(client, f"{name}_page")
        for each, text in ((name, _ALL if paged else ""), (f"{name}_page", _ONE)):
            method = getattr(client, each, None)
            if method is not None:
                parts = (comment, text, cleandoc(method.__doc__ or ""), fields)
                method.__doc__ = "\n\n".join(filter(None, parts))
    return client

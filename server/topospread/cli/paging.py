"""Lists that are asked for page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE_SIZE: Final = 1000


class _Page(Protocol):
    @property
    def next_page_token(self) -> str: ...


_P = TypeVar("_P", bound=_Page)


def pages(ask: Callable[..., _P]) -> Iterator[_P]:
    """All pages of a list, of which `ask` gets one by its ``page_token``."""
    token: str | None = None
    while token != "":
        page = ask(page_token=token, page_size=PAGE_SIZE)
        yield page
        token = page.next_page_token

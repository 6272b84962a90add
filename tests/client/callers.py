"""Both clients behind one face, so that each behaviour is stated once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import ExitStack
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from topospread_client import AsyncClient, Client

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from topospread_client import Connection


class Caller:
    """Calls a client's methods; what they return is awaited where it must be."""

    def __init__(self, kind: str, connection: Connection | str, **options: Any) -> None:
        self._asyncio = kind == "aio"
        with ExitStack() as opened:
            self._runner = opened.enter_context(asyncio.Runner())
            self._client: Any = (
                self._run(_made(connection, options))
                if self._asyncio
                else Client(connection, **options)
            )
            opened.pop_all()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run it in the context of the test, as its own loop would."""
        return self._runner.run(coroutine, context=copy_context())

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        if not self._asyncio or not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._finished(attribute(*args, **kwargs))

        return call

    def _finished(self, made: Any) -> Any:
        if isinstance(made, AsyncIterator):
            return self._iterate(made)
        return self._run(_awaited(made)) if inspect.isawaitable(made) else made

    def _iterate(self, items: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            self._run(items.aclose())

    def end(self) -> None:
        """Close the client and its loop."""
        if self._asyncio:
            self._run(self._client.close())
        else:
            self._client.close()
        self._runner.close()


async def _made(connection: Connection | str, options: dict[str, Any]) -> AsyncClient:
    return AsyncClient(connection, **options)


async def _awaited(made: Any) -> Any:
    return await made


async def _next(items: Any) -> Any:
    return await anext(items)

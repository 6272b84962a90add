"""A TCP proxy that does what networks do: it falls silent, cuts connections, and delays."""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Proxy:
    """In a thread of its own, from entering to leaving it.

    Attributes:
        address: where it listens.
        delay: most seconds by which each piece is delayed, and those behind it.
        latency: seconds by which every piece comes later, as over a long way.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.address = ""
        self.delay = 0.0
        self.latency = 0.0
        self._target = host, int(port)
        self._loop = asyncio.new_event_loop()
        self._flows: set[asyncio.StreamWriter] = set()
        self._silent: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._listens = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        self._listens.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def silence(self) -> None:
        """Forward nothing more on the connections there are, and keep them open."""
        done = threading.Event()

        def silence() -> None:
            self._silent.update(self._flows)
            done.set()

        self._loop.call_soon_threadsafe(silence)
        done.wait()

    def cut(self) -> None:
        """Reset all connections."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for writer in self._flows:
            writer.transport.abort()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._flow, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._listens.set()
        await self._ended.wait()
        server.close()
        self._cut()
        for pump in list(self._pumps):
            pump.cancel()

    async def _flow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_reader, to_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        both = writer, to_writer
        self._flows.update(both)
        pumps = [
            asyncio.ensure_future(self._pump(reader, to_writer, both)),
            asyncio.ensure_future(self._pump(to_reader, writer, both)),
        ]
        self._pumps.update(pumps)
        with suppress(asyncio.CancelledError):
            await asyncio.wait(pumps)
        self._pumps.difference_update(pumps)
        self._flows.difference_update(both)
        self._silent.difference_update(both)

    def _forward(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        if writer not in self._silent and not writer.is_closing():
            writer.write(piece)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        both: tuple[asyncio.StreamWriter, ...],
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                if self.delay:
                    await asyncio.sleep(random.uniform(0, self.delay))
                if self.latency:
                    self._loop.call_later(self.latency, self._forward, writer, piece)
                elif writer not in self._silent:
                    writer.write(piece)
                    await writer.drain()
        if writer not in self._silent:
            for each in both:
                each.transport.abort()

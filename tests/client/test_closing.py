"""Every way to close a client, in every state: what is under way ends at once, with `Closed`."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import trustme

from tests.client.manifests import incoming
from tests.waiting import PATIENCE, until
from topospread_client import AsyncClient, Client, Closed, Connection, Tls
from topospread_client import _connection as connections
from topospread_client._credentials import WatchedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

NODE = {"kind": "Node", "metadata": {"name": "n"}}


class Hanging(grpc.GenericRpcHandler):
    """Takes every call and answers none.

    Attributes:
        address: of the server.
        taken: calls so far.
        open: those that have not ended.
    """

    def __init__(self) -> None:
        self.address = ""
        self.taken = self.open = 0
        self._lock = threading.Lock()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        del details
        return grpc.stream_stream_rpc_method_handler(self._hang)

    def _hang(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        ended = threading.Event()
        if context.add_callback(ended.set):
            next(requests)
            with self._lock:
                self.taken, self.open = self.taken + 1, self.open + 1
            ended.wait(PATIENCE)
            with self._lock:
                self.open -= 1
        return iter(())


@contextmanager
def hanging() -> Iterator[Hanging]:
    handler = Hanging()
    with ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool, handlers=[handler])
        handler.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield handler
        finally:
            server.stop(None).wait()


@pytest.fixture(scope="module")
def server():
    with hanging() as server:
        yield server


def unary(client: Any) -> Any:
    return client.evaluate_pod(incoming(), timeout=PATIENCE)


def unsafe(client: Any) -> Any:
    return client.delete_cluster("default", timeout=PATIENCE)


def writing(client: Any) -> Any:
    return client.replace_objects("NODE", [NODE] * 2000, timeout=PATIENCE)


def watching(client: Any) -> Any:
    return next(client.watch_objects())


def listing(client: Any) -> Any:
    return next(client.list_objects("NODE"))


async def aio_watching(client: Any) -> Any:
    return await anext(client.watch_objects())


async def aio_listing(client: Any) -> Any:
    return await anext(client.list_objects("NODE"))


STATES = [unary, unsafe, writing, watching, listing]
AIO_STATES = [unary, unsafe, writing, aio_watching, aio_listing]


def close_within_block(client: Client) -> None:
    with client:
        pass


def close_in_thread(client: Client) -> None:
    thread = threading.Thread(target=client.close)
    thread.start()
    thread.join(PATIENCE)


@pytest.mark.parametrize("close", [Client.close, close_within_block, close_in_thread])
@pytest.mark.parametrize("state", STATES)
def test_close_ends_the_calls_of_other_threads(server, state, close):
    client = Client(server.address)
    before, outcome = server.taken, Future[Any]()

    def wait() -> None:
        try:
            outcome.set_result(state(client))
        except BaseException as raised:  # noqa: BLE001 - it is looked at
            outcome.set_exception(raised)

    threading.Thread(target=wait, daemon=True).start()
    until(lambda: server.taken > before, "the server has the call")
    close(client)
    assert type(outcome.exception(PATIENCE)) is Closed
    until(lambda: server.open == 0, "the server sees the end of it")


def test_signal_handler_can_close_a_client(tmp_path, monkeypatch):
    """Also while the thread that it interrupts looks for new certificates."""
    ca = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(ca))
    monkeypatch.setattr(connections, "RELOAD_INTERVAL", -1.0)
    client = Client(Connection("127.0.0.1:1", Tls(ca)))
    looking = WatchedFiles.changed

    def interrupted(files: WatchedFiles[Any]) -> bool:
        signal.raise_signal(signal.SIGUSR1)
        return looking(files)

    monkeypatch.setattr(WatchedFiles, "changed", interrupted)
    before = signal.signal(signal.SIGUSR1, lambda *_: client.close())
    try:
        with pytest.raises(Closed):
            client.get_server_info()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("state", [*STATES, lambda client: client.get_server_info()])
def test_closed_client_raises_closed(connect, server, state):
    client = connect(server.address)
    client.close()
    client.close()
    before = server.taken
    with pytest.raises(Closed, match="open another one"):
        state(client)
    assert server.taken == before


async def begun(server: Hanging, state: Any) -> tuple[AsyncClient, asyncio.Future[Any]]:
    client, before = AsyncClient(server.address), server.taken
    waiting = asyncio.ensure_future(state(client))
    await asyncio.to_thread(until, lambda: server.taken > before, "the server has the call")
    return client, waiting


async def aio_close(client: AsyncClient) -> None:
    await client.close()


async def aio_close_within_block(client: AsyncClient) -> None:
    async with client:
        pass


async def aio_close_in_task(client: AsyncClient) -> None:
    await asyncio.create_task(client.close())


async def aio_close_in_other_loop(client: AsyncClient) -> None:
    await asyncio.to_thread(asyncio.run, aio_close(client))


AIO_CLOSES = [aio_close, aio_close_within_block, aio_close_in_task, aio_close_in_other_loop]


@pytest.mark.parametrize("close", AIO_CLOSES)
@pytest.mark.parametrize("state", AIO_STATES)
def test_close_ends_the_calls_of_other_tasks(server, state, close):
    complaints: list[dict[str, Any]] = []

    async def run() -> BaseException | None:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))
        client, waiting = await begun(server, state)
        await close(client)
        done, _ = await asyncio.wait([waiting], timeout=PATIENCE)
        assert done
        assert not waiting.cancelled(), "the task itself was not cancelled"
        return waiting.exception()

    assert type(asyncio.run(run())) is Closed
    gc.collect()
    assert complaints == []
    until(lambda: server.open == 0, "the server sees the end of it")


@pytest.mark.parametrize("end", ["stopped", "closed"])
@pytest.mark.parametrize("state", AIO_STATES)
def test_a_client_whose_loop_does_not_run_is_closed_from_another(server, state, end):
    loop = asyncio.new_event_loop()

    client, waiting = loop.run_until_complete(begun(server, state))
    if end == "closed":
        loop.close()
    asyncio.run(asyncio.wait_for(client.close(), PATIENCE))
    if end == "stopped":
        loop.run_until_complete(asyncio.wait([waiting], timeout=PATIENCE))
        assert type(waiting.exception()) is Closed
        loop.close()
    until(lambda: server.open == 0, "the server sees the end of it")


def test_a_group_of_tasks_learns_that_its_client_was_closed(server):
    async def run() -> None:
        client, waiting = await begun(server, unary)
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.wait_for(waiting, PATIENCE))
            await client.close()

    with pytest.raises(ExceptionGroup) as failed:
        asyncio.run(run())
    assert failed.value.subgroup(Closed)


@pytest.mark.parametrize("state", AIO_STATES)
@pytest.mark.parametrize("closed", [False, True])
def test_a_task_that_is_cancelled_is_cancelled(server, state, closed):
    async def run() -> bool:
        client, waiting = await begun(server, state)
        waiting.cancel()
        if closed:
            await client.close()
        await asyncio.wait([waiting], timeout=PATIENCE)
        cancelled = waiting.cancelled()
        await client.close()
        return cancelled

    assert asyncio.run(run())


def _threads() -> set[threading.Thread]:
    """Those that are not the test's own server's."""
    return {each for each in threading.enumerate() if "ThreadPool" not in each.name}


def test_dropped_client_leaves_no_threads(server):
    before = _threads()
    client = Client(server.address)
    watch = client.watch_objects(timeout=0.05)
    with pytest.raises(Exception, match=r"(?i)deadline"):
        next(watch)
    del watch, client
    gc.collect()
    until(lambda: server.open == 0, "the server sees the end of it")
    until(lambda: _threads() <= before, "all threads end")


def test_dropped_async_client_leaves_no_tasks(server):
    complaints: list[dict[str, Any]] = []

    async def use() -> None:
        client = AsyncClient(server.address)
        with pytest.raises(Exception, match=r"(?i)deadline"):
            await anext(client.watch_objects(timeout=0.05))

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))
        await use()
        gc.collect()
        await asyncio.to_thread(until, lambda: server.open == 0, "the server sees the end of it")
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=PATIENCE)

    asyncio.run(run())
    assert complaints == []


EXITS = {
    "threads": (3, "[begin(each) for each in ('unary', 'writing', 'watching')]; wait()"),
    "tasks": (3, "asyncio.run(left('unary', 'writing', 'aio_watching'))"),
}
"""How many calls are under way at the end, and what begins them."""

PROGRAM = """
import asyncio, sys, threading, time
from tests.client import test_closing as states
from topospread_client import AsyncClient, Client, TopospreadClientError
def wait(): sys.stdin.readline()
def quiet(name):
    try: getattr(states, name)(client)
    except TopospreadClientError: pass
def begin(name): threading.Thread(target=quiet, args=[name], daemon=True).start()
async def left(*names):
    client = AsyncClient(sys.argv[1])
    left.tasks = [asyncio.ensure_future(getattr(states, name)(client)) for name in names]
    await asyncio.to_thread(wait)
client = Client(sys.argv[1])
"""


@pytest.mark.parametrize("state", EXITS)
def test_program_ends_with_calls_under_way(server, state):
    calls, program = EXITS[state]
    before = server.taken
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM + program, server.address],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        until(lambda: server.taken >= before + calls, "the server has the calls")
        _, said = running.communicate("\n", timeout=PATIENCE)
    assert said == ""
    assert running.returncode == 0
    until(lambda: server.open == 0, "the server sees the end of it")

"""What every room's tests may ask for: hypothesis profiles and real Redis servers."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.redis_server import RedisNotFoundError, RedisProcess, default_redis_binary
from tests.requirements import without

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

# No deadline anywhere, nor a time to draw in: a machine's mood is not a property of the code.
# HYPOTHESIS_PROFILE or --hypothesis-profile choose another; `thorough` is for a run by hand.
settings.register_profile(
    "dev", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, print_blob=True)
settings.register_profile(
    "thorough", settings.get_profile("dev"), max_examples=20_000, print_blob=True
)
settings.register_profile("check", settings.get_profile("dev"), max_examples=10)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") == "true" else "dev")
)


LONG = ("faults", "long")
"""Markers of tests that take long."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect thousands of modules and tests, none of which is ever garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have each worker begin with what takes long: at the end the others would wait for it.

    Workers are given equal parts in this order. What takes long and is in one file stays together.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    long: list[pytest.Item] = []
    short: list[pytest.Item] = []
    for each in items:
        (long if any(map(each.get_closest_marker, LONG)) else short).append(each)
    files = dict.fromkeys(each.path for each in long)
    worker_of = {path: at % workers for at, path in enumerate(files)}
    part = -(-len(short) // workers)
    items[:] = [
        each
        for worker in range(workers)
        for each in (
            *(each for each in long if worker_of[each.path] == worker),
            *short[worker * part : (worker + 1) * part],
        )
    ]


@pytest.fixture(scope="session", autouse=True)
def interrupts() -> None:
    """Tests and their programs hear Ctrl-C, also when started in a shell's background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test logged may be no UTF-8, in which pytest-xdist sends it."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections
    ]
    return report


@pytest.fixture(scope="session")
def redis_binary() -> Path:
    """The redis-server to run; see `without` where there is none."""
    try:
        return default_redis_binary()
    except RedisNotFoundError:
        without("redis-server", target="redis")


@pytest.fixture(scope="session")
def redis_server(
    redis_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisProcess]:
    """One server for the whole run, without persistence. Tests share it: see `redis_url`."""
    with RedisProcess(tmp_path_factory.mktemp("redis"), binary=redis_binary) as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisProcess) -> str:
    """The URL of the shared server, emptied for this test."""
    with redis_server.client() as client:
        client.flushall()
        client.script_flush()
    return redis_server.url


@pytest.fixture
def start_redis(redis_binary: Path, tmp_path: Path) -> Iterator[Callable[..., RedisProcess]]:
    """Starts servers of the test's own, with `RedisProcess`'s arguments, and ends them with it."""
    directories = (tmp_path / f"redis-{number}" for number in count())
    with ExitStack() as running:

        def start(**arguments: Any) -> RedisProcess:
            wanted = {"binary": redis_binary, **arguments}
            return running.enter_context(RedisProcess(next(directories), **wanted))

        yield start

"""A running server for the properties that ask through one."""

from collections.abc import Iterator

import pytest

from tests.conformance.calls import OverGrpc, running_server


@pytest.fixture(scope="session")
def server() -> Iterator[OverGrpc]:
    """One server for all examples; each loads a cluster of its own."""
    with running_server() as channel:
        asked = OverGrpc(channel)
        yield asked
        asked.close()

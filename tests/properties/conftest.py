"""A running server for the properties that ask through one."""

from collections.abc import Iterator

import pytest

from tests.conformance.calls import OverGrpc, over_grpc


@pytest.fixture(scope="package")
def server() -> Iterator[OverGrpc]:
    """One server for all examples; each loads a cluster of its own."""
    with over_grpc() as asked:
        yield asked

"""What callers can make a server keep: a small share of what `memory` tries."""

from __future__ import annotations

import pytest

from bench.campaigns import memory

MOST = 200
"""MiB more than before."""


@pytest.mark.parametrize(
    ("attack", "many", "tls"),
    [
        (memory.packed_checks, 200, False),
        (memory.idle_lines, 4200, True),
        (memory.long_bodies, 12, False),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_attack_costs_little_memory(attack, many, tls):
    memory.open_files()
    came = memory.attacked(attack, many, tls=tls, settle=0.5)
    assert came["peak"] - came["before"] <= MOST
    assert came["answered"]
    assert not came["failed"]
    # No more come at once than gRPC keeps, or they are no calls.
    assert not came["dropped"]

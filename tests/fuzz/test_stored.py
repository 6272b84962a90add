"""A short campaign of damage to both stores; what was found is in tests/store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.campaigns.damage import in_redis, in_sqlite

if TYPE_CHECKING:
    from bench.campaigns.findings import Findings

MIB = 1 << 20


def check(found: Findings) -> None:
    assert found.faults == []
    assert found.sent == 15
    # The damage was seen, and most of what was asked was answered all the same.
    assert found.codes["OK"] > 50
    assert found.codes["UNAVAILABLE"] + found.codes["DATA_LOSS"] > 0
    assert found.grown < 200 * MIB


def test_damage_to_a_file_breaks_nothing(tmp_path):
    check(in_sqlite(tmp_path / "state.db", seed=1, rounds=15))


@pytest.mark.usefixtures("redis_binary")
def test_damage_to_a_redis_breaks_nothing(start_redis):
    check(in_redis(start_redis().url, seed=1, rounds=15))

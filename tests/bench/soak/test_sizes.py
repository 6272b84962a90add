"""What a store holds is asked of the store itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.cluster import Size, fill
from bench.soak.command import redis_megabytes, sqlite_megabytes
from topospread.app.stores import open_store

if TYPE_CHECKING:
    from pathlib import Path


def test_redis_size_grows_with_its_content(redis_url: str) -> None:
    before = redis_megabytes(redis_url)
    _fill(redis_url, drop=False)
    assert redis_megabytes(redis_url) > before + 0.1


def test_pages_of_a_file_that_are_free_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "state.db"
    _fill(f"sqlite://{file}", drop=False)
    full = sqlite_megabytes(file)
    _fill(f"sqlite://{file}", drop=True)
    assert sqlite_megabytes(file) < full / 2
    assert full <= file.stat().st_size / 1e6


def _fill(address: str, *, drop: bool) -> None:
    store = open_store(address, {})
    try:
        if drop:
            store.drop("some")
        else:
            fill(store, "some", Size(nodes=200, pods=1000))
    finally:
        store.close()

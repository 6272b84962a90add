"""What a cluster takes up is asked of the stores themselves."""

from __future__ import annotations

import json


def test_sizes_are_of_what_was_written(bench, redis_binary):
    size = ("--nodes", "12", "--pods", "60", "--changes", "200", "-o", "json")
    completed = bench("sizes", "--redis-server", redis_binary, *size)
    assert completed.code == 0, completed.err
    figures = json.loads(completed.out)
    assert figures["nodes"] == 12
    # 20 apps have a Service and a ReplicaSet each; no pod goes so soon.
    assert figures["objects"] == figures["logChanges"] == 2 * 20 + 12 + 60 + 200
    assert 50 < figures["redisBytesAnObject"] < 5000
    assert figures["redisBytes"] > figures["redisLogBytes"] > 200 * 50
    assert figures["sqliteBytes"] > 4096


def test_sizes_are_not_measured_without_a_redis_server(bench, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("REDIS_SERVER", raising=False)
    completed = bench("sizes")
    assert completed.code == 2
    assert "--redis-server" in completed.err

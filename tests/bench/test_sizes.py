"""What a cluster takes up is asked of the stores themselves."""

from __future__ import annotations

import json

from click.testing import CliRunner

from topospread.cli.main import root


def test_sizes_are_of_what_was_written(redis_binary):
    asked = ("--nodes", "12", "--pods", "60", "--changes", "200", "-o", "json")
    said = CliRunner().invoke(root, ["bench", "sizes", "--redis-server", str(redis_binary), *asked])
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert found["nodes"] == 12
    assert found["pods"] == 60 + 200, "those of the log are bound, and none goes so soon"
    # 20 apps have a Service and a ReplicaSet each.
    assert found["logChanges"] == 2 * 20 + 12 + 60 + 200
    assert 50 < found["redisBytesAPod"] < 5000
    assert found["redisBytes"] > found["redisLogBytes"] > 200 * 50
    assert found["sqliteBytes"] > 4096


def test_without_a_redis_server_nothing_is_measured(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("REDIS_SERVER", raising=False)
    said = CliRunner().invoke(root, ["bench", "sizes"], standalone_mode=False)
    assert "--redis-server" in str(said.exception)

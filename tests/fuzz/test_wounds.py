"""Short runs of `wounds`; what depends on a machine's speed is tried by the campaign alone."""

from __future__ import annotations

import json

from bench.campaigns import campaign, wounds

SMALL = ("--nodes", "20", "--pods", "40")
QUICK = ("40 KiB name", "removed file", "3,000 resources", "hostile SNI", "SIGTERM, unread log")


def test_each_wound_is_tried_and_nothing_is_lost_or_forged(capsys, monkeypatch):
    monkeypatch.setattr(wounds, "TIMES", 3)
    only = [word for name in QUICK for word in ("--only", name)]
    assert campaign.run(wounds.command, [*SMALL, *only, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    for name in QUICK:
        assert found[name]["tried"]
        assert not found[name]["fault"]
    for name in ("removed file", "hostile SNI"):
        assert found[name]["value"] == 0


def test_a_file_that_stays_makes_the_check_fail(capsys, monkeypatch):
    monkeypatch.setattr("pathlib.Path.unlink", lambda _: None)
    assert campaign.run(wounds.command, ["--only", "removed file", "--check"]) == 1
    assert "writes acknowledged: 12, at most 0" in capsys.readouterr().err

"""The example of a caller in Go does with a server what it says."""

from __future__ import annotations

import subprocess

from tests.servers import served

MISMATCH = "node(s) didn't match pod topology spread constraints"


def test_the_example_writes_asks_places_and_watches(go_programs):
    with served() as server:
        ran = subprocess.run(
            [go_programs / "caller", server.address], capture_output=True, text=True
        )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "apply: node-a OBJECT_OUTCOME_CREATED",
        "apply: node-b OBJECT_OUTCOME_CREATED",
        "apply: web-0 OBJECT_OUTCOME_CREATED",
        "evaluate: 1 of 2 nodes",
        "evaluate: 1 VERDICT_CODE_SUCCESS []",
        f"evaluate: 1 VERDICT_CODE_UNSCHEDULABLE [{MISMATCH}]",
        "place: VERDICT_CODE_SUCCESS node-b",
        "watch: WATCH_EVENT_TYPE_APPLIED web-0",
        "watch: WATCH_EVENT_TYPE_APPLIED web-1",
        "watch: WATCH_EVENT_TYPE_BOOKMARK ",
    ]

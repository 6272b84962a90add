"""Campaigns, shortened: what they count as wrong must be none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from bench.campaigns import client_faults as client
from bench.campaigns import failover

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.faults

SHORT = client.Plan(
    # A server has threads for 64 streams, and learns only later that one was cut.
    tasks=8,
    threads=8,
    seconds=3,
    every=1.5,
    outage=1.5,
    # What takes long on a busy machine is no fault.
    timeout=60,
    options={"keepalive": 5, "keepalive_timeout": 1, "retry_timeout": 60},
)


@pytest.mark.parametrize("scenario", client.SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_no_caller_hangs_or_gets_a_foreign_error(
    scenario: Callable[..., None], record_property: Callable[[str, object], None]
) -> None:
    plan = replace(SHORT, seconds=2) if scenario is client.silent else SHORT
    (figures,) = client.scenarios_of([scenario.__name__], plan)
    assert client.wrong(figures) == []
    assert figures.faults
    assert figures.answered
    # With so much time even the only server's callers are answered in the end.
    assert figures.failed == {}
    record_property("calls", figures.calls)
    record_property("seconds until all are answered again", figures.back)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("topology", "setting", "scenarios"),
    [
        ("sentinels", "none", ("planned",)),
        # Of a master that is killed it shows what it shows of one that lives on.
        ("sentinels", "waits", ("cut-off",)),
        ("cluster", "none", ("planned", "frozen")),
    ],
)
def test_a_failover_loses_nothing_that_was_acknowledged_after_it(
    tmp_path, topology, setting, scenarios, record_property
):
    found = list(failover.runs(setting, scenarios, 1, tmp_path, topology))

    assert failover.wrong(found) == []
    for run in found:
        assert run.acknowledged > 0
        assert run.reads > 0
        assert set(run.refused) <= {"Unavailable", "DeadlineExceeded", "StoreIdentityChanged"}
        record_property(f"{run.scenario}: seconds_without_writes", run.back)

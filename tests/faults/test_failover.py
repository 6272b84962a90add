"""Another Redis is made the master, under load: a short run of `bench.campaigns.failover`."""

from __future__ import annotations

import pytest

from bench.campaigns.failover import runs, wrong


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("topology", "setting", "scenarios"),
    [
        ("sentinels", "none", ("planned",)),
        ("sentinels", "waits", ("killed", "cut-off")),
        ("cluster", "none", ("planned", "frozen")),
    ],
)
def test_a_failover_loses_nothing_that_was_acknowledged_after_it(
    tmp_path, topology, setting, scenarios, record_property
):
    found = list(runs(setting, scenarios, 1, tmp_path, topology))

    assert wrong(found) == []
    for run in found:
        assert run.acknowledged > 0
        assert run.reads > 0
        assert set(run.refused) <= {"Unavailable", "DeadlineExceeded", "StoreIdentityChanged"}
        record_property(f"{run.scenario}: seconds_without_writes", run.back)

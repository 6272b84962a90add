"""Each repeated field of each request, grown: what it costs, and that it has a limit.

The fields are found in the descriptors, so that one which is added is tried as well. Costs are the
server's own: processor time of its threads and its peak of memory, never a time on the clock. For
the sizes of a large cluster: ``python -m bench.campaigns growth``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.campaigns.combined import COMBINED
from bench.campaigns.grown import Growth, growths
from bench.campaigns.growth import judged, judged_together
from bench.campaigns.measured import AS_SHIPPED, Measured, load
from tests.servers import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

GROWTHS = list(growths())
SERVICES = sorted({growth.method.split("/")[1] for growth in GROWTHS})
SLACK = 6.0
"""Times what a call may cost on a quiet machine."""


@pytest.fixture(scope="module")
def measured() -> Iterator[Measured]:
    with ServerProcess("--http", "off", "--store", "memory:", **AS_SHIPPED) as server:
        one = Measured(server.process.pid, server.address)
        load(one, nodes=100, pods=500, workloads=20)
        yield one


def test_all_services_have_fields_that_repeat() -> None:
    assert len(SERVICES) >= 5
    assert len(GROWTHS) > 300
    assert "EvaluatePod pod.object.spec.tolerations" in {
        growth.name.split("/")[1] for growth in GROWTHS
    }


@pytest.mark.parametrize(
    "method", sorted({growth.method for growth in GROWTHS}), ids=lambda m: m.rpartition("/")[2]
)
def test_no_field_costs_more_than_its_bound(measured: Measured, method: str) -> None:
    own = [growth for growth in GROWTHS if growth.method == method]
    found = [
        fault for growth in own for fault in judged(measured, growth, slack=SLACK, closely=False)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", COMBINED)
def test_no_fields_together_cost_more_than_the_bound(measured: Measured, name: str) -> None:
    assert judged_together(measured, name, slack=SLACK) == []


def test_a_field_without_a_limit_fails(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk would tell: a limit that the server does not keep is one that it lacks."""
    (growth,) = (g for g in GROWTHS if g.name.endswith("/EvaluatePod pod.object.metadata.labels"))
    monkeypatch.setattr(Growth, "limit", 500)
    monkeypatch.setattr("bench.campaigns.growth.UNREAD", 600)
    (fault, *_) = judged(measured, growth, slack=SLACK, closely=False)
    assert "EvaluatePod pod.object.metadata.labels: no limit" in fault

"""A soak reports what is broken: each criterion, fed with a value that breaks it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from bench.soak.callers import CallStatistics
from bench.soak.command import show
from bench.soak.reference_replica import IndexComparison, LogSummary
from bench.soak.report import CacheSizes, GrowthBound, Levels, SoakReport, parts

if TYPE_CHECKING:
    from collections.abc import Callable


def levels(*samples: float) -> Levels:
    return Levels("memory", "MB", GrowthBound(share=0.05, more=10.0), list(samples))


def well() -> SoakReport:
    """A soak after which all is as it should be."""
    found = SoakReport(began=10, changes=100, seconds=2.0, asked=3)
    found.memory.samples = [100.0 + number % 3 for number in range(48)]
    found.stored.samples = [5.0] * 24
    found.kept = [CacheSizes(7, 20, 100.0)] * 24
    found.compared = [IndexComparison(9, 5, 50, 20, 7, [])]
    found.calls = CallStatistics({"evaluate": [0.001, 0.002]}, conflicts=4)
    found.recorded = LogSummary(12, 12, 110, "")
    found.left = found.fresh = CacheSizes(0, 20, 100.0)
    return found


def leaks(found: SoakReport) -> None:
    found.memory.samples = [100.0 + number for number in range(48)]


def fills(found: SoakReport) -> None:
    found.stored.samples = [5.0 + 4 * number for number in range(24)]


def misses(found: SoakReport) -> None:
    found.recorded = LogSummary(0, 12, 110, "revision 7 follows 5")


def lags(found: SoakReport) -> None:
    found.recorded = LogSummary(11, 12, 110, "")


def loses_entries(found: SoakReport) -> None:
    found.recorded = LogSummary(12, 12, 109, "")


def miscounts(found: SoakReport) -> None:
    found.compared.append(IndexComparison(10, 5, 50, 20, 7, ["node n: not the same"]))


def answers_otherwise(found: SoakReport) -> None:
    found.differing.append("EvaluatePod team-1/web-1")


def keeps_label_sets(found: SoakReport) -> None:
    found.left = CacheSizes(0, 21, 100.0)


def keeps_groups(found: SoakReport) -> None:
    found.left = CacheSizes(1, 20, 100.0)


def keeps_places(found: SoakReport) -> None:
    found.expired_reservations = 1


def fails(found: SoakReport) -> None:
    found.calls.failed = Counter({"Unavailable": 2})


def loses_changes(found: SoakReport) -> None:
    found.without_effect = Counter({"ignored stale": 3})


def test_healthy_soak_reports_nothing_broken() -> None:
    assert list(well().broken()) == []
    plain = well().plain()
    assert plain["changesPerSecond"] == 50
    assert plain["calls"]["evaluate"]["count"] == 2
    assert [each["groups"] for each in plain["parts"]] == [7] * 12


def test_store_that_cannot_be_measured_is_left_out() -> None:
    found = well()
    found.stored.samples = []
    plain = found.plain()
    assert plain["storeMegabytes"] is None
    assert not plain["broken"]
    assert plain["parts"][0].keys() == {"memoryMegabytes", "groups", "labelSets"}


def test_report_is_printed_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    show(well().plain())
    shown = capsys.readouterr().out
    assert "secondQuarter 101.0, lastQuarter 101.0" in shown
    assert "evaluate" in shown
    assert "LABELSETS" in shown


@pytest.mark.parametrize(
    ("happens", "expected"),
    [
        (leaks, "the server's memory: 117.5 MB in the second quarter, 141.5 in the last one"),
        (fills, "the store: "),
        (misses, "revisions: revision 7 follows 5"),
        (lags, "revisions: 11 were recorded, the head is 12"),
        (loses_entries, "110 changes were written, 109 recorded"),
        (miscounts, "index at revision 10: node n: not the same"),
        (answers_otherwise, "EvaluatePod team-1/web-1"),
        (keeps_label_sets, "21 label sets are kept at the end, by a fresh server 20"),
        (keeps_groups, "1 selectors are kept"),
        (keeps_places, "1 places are held"),
        (fails, "2 calls failed with Unavailable"),
        (loses_changes, "3 changes came to nothing: ignored stale"),
    ],
)
def test_each_broken_criterion_is_reported(
    happens: Callable[[SoakReport], None], expected: str
) -> None:
    found = well()
    happens(found)
    (line,) = found.broken()
    assert expected in line
    assert found.plain()["broken"] == [line]


def test_warm_up_and_peaks_are_no_growth() -> None:
    warming = [50.0, 80.0, 95.0, *[100.0] * 9]
    peaking = [*[100.0] * 7, 400.0, *[100.0] * 4]
    for samples in (warming, peaking):
        assert levels(*samples).flat
        assert parts(samples) == samples


@pytest.mark.parametrize(("last", "flat"), [(115.0, True), (115.1, False), (20.0, True)])
def test_bound_is_a_share_and_an_absolute_amount(last: float, flat: bool) -> None:
    assert levels(1.0, 100.0, 1.0, last).flat is flat


def test_too_few_samples_have_no_quarters() -> None:
    with pytest.raises(ValueError, match="3 samples"):
        _ = levels(1.0, 2.0, 3.0).flat

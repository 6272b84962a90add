"""Groups that are counted together have the counts that each has alone."""

from __future__ import annotations

import numpy as np
import pytest

from tests.index.changes import group
from topospread.index.builder import FEW_GROUPS, FEW_LABEL_SETS, Builder
from topospread.index.changes import PodChange, PodRow

APPS = 2 * FEW_GROUPS
PODS = 8 * APPS
SLOTS = 64


@pytest.fixture
def builder() -> Builder:
    """Pods of many apps, each in a cell of its own; some do not count."""
    made = Builder()
    rows = [
        PodRow(
            (("app", f"a{number % APPS}"), ("cell", str(number))),
            f"n{number % 7}",
            counted=number % 5 > 0,
        )
        for number in range(PODS)
    ]
    made.fold([PodChange("default", f"p{number}", row) for number, row in enumerate(rows)])
    return made


def test_many_at_once_have_the_counts_of_one_at_a_time(builder: Builder) -> None:
    keys = [group(labels={"app": f"a{number}"}) for number in range(APPS)]
    # With more label sets than are gathered one by one, and with none.
    keys += [group("default", None, ("cell", "Exists", ())), group(labels={"app": "none"})]
    assert len({str(number) for number in range(PODS) if number % 5}) > FEW_LABEL_SETS
    together = builder.ensure_counted(keys)
    counts = {key: together.groups[key].counts(SLOTS) for key in keys}
    builder.drop_idle(together.sequence + 10)
    for key in keys:
        again = builder.ensure_counted([key])
        assert np.array_equal(again.groups[key].counts(SLOTS), counts[key])
    assert sum(int(each.sum()) for each in list(counts.values())[:APPS]) == PODS * 4 // 5

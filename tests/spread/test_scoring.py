"""Rounding and normalizing as Go does it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import scoring as reference
from topospread.spread.scoring import normalize, round_half_away


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (0.0, 0),
        (0.49999999999999994, 0),  # + 0.5 is 1.0 in floating point
        (0.5, 1),
        (1.5, 2),
        (2.5, 3),
        (-0.4, 0),
        (-0.5, -1),
        (-2.5, -3),
        (4503599627370497.0, 4503599627370497),
        (2 * math.log(3), 2),
    ],
)
def test_halves_are_rounded_away_from_zero(value: float, rounded: int):
    assert round_half_away(np.array([value])).tolist() == [rounded]
    assert reference.round_half_away(value) == rounded


@given(st.lists(st.floats(-1e15, 1e15)))
def test_rounding_is_the_models(values: list[float]):
    rounded = round_half_away(np.array(values, dtype=np.float64)).tolist()
    assert rounded == [reference.round_half_away(value) for value in values]


@pytest.mark.parametrize(
    ("raw", "ignored", "normalized"),
    [
        ([0, 0], [], [100, 100]),
        ([3, 2, 0], [], [0, 33, 100]),
        ([7], [], [100]),
        ([4, 2], [], [50, 100]),  # the worst gets 100 · min / max, not 0
        ([5, 9, 0], [2], [100, 55, 0]),  # an ignored node's 0 is no minimum
        ([0, 0], [0, 1], [0, 0]),
        ([], [], []),
        ([-1, 7], [], [0, 0]),  # −1 is upstream's mark of an ignored node
        ([-1, -1], [], [0, 0]),
        ([-7, -3], [], [100, 100]),  # a maximum below 0 counts as 0
        ([-7, 3], [], [100, 0]),  # 100 · −7 / 3 is cut to 0
    ],
)
def test_scores_are_turned_round(raw: list[int], ignored: list[int], normalized: list[int]):
    passed_over = np.isin(np.arange(len(raw)), ignored)
    assert normalize(np.array(raw, dtype=np.int64), passed_over).tolist() == normalized


@given(st.lists(st.tuples(st.integers(-3, 400), st.booleans()), max_size=9))
def test_normalizing_is_the_models_within_bounds(nodes: list[tuple[int, bool]]):
    names = [f"n{number}" for number in range(len(nodes))]
    raw = [0 if ignored else score for score, ignored in nodes]
    passed_over = [ignored for _, ignored in nodes]
    found = normalize(np.array(raw, dtype=np.int64), np.array(passed_over, dtype=np.bool_))
    expected = reference.normalize(
        dict(zip(names, raw, strict=True)),
        frozenset(name for name, ignored in zip(names, passed_over, strict=True) if ignored),
    )
    assert found.tolist() == [min(max(expected[name], 0), 100) for name in names]

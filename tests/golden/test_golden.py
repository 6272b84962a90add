"""Answers are those that were recorded, to the letter; without meta, times and ids."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.recorded import PARTS, RECORD, difference, found


@pytest.fixture(scope="module")
def answers() -> dict[str, dict[str, Any]]:
    return found()


@pytest.mark.parametrize("part", PARTS)
def test_answers_are_as_recorded(answers, part):
    assert answers.keys() == set(PARTS)
    differs = difference(part, answers[part])
    assert not differs, f"if it is meant, say so in CHANGELOG and run\n{RECORD} {part}\n\n{differs}"

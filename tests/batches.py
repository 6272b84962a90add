"""Hundreds of recorded cases in one test: each is checked, and a failure names all that differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class Named(Protocol):
    """A case with a name that tells it from the others."""

    @property
    def name(self) -> str:
        """What a failure calls it."""


Case = TypeVar("Case", bound=Named)


def check_each(cases: Sequence[Case], differences: Callable[[Case], Iterable[object]]) -> None:
    """Fail after the last case when any of them differs from what is recorded, and list all.

    Args:
        cases: at least one.
        differences: what is wrong with a case, a line each; an exception is a difference, too.
    """
    failures = []
    for case in cases:
        try:
            found = list(map(str, differences(case)))
        except Exception as error:  # noqa: BLE001 - the other cases are to be checked as well
            found = [f"{type(error).__name__}: {error}"]
        if found:
            failures.append("\n  ".join([f"{case.name}:", *found]))
    assert cases
    if failures:
        heading = f"{len(failures)} of {len(cases)} cases differ"
        pytest.fail("\n".join([heading, *failures]), pytrace=False)

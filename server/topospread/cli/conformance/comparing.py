"""Recorded and given answers side by side."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from topospread.cli.conformance.cases import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from topospread_client import Verdict

ABSENT: Final = "absent"
_ERROR: Final = "Error"


def recorded_form(status: Verdict) -> dict[str, Any]:
    """A status as recordings write it."""
    return {"code": status.code.label, "reasons": list(status.reasons)}


def differences(expected: Mapping[str, Any], got: Mapping[str, Any]) -> list[Difference]:
    """All members that differ, those inside members included."""
    found: list[Difference] = []
    for member in dict.fromkeys([*expected, *got]):
        found.extend(_compare(member, expected.get(member, ABSENT), got.get(member, ABSENT)))
    return found


def _compare(member: str, expected: Any, got: Any) -> Iterator[Difference]:
    if _is_status(expected) and _is_status(got):
        # The texts of errors are the parser's own; only that there was one is upstream's promise.
        same = expected["code"] == got["code"]
        if not same or (expected != got and expected["code"] != _ERROR):
            yield Difference(member, expected, got)
    elif isinstance(expected, dict) and isinstance(got, dict):
        for key in dict.fromkeys([*expected, *got]):
            inner = f"{member}[{key}]"
            yield from _compare(inner, expected.get(key, ABSENT), got.get(key, ABSENT))
    elif isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        for position, (one, other) in enumerate(zip(expected, got, strict=True)):
            yield from _compare(f"{member}[{position}]", one, other)
    elif expected != got:
        yield Difference(member, expected, got)


def _is_status(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {"code", "reasons"}


def unordered(member: str, expected: list[str], got: list[str]) -> list[Difference]:
    """What one list has and the other has not, whatever the order."""
    missing, extra = Counter(expected) - Counter(got), Counter(got) - Counter(expected)
    found = [Difference(member, text, ABSENT) for text in missing.elements()]
    return [*found, *(Difference(member, ABSENT, text) for text in extra.elements())]

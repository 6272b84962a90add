"""What came of recorded cases, in words that can be pasted into a bug report."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.cli.conformance.cases import Result

_MOST: Final = 10
"""Differences shown of one case; a wrong count of one domain may show on thousands of nodes."""


def lines(result: Result) -> Iterator[str]:
    """A case that differs with everything that differs; a case that passed with its remark."""
    if result.passed:
        if result.remark:
            yield f"passed {result.name} {result.remark}"
        return
    path = result.source.rpartition(":")[0] or result.source
    yield f"differs {result.name} ({result.source})"
    for difference in result.differences[:_MOST]:
        yield f"    {difference.member}"
        yield f"        recorded {_json(difference.expected)}"
        yield f"        answered {_json(difference.got)}"
    if len(result.differences) > _MOST:
        yield f"    … and {len(result.differences) - _MOST} more differences"
    again = shlex.join(["topospread", "conformance", path, "--case", result.name])
    yield f"    again: {again}"


def _json(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()

"""Label queries as kubectl's ``-l`` takes them: ``app=web,tier!=db,zone in (a,b),!canary``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from topospread.cli.complaints import BadInput
from topospread_proto.v1.kubernetes_pb2 import LabelSelector, LabelSelectorRequirement

if TYPE_CHECKING:
    from collections.abc import Iterator

_PART: Final = re.compile(r"(?:[^,(]|\([^)]*\)?)*")
_SET: Final = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL: Final = re.compile(r"^(?P<key>[^\s=!]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!]*)$")
_EXISTS: Final = re.compile(r"^(?P<no>!?)\s*(?P<key>[^\s=!(),]+)$")


def selector_of(query: str, option: str = "--selector") -> LabelSelector:
    """The selector that a query means.

    Args:
        query: requirements, separated by commas.
        option: that it was given with.

    Raises:
        BadInput: a part that is no requirement.
    """
    parts = [part.strip() for part in _parts(query)]
    return LabelSelector(match_expressions=[_requirement(part, option) for part in parts])


def _parts(query: str) -> Iterator[str]:
    """What stands between the commas that are in no parentheses."""
    at = 0
    while at <= len(query):
        found = _PART.match(query, at)
        assert found is not None, "it matches nothing, too"
        yield found[0]
        at = found.end() + 1


def _requirement(part: str, option: str) -> LabelSelectorRequirement:
    if found := _SET.match(part):
        values = [value.strip() for value in found["values"].split(",")]
        operator = "In" if found["operator"] == "in" else "NotIn"
        return LabelSelectorRequirement(key=found["key"], operator=operator, values=values)
    if found := _EQUAL.match(part):
        operator = "NotIn" if found["operator"] == "!=" else "In"
        values = [found["value"]]
        return LabelSelectorRequirement(key=found["key"], operator=operator, values=values)
    if found := _EXISTS.match(part):
        operator = "DoesNotExist" if found["no"] else "Exists"
        return LabelSelectorRequirement(key=found["key"], operator=operator)
    raise BadInput(
        f"{option}: {part!r} is no requirement: write key=value, key!=value, key, !key, "
        "key in (a,b) or key notin (a,b)"
    )

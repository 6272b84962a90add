"""Label queries as kubectl's ``-l`` takes them: ``app=web,tier!=db,zone in (a,b),!canary``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from topospread_client._errors import invalid
from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector, LabelSelectorRequirement

if TYPE_CHECKING:
    from collections.abc import Iterator

_PART: Final = re.compile(r"(?:[^,(]|\([^)]*\)?)*")
_KEY: Final = r"(?P<key>[^\s=!(),]+)"
_SET: Final = re.compile(rf"^{_KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL: Final = re.compile(rf"^{_KEY}\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!()]*)$")
_EXISTS: Final = re.compile(rf"^(?P<no>!?)\s*{_KEY}$")


def selector_from_query(query: str, path: str = "labelSelector") -> LabelSelector:
    """The selector that a query means; an empty one selects everything.

    Args:
        query: requirements, separated by commas.
        path: of the selector, for complaints.

    Raises:
        InvalidRequest: a part that is no requirement.
    """
    if not query.strip():
        return LabelSelector()
    parts = [part.strip() for part in _parts(query)]
    return LabelSelector(match_expressions=[_requirement(part, path) for part in parts])


def _parts(query: str) -> Iterator[str]:
    """What stands between the commas that are in no parentheses."""
    at = 0
    while at <= len(query):
        found = _PART.match(query, at)
        assert found is not None, "it matches nothing, too"
        yield found[0]
        at = found.end() + 1


def _requirement(part: str, path: str) -> LabelSelectorRequirement:
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
    raise invalid(
        path,
        f"{part!r} is no requirement: write key=value, key!=value, key, !key, key in (a,b) or "
        "key notin (a,b)",
    )

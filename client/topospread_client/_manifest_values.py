"""Single values of manifests: what the API server's decoder takes for a field, and how it is kept.

Each function takes a value as JSON or YAML decodes it and raises :class:`MisfitError` for one of
another type. ``None`` never gets here: null is like absent, or like the type's empty value.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final

INT32: Final = range(-(2**31), 2**31)
INT64: Final = range(-(2**63), 2**63)

ZERO_TIME: Final = -62135596800
"""Seconds of 0001-01-01T00:00:00Z, Go's zero time, which is an empty message on the wire."""

_LAST_TIME: Final = 253402300799

_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)
_QUANTITY: Final = re.compile(
    r"[+-]?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?"
)
_QUANTITY_TEXT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_SHOWN: Final = 60


class MisfitError(Exception):
    """A value that its field does not take.

    Attributes:
        path: where, innermost part first; each level of the document adds its own.
    """

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message)
        self.path = list(path)


def text(value: object) -> str:
    """A string; halves of surrogate pairs become U+FFFD, as Go's decoder makes them."""
    if not isinstance(value, str):
        raise misfit("string", value)
    return value if value.isascii() else _SURROGATES.sub("\ufffd", value)


def boolean(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise misfit("boolean", value)
    return value


def integer(value: object, allowed: range) -> int:
    """A whole number; YAML's ``1.0`` is one, too."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise misfit("integer", value)
    if value not in allowed:
        bits = allowed.stop.bit_length()
        raise MisfitError(f"expected integer of {bits} bits, got {value}")
    return value


def quantity(value: object) -> str:
    """A resource's amount, written as a string or as a number."""
    if isinstance(value, float) and math.isfinite(value):
        value = int(value) if value.is_integer() else repr(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise misfit("quantity", value)
    written = value.strip()
    if not _QUANTITY.fullmatch(written):
        raise MisfitError(f"{_QUANTITY_TEXT}, got {_shown(value)}")
    return written


def seconds(value: object) -> int:
    """A time in RFC 3339, as seconds since 1970; YAML may have made a datetime of it already."""
    if isinstance(value, str) and _RFC3339.fullmatch(value):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise misfit("time in RFC 3339", value) from None
    if not isinstance(value, datetime):
        raise misfit("time in RFC 3339", value)
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    return math.floor(value.timestamp())


def time_text(moment: int) -> str:
    """Seconds since 1970 in RFC 3339; what lies outside the years 1 to 9999 becomes their end."""
    shown = datetime.fromtimestamp(min(max(moment, ZERO_TIME), _LAST_TIME), UTC)
    return shown.isoformat().replace("+00:00", "Z")


def key(value: object) -> str:
    """A key of a map; YAML may have read a number or a boolean where JSON has a string."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise MisfitError(f"expected string as key, got {_described(value)}")
    return text(value)


def misfit(expected: str, value: object) -> MisfitError:
    """A value of another type than expected."""
    return MisfitError(f"expected {expected}, got {_described(value)}")


def _described(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean {str(value).lower()}"
        case int() | float():
            return f"number {value}"
        case str():
            return f"string {_shown(value)}"
        case dict():
            return "object"
        case list() | tuple():
            return "array"
    return type(value).__name__


def _shown(value: str) -> str:
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
    return '"' + shown.replace("\\", "\\\\").replace('"', '\\"') + '"'

"""The API server's field errors: how they are made and how they read.

One kind of error a function, after apimachinery's ``field`` package; texts as ``field.Error`` and
``errors.Aggregate`` print them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from topospread.errors import FieldViolation, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

REQUIRED: Final = "Required value"
INVALID: Final = "Invalid value"
NOT_SUPPORTED: Final = "Unsupported value"
FORBIDDEN: Final = "Forbidden"
DUPLICATE: Final = "Duplicate value"

_WITHOUT_VALUE: Final = frozenset({REQUIRED, FORBIDDEN})

_ESCAPES: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f",
    "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip
# What Go's encoding/json escapes for the sake of HTML and JavaScript.
_JSON_ESCAPES: Final = str.maketrans(
    {c: f"\\u{ord(c):04x}" for c in ("<", ">", "&", "\u2028", "\u2029")}
)


def required(field: str, detail: str) -> FieldViolation:
    """Something must be there and is not."""
    return FieldViolation(field, detail, REQUIRED, "")


def invalid(field: str, value: object, detail: str) -> FieldViolation:
    """A value that is malformed or out of range."""
    return FieldViolation(field, detail, INVALID, value)


def not_supported(field: str, value: str, supported: Iterable[str]) -> FieldViolation:
    """A value that is not one of the few there are."""
    choice = ", ".join(quoted(one) for one in supported)
    return FieldViolation(field, f"supported values: {choice}", NOT_SUPPORTED, value)


def forbidden(field: str, detail: str) -> FieldViolation:
    """Something that must not be there."""
    return FieldViolation(field, detail, FORBIDDEN, "")


def duplicate(field: str, value: object) -> FieldViolation:
    """A value that must be unique and is not."""
    return FieldViolation(field, "", DUPLICATE, value)


class noted:  # noqa: N801 - a context manager, as contextlib's
    """Add what a part of a request is refused for to what is wrong, and go on after the block.

    No generator: the frame of one would be in the traceback of the error, and a reference cycle.

    Args:
        wrong: gets it.
        path: where the part stands; empty for the root.
    """

    def __init__(self, wrong: list[FieldViolation], path: str = "") -> None:
        self._wrong = wrong
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, InvalidRequest):
            return False
        self._wrong += error.below(self._path) if self._path else error.violations
        return True


def violation_text(violation: FieldViolation) -> str:
    """Text of an error as Go prints it: ``field: Type: value: detail``."""
    text = f"{violation.field}: {violation.type}"
    if violation.type not in _WITHOUT_VALUE:
        text += f": {_shown(violation.bad_value)}"
    return f"{text}: {violation.description}" if violation.description else text


def violations_text(violations: Sequence[FieldViolation]) -> str:
    """Several errors as an ``errors.Aggregate`` prints them: equal ones once, brackets from two."""
    return aggregated(map(violation_text, violations))


def aggregated(texts: Iterable[str]) -> str:
    """Texts joined as an ``errors.Aggregate`` prints them."""
    distinct = list(dict.fromkeys(texts))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def quoted(text: str) -> str:
    """The text as Go's ``%q`` prints it."""
    return f'"{"".join(map(_escaped, text))}"'


def _shown(value: object) -> str:
    if isinstance(value, str):
        return quoted(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_JSON_ESCAPES)


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

"""The API server's field errors: how they are made and how they read.

One kind of error a function, after apimachinery's ``field`` package; texts as ``field.Error`` and
``errors.Aggregate`` print them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar, cast

from typing_extensions import override

from topospread.checkpoints import checkpoint
from topospread.errors import FieldViolation, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

_P = ParamSpec("_P")
_T = TypeVar("_T")

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


def unknown(field: str, value: object, known: Iterable[str]) -> FieldViolation:
    """A number that none of an enum's values has; not in apimachinery, where enums are texts."""
    return FieldViolation(field, f"must be one of {', '.join(known)}", NOT_SUPPORTED, value)


def forbidden(field: str, detail: str) -> FieldViolation:
    """Something that must not be there."""
    return FieldViolation(field, detail, FORBIDDEN, "")


def duplicate(field: str, value: object) -> FieldViolation:
    """A value that must be unique and is not."""
    return FieldViolation(field, "", DUPLICATE, value)


class Problems:
    """Everything that is wrong with a request, for one error."""

    __slots__ = ("_refused", "violations")

    def __init__(self) -> None:
        self.violations: list[FieldViolation] = []
        self._refused: list[InvalidRequest] = []

    def add(self, *violations: FieldViolation) -> None:
        """Add what was found."""
        self.violations += violations

    def read(self, part: Callable[_P, _T], /, *args: _P.args, **options: _P.kwargs) -> _T:
        """What a function reads from the request; where it refuses, None, and its violations here.

        So nothing that was read may be used before :meth:`raise_all`.
        """
        checkpoint()
        try:
            return part(*args, **options)
        except InvalidRequest as refused:
            self._refused.append(refused)
            self.violations += refused.violations
            return cast("_T", None)

    def under(self, path: str = "") -> _Part:
        """A context manager: what its block refuses is added, with paths below this one."""
        return _Part(self.violations, path)

    def forget_errors(self) -> list[InvalidRequest]:
        """Let the errors go: they refer to the frames they came through, and these to this."""
        refused, self._refused = self._refused, []
        return refused

    def raise_all(self) -> None:
        """Raise what was found, if anything was."""
        refused = self.forget_errors()
        if len(refused) == 1 and len(refused[0].violations) == len(self.violations):
            raise refused.pop()
        refused.clear()
        if self.violations:
            raise InvalidRequest.of(self.violations)


class _First(Problems):
    """Nothing is collected: the first violation is raised where it is found."""

    @override
    def read(self, part: Callable[_P, _T], /, *args: _P.args, **options: _P.kwargs) -> _T:
        return part(*args, **options)


FIRST: Final = _First()
"""For requests that are right nearly always: a wrong one is read again to find all violations."""


class _Part:
    """Add what a block refuses to what is wrong, and go on after it.

    No generator: the frame of one would be in the traceback of the error: a reference cycle.
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

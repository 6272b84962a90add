"""What callers give, put into messages; what does not fit there is an `InvalidRequest`.

Paths are those of the request's fields, in JSON's names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from topospread_client._errors import invalid
from topospread_client._manifest_values import misfit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from enum import StrEnum

_P = ParamSpec("_P")
_T = TypeVar("_T")
_S = TypeVar("_S")
_M = TypeVar("_M", bound=Message)

_EXPECTED: Final = {
    FieldDescriptor.CPPTYPE_INT32: "integer of 32 bits",
    FieldDescriptor.CPPTYPE_INT64: "integer of 64 bits",
    FieldDescriptor.CPPTYPE_BOOL: "boolean",
    FieldDescriptor.CPPTYPE_STRING: "string",
}


def request(kind: Callable[_P, _M], /, *args: _P.args, **fields: _P.kwargs) -> _M:
    """A request.

    Raises:
        InvalidRequest: its first field that does not take what was given.
    """
    return part("", kind, *args, **fields)


def part(path: str, kind: Callable[_P, _M], /, *args: _P.args, **fields: _P.kwargs) -> _M:
    """A message within a request; raises as :func:`request` does."""
    try:
        return kind(*args, **fields)
    except (TypeError, ValueError) as error:
        for name, value in fields.items():
            _check(path, kind, name, value)
        raise invalid(path, str(error)) from error


def several(given: Iterable[_T], path: str) -> list[_T]:
    """What is meant to be a list; what is one thing, though it can be iterated over, is none.

    Raises:
        InvalidRequest: it is not.
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise unexpected(path, "list", given)
    return list(given)


def each(given: Iterable[_T], path: str) -> Iterator[tuple[str, _T]]:
    """Each thing of what is meant to be a list, with its path; raises as :func:`several` does."""
    for number, one in enumerate(several(given, path)):
        yield f"{path}[{number}]", one


def expect(kind: type[_T], given: object, path: str) -> _T:
    """What is meant to be of a class.

    Raises:
        InvalidRequest: it is not.
    """
    if isinstance(given, kind):
        return given
    raise unexpected(path, kind.__name__, given)


def pair(given: tuple[_T, _S], path: str) -> tuple[_T, _S]:
    """What is meant to be a pair; raises as :func:`expect` does."""
    if len(expect(tuple, given, path)) != 2:
        raise invalid(path, "expected a pair")
    return given


def unexpected(path: str, expected: str, given: object) -> Exception:
    """The error for something of another type than expected."""
    if given is None:
        return invalid(path, "", "FIELD_VALUE_REQUIRED")
    return invalid(path, str(misfit(expected, given)))


def member(enum: Any, kind: type[StrEnum], given: str | None, path: str) -> Any:
    """A member of an enum as requests carry it; None leaves it to the server.

    Args:
        enum: the messages' own.
        kind: its members by name.
        given: one of them.
        path: of the field.

    Raises:
        InvalidRequest: it is none.
    """
    if given is None:
        return 0
    try:
        return enum.Value(enum.Name(0).removesuffix("UNSPECIFIED") + kind(given))
    except ValueError:
        known = ", ".join(kind)
        text = f"{given!r} is no {kind.__name__}: there are {known}"
        raise invalid(path, text, "FIELD_VALUE_NOT_SUPPORTED") from None


def duration(seconds: float | None, path: str) -> Duration | None:
    """Seconds as requests carry them; None leaves the field to the server.

    Raises:
        InvalidRequest: what is no number of seconds, or too large a one.
    """
    if seconds is None:
        return None
    message = Duration()
    try:
        message.FromTimedelta(timedelta(seconds=seconds))
    except TypeError:
        raise unexpected(path, "number of seconds", seconds) from None
    except (ValueError, OverflowError):  # NaN, infinity, or more than a Duration holds
        raise invalid(path, f"{seconds} is no duration in seconds") from None
    return message


def _check(path: str, kind: Callable[..., Message], name: str, value: Any) -> None:
    """Try one field alone, and one value after the other of a list."""
    field = kind.DESCRIPTOR.fields_by_name[name]  # type: ignore[attr-defined] # a class
    where = f"{path}.{field.json_name}".removeprefix(".")
    tries = [(where, value, value)]
    if isinstance(value, list):
        tries = [(f"{where}[{number}]", [each], each) for number, each in enumerate(value)]
    for at, tried, one in tries:
        try:
            kind(**{name: tried})
        except UnicodeError as error:
            raise invalid(at, str(error)) from error
        except (TypeError, ValueError) as error:
            raise unexpected(at, _expected(field), one) from error


def _expected(field: FieldDescriptor) -> str:
    message = field.message_type
    if message is None:
        return _EXPECTED[field.cpp_type]
    if not message.GetOptions().map_entry:
        return message.name
    key, value = map(_expected, message.fields)
    return f"map of {key} to {value}"

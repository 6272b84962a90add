"""Arguments of callers, checked and put into messages; the wrong ones raise `InvalidRequest`.

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
from topospread_client._manifest_fields import field_type_error

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
    """Make a request.

    Raises:
        InvalidRequest: the first field whose type does not take its argument.
    """
    return _message("", kind, args, fields)


def part(path: str, kind: Callable[_P, _M], /, *args: _P.args, **fields: _P.kwargs) -> _M:
    """Make a message within a request; raises as :func:`request` does."""
    return _message(path, kind, args, fields)


def _message(
    path: str, kind: Callable[..., _M], args: tuple[Any, ...], fields: Mapping[str, Any]
) -> _M:
    # To pass an empty field on takes as long as one that is given.
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return kind(*args, **given)
    except (TypeError, ValueError, OverflowError) as error:
        for name, value in given.items():
            _check(path, kind, name, value)
        raise invalid(path, str(error)) from error


def several(argument: Iterable[_T], path: str) -> Iterable[_T]:
    """Check that an argument is an iterable; strings, bytes and mappings are single values.

    Raises:
        InvalidRequest: the argument is no such iterable.
    """
    if isinstance(argument, str | bytes | Mapping) or not isinstance(argument, Iterable):
        raise type_violation(path, "list", argument)
    return argument


def as_list(argument: Iterable[_T], path: str) -> list[_T]:
    """Copy an iterable argument; raises as :func:`several` does."""
    return list(several(argument, path))


def with_paths(argument: Iterable[_T], path: str) -> Iterator[tuple[str, _T]]:
    """Elements of an iterable argument with their paths; raises as :func:`as_list` does."""
    for number, element in enumerate(as_list(argument, path)):
        yield f"{path}[{number}]", element


def checked(kind: type[_T], argument: object, path: str) -> _T:
    """Check the class of an argument.

    Raises:
        InvalidRequest: the argument is of another class.
    """
    if isinstance(argument, kind):
        return argument
    raise type_violation(path, kind.__name__, argument)


def checked_pair(argument: tuple[_T, _S], path: str) -> tuple[_T, _S]:
    """Check that an argument is a pair; raises as :func:`checked` does."""
    if len(checked(tuple, argument, path)) != 2:
        raise invalid(path, "expected a pair")
    return argument


def type_violation(path: str, expected: str, argument: object) -> Exception:
    """Error for an argument of another type than expected."""
    if argument is None:
        return invalid(path, "", "FIELD_VALUE_REQUIRED")
    return invalid(path, str(field_type_error(expected, argument)))


def enum_value(enum: Any, kind: type[StrEnum], member: str | None, path: str) -> Any:
    """Number of a member of an enum; None leaves the field to the server.

    Args:
        enum: the enum of the messages.
        kind: the enum of this package.
        member: of `kind`, or its name.
        path: of the field.

    Raises:
        InvalidRequest: there is no such member.
    """
    if member is None:
        return 0
    try:
        return enum.Value(enum.Name(0).removesuffix("UNSPECIFIED") + kind(member))
    except ValueError:
        known = ", ".join(kind)
        text = f"{member!r} is no {kind.__name__}: there are {known}"
        raise invalid(path, text, "FIELD_VALUE_NOT_SUPPORTED") from None


def duration(seconds: float | None, path: str) -> Duration | None:
    """Duration of some seconds; None leaves the field to the server.

    Raises:
        InvalidRequest: the argument is no number, or too large.
    """
    if seconds is None:
        return None
    message = Duration()
    try:
        message.FromTimedelta(timedelta(seconds=seconds))
    except TypeError:
        raise type_violation(path, "number of seconds", seconds) from None
    except (ValueError, OverflowError):  # NaN, infinity, or more than a Duration holds
        raise invalid(path, f"{seconds} is no duration in seconds") from None
    return message


def _check(path: str, kind: Callable[..., Message], name: str, value: Any) -> None:
    """Find the error in one field by trying it alone, and each element of a list."""
    field = kind.DESCRIPTOR.fields_by_name[name]  # type: ignore[attr-defined] # a class
    where = f"{path}.{field.json_name}".removeprefix(".")
    tries = [(where, value, value)]
    if isinstance(value, list):
        tries = [(f"{where}[{number}]", [each], each) for number, each in enumerate(value)]
    for at, tried, element in tries:
        try:
            kind(**{name: tried})
        except UnicodeError as error:
            raise invalid(at, str(error)) from error
        except (TypeError, ValueError, OverflowError) as error:
            raise type_violation(at, _expected(field), element) from error


def _expected(field: FieldDescriptor) -> str:
    message = field.message_type
    if message is None:
        return _EXPECTED[field.cpp_type]
    if not message.GetOptions().map_entry:
        return message.name
    key, value = map(_expected, message.fields)
    return f"map of {key} to {value}"

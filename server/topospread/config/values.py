"""Parsers of settings' values: each reads a flag's or variable's text, and checks a value.

A value comes as text from a flag or the environment and as a YAML value from a file. Texts become
values first (``from_text``), and both are checked alike. A :class:`ValueError` says what the value
should be, as a clause that goes after the value: "is not a whole number".
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    TypeVar,
    get_args,
    get_origin,
)

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SIZES: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE: Final = re.compile(r"(\d+)(KiB|MiB|GiB)?")
_SWITCHES: Final = {"true": True, "1": True, "false": False, "0": False}
_PORT: Final = re.compile(r"\d{1,5}")
_LOGIN: Final = re.compile(r"(?<=://)[^/?#]+@")


@dataclass(frozen=True, slots=True)
class ValueParser(Generic[_T]):
    """Reads and checks values of one type.

    Attributes:
        check: the value in its final form.
        from_text: a text as the value that a YAML file would hold.
        unit: of the value; empty for texts and switches.
    """

    check: Callable[[object], _T]
    from_text: Callable[[str], object] = str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on.

    Attributes:
        host: a name or an IP address, without brackets.
        port: 0 lets the system choose.
    """

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @override
    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parser_of(annotation: Any) -> ValueParser[Any]:
    """The parser of a field by its type: the one that the type is annotated with, if any."""
    if get_origin(annotation) is Annotated:
        parser: ValueParser[Any] = get_args(annotation)[1]
        return parser
    if get_origin(annotation) is Literal:
        return choice(*get_args(annotation))
    return _BY_TYPE[annotation]


def whole(unit: str, least: int, most: int | None = None) -> ValueParser[int]:
    """A whole number within bounds."""

    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError("is not a whole number")
        if value < least or (most is not None and value > most):
            bounds = f"from {least} to {most}" if most is not None else f"{least} or more"
            raise ValueError(f"is not {bounds}")
        return value

    return ValueParser(check, _number, unit)


def seconds(least: float = 0.0) -> ValueParser[float]:
    """A duration: a number of seconds, or a text such as ``500ms``, ``30s``, ``5m``."""

    def check(value: object) -> float:
        if isinstance(value, str) and (match := _DURATION.fullmatch(value)):
            value = float(match[1]) * _UNITS[match[2]]
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError("is not a duration; write 30s, 500ms or 5m")
        if not least <= value < float("inf"):
            raise ValueError(f"is not a duration from {least:g}s on")
        return float(value)

    return ValueParser(check, _number, "seconds")


def rate(unit: str) -> ValueParser[float]:
    """A number of times a second, 0 or more."""

    def check(value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError("is not a number")
        if value and not 0.001 <= value <= 1e9:
            raise ValueError("is not 0, or from 0.001 to 1000000000")
        return float(value)

    return ValueParser(check, _number, unit)


def size(least: int, unit: str = "bytes") -> ValueParser[int]:
    """A number of bytes, or a text such as ``16MiB``."""

    def check(value: object) -> int:
        if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
            value = int(match[1]) * _SIZES[match[2] or ""]
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError("is not a size; write 16MiB, 512KiB or bytes")
        if value < least:
            raise ValueError(f"is less than {least} bytes")
        return value

    return ValueParser(check, _number, unit)


def choice(*names: str) -> ValueParser[str]:
    """One of a few words."""

    def check(value: object) -> str:
        if value not in names:
            raise ValueError(f"is not one of {', '.join(names)}")
        return str(value)

    return ValueParser(check)


def address_or_off(value: object) -> Address | None:
    """An address ``HOST:PORT``, or ``off``."""
    # YAML reads a bare off as false.
    return None if value in ("off", False) else _address(value)


def without_password(address: str) -> str:
    """A store address that may be shown."""
    return _LOGIN.sub("***@", address, count=1)


def _number(given: str) -> object:
    try:
        return float(given) if "." in given else int(given)
    except ValueError:
        return given


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is not a text")
    return value


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")
    return value


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(name, str) and name for name in value
    ):
        raise ValueError("is not a list of names")
    return tuple(value)


def _split(given: str) -> object:
    return [name.strip() for name in given.split(",") if name.strip()]


def _switches(value: object) -> dict[str, bool]:
    if not isinstance(value, dict) or not all(isinstance(on, bool) for on in value.values()):
        raise ValueError("is not of the form Name=true,OtherName=false")
    return {str(name): on for name, on in value.items()}


def _pairs(given: str) -> object:
    pairs = [pair.partition("=") for pair in given.split(",") if pair.strip()]
    return {name.strip(): _SWITCHES.get(on.strip().lower(), on) for name, _, on in pairs}


def _address(value: object) -> Address:
    host, colon, port = str(value).rpartition(":")
    if not isinstance(value, str) or not colon or not _PORT.fullmatch(port):
        raise ValueError("is not of the form HOST:PORT")
    if int(port) > 65535:
        raise ValueError("has a port above 65535")
    bracketed = host.startswith("[") and host.endswith("]")
    if (":" in host) != bracketed:
        raise ValueError("has an IPv6 address without brackets; write [::1]:PORT")
    host = host.strip("[]")
    if not host:
        raise ValueError("names no host; write 0.0.0.0:PORT for all addresses")
    return Address(host, int(port))


_BY_TYPE: Final[dict[Any, ValueParser[Any]]] = {
    str: ValueParser(_text),
    bool: ValueParser(_switch, lambda given: _SWITCHES.get(given.lower(), given)),
    tuple[str, ...]: ValueParser(_names, _split),
    dict[str, bool]: ValueParser(_switches, _pairs),
    Address: ValueParser(_address),
    Address | None: ValueParser(address_or_off),
}

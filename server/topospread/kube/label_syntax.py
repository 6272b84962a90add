"""The syntax of label keys, label values and numbers, with apimachinery's texts for errors.

Lengths are counted in bytes, as Go does, so a name of letters outside ASCII is too long earlier
than it looks (it is malformed anyway). Numbers are Go's: Python's ``int()`` also takes ``1_0``,
blanks, other scripts' digits and numbers of any size.
"""

from __future__ import annotations

import json
import re
from typing import Final

NAME_LIMIT: Final = 63
PREFIX_LIMIT: Final = 253

_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_NAME})?"
_DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"

_NAME_PATTERN: Final = re.compile(_NAME)
_VALUE_PATTERN: Final = re.compile(_VALUE)
_SUBDOMAIN_PATTERN: Final = re.compile(_SUBDOMAIN)
_INTEGER_PATTERN: Final = re.compile("[+-]?[0-9]+")
_CANONICAL_INTEGER_PATTERN: Final = re.compile("0|-?[1-9][0-9]*")

_ALPHANUMERIC: Final = "alphanumeric characters, '-', '_' or '.', and must start and end with an "
_NAME_TEXT: Final = f"must consist of {_ALPHANUMERIC}alphanumeric character"
_VALUE_TEXT: Final = (
    f"a valid label must be an empty string or consist of {_ALPHANUMERIC}alphanumeric character"
)
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character"
)

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_INT64_DIGITS: Final = 19


def label_key_errors(key: str) -> list[str]:
    """Errors of a label key (``[prefix/]name``), in upstream's order; empty when valid."""
    parts = key.split("/")
    if len(parts) > 2:
        form = "an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {_name_format()} with {form}"]
    errors = _prefix_errors(parts[0]) if len(parts) == 2 else []
    name = parts[-1]
    if not name:
        errors.append("name part must be non-empty")
    elif _bytes(name) > NAME_LIMIT:
        errors.append(f"name part {_too_long(NAME_LIMIT)}")
    if not _NAME_PATTERN.fullmatch(name):
        errors.append(f"name part {_name_format()}")
    return errors


def label_value_errors(value: str) -> list[str]:
    """Errors of a label value, in upstream's order; empty when valid."""
    errors = [_too_long(NAME_LIMIT)] if _bytes(value) > NAME_LIMIT else []
    if not _VALUE_PATTERN.fullmatch(value):
        errors.append(_format(_VALUE_TEXT, _VALUE, "MyValue", "my_value", "12345"))
    return errors


def label_text(text: str) -> str:
    """A key or value for people: in quotes where it is empty or has a blank, which nobody sees."""
    blank = any(each.isspace() or not each.isprintable() for each in text)
    return json.dumps(text, ensure_ascii=False) if blank or not text else text


def parse_int64(text: str) -> int | None:
    """The text as Go's ``strconv.ParseInt(text, 10, 64)`` reads it; None where that fails."""
    if not _INTEGER_PATTERN.fullmatch(text):
        return None
    # Python refuses to convert thousands of digits; no such number is an int64.
    if len(text.lstrip("+-").lstrip("0")) > _INT64_DIGITS:
        return None
    sign = -1 if text[0] == "-" else 1
    number = sign * int(text.lstrip("+-").lstrip("0") or "0")
    return number if _INT64_MIN <= number <= _INT64_MAX else None


def parse_canonical_int64(text: str) -> int | None:
    """An int64 without leading zeros and plus sign (``content.IsDecimalInteger``); else None."""
    return parse_int64(text) if _CANONICAL_INTEGER_PATTERN.fullmatch(text) else None


def _prefix_errors(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    errors = [f"prefix part {_too_long(PREFIX_LIMIT)}"] if _bytes(prefix) > PREFIX_LIMIT else []
    if not _SUBDOMAIN_PATTERN.fullmatch(prefix):
        errors.append(f"prefix part {_format(_SUBDOMAIN_TEXT, _SUBDOMAIN, 'example.com')}")
    return errors


def _name_format() -> str:
    return _format(_NAME_TEXT, _NAME, "MyName", "my.name", "123-abc")


def _format(text: str, pattern: str, *examples: str) -> str:
    # The comma and the blanks between examples are upstream's.
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))

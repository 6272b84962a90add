"""Label selectors: what they match, and which of them do not parse.

Source: the labels and meta/v1 packages of k8s.io/apimachinery; facts F1, F2, F3, F5.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tests.reference.objects import Json, Labels

NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
INTEGER = re.compile(r"[+-]?[0-9]+")

SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_OPERATORS = (*SELECTOR_OPERATORS, "Gt", "Lt")


class SelectorError(ValueError):
    """A selector that does not parse. The text is for people; only its presence is specified."""


@dataclass(frozen=True)
class Requirement:
    """One condition on one label key."""

    key: str
    operator: str
    values: tuple[str, ...]

    def matches(self, labels: Labels) -> bool:
        """Whether the labels meet the condition; NotIn and DoesNotExist accept a lack (F5)."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        number, bound = parse_int64(value), parse_int64(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound


@dataclass(frozen=True)
class Selector:
    """Requirements that must all hold. `nothing` is the nil selector: it matches no labels (F1)."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    @property
    def empty(self) -> bool:
        """Whether this is `{}`, which matches everything (F2)."""
        return not self.nothing and not self.requirements

    def matches(self, labels: Labels) -> bool:
        """Whether the labels meet every requirement."""
        return not self.nothing and all(r.matches(labels) for r in self.requirements)

    def narrowed(self, more: Iterable[Requirement]) -> "Selector":
        """This selector with further requirements; nothing stays nothing (F3)."""
        return self if self.nothing else Selector((*self.requirements, *more))


NOTHING = Selector(nothing=True)


def exact(labels: Labels) -> Selector:
    """The selector of a plain label map. No part of it is validated; `{}` matches everything."""
    return Selector(tuple(Requirement(key, "In", (value,)) for key, value in labels.items()))


def parse_selector(selector: Json | None) -> Selector:
    """A metav1.LabelSelector as a Selector.

    Raises:
        SelectorError: an unknown operator, a malformed key or value, or a wrong number of values.
    """
    if selector is None:
        return NOTHING
    requirements = [
        parse_requirement(key, "In", [value])
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for expression in selector.get("matchExpressions") or []:
        operator = expression.get("operator") or ""
        if operator not in SELECTOR_OPERATORS:
            raise SelectorError(f'"{operator}" is not a valid label selector operator')
        requirements.append(
            parse_requirement(expression.get("key") or "", operator, expression.get("values") or [])
        )
    return Selector(tuple(requirements))


def parse_requirement(key: str, operator: str, values: list[str]) -> Requirement:
    """One requirement of a label selector or of a node affinity term, which share these rules.

    Raises:
        SelectorError: see parse_selector. For Gt and Lt also: not exactly one value, or one that
            is not an int64. The value must be a label value too, so "-1" does not parse (F21).
    """
    if operator not in NODE_OPERATORS:
        raise SelectorError(f'"{operator}" is not a valid operator')
    if not is_label_key(key):
        raise SelectorError(f'key: Invalid value: "{key}"')
    if operator in ("In", "NotIn") and not values:
        raise SelectorError("values: for 'in', 'notin' operators, values set can't be empty")
    if operator in ("Exists", "DoesNotExist") and values:
        raise SelectorError("values: values set must be empty for exists and does not exist")
    if operator in ("Gt", "Lt") and (len(values) != 1 or parse_int64(values[0]) is None):
        raise SelectorError("values: for 'Gt', 'Lt' operators, exactly one integer is required")
    for index, value in enumerate(values):
        if not is_label_value(value):
            raise SelectorError(f'values[{index}][{key}]: Invalid value: "{value}"')
    return Requirement(key, operator, tuple(values))


def is_label_key(key: str) -> bool:
    """Whether the text is a label key: `[DNS subdomain/]name`, at most 253 and 63 characters."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= 63 and NAME.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    """Whether the text is a label value: empty, or a name of at most 63 characters."""
    return value == "" or (len(value) <= 63 and NAME.fullmatch(value) is not None)


def parse_int64(text: str | None) -> int | None:
    """The text as an int64, or None.

    As Go's strconv.ParseInt(text, 10, 64): ASCII digits with an optional sign. Python's int() also
    takes "1_0", blanks, other scripts' digits and numbers of any size (F21).
    """
    if text is None or not INTEGER.fullmatch(text):
        return None
    # Python refuses to convert very long digit strings; none of those is an int64, unless it is
    # mostly leading zeros.
    sign, digits = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    digits = digits.lstrip("0") or "0"
    if len(digits) > 19:
        return None
    number = int(sign + digits)
    return number if -(2**63) <= number < 2**63 else None

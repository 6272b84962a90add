"""Quantities of resources, exactly as apimachinery reads them.

Source: ``resource.ParseQuantity``: decimal numbers with a binary suffix (Ki … Ei), a decimal one
(n, u, m, none, k, M … E) or an exponent (e3, E-2). What is finer than a billionth is rounded up,
and so are amounts when they are asked for in a unit.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

_QUANTITY: Final = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([A-Za-z]*+)([+-]?[0-9]*)")
_BINARY: Final = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
}
_LARGEST: Final = 2**63 - 1
_FINEST: Final = 10**9
_LONGEST: Final = 64
_EXPONENT: Final = 64


class QuantityError(ValueError):
    """Text that is no quantity."""


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Fraction:
    """The amount that a quantity stands for.

    Raises:
        QuantityError: the text is none, or far longer than any that is meant.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise QuantityError(f"{text[:_LONGEST]!r} is no quantity")
    sign, whole, part, suffix, exponent = match.groups()
    if not whole and not part:
        raise QuantityError(f"{text!r} has no digits")
    number = Fraction(int(whole or "0"))
    if part:
        number += Fraction(int(part), 10 ** len(part))
    amount = number * _factor(text, suffix, exponent)
    billionths = _ceiling(amount * _FINEST)
    amount = min(Fraction(billionths, _FINEST), Fraction(_LARGEST))
    return -amount if sign == "-" else amount


def whole_units(quantity: Fraction) -> int:
    """``Value()``: rounded up to whole units."""
    return _up(quantity)


def thousandths(quantity: Fraction) -> int:
    """``MilliValue()``: rounded up to thousandths."""
    return _up(quantity * 1000)


def _factor(text: str, suffix: str, exponent: str) -> Fraction:
    if not exponent:
        if suffix in _BINARY:
            return Fraction(_BINARY[suffix])
        if suffix in _DECIMAL:
            return _DECIMAL[suffix]
    elif suffix in ("e", "E") and exponent not in ("+", "-"):
        power = int(exponent)
        if abs(power) <= _EXPONENT:
            return Fraction(10) ** power
    raise QuantityError(f"{text!r} has an unknown suffix")


def _up(amount: Fraction) -> int:
    """Away from zero for what is above it, as upstream scales."""
    return min(_ceiling(amount), _LARGEST) if amount >= 0 else -min(_ceiling(-amount), _LARGEST)


def _ceiling(amount: Fraction) -> int:
    return -(-amount.numerator // amount.denominator)

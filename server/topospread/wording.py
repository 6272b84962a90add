"""Words of texts for people."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """A number of things: ``1 node``, ``2,000 nodes``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def have(number: int) -> str:
    """The verb of a number of things: ``has`` or ``have``."""
    return "has" if number == 1 else "have"

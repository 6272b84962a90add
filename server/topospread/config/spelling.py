"""What is known of a setting besides its value, and how its name is spelled where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topospread.config.values import Kind


@dataclass(frozen=True, slots=True)
class About:
    """What is known of a setting besides its value.

    Attributes:
        kind: reads and checks values.
        unit: of the value; empty for words and switches.
        help: what it does, in a line.
        reason: why the default is what it is.
    """

    kind: Kind[Any]
    unit: str
    help: str
    reason: str


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting's name, in its spellings, and what is known of it.

    Attributes:
        name: the field of :class:`ServerSettings`.
    """

    name: str
    about: About

    @property
    def flag(self) -> str:
        """``--max-waiting``."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """``TOPOSPREAD_MAX_WAITING``."""
        return "TOPOSPREAD_" + self.name.upper()

    @property
    def key(self) -> str:
        """``maxWaiting``."""
        first, *rest = self.name.split("_")
        return first + "".join(word.capitalize() for word in rest)

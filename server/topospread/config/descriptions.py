"""What each setting is called, how it is read, what it does and why its default is what it is."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from topospread.config import settings as source
from topospread.config.settings import ServerSettings
from topospread.config.values import parser_of, without_password

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.config.values import ValueParser

GROUPS: Final = ServerSettings.__bases__


@dataclass(frozen=True, slots=True)
class Setting:
    """The description of a setting: all but its value."""

    name: str
    parser: ValueParser[Any]
    default: object

    @property
    def flag(self) -> str:
        """``--decision-queue``."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """``TOPOSPREAD_DECISION_QUEUE``."""
        return "TOPOSPREAD_" + self.name.upper()

    @property
    def key(self) -> str:
        """``decisionQueue``."""
        first, *rest = self.name.split("_")
        return first + "".join(word.capitalize() for word in rest)

    @property
    def unit(self) -> str:
        """Of the value; empty for texts and switches."""
        return self.parser.unit

    @property
    def help(self) -> str:
        """What it does."""
        return _strings_below_fields()[self.name].rpartition("\n\n")[0].replace("\n", " ")

    @property
    def reason(self) -> str:
        """Why the default is what it is."""
        return _strings_below_fields()[self.name].rpartition("\n\n")[2].replace("\n", " ")


def redacted(settings: ServerSettings) -> Mapping[str, object]:
    """All settings by key, fit for a terminal or a log: without passwords."""
    shown = {each.key: getattr(settings, each.name) for each in SETTINGS.values()}
    return {**shown, "store": without_password(settings.store)}


def _described() -> dict[str, Setting]:
    types, defaults = get_type_hints(ServerSettings, include_extras=True), ServerSettings()
    return {
        one.name: Setting(one.name, parser_of(types[one.name]), getattr(defaults, one.name))
        for group in GROUPS
        for one in fields(group)
    }


@cache
def _strings_below_fields() -> Mapping[str, str]:
    """The string below each field of the groups, from their source: Python itself keeps none.

    Empty strings where there is only bytecode.
    """
    found: defaultdict[str, str] = defaultdict(str)
    try:
        text_of_groups = inspect.getsource(source)
    except OSError:
        return found
    for group in ast.parse(text_of_groups).body:
        if not isinstance(group, ast.ClassDef):
            continue
        for statement, below in pairwise(group.body):
            match statement, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = inspect.cleandoc(text)
    return found


SETTINGS: Final[Mapping[str, Setting]] = _described()
"""By field name, in the order of the groups."""

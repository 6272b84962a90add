"""Suggestions for words of a command line that are nearly right."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

_SIMILAR = 0.7


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Known words that are like one that was typed or begin with it, at most three.

    The dashes before options do not count: they make all short ones alike.
    """
    bare = {each.lstrip("-").removeprefix("no-"): each for each in known}
    typed = word.lower().lstrip("-").removeprefix("no-")
    longer = [each for each in bare if len(typed) > 2 and each.startswith(typed)]
    alike = get_close_matches(typed, bare, 3, _SIMILAR)
    return [bare[each] for each in dict.fromkeys([*alike, *longer])][:3]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Question to set behind an error message; empty where nothing known is like the word."""
    found = " or ".join(repr(each) for each in nearest(word, known))
    return f" Did you mean {found}?" if found else ""


def unknown_option(error: click.NoSuchOption) -> str:
    """Message for an option that there is not."""
    command = error.ctx.command if error.ctx else None
    names = [
        name
        for parameter in (command.params if command else ())
        for name in (*parameter.opts, *parameter.secondary_opts)
        if name.startswith("--")
    ]
    return f"{error.message}{did_you_mean(error.option_name, [*names, '--help'])}"


def unknown_command(group: click.Group, context: click.Context, word: str) -> click.UsageError:
    """Error for a command that a group does not have."""
    hint = did_you_mean(word, group.list_commands(context))
    if not hint:
        hint = f" There are: {', '.join(group.list_commands(context))}."
    return click.UsageError(f"No such command {word!r}.{hint}", context)

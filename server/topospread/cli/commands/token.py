"""`topospread token`: make tokens of callers, whose hashes go into the access file."""

from __future__ import annotations

import re
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import click
import yaml

from topospread.access.authentication import new_token
from topospread.access.file import KIND, grant, read_access
from topospread.cli.errors import DONE, BadInput
from topospread.cli.files import regular_target, write_file
from topospread.config.documents import OWN_VERSION, yaml_documents
from topospread.errors import ConfigError

_DAYS: Final = re.compile(r"(\d{1,5})([dh])")
_LIST: Final = re.compile(
    r"^tokens:[ ]*(?:\[\][ ]*)?(?:#.*)?\n(?=((?:[ ]*#.*\n)*)([ ]*)-)?", re.MULTILINE
)


@click.group("token", short_help="Make tokens for callers.")
def command() -> None:
    """Make the tokens that callers show to a server with an access file."""


@command.command("new")
@click.option("--name", required=True, help="Whose it is; for the audit log.")
@click.option(
    "--role",
    "roles",
    required=True,
    multiple=True,
    metavar="ROLE[@CLUSTER]",
    help="read, decide, place, write or admin, everywhere or in one cluster; may be given again.",
)
@click.option("--expires-in", metavar="TIME", help="How long it holds, for example 90d or 12h.")
@click.option(
    "--file",
    "path",
    required=True,
    envvar="TOPOSPREAD_ACCESS_FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The access file; it is made if it is not there.",
)
def new(name: str, roles: tuple[str, ...], expires_in: str | None, path: Path) -> int:
    """Make a token: its hash goes into the access file, the token itself to stdout.

    The token is shown this once and kept nowhere. Servers see the changed file within seconds. To
    revoke a token, delete its entry.
    """
    for role in roles:
        try:
            grant(role)
        except ValueError as error:
            raise BadInput(f"--role: {error}") from error
    if not name.strip() or len(name) > 256:
        raise BadInput("--name: give a name of at most 256 characters")
    token = new_token()
    entry: dict[str, Any] = {"id": token.id, "name": name, "sha256": token.sha256}
    entry["roles"] = list(roles)
    if expires_in is not None:
        entry["expires"] = _expiry(expires_in)
    try:
        if regular_target(path) is None:
            raise BadInput(f"{path}: cannot be changed: only a regular file keeps tokens")
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        write_file(path, _with_token(text, entry, str(path)))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(f"{path}: cannot be changed: {reason}") from error
    except ConfigError as error:
        raise BadInput(*str(error).splitlines()) from error
    click.echo(
        f"topospread: {path} has token {token.id} of {name}; it is shown only now:", err=True
    )
    click.echo(token.text)
    return DONE


def _expiry(given: str) -> str:
    match = _DAYS.fullmatch(given)
    if match is None:
        raise BadInput(f"--expires-in: {given!r} is not a time; write 90d or 12h")
    unit = timedelta(days=1) if match[2] == "d" else timedelta(hours=1)
    return (datetime.now(UTC) + int(match[1]) * unit).strftime("%Y-%m-%dT%H:%M:%SZ")


def _with_token(text: str, entry: dict[str, Any], name: str) -> str:
    """Text of an access file with one token more; comments stay where they are."""
    lines = yaml.safe_dump([entry], sort_keys=False, default_flow_style=None, width=1000)
    if not text.strip():
        text = f"apiVersion: {OWN_VERSION}\nkind: {KIND}\n"
    read_access(text, name)
    (before,) = yaml_documents(text, name)
    if before.get("tokens") is None and "tokens" not in before:
        changed = f"{text.rstrip()}\ntokens:\n{lines}"
    else:
        changed = _LIST.sub(lambda found: _first(found, lines), f"{text.rstrip()}\n", count=1)
    try:
        (after,) = yaml_documents(changed, name)
    except (ConfigError, ValueError):
        after = {}
    wanted = {**before, "tokens": [*(before.get("tokens") or []), entry]}
    if _in_order(after) != _in_order(wanted):
        # The list is written in a form that takes no more lines.
        changed = yaml.safe_dump(wanted, sort_keys=False, default_flow_style=None, width=1000)
    read_access(changed, name)
    return changed


def _first(found: re.Match[str], lines: str) -> str:
    return "tokens:\n" + textwrap.indent(lines, found[2] or "")


def _in_order(document: dict[str, Any]) -> dict[str, Any]:
    tokens = document.get("tokens") or []
    return {**document, "tokens": sorted(tokens, key=lambda token: str(token["id"]))}

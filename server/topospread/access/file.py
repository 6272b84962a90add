"""The access file: YAML of kind TopospreadAccess.

::

    apiVersion: topospread.io/v1
    kind: TopospreadAccess
    tokens:
      - id: 6f0c…              # made by `topospread token new`
        name: scheduler
        sha256: 9b71…
        roles: [decide, write@staging]
        expires: "2027-01-31T00:00:00Z"
    certificates:
      - commonName: syncer     # or alternativeName: spiffe://…
        roles: [write]
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from topospread.access.authentication import CallerRegistry
from topospread.access.callers import Caller, Role, roles_of
from topospread.config.documents import OWN_VERSION, suggestion, yaml_documents
from topospread.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

KIND: Final = "TopospreadAccess"

_ID: Final = re.compile(r"[0-9a-f]{16}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_KEYS: Final = frozenset({"apiVersion", "kind", "metadata", "tokens", "certificates"})
_TOKEN_KEYS: Final = frozenset({"id", "name", "sha256", "roles", "expires"})
_CERTIFICATE_KEYS: Final = frozenset({"commonName", "alternativeName", "name", "roles"})
_ROLES: Final = {role.value: role for role in Role}


def read_access(text: str, name: str) -> CallerRegistry:
    """The callers of an access file; error texts show no value but names and roles.

    Raises:
        ConfigError: all that is wrong, a line each.
    """
    documents = yaml_documents(text, name)
    problems: list[str] = []
    if len(documents) != 1 or not isinstance(documents[0], Mapping):
        raise ConfigError(f"{name}: it must hold one document of kind: {KIND}")
    document = documents[0]
    if document.get("kind") != KIND:
        problems.append(f"it needs kind: {KIND}")
    if document.get("apiVersion") != OWN_VERSION:
        problems.append(f"it needs apiVersion: {OWN_VERSION}")
    problems += _unknown(document, _KEYS, "")
    tokens: dict[str, Caller] = {}
    for where, entry in _entries(document, "tokens", _TOKEN_KEYS, problems):
        identifier = _matching(entry, "id", _ID, where, problems)
        if identifier in tokens:
            problems.append(f"{where}.id: another token has the same")
        tokens[identifier] = _token(entry, where, problems)
    common: dict[str, Caller] = {}
    alternative: dict[str, Caller] = {}
    for where, entry in _entries(document, "certificates", _CERTIFICATE_KEYS, problems):
        named = [key for key in ("commonName", "alternativeName") if entry.get(key)]
        if len(named) != 1:
            problems.append(f"{where}: it needs a commonName or an alternativeName, not both")
            continue
        callers = common if named == ["commonName"] else alternative
        shown = _text(entry, named[0], where, problems)
        if shown in callers:
            problems.append(f"{where}.{named[0]}: another entry has the same")
        grants = _grants(entry, where, problems)
        callers[shown] = Caller(
            str(entry.get("name") or shown),
            roles_of(grants),
            credential=f"{named[0]} {shown}".encode(),
        )
    if problems:
        raise ConfigError("\n".join(f"{name}: {problem}" for problem in problems))
    return CallerRegistry(tokens, common, alternative)


def grant(text: str) -> tuple[Role, str | None]:
    """A role, and the cluster that it is bound to: ``decide`` or ``decide@prod``.

    Raises:
        ValueError: it is neither.
    """
    role, at, cluster = text.partition("@")
    if role not in _ROLES:
        raise ValueError(f"{role!r} is no role; there are {', '.join(_ROLES)}")
    if at and not cluster:
        raise ValueError(f"{text!r} names no cluster after the @")
    return _ROLES[role], cluster if at else None


def _token(entry: Mapping[str, Any], where: str, problems: list[str]) -> Caller:
    sha256 = _matching(entry, "sha256", _SHA256, where, problems)
    expires = math.inf
    if (given := entry.get("expires")) is not None:
        try:
            moment = datetime.fromisoformat(str(given))
            expires = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            problems.append(f"{where}.expires: not a time; write 2027-01-31T00:00:00Z")
    return Caller(
        _text(entry, "name", where, problems),
        roles_of(_grants(entry, where, problems)),
        expires,
        bytes.fromhex(sha256) if sha256 else b"",
    )


def _entries(
    document: Mapping[str, Any], key: str, known: frozenset[str], problems: list[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    entries = document.get(key)
    if entries is None:
        return
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        problems.append(f"{key}: not a list")
        return
    for position, entry in enumerate(entries):
        where = f"{key}[{position}]"
        if isinstance(entry, Mapping):
            problems += _unknown(entry, known, f"{where}.")
            yield where, entry
        else:
            problems.append(f"{where}: not a mapping")


def _unknown(given: Mapping[str, Any], known: frozenset[str], where: str) -> Iterator[str]:
    for key in given:
        if key not in known:
            # An unknown key is not shown: it may be a token in the wrong place.
            close = suggestion(str(key), known)
            yield f"{where}: a key is unknown{close or '; known are ' + ', '.join(sorted(known))}"


def _grants(
    entry: Mapping[str, Any], where: str, problems: list[str]
) -> Iterator[tuple[Role, str | None]]:
    given = entry.get("roles")
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        problems.append(f"{where}.roles: not a list of roles, such as [read, decide@prod]")
        return
    for position, text in enumerate(given):
        try:
            yield grant(str(text))
        except ValueError as error:
            problems.append(f"{where}.roles[{position}]: {error}")


def _text(entry: Mapping[str, Any], key: str, where: str, problems: list[str]) -> str:
    value = entry.get(key)
    if isinstance(value, str) and value:
        return value
    problems.append(f"{where}.{key}: not a text, or missing")
    return ""


def _matching(
    entry: Mapping[str, Any], key: str, form: re.Pattern[str], where: str, problems: list[str]
) -> str:
    value = entry.get(key)
    if isinstance(value, str) and form.fullmatch(value):
        return value
    digits = form.pattern.partition("{")[2].rstrip("}")
    # The value is not shown: it may be a token, put in the wrong place.
    problems.append(f"{where}.{key}: not {digits} hexadecimal digits in quotes")
    return ""

"""Puts the settings together: a flag goes before the environment, which goes before the file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from topospread.config.descriptions import SETTINGS
from topospread.config.documents import FEATURE_GATES, closest, read_documents, suggestion
from topospread.config.files import read_config
from topospread.config.settings import ServerSettings
from topospread.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from topospread.config.documents import Document
    from topospread.config.values import Address

PREFIX: Final = "TOPOSPREAD_"

LONGEST_RESERVATION: Final = 168 * 3600.0
"""The longest reservation_ttl that PlacementService allows, in seconds."""

LONGEST_LEASE: Final = 3600.0
"""The longest lease that a store grants, in seconds."""

_HEADER: Final = frozenset({"apiVersion", "kind", "metadata"})

# Kubernetes sets these in every pod beside a Service whose name begins with topospread.
_SERVICE_LINK: Final = re.compile(
    r"TOPOSPREAD_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)",
    re.DOTALL,
)


def load_settings(
    flags: Mapping[str, object], environ: Mapping[str, str], file_text: str | None = None
) -> ServerSettings:
    """The settings that hold.

    Args:
        flags: by field name; None is a flag that was not given. Texts are read, values checked.
        environ: the environment, of which ``TOPOSPREAD_…``, XDG_STATE_HOME and HOME are looked at.
        file_text: content of the configuration file; when None it is read from where ``config``
            among the flags or TOPOSPREAD_CONFIG says, if either does.

    Raises:
        ConfigError: all that is wrong, a line each.
    """
    path = str(flags.get("config") or environ.get(f"{PREFIX}CONFIG") or "")
    if file_text is None and path:
        file_text = read_config(path)
    name = path or "configuration file"
    in_file: list[str] = []
    chosen: dict[str, Any] = dict(
        settings_in(read_documents(file_text or "", name).own or {}, in_file)
    )
    problems = [f"{name}: {problem}" for problem in in_file]
    overriding = dict(_from_environment(environ, problems)) | dict(_from_flags(flags, problems))
    chosen |= overriding
    if not chosen.get("store") and not problems:
        chosen["store"] = default_store(environ)
    settings = ServerSettings(**chosen, overriding=frozenset(overriding))
    problems.extend(_contradictions(settings))
    if problems:
        raise ConfigError("\n".join(problems))
    return settings


def changed_settings(
    at_start: Mapping[str, object], now: Mapping[str, object], overriding: Container[str]
) -> list[str]:
    """Return the keys of settings that the file has otherwise than at the server's start.

    Args:
        at_start: settings by field name that the file had.
        now: those that it has.
        overriding: field names that flags and variables give, whatever the file says.
    """
    return [
        setting.key
        for name, setting in SETTINGS.items()
        if name not in overriding
        and at_start.get(name, setting.default) != now.get(name, setting.default)
    ]


def default_store(environ: Mapping[str, str]) -> str:
    """A SQLite file in the user's state directory, after the XDG base directory specification.

    Raises:
        ConfigError: the environment names no home.
    """
    state = environ.get("XDG_STATE_HOME", "")
    home = environ.get("HOME") or environ.get("USERPROFILE") or ""
    # The specification says to ignore a relative path.
    if not Path(state).is_absolute():
        if not home:
            raise ConfigError("--store: no default without HOME; write sqlite:///PATH or redis://…")
        state = f"{home}/.local/state"
    return f"sqlite:///{Path(state, 'topospread', 'state.db').as_posix()}"


def settings_in(document: Document, problems: list[str]) -> Iterator[tuple[str, object]]:
    """Names and values of the settings in a TopospreadConfiguration; appends what is wrong."""
    by_key = {setting.key: setting for setting in SETTINGS.values()}
    # Where the file is cannot stand in it.
    del by_key["config"]
    for key, value in document.items():
        if key in _HEADER or value is None:
            continue
        setting = by_key.get(key)
        if setting is None:
            problems.append(f"unknown key {key!r}{suggestion(str(key), by_key)}")
            continue
        try:
            checked = setting.parser.check(value)
        except ValueError as error:
            problems.append(f"{key}: {_shown(setting.name, value)} {error}")
            continue
        if key != FEATURE_GATES:
            yield setting.name, checked


def _from_environment(
    environ: Mapping[str, str], problems: list[str]
) -> Iterator[tuple[str, object]]:
    for variable, given in environ.items():
        if not given or not variable.startswith(PREFIX) or _SERVICE_LINK.fullmatch(variable):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name in SETTINGS:
            yield from _read(name, variable, given, problems)
        # Others have variables of this prefix, too, but a typing error is worth a hint.
        elif close := closest(name, SETTINGS, cutoff=0.85):
            problems.append(f"{variable}: unknown; did you mean {SETTINGS[close].variable}?")


def _from_flags(flags: Mapping[str, object], problems: list[str]) -> Iterator[tuple[str, object]]:
    for name, given in flags.items():
        if given is None:
            continue
        if name not in SETTINGS:
            flag = "--" + name.replace("_", "-")
            known = [setting.flag for setting in SETTINGS.values()]
            problems.append(f"{flag}: unknown{suggestion(flag, known)}")
            continue
        yield from _read(name, SETTINGS[name].flag, given, problems)


def _read(
    name: str, label: str, given: object, problems: list[str]
) -> Iterator[tuple[str, object]]:
    kind = SETTINGS[name].parser
    try:
        value = kind.from_text(given) if isinstance(given, str) else given
        yield name, kind.check(value)
    except ValueError as error:
        problems.append(f"{label}: {_shown(name, given)} {error}")


def _shown(name: str, given: object) -> str:
    """A refused value; a store's address may hold a password."""
    return "the value" if name == "store" else repr(given)


def _contradictions(settings: ServerSettings) -> Iterator[str]:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        there, missing = ("cert", "key") if settings.tls_cert else ("key", "cert")
        yield f"--tls-{there}: give --tls-{missing} as well: TLS needs both"
    for flag, ca in (
        ("--client-ca", settings.client_ca),
        ("--http-client-ca", settings.http_verifies_clients_by),
    ):
        if ca and not settings.tls_cert and not (flag == "--http-client-ca" and settings.client_ca):
            yield f"{flag}: clients can only be verified with TLS; give --tls-cert and --tls-key"
    addresses = (
        ("--listen", settings.listen),
        ("--http", settings.http),
        ("--extender-listen", settings.extender_listen),
        ("--expander-listen", settings.expander_listen),
    )
    for flag, address in addresses:
        if address is None or address.loopback or settings.tls or settings.insecure:
            continue
        yield _not_encrypted(flag, address)
    yield from _twice(addresses)
    for flag, given, longest in (
        ("--extender-reservation-ttl", settings.extender_reservation_ttl, LONGEST_RESERVATION),
        ("--sync-lease-duration", settings.sync_lease_duration, LONGEST_LEASE),
    ):
        if given > longest:
            yield f"{flag}: {given:g}s is more than {longest:g}s ({longest / 3600:g}h)"
    if settings.reuse_port:
        if settings.store == "memory:":
            yield "--reuse-port: processes do not share memory: ; use redis:// or sqlite:///PATH"
        for flag, address in addresses:
            if flag != "--http" and address is not None and not address.port:
                yield f"{flag}: with --reuse-port port 0 is another one in each process; choose one"


def _twice(addresses: Sequence[tuple[str, Address | None]]) -> Iterator[str]:
    """Report addresses that are given twice; port 0 is another one each time."""
    taken: dict[Address, str] = {}
    for flag, address in addresses:
        if address is None or not address.port:
            continue
        if address in taken:
            yield f"{flag}: {address} is the address of {taken[address]}; choose another port"
        taken.setdefault(address, flag)


def _not_encrypted(flag: str, address: Address) -> str:
    return (
        f"{flag}: {address} can be reached from other machines; give --tls-cert and --tls-key,"
        " or --insecure if plain text is meant"
    )

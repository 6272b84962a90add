"""Store addresses as people write them, parsed without opening anything.

==============================================  ==================================================
``memory:``                                     SQLite in this process' memory, gone with it
``sqlite:///var/lib/topospread/state.db``       a SQLite file: three slashes, an absolute path
``sqlite:///…?synchronous=full``                the same, every write waits for the disk
``redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]``  Redis over TCP
``rediss://…?cacert=…&cert=…&key=…``            Redis over TLS; options named like redis-cli's
``unix:///run/redis.sock?db=0``                 Redis over a Unix socket
``redis+sentinel://HOST[:PORT],…/NAME[/DB]``    the master that Sentinels name
``redis+cluster://HOST[:PORT],…``               a Redis Cluster, by some of its nodes
``rediss+sentinel://…``, ``rediss+cluster://…``  the same over TLS, with its options
==============================================  ==================================================

User and password may stand in the environment instead (USERNAME_VARIABLE, PASSWORD_VARIABLE), where
``ps`` does not show them. Sentinels that ask for a password take theirs from there alone. Error
texts and ``address`` never show a secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from topospread.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

USERNAME_VARIABLE: Final = "TOPOSPREAD_REDIS_USERNAME"
PASSWORD_VARIABLE: Final = "TOPOSPREAD_REDIS_PASSWORD"
SENTINEL_USERNAME_VARIABLE: Final = "TOPOSPREAD_REDIS_SENTINEL_USERNAME"
SENTINEL_PASSWORD_VARIABLE: Final = "TOPOSPREAD_REDIS_SENTINEL_PASSWORD"

MEMORY: Final = "memory:"

_FORMS: Final = (
    "write memory:, sqlite:///absolute/path, redis://host:6379/0, rediss://host:6379/0, "
    "unix:///path/to/redis.sock, redis+sentinel://host:26379/name or redis+cluster://host:6379"
)
_REDIS_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
_TLS_OPTIONS: Final = frozenset({"cacert", "cert", "key", "insecure"})
_YES_NO: Final = {"yes": True, "no": False}

_SEVERAL: Final = re.compile(r"(rediss?\+(?:sentinel|cluster)://)([^/?#]*)", re.IGNORECASE)
"""What an address of several hosts begins with: its kind; login and hosts."""


@dataclass(frozen=True, slots=True)
class SqliteURL:
    """The address of a SQLite store.

    Attributes:
        path: absolute path of the file; empty for one in memory.
        full_sync: every write waits until it is on the disk. Without it a write survives the end of
            this process but may be lost with the machine's power; the history stays whole either
            way.
    """

    path: str = ""
    full_sync: bool = False

    @property
    def address(self) -> str:
        """The URL; it holds no secrets."""
        return f"sqlite://{self.path}" if self.path else MEMORY


@dataclass(frozen=True, slots=True)
class TLS:
    """TLS options; empty paths mean the system's authorities and no client certificate."""

    cacert: str = ""
    cert: str = ""
    key: str = ""
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class RedisURL:
    """The address of a Redis server with user and password; ``socket`` replaces host and port."""

    host: str = ""
    port: int = _REDIS_PORT
    socket: str = ""
    database: int = 0
    username: str = ""
    password: str = field(default="", repr=False)
    tls: TLS | None = None

    @property
    def address(self) -> str:
        """The URL without user, password and options."""
        if self.socket:
            return f"unix://{self.socket}?db={self.database}"
        return f"{_scheme(self.tls)}://{_joined(((self.host, self.port),))}/{self.database}"


@dataclass(frozen=True, slots=True)
class SentinelURL:
    """The addresses of Sentinels that know the master ``service``, with users and passwords."""

    service: str
    sentinels: tuple[tuple[str, int], ...]
    database: int = 0
    username: str = ""
    password: str = field(default="", repr=False)
    sentinel_username: str = ""
    sentinel_password: str = field(default="", repr=False)
    tls: TLS | None = None

    @property
    def address(self) -> str:
        """The URL without users, passwords and options."""
        hosts = _joined(self.sentinels)
        return f"{_scheme(self.tls)}+sentinel://{hosts}/{self.service}/{self.database}"


@dataclass(frozen=True, slots=True)
class ClusterURL:
    """Some nodes of a Redis Cluster, and the user and password for them."""

    nodes: tuple[tuple[str, int], ...]
    username: str = ""
    password: str = field(default="", repr=False)
    tls: TLS | None = None

    @property
    def address(self) -> str:
        """The URL without user, password and options."""
        return f"{_scheme(self.tls)}+cluster://{_joined(self.nodes)}"


AnyRedisURL = RedisURL | SentinelURL | ClusterURL
StoreURL = SqliteURL | AnyRedisURL


def parse_store_url(text: str, environ: Mapping[str, str]) -> StoreURL:
    """Parse a store's address.

    Args:
        text: one of the forms above.
        environ: the environment, for user and password that the address does not name.

    Raises:
        ConfigError: it is none of the forms; the text has what to write, without repeating the
            address.
    """
    if text == MEMORY:
        return SqliteURL()
    try:
        several = _SEVERAL.match(text)
        if several is None:
            parts = urlsplit(text)
            port = parts.port
        else:
            # Newer versions of Python refuse brackets anywhere but around a single host.
            kind, hosts = several.groups()
            parts = urlsplit(kind + text[several.end() :])._replace(netloc=hosts)
            port = None
    except ValueError:
        # The cause is left out on purpose: it quotes the address.
        raise ConfigError(f"store: the address cannot be read: {_FORMS}") from None
    options = _options(parts)
    match parts.scheme:
        case "sqlite":
            return _sqlite(parts, options)
        case "redis" | "rediss":
            return _network(parts, port, options, environ)
        case "redis+sentinel" | "rediss+sentinel":
            return _sentinel(parts, options, environ)
        case "redis+cluster" | "rediss+cluster":
            return _cluster(parts, options, environ)
        case "unix":
            return _unix(parts, options, environ)
        case "":
            raise ConfigError(f"store: an address begins with its kind: {_FORMS}")
    raise ConfigError(f"store: {parts.scheme}: is no kind of store that is known here: {_FORMS}")


def _options(parts: SplitResult) -> dict[str, str]:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    if len(dict(pairs)) < len(pairs):
        raise ConfigError("store: an option is given twice in the address; write it once")
    if parts.fragment:
        raise ConfigError(
            "store: the address has a '#'; write %23 where a path or password holds one"
        )
    return dict(pairs)


def _only(options: Mapping[str, str], scheme: str, known: frozenset[str]) -> None:
    for name in options:
        if name not in known:
            choice = ", ".join(sorted(known)) or "none"
            raise ConfigError(f"store: {scheme}: has no option {name!r}; it knows: {choice}")


def _sqlite(parts: SplitResult, options: Mapping[str, str]) -> SqliteURL:
    _only(options, "sqlite", frozenset({"synchronous"}))
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or path.endswith("/") or "\x00" in path:
        raise ConfigError(
            "store: sqlite: takes three slashes and the absolute path of a file, "
            "for example sqlite:///var/lib/topospread/state.db"
        )
    mode = options.get("synchronous", "normal")
    if mode not in ("normal", "full"):
        raise ConfigError("store: synchronous is normal or full")
    return SqliteURL("/" + path.lstrip("/"), full_sync=mode == "full")


def _network(
    parts: SplitResult, port: int | None, options: Mapping[str, str], environ: Mapping[str, str]
) -> RedisURL:
    if not parts.hostname:
        raise ConfigError(
            f"store: {parts.scheme}: lacks a host, for example redis://127.0.0.1:6379/0"
        )
    if port == 0:
        raise ConfigError("store: port 0 cannot be connected to; write 1 to 65535")
    tls = _network_tls(parts, options)
    username, password = _credentials(parts.username, parts.password, environ)
    return RedisURL(
        host=parts.hostname,
        port=port or _REDIS_PORT,
        database=_database(parts.path.removeprefix("/") or "0"),
        username=username,
        password=password,
        tls=tls,
    )


def _sentinel(
    parts: SplitResult, options: Mapping[str, str], environ: Mapping[str, str]
) -> SentinelURL:
    service, _, database = unquote(parts.path.removeprefix("/")).partition("/")
    if not service or service.isspace():
        raise ConfigError(
            f"store: {parts.scheme}: lacks the name that the Sentinels give the master, "
            f"for example {parts.scheme}://10.0.0.1:26379,10.0.0.2:26379/mymaster/0"
        )
    username, password, hosts = _authority(parts, _SENTINEL_PORT)
    username, password = _credentials(username, password, environ)
    return SentinelURL(
        service=service,
        sentinels=hosts,
        database=_database(database or "0"),
        username=username,
        password=password,
        sentinel_username=environ.get(SENTINEL_USERNAME_VARIABLE, ""),
        sentinel_password=environ.get(SENTINEL_PASSWORD_VARIABLE, ""),
        tls=_network_tls(parts, options),
    )


def _cluster(
    parts: SplitResult, options: Mapping[str, str], environ: Mapping[str, str]
) -> ClusterURL:
    if parts.path not in ("", "/", "/0"):
        raise ConfigError(f"store: {parts.scheme}: a Redis Cluster has database 0 only")
    username, password, nodes = _authority(parts, _REDIS_PORT)
    username, password = _credentials(username, password, environ)
    return ClusterURL(nodes, username, password, _network_tls(parts, options))


def _authority(
    parts: SplitResult, default_port: int
) -> tuple[str | None, str | None, tuple[tuple[str, int], ...]]:
    """User, password and all hosts of an address with several."""
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    found = tuple(_host(text, default_port) for text in hosts.split(","))
    # One login for all; a comma in it would be a second one before another host.
    if "," in login or not all(host for host, _ in found):
        raise ConfigError(
            f"store: {parts.scheme}: takes hosts separated by commas, each HOST or HOST:PORT, "
            f"for example {parts.scheme}://10.0.0.1:{default_port},10.0.0.2:{default_port}"
        )
    return username or None, password or None, found


def _host(text: str, default_port: int) -> tuple[str, int]:
    """Split a host and its port; an empty host when it cannot be read."""
    try:
        parts = urlsplit(f"//{text}")
        port = default_port if parts.port is None else parts.port
    except ValueError:
        return "", 0
    plain = port and not parts.path and "@" not in text
    return (parts.hostname or "", port) if plain else ("", 0)


def _network_tls(parts: SplitResult, options: Mapping[str, str]) -> TLS | None:
    if parts.scheme.startswith("rediss"):
        _only(options, parts.scheme, _TLS_OPTIONS)
        return _tls(options)
    _only(options, parts.scheme, frozenset())
    return None


def _unix(parts: SplitResult, options: Mapping[str, str], environ: Mapping[str, str]) -> RedisURL:
    _only(options, "unix", frozenset({"db"}))
    path = unquote(parts.path)
    if parts.hostname or not path.startswith("/"):
        raise ConfigError(
            "store: unix: takes three slashes and the absolute path of a socket, "
            "for example unix:///run/redis/redis.sock"
        )
    username, password = _credentials(parts.username, parts.password, environ)
    return RedisURL(
        socket=path,
        database=_database(options.get("db", "0")),
        username=username,
        password=password,
    )


def _credentials(
    username: str | None, password: str | None, environ: Mapping[str, str]
) -> tuple[str, str]:
    username = unquote(username or "") or environ.get(USERNAME_VARIABLE, "")
    password = unquote(password or "") or environ.get(PASSWORD_VARIABLE, "")
    if username and not password:
        raise ConfigError(
            f"store: a user without a password; set {PASSWORD_VARIABLE} or write redis://user:password@host"
        )
    return username, password


def _tls(options: Mapping[str, str]) -> TLS:
    insecure = _YES_NO.get(options.get("insecure", "no"))
    if insecure is None:
        raise ConfigError("store: insecure is yes or no")
    if ("cert" in options) != ("key" in options):
        raise ConfigError("store: cert and key belong together; give both or neither")
    return TLS(options.get("cacert", ""), options.get("cert", ""), options.get("key", ""), insecure)


def _scheme(tls: TLS | None) -> str:
    return "redis" if tls is None else "rediss"


def _joined(hosts: tuple[tuple[str, int], ...]) -> str:
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts)


def _database(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise ConfigError("store: the database is a number, for example redis://127.0.0.1:6379/0")
    return int(text)

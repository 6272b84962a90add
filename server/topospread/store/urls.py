"""Store addresses as people write them, parsed without opening anything.

==============================================  ==================================================
``memory:``                                     SQLite in this process' memory, gone with it
``sqlite:///var/lib/topospread/state.db``       a SQLite file: three slashes, an absolute path
``sqlite:///…?synchronous=full``                the same, every write waits for the disk
``redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]``  Redis over TCP
``rediss://…?cacert=…&cert=…&key=…``            Redis over TLS; options named like redis-cli's
``unix:///run/redis.sock?db=0``                 Redis over a Unix socket
==============================================  ==================================================

User and password may stand in the environment instead (USERNAME_VARIABLE, PASSWORD_VARIABLE), where
``ps`` does not show them. Error texts and ``address`` never show a secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from topospread.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

USERNAME_VARIABLE: Final = "TOPOSPREAD_REDIS_USERNAME"
PASSWORD_VARIABLE: Final = "TOPOSPREAD_REDIS_PASSWORD"

MEMORY: Final = "memory:"

_FORMS: Final = (
    "write memory:, sqlite:///absolute/path, redis://host:6379/0, rediss://host:6379/0 "
    "or unix:///path/to/redis.sock"
)
_REDIS_PORT: Final = 6379
_TLS_OPTIONS: Final = frozenset({"cacert", "cert", "key", "insecure"})
_YES_NO: Final = {"yes": True, "no": False}


@dataclass(frozen=True, slots=True)
class SqliteURL:
    """Where a SQLite store is.

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
    """Where a Redis is and who we are there; ``socket`` instead of host and port."""

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
        scheme = "redis" if self.tls is None else "rediss"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}/{self.database}"


StoreURL = SqliteURL | RedisURL


def parse_store_url(text: str, environ: Mapping[str, str]) -> StoreURL:
    """Parse a store's address.

    Args:
        text: one of the forms above.
        environ: the environment, for user and password that the address does not name.

    Raises:
        ConfigError: it is none of the forms; the text says what to write, without repeating the
            address.
    """
    if text == MEMORY:
        return SqliteURL()
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        # The cause is left out on purpose: it quotes the address.
        raise ConfigError(f"store: the address cannot be read: {_FORMS}") from None
    options = _options(parts)
    match parts.scheme:
        case "sqlite":
            return _sqlite(parts, options)
        case "redis" | "rediss":
            return _network(parts, port, options, environ)
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
    tls = None
    if parts.scheme == "rediss":
        _only(options, "rediss", _TLS_OPTIONS)
        tls = _tls(options)
    else:
        _only(options, "redis", frozenset())
    username, password = _credentials(parts, environ)
    return RedisURL(
        host=parts.hostname,
        port=port or _REDIS_PORT,
        database=_database(parts.path.removeprefix("/") or "0"),
        username=username,
        password=password,
        tls=tls,
    )


def _unix(parts: SplitResult, options: Mapping[str, str], environ: Mapping[str, str]) -> RedisURL:
    _only(options, "unix", frozenset({"db"}))
    path = unquote(parts.path)
    if parts.hostname or not path.startswith("/"):
        raise ConfigError(
            "store: unix: takes three slashes and the absolute path of a socket, "
            "for example unix:///run/redis/redis.sock"
        )
    username, password = _credentials(parts, environ)
    return RedisURL(
        socket=path,
        database=_database(options.get("db", "0")),
        username=username,
        password=password,
    )


def _credentials(parts: SplitResult, environ: Mapping[str, str]) -> tuple[str, str]:
    username = unquote(parts.username or "") or environ.get(USERNAME_VARIABLE, "")
    password = unquote(parts.password or "") or environ.get(PASSWORD_VARIABLE, "")
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


def _database(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4):
        raise ConfigError("store: the database is a number, for example redis://127.0.0.1:6379/0")
    return int(text)

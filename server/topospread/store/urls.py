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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import parse_qsl, unquote

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

_TLS: Final = ("cacert", "cert", "insecure", "key")
_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "sqlite": ("synchronous",),
    "unix": ("db",),
    "redis": (),
    "redis+sentinel": (),
    "redis+cluster": (),
    "rediss": _TLS,
    "rediss+sentinel": _TLS,
    "rediss+cluster": _TLS,
}
"""The kinds of addresses, with their options."""

# RFC 3986, appendix B: scheme, authority, path, query, fragment. Python's own splitting knows one
# host, and newer versions refuse brackets around another one.
_PARTS: Final = re.compile(
    r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL
)
_HOST: Final = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:@,]+))(?::([0-9]{1,5}))?")
_DATABASE: Final = re.compile(r"[0-9]{1,4}")


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
    """The address of a Redis server, of the Sentinels that know it, or of a Redis Cluster.

    Attributes:
        hosts: hosts and ports: of the server, of the Sentinels, or of some nodes.
        kind: what they are; empty for the one server.
        socket: path of the one server's Unix socket, instead of a host.
        service: the master that the Sentinels name.
    """

    hosts: tuple[tuple[str, int], ...] = ()
    kind: Literal["", "sentinel", "cluster"] = ""
    socket: str = ""
    service: str = ""
    database: int = 0
    username: str = ""
    password: str = field(default="", repr=False)
    sentinel_username: str = ""
    sentinel_password: str = field(default="", repr=False)
    tls: TLS | None = None

    @property
    def address(self) -> str:
        """The URL without users, passwords and options."""
        if self.socket:
            return f"unix://{self.socket}?db={self.database}"
        scheme = ("redis" if self.tls is None else "rediss") + (self.kind and f"+{self.kind}")
        hosts = ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts
        )
        path = {"": f"/{self.database}", "sentinel": f"/{self.service}/{self.database}"}
        return f"{scheme}://{hosts}{path.get(self.kind, '')}"


StoreURL = SqliteURL | RedisURL


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
    parts = _PARTS.fullmatch(text)
    assert parts is not None, "each part may be empty"
    scheme, authority, path, query, fragment = parts.groups()
    if scheme is None:
        raise _refused(f"an address begins with its kind: {_FORMS}")
    scheme, authority, path = scheme.lower(), authority or "", unquote(path)
    known = _OPTIONS.get(scheme)
    if known is None:
        raise _refused(f"{scheme}: is no kind of store that is known here: {_FORMS}")
    if fragment is not None:
        raise _refused("the address has a '#'; write %23 where a path or password holds one")
    pairs = parse_qsl(query or "", keep_blank_values=True)
    options = dict(pairs)
    if len(options) < len(pairs):
        raise _refused("an option is given twice in the address; write it once")
    for name in options:
        if name not in known:
            choice = ", ".join(known) or "none"
            raise _refused(f"{scheme}: has no option {name!r}; it knows: {choice}")
    if scheme == "sqlite":
        return _sqlite(authority, path, options)
    return _redis(scheme, authority, path, options, environ)


def _sqlite(authority: str, path: str, options: Mapping[str, str]) -> SqliteURL:
    if authority or not path.startswith("/") or path.endswith("/") or "\x00" in path:
        raise _refused(
            "sqlite: takes three slashes and the absolute path of a file, "
            "for example sqlite:///var/lib/topospread/state.db"
        )
    mode = options.get("synchronous", "normal")
    if mode not in ("normal", "full"):
        raise _refused("synchronous is normal or full")
    return SqliteURL("/" + path.lstrip("/"), full_sync=mode == "full")


def _redis(
    scheme: str, authority: str, path: str, options: Mapping[str, str], environ: Mapping[str, str]
) -> RedisURL:
    login, _, places = authority.rpartition("@")
    username, password = _credentials(login, environ)
    url = RedisURL(username=username, password=password)
    if scheme == "unix":
        if places or not path.startswith("/"):
            raise _refused(
                "unix: takes three slashes and the absolute path of a socket, "
                "for example unix:///run/redis/redis.sock"
            )
        return replace(url, socket=path, database=_database(options.get("db", "")))
    if scheme.startswith("rediss"):
        url = replace(url, tls=_tls(options))
    path = path.removeprefix("/")
    match scheme.partition("+")[2]:
        case "sentinel":
            service, _, path = path.partition("/")
            if not service or service.isspace():
                raise _refused(
                    f"{scheme}: lacks the name that the Sentinels give the master, "
                    f"for example {scheme}://10.0.0.1:26379,10.0.0.2:26379/mymaster/0"
                )
            return replace(
                url,
                hosts=_hosts(scheme, login, places, _SENTINEL_PORT),
                kind="sentinel",
                service=service,
                database=_database(path),
                sentinel_username=environ.get(SENTINEL_USERNAME_VARIABLE, ""),
                sentinel_password=environ.get(SENTINEL_PASSWORD_VARIABLE, ""),
            )
        case "cluster":
            if path not in ("", "0"):
                raise _refused(f"{scheme}: a Redis Cluster has database 0 only")
            return replace(url, hosts=_hosts(scheme, login, places, _REDIS_PORT), kind="cluster")
    host = _host(places, _REDIS_PORT)
    if host is None:
        raise _refused(
            f"{scheme}: takes a host, as HOST or HOST:PORT with a port of 1 to 65535, "
            f"for example {scheme}://127.0.0.1:6379/0"
        )
    return replace(url, hosts=(host,), database=_database(path))


def _hosts(scheme: str, login: str, places: str, default_port: int) -> tuple[tuple[str, int], ...]:
    found = [_host(place, default_port) for place in places.split(",")]
    hosts = tuple([each for each in found if each is not None])
    # One login for all; a comma in it would be a second one before another host.
    if "," in login or len(hosts) < len(found):
        raise _refused(
            f"{scheme}: takes hosts separated by commas, each HOST or HOST:PORT, "
            f"for example {scheme}://10.0.0.1:{default_port},10.0.0.2:{default_port}"
        )
    return hosts


def _host(text: str, default_port: int) -> tuple[str, int] | None:
    """A host and its port; None when they cannot be read."""
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    port = int(found[3] or default_port)
    return (found[1] or found[2], port) if 0 < port < 65536 else None


def _credentials(login: str, environ: Mapping[str, str]) -> tuple[str, str]:
    username, _, password = login.partition(":")
    username = unquote(username) or environ.get(USERNAME_VARIABLE, "")
    password = unquote(password) or environ.get(PASSWORD_VARIABLE, "")
    if username and not password:
        raise _refused(
            f"a user without a password; set {PASSWORD_VARIABLE} or write "
            "redis://user:password@host"
        )
    return username, password


def _tls(options: Mapping[str, str]) -> TLS:
    insecure = options.get("insecure", "no")
    if insecure not in ("yes", "no"):
        raise _refused("insecure is yes or no")
    if ("cert" in options) != ("key" in options):
        raise _refused("cert and key belong together; give both or neither")
    paths = {name: path for name, path in options.items() if name != "insecure"}
    return TLS(**paths, insecure=insecure == "yes")


def _database(text: str) -> int:
    if not _DATABASE.fullmatch(text or "0"):
        raise _refused("the database is a number, for example redis://127.0.0.1:6379/0")
    return int(text or "0")


def _refused(text: str) -> ConfigError:
    return ConfigError(f"store: {text}")

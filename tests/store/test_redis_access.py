"""Ways to a Redis: TLS, users, Unix sockets; what is refused or warned of at opening."""

from __future__ import annotations

import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trustme

from tests.redis_server import TlsFiles, free_port, redis_binaries
from tests.store.backends import CLUSTER, node, objects, put
from tests.store.conftest import SETTINGS
from tests.waiting import until
from topospread.errors import ConfigError, StoreUnavailable
from topospread.store.redis.open import RIGHTS, open_store
from topospread.store.urls import PASSWORD_VARIABLE, USERNAME_VARIABLE, SqliteURL, parse_store_url

if TYPE_CHECKING:
    from topospread.store.model import StoreSettings

SECRET = "s3cr/t@:p%ss"
QUOTED = "s3cr%2Ft%40%3Ap%25ss"
# For what cannot be opened: it is tried again until this time is over, here a server's default.
IMPATIENT = replace(SETTINGS, timeout=2.0)


def opened(url: str, environ: dict[str, str] | None = None, settings: StoreSettings | None = None):
    parsed = parse_store_url(url, environ or {})
    assert not isinstance(parsed, SqliteURL)
    return open_store(parsed, settings or SETTINGS)


def works(store) -> bool:
    """A write, a read and a wait, each on its connections."""
    store.ping()
    made = store.apply(CLUSTER, [put(node())])
    identity, revision = made.identity, made.revision
    assert not store.follow(CLUSTER, identity, revision, wait=0.001)
    found = list(objects(store))
    store.close()
    return found == [node()]


@pytest.fixture
def redis_version(redis_binary):
    """Version of the server that start_redis runs."""
    return next(version for version, path in redis_binaries().items() if path == redis_binary)


@pytest.fixture
def authority():
    return trustme.CA()


@pytest.fixture
def pem(authority, tmp_path):
    """Paths of an authority, and of a certificate for 127.0.0.1 that serves both sides."""
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return TlsFiles(tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem")


def test_tls_checks_the_server(start_redis, pem):
    server = start_redis(tls=pem)

    assert works(opened(f"{server.url}?cacert={pem.ca}"))
    assert works(opened(f"{server.url}?insecure=yes"))
    with pytest.raises(StoreUnavailable, match="does not verify"):
        opened(server.url)
    with pytest.raises(StoreUnavailable, match="does not verify"):
        opened(f"{server.url.replace('127.0.0.1', 'localhost')}?cacert={pem.ca}")


def test_tls_shows_a_client_certificate(start_redis, pem):
    pem = TlsFiles(pem.certificate, pem.key, pem.ca, ask_for_client_certificate=True)
    server = start_redis(tls=pem)

    assert works(opened(f"{server.url}?cacert={pem.ca}&cert={pem.certificate}&key={pem.key}"))
    with pytest.raises(StoreUnavailable):
        opened(f"{server.url}?cacert={pem.ca}")


def test_missing_certificate_files_are_reported(pem):
    with pytest.raises(ConfigError, match=r"none\.pem"):
        opened(f"rediss://127.0.0.1:1?cacert={pem.ca.parent}/none.pem")
    with pytest.raises(ConfigError, match="one pair"):
        opened(f"rediss://127.0.0.1:1?cert={pem.ca}&key={pem.key}")


def test_a_unix_socket_serves(start_redis):
    server = start_redis(unix_socket=True)

    assert works(opened(server.socket_url))
    store = opened(f"{server.socket_url}?db=3")
    assert store.address == f"unix://{server.socket_path}?db=3"
    assert store.clusters() == []
    store.close()


def test_databases_are_kept_apart(start_redis):
    server = start_redis()

    assert works(opened(f"{server.url}/1"))
    two = opened(f"{server.url}/2")
    assert two.clusters() == []
    two.close()


@pytest.mark.parametrize(
    ("credentials", "environ"),
    [
        (f"spread:{QUOTED}@", {}),
        ("", {USERNAME_VARIABLE: "spread", PASSWORD_VARIABLE: SECRET}),
        ("spread@", {PASSWORD_VARIABLE: SECRET}),
    ],
)
def test_a_user_of_its_own_is_enough(start_redis, credentials, environ):
    server = start_redis()
    add_user(server)

    store = opened(server.url.replace("://", f"://{credentials}"), environ)

    assert SECRET not in store.address
    assert "spread" not in store.address
    assert works(store)


def add_user(server) -> None:
    """A user with the least rights that the documentation names."""
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "spread", "on", f">{SECRET}", *RIGHTS.split())


def test_wrong_password_is_reported_without_showing_it(start_redis):
    server = start_redis()
    with server.client() as client:
        client.config_set("requirepass", "right")

    with pytest.raises(StoreUnavailable, match="user or password") as caught:
        opened(server.url.replace("://", f"://:{QUOTED}@"))

    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown
    assert QUOTED not in shown
    with pytest.raises(StoreUnavailable, match="user or password"):
        opened(server.url)


def test_missing_rights_of_the_user_are_named(start_redis, redis_version):
    if redis_version < (7,):
        pytest.skip("a script can ask for its user's rights since 7.0")
    server = start_redis()
    with server.client() as client:
        client.acl_setuser(
            "half", enabled=True, nopass=True, keys=["ts:*"], commands=["+@all", "-xadd", "-unlink"]
        )

    with pytest.raises(ConfigError, match=r"may not run unlink, xadd .*ACL SETUSER"):
        opened(server.url.replace("://", "://half:any@"))


def test_a_user_without_info_gets_a_warning(start_redis):
    server = start_redis()
    with server.client() as client:
        client.acl_setuser(
            "blind", enabled=True, nopass=True, keys=["ts:*"], commands=["+@all", "-info"]
        )

    store = opened(server.url.replace("://", "://blind:any@"))

    (warning,) = store.warnings
    assert "could not be checked" in warning
    assert works(store)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_redis_that_evicts_is_refused(start_redis, policy):
    server = start_redis(options={"maxmemory-policy": policy})

    with pytest.raises(ConfigError, match=f"{policy}.*noeviction"):
        opened(server.url)


@pytest.mark.parametrize(("appendonly", "warnings"), [("yes", 0), ("no", 1)])
def test_a_redis_without_aof_is_warned_of(start_redis, appendonly, warnings):
    store = opened(start_redis(options={"appendonly": appendonly}).url)

    assert len(store.warnings) == warnings
    assert all("appendonly yes" in warning for warning in store.warnings)
    store.close()


def test_a_node_without_slots_holds_nothing(start_redis, redis_version):
    # Its bus would else take the port 10,000 above, which may not be there.
    bus = {"cluster-port": str(free_port())}
    if redis_version < (7,):
        pytest.skip("the bus port can be chosen since 7.0")

    # Alone and without slots it can hold nothing.
    with pytest.raises(StoreUnavailable, match="down or changing"):
        opened(start_redis(options={"cluster-enabled": "yes", **bus}).url, settings=IMPATIENT)


def test_a_sentinel_is_refused(start_redis):
    with pytest.raises(ConfigError, match=r"redis\+sentinel://"):
        opened(start_redis(sentinel=True).url)


def test_a_redis_out_of_reach_is_unavailable(start_redis):
    server = start_redis()
    server.stop()

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        opened(server.url, settings=IMPATIENT)


def test_a_redis_that_still_loads_is_waited_for_before_it_is_judged(start_redis, redis_version):
    if redis_version < (7,):
        pytest.skip("it answers while it loads, but not as often as a test needs")
    slow = {"key-load-delay": "500", "loading-process-events-interval-bytes": "1024"}
    server = start_redis(options={"appendonly": "yes", **slow})
    with server.client() as client:
        client.mset({f"key-{number}": "" for number in range(1000)})
        # What is in a snapshot is loaded key by key, with the delay; other entries are not.
        client.bgrewriteaof()
        until(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0, "it is rewritten")
    server.kill()

    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(server.start)
        store = until(lambda: opened_if_there(server.url), "it can be reached")
        started.result()

    assert store.warnings == ()
    store.close()


def opened_if_there(url):
    try:
        return opened(url)
    except StoreUnavailable:
        return None


@pytest.mark.parametrize(
    ("taken", "missing"),
    [("-@write", "XADD"), ("-hset", "HSET"), ("-evalsha", "EVALSHA"), ("-@read", "TYPE")],
)
def test_a_right_that_is_taken_away_later_is_named(start_redis, taken, missing):
    server = start_redis()
    store = opened(server.url)
    assert store.apply(CLUSTER, [put(node())]).revision.number == 1
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", taken)

    with pytest.raises(StoreUnavailable, match=f"may not run a command .*: {missing}$"):
        store.apply(CLUSTER, [put(node("other"))])

    store.close()

"""Store addresses: valid and invalid ones, and the texts of errors."""

from __future__ import annotations

import pytest

from topospread.errors import ConfigError
from topospread.store.urls import (
    PASSWORD_VARIABLE,
    SENTINEL_PASSWORD_VARIABLE,
    SENTINEL_USERNAME_VARIABLE,
    TLS,
    USERNAME_VARIABLE,
    RedisURL,
    SqliteURL,
    parse_store_url,
)

SECRETS = {USERNAME_VARIABLE: "someone", PASSWORD_VARIABLE: "hush"}


@pytest.mark.parametrize(
    ("text", "expected", "address"),
    [
        ("memory:", SqliteURL(), "memory:"),
        ("sqlite:///var/lib/a.db", SqliteURL("/var/lib/a.db"), "sqlite:///var/lib/a.db"),
        ("sqlite:////var/a.db", SqliteURL("/var/a.db"), "sqlite:///var/a.db"),
        ("sqlite:///a%20b/%C3%BC.db", SqliteURL("/a b/ü.db"), "sqlite:///a b/ü.db"),
        ("sqlite:///a.db?synchronous=full", SqliteURL("/a.db", full_sync=True), "sqlite:///a.db"),
        ("sqlite:///a.db?synchronous=normal", SqliteURL("/a.db"), "sqlite:///a.db"),
        ("redis://db", RedisURL((("db", 6379),)), "redis://db:6379/0"),
        ("redis://db:7000/3", RedisURL((("db", 7000),), database=3), "redis://db:7000/3"),
        ("redis://db/", RedisURL((("db", 6379),)), "redis://db:6379/0"),
        ("redis://[::1]:7000", RedisURL((("::1", 7000),)), "redis://[::1]:7000/0"),
        (
            "redis://u:p%40s@db",
            RedisURL((("db", 6379),), username="u", password="p@s"),
            "redis://db:6379/0",
        ),
        ("redis://:p@db", RedisURL((("db", 6379),), password="p"), "redis://db:6379/0"),
        ("rediss://db", RedisURL((("db", 6379),), tls=TLS()), "rediss://db:6379/0"),
        (
            "rediss://db?cacert=/ca&cert=/c&key=/k",
            RedisURL((("db", 6379),), tls=TLS("/ca", "/c", "/k")),
            "rediss://db:6379/0",
        ),
        (
            "rediss://db?insecure=yes",
            RedisURL((("db", 6379),), tls=TLS(insecure=True)),
            "rediss://db:6379/0",
        ),
        ("unix:///run/r.sock", RedisURL(socket="/run/r.sock"), "unix:///run/r.sock?db=0"),
        (
            "unix://u:p@/run/r.sock?db=2",
            RedisURL(socket="/run/r.sock", database=2, username="u", password="p"),
            "unix:///run/r.sock?db=2",
        ),
        (
            "redis+sentinel://db/main",
            RedisURL((("db", 26379),), "sentinel", service="main"),
            "redis+sentinel://db:26379/main/0",
        ),
        (
            "redis+sentinel://u:p%40s@a:1,[::1]:2,c/main/3",
            RedisURL(
                (("a", 1), ("::1", 2), ("c", 26379)),
                "sentinel",
                service="main",
                database=3,
                username="u",
                password="p@s",
            ),
            "redis+sentinel://a:1,[::1]:2,c:26379/main/3",
        ),
        (
            "rediss+sentinel://db/main?cacert=/ca",
            RedisURL((("db", 26379),), "sentinel", service="main", tls=TLS("/ca")),
            "rediss+sentinel://db:26379/main/0",
        ),
        ("redis+cluster://a", RedisURL((("a", 6379),), "cluster"), "redis+cluster://a:6379"),
        (
            "rediss+cluster://:p%40s@a:1,b:2/0?insecure=yes",
            RedisURL((("a", 1), ("b", 2)), "cluster", password="p@s", tls=TLS(insecure=True)),
            "rediss+cluster://a:1,b:2",
        ),
    ],
)
def test_addresses_that_are_taken(text, expected, address):
    parsed = parse_store_url(text, {})

    assert parsed == expected
    assert parsed.address == address
    assert "p@s" not in repr(parsed)


@pytest.mark.parametrize(
    ("text", "username", "password"),
    [
        ("redis://db", "someone", "hush"),
        ("redis://other:word@db", "other", "word"),
        ("redis://other@db", "other", "hush"),
        ("unix:///run/r.sock", "someone", "hush"),
        ("redis+sentinel://a,b/main", "someone", "hush"),
        ("redis+cluster://other:word@a,b", "other", "word"),
    ],
)
def test_the_environment_fills_in_what_the_address_lacks(text, username, password):
    parsed = parse_store_url(text, SECRETS)

    assert not isinstance(parsed, SqliteURL)
    assert (parsed.username, parsed.password) == (username, password)
    assert "hush" not in repr(parsed) + parsed.address


def test_sentinels_have_a_password_of_their_own():
    environ = {SENTINEL_USERNAME_VARIABLE: "guard", SENTINEL_PASSWORD_VARIABLE: "hush"}
    parsed = parse_store_url("redis+sentinel://:word@db/main", environ)

    assert isinstance(parsed, RedisURL)
    assert (parsed.username, parsed.password) == ("", "word")
    assert (parsed.sentinel_username, parsed.sentinel_password) == ("guard", "hush")
    assert "hush" not in repr(parsed) + parsed.address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "memory:"),
        ("redis", "memory:"),
        ("/var/lib/a.db", "sqlite:///absolute/path"),
        ("postgres://u:hush@db", "postgres: is no kind"),
        ("redis+sentinel://db", "lacks the name"),
        ("redis+sentinel:///main", "separated by commas"),
        ("redis+sentinel://a,/main", "separated by commas"),
        ("redis+sentinel://a:x,b/main", "separated by commas"),
        ("redis+sentinel://u:hush@a,u:hush@b/main", "separated by commas"),
        ("redis+sentinel://a:0/main", "separated by commas"),
        ("redis+sentinel://a/main/x", "database is a number"),
        ("redis+sentinel://u@a/main", PASSWORD_VARIABLE),
        ("redis+sentinel://a/main?cacert=/ca", "no option 'cacert'"),
        ("redis+cluster://", "separated by commas"),
        ("redis+cluster://a,b/1", "database 0 only"),
        ("rediss+cluster://a?cert=/c", "belong together"),
        ("memory:x", "no kind"),
        ("sqlite:a.db", "three slashes"),
        ("sqlite://a.db", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("sqlite:///dir/", "three slashes"),
        ("sqlite:///a%00.db", "three slashes"),
        ("sqlite:///a.db?mode=ro", "no option 'mode'"),
        ("sqlite:///a.db?synchronous=off", "normal or full"),
        ("redis://", "takes a host"),
        ("redis:///0", "takes a host"),
        ("redis://db:0", "takes a host"),
        ("redis://db:port", "takes a host"),
        ("redis://db:70000", "takes a host"),
        ("redis://[::1", "takes a host"),
        ("redis://a,b", "takes a host"),
        ("redis://db/one", "database is a number"),
        ("redis://db/0/1", "database is a number"),
        ("redis://db/-1", "database is a number"),
        ("redis://db?cacert=/ca", "no option 'cacert'"),
        ("redis://db#0", "%23"),
        ("redis://u@db", PASSWORD_VARIABLE),
        ("rediss://db?insecure=1", "yes or no"),
        ("rediss://db?cert=/c", "belong together"),
        ("rediss://db?ssl_ca_certs=/c", "no option"),
        ("rediss://db?cacert=/a&cacert=/b", "twice"),
        ("unix://run/r.sock", "absolute path of a socket"),
        ("unix:///run/r.sock?db=x", "database is a number"),
        ("unix:///run/r.sock?password=hush", "no option 'password'"),
    ],
)
def test_invalid_addresses_are_refused(text, expected):
    with pytest.raises(ConfigError) as caught:
        parse_store_url(text, {})

    assert expected in str(caught.value)
    assert str(caught.value).startswith("store: ")
    assert "hush" not in str(caught.value)

"""Contents of an access file, and errors about one that cannot be used."""

from __future__ import annotations

import pytest

from topospread.access.authentication import (
    Authenticator,
    CallerRegistry,
    digest,
    identifier,
    new_token,
)
from topospread.access.callers import Caller, Role, roles_of
from topospread.access.certificates import CertificateNames, NameType
from topospread.access.file import grant, read_access
from topospread.errors import ConfigError, PermissionDenied, Unauthenticated

HEAD = "apiVersion: topospread.io/v1\nkind: TopospreadAccess\n"
SHA = "ab" * 32
NO_CALLERS = CallerRegistry({}, {}, {})


def no_names() -> CertificateNames:
    raise AssertionError("nobody needs them")


def refused(text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        read_access(text, "access.yaml")
    return str(error.value).splitlines()


def test_everything_wrong_is_said_at_once_and_no_value_is_shown():
    token = new_token().text
    lines = refused(
        f"kind: TopospreadAccess\n"
        f"tokens:\n"
        f"- {{id: {token}, name: a, sha256: {token}, roles: [decide]}}\n"
        f"- {{id: '{'0' * 16}', sha256: '{SHA}', roles: [rule], {token}: 1}}\n"
        f"- {{id: '{'0' * 16}', name: c, sha256: '{SHA}', roles: [read@], expires: soon}}\n"
        f"- {token}\n"
        f"certificates:\n"
        f"- {{commonName: x, alternativeName: y, roles: [read]}}\n"
    )
    said = "\n".join(lines)
    assert token not in said
    for expected in (
        "it needs apiVersion: topospread.io/v1",
        "tokens[0].id: not 16 hexadecimal digits",
        "tokens[0].sha256: not 64 hexadecimal digits",
        "tokens[1].name: not a text, or missing",
        "tokens[1].: a key is unknown",
        "tokens[1].roles[0]: 'rule' is no role; there are read, decide, place, write, admin",
        "tokens[2].id: another token has the same",
        "tokens[2].expires: not a time",
        "tokens[2].roles[0]: 'read@' names no cluster",
        "tokens[3]: not a mapping",
        "certificates[0]: it needs a commonName or an alternativeName, not both",
    ):
        assert expected in said


@pytest.mark.parametrize(
    "text", ["", "[]", "- a", "kind: x\n---\nkind: y\n", "a: [", "\0", "tokens: {", "a: 1\na: 2"]
)
def test_malformed_access_files_are_refused(text):
    assert refused(text)


@pytest.mark.parametrize("key", ["tokens", "certificates"])
@pytest.mark.parametrize("value", ["{}", "text", "1"])
def test_lists_must_be_lists(key, value):
    assert refused(f"{HEAD}{key}: {value}\n") == [f"access.yaml: {key}: not a list"]


def test_an_empty_file_knows_no_callers():
    assert read_access(HEAD, "access.yaml") == NO_CALLERS


@pytest.mark.parametrize(
    ("granted", "role", "cluster", "may"),
    [
        ("read", Role.READ, "any", True),
        ("read", Role.DECIDE, "any", False),
        ("read", Role.WRITE, "any", False),
        ("decide", Role.READ, "any", True),
        ("decide", Role.WRITE, "any", False),
        ("write", Role.READ, "any", True),
        ("write", Role.DECIDE, "any", False),
        ("write", Role.ADMIN, "any", False),
        ("admin", Role.DECIDE, "any", True),
        ("admin", Role.WRITE, "any", True),
        ("decide@prod", Role.DECIDE, "prod", True),
        ("decide@prod", Role.READ, "prod", True),
        ("decide@prod", Role.DECIDE, "prod2", False),
        ("admin@prod", Role.READ, "default", False),
        ("read@a@b", Role.READ, "a@b", True),
    ],
)
def test_roles_include_others(granted, role, cluster, may):
    caller = Caller("x", roles_of([grant(granted)]))
    assert caller.may(role, cluster) is may
    if may:
        caller.check(role, cluster)
    else:
        with pytest.raises(PermissionDenied, match=f"the role {role.value} is missing"):
            caller.check(role, cluster)


def test_roles_of_one_caller_add_up():
    caller = Caller("x", roles_of(map(grant, ["read@a", "read@b", "decide@b", "write"])))
    assert caller.clusters(Role.READ) is None
    assert caller.clusters(Role.DECIDE) == frozenset("b")
    with pytest.raises(PermissionDenied, match="the role decide is missing for cluster 'a'"):
        caller.check(Role.DECIDE, "a")
    with pytest.raises(PermissionDenied, match="the role decide is missing for all clusters"):
        caller.check_everywhere(Role.DECIDE)


def gate_of(token, expires: float = 100.0) -> Authenticator:
    caller = Caller("x", roles_of([(Role.READ, None)]), expires, digest(token.text))
    return Authenticator(lambda: CallerRegistry({token.id: caller}, {}, {}), clock=lambda: 50.0)


def test_a_token_is_compared_as_a_whole():
    token = new_token()
    authenticator = gate_of(token)
    for spelled in (f"Bearer {token.text}", f"bearer  {token.text} ", f"BEARER {token.text}"):
        assert authenticator.caller([spelled], no_names).name == "x"
    other = new_token()
    wrong = [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {token.text}",
        token.text,
        f"Bearer {token.text[:-1]}",
        f"Bearer {token.text}\0",
        f"Bearer {token.text}x",
        f"Bearer {token.text.upper()}",
        f"Bearer tsp_{token.id}_",
        f"Bearer tsp_{token.id}_{identifier(other.text)}",
        f"Bearer {other.text}",
        f"Bearer {token.text} {token.text}",
        f"Bearer {chr(0xDC80)}{token.text}",
    ]
    for spelled in wrong:
        with pytest.raises(Unauthenticated):
            authenticator.caller([spelled], no_names)
    with pytest.raises(Unauthenticated):
        authenticator.caller([f"Bearer {token.text}"] * 2, no_names)


def test_a_token_ends_when_it_expires():
    token = new_token()
    with pytest.raises(Unauthenticated):
        gate_of(token, 50.0).caller([f"Bearer {token.text}"], no_names)


def test_names_in_certificates():
    text = (
        f"{HEAD}certificates:\n"
        "- {commonName: feeder, roles: [write]}\n"
        "- {alternativeName: 'spiffe://ours/scheduler', name: scheduler, roles: [decide]}\n"
    )
    roll = read_access(text, "access.yaml")
    authenticator = Authenticator(lambda: roll)
    assert authenticator.caller([], lambda: CertificateNames(("feeder",))).name == "feeder"
    dns, uri = (NameType.DNS, "dns"), (NameType.URI, "spiffe://ours/scheduler")
    both = CertificateNames(("feeder",), (dns, uri))
    assert authenticator.caller([], lambda: both).name == "scheduler"
    others = [
        CertificateNames(),
        CertificateNames(("feeder", "other")),
        CertificateNames(("other",)),
        CertificateNames((), ((NameType.DNS, "feeder"),)),
        CertificateNames((), ((NameType.DNS, "spiffe://ours/scheduler"),)),
    ]
    while others:
        with pytest.raises(Unauthenticated):
            authenticator.caller([], others.pop)
    with pytest.raises(Unauthenticated):
        authenticator.caller(["Bearer no-such-token"], lambda: both)


def test_a_token_is_never_shown_by_what_holds_it():
    token = new_token()
    caller = Caller("x", {}, credential=digest(token.text))
    for shown in (repr(token), repr(caller), repr(Unauthenticated())):
        assert token.text not in shown
        assert token.sha256 not in shown
        assert repr(caller.credential) not in shown

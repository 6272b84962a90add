from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topospread.config.descriptions import SETTINGS, redacted
from topospread.config.loading import default_store, load_settings
from topospread.config.settings import ServerSettings
from topospread.config.values import Address, without_password
from topospread.errors import ConfigError

HOME = {"HOME": "/home/ada"}


def own(**keys):
    lines = [f"{key}: {value}" for key, value in keys.items()]
    return "\n".join(["apiVersion: topospread.io/v1", "kind: TopospreadConfiguration", *lines])


def problems(flags=(), environ=(), text=""):
    with pytest.raises(ConfigError) as refused:
        load_settings(dict(flags), {**HOME, **dict(environ)}, text)
    return str(refused.value).splitlines()


def test_without_anything_the_defaults_hold():
    settings = load_settings({}, HOME, "")
    expected = dataclasses.replace(
        ServerSettings(), store="sqlite:////home/ada/.local/state/topospread/state.db"
    )
    assert settings == expected
    assert settings.listen == Address("127.0.0.1", 7946)
    assert settings.listen.port < 32768
    assert settings.http is not None
    assert settings.http.port < 32768
    assert not settings.insecure
    assert not settings.tls


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_says_what_it_is_and_why(name):
    about = SETTINGS[name]
    assert about.help.endswith(".") or about.help.endswith(")")
    assert about.reason.endswith(".")


# A text that each kind of setting reads, and the value it becomes.
GIVEN = {
    "listen": ("127.0.0.1:7000", Address("127.0.0.1", 7000)),
    "http": ("[::1]:7001", Address("::1", 7001)),
    "store": ("redis://cache:6379/0", "redis://cache:6379/0"),
    "decision_queue": ("3", 3),
    "max_request_bytes": ("8MiB", 8 << 20),
    "max_decision_bytes": ("2MiB", 2 << 20),
    "max_group_idle": ("5m", 300.0),
    "sync_lease_duration": ("1500ms", 1.5),
    "shutdown_grace_period": ("7", 7.0),
    "preload": ("prod, dev", ("prod", "dev")),
    "reflection": ("false", False),
    "unready_when_stale": ("true", True),
    "log_level": ("debug", "debug"),
    "feature_gates": ("A=true,B=false", {"A": True, "B": False}),
}


@pytest.mark.parametrize("name", GIVEN)
def test_flags_and_variables_are_read_alike(name):
    text, expected = GIVEN[name]
    by_flag = load_settings({name: text}, HOME, "")
    by_variable = load_settings({}, {**HOME, f"TOPOSPREAD_{name.upper()}": text}, "")
    assert getattr(by_flag, name) == expected
    assert by_flag == by_variable


@pytest.mark.parametrize("name", [name for name in GIVEN if name != "feature_gates"])
def test_the_file_says_the_same_in_its_own_spelling(name):
    text, expected = GIVEN[name]
    written = f"[{text}]" if name == "preload" else f"'{text}'" if name == "http" else text
    settings = load_settings({}, HOME, own(**{SETTINGS[name].key: written}))
    assert getattr(settings, name) == expected


def test_a_flag_goes_before_the_environment_and_that_before_the_file():
    text = own(decisionQueue=2, maxConnections=3, maxClusters=4)
    environ = {**HOME, "TOPOSPREAD_DECISION_QUEUE": "5", "TOPOSPREAD_MAX_CONNECTIONS": "6"}
    settings = load_settings({"decision_queue": 7}, environ, text)
    assert (settings.decision_queue, settings.max_connections, settings.max_clusters) == (
        7,
        6,
        4,
    )


@given(
    *[st.none() | st.integers(1, 256)] * 3,
)
def test_the_nearest_source_that_speaks_is_heard(flag, variable, file):
    environ = HOME if variable is None else {**HOME, "TOPOSPREAD_DECISION_QUEUE": str(variable)}
    text = "" if file is None else own(decisionQueue=file)
    settings = load_settings({"decision_queue": flag}, environ, text)
    said = [value for value in (flag, variable, file, 1024) if value is not None]
    assert settings.decision_queue == said[0]


def test_a_null_or_an_empty_variable_says_nothing():
    settings = load_settings(
        {"decision_queue": None},
        {**HOME, "TOPOSPREAD_DECISION_QUEUE": ""},
        own(decisionQueue="null"),
    )
    assert settings.decision_queue == 1024


def test_the_file_is_found_by_flag_or_variable(tmp_path):
    file = tmp_path / "serve.yaml"
    file.write_text(own(decisionQueue=2))
    assert load_settings({"config": str(file)}, HOME).decision_queue == 2
    by_variable = load_settings({}, {**HOME, "TOPOSPREAD_CONFIG": str(file)})
    assert (by_variable.decision_queue, by_variable.config) == (2, str(file))


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir()])
def test_a_file_that_cannot_be_read_is_named(tmp_path, make):
    path = tmp_path / "serve.yaml"
    make(path)
    (line,) = problems({"config": str(path)}, text=None)
    assert line.startswith(f"{path}: cannot be read")


def test_a_file_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "serve.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    (line,) = problems({"config": str(path)}, text=None)
    assert "not UTF-8" in line


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("listen", "7946", "'7946' is not of the form HOST:PORT"),
        ("listen", "localhost:seven", "is not of the form HOST:PORT"),
        ("listen", "localhost:99999", "has a port above 65535"),
        ("listen", "::1:7946", "has an IPv6 address without brackets"),
        ("listen", ":7946", "names no host"),
        ("decision_queue", "many", "'many' is not a whole number"),
        ("decision_queue", "2.5", "is not a whole number"),
        ("decision_queue", "0", "is not 1 or more"),
        ("shutdown_grace_period", "soon", "is not a duration; write 30s"),
        ("shutdown_grace_period", "-1", "is not a duration from 0s on"),
        ("shutdown_grace_period", "1e400", "is not a duration"),
        ("max_request_bytes", "16MB", "is not a size; write 16MiB"),
        ("max_request_bytes", "3", "is less than 1024 bytes"),
        ("reflection", "maybe", "is neither true nor false"),
        ("log_level", "loud", "is not one of debug, info, warning, error"),
        ("feature_gates", "A", "is not of the form Name=true"),
        ("feature_gates", "A=perhaps", "is not of the form Name=true"),
    ],
)
def test_a_wrong_value_is_refused_with_what_to_write(name, text, complaint):
    (by_flag,) = problems({name: text})
    (by_variable,) = problems({}, {f"TOPOSPREAD_{name.upper()}": text})
    flag = "--" + name.replace("_", "-")
    assert by_flag.startswith(f"{flag}: ")
    assert by_variable.startswith(f"TOPOSPREAD_{name.upper()}: ")
    assert complaint in by_flag
    assert complaint in by_variable


@pytest.mark.parametrize(
    ("key", "written", "complaint"),
    [
        ("decisionQueue", "'2'", "'2' is not a whole number"),
        ("decisionQueue", "true", "True is not a whole number"),
        ("decisionQueue", "[1]", "is not a whole number"),
        ("reflection", "1", "1 is neither true nor false"),
        ("preload", "prod", "'prod' is not a list of names"),
        ("preload", "[1]", "is not a list of names"),
        ("store", "5", "is not a text"),
        ("listen", "{host: a}", "is not of the form HOST:PORT"),
        ("shutdownGracePeriod", ".nan", "is not a duration from 0s on"),
        ("featureGates", "[A]", "is not of the form"),
    ],
)
def test_a_file_must_have_the_right_types(key, written, complaint):
    (line,) = problems(text=own(**{key: written}))
    assert line.startswith(f"configuration file: {key}: ")
    assert complaint in line


def test_everything_wrong_is_said_at_once():
    said = problems(
        {"decision_queue": "x", "liten": "y"},
        {"TOPOSPREAD_SHUTDOWN_GRACE_PERIOD": "z", "TOPOSPREAD_DECISION_QEUE": "2"},
        own(decisionQeue=1, listen="nowhere"),
    )
    assert said == [
        "configuration file: unknown key 'decisionQeue'; did you mean decisionQueue?",
        "configuration file: listen: 'nowhere' is not of the form HOST:PORT",
        "TOPOSPREAD_SHUTDOWN_GRACE_PERIOD: 'z' is not a duration; write 30s, 500ms or 5m",
        "TOPOSPREAD_DECISION_QEUE: unknown; did you mean TOPOSPREAD_DECISION_QUEUE?",
        "--decision-queue: 'x' is not a whole number",
        "--liten: unknown; did you mean --listen?",
    ]


@pytest.mark.parametrize(
    "variable",
    [
        "TOPOSPREAD_SERVICE_HOST",
        "TOPOSPREAD_SERVICE_PORT_GRPC",
        "TOPOSPREAD_PORT",
        "TOPOSPREAD_PORT_7946_TCP_ADDR",
        "TOPOSPREAD_HTTP_PORT_7947_TCP",
        "TOPOSPREAD_ADDRESS",
        "TOPOSPREAD_CLUSTER",
        "TOPOSPREADER_DECISION_QUEUE",
    ],
)
def test_variables_of_others_are_let_be(variable):
    assert load_settings({}, {**HOME, variable: "tcp://10.0.0.1:7946"}, "").decision_queue == 1024


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("", "no kind; it needs kind: TopospreadConfiguration"),
        ("kind: TopospreadConfig", "did you mean TopospreadConfiguration?"),
        ("kind: ConfigMap", "kind 'ConfigMap' is unknown"),
        (
            "kind: TopospreadConfiguration\napiVersion: v2",
            "apiVersion 'v2' is unknown; write topospread.io/v1",
        ),
    ],
)
def test_a_document_of_another_kind_is_refused(kind, complaint):
    (line,) = problems(text=f"{kind}\ndecisionQueue: 2\n")
    assert complaint in line


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "not YAML: line 1"),
        ("- 1", "not a mapping"),
        ("just words", "not a mapping"),
        (own(decisionQueue=1) + "\ndecisionQueue: 2", "the key 'decisionQueue' is given twice"),
        (own() + "\n---\n" + own(), "a second TopospreadConfiguration"),
        ("[" * 5000, "not YAML"),
        ("!!python/object:os.system {}", "not YAML"),
    ],
)
def test_a_broken_file_is_refused(text, complaint):
    (line,) = problems(text=text)
    assert complaint in line


def test_documents_are_distinguished_by_kind():
    scheduler = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration"
    text = f"---\n{scheduler}\n---\n{own(decisionQueue=2)}\n---\n"
    assert load_settings({}, HOME, text).decision_queue == 2


@pytest.mark.parametrize("flag", ["listen", "http"])
@pytest.mark.parametrize("address", ["0.0.0.0:7000", "[::]:7000", "spread.example:7000"])
def test_plain_text_for_others_must_be_spelled_out(flag, address):
    (line,) = problems({flag: address})
    assert line.startswith(f"--{flag}: {address} can be reached from other machines; give --tls-")
    assert "--insecure" in line
    meant = load_settings({flag: address, "insecure": True}, HOME, "")
    encrypted = load_settings({flag: address, "tls_cert": "c", "tls_key": "k"}, HOME, "")
    assert str(getattr(meant, flag)) == str(getattr(encrypted, flag)) == address


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1"])
def test_this_machine_alone_needs_no_encryption(address):
    assert str(load_settings({"listen": address}, HOME, "").listen) == address


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"tls_cert": "c"}, "--tls-cert: give --tls-key as well"),
        ({"tls_key": "k"}, "--tls-key: give --tls-cert as well"),
        ({"client_ca": "ca"}, "--client-ca: clients can only be verified with TLS"),
        ({"http_client_ca": "ca"}, "--http-client-ca: clients can only be verified with TLS"),
        ({"http": "127.0.0.1:7946"}, "--http: 127.0.0.1:7946 is the address of --listen"),
        (
            {"reuse_port": True, "store": "memory:"},
            "--reuse-port: processes do not share memory:",
        ),
        *(
            ({"reuse_port": True, name: "127.0.0.1:0"}, f"--{name.replace('_', '-')}: with --reuse")
            for name in ("listen", "extender_listen", "expander_listen")
        ),
    ],
)
def test_settings_that_do_not_go_together(flags, complaint):
    (line,) = problems(flags)
    assert line.startswith(complaint)


@pytest.mark.parametrize(
    ("flags", "ca"),
    [
        ({}, ""),
        ({"client_ca": "a"}, "a"),
        ({"client_ca": "a", "http_client_ca": "b"}, "b"),
        ({"client_ca": "a", "http_client_ca": "none"}, ""),
    ],
)
def test_http_asks_for_client_certificates_as_grpc_does_by_default(flags, ca):
    tls = {"tls_cert": "c", "tls_key": "k"}
    assert load_settings({**tls, **flags}, HOME, "").http_verifies_clients_by == ca


@pytest.mark.parametrize("off", ["off", "'off'"])
def test_http_can_be_switched_off(off):
    assert load_settings({}, HOME, own(http=off)).http is None
    assert load_settings({"http": "off"}, HOME, "").http is None


@pytest.mark.parametrize(
    ("environ", "store"),
    [
        ({"XDG_STATE_HOME": "/s", "HOME": "/h"}, "sqlite:////s/topospread/state.db"),
        ({"XDG_STATE_HOME": "s", "HOME": "/h"}, "sqlite:////h/.local/state/topospread/state.db"),
        ({"HOME": "/h"}, "sqlite:////h/.local/state/topospread/state.db"),
    ],
)
def test_the_default_store_is_in_the_users_state_directory(environ, store):
    assert default_store(environ) == store


def test_without_a_home_the_store_must_be_named():
    with pytest.raises(ConfigError, match="write sqlite"):
        load_settings({}, {}, "")
    assert load_settings({"store": "memory:"}, {}, "").store == "memory:"


SECRET = "redis://user:hunter2@cache:6379/0"


@pytest.mark.parametrize("shown", [repr, str, lambda settings: str(redacted(settings))])
def test_passwords_are_not_shown(shown):
    settings = load_settings({"store": SECRET}, HOME, "")
    assert settings.store == SECRET
    assert "hunter2" not in shown(settings)
    assert redacted(settings)["store"] == "redis://***@cache:6379/0"


def test_passwords_are_not_in_errors():
    said = problems({"store": 5, "decision_queue": "x"}, {"TOPOSPREAD_STORE": SECRET})
    assert "hunter2" not in "".join(said)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("memory:", "memory:"),
        ("sqlite:///var/lib/x.db", "sqlite:///var/lib/x.db"),
        ("sqlite:////data/a@b.db", "sqlite:////data/a@b.db"),
        ("rediss://:pw@host", "rediss://***@host"),
        ("redis+sentinel://u:p@a:1,b:2/main", "redis+sentinel://***@a:1,b:2/main"),
        ("redis+cluster://u:p@a:1,[::1]:2", "redis+cluster://***@a:1,[::1]:2"),
    ],
)
def test_shown_addresses_have_no_password(address, shown):
    assert without_password(address) == shown


def test_settings_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ServerSettings().decision_queue = 2  # type: ignore[misc]

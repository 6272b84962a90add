"""Options for the server: their variables, and what goes before what."""

from __future__ import annotations

import pytest

from topospread.cli.main import run
from topospread.cli.options import ClientOptions

VARIABLES = {
    "TOPOSPREAD_ADDRESS": ("address", "127.0.0.1:9"),
    "TOPOSPREAD_CLUSTER": ("cluster", "b"),
    "TOPOSPREAD_TIMEOUT": ("timeout", 3.0),
    "TOPOSPREAD_TLS": ("tls", True),
    "TOPOSPREAD_TLS_CA": ("tls_ca", __file__),
    "TOPOSPREAD_CLIENT_TLS_CERT": ("tls_cert", __file__),
    "TOPOSPREAD_CLIENT_TLS_KEY": ("tls_key", __file__),
    "TOPOSPREAD_TLS_SERVER_NAME": ("tls_server_name", "topospread.example"),
    "TOPOSPREAD_TOKEN_FILE": ("token_file", __file__),
    "TOPOSPREAD_CLIENT_INSECURE": ("insecure", True),
}


def read(*arguments):
    """The options that a command line leaves to its verb."""
    options = ClientOptions()
    assert run([*arguments, "version"], options=options) == 0
    return options


@pytest.mark.parametrize("variable", VARIABLES)
def test_each_option_has_a_variable_that_help_names(bare, monkeypatch, variable):
    option, value = VARIABLES[variable]
    assert getattr(read(), option) != value
    monkeypatch.setenv(variable, str(value))
    assert getattr(read(), option) == value
    assert f"env var: {variable}" in " ".join(bare("status", "--help").out.split())


def test_the_variables_of_a_server_are_not_a_clients(monkeypatch):
    for name, value in (("TLS_CERT", "x"), ("TLS_KEY", "x"), ("INSECURE", "1"), ("CONFIG", "x")):
        monkeypatch.setenv(f"TOPOSPREAD_{name}", value)
    assert read() == ClientOptions()


def test_an_option_goes_before_its_variable(monkeypatch):
    monkeypatch.setenv("TOPOSPREAD_TIMEOUT", "8")
    assert read("--timeout", "9").timeout == 9.0

"""Help, versions, completion scripts, words that are unknown, and variables of options."""

from __future__ import annotations

import json
import subprocess

import pytest

import bench.__main__ as bench
from topospread.cli.errors import BAD_INPUT, DONE
from topospread.cli.main import run
from topospread.cli.options import ClientOptions


@pytest.mark.parametrize("group", [(), ("config",), ("token",)], ids=str)
def test_group_alone_prints_its_help_as_the_answer(bare, group):
    said = bare(*group)
    assert (said.code, said.err) == (DONE, "")
    assert said.lines[0].startswith(" ".join(("Usage: topospread", *group)))
    assert said.out == bare(*group, "--help").out


def test_bench_alone_prints_its_help_as_the_answer(capsys):
    assert bench.main([]) == DONE
    out, err = capsys.readouterr()
    assert (out.splitlines()[0].startswith("Usage: python -m bench"), err) == (True, "")


def test_version_is_an_option_too(bare):
    assert bare("--version").out == bare("version").out


def test_completion_prints_scripts_of_shells(bare, tmp_path):
    script = tmp_path / "completion.bash"
    script.write_text(bare("completion", "bash").out)
    shown = subprocess.run(
        ["bash", "-c", f"source {script} && complete -p topospread"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "-F _topospread_completion topospread" in shown.stdout
    assert bare("completion", "zsh").lines[0] == "#compdef topospread"
    assert "complete --no-files --command topospread" in bare("completion", "fish").out
    assert bare("completion", "tcsh").code == BAD_INPUT
    assert "Choose from: bash, zsh, fish" in bare("completion").err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("xyzzy",), "No such command 'xyzzy'."),
        (("config", "chek"), "No such command 'chek'."),
        (("get", "--naemspace", "x"), "No such option"),
    ],
    ids=str,
)
def test_an_unknown_word_is_bad_usage(bare, arguments, text):
    said = bare(*arguments, "-o", "json")
    assert said.code == BAD_INPUT
    error = json.loads(said.err)["error"]
    assert (error["reason"], text in error["message"]) == ("BAD_USAGE", True)


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

"""Contexts and variables: which server is called, with what, and what goes before what."""

from __future__ import annotations

import json

import pytest
from click.shell_completion import BashComplete

from tests.servers import served
from tests.wrong_peers import Certificates
from topospread.app.stores import open_store
from topospread.cli.main import root

DONE, BAD_INPUT = 0, 2
HEAD = "apiVersion: topospread.io/v1\nkind: TopospreadClientConfiguration\n"


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The file with the contexts, which is not there yet."""
    path = tmp_path / "config" / "contexts.yaml"
    monkeypatch.setenv("TOPOSPREAD_CLIENT_CONFIG", str(path))
    return path


def shown(bare, *arguments):
    said = bare("context", "show", *arguments, "-o", "json")
    assert said.code == DONE, said
    document = json.loads(said.out)
    return {each["option"]: (each["value"], each["source"]) for each in document["options"]}


def test_contexts_are_set_used_listed_and_deleted(bare, file):
    assert bare("context", "set", "one", "--address", "127.0.0.1:1").code == DONE
    assert bare("context", "set", "two", "--address", "127.0.0.1:2", "--cluster", "b").code == DONE
    assert bare("context", "list", "-o", "name").lines == ["one", "two"]
    assert shown(bare)["address"] == ("127.0.0.1:1", "context one")
    assert bare("context", "use", "two").code == DONE
    assert shown(bare)["address"] == ("127.0.0.1:2", "context two")
    assert bare("context", "list").lines[2].split() == ["*", "two", "127.0.0.1:2", "b"]
    listed = json.loads(bare("context", "list", "-o", "json").out)
    assert listed["currentContext"] == "two"
    assert listed["contexts"][1] == {"name": "two", "address": "127.0.0.1:2", "cluster": "b"}
    assert bare("context", "set", "two", "--cluster", "c").code == DONE
    assert shown(bare)["cluster"] == ("c", "context two")
    assert shown(bare)["address"] == ("127.0.0.1:2", "context two")
    assert bare("context", "delete", "two").code == DONE
    assert bare("context", "list", "-o", "name").lines == ["one"]
    assert shown(bare)["address"] == ("127.0.0.1:7946", "default")
    assert file.stat().st_mode & 0o777 == 0o600


def test_option_goes_before_variable_before_context_before_default(bare, file, monkeypatch):
    bare("context", "set", "one", "--address", "127.0.0.1:1", "--cluster", "c", "--timeout", "7")
    assert shown(bare)["timeout"] == (7.0, "context one")
    monkeypatch.setenv("TOPOSPREAD_TIMEOUT", "8")
    assert shown(bare)["timeout"] == (8.0, "TOPOSPREAD_TIMEOUT")
    assert shown(bare, "--timeout", "9")["timeout"] == (9.0, "--timeout")
    assert shown(bare)["cluster"] == ("c", "context one")
    assert shown(bare)["insecure"] == (False, "default")


VARIABLES = {
    "TOPOSPREAD_ADDRESS": ("address", "127.0.0.1:9"),
    "TOPOSPREAD_CLUSTER": ("cluster", "b"),
    "TOPOSPREAD_TIMEOUT": ("timeout", 3.0),
    "TOPOSPREAD_TLS": ("tls", True),
    "TOPOSPREAD_TLS_CA": ("tlsCa", __file__),
    "TOPOSPREAD_CLIENT_TLS_CERT": ("tlsCert", __file__),
    "TOPOSPREAD_CLIENT_TLS_KEY": ("tlsKey", __file__),
    "TOPOSPREAD_TLS_SERVER_NAME": ("tlsServerName", "topospread.example"),
    "TOPOSPREAD_TOKEN_FILE": ("tokenFile", __file__),
    "TOPOSPREAD_CLIENT_INSECURE": ("insecure", True),
}


@pytest.mark.parametrize("variable", VARIABLES)
def test_each_option_has_a_variable_that_help_names(bare, monkeypatch, variable):
    option, value = VARIABLES[variable]
    monkeypatch.setenv(variable, str(value))
    assert shown(bare)[option] == (value, variable)
    assert f"env var: {variable}" in " ".join(bare("status", "--help").out.split())


def test_the_variables_of_a_server_are_not_a_clients(bare, monkeypatch):
    for name, value in (("TLS_CERT", "x"), ("TLS_KEY", "x"), ("INSECURE", "1"), ("CONFIG", "x")):
        monkeypatch.setenv(f"TOPOSPREAD_{name}", value)
    assert {source for _, source in shown(bare).values()} == {"default"}


def test_the_current_context_is_left_aside_for_another_address(bare, file, tmp_path):
    token = tmp_path / "token"
    token.write_text("secret")
    bare("context", "set", "one", "--address", "127.0.0.1:1", "--token-file", token)
    assert "tokenFile" not in shown(bare, "--address", "127.0.0.1:2")
    forwarded = shown(bare, "--address", "127.0.0.1:2", "--context", "one")
    assert forwarded["address"] == ("127.0.0.1:2", "--address")
    assert forwarded["tokenFile"] == (str(token), "context one")


def test_calls_go_where_the_context_says_with_its_files(bare, file, tmp_path, monkeypatch):
    certificates = Certificates(tmp_path)
    access = tmp_path / "access.yaml"
    token = bare("token", "new", "--file", access, "--name", "x", "--role", "read").out
    (tmp_path / "token").write_text(token)
    with served(**certificates.server("server"), access_file=str(access)) as running:
        file.parent.mkdir()
        # Files are found from the folder of the file.
        file.write_text(
            f"{HEAD}currentContext: prod\ncontexts:\n- name: prod\n"
            f"  address: {running.address}\n  tlsCa: ../ca.pem\n  tokenFile: ../token\n"
        )
        said = bare("status", "-o", "json")
        assert said.code == DONE, said
        answer = json.loads(said.out)
        assert (answer["context"], answer["address"]) == ("prod", running.address)
        assert f"address:       {running.address}" in bare("status").lines
        assert "context:       prod" in bare("status").lines
        assert bare("status", "--no-tls").code == BAD_INPUT
        # A token of one's own goes before that of the context.
        monkeypatch.setenv("TOPOSPREAD_TOKEN", "unknown")
        assert "--token-file" in bare("status").err


WRONG = {
    "no kind": ("contexts: []\n", "kind: write kind: TopospreadClientConfiguration"),
    "no version": ("kind: TopospreadClientConfiguration\n", "apiVersion: write topospread.io/v1"),
    "key": (f"{HEAD}context: []\n", "context: unknown key; did you mean contexts?"),
    "no list": (f"{HEAD}contexts: {{}}\ncurrentContext: x\n", "no context is called 'x'"),
    "a text": (f"{HEAD}contexts: x\n", "contexts: write a list"),
    "no name": (f"{HEAD}contexts: [{{address: 'h:1'}}]\n", "contexts[0].name: write the"),
    "no address": (f"{HEAD}contexts: [{{name: a}}]\n", "contexts[0].address: write HOST:PORT"),
    "twice": (
        f"{HEAD}contexts: [{{name: a, address: 'h:1'}}, {{name: a, address: 'h:1'}}]\n",
        "contexts[1].name: a second context a",
    ),
    "unknown key": (
        f"{HEAD}contexts: [{{name: a, address: 'h:1', tlsCA: x}}]\n",
        "contexts[0].tlsCA: unknown key; did you mean tlsCa?",
    ),
    "type": (
        f"{HEAD}contexts: [{{name: a, address: 'h:1', tls: 'yes'}}]\n",
        "contexts[0].tls: 'yes': write true or false",
    ),
    "time": (
        f"{HEAD}contexts: [{{name: a, address: 'h:1', timeout: 0}}]\n",
        "contexts[0].timeout: 0: write a number above 0",
    ),
    "no number": (
        f"{HEAD}contexts: [{{name: a, address: 'h:1', timeout: .nan}}]\n",
        "contexts[0].timeout: nan: write a number above 0",
    ),
    "token": (
        f"{HEAD}contexts: [{{name: a, address: 'h:1', token: secret}}]\n",
        "contexts[0].token: write the token into a file of its own, and name that with tokenFile",
    ),
    "file": (
        f"{HEAD}currentContext: a\ncontexts: [{{name: a, address: 'h:1', tlsCa: no.pem}}]\n",
        "no.pem: no such file",
    ),
    "not YAML": ("a: ]\n", "line 1: "),
    "two": (f"{HEAD}---\n{HEAD}", "more than one document"),
}


@pytest.mark.parametrize(("text", "complaint"), WRONG.values(), ids=WRONG)
def test_mistakes_in_the_file_are_reported_with_their_place(bare, file, text, complaint):
    file.parent.mkdir()
    file.write_text(text)
    said = bare("status")
    assert said.code == BAD_INPUT
    assert f"{file}: " in said.err
    assert complaint in said.err
    assert "secret" not in said.err


@pytest.mark.parametrize(
    "verb", [("context", "use"), ("context", "delete"), ("status", "--context")]
)
def test_unknown_contexts_are_reported(bare, file, verb):
    bare("context", "set", "production", "--address", "127.0.0.1:1")
    said = bare(*verb, "producton")
    assert said.code == BAD_INPUT
    assert "no context producton; did you mean production?" in said.err


def test_commands_that_ask_no_server_need_no_context(bare, file, tmp_path):
    file.parent.mkdir()
    file.write_text("no list of contexts")
    store = f"sqlite://{tmp_path}/state.db"
    open_store(store, {}).close()
    assert bare("version").code == DONE
    for verb in (("backup", tmp_path / "b.gz"), ("restore", tmp_path / "b.gz"), ("check",)):
        said = bare("store", *verb, "--store", store)
        assert said.code == DONE, said
    assert bare("store", "accept", "--store-identity", "x").code == BAD_INPUT


def test_a_context_needs_an_address(bare, file):
    said = bare("context", "set", "one", "--cluster", "b")
    assert said.code == BAD_INPUT
    assert "give --address HOST:PORT" in said.err
    assert not file.exists()


def test_the_file_is_found_in_the_configuration_folder(bare, tmp_path, monkeypatch):
    monkeypatch.delenv("TOPOSPREAD_CLIENT_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert bare("context", "set", "one", "--address", "127.0.0.1:1").code == DONE
    assert (tmp_path / "topospread" / "config.yaml").exists()


def test_names_of_contexts_are_completed(bare, file):
    for name in ("staging", "prod"):
        bare("context", "set", name, "--address", "127.0.0.1:1")
    completing = BashComplete(root, {}, "topospread", "_TOPOSPREAD_COMPLETE")
    for words in (["status", "--context"], ["context", "use"]):
        assert [each.value for each in completing.get_completions(words, "st")] == ["staging"]

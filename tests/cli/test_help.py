"""Help, versions, completion scripts, and hints at words that are nearly right."""

from __future__ import annotations

import json
import subprocess

import pytest

import bench.__main__ as bench
from topospread.cli.errors import BAD_INPUT, DONE


@pytest.mark.parametrize("group", [(), ("config",), ("store",), ("token",), ("lease",)], ids=str)
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


@pytest.mark.parametrize("verb", [(), ("evaluate",), ("config", "check")], ids=str)
def test_help_is_a_verb_too(bare, verb):
    assert bare("help", *verb).out == bare(*verb, "--help").out


def test_completion_prints_scripts_of_shells(bare, tmp_path):
    script = tmp_path / "completion.bash"
    script.write_text(bare("completion", "bash").out)
    shown = subprocess.run(
        ["bash", "-c", f"source {script} && complete -p topospread"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "-o bashdefault -o default" in shown.stdout
    assert bare("completion", "zsh").lines[0] == "#compdef topospread"
    assert "complete --no-files --command topospread" in bare("completion", "fish").out
    assert bare("completion", "tcsh").code == BAD_INPUT
    assert "Choose from: bash, zsh, fish" in bare("completion").err


HINTS = {
    ("evaluat",): "Did you mean 'evaluate'?",
    ("config", "chek"): "Did you mean 'check'?",
    ("help", "explian"): "Did you mean 'explain'?",
    ("rank",): "Did you mean 'rank-deletions'?",
    ("get", "--naemspace", "x"): "Did you mean '--namespace'?",
}


@pytest.mark.parametrize("arguments", HINTS, ids=" ".join)
def test_unknown_word_brings_what_is_like_it(bare, arguments):
    said = bare(*arguments)
    assert said.code == BAD_INPUT
    assert HINTS[arguments] in said.err


@pytest.mark.parametrize(
    "arguments", [("delete", "--all"), ("get", "pods", "--no-colour")], ids=str
)
def test_unknown_option_brings_nothing_that_is_not_like_it(bare, arguments):
    said = bare(*arguments)
    assert said.code == BAD_INPUT
    assert "Did you mean" not in said.err


def test_unknown_command_without_a_like_one_lists_what_there_is(bare):
    said = bare("-o", "json", "xyzzy")
    message = json.loads(said.err)["error"]["message"]
    assert message.startswith("No such command 'xyzzy'. There are: serve, sync, apply,")

"""Help, versions, completion scripts, and words that are unknown."""

from __future__ import annotations

import json
import subprocess

import pytest

import bench.__main__ as bench
from topospread.cli.errors import BAD_INPUT, DONE


@pytest.mark.parametrize("group", [(), ("config",), ("token",), ("lease",)], ids=str)
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

"""Every mistake: one clear line on stderr that says what to do, and the right exit code."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import click
import pytest
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from tests.cli.manifests import CLUSTER
from topospread.cli.errors import Terminated
from topospread.cli.main import VERBS, root, run

DONE, NO_NODE, BAD_INPUT, OUT_OF_REACH = 0, 1, 2, 3


def test_unknown_host_is_reported(bare):
    said = bare("status", "--address", "no-such-host.invalid:1", "--insecure", "--timeout", "20")
    assert said.code == OUT_OF_REACH
    assert said.err.startswith("topospread: no server answers at no-such-host.invalid:1 (")
    assert said.err.count("\n") == 1


def test_a_process_ends_with_the_code_and_without_a_traceback(tmp_path):
    path = tmp_path / "pod.yaml"
    path.write_text("a: ]")
    command = [sys.executable, "-m", "topospread", "apply", "-f", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == BAD_INPUT
    assert ended.stderr.startswith(f"topospread: {path}:1: not YAML: ")
    assert "Traceback" not in ended.stderr


def test_closed_pipe_is_no_error(address, cluster):
    environment = {**os.environ, "TOPOSPREAD_ADDRESS": address, "TOPOSPREAD_CLUSTER": cluster}
    command = [sys.executable, "-m", "topospread", "apply", "-f", "-", "-o", "name"]
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(CLUSTER.encode())
        process.stdin.close()
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode == DONE


def test_help_is_there_for_every_verb(bare):
    listed = bare("--help")
    assert listed.code == DONE
    for verb in VERBS:
        assert f"  {verb} " in listed.out
        assert bare(verb, "--help").code == DONE


def test_a_shell_completes_verbs_and_options():
    completing = BashComplete(root, {}, "topospread", "_TOPOSPREAD_COMPLETE")
    assert [each.value for each in completing.get_completions([], "re")] == [
        "report",
        "reserve",
        "release",
    ]
    offered = completing.get_completions(["release", "web-0"], "--ignore")
    assert [each.value for each in offered] == ["--ignore-not-found"]


@pytest.mark.parametrize("shell", [BashComplete, ZshComplete, FishComplete])
@pytest.mark.parametrize(
    "before",
    [
        ("apply", "-f"),
        ("simulate", "--add-nodes"),
        ("evaluate", "--args"),
        ("serve", "--config"),
        ("config", "check"),
        ("report", "--kubeconfig"),
        ("status", "--tls-ca"),
    ],
    ids=" ".join,
)
def test_file_completion_is_left_to_the_shell(shell, before):
    completing = shell(root, {}, "topospread", "_TOPOSPREAD_COMPLETE")
    offered = completing.get_completions(list(before), "ex")
    assert [(each.type, each.value) for each in offered] == [("file", "ex")]


def test_kinds_are_completed():
    completing = BashComplete(root, {}, "topospread", "_TOPOSPREAD_COMPLETE")
    offered = [each.value for each in completing.get_completions(["get"], "re")]
    assert offered == [
        *("replicationcontrollers", "replicasets", "resourceclaims", "resourceslices"),
        "reservations",
    ]
    offered = [each.value for each in completing.get_completions(["delete"], "n")]
    assert offered == ["nodes", "namespaces"]
    offered = [each.value for each in completing.get_completions(["get"], "co")]
    assert offered == ["constraints"]


@pytest.mark.parametrize("shell", [BashComplete, ZshComplete, FishComplete])
def test_states_of_constraints_are_completed(shell):
    completing = shell(root, {}, "topospread", "_TOPOSPREAD_COMPLETE")

    def offered(option, typed):
        found = completing.get_completions(["report", option], typed)
        return [each.value for each in found]

    assert offered("--state", "") == ["blocked", "violated", "ineffective", "satisfied"]
    assert offered("--state", "blocked,v") == ["blocked,violated"]
    assert offered("--fail-on", "v") == ["violated"]
    assert offered("--sort-by", "s") == ["severity", "skew"]


@pytest.mark.parametrize(
    ("interrupt", "code", "word"),
    [(KeyboardInterrupt, 130, "interrupted"), (Terminated, 143, "terminated")],
)
def test_interrupt_amid_a_wait_is_an_interrupt(capsys, interrupt, code, word):
    @click.command
    def waiting():
        # As in threading.Condition.wait, where an interrupt may come after the release.
        lock = threading.Lock()
        with lock:
            lock.release()
            raise interrupt

    assert run([], waiting) == code
    assert capsys.readouterr().err == f"topospread: {word}\n"


def test_another_runtime_error_is_none():
    @click.command
    def failing():
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        run([], failing)


def test_a_name_that_is_no_utf_8_is_bad_input(topospread):
    said = topospread("plan-rebalance", "-n", "\udcff")
    assert (said.code, said.err) == (
        BAD_INPUT,
        "topospread: '\\udcff' is not UTF-8, as names and texts must be\n",
    )

"""Every mistake: one clear line on stderr that says what to do, and the right exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import click
import pytest
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from tests.cli.conftest import check_document
from tests.cli.manifests import CLUSTER, POD
from topospread.cli.errors import Terminated
from topospread.cli.main import VERBS, root, run

DONE, NO_NODE, BAD_INPUT, OUT_OF_REACH = 0, 1, 2, 3

USAGE = {
    "unknown verb": (("aply",), "No such command 'aply'"),
    "unknown option": (("status", "--fast"), "No such option"),
    "no file": (("apply",), "Missing option '-f'"),
    "no pod": (("evaluate",), "say which pods: -f PATH, or NAMESPACE/NAME"),
    "nothing to delete": (("delete",), "either KIND NAME..., KIND/NAME... or -f PATH"),
    "two ways to delete": (
        ("delete", "pod", "x", "-f", "y"),
        "either KIND NAME..., KIND/NAME... or -f PATH",
    ),
    "kind without name": (("delete", "pod"), "either KIND NAME..., KIND/NAME... or -f PATH"),
    "names of several kinds": (("get", "workloads", "x"), "name the kind of what is wanted"),
    "names and labels": (("get", "pods", "x", "-l", "a=b"), "give names or --selector"),
    "form": (("status", "-o", "xml"), "'xml' is not one of"),
    "top": (("evaluate", "-f", "-", "--top", "0"), "0 is not in the range"),
    "rules": (("evaluate", "-f", "-", "--args", "x", "--profile", "y"), "give one of them"),
}


@pytest.mark.parametrize(("arguments", "complaint"), USAGE.values(), ids=USAGE)
def test_usage_errors_advise_help(topospread, arguments, complaint):
    said = topospread(*arguments, stdin=POD)
    assert said.code == BAD_INPUT
    assert complaint in said.err
    assert said.err.startswith("topospread: ")
    assert said.err.count("\n") == 1
    assert "--help`)" in said.err


UNREAD = {
    "before": ("-o", "json", "get", "pods", "--bogus"),
    "behind": ("get", "pods", "--bogus", "-o", "json"),
    "in a word": ("get", "pods", "--bogus", "-ojson"),
    "long": ("get", "pods", "--bogus", "--output", "json"),
    "long in a word": ("get", "pods", "--bogus", "--output=json"),
    "of a value": ("get", "pods", "--timeout", "soon", "-o", "json"),
    "of a verb": ("gett", "pods", "-o", "json"),
    "last": ("-o", "table", "get", "pods", "--bogus", "-o", "json"),
}


@pytest.mark.parametrize("arguments", UNREAD.values(), ids=UNREAD)
def test_error_is_json_wherever_the_output_option_stands(topospread, arguments):
    said = topospread(*arguments)
    assert (said.code, said.out) == (BAD_INPUT, "")
    document = json.loads(said.err)
    check_document(document)
    assert (document["kind"], document["error"]["reason"]) == ("Error", "BAD_USAGE")


@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "pods", "--bogus", "-o", "json", "-o", "table"),
        ("get", "pods", "--bogus", "--", "-o", "json"),
        ("get", "pods", "--bogus", "-o"),
    ],
)
def test_error_is_text_otherwise(topospread, arguments):
    assert topospread(*arguments).err.startswith("topospread: No such option '--bogus'")


def test_error_in_a_query_names_its_option(topospread):
    for option in ("--selector", "--protect-selector"):
        said = topospread("plan-rebalance", option, "a=b=c", "-o", "json")
        error = json.loads(said.err)["error"]
        assert (said.code, error["reason"]) == (BAD_INPUT, "INVALID_FIELDS")
        assert [each["field"] for each in error["violations"]] == [option]


INPUT = {
    "missing file": (("apply", "-f", "none.yaml"), "none.yaml: no such file: check the path"),
    "bad yaml": (("apply", "-f", "-"), "standard input:2: not YAML: "),
    "unknown kind to get": (("get", "ingresses"), "unknown kind 'ingresses': there are nodes"),
    "unknown kind to delete": (("delete", "ingress", "x"), "unknown kind 'ingress'"),
    "bad query": (("get", "pods", "-l", "a=b=c"), "'a=b=c' is no requirement: write key=value"),
    "bad gate": (("evaluate", "-f", "-", "--gate", "X"), "--gate X: write NAME=true or NAME=false"),
    "no freshness": (("evaluate", "-f", "-", "--consistency", ""), "write full, minimize-latency"),
    "no such args": (("evaluate", "-f", "-", "--args", "no.yaml"), "no.yaml: no such file"),
    "missing CA": (("status", "--tls-ca", "no.pem"), "'no.pem' does not exist"),
    "half a pair": (("status", "--tls-cert", __file__), "a cert is given without its key"),
    "not PEM": (("status", "--tls-ca", __file__), "is not a PEM file"),
    "plain text afar": (("status", "--address", "10.9.8.7:1"), "no TLS is set up"),
    "unknown cluster": (("get", "nodes", "--cluster", "missing"), "missing"),
    "missing configuration": (("config", "check", "no.yaml"), "no.yaml: cannot be read"),
}
STDIN = {"bad yaml": "kind: Pod\n metadata: x\n"}


@pytest.mark.parametrize("name", INPUT)
def test_bad_input_is_reported(topospread, name):
    arguments, complaint = INPUT[name]
    said = topospread(*arguments, stdin=STDIN.get(name, POD))
    assert said.code == BAD_INPUT, said
    assert complaint in said.err
    assert said.err.startswith("topospread: ")
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_wrong_types_are_reported_at_once(topospread):
    wrong = "kind: Pod\nmetadata: {name: p}\nspec: {nodeName: 5}\n---\nkind: Node\nmetadata: 7\n"
    said = topospread("apply", "-f", "-", stdin=wrong)
    assert said.code == BAD_INPUT
    first, second = said.err.splitlines()
    assert first.startswith("topospread: standard input:1: Pod p: spec.nodeName: ")
    assert second.startswith("topospread: standard input:5: Node without a name: metadata: ")


def test_long_lists_of_errors_are_cut(topospread):
    wrong = "---\n".join(f"kind: Pod\nmetadata: {{name: p{n}}}\nspec: 1\n" for n in range(50))
    said = topospread("apply", "-f", "-", stdin=wrong)
    assert len(said.err.splitlines()) == 21
    assert said.err.splitlines()[-1] == "topospread: … and 30 more"


def test_input_without_pods_is_reported(topospread):
    said = topospread("evaluate", "-f", "-", stdin="kind: Service\nmetadata: {name: s}\n")
    assert said.code == BAD_INPUT
    assert "no pod to evaluate in the input: give one of Pod, Deployment" in said.err


NO_SERVER = "or name another with --address"
NOR_NEEDED = "name another with --address, or read the cluster itself with --from kubeconfig"


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("status",), NO_SERVER),
        (("apply", "-f", "-"), NO_SERVER),
        (("delete", "pod", "x"), NO_SERVER),
        (("evaluate", "-f", "-"), NOR_NEEDED),
        (("get", "pods"), NOR_NEEDED),
        (("report",), NOR_NEEDED),
    ],
    ids=str,
)
def test_unreachable_server_is_reported(bare, arguments, advice):
    said = bare(*arguments, "--address", "127.0.0.1:1", "--timeout", "30", stdin=POD)
    assert said.code == OUT_OF_REACH
    assert said.err == (
        "topospread: no server answers at 127.0.0.1:1 (Connection refused): start one with "
        f"`topospread serve`, {advice}\n"
    )


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
        ("sync", "--kubeconfig"),
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
    assert offered == ["replicationcontrollers", "replicasets", "reservations"]
    assert [each.value for each in completing.get_completions(["delete"], "n")] == ["nodes"]
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

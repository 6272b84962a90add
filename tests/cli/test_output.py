"""What the command line writes, to any stdout: nothing that drives a terminal, and no traceback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cli.processes import TOPOSPREAD, environment, run
from tests.servers import Peer, node, served
from tests.waiting import until
from topospread_proto.kubernetes.v1 import kubernetes_pb2
from topospread_proto.v1 import cluster_state_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

HIDDEN = "".join(
    chr(number)
    for first, last in (
        (0x7F, 0x9F),
        (0x61C, 0x61C),
        (0x200E, 0x200F),
        (0x2028, 0x202E),
        (0x2066, 0x2069),
    )
    for number in range(first, last + 1)
)
NAME = "a" + HIDDEN + "\x1b[31mé日😀"
FORMS = ["json", "yaml", "table"]
ENCODINGS = ["utf-8", "latin-1", "cp1252", "koi8-r", "ascii"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server that knows a pod with an odd label, of which all is printed."""
    with served() as server, Peer(server.address) as peer:
        odd = kubernetes_pb2.ObjectMeta(
            name="odd", namespace="default", uid="u", labels={"app": NAME}
        )
        pod = kubernetes_pb2.Pod(metadata=odd)
        peer.apply(node("n", "a"), pb.ClusterObject(pod=pod))
        yield server.address


def got(server: str, form: str, encoding: str) -> bytes:
    ended = subprocess.run(
        [*TOPOSPREAD, "get", "pods", "--show-labels", "--address", server, "-o", form],
        capture_output=True,
        check=False,
        env=environment(PYTHONIOENCODING=encoding, PYTHONUTF8="0"),
    )
    assert (ended.returncode, ended.stderr) == (0, b"")
    return ended.stdout


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("form", FORMS)
def test_unprintable_characters_are_escaped_and_read_as_the_same(server, form, encoding):
    # click writes UTF-8 where a system says ASCII, as systems do that say nothing.
    text = got(server, form, encoding).decode("utf-8" if encoding == "ascii" else encoding)
    assert not set(text) & set(HIDDEN + "\x1b")
    if form == "table":
        assert r"\x9b" in text
        assert r"\u202e" in text
        return
    read: Any = json.loads(text) if form == "json" else yaml.safe_load(text)
    (found,) = read["items"] if isinstance(read, dict) else read
    assert found["metadata"]["labels"] == {"app": NAME}


def complaint(text: str, form: str) -> str:
    """What a command says on stderr."""
    if form != "json":
        return f"topospread: {text}\n"
    error = {"reason": "BAD_INPUT", "message": text}
    document = {"apiVersion": "topospread.io/v1", "kind": "Error", "error": error}
    return json.dumps(document) + "\n"


@pytest.mark.parametrize("form", FORMS)
def test_full_disk_is_reported(server, form):
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [*TOPOSPREAD, "get", "pods", "--address", server, "-o", form],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environment(),
        )
    assert ended.returncode == 2
    assert ended.stderr == complaint("stdout cannot be written: No space left on device", form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("closed", ["2>&-", "| true"])
def test_closed_stream_is_no_error_of_the_command(server, form, closed):
    assert in_shell(f"get pods --address {server} -o {form} {closed}") == (0, "")


@pytest.mark.parametrize("form", FORMS)
def test_unwritable_answer_is_no_success(server, form):
    command = f"get pods --address {server} -o {form} >&-"
    said = complaint("stdout cannot be written: Bad file descriptor", form)
    assert in_shell(command) == (2, said)
    assert in_shell(f"{command} 2>&-") == (2, "")


def test_closed_stdout_matters_only_to_verbs_that_print(server, tmp_path):
    file = tmp_path / "none.yaml"
    file.write_text("kind: Secret\nmetadata: {name: s}\n")
    code, said = in_shell(f"apply -f {file} --address {server} >&-")
    assert code == 0
    assert "not needed: 1 Secret" in said


def test_kinds_that_may_decide_are_not_called_others(server, tmp_path):
    file = tmp_path / "none.yaml"
    kinds = ("Secret", "PriorityClass", "DeviceTaintRule")
    file.write_text("---\n".join([f"kind: {kind}\nmetadata: {{name: s}}\n" for kind in kinds]))
    code, said = in_shell(f"apply -f {file} --address {server} >&-")
    assert code == 0
    assert "not needed: 1 Secret (answers look at pods, not at what makes them)" in said
    assert "1 DeviceTaintRule, 1 PriorityClass (kinds that are not read: answers name" in said


def test_server_needs_no_stdout():
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [*TOPOSPREAD, "serve", "--store", "memory:", "--listen", address, "--http", "off"]
    with subprocess.Popen(
        ["/bin/bash", "-c", 'exec "$@" >&-', "sh", *command],
        stderr=subprocess.DEVNULL,
        env=environment(),
    ) as serving:
        try:
            until(lambda: run("status", "--address", address).returncode == 0, "it serves")
        finally:
            serving.terminate()
    assert serving.returncode == 0


def in_shell(command: str) -> tuple[int, str]:
    """The code of a command and what it says on stderr."""
    ended = subprocess.run(
        ["/bin/bash", "-c", f'set -o pipefail; "$@" {command}', "sh", *TOPOSPREAD],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    return ended.returncode, ended.stderr


@contextmanager
def unprivileged() -> Iterator[None]:
    """As somebody whom permissions bind."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("below", [False, True])
def test_unreadable_directory_is_reported(tmp_path_factory, capsys, below):
    from topospread.cli.main import run as run_here

    directory = tmp_path_factory.mktemp("manifests")
    for above in (directory, *directory.parents):
        if above == Path(tempfile.gettempdir()) or above == above.parent:
            break  # what the tests did not make
        above.chmod(0o755)
    closed = directory / "closed" if below else directory
    closed.mkdir(exist_ok=True)
    (directory / "a.yaml").write_text("kind: Node\nmetadata: {name: a}\n")
    closed.chmod(0)
    with unprivileged():
        code = run_here(["apply", "-R", "-f", str(directory), "--address", "127.0.0.1:1"])
    closed.chmod(0o755)
    assert code == 2
    assert capsys.readouterr().err == f"topospread: {closed}: cannot be read: Permission denied\n"


def test_unreadable_file_is_reported(tmp_path):
    ended = run("apply", "-f", "/proc/self/mem", "--address", "127.0.0.1:1")
    assert ended.returncode == 2
    assert ended.stderr.startswith("topospread: /proc/self/mem: cannot be read: ")

"""`--from kubeconfig`: verbs that read ask an API server for lists, and it needs no more rights."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.apiserver.objects import RESOURCES, Objects
from tests.apiserver.server import ApiServer, Fault
from tests.cli.manifests import CLUSTER, NOWHERE
from tests.kubernetes.syncing import kubeconfig
from tests.waiting import PATIENCE, until
from topospread.cli import kubeconfig_source

STORED = {resource.kind for resource in RESOURCES}
PODS = ["pod/shop/web-0", "pod/shop/web-1", "pod/shop/web-3"]


@pytest.fixture
def api():
    objects = Objects()
    for document in yaml.safe_load_all("---\n".join([CLUSTER, NOWHERE])):
        given = document["items"] if document["kind"] == "List" else [document]
        objects.put(*(each for each in given if each["kind"] in STORED))
    with ApiServer(objects, page=2) as serving:
        yield serving


def forbidden(plural: str, message: str) -> Fault:
    return Fault(lambda asked: asked.path.endswith(f"/{plural}"), status=403, message=message)


def test_a_verb_answers_from_the_api_server_as_from_a_file(bare, api, tmp_path):
    (tmp_path / "dump.yaml").write_text("---\n".join([CLUSTER, NOWHERE]))
    config = kubeconfig(tmp_path, api.url)
    asked = ("explain", "--pending", "-o", "json")
    read = bare(*asked, "--from", tmp_path / "dump.yaml")
    listed = bare(*asked, "--from", "kubeconfig", "--kubeconfig", config)
    assert listed.code == read.code
    assert (
        json.loads(listed.out)["items"][0]["message"]
        == (json.loads(read.out)["items"][0]["message"])
    )


def test_nothing_but_lists_and_the_version_is_asked_of_the_api_server(bare, api, tmp_path):
    config = kubeconfig(tmp_path, api.url)
    said = bare("get", "pods", "-o", "name", "--from", "kubeconfig", "--kubeconfig", config)
    assert (said.code, said.lines, said.err) == (0, PODS, "")
    assert {asked.method for asked in api.asked} == {"GET"}
    assert not any(asked.watch for asked in api.asked)
    paths = {each.path for each in RESOURCES}
    assert {asked.path for asked in api.asked} == paths | {"/version"}


def test_the_version_is_that_of_the_api_server(bare, api, tmp_path):
    config = kubeconfig(tmp_path, api.url)
    asked = ("explain", "shop/web-3", "-o", "json", "--from", "kubeconfig", "--kubeconfig", config)

    def version(*given: str) -> tuple[str, str]:
        said = bare(*asked, *given)
        return json.loads(said.out)["items"][0]["kubernetesVersion"], said.err

    assert version() == ("1.38", ""), "the newest known, where it reports none"
    api.version = "v1.37.2-eks-1"
    assert version() == ("1.37", "")
    assert version("--kubernetes-version", "1.36") == ("1.36", "")
    api.version = "v1.44.0"
    judged, warned = version()
    assert judged == "1.38"
    assert "Kubernetes 1.44 is not known here" in warned


def test_the_kubeconfig_is_found_as_kubectl_finds_it(bare, api, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, api.url))
    asked = ("get", "pods", "-o", "name", "--from")
    assert bare(*asked, "kubeconfig").lines == PODS
    assert bare(*asked, "kubeconfig:test").lines == PODS
    other = bare(*asked, "kubeconfig:none")
    assert (other.code, other.out) == (2, "")
    said = f"topospread: no context none in {tmp_path / 'kubeconfig'}: there are test\n"
    assert other.err == said


def test_rights_that_lack_are_named_with_the_rule_that_gives_them(bare, api, tmp_path):
    text = 'nodes is forbidden: User "jane" cannot list resource "nodes"'
    api.faults += [
        forbidden("nodes", text),
        forbidden("statefulsets", "statefulsets is forbidden"),
        forbidden("pods", "pods is forbidden"),
    ]
    config = kubeconfig(tmp_path, api.url)
    said = bare("get", "pods", "--from", "kubeconfig", "--kubeconfig", config)
    assert (said.code, said.out) == (2, "")
    assert text in said.err
    assert said.err.splitlines()[-3:] == [
        "topospread: let a ClusterRole that is bound to you have these rules:",
        'topospread: - {apiGroups: [""], resources: [nodes, pods], verbs: [list]}',
        'topospread: - {apiGroups: ["apps"], resources: [statefulsets], verbs: [list]}',
    ]


def empty_lists(dumped: str) -> set[str]:
    """The kinds that a dump says there are no objects of."""
    items = json.loads(dumped)["items"]
    return {each["kind"].removesuffix("List") for each in items if each["kind"].endswith("List")}


def test_kinds_that_answers_may_lack_are_done_without(bare, api, tmp_path):
    """Whose user may not list them loses nothing else, and they are not taken for none."""
    api.objects.put({"kind": "StorageClass", "metadata": {"name": "fast"}})
    config = ("--from", "kubeconfig", "--kubeconfig", kubeconfig(tmp_path, api.url))
    api.forbidden |= {"persistentvolumes", "namespaces"}
    said = bare("get", "pods", "-o", "name", *config)
    assert (said.code, said.lines, said.err) == (0, PODS, "")
    known = {
        *("PersistentVolumeClaim", "CSINode", "CSIDriver", "CSIStorageCapacity"),
        *("VolumeAttachment", "DeviceClass", "ResourceClaim", "ResourceSlice", "Job"),
    }
    assert empty_lists(bare("dump", *config).out) == known
    api.forbidden.clear()
    assert empty_lists(bare("dump", *config).out) == {*known, "PersistentVolume", "Namespace"}


def test_an_api_server_that_does_not_know_the_caller_is_bad_input(bare, api, tmp_path):
    api.token = "right"
    config = kubeconfig(tmp_path, api.url, token="wrong")
    said = bare("get", "pods", "--from", "kubeconfig", "--kubeconfig", config)
    assert (said.code, "check the kubeconfig" in said.err) == (2, True)


def test_an_api_server_that_is_down_is_out_of_reach(bare, tmp_path):
    config = kubeconfig(tmp_path, "http://127.0.0.1:1")
    said = bare("get", "pods", "--from", "kubeconfig", "--kubeconfig", config)
    assert (said.code, said.out) == (3, "")
    assert said.err == (
        "topospread: http://127.0.0.1:1/api/v1/nodes: the API server is out of reach: Failed to "
        "establish a new connection: Connection refused: look at the kubeconfig's server, and "
        "whether this machine's network (VPN, proxy) leads there\n"
    )


@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_refusal_names_the_address_and_the_status(bare, api, tmp_path, status):
    api.faults.append(Fault(lambda asked: True, status=status, message="no such thing"))
    config = kubeconfig(tmp_path, api.url)
    said = bare("get", "pods", "--from", "kubeconfig", "--kubeconfig", config)
    assert (said.code, said.out) == (2 if status == 401 else 3, "")
    text = f"topospread: {api.url}/api/v1/nodes: the API server answers {status} no such thing"
    assert said.err.startswith(text)


def test_a_cluster_without_objects_is_refused(bare, tmp_path):
    with ApiServer(Objects()) as serving:
        config = kubeconfig(tmp_path, serving.url)
        said = bare("get", "nodes", "--from", "kubeconfig", "--kubeconfig", config)
        assert (said.code, said.out) == (2, "")
        assert said.err == (
            f"topospread: {serving.url}: there are no nodes, pods or workloads in this cluster\n"
        )


FAILING = {
    "is not installed": (
        ["no-such-program"],
        "its program no-such-program could not be run (No such file or directory): install it",
    ),
    "fails": (
        ["sh", "-c", "echo token has expired >&2; exit 3"],
        "its program gave no credentials: process returned 3. token has expired",
    ),
    "prints no credentials": (
        ["echo", "{}"],
        "its program gave no credentials: malformed response. missing key 'apiVersion'",
    ),
    "prints no token": (
        [
            "echo",
            '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "E", "status": {"a": 1}}',
        ],
        "its program gave no credentials: missing token or clientCertificateData",
    ),
}


@pytest.mark.parametrize("case", FAILING)
def test_a_program_for_credentials_that(bare, api, tmp_path, case):
    """Ends the verb with one sentence: it does not go on as a user whom nobody knows."""
    (command, *args), said = FAILING[case]
    program = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
        "command": command,
        "args": args,
    }
    config = kubeconfig(tmp_path, api.url, user={"exec": program})
    handlers = list(logging.getLogger().handlers)
    refused = bare("get", "pods", "--from", "kubeconfig", "--kubeconfig", config)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(f"topospread: kubeconfig {config} cannot be used: {said}")
    assert len(refused.err.splitlines()) == 1
    assert api.asked == []
    assert logging.getLogger().handlers == handlers


def executable(*command: str, **given: str) -> dict[str, Any]:
    """A user whose credentials a program makes."""
    version = "client.authentication.k8s.io/v1"
    made = {"apiVersion": version, "interactiveMode": "Never", **given}
    return {"exec": {**made, "command": command[0], "args": list(command[1:])}}


HANGS = "echo $$ >>{0}; sleep 600 & echo $! >>{0}; wait"


def ended(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or after
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def pids(path: Path) -> list[int]:
    lines = path.read_text().split() if path.exists() else []
    return [int(each) for each in lines] if len(lines) == 2 else []


def test_a_program_that_hangs_is_ended_at_the_timeout_with_its_children(bare, tmp_path):
    user = executable("sh", "-c", HANGS.format(tmp_path / "pids"))
    config = kubeconfig(tmp_path, "http://127.0.0.1:1", user=user)
    asked = ("get", "pods", "--from", "kubeconfig", "--kubeconfig", config)
    said = bare(*asked, "--timeout", "2")
    assert (said.code, said.out) == (3, "")
    assert said.err.startswith("topospread: the cluster was not read within 2 s: ")
    for pid in pids(tmp_path / "pids"):
        until(partial(ended, pid), "it ended")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_program_ends_with_the_command(tmp_path, number, code):
    user = executable("sh", "-c", HANGS.format(tmp_path / "pids"))
    config = kubeconfig(tmp_path, "http://127.0.0.1:1", user=user)
    verb = ["get", "pods", "--from", "kubeconfig", "--kubeconfig", config]
    with subprocess.Popen([sys.executable, "-m", "topospread", *verb], stderr=-1) as running:
        started = until(lambda: pids(tmp_path / "pids"), "the program runs")
        running.send_signal(number)
        assert running.wait(PATIENCE) == code
    for pid in started:
        until(partial(ended, pid), "it ended")


def test_a_program_that_prints_without_end_is_ended(bare, tmp_path):
    config = kubeconfig(tmp_path, "http://127.0.0.1:1", user=executable("yes"))
    said = bare("get", "pods", "--from", "kubeconfig", "--kubeconfig", config)
    assert (said.code, said.out) == (2, "")
    assert said.err.endswith("its program gave no credentials: it printed more than 1 MiB\n")


def test_children_that_a_program_leaves_are_not_waited_for(bare, api, tmp_path):
    version = "client.authentication.k8s.io/v1"
    printed = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "t"}}
    command = f"sleep 600 & echo $! $$ >{tmp_path}/pids; echo '{json.dumps(printed)}'"
    config = kubeconfig(tmp_path, api.url, user=executable("sh", "-c", command))
    said = bare("get", "pods", "-o", "name", "--from", "kubeconfig", "--kubeconfig", config)
    os.kill(pids(tmp_path / "pids")[0], signal.SIGKILL)
    assert (said.code, said.lines) == (0, PODS)


def test_an_api_server_that_says_nothing_is_left_at_the_timeout(bare, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = kubeconfig(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
        asked = ("get", "pods", "--from", "kubeconfig", "--kubeconfig", config)
        said = bare(*asked, "--timeout", "0.5")
    assert (said.code, said.out) == (3, "")
    assert said.err.startswith("topospread: the cluster was not read within 0.5 s: ")


def test_lists_have_a_limit_in_bytes(bare, api, tmp_path, monkeypatch):
    monkeypatch.setattr(kubeconfig_source, "MOST_BYTES", 1 << 10)
    config = kubeconfig(tmp_path, api.url)
    said = bare("get", "pods", "--from", "kubeconfig", "--kubeconfig", config)
    assert (said.code, said.out) == (2, "")
    assert "the lists of this cluster have more than 0 MiB of JSON" in said.err


def test_a_token_that_no_header_can_have_is_bad_input(bare, api, tmp_path):
    config = kubeconfig(tmp_path, api.url, token="one\r\ntwo: three")
    said = bare("get", "pods", "--from", "kubeconfig", "--kubeconfig", config)
    assert (said.code, said.out) == (2, "")
    assert said.err == (
        f"topospread: kubeconfig {config} cannot be used: the user's token has a line break or "
        "another character that no header may have\n"
    )


def test_a_token_file_without_an_end_is_not_read(bare, api, tmp_path):
    config = kubeconfig(tmp_path, api.url, user={"tokenFile": "/dev/zero"})
    said = bare("get", "pods", "--from", "kubeconfig", "--kubeconfig", config)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert said.err.endswith("/dev/zero is no regular file\n")


def test_a_kubeconfig_in_latin_1_is_named_with_its_line(bare, tmp_path):
    config = tmp_path / "kubeconfig"
    config.write_bytes("apiVersion: v1\nkind: Config\ncurrent-context: café\n".encode("latin-1"))
    said = bare("get", "pods", "--from", "kubeconfig", "--kubeconfig", config)
    assert (said.code, said.out) == (2, "")
    text = "cannot be used: line 3: byte 0xe9 is no UTF-8: save it as UTF-8"
    assert said.err == f"topospread: kubeconfig {config} {text}\n"


def test_a_manifest_in_latin_1_is_named_with_its_line(bare, tmp_path):
    manifest = tmp_path / "node.yaml"
    manifest.write_bytes("kind: Node\nmetadata:\n  name: café\n".encode("latin-1"))
    said = bare("get", "nodes", "--from", manifest)
    assert (said.code, said.out) == (2, "")
    assert said.err == f"topospread: {manifest}:3: not YAML: it is no UTF-8: save it as UTF-8\n"

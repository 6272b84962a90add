"""`--from kubeconfig`: verbs that read ask an API server for lists, and it needs no more rights."""

from __future__ import annotations

import json
import logging

import pytest
import yaml

from tests.apiserver.objects import RESOURCES, Objects
from tests.apiserver.server import ApiServer, Fault
from tests.cli.manifests import CLUSTER, NOWHERE
from tests.kubernetes.syncing import kubeconfig

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


def test_nothing_but_lists_is_asked_of_the_api_server(bare, api, tmp_path):
    config = kubeconfig(tmp_path, api.url)
    said = bare("get", "pods", "-o", "name", "--from", "kubeconfig", "--kubeconfig", config)
    assert (said.code, said.lines, said.err) == (0, PODS, "")
    assert {asked.method for asked in api.asked} == {"GET"}
    assert not any(asked.watch for asked in api.asked)
    assert {asked.path for asked in api.asked} == {each.path for each in RESOURCES}


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


def test_a_kubeconfig_goes_with_that_source_only(bare, tmp_path):
    for source in ((), ("--from", "dump.yaml")):
        said = bare("get", "pods", *source, "--kubeconfig", "some")
        assert (said.code, "--kubeconfig goes with --from kubeconfig" in said.err) == (2, True)


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

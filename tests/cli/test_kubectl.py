"""`kubectl topospread`: verbs that read, of the cluster and namespace that kubectl would take."""

from __future__ import annotations

import importlib
import io
import json
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml

from tests.allocatable import ROOMY
from tests.apiserver.objects import Objects
from tests.apiserver.server import ApiServer
from tests.cli import spreads
from tests.cli.conftest import CommandResult
from tests.cli.processes import environment
from tests.requirements import ROOT, machine_has
from topospread.cli import kubectl
from topospread.cli.main import run
from topospread.cli.options import ClientOptions

ZONE = "topology.kubernetes.io/zone"


def node(name, zone):
    metadata = {"name": name, "labels": {ZONE: zone}}
    return {"kind": "Node", "metadata": metadata, "status": {"allocatable": ROOMY}}


def pod(namespace, name, on):
    labels = {"app": "web"}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": on}}


@pytest.fixture
def shop():
    """An API server with two namespaces."""
    objects = Objects()
    objects.put(
        node("a1", "a"), node("b1", "b"), pod("shop", "web-0", "a1"), pod("other", "x", "b1")
    )
    with ApiServer(objects) as serving:
        yield serving


@pytest.fixture
def empty():
    objects = Objects()
    objects.put(node("c1", "c"))
    with ApiServer(objects) as serving:
        yield serving


@pytest.fixture
def config(shop, empty, tmp_path, monkeypatch):
    """A kubeconfig: `shop` is its current context, with a namespace; `empty` has none."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "shop", "cluster": {"server": shop.url}},
            {"name": "empty", "cluster": {"server": empty.url}},
        ],
        "users": [{"name": "me", "user": {}}],
        "contexts": [
            {"name": "shop", "context": {"cluster": "shop", "user": "me", "namespace": "shop"}},
            {"name": "empty", "context": {"cluster": "empty", "user": "me"}},
        ],
        "current-context": "shop",
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture
def plugin(bare, capsys, monkeypatch):
    """The plugin as kubectl runs it."""

    def command(*arguments, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        options = ClientOptions(kubectl=kubectl.DEFAULTS)
        code = run([str(each) for each in arguments], kubectl.root, kubectl.NAME, options)
        return CommandResult(code, *capsys.readouterr())

    return command


PODS = ("get", "pods", "-o", "name")


def test_the_current_context_says_which_cluster_and_namespace(plugin, config, shop):
    said = plugin(*PODS)
    assert (said.code, said.lines, said.err) == (0, ["pod/shop/web-0"], "")
    assert {asked.method for asked in shop.asked} == {"GET"}


@pytest.mark.parametrize("before", [True, False])
def test_options_of_kubectl_hold_before_and_after_the_verb(plugin, config, monkeypatch, before):
    monkeypatch.delenv("KUBECONFIG")

    def asked(verb, *options):
        return plugin(*options, *verb) if before else plugin(*verb, *options)

    chosen = ("--kubeconfig", config)
    assert asked(PODS, *chosen, "-n", "other").lines == ["pod/other/x"]
    nodes = ("get", "nodes", "-o", "name")
    assert asked(nodes, *chosen, "--context", "empty").lines == ["node/c1"]


def test_constraints_of_the_namespace_are_reported_on(plugin, config, shop):
    made = yaml.safe_load_all(
        spreads.pod("cart", 0, "a1") + spreads.pod("db", 0, namespace="other")
    )
    shop.objects.put(*filter(None, made))
    (name,) = plugin("report", "-o", "name").lines
    assert "of:      shop StatefulSet/cart" in plugin("get", name).lines
    assert len(plugin("report", "-A", "--no-headers").lines) == 2
    watched = plugin("report", "--watch")
    assert (watched.code, "--watch needs a server" in watched.err) == (2, True)


def test_all_namespaces_are_asked_for(plugin, config):
    assert plugin(*PODS, "-A").lines == ["pod/other/x", "pod/shop/web-0"]


def test_a_report_is_of_the_contexts_namespace(plugin, config, shop):
    for namespace in ("shop", "other"):
        web = pod(namespace, "spread", "a1")
        constraint = {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
        web["spec"]["topologySpreadConstraints"] = [constraint]
        shop.objects.put(web)

    def namespaces(*options):
        items = json.loads(plugin("report", "-o", "json", *options).out)["items"]
        return {each["namespace"] for each in items if each["whenUnsatisfiable"] == "DoNotSchedule"}

    assert namespaces() == {"shop"}
    assert namespaces("-A") == {"shop", "other"}


def test_a_context_without_a_namespace_means_the_default_one(plugin, config, shop):
    shop.objects.put(pod("default", "y", "a1"))
    content = yaml.safe_load(config.read_text())
    del content["contexts"][0]["context"]["namespace"]
    config.write_text(yaml.safe_dump(content))
    assert plugin(*PODS).lines == ["pod/default/y"]


def test_a_name_with_its_namespace_is_found_wherever_it_is(plugin, config):
    assert plugin("explain", "other/x").code == 0
    assert plugin("explain", "web-0").code == 0
    given = plugin("explain", "other/x", "-n", "shop")
    assert (given.code, "is not in --namespace shop" in given.err) == (2, True)


def test_manifests_without_a_namespace_are_of_the_contexts(plugin, config):
    manifest = {"apiVersion": "v1", **pod("shop", "new", "")}
    del manifest["metadata"]["namespace"]
    said = plugin("evaluate", "-f", "-", "-o", "json", stdin=json.dumps(manifest))
    assert json.loads(said.out)["items"][0]["pod"]["namespace"] == "shop"


def test_a_server_that_is_named_is_asked_instead(plugin, bare, config, shop, address, monkeypatch):
    monkeypatch.setenv("TOPOSPREAD_ADDRESS", address)
    monkeypatch.setenv("TOPOSPREAD_CLUSTER", "served")
    manifests = json.dumps({"kind": "List", "items": [pod("shop", "served", "a1")]})
    assert bare("apply", "-f", "-", stdin=manifests).code == 0
    assert plugin(*PODS).lines == ["pod/shop/served"]
    assert shop.asked == []


@pytest.mark.parametrize("option", ["--context", "--kubeconfig"])
def test_a_cluster_that_is_chosen_wins_over_the_server_of_a_variable(
    plugin, config, shop, monkeypatch, option
):
    monkeypatch.setenv("TOPOSPREAD_ADDRESS", "127.0.0.1:1")
    chosen = (option, "shop" if option == "--context" else config)
    assert plugin(*PODS, *chosen).lines == ["pod/shop/web-0"]
    both = plugin(*PODS, *chosen, "--address", "127.0.0.1:1")
    said = f"{option} names an API server and --address a server: give one"
    assert (both.code, said in both.err) == (2, True)


def test_two_contexts_are_refused(plugin, config, shop, empty):
    said = plugin(*PODS, "--from", "kubeconfig:shop", "--context", "empty")
    assert (said.code, "name two contexts: give one" in said.err) == (2, True)
    assert shop.asked == empty.asked == []
    content = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**content, "current-context": "empty"}))
    assert plugin(*PODS, "--from", "kubeconfig:shop").lines == ["pod/shop/web-0"]


def test_a_report_of_no_constraint_says_in_which_namespace_it_looked(plugin, config, tmp_path):
    (tmp_path / "state.yaml").write_text(spreads.STATES)
    said = plugin("report", "--from", tmp_path / "state.yaml", "-n", "other")
    assert said.err == (
        "topospread: there are no pods in namespace other, so nothing was checked:"
        " -A looks in all namespaces\n"
    )


def test_an_unknown_context_is_named(plugin, config):
    said = plugin(*PODS, "--context", "none")
    assert (said.code, said.out) == (2, "")
    assert said.err == f"topospread: no context none in {config}: there are shop, empty\n"


def test_a_dump_is_of_all_namespaces(plugin, config):
    items = json.loads(plugin("dump").out)["items"]
    assert [each["metadata"]["name"] for each in items if each["kind"] == "Pod"] == ["x", "web-0"]


def test_files_are_read_where_they_are_named(plugin, config, shop, tmp_path):
    (tmp_path / "dump.json").write_text(json.dumps({"kind": "List", "items": [node("f1", "f")]}))
    asked = ("get", "nodes", "-o", "name", "--from", tmp_path / "dump.json")
    assert plugin(*asked).lines == ["node/f1"]
    assert shop.asked == []
    said = plugin(*asked, "--context", "empty")
    assert (said.code, "--context goes with --from kubeconfig" in said.err) == (2, True)


def test_verbs_that_write_or_serve_are_not_there(plugin):
    said = plugin("apply", "-f", "-")
    assert (said.code, "`topospread apply` does this" in said.err) == (2, True)
    assert "apply" not in plugin("--help").out


def test_texts_name_the_command_as_it_was_typed(plugin):
    assert plugin("explain", "--help").out.startswith("Usage: kubectl topospread explain ")
    assert "see `kubectl topospread get --help`" in plugin("get").err


def test_the_console_script_is_declared():
    project = tomllib.loads((ROOT / "server" / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["kubectl-topospread"].partition(":")
    assert getattr(importlib.import_module(module), function) is kubectl.main


@machine_has("kubectl")
def test_kubectl_runs_the_plugin(config, tmp_path):
    program = str(shutil.which("kubectl"))
    script = tmp_path / "kubectl-topospread"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m topospread.cli.kubectl "$@"\n')
    script.chmod(0o755)
    found = environment(PATH=f"{tmp_path}:/usr/bin:/bin", KUBECONFIG=str(config))
    said = subprocess.run(
        [program, "topospread", *PODS], capture_output=True, text=True, env=found, check=False
    )
    assert (said.returncode, said.stdout) == (0, "pod/shop/web-0\n"), said.stderr

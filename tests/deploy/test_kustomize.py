"""The kustomization that deploy/kubernetes/README.md shows, as kubectl renders it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.files import ROOT, parsed
from tests.requirements import machine_has
from topospread.cli.commands.serve import command as serve_command
from topospread.config.loading import load_settings

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ROOT / "deploy" / "kubernetes"
README = (FOLDER / "README.md").read_text("utf-8")
COMPONENTS = sorted(path.parent.name for path in FOLDER.glob("*/kustomization.yaml"))
OPERATORS = {"ServiceMonitor", "PrometheusRule"}

pytestmark = machine_has("kubectl")


def rendered(folder: Path, example: str) -> dict[str, dict[str, Any]]:
    """The objects that a kustomization makes, by kind and name."""
    shutil.copytree(FOLDER, folder / "deploy" / "kubernetes")
    (folder / "kustomization.yaml").write_text(example)
    run = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    found = [each for each in yaml.safe_load_all(run.stdout) if each]
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    return rendered(tmp_path_factory.mktemp("readme"), example)


def only_with(folder: Path, *components: str) -> dict[str, dict[str, Any]]:
    """The base with these components."""
    example = {
        "resources": ["deploy/kubernetes/base"],
        "components": [f"deploy/kubernetes/{name}" for name in components],
    }
    return rendered(folder, json.dumps(example))


def container(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    (found,) = objects["Deployment/topospread"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_the_example_has_all_components() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    named = {each.rpartition("/")[2] for each in yaml.safe_load(example)["components"]}
    assert {"base", *named} == set(COMPONENTS)


def test_the_example_makes_valid_objects(objects: dict[str, dict[str, Any]]) -> None:
    for each in objects.values():
        if each["kind"] not in OPERATORS:
            kubernetes_validate.validate(each, "1.36.0", strict=True)


def test_the_example_is_served_with_tls_and_tokens(objects: dict[str, dict[str, Any]]) -> None:
    made = container(objects)
    values = {each["name"]: each["value"] for each in made["env"] if "value" in each}
    values["TOPOSPREAD_STORE"] = "redis://redis:6379/0"
    flags = serve_command.make_context("serve", made["args"][1:]).params
    settings = load_settings(flags, values)
    mounts = {each["mountPath"] for each in made["volumeMounts"]}
    assert (settings.tls_cert, settings.tls_key) == ("/tls/tls.crt", "/tls/tls.key")
    assert settings.access_file == "/access/access.yaml"
    assert not settings.insecure
    assert mounts == {"/tmp", "/tls", "/access"}


def test_the_example_is_scraped_over_tls_with_a_token(objects: dict[str, dict[str, Any]]) -> None:
    (endpoint,) = objects["ServiceMonitor/topospread"]["spec"]["endpoints"]
    volumes = objects["Deployment/topospread"]["spec"]["template"]["spec"]["volumes"]
    secrets = {each["secret"]["secretName"] for each in volumes if "secret" in each}
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["ca"]["secret"] == {"name": "topospread-tls", "key": "ca.crt"}
    assert endpoint["tlsConfig"]["serverName"] == "topospread.topospread.svc"
    credentials = endpoint["authorization"]["credentials"]
    made = set(re.findall(r"create secret generic (\S+)", README))
    assert {*secrets, credentials["name"], "topospread-store"} == made
    assert "--from-literal=token=" in README


def test_the_example_brings_the_alerts(objects: dict[str, dict[str, Any]]) -> None:
    assert objects["PrometheusRule/topospread"] == parsed(FOLDER / "monitoring" / "alerts.yaml")


@pytest.mark.parametrize(
    ("components", "more"),
    [
        (["monitoring"], set()),
        (["monitoring", "tls"], {"scheme", "tlsConfig"}),
        (["monitoring", "access"], {"authorization"}),
        (["access", "tls"], None),
    ],
)
def test_components_go_together_and_alone(
    tmp_path: Path, components: list[str], more: set[str] | None
) -> None:
    objects = only_with(tmp_path, *components)
    if more is None:
        assert "ServiceMonitor/topospread" not in objects
        return
    (endpoint,) = objects["ServiceMonitor/topospread"]["spec"]["endpoints"]
    assert endpoint.keys() - {"port", "path", "interval", "honorLabels"} == more

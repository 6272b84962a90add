"""What both pyproject.toml allow at least is what is tried here (`make test-lowest`).

Callers have the protobuf that their other packages need, so the client runs on both of its major
versions, against servers on either.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.metadata import version

import pytest
from packaging.requirements import Requirement

from tests.client.conftest import address
from tests.redis_server import ROOT

__all__ = ["address"]

pytestmark = pytest.mark.lowest

NEWEST = ROOT / ".venv" / "bin" / "python"

CALLER = """
import importlib, json, pkgutil, sys
import google.protobuf, topospread_proto.v1
from topospread_client import Client, best

for module in pkgutil.iter_modules(topospread_proto.v1.__path__):
    importlib.import_module(f"topospread_proto.v1.{module.name}")

node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"zone": "a"}}}
rule = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}}
pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"app": "web"}},
       "spec": {"topologySpreadConstraints": [rule]}}
with Client(sys.argv[1], cluster=sys.argv[2]) as client:
    written = client.apply_objects([node])
    print(json.dumps([google.protobuf.__version__, best(client.evaluate_pod(pod))]))
"""


def floors() -> dict[str, str]:
    client, server = (
        tomllib.loads((ROOT / path / "pyproject.toml").read_text("utf-8"))["project"]
        for path in ("", "server")
    )
    wanted = [*client["dependencies"], *server["dependencies"]]
    wanted += server["optional-dependencies"]["sync"]
    return {
        each.name: next(part.version for part in each.specifier if part.operator == ">=")
        for each in map(Requirement, wanted)
        if each.name != client["name"]
    }


@pytest.mark.parametrize(("package", "floor"), floors().items())
def test_the_oldest_version_that_is_allowed_is_the_one_that_is_tried(package, floor):
    assert [*map(int, version(package).split("."))][: floor.count(".") + 1] == [
        *map(int, floor.split("."))
    ]


@pytest.mark.parametrize(
    ("python", "major"), [(sys.executable, "6"), (str(NEWEST), "7")], ids=["protobuf6", "protobuf7"]
)
def test_the_client_calls_with_either_protobuf(address, python, major):
    command = [python, "-W", "error", "-c", CALLER, address, f"protobuf-{major}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    used, best = json.loads(ran.stdout)
    assert used.split(".")[0] == major
    assert best == "n1"

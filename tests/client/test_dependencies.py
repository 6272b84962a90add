"""The client needs grpcio and protobuf, and nothing else."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from topospread_client import explaining, feed, ranking, rebalancing, simulating
from topospread_client.aio import AsyncClient
from topospread_client.client import Client

PROGRAM = """
import importlib, pkgutil, sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        allowed = {"grpc", "google", "typing_extensions", "topospread_client", "topospread_proto"}
        if root not in allowed and root not in sys.stdlib_module_names:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refusing())
import topospread_client
for module in pkgutil.iter_modules(topospread_client.__path__):
    importlib.import_module(f"topospread_client.{module.name}")
from topospread_client.arrays import int_array
print(type(int_array([1, 2], "uint32")).__module__, "topospread" in sys.modules)
"""


def test_every_module_is_imported_without_anything_else():
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["array", "False"]), ended.stderr


IMPORTED = """
import sys
import topospread_client.aio, topospread_client.client
print(*(name for name in sys.modules if name.startswith("topospread_")))
topospread_client.client.Client.simulate
topospread_client.aio.AsyncClient.simulate
print("topospread_client.simulating" in sys.modules)
"""


def test_what_few_programs_call_is_imported_when_they_do():
    ended = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True
    )
    imported, simulating = ended.stdout.splitlines()
    for name in ("explaining", "explanations", "feed", "ranking", "rebalancing", "simulations"):
        assert f"topospread_client.{name}" not in imported.split()
    assert simulating == "True"


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("method", "operation"),
    [
        ("explain", explaining.explain),
        ("hold", feed.hold),
        ("plan_rebalance", rebalancing.plan_rebalance),
        ("rank_for_deletion", ranking.rank_for_deletion),
        ("simulate", simulating.simulate),
    ],
)
def test_a_method_that_is_imported_later_is_one_like_others(kind, method, operation):
    assert inspect.unwrap(getattr(kind, method)) is operation
    assert getattr(kind, method).__doc__ == operation.__doc__

"""What the client needs, what it has, and what is generated of it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.metadata import version

import pytest

import topospread_client
from tests.client.test_wrong_arguments import snake
from tools import unasync
from topospread_client import AsyncClient, Client
from topospread_client._methods import METHODS
from topospread_proto.v1 import decision_service_pb2

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
print("grpc" in sys.modules or "google" in sys.modules)
for module in pkgutil.iter_modules(topospread_client.__path__):
    importlib.import_module(f"topospread_client.{module.name}")
print("topospread" in sys.modules)
"""


def test_modules_need_nothing_else_and_the_package_itself_not_even_grpc():
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["False", "False"]), ended.stderr


def test_the_blocking_client_is_that_for_asyncio():
    made = unasync.blocking(unasync.SOURCE.read_text())
    assert made == unasync.TARGET.read_text(), "run `python -m tools.unasync`"
    for name in dir(Client):
        if not name.startswith("_"):
            both = [getattr(kind, name) for kind in (Client, AsyncClient)]
            first, second = (list(inspect.signature(each).parameters.values()) for each in both)
            assert first == second, name


@pytest.mark.parametrize("name", topospread_client.__all__)
def test_public_names_exist(name):
    assert getattr(topospread_client, name) is not None
    assert name in dir(topospread_client)


def test_each_call_of_the_services_has_a_method():
    method = METHODS["EvaluatePod"]
    assert method.path == "/topospread.v1.DecisionService/EvaluatePod"
    assert method.request is decision_service_pb2.EvaluatePodRequest
    calls = {snake(name) for name in METHODS}
    pages = {f"{name}_page" for name in calls if name.startswith("list_")}
    for kind in (Client, AsyncClient):
        public = {name for name in dir(kind) if not name.startswith("_")}
        assert public == calls | pages | {"call", "stream", "close"}


def test_other_names_are_private():
    assert topospread_client.__version__ == version("topospread-client")
    with pytest.raises(AttributeError, match="nothing_like_it"):
        getattr(topospread_client, "nothing_like_it")  # noqa: B009 - mypy knows that it is not there

"""The client needs grpcio, protobuf and Google's common messages, and nothing else."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import subprocess
import sys
from dataclasses import fields
from enum import StrEnum
from pathlib import Path

import pytest

import topospread_client
from topospread_client import AsyncClient, Client
from topospread_client import _rpcs as rpcs
from topospread_proto.v1 import decision_service_pb2, error_reason_pb2

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
from topospread_client._decoding import int_array
print(type(int_array([1, 2], "int32")).__module__, "topospread" in sys.modules)
"""


def test_every_module_is_imported_without_anything_else():
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["array", "False"]), ended.stderr


IMPORTED = """
import sys
from topospread_client import AsyncClient, Client
print(*(name for name in sys.modules if name.startswith("topospread_")))
Client.simulate
AsyncClient.simulate
print("topospread_client._simulate" in sys.modules)
"""


def test_modules_that_few_programs_use_are_imported_at_first_use():
    ended = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True
    )
    imported, simulate = ended.stdout.splitlines()
    for name in ("explain", "leases", "ranking", "rebalancing", "simulate"):
        assert f"topospread_client._{name}" not in imported.split()
    assert simulate == "True"


@pytest.mark.parametrize("kind", [Client, AsyncClient], ids=lambda kind: kind.__name__)
def test_help_of_a_method_shows_its_parameters_and_return_type(kind):
    for name in vars(kind):
        if name.startswith("_"):
            continue
        method = getattr(kind, name)
        assert (method.__name__, method.__qualname__) == (name, f"{kind.__name__}.{name}")
        shown = pydoc.plain(pydoc.render_doc(method))
        assert "session" not in shown
        assert "Operation" not in shown
        signature = inspect.signature(method)
        assert next(iter(signature.parameters)) == "self"
        assert signature.return_annotation is not inspect.Signature.empty


RETURNED = {
    "evaluate_pod": ("EvaluatePodResponse", "EvaluatePodResponse"),
    "list_objects": ("Iterator[pb.ClusterObject]", "AsyncIterator[pb.ClusterObject]"),
    "watch_objects": (
        "Generator[WatchObjectsResponse, None, None]",
        "AsyncGenerator[WatchObjectsResponse, None]",
    ),
    "list_constraints": ("Iterator[ConstraintStatus]", "AsyncIterator[ConstraintStatus]"),
    "watch_constraints": (
        "Generator[WatchConstraintsResponse, None, None]",
        "AsyncGenerator[WatchConstraintsResponse, None]",
    ),
    "simulate": ("SimulateResponse", "SimulateResponse"),
}


@pytest.mark.parametrize("name", RETURNED)
def test_method_has_a_return_type(name):
    kinds = (Client, AsyncClient)
    found = tuple(inspect.signature(getattr(kind, name)).return_annotation for kind in kinds)
    assert found == RETURNED[name]


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(
    ("method", "module"),
    [
        ("explain_pod", "_explain"),
        ("list_constraints", "_inspecting"),
        ("get_constraint", "_inspecting"),
        ("watch_constraints", "_inspecting"),
        ("acquire_lease", "_leases"),
        ("plan_rebalance", "_rebalancing"),
        ("rank_deletions", "_ranking"),
        ("simulate", "_simulate"),
    ],
)
def test_method_of_a_lazy_module_is_like_others(kind, method, module):
    operation = getattr(importlib.import_module(f"topospread_client.{module}"), method)
    assert inspect.unwrap(getattr(kind, method)) is operation
    assert getattr(kind, method).__doc__ == operation.__doc__


@pytest.mark.parametrize("name", topospread_client.__all__)
def test_public_names_exist(name):
    assert getattr(topospread_client, name) is not None
    assert name in dir(topospread_client)


def test_types_are_imported_from_where_names_are_found():
    tree = ast.parse(Path(topospread_client.__file__).read_text())
    block = next(each for each in tree.body if isinstance(each, ast.If))
    imported = {
        (each.module, name.name, name.asname)
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for name in each.names
    }
    found = topospread_client._HOMES.items()
    assert imported == {(f"topospread_client.{home}", name, name) for name, home in found}


NOT_REPEATED = {
    "ApplyObjects",
    "DeleteObjects",
    "ReplaceObjects",
    "DeleteCluster",
    "AcceptStore",
    "PlacePod",
    "ReserveNode",
    "ReleaseReservation",
}


def test_calls_that_are_not_idempotent_are_known():
    assert {rpc.method.name for rpc in rpcs.ALL if not rpc.idempotent} == NOT_REPEATED


def test_each_call_of_the_services_is_known_by_its_name():
    assert rpcs.EVALUATE_POD.path == "/topospread.v1.DecisionService/EvaluatePod"
    assert rpcs.EVALUATE_POD.request is decision_service_pb2.EvaluatePodRequest
    assert rpcs.EVALUATE_POD.response is decision_service_pb2.EvaluatePodResponse
    with pytest.raises(AttributeError, match="EVALUATE"):
        _ = rpcs.EVALUATE


def test_other_names_are_private():
    with pytest.raises(AttributeError, match="nothing_like_it"):
        getattr(topospread_client, "nothing_like_it")  # noqa: B009 - mypy knows that it is not there
    for kind in (Client, AsyncClient):
        methods = {name for name in dir(kind) if not name.startswith("_")}
        calls = {snake(rpc.method.name) for rpc in rpcs.ALL}
        pages = {f"{name}_page" for name in calls if name.startswith("list_")}
        assert methods == calls | pages | {"close"}


def snake(method: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in method).removeprefix("_")


def messages():
    """What answers are made of: each message that an answer of an RPC leads to."""
    found, waiting = {}, [rpc.response.DESCRIPTOR for rpc in rpcs.ALL]
    while waiting:
        message = waiting.pop()
        own = message.full_name.startswith("topospread.v1.") and message.name != "ClusterObject"
        if own and message.full_name not in found and not message.GetOptions().map_entry:
            found[message.full_name] = message
            waiting += [field.message_type for field in message.fields if field.message_type]
    return found.values()


CARRIERS = {"BatchEvaluatePodsResult"}
"""Messages that only carry others: what is in them is answered itself."""


@pytest.mark.parametrize("message", messages(), ids=lambda message: message.name)
def test_an_answer_has_the_name_and_the_fields_of_its_message(message):
    if message.name in CARRIERS:
        return
    kind = getattr(topospread_client, message.name)
    own = {field.name for field in fields(kind)} - {"traceparent"}
    # Positions are for a caller that holds the node table: the client has turned them into names.
    # A trace is the whole answer's, errors and streams included.
    assert own == {field.name for field in message.fields} - {"node_indices", "traceparent"}
    for field in message.fields:
        if field.enum_type is not None:
            compare(field.enum_type)


def compare(enum):
    """An enum has the members of the messages', less their prefix."""
    name = enum.name if enum.containing_type is None else enum.containing_type.name + enum.name
    kind = getattr(topospread_client, name)
    assert issubclass(kind, StrEnum)
    prefix = enum.values[0].name.removesuffix("UNSPECIFIED")
    assert [each.value for each in kind] == [
        each.name.removeprefix(prefix) for each in enum.values if each.number
    ]


def test_the_reasons_of_errors_are_those_of_the_messages():
    compare(error_reason_pb2.ErrorReason.DESCRIPTOR)

"""Whatever is given to whatever is public, the errors are those of the documented tree.

Methods, and the fields of their requests with what is in them, are found by looking.
"""

# Wrong types are what these tests are about.
# mypy: disable-error-code="arg-type, dict-item"

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from typing import TYPE_CHECKING, Any

import pytest

import topospread_client
from topospread_client import (
    AsyncClient,
    Client,
    Connection,
    InvalidRequest,
    Tls,
    TopospreadClientError,
)
from topospread_client._methods import METHODS
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.descriptor import Descriptor

    from tests.client.callers import Caller

OFFLINE = "127.0.0.1:1"
POD = {"metadata": {"name": "p", "namespace": "shop"}}


class Unexpected:
    """Value of a type of the caller's own."""

    def __repr__(self) -> str:
        return "Unexpected()"


WRONG: tuple[Any, ...] = (
    *(None, True, 0, -1, 5, 2**40, 2**70, 2.5, math.nan, math.inf, -math.inf, 1e10, 1e300),
    *("", "x", "a/b/c", "\ud800", "\0", b"", b"\xff", bytearray(b"x")),
    *([], [None], [5], ["x"], [[]], [{}], (), (1, 2), {1}),
    *({}, {5: 5}, {"x": None}, {None: {}}, {"kind": 5}, {"kind": "Pod", "spec": 5}),
    *(Unexpected(), Unexpected, len, iter([5]), 1j, ClusterObject(), common.Verdict()),
)

RIGHT: dict[str, Any] = {
    "cluster": "c",
    "constraint_id": "c",
    "kind": "POD",
    "name": "n",
    "node": "n",
    "objects": [],
    "pod": POD,
    "pods": [POD],
    "store_identity": "s",
}
"""A value for each parameter that has to be given."""

BESIDE = ["timeout", "traceparent"]


def snake(method: str) -> str:
    return re.sub(r"\B(?=[A-Z])", "_", method).lower()


def right(method: Any) -> dict[str, Any]:
    """Arguments for a method's parameters without a default."""
    _, *parameters = inspect.signature(method).parameters.values()
    return {
        each.name: RIGHT[each.name]
        for each in parameters
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    }


def calls() -> Iterator[tuple[str, str]]:
    """Methods that make a call, each with what it takes."""
    for name, method in METHODS.items():
        message = method.request.DESCRIPTOR
        if name == "ReplaceObjects":
            message = message.fields_by_name["start"].message_type
        fields = [field.name for field in message.fields]
        given = [*right(getattr(Client, snake(name))), *fields, *BESIDE, "unknown"]
        for parameter in dict.fromkeys(given):
            yield snake(name), parameter


def check(what: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """An error of the documented tree, or none; what is lazy is begun."""
    try:
        made = call(*args, **kwargs)
        if inspect.isgenerator(made):
            next(made, None)
            made.close()
    except TopospreadClientError:
        pass
    except BaseException as error:
        raise AssertionError(f"{what}: {error!r}") from error


@pytest.fixture
def offline(connect: Callable[..., Caller]) -> Caller:
    """A client without a server: what is sent ends in Unavailable."""
    return connect(Connection(OFFLINE, retries=False), timeout=1)


@pytest.mark.parametrize(("method", "parameter"), [*calls()])
def test_methods_raise_errors_of_the_tree(offline: Caller, method: str, parameter: str):
    for value in WRONG:
        arguments = {**right(getattr(Client, method)), parameter: value}
        check(f"{method}({parameter}={value!r})", getattr(offline, method), **arguments)


@pytest.mark.parametrize("name", ["call", "stream"])
def test_messages_of_wrong_types_raise_errors_of_the_tree(offline: Caller, name: str):
    for value in WRONG:
        check(f"{name}({value!r})", getattr(offline, name), value, common.Verdict())
        check(f"{name}(…, {value!r})", getattr(offline, name), "EvaluatePod", value)
        check(f"{name}(…, {value!r})", getattr(offline, name), "WatchObjects", value)


def paths(message: Descriptor, *above: Any) -> Iterator[tuple[Any, ...]]:
    """Fields of the messages in a request that are given as mappings, each as a path."""
    for field in message.fields:
        own = field.message_type
        if above:
            yield (*above, (field.name, field.is_repeated))
        if (
            own is not None
            and own.file.package == "topospread.v1"
            and not own.GetOptions().map_entry
            and own.name not in ("PodReference", "ClusterObject")
            and len(above) < 4
        ):
            yield from paths(own, *above, (field.name, field.is_repeated))


PARTS = [
    (name, path) for name, method in METHODS.items() for path in paths(method.request.DESCRIPTOR)
]


@pytest.mark.parametrize("name", list(METHODS))
def test_parts_of_requests_raise_errors_of_the_tree(offline: Caller, name: str):
    method = snake(name)
    for path in (path for of, path in PARTS if of == name != "ReplaceObjects"):
        for value in WRONG:
            given: Any = value
            for field, repeated in reversed(path):
                given = {field: [given] if repeated and given is not value else given}
            arguments = {**right(getattr(Client, method)), **given}
            check(f"{method}({given!r})", getattr(offline, method), **arguments)


def fields_of(part: type) -> list[str]:
    return [each.name for each in dataclasses.fields(part)]


@pytest.mark.parametrize("name", fields_of(Connection))
def test_connections_raise_errors_of_the_tree(connect: Callable[..., Caller], name: str):
    def ask(**options: Any) -> None:
        connect(Connection(**options))

    for value in WRONG:
        check(f"{name}={value!r}", ask, **{"address": OFFLINE, name: value})


@pytest.mark.parametrize("name", fields_of(Tls))
def test_tls_options_raise_errors_of_the_tree(connect: Callable[..., Caller], name: str):
    def ask(**options: Any) -> None:
        connect(Connection(OFFLINE, tls=Tls(**options)))

    for value in WRONG:
        check(f"Tls({name}={value!r})", ask, **{name: value})


@pytest.mark.parametrize("name", list(inspect.signature(Client).parameters))
def test_clients_are_made_or_raise_errors_of_the_tree(connect: Callable[..., Caller], name: str):
    for value in WRONG:
        check(f"Client({name}={value!r})", connect, **{"connection": OFFLINE, name: value})


FUNCTIONS = [
    name
    for name in topospread_client.__all__
    if inspect.isfunction(getattr(topospread_client, name))
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_raise_errors_of_the_tree(name: str):
    function: Any = getattr(topospread_client, name)
    _, *others = inspect.signature(function).parameters.values()
    needed = {each.name: "x" for each in others if each.default is each.empty}
    for value in WRONG:
        check(f"{name}({value!r})", function, value, **needed)
        for each in others:
            what = f"{name}({each.name}={value!r})"
            check(what, function, {}, **{**needed, each.name: value})
            check(what, function, "a ==", **{**needed, each.name: value})


@pytest.mark.parametrize("owner", [Client, AsyncClient])
def test_help_has_the_comment_of_the_call_and_of_its_fields(owner: Any):
    for name, method in METHODS.items():
        said = getattr(owner, snake(name)).__doc__
        assert said, name
        for field in method.request.DESCRIPTOR.fields:
            assert f"    {field.name} (" in said, name
    place = inspect.getdoc(owner.place_pod) or ""
    assert place.startswith("Chooses the best node and reserves it in one step.")
    assert "reservation_ttl (seconds): How long the reservation holds; absent: 60 s." in place
    listed = inspect.getdoc(owner.list_objects_page) or ""
    assert "Get one page" in listed
    assert "Objects of one kind in pages" in listed


@pytest.mark.parametrize("timeout", [0, -1, math.nan, -math.inf, "1", True, [], 1e10, math.inf])
def test_a_time_out_is_a_number_of_seconds_above_0(offline: Caller, timeout: Any):
    if timeout in (1e10, math.inf):
        check("a long time-out", offline.get_cluster, timeout=timeout)
        return
    with pytest.raises(InvalidRequest) as refused:
        offline.get_cluster(timeout=timeout)
    (violation,) = refused.value.violations
    assert violation.field == "timeout"
    assert "must be more than 0 seconds; math.inf is no limit" in violation.description

"""Whatever is given to whatever is public, the errors are those of the documented tree.

Methods, classes and their parameters are found by looking, so that new ones are covered.
"""

# Wrong types are what these tests are about.
# mypy: disable-error-code="arg-type, dict-item"

from __future__ import annotations

import dataclasses
import inspect
import math
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

import topospread_client
from topospread_client import (
    AsyncClient,
    Client,
    ClusterObject,
    Connection,
    Consistency,
    ConstraintChange,
    ConstraintMatch,
    ConstraintValues,
    DrainedNode,
    EvictionFilters,
    EvictionLimits,
    InvalidRequest,
    Kind,
    NodeGroup,
    ObjectReference,
    PodOnNode,
    PodReference,
    PodsToPlace,
    RankConstraint,
    ResourceVersion,
    Scenario,
    Settings,
    SupposedChanges,
    Tls,
    TopospreadClientError,
    WorkloadReference,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.client.callers import Caller

OFFLINE = "127.0.0.1:1"
POD = {"metadata": {"name": "p", "namespace": "shop"}}
NODE = {"kind": "Node", "metadata": {"name": "n"}}


class Unexpected:
    """Value of a type of the caller's own."""

    def __repr__(self) -> str:
        return "Unexpected()"


WRONG: tuple[Any, ...] = (
    *(None, True, 0, -1, 5, 2**40, 2**70, 2.5, math.nan, math.inf, -math.inf, 1e10, 1e300),
    *("", "x", "a/b/c", "\ud800", "\0", b"", b"\xff", bytearray(b"x")),
    *([], [None], [5], ["x"], [[]], [{}], (), (1, 2), {1}),
    *({}, {5: 5}, {"x": None}, {None: {}}, {"kind": 5}, {"kind": "Pod", "spec": 5}),
    *(Unexpected(), Unexpected, len, iter([5]), 1j, ClusterObject(), Kind.POD),
)

RIGHT: dict[str, Any] = {
    "cluster": "c",
    "constraint_id": "c",
    "fencing_token": 1,
    "holder_identity": "me",
    "kind": Kind.POD,
    "lease_duration": 5.0,
    "name": "n",
    "node": "n",
    "objects": [],
    "pod": POD,
    "pods": [POD],
    "store_identity": "s",
}
"""A value for each parameter that has to be given."""


def right(method: Any) -> dict[str, Any]:
    """Arguments for a method's parameters without a default."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return {each.name: RIGHT[each.name] for each in parameters if each.default is each.empty}


def calls(owner: type) -> list[tuple[str, str]]:
    """Public methods of a class, each with each of its parameters."""
    return [
        (name, parameter)
        for name in sorted(dir(owner))
        if not name.startswith("_")
        for parameter in list(inspect.signature(getattr(owner, name)).parameters)[1:]
    ]


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


@pytest.mark.parametrize(("method", "parameter"), calls(Client))
def test_methods_raise_errors_of_the_tree(offline: Caller, method: str, parameter: str):
    for value in WRONG:
        arguments = {**right(getattr(Client, method)), parameter: value}
        check(f"{method}({parameter}={value!r})", getattr(offline, method), **arguments)


def test_both_clients_have_the_same_parameters():
    assert calls(AsyncClient) == calls(Client)


CHANGE = ConstraintChange("zone", ConstraintValues(max_skew=2))


def simulated(**changes: Any) -> Callable[[Any], Any]:
    return lambda c: c.simulate([POD], scenario=Scenario(SupposedChanges(**changes)))


PARTS: dict[Any, Callable[[Any, Any], Any]] = {
    Consistency("r"): lambda c, part: c.evaluate_pod(POD, consistency=part),
    Settings(): lambda c, part: c.evaluate_pod(POD, settings=part),
    PodOnNode("a/b"): lambda c, part: c.evaluate_pod(POD, add_pods=[part]),
    PodReference("p"): lambda c, part: c.get_reservation(part),
    ObjectReference(Kind.POD, "p"): lambda c, part: c.delete_objects([part]),
    ResourceVersion(Kind.POD, "1"): lambda c, part: c.apply_objects([], observed=[part]),
    PodsToPlace("a/b"): lambda c, part: c.simulate([part]),
    Scenario(): lambda c, part: c.simulate([POD], scenario=part),
    SupposedChanges(): lambda c, part: c.simulate([POD], scenario=Scenario(part)),
    NodeGroup("n"): lambda c, part: simulated(add_node_groups=[part])(c),
    DrainedNode("n"): lambda c, part: simulated(drain_nodes=[part])(c),
    CHANGE: lambda c, part: simulated(constraint_changes=[part])(c),
    ConstraintMatch("zone"): lambda c, part: simulated(constraint_changes=[_of(match=part)])(c),
    ConstraintValues(): lambda c, part: simulated(constraint_changes=[_of(set=part)])(c),
    RankConstraint("zone"): lambda c, part: c.rank_deletions({}, constraints=[part]),
    EvictionFilters(): lambda c, part: c.plan_rebalance(filters=part),
    EvictionLimits(): lambda c, part: c.plan_rebalance(eviction_limits=part),
    WorkloadReference("Job", "j"): lambda c, part: c.list_constraints_page(owner=part),
}
"""Each class of arguments, by an instance, with a call that takes one."""


def _of(**changed: Any) -> ConstraintChange:
    return dataclasses.replace(CHANGE, **changed)


def fields_of(part: Any) -> list[str]:
    """Names of the fields of a dataclass or a named tuple."""
    named = getattr(part, "_fields", None)
    return list(named or (each.name for each in dataclasses.fields(part)))


@pytest.mark.parametrize(
    ("part", "name"),
    [(part, name) for part in PARTS for name in fields_of(part)],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_parts_of_requests_raise_errors_of_the_tree(offline: Caller, part: Any, name: str):
    right = {each: getattr(part, each) for each in fields_of(part)}

    def ask(**fields: Any) -> None:
        PARTS[part](offline, type(part)(**fields))

    for value in WRONG:
        check(f"{type(part).__name__}({name}={value!r})", ask, **{**right, name: value})


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


@pytest.mark.parametrize("name", [*FUNCTIONS, "PodReference.of"])
def test_functions_raise_errors_of_the_tree(name: str):
    function: Any = topospread_client
    for part in name.split("."):
        function = getattr(function, part)
    for value in WRONG:
        check(f"{name}({value!r})", function, value)
        for parameter in list(inspect.signature(function).parameters)[1:]:
            what = f"{name}({parameter}={value!r})"
            check(what, function, {}, **{parameter: value})
            check(what, function, "a ==", **{parameter: value})


@pytest.mark.parametrize("owner", [Client, AsyncClient])
def test_help_on_a_method_stands_for_itself(owner: type):
    for name in sorted({name for name, _ in calls(owner)}):
        method = getattr(owner, name)
        assert method.__doc__, name
        assert "as for `pre_filter`" not in method.__doc__, name
        assert "session" not in inspect.signature(method).parameters, name
        assert "Operation[" not in str(inspect.signature(method)), name


def test_the_package_has_the_version_of_its_distribution():
    assert topospread_client.__version__ == version("topospread-client")


def test_every_class_of_arguments_is_tried():
    """Frozen dataclasses and tuples that are no part of an answer."""
    tried = {type(part).__name__ for part in PARTS} | {"Connection", "Tls"}
    modules = ("_requests", "_scenarios", "_references", "_connection", "_credentials")
    classes = {
        name
        for name in topospread_client.__all__
        if inspect.isclass(found := getattr(topospread_client, name))
        and found.__module__.rpartition(".")[2] in modules
    }
    assert classes - tried == set()


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

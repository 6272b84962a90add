"""DynamicResources: simple claims get what a naive search finds, all others are named."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.fit import FitAnswer, FitCase, answered
from topospread.service.fit.dynamic_resources import (
    CLAIMS_OF_NO_POD,
    DEVICE_TAINTS,
    EXTENDED_RESOURCES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.conformance.cases import Json

NODES = ("n0", "n1", "n2")
DRIVERS = ("a.example", "b.example")
PLUGIN = "DynamicResources"
Device = tuple[str, str, str]

# ------------------------------ manifests


def device_class(name: str, *drivers: str, **spec: Any) -> Json:
    expressions = [{"cel": {"expression": f'device.driver == "{each}"'}} for each in drivers]
    spec = {"selectors": expressions} | spec
    return {"kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def request(class_name: str, count: int | None = 1, **more: Any) -> Json:
    mode = {"allocationMode": "All"} if count is None else {"count": count}
    return {"name": "r", "exactly": {"deviceClassName": class_name, **mode, **more}}


def claim(name: str, *requests: Json, had: Sequence[Device] = (), **devices: Any) -> Json:
    results = [{"driver": driver, "pool": pool, "device": name} for driver, pool, name in had]
    status = {"allocation": {"devices": {"results": results}}} if had else {}
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": list(requests), **devices}},
        "status": status,
    }


def part(
    name: str,
    driver: str,
    pool: str,
    devices: Sequence[Json],
    where: Json,
    *,
    size: int = 1,
    gen: int = 1,
) -> Json:
    pooled = {"name": pool, "generation": gen, "resourceSliceCount": size}
    spec = {"driver": driver, "pool": pooled, "devices": list(devices), **where}
    return {"kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def asked(pod_claims: Sequence[Json], objects: Sequence[Json], **pod: Any) -> FitAnswer:
    allocatable = {"status": {"allocatable": {"pods": "110", "cpu": "8", "example.com/gpu": "8"}}}
    nodes = [{"kind": "Node", "metadata": {"name": name}, **allocatable} for name in NODES]
    manifest: Json = {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "u-p"},
        "spec": {"containers": [{"name": "c"}], "resourceClaims": list(pod_claims)},
    }
    for key, value in pod.items():
        manifest[key] = {**manifest.get(key, {}), **value}
    cluster = {"nodes": nodes, "others": list(objects)}
    return answered(FitCase("", PLUGIN, cluster, manifest, {}))


def refused(answer: FitAnswer) -> set[str]:
    return set(answer.alone.get(PLUGIN, {}).get("refused", {}))


# ------------------------------ a naive model

where = st.one_of(
    st.sampled_from(NODES).map(lambda name: {"nodeName": name}),
    st.just({"allNodes": True}),
    st.lists(st.sampled_from(NODES), min_size=1, max_size=1).map(
        lambda names: {
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]}
                ]
            }
        }
    ),
)


@st.composite
def pools(draw: st.DrawFn) -> list[Json]:
    """Slices; the devices of a pool's generation have names of their own, its slices one size."""
    made = []
    for driver, pool in product(DRIVERS, ("p", "q")):
        sizes = {gen: draw(st.integers(1, 2)) for gen in (1, 2)}
        for number in range(draw(st.integers(0, 3))):
            gen = draw(st.sampled_from([1, 1, 1, 2]))
            devices = [{"name": f"{number}-{k}"} for k in range(draw(st.integers(0, 2)))]
            name = f"{driver}-{pool}-{number}"
            made.append(part(name, driver, pool, devices, draw(where), size=sizes[gen], gen=gen))
    return made


def reaches(spec: Json, node: str) -> bool:
    terms = spec.get("nodeSelector", {}).get("nodeSelectorTerms", [])
    named = {name for term in terms for name in term["matchFields"][0]["values"]}
    return bool(spec.get("allNodes") or spec.get("nodeName") == node or node in named)


def reached(slices: Sequence[Json], node: str) -> Iterator[Device]:
    """The devices of complete pools, as GatherPools says."""
    by_pool: dict[tuple[str, str], list[Json]] = {}
    for each in slices:
        spec = each["spec"]
        by_pool.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
    for (driver, pool), specs in by_pool.items():
        here = [spec for spec in specs if reaches(spec, node)]
        if not here:
            continue
        newest = max(spec["pool"]["generation"] for spec in here)
        here = [spec for spec in here if spec["pool"]["generation"] == newest]
        size = here[0]["pool"]["resourceSliceCount"]
        if len(here) != size:
            generations = Counter(spec["pool"]["generation"] for spec in specs)
            if max(generations) > newest or generations[newest] != size:
                continue
        for spec in here:
            for device in spec["devices"]:
                yield driver, pool, device["name"]


def allocatable(
    wanted: Sequence[tuple[str, int | None]], there: set[Device], free: set[Device]
) -> bool:
    """Whether there is any way to give each request its devices."""
    if not wanted:
        return True
    (driver, count), *others = wanted
    mine = {each for each in there if driver in ("", each[0])}
    if count is None:
        chosen = [mine] if mine and mine <= free else []
    else:
        chosen = [set(each) for each in combinations(sorted(mine & free), count)]
    return any(allocatable(others, there, free - each) for each in chosen)


@settings(max_examples=150)
@given(
    pools(),
    st.lists(st.tuples(st.sampled_from(["", *DRIVERS]), st.integers(1, 3)), min_size=1, max_size=3),
    st.none() | st.sampled_from(["", *DRIVERS]),
    st.sets(st.tuples(st.sampled_from(DRIVERS), st.just("p"), st.sampled_from(["0-0", "1-0"]))),
)
def test_simple_claims_get_what_a_search_finds(slices, exact, all_of, had):
    classes = [device_class("any"), *(device_class(f"of-{each}", each) for each in DRIVERS)]
    wanted: list[tuple[str, int | None]] = [*exact]
    if all_of is not None:
        wanted.append((all_of, None))
    requests = [request(f"of-{driver}" if driver else "any", count) for driver, count in wanted]
    # Two claims of one pod share no device.
    claims = [claim("mine", requests[0]), claim("more", *requests[1:])]
    others = [claim("other", had=sorted(had))] if had else []
    named = [{"name": each, "resourceClaimName": each} for each in ("mine", "more")]
    answer = asked(named, [*slices, *classes, *claims, *others])
    expected = set()
    for node in NODES:
        there = set(reached(slices, node))
        if not allocatable(wanted, there, there - had):
            expected.add(node)
    taints, *gaps = answer.gaps
    assert taints == DEVICE_TAINTS
    if gaps:
        assert gaps == [g for g in gaps if "not complete" in g]
        assert not refused(answer)
    else:
        assert refused(answer) == expected


# ------------------------------ what is named instead

GPU = device_class("gpu", "a.example")
ONE = part("s", "a.example", "n0", [{"name": "gpu-0"}], {"nodeName": "n0"})
MINE = {"name": "gpu", "resourceClaimName": "mine"}


def special(**devices: Any) -> Json:
    return part("s", "a.example", "n0", [{"name": "gpu-0", **devices}], {"nodeName": "n0"})


NAMED: dict[str, tuple[list[Json], str]] = {
    "expressions of a request": (
        [claim("mine", request("gpu", selectors=[{"cel": {"expression": "true"}}])), GPU, ONE],
        "CEL expressions",
    ),
    "expressions of a class": (
        [
            claim("mine", request("gpu")),
            device_class("gpu", selectors=[{"cel": {"expression": "device.driver != 'a'"}}]),
            ONE,
        ],
        "CEL expressions of class gpu",
    ),
    "administrative access": (
        [claim("mine", request("gpu", adminAccess=True)), GPU, ONE],
        "administrative access",
    ),
    "alternatives": (
        [
            claim(
                "mine", {"name": "r", "firstAvailable": [{"name": "x", "deviceClassName": "gpu"}]}
            ),
            GPU,
            ONE,
        ],
        "alternatives (firstAvailable)",
    ),
    "constraints": (
        [claim("mine", request("gpu"), constraints=[{"matchAttribute": "a/b"}]), GPU, ONE],
        "constraints",
    ),
    "capacity": (
        [claim("mine", request("gpu", capacity={"requests": {"memory": "1Gi"}})), GPU, ONE],
        "capacity of devices",
    ),
    "more devices than a claim may have": (
        [claim("mine", request("gpu", 33)), GPU, ONE],
        "more than 32 devices",
    ),
    "tainted devices": (
        [
            claim("mine", request("gpu", 2)),
            GPU,
            special(taints=[{"key": "k", "effect": "NoExecute"}]),
        ],
        "taints of devices",
    ),
    "partitions": (
        [claim("mine", request("gpu", 2)), GPU, special(consumesCounters=[{"counterSet": "c"}])],
        "partitions of devices",
    ),
    "shared devices": (
        [claim("mine", request("gpu", 2)), GPU, special(allowMultipleAllocations=True)],
        "shared devices",
    ),
    "nodes of each device": (
        [
            claim("mine", request("gpu", 2)),
            GPU,
            part("s", "a.example", "p", [{"name": "d"}], {"perDeviceNodeSelection": True}),
        ],
        "nodes of each device",
    ),
    "all devices of a part of a pool": (
        [
            claim("mine", request("gpu", None)),
            GPU,
            part("s", "a.example", "p", [{"name": "d"}], {"nodeName": "n0"}, size=2),
        ],
        "all devices of a pool that is not complete",
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_claim_that_is_not_simple_is_named_and_refuses_nothing(name: str) -> None:
    objects, reason = NAMED[name]
    answer = asked([MINE], objects)
    assert answer.gaps == [DEVICE_TAINTS, f"resource claims (claim mine: {reason})"]
    assert not refused(answer)


MADE = {"name": "gpu", "resourceClaimTemplateName": "t"}
STATUS: Callable[..., Json] = lambda **made: {  # noqa: E731
    "resourceClaimStatuses": [{"name": "gpu", **made}]
}
OWNED = claim("mine", request("gpu"))
OWNED["metadata"]["ownerReferences"] = [{"controller": True, "kind": "Pod", "uid": "u-other"}]


@pytest.mark.parametrize(
    ("pod_claim", "pod", "objects", "reason"),
    [
        (MINE, {}, [], 'could not find ResourceClaim "default/mine"'),
        (MADE, {}, [], 'pod "default/p": ResourceClaim not created yet'),
        (
            {"name": "gpu"},
            {},
            [],
            'pod "default/p", spec.resourceClaim "gpu": none of the supported fields are set',
        ),
        (
            MADE,
            {"status": STATUS(resourceClaimName="mine")},
            [OWNED],
            "ResourceClaim default/mine was not created for Pod default/p (Pod is not owner)",
        ),
        (MINE, {}, [claim("mine", request("gpu"))], "request r: device class gpu does not exist"),
    ],
)
def test_a_pod_without_its_claims_is_refused(pod_claim, pod, objects, reason):
    answer = asked([pod_claim], objects, **pod)
    assert answer.alone[PLUGIN]["preFilter"]["reasons"] == [reason]


def test_a_claim_that_turned_out_not_to_be_needed_is_not_looked_for():
    answer = asked([MADE], [], status=STATUS())
    assert PLUGIN not in answer.alone
    assert not answer.gaps


def test_claims_of_a_pod_that_is_not_there_yet_are_named():
    answer = asked([MADE], [], metadata={"uid": ""})
    assert answer.gaps == [CLAIMS_OF_NO_POD]
    assert PLUGIN not in answer.alone


def test_resources_that_stand_for_devices_are_named():
    spec = {"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]}
    mapped = device_class("gpu", "a.example", extendedResourceName="example.com/gpu")
    assert asked([], [mapped], spec=spec).gaps == [EXTENDED_RESOURCES]
    assert not asked([], [GPU], spec=spec).gaps


@pytest.mark.parametrize(
    ("resource", "objects", "insufficient"),
    [
        (
            "example.com/fpga",
            [device_class("fpga", extendedResourceName="example.com/fpga")],
            False,
        ),
        ("deviceclass.resource.kubernetes.io/gpu", [device_class("gpu", "a.example")], False),
        ("deviceclass.resource.kubernetes.io/gpu", [device_class("other", "a.example")], True),
        ("example.com/fpga", [device_class("fpga", "a.example")], True),
        # What a node offers is not left to devices.
        ("example.com/gpu", [device_class("gpu", extendedResourceName="example.com/gpu")], True),
        ("example.com/gpu", [device_class("gpu")], True),
    ],
)
def test_resources_that_stand_for_devices_are_lacking_only_where_they_are_offered(
    resource: str, objects: Sequence[Json], insufficient: bool
) -> None:
    spec = {"containers": [{"name": "c", "resources": {"requests": {resource: "9"}}}]}
    refused = asked([], objects, spec=spec).alone.get("NodeResourcesFit", {}).get("refused", {})
    assert set(refused) == (set(NODES) if insufficient else set())


def test_resources_that_stand_for_devices_are_lacking_on_the_nodes_that_offer_some() -> None:
    spec = {"containers": [{"name": "c", "resources": {"requests": {"example.com/fpga": "2"}}}]}
    mapped = device_class("fpga", "a.example", extendedResourceName="example.com/fpga")
    offering: Json = {"kind": "Node", "metadata": {"name": "n0"}}
    offering["status"] = {"allocatable": {"pods": "110", "example.com/fpga": "1"}}
    without: Json = {"kind": "Node", "metadata": {"name": "n1"}}
    without["status"] = {"allocatable": {"pods": "0"}}
    pod = {"kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    cluster = {"nodes": [offering, without], "others": [mapped]}
    found = answered(FitCase("", PLUGIN, cluster, pod, {})).alone["NodeResourcesFit"]["refused"]
    assert found["n0"]["reasons"] == ["Insufficient example.com/fpga"]
    assert found["n0"]["code"] == "UnschedulableAndUnresolvable"
    assert found["n1"] == {"code": "Unschedulable", "reasons": ["Too many pods"]}

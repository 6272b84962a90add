"""Which domains the expander counts, beside those that exist."""

from __future__ import annotations

import grpc
import pytest

from tests.expander.requests import HOST, asked, best, groups, node, pod, written
from tests.servers import Peer, served

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


@pytest.fixture(scope="module")
def channel():
    """Two pods in zone a, whose node is full; one in zone d, of another region."""
    with served() as server, grpc.insecure_channel(server.address) as channel:
        nodes = [
            node("a", "2", zone="a", pool="p", **{REGION: "1"}),
            node("d", "1", zone="d", pool="p", **{REGION: "2"}),
        ]
        pods = [pod("a1", "a"), pod("a2", "a"), pod("d1", "d")]
        with Peer(server.address) as peer:
            peer.await_revision(peer.apply(*map(written, [*nodes, *pods])))
        yield channel


def waiting(*keys, **more):
    """A pod with a constraint of each key, and more in each."""
    made = pod("waiting", key=ZONE)
    (constraint,) = made["spec"]["topologySpreadConstraints"]
    made["spec"]["topologySpreadConstraints"] = [
        {**constraint, "topologyKey": key, **more} for key in keys or (ZONE,)
    ]
    made["spec"]["nodeSelector"] = {"pool": "p"}
    return made


def template(name, cpu="4", **labels):
    return node(f"ng-{name}", cpu, **{"zone": name, "pool": "p", REGION: "2", **labels})


def said(channel, incoming, *others, options=("b",)):
    """The reason of a choice of options, beside groups that are none."""
    request = asked(*[(template(name), 1, [incoming]) for name in options])
    for other in others:
        request.node_bytes_map[other["metadata"]["name"]] = written(other).node.SerializeToString()
    return best(channel, request).options[0].debug


EVEN, WIDER = "skew 1", "skew 2, 1 past maxSkew"
"""Zones a and d with two pods and one, b with the new one; and zone c with none."""


def test_zone_of_another_option_counts(channel):
    assert WIDER in said(channel, waiting(), options=("b", "c"))


def test_zone_of_a_group_that_cannot_grow_does_not_count(channel):
    # The pod would fit on a node of it, and it is no option.
    assert said(channel, waiting(), template("c")).endswith(EVEN)


def test_zone_of_a_group_that_is_refused_for_now_counts(channel):
    # Region 1 is one pod ahead; skew 1 of the regions is added.
    incoming = waiting(ZONE, REGION)
    assert "skew 2, 1 past" not in said(channel, incoming)
    other = template("c", **{REGION: "1"})
    assert "skew 2, 1 past maxSkew" in said(channel, incoming, other)


@pytest.mark.parametrize(
    "other",
    [
        template("c", cpu="500m"),
        template("c", pool="q"),
        {**template("c"), "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}},
    ],
    ids=["too small", "another pool", "tainted"],
)
def test_zone_that_the_pod_may_never_use_does_not_count(channel, other):
    assert said(channel, waiting(), other).endswith(EVEN)
    assert said(channel, waiting(nodeTaintsPolicy="Honor"), other).endswith(EVEN)


def test_option_whose_taint_the_constraint_honours_opens_no_domain(channel):
    incoming = waiting(nodeTaintsPolicy="Honor")
    tainted = {**template("c"), "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
    request = asked((template("b"), 1, [incoming]), (tainted, 1, [incoming]))
    answer = best(channel, request)
    assert groups(answer) == ["ng-b"]
    assert "ng-b places 1 of 1 pods with 1 node, skew 1." in answer.options[0].debug


def test_hosts_are_never_past_max_skew(channel):
    # There is always one more host to open, which says nothing of the choice.
    incoming = waiting(HOST, maxSkew=1)
    wide = asked((template("b", "8"), 1, [incoming] * 3), (template("c"), 3, [incoming] * 3))
    assert "past maxSkew" not in best(channel, wide).options[0].debug


def test_existing_zone_without_pods_counts():
    with served() as server, grpc.insecure_channel(server.address) as channel:
        nodes = [node("a", "1", zone="a", pool="p"), node("e", "100m", zone="e", pool="p")]
        with Peer(server.address) as peer:
            peer.await_revision(peer.apply(*map(written, [*nodes, pod("a1", "a")])))
        incoming = waiting(whenUnsatisfiable="ScheduleAnyway")
        request = asked((template("a"), 1, [incoming]), (template("e"), 1, [incoming]))
        answer = best(channel, request)
        assert groups(answer) == ["ng-e"]
        assert "ng-a places 1 of 1 pods with 1 node, skew 2, 1 past maxSkew (soft)" in (
            answer.options[0].debug
        )


def test_hard_constraints_are_looked_at_before_soft_ones(channel):
    incoming = waiting(ZONE, REGION)
    incoming["spec"]["topologySpreadConstraints"][1]["whenUnsatisfiable"] = "ScheduleAnyway"
    # Zone b is empty, in the region that has most pods; zone d has one, in the other.
    new, known = template("b", **{REGION: "1"}), template("d")
    answer = best(channel, asked((new, 1, [incoming]), (known, 1, [incoming])))
    assert groups(answer) == ["ng-b"]
    assert answer.options[0].debug.startswith("chosen of 2 options by spread: ng-b ")


def test_workloads_of_an_option_are_added_up(channel):
    other = pod("other", key=ZONE, app="other")
    other["spec"]["nodeSelector"] = {"pool": "p"}
    request = asked((template("b"), 1, [waiting(), other]))
    # Zones a, b, d have 2, 1, 1 pods of the one, 0, 1, 0 of the other.
    assert "places 2 of 2 pods with 1 node, skew 2" in best(channel, request).options[0].debug

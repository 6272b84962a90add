"""What following a rollout costs: states × nodes × pods, where no node is like another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.conformance.objects import object_of
from tests.costs.products import ZONE, cluster_object, node, source
from tests.costs.test_products import LINEAR, LINES
from tests.costs.volume_products import claim, volume
from tests.counting import memory, steps
from topospread.api.local import local_api
from topospread.codec.stored import stored
from topospread.service.rollouts.walk import MOST_STATES, RolloutWalk
from topospread_proto.v1 import common_pb2, decision_service_pb2, explanation_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.costs.products import Json

MANY_NODES, MANY_PODS = 1000, 40
MOST_BYTES: Final = 16 << 20
"""Of that many; the states that were kept of one such rollout took several hundred MiB."""


def web(number: int, revision: str, on: str = "") -> Json:
    """A pod with a claim that all replicas share."""
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    labels = {"app": "web", "pod-template-hash": revision}
    spec: Json = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        "topologySpreadConstraints": [spread],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c0"}}],
    }
    if on:
        spec["nodeName"] = on
    metadata = {"name": f"web-{number}", "namespace": "default", "labels": labels}
    return cluster_object("Pod", "", metadata=metadata, spec=spec)


def asked(nodes: int, pods: int) -> Callable[[], explanation_pb2.RolloutOutcome]:
    shared = {"accessModes": ["ReadWriteMany"]}
    objects = [node(each) for each in range(nodes)]
    objects += [claim(0, "pv0", **shared)]
    objects += [volume(0, [], claimRef={"namespace": "default", "name": "c0"}, **shared)]
    objects += [web(each, "old", f"node-{each}") for each in range(pods)]
    api = local_api([stored(object_of(each)) for each in objects])
    request = decision_service_pb2.ExplainPodRequest(
        pod=source(web(pods, "new")),
        fit=common_pb2.FIT_NODE,
        domain_limit=1,
        skip_suggestions=True,
        rolling_update=explanation_pb2.RollingUpdate(max_surge="25%", max_unavailable="25%"),
    )
    request.replica_selector.match_labels["app"] = "web"
    return lambda: api.call("ExplainPod", request).rollout


def test_a_rollout_keeps_little_on_nodes_of_which_none_is_like_another() -> None:
    follow = asked(MANY_NODES, MANY_PODS)
    found = follow()
    assert found.end == explanation_pb2.ROLLOUT_END_COMPLETES
    assert not found.proven
    assert memory(follow).peak < MOST_BYTES


@pytest.mark.parametrize("more", [(2, 1), (1, 2)], ids=["nodes", "pods"])
def test_a_state_costs_the_sum_of_nodes_and_pods(more: tuple[int, int]) -> None:
    nodes, pods = 60, 12
    asked(nodes, pods)()  # so that all is imported
    longest = [
        steps(asked(nodes * more[0] ** each, pods * more[1] ** each)).longest for each in range(3)
    ]
    assert longest[2] <= LINEAR * longest[1] + LINES


def test_no_more_states_are_judged_of_more_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []
    plain = RolloutWalk._with_one

    def counted(walk: RolloutWalk, *state: object) -> object:
        judged.append(1)
        return plain(walk, *state)  # type: ignore[arg-type]

    monkeypatch.setattr(RolloutWalk, "_with_one", counted)
    for pods in (12, 60, 200):
        judged.clear()
        found = asked(max(pods, 60), pods)()
        assert len(judged) <= max(MOST_STATES, 2 * pods + 2)
        assert found.end != explanation_pb2.ROLLOUT_END_UNSPECIFIED

"""After a change only the constraints that it is about are judged again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.service.inspecting.cases import pod_of
from tests.service.world import CLUSTER, PATIENCE, World, node
from topospread.replica.replicas import seconds_from_now
from topospread.replica.view import Consistency, Freshness, Token
from topospread.service.inspecting import cluster_inspector
from topospread.service.inspecting.inspector import Inspector
from topospread.service.inspecting.judging import judge

if TYPE_CHECKING:
    import pytest

    from topospread.service.inspecting.cluster_inspector import Inspection


def pod_of_app(app: str, number: int) -> dict[str, Any]:
    """A pod of a workload whose constraint counts its own pods."""
    return pod_of(
        f"{app}-{number}",
        node="n1",
        owner=f"StatefulSet/{app}",
        labels={"app": app},
        constraints=[{"key": "zone", "labels": {"app": app}}],
    )


def test_others_of_the_namespace_are_not_judged_again(
    empty_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = []

    def judging(key: Any, *rest: Any) -> Any:
        judged.append(key.owner.name)
        return judge(key, *rest)

    monkeypatch.setattr(cluster_inspector, "judge", judging)
    looks_at = Inspector(empty_world.engine)

    def inspected() -> Inspection:
        newest = Consistency(Freshness.AT_LEAST_AS_FRESH, Token.decode(empty_world.revision))
        return looks_at.inspect(CLUSTER, newest, seconds_from_now(PATIENCE))

    empty_world.apply(node("n1", "a"), *(pod_of_app(app, 0) for app in "abcd"))
    first = inspected()
    assert sorted(judged) == ["a", "b", "c", "d"]
    judged.clear()
    empty_world.apply(pod_of_app("b", 1))
    second = inspected()
    assert judged == ["b"]
    assert {each.key.owner.name: each.bound for each in second.statuses.values()} == {
        "a": 1,
        "b": 2,
        "c": 1,
        "d": 1,
    }
    assert first.statuses != second.statuses

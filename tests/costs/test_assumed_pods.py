"""Pods that the extender answered a moment ago: what is kept, and whose go when it is full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from bench.campaigns.grown import pod
from tests.costs.deep import deep_size
from tests.costs.test_caches import MARGIN, _tolerations, shape
from topospread.cache import BUDGETS, LARGEST_KEY
from topospread.service.decisions.pods import PodShapes, ShapedPod
from topospread.service.extender.assumed import AssumedPods

if TYPE_CHECKING:
    from topospread.replica.replica import Replica

ASKING = "asking"


class _View:
    """A state that has none of the pods."""

    identity = "store"

    class revision:  # noqa: N801
        number = 1


class _Replica:
    view = _View()

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster

    def is_counted(self, namespace: str, name: str) -> bool:
        return False


def labelled(namespace: str, **labels: str) -> Any:
    made = pod()
    made.metadata.namespace = namespace
    made.metadata.labels.clear()
    made.metadata.labels.update(labels)
    return made


def shaped(made: Any, name: str) -> ShapedPod:
    """A pod of which nothing is shared with others."""
    return ShapedPod(shape(lambda _: made, 0, PodShapes()), name, "")


def left(assumed: AssumedPods, cluster: str, namespace: str = "default") -> int:
    """Pods that one that comes is to count."""
    replica = cast("Replica", _Replica(cluster))
    return sum(n for _, n in assumed.before(replica, shaped(labelled(namespace), ASKING)))


def answer(assumed: AssumedPods, cluster: str, made: Any, pods: int, node: str = "") -> None:
    each = shaped(made, "")
    for number in range(pods):
        assumed.answered(cluster, each._replace(name=f"pod-{number}"), node)


@pytest.fixture
def assumed() -> AssumedPods:
    return AssumedPods(lambda: 0.0)


LABELS = {f"app.kubernetes.io/label-{n}": f"some-value-of-a-workload-{n}" for n in range(8)}


@pytest.mark.parametrize("rows", ["one", "each", "namespaces", "long"])
def test_bytes_that_are_counted_are_those_kept(assumed: AssumedPods, rows: str) -> None:
    pods = 300
    if rows == "one":
        answer(assumed, "c", labelled("default", **LABELS), pods)
    for number in range(pods if rows != "one" else 0):
        namespace = f"team-{number}" if rows == "namespaces" else "default"
        more = {"x": "y" * 4000} if rows == "long" else {}
        own = {f"{key}-{number}": f"{value}-{number}" for key, value in (LABELS | more).items()}
        each = shaped(labelled(namespace, **own), f"pod-{number}")
        assumed.answered(f"c-{number % 3}", each)
    held = deep_size([assumed], [assumed._budget])
    assert assumed.size / MARGIN < held < MARGIN * assumed.size


def test_a_burst_of_one_workload_is_remembered_as_a_whole(assumed: AssumedPods) -> None:
    """Whatever else than labels its pods have."""
    made = _tolerations(1)
    made.metadata.namespace = "default"
    answer(assumed, "c", made, 2000)
    assert left(assumed, "c") == 2000


def test_a_cluster_drives_out_its_own_pods(assumed: AssumedPods) -> None:
    answer(assumed, "small", labelled("default", app="web"), 100)
    own = {f"label-{number}": "x" * 60 for number in range(40)}
    for number in range(1000):
        made = labelled(f"team-{number % 50}", **own, number=str(number))
        assumed.answered("large", shaped(made, f"pod-{number}"))
    assert assumed._budget.evicted
    assert assumed.size <= BUDGETS["bursts"].most
    assert left(assumed, "small") == 100
    assert left(assumed, "large", "team-49") > 0


def test_a_namespace_drives_out_its_own_pods(assumed: AssumedPods) -> None:
    answer(assumed, "c", labelled("small", app="web"), 100)
    answer(assumed, "c", labelled("large", app="web"), 10_000)
    assert left(assumed, "c", "small") == 100
    assert left(assumed, "c", "large") > 1000


def test_a_pod_with_very_large_labels_is_not_kept(assumed: AssumedPods) -> None:
    answer(assumed, "c", labelled("default", app="web"), 1)
    assumed.answered("c", shaped(labelled("default", app="x" * LARGEST_KEY), "large"))
    assert left(assumed, "c") == 1


def test_nothing_is_left_of_pods_that_are_forgotten() -> None:
    now = 0.0
    assumed = AssumedPods(lambda: now)
    for cluster in ("a", "b"):
        answer(assumed, cluster, labelled("default", app="web"), 10, node="node-1")
        answer(assumed, cluster, labelled("other", app="web"), 10)
    assert left(assumed, "a") == 10
    now = 3600.0
    assert left(assumed, "a") == 0
    assert assumed.size == 0
    assert not assumed._clusters

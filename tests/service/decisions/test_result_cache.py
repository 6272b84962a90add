"""Results are remembered while what they follow from is the same, and never any longer."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.histories import any_change, changed
from tests.reference.strategies import clusters, incoming_pods
from tests.service.placement.placer import Placer, named
from tests.service.world import (
    CLUSTER,
    HOSTNAME,
    ZONE,
    Json,
    World,
    constraint,
    incoming,
    node,
    running,
    soft,
    world,
)
from topospread.codec.frames import framed
from topospread.kube.objects import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY, SpreadConstraint
from topospread.service.decisions.engine import Engine
from topospread.service.decisions.evaluate import Evaluation, evaluate
from topospread.service.decisions.request import NO_OVERRIDE, SettingsOverride
from topospread.spread.settings import LIST, ConfiguredRules, Profile
from topospread.store.model import Kind
from topospread_client import pod_from_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import DrawFn

    from tests.reference.histories import Change

BY_ZONE = Profile("default-scheduler", LIST, (SpreadConstraint(1, ZONE, DO_NOT_SCHEDULE),))
BY_NODE = Profile("by-node", LIST, (SpreadConstraint(3, HOSTNAME, SCHEDULE_ANYWAY),))
CONFIGURED = ConfiguredRules({p.name: p for p in (BY_ZONE, BY_NODE)})
SETTINGS = (NO_OVERRIDE, SettingsOverride(BY_NODE.name))
KINDS = {
    "nodes": Kind.NODE,
    "pods": Kind.POD,
    "services": Kind.SERVICE,
    "replicationControllers": Kind.REPLICATION_CONTROLLER,
    "replicaSets": Kind.REPLICA_SET,
    "statefulSets": Kind.STATEFUL_SET,
}


class Asker:
    """An engine of its own over a world's replica, asked as a transport asks.

    Attributes:
        readings: of the engine's clock, so far.
        meanwhile: done while the first question is answered.
    """

    def __init__(self, asked: World, *, remembers: bool) -> None:
        self.readings = count()
        self.meanwhile: Callable[[], object] | None = None
        self._world = asked
        process = asked.process
        self.engine = Engine(
            process.replicas,
            asked.store,
            process.rules,
            process.cycles,
            clock=self._clock,
            remembers=remembers,
        )

    def _clock(self) -> float:
        reading = next(self.readings)
        # The third reading is after the state was found and before it is judged.
        if self.meanwhile is not None and reading == 2:
            self.meanwhile()
        return float(reading)

    def evaluate(self, pod: Json, top_k: int = 0, **others: Any) -> Evaluation:
        """The judgement of a pod, which is read as far as its shape."""
        encoded = pod_from_manifest(pod).SerializeToString()
        ask = self._world.ask(self.engine.intern(framed(encoded)), **others)
        return evaluate(self.engine, ask, top_k)

    def judges(self, pod: Json, top_k: int = 0, **others: Any) -> bool:
        """Whether a judgement is made: the clock is read for each of its stages."""
        before = next(self.readings)
        self.evaluate(pod, top_k, **others)
        # Twice it is read in any case, for how long it took to find the state.
        return next(self.readings) - before > 3


# ------------------------------ remembered


@pytest.fixture
def asker(three_zones: World) -> Asker:
    return Asker(three_zones, remembers=True)


PODS = {
    "hard": incoming(constraint()),
    "soft": incoming(soft(HOSTNAME)),
    "hard and soft": incoming(constraint(maxSkew=2), soft(HOSTNAME)),
    "fits nowhere": incoming(constraint("rack")),
}


def test_results_that_name_many_nodes_are_bounded_in_bytes(empty_world: World):
    empty_world.apply(*(node(f"n{number}", "a") for number in range(400)))
    asker, pod = Asker(empty_world, remembers=True), PODS["hard"]
    for top_k in range(400, 499):
        asker.evaluate(pod, top_k)

    evaluation = asker.evaluate(pod, 499)
    snapshot = evaluation.resolved.cycle.view.snapshot
    (group,) = evaluation.resolved.cycle.effective.groups
    assert len(evaluation.top) == 400
    assert not asker.judges(pod, 499)
    assert snapshot.groups[group].memo.size < 2 << 20


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_while_nothing_changes_a_pod_is_judged_once(asker, pod):
    assert asker.judges(pod)
    assert not asker.judges(pod)
    first, second = asker.evaluate(pod), asker.evaluate(pod)
    assert first.parts == second.parts
    assert first.top is second.top


def test_pods_of_one_shape_share_it(asker):
    assert asker.judges(named("web-1", constraint()))
    assert not asker.judges(named("web-2", constraint(), uid="u2"))
    assert asker.judges(named("web-3", constraint(maxSkew=2)))


def test_each_number_of_nodes_is_a_result_of_its_own(asker):
    pod = incoming(soft())
    assert [len(asker.evaluate(pod, top_k).top) for top_k in (1, 2, 3, 1, 2, 3)] == [1, 2, 3] * 2
    assert not asker.judges(pod, 2)


def test_an_unrelated_change_forgets_nothing(asker, three_zones):
    pod = incoming(constraint())
    asker.evaluate(pod)
    revision = three_zones.apply(running("db-1", "n-a", app="db"))
    assert not asker.judges(pod)
    assert asker.evaluate(pod).resolved.cycle.view.token == revision


@pytest.mark.parametrize(
    "change",
    [
        lambda world: world.apply(running("w9", "n-c")),
        lambda world: world.delete(Kind.POD, "w1", "default"),
        lambda world: world.apply(node("n-d", "d")),
        lambda world: world.apply(node("n-c", "a")),
        lambda world: world.delete(Kind.NODE, "n-c"),
    ],
    ids=["a pod starts", "a pod ends", "a node appears", "a node moves", "a node goes"],
)
def test_change_of_an_input_invalidates_the_result(asker, three_zones, change):
    pod = incoming(constraint(), soft(HOSTNAME))
    asker.evaluate(pod)
    change(three_zones)
    assert asker.judges(pod)
    assert not asker.judges(pod)


@pytest.mark.parametrize("app", ["web", "db"])
@pytest.mark.parametrize(
    "pod",
    [
        incoming(constraint(), soft(ZONE, "db")),
        incoming(soft(), constraint(ZONE, "db")),
    ],
    ids=["web is hard", "db is hard"],
)
def test_each_selector_of_a_pod_counts(asker, three_zones, pod, app):
    asker.evaluate(pod)
    three_zones.apply(running("one-more", "n-c", app=app))
    assert asker.judges(pod)
    assert not asker.judges(pod)


def test_a_late_judgement_of_an_old_state_is_not_remembered_for_the_new_one(asker, three_zones):
    def node_goes() -> None:
        three_zones.delete(Kind.NODE, "n-c")
        newest = three_zones.ask()
        three_zones.process.replicas.resolve(CLUSTER, newest.consistency, newest.deadline)

    asker.meanwhile = node_goes
    pod = incoming(soft())
    assert asker.evaluate(pod).nodes == 3
    assert asker.evaluate(pod).nodes == 2


@pytest.mark.parametrize(
    "others",
    [
        {"nodes": ["n-a", "n-c"]},
        {"add": [(running("w8", "n-c"), "n-c")]},
        {"remove": [(running("w3", "n-b"), "n-b")]},
    ],
    ids=["chosen nodes", "a pod more", "a pod less"],
)
def test_what_ifs_and_choices_are_judged_each_time(asker, others):
    pod = incoming(constraint())
    plain = asker.evaluate(pod).parts
    for _ in range(2):
        assert asker.judges(pod, **others)
        assert asker.evaluate(pod, **others).parts != plain
    assert asker.evaluate(pod).parts == plain


def test_a_pods_own_reservation_is_in_no_siblings_result(three_zones):
    asker = Asker(three_zones, remembers=True)
    placer = Placer(three_zones, asker.engine)
    first, sibling = (
        named("first", constraint(), uid="u1"),
        named("sibling", constraint(), uid="u2"),
    )
    placer.reserve(first, "n-c")
    for _ in range(2):
        # Zone c counts the place that is held, but not for the pod that holds it.
        assert [best.name for best in asker.evaluate(first).top] == ["n-c"]
        assert [best.name for best in asker.evaluate(sibling).top] == ["n-b", "n-c"]


def test_cache_of_results_may_be_turned_off(three_zones):
    asker = Asker(three_zones, remembers=False)
    assert [asker.judges(incoming(constraint())) for _ in range(3)] == [True] * 3


# ------------------------------ at every point of a history


@dataclass(frozen=True)
class History:
    """A cluster, the changes to it, batch by batch, and the pods asked about after each."""

    start: Json
    batches: list[list[Change]]
    pods: list[Json]


@st.composite
def history(draw: DrawFn) -> History:
    start = cluster = draw(clusters())
    pods = draw(st.lists(incoming_pods(), min_size=2, max_size=3))
    batches = []
    for size in draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)):
        batch = []
        for _ in range(size):
            change = draw(any_change(cluster))
            cluster = changed(cluster, change)
            batch.append(change)
        batches.append(batch)
    return History(start, batches, pods)


@given(history())
def test_engines_with_and_without_the_cache_agree(story: History) -> None:
    """Also while few groups are kept, so that each question takes others' away."""
    with world(max_groups=2) as made:
        made.process.rules.replace(CONFIGURED)
        start = [manifest for kind in KINDS for manifest in story.start[kind]]
        made.apply(node("somewhere"), *start, cluster=CLUSTER)
        remembering, forgetting = Asker(made, remembers=True), Asker(made, remembers=False)
        for batch in ([], *story.batches):
            for change in batch:
                write(made, change)
            for pod, settings in product(story.pods, SETTINGS):
                for top_k in (1000, 1, 1000):
                    asked = remembering.evaluate(pod, top_k, settings=settings)
                    expected = forgetting.evaluate(pod, top_k, settings=settings)
                    assert asked.parts == expected.parts
                    assert token(asked) == token(expected) == made.revision


def write(made: World, change: Change) -> None:
    if change.gone:
        metadata = change.object["metadata"]
        made.delete(KINDS[change.kind], metadata["name"], metadata.get("namespace", ""))
    else:
        made.apply(change.object)


def token(evaluation: Evaluation) -> str:
    return evaluation.resolved.cycle.view.token

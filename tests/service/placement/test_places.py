"""Those who wait for places of one namespace get them in one write, as if one after the other."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import closing, contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.service.placement.placer import Placer, bound, named, untraced
from tests.service.world import (
    CLUSTER,
    HOSTNAME,
    PATIENCE,
    World,
    constraint,
    node,
    running,
    world,
)
from topospread.cache import BUDGETS
from topospread.checkpoints import Computation
from topospread.errors import CallerGone, Conflict, DeadlineExceeded, StoreUnavailable
from topospread.replica.replicas import Replicas, seconds_from_now
from topospread.replica.state import ReplicaOptions
from topospread.service.decisions.engine import Engine
from topospread.service.decisions.request import DecisionRequest, ProfileRegistry
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit
from topospread.service.placement.place import choose
from topospread.service.placement.places import Places
from topospread.service.placement.tasks import MOST, PlacementResult, PlacementTask
from topospread.store.model import Key, Kind, Revision
from topospread_client import pod_from_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.service.decisions.cycle import Cycle
    from topospread.service.placement.tasks import Rejection
    from topospread.store.api import Store
    from topospread.store.model import Transaction

Json = dict[str, Any]

BY_ZONE = constraint()
SCOPE = (CLUSTER, "default")


@pytest.fixture
def placer(three_zones: World) -> Placer:
    made = Placer(three_zones)
    made.held()  # it follows the cluster
    return made


def best(cycle: Cycle, held: Any) -> str | Rejection:
    return choose(cycle, suited(cycle.asked, Fit.ALL), held=held)


def task_of(
    placer: Placer,
    pod: Json,
    chooses: Callable[[Cycle, Any], str | Rejection] = best,
    seconds: float = 30.0,
    caller: Computation | None = None,
) -> PlacementTask:
    """The task of a caller."""
    message = pod_from_manifest(pod).SerializeToString()
    request = DecisionRequest(seconds_from_now(seconds), CLUSTER)
    wanted = placer.holding.new_request(request, message, 60_000)
    changed = threading.Condition(placer.holding.waiting.lock)
    return PlacementTask(wanted, chooses, untraced, changed, caller)


def place_all(placer: Placer, tasks: list[PlacementTask]) -> None:
    """Have tasks judged until each has its result."""
    while tasks:
        tasks = placer.holding.place_many(tasks)


@contextmanager
def busy(placer: Placer) -> Iterator[None]:
    """Another thread places in the namespace."""
    placer.holding.waiting._busy.add(SCOPE)
    try:
        yield
    finally:
        placer.holding.waiting.release(SCOPE, [], 0.0)


@contextmanager
def waiting(placer: Placer, pods: list[Json]) -> Iterator[list[PlacementResult]]:
    """Callers that wait until the block ends; then their answers, in order."""
    found = dict[int, PlacementResult]()
    answers: list[PlacementResult] = []

    def call(number: int) -> None:
        found[number] = placer.place(pods[number])

    threads = []
    with busy(placer):
        for number in range(len(pods)):
            threads.append(threading.Thread(target=call, args=(number,)))
            threads[-1].start()
            while len(placer.holding.waiting._waiting.get(SCOPE, ())) <= number:
                time.sleep(0.001)
        yield answers
    for thread in threads:
        thread.join()
    answers += [found[number] for number in range(len(pods))]


def written_after(placer: Placer, revision: Revision) -> list[Transaction]:
    identity = placer.world.store.head(CLUSTER).identity
    return list(placer.world.store.follow(CLUSTER, identity, revision, wait=0))


def head(placer: Placer) -> Revision:
    return placer.world.store.head(CLUSTER).revision


def held_in(store: Store) -> dict[str, str]:
    keys = [Key(Kind.RESERVATION, "default", name) for name in "abcdefgh"]
    return {stored.key.name: stored.uid for stored in store.get(CLUSTER, keys)}


def test_calls_that_wait_are_judged_in_order_and_written_together(placer: Placer):
    before = head(placer)
    with waiting(placer, [named(name, BY_ZONE) for name in "abcd"]) as answers:
        pass

    (transaction,) = written_after(placer, before)
    nodes = {name: answer.node for name, answer in zip("abcd", answers, strict=True)}
    assert [entry.key.name for entry in transaction.entries] == list("abcd")
    # The zones held 2, 1 and 0 before.
    total = Counter({"n-a": 2, "n-b": 1}) + Counter(nodes.values())
    assert sorted(total.values()) == [2, 2, 3]
    assert len({answer.token for answer in answers}) == 1
    assert placer.held() == {f"default/{name}": node for name, node in nodes.items()}


def test_write_is_never_larger_than_the_limit(placer: Placer):
    before = head(placer)
    with waiting(placer, [named(f"p{number}") for number in range(MOST + 3)]):
        pass

    sizes = [len(transaction.entries) for transaction in written_after(placer, before)]
    assert sizes == [MOST, 3]


def test_a_pod_twice_is_placed_in_order(placer: Placer):
    before = head(placer)
    pods = [named("a", uid="first"), named("a", uid="second"), named("b")]
    with waiting(placer, pods) as found:
        pass

    placed = [entry.object for each in written_after(placer, before) for entry in each.entries]
    assert [row.uid for row in placed if row is not None] == ["first", "", "second"]
    assert len(placer.held()) == 2
    assert all(answer.node for answer in found)


def test_rejected_or_bound_pod_does_not_stop_others(placer: Placer):
    pod = named("bound", BY_ZONE)
    placer.apply(bound(pod, "n-c"))
    nowhere = named("nowhere", constraint("example.com/rack"))
    broken = named("broken", constraint(labelSelector={"matchLabels": {"a b": "c"}}))
    with waiting(placer, [pod, nowhere, broken, named("a", BY_ZONE)]) as answers:
        pass

    assert [answer.node for answer in answers][:3] == ["n-c", "", ""]
    assert answers[0].already_bound
    assert answers[1].message.startswith("0/3 nodes are available: 3 ")
    assert placer.held() == {"default/a": answers[3].node}


def test_moved_pod_frees_its_old_place_for_the_next_one(placer: Placer):
    first = placer.place(named("a", BY_ZONE))
    assert first.node == "n-c"
    moved = named("a", constraint(maxSkew=9))
    moved["metadata"]["labels"] = {"app": "other"}
    with waiting(placer, [moved, named("b", BY_ZONE)]) as answers:
        pass

    # With a's place in zone c gone, only that zone takes b.
    assert answers[1].node == "n-c"


# ------------------------------ many are placed as one after the other


def random_pods(random: Random) -> list[Json]:
    """Pods of different names; some cannot be placed, some are placed already."""
    choices: tuple[list[Json], ...] = (
        [],
        [BY_ZONE],
        [constraint(maxSkew=2), constraint(HOSTNAME)],
        [constraint(minDomains=4)],
        [constraint(app="other")],
    )
    pods = []
    for number in range(random.randrange(2, 12)):
        cpu = {"resources": {"requests": {"cpu": random.choice(["100m", "900m"])}}}
        container = {"name": "c"} | cpu
        pod = named(f"p{number}", *random.choice(choices), containers=[container])
        pod["metadata"]["labels"] = {"app": random.choice(["web", "web", "other"])}
        pods.append(pod)
    return pods


@pytest.mark.parametrize("seed", range(12))
def test_many_are_placed_as_one_after_the_other(seed: int):
    """With reservations, predecessors and resources; fit and seed are those of PlacePod."""
    random = Random(seed)
    pods = random_pods(random)
    earlier = [pod for pod in pods if random.random() < 0.3]
    answers = []
    for together in (True, False):
        with world() as start:
            start.apply(
                *(
                    node(f"n{number}", "abc"[number % 3])
                    | {"status": {"allocatable": {"cpu": "2", "pods": "5"}}}
                    for number in range(6)
                ),
                running("w1", "n0"),
                running("w2", "n1"),
            )
            placer = Placer(start)
            for pod in earlier:
                old = pod | {"metadata": pod["metadata"] | {"uid": "old"}}
                placer.place(old)
            placer.held()
            if together:
                before = head(placer)
                with waiting(placer, pods) as found:
                    pass
                assert len(written_after(placer, before)) <= 1
            else:
                found = [placer.place(pod) for pod in pods]
            answers.append(
                ([(each.node, each.message, each.status) for each in found], placer.held())
            )
    assert answers[0] == answers[1]


# ------------------------------ who has gone gets no place


def test_waiting_ends_before_the_deadline(placer: Placer):
    task = task_of(placer, named("late", BY_ZONE), seconds=0.2)
    with busy(placer), pytest.raises(DeadlineExceeded, match="'default'"):
        placer.holding.hold(task.placement, best, untraced)

    # Nobody seeks a place for whoever has gone.
    assert placer.place(named("a", BY_ZONE)).node == "n-c"
    assert placer.held() == {"default/a": "n-c"}
    assert placer.holding.waiting._waiting == {}


@pytest.mark.parametrize("why", ["late", "cancelled"])
def test_caller_that_has_gone_while_it_was_judged_gets_no_place(placer: Placer, why: str):
    active = [True]
    caller = Computation(seconds_from_now(30.0), lambda: active[0])
    gone = task_of(placer, named("a", BY_ZONE), caller=caller)

    def choose_while_it_goes(cycle: Cycle, held: Any) -> str | Rejection:
        active[0] = why == "late"
        if why == "late":
            gone.give_up_at = 0.0
        return best(cycle, held)

    other = task_of(placer, named("b", BY_ZONE), choose_while_it_goes)
    place_all(placer, [gone, other])

    with pytest.raises(DeadlineExceeded if why == "late" else CallerGone):
        gone.result()
    # Zone c is the one that takes a pod; with a's place there, b would have gone to another.
    assert other.result().node == "n-c"
    assert placer.held() == {"default/b": "n-c"}


class Wrapped:
    """A store with another apply()."""

    def __init__(self, store: Store, apply: Callable[..., Any]) -> None:
        self._store = store
        self.apply = apply

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_a_caller_waits_for_the_write_that_has_begun(placer: Placer):
    """Its time for tries ends with the write under way, not its time for an answer."""
    store, began, late = placer.world.store, threading.Event(), threading.Event()

    def apply(*given: Any, **options: Any) -> Any:
        began.set()
        assert late.wait(30.0)
        return store.apply(*given, **options)

    placer.holding.store = cast("Store", Wrapped(store, apply))
    with waiting(placer, [named("a", BY_ZONE), named("b")]) as answers:
        second = placer.holding.waiting._waiting[SCOPE][1]
        threading.Thread(target=_make_late, args=(second, began, late)).start()

    assert [bool(answer.node) for answer in answers] == [True, True]
    assert set(placer.held()) == {"default/a", "default/b"}


def _make_late(task: PlacementTask, began: threading.Event, late: threading.Event) -> None:
    began.wait(30.0)
    with task.changed:
        task.give_up_at = 0.0
        task.changed.notify()
    late.set()


def test_an_answer_is_given_when_this_server_has_seen_the_write(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    task, early, shown = task_of(placer, named("a")), list[bool](), placer.holding.show

    def show(*given: Any) -> None:
        early.append(task.done)
        shown(*given)

    monkeypatch.setattr(placer.holding, "show", show)
    place_all(placer, [task])

    assert early == [False]
    assert task.result().node


# ------------------------------ the state is too old, or the store out of reach


def test_pod_is_not_rejected_by_a_state_that_may_be_old(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    """The store is out of reach: who would be refused is told so, and others are placed."""

    def follow(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("out of reach")

    nowhere = constraint("example.com/rack")
    tasks = [task_of(placer, named("a", nowhere)), task_of(placer, named("b", nowhere))]
    replica = placer.engine.replicas.get(CLUSTER)
    monkeypatch.setattr(replica, "catch_up", follow)
    place_all(placer, [*tasks, task_of(placer, named("c"))])

    for task in tasks:
        with pytest.raises(StoreUnavailable):
            task.result()
    assert list(held_in(placer.world.store)) == ["c"]


def test_failed_write_is_reported_to_all_that_it_was_for(placer: Placer):
    def apply(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("out of reach")

    placer.holding.store = cast("Store", Wrapped(placer.world.store, apply))
    tasks = [task_of(placer, named(name)) for name in "ab"]
    place_all(placer, tasks)

    for task in tasks:
        with pytest.raises(StoreUnavailable):
            task.result()


def test_conflicts_until_the_deadline_end_aborted(placer: Placer):
    """Each time others were first; at last the callers' time is over."""
    store = placer.world.store
    tasks = [task_of(placer, named(name, BY_ZONE)) for name in "ab"]

    def apply(*given: Any, **options: Any) -> Any:
        if not tasks[0].done:
            conflicts = tasks[0].placement.conflicts
            if conflicts == 2:
                tasks[0].give_up_at = 0.0
            placer.apply(running(f"x{conflicts}", "n-a"))
        return store.apply(*given, **options)

    placer.holding.store = cast("Store", Wrapped(store, apply))
    placer.apply(*(node(f"n-c{number}", "c") for number in range(9)))
    place_all(placer, tasks)

    with pytest.raises(Conflict, match="changed 3 times"):
        tasks[0].result()
    assert tasks[1].result().node
    assert list(held_in(store)) == ["b"]


class SlowStore:
    """A store whose objects can be listed once somebody waits for them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wanted = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self._wanted.set()
        yield

    def scan(self, *given: Any, **options: Any) -> Any:
        self._wanted.wait(30.0)
        return self._store.scan(*given, **options)


def test_placements_wait_for_a_cluster_that_is_loading(
    three_zones: World, monkeypatch: pytest.MonkeyPatch
):
    """Those behind the first, who was told to try again, ended in an error of the server."""
    slow = SlowStore(three_zones.store)
    source = cast("Store", slow)
    monkeypatch.setattr("topospread.replica.replicas.waiting", slow.waiting)
    with closing(Replicas(source, ReplicaOptions())) as replicas:
        replicas._started(CLUSTER)
        placer = Placer(
            three_zones, Engine(replicas, source, ProfileRegistry(), three_zones.process.cycles)
        )
        with waiting(placer, [named(name, BY_ZONE) for name in "abc"]) as answers:
            pass
        assert len(placer.held()) == 3
    assert all(answer.node for answer in answers)


# ------------------------------ what it costs


class RoundTrips:
    """A store that notes what is asked of it, in order; another write comes before some of them."""

    def __init__(self, placer: Placer, conflicts: int, *, followed: bool = False) -> None:
        self.asked: list[str] = []
        self._store = placer.world.store
        self._placer = placer
        self._conflicts = conflicts
        self._followed = followed

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._store, name)

    def apply(self, *given: Any, **options: Any) -> Any:
        self.asked.append("apply")
        if self._conflicts:
            self._conflicts -= 1
            self._placer.apply(running(f"other{self._conflicts}", "n-a"))
            if self._followed:  # it comes by itself
                replica = self._placer.engine.replicas.get(CLUSTER)
                assert replica is not None
                asked = list(self.asked)
                replica.catch_up()
                self.asked = asked
        return self._store.apply(*given, **options)


@pytest.mark.parametrize(
    ("conflicts", "followed", "pod", "asked"),
    [
        (0, False, named("a", BY_ZONE), ["apply"]),
        (2, False, named("a"), ["apply", "follow", "apply", "follow", "apply"]),
        (2, True, named("a"), ["apply", "apply", "apply"]),
        (0, False, named("a", constraint("example.com/rack")), ["follow"]),
        (0, False, named("w1"), ["get"]),
    ],
    ids=["held", "conflicts", "conflicts-seen", "refused", "bound"],
)
def test_round_trips_to_the_store(
    three_zones: World, conflicts: int, followed: bool, pod: Json, asked: list[str]
):
    """Few, so that places come through to a store that is far away."""
    placer = Placer(three_zones)
    store = RoundTrips(placer, conflicts, followed=followed)
    with closing(Replicas(cast("Store", store), ReplicaOptions(follows=False))) as replicas:
        process = three_zones.process
        placer.engine = Engine(
            replicas, cast("Store", store), ProfileRegistry(), process.cycles, process.engine.limits
        )
        replicas.preload([CLUSTER], seconds_from_now(30.0))
        placer.holding = Places(placer.engine, cast("Store", store))
        task = task_of(placer, pod)
        store.asked.clear()
        place_all(placer, [task])
        assert store.asked == asked

    assert task.placement.conflicts == conflicts


class Ticking:
    """Processor time that goes on by 30 ms with each look at it."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 0.03
        return self._now


def test_long_computed_placements_are_written_before_the_next_is_judged(placer: Placer):
    placer.holding = Places(placer.engine, placer.world.store, thread_time=Ticking())
    before = head(placer)
    with waiting(placer, [named(f"p{number}", BY_ZONE) for number in range(8)]) as answers:
        pass

    assert all(answer.node for answer in answers)
    sizes = [len(transaction.entries) for transaction in written_after(placer, before)]
    assert sizes == [2, 2, 2, 2]  # two are 60 ms


def test_a_caller_is_let_go_once_its_place_is_held(placer: Placer):
    """Those behind it are placed by threads of their own."""
    store, writers = placer.world.store, list[int]()

    def apply(*given: Any, **options: Any) -> Any:
        writers.append(threading.get_ident())
        return store.apply(*given, **options)

    wrapped = cast("Store", Wrapped(store, apply))
    placer.holding = Places(placer.engine, wrapped, thread_time=Ticking())
    with waiting(placer, [named(f"p{number}", BY_ZONE) for number in range(8)]) as answers:
        pass

    assert all(answer.node for answer in answers)
    assert len(writers) == len(set(writers)) == 4


def test_the_next_one_is_called_when_the_first_has_gone(placer: Placer):
    tasks = [task_of(placer, named("a"), seconds=0.2), task_of(placer, named("b"))]
    queue = placer.holding.waiting
    for task in tasks:
        queue.join(task)
    led = list[bool]()
    with busy(placer):
        threads = [
            threading.Thread(target=lambda task=task: led.append(queue.leads(task)))
            for task in tasks
        ]
        for thread in threads:
            thread.start()
        # The first one is called, and its time is over before it runs.
        with queue.lock:
            queue._busy.discard(SCOPE)
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    assert led == [False, True]


def test_a_rest_makes_no_call_late(placer: Placer):
    placer.holding.waiting._rests[SCOPE] = time.monotonic() + 1000.0
    task = task_of(placer, named("a"), seconds=1.0)
    assert placer.holding.hold(task.placement, best, untraced).node


def test_cache_of_reservation_templates_is_bounded_in_bytes(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    most = 200_000
    monkeypatch.setattr(BUDGETS["claims"], "most", most)
    for number in range(40):
        values = [f"{number}-{value}" for value in range(50)]
        expression = {"key": "app", "operator": "NotIn", "values": values}
        placer.place(named("a", constraint(labelSelector={"matchExpressions": [expression]})))

    templates = placer.holding._templates
    assert 0 < len(templates) < 40
    assert templates.size <= most

"""Those who stand in line for places of one namespace get them in one write."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.service.placement.placer import Placer, bound, named, untraced
from tests.service.world import CLUSTER, World, constraint
from topospread.cache import BUDGETS
from topospread.errors import (
    DeadlineExceeded,
    StoreUnavailable,
    TopospreadError,
)
from topospread.kube.demands import NO_DEMAND
from topospread.replica.replica import Replica
from topospread.replica.replicas import Replicas, seconds_from_now
from topospread.replica.state import ReplicaOptions
from topospread.service.decisions.engine import Engine
from topospread.service.decisions.request import DecisionRequest, ProfileRegistry
from topospread.service.placement.coordinator import MOST, PlacementCoordinator
from topospread.service.placement.place import Preference, place
from topospread.service.placement.place import choose as chosen
from topospread.service.placement.requests import PlacementResult, PlacementTask
from topospread.store.model import Revision, StoredObject
from topospread_client import pod_from_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.service.decisions.cycle import Cycle
    from topospread.service.placement.requests import Choose, NamespaceQueue, Rejection
    from topospread.store.api import Store
    from topospread.store.model import Transaction

BY_ZONE = constraint()


@pytest.fixture
def placer(three_zones: World) -> Placer:
    made = Placer(three_zones)
    made.held()  # it follows the cluster
    return made


def line_of(placer: Placer, pod: dict[str, Any]) -> NamespaceQueue:
    wanted = placer.wanted(pod)
    return placer.holding._queues[hash(wanted.place) % len(placer.holding._queues)]


@contextmanager
def led(queue: NamespaceQueue) -> Iterator[None]:
    """The line, led by this thread."""
    queue.lock.acquire()
    try:
        yield
    finally:
        queue.release()


@contextmanager
def in_line(placer: Placer, pods: list[dict[str, Any]]) -> Iterator[list[PlacementResult]]:
    """Callers that stand in line until the block ends; then their answers, in order."""
    queue, found = line_of(placer, pods[0]), dict[int, PlacementResult]()
    answers: list[PlacementResult] = []

    def call(number: int) -> None:
        found[number] = placer.place(pods[number])

    threads = []
    with led(queue):
        for number in range(len(pods)):
            threads.append(threading.Thread(target=call, args=(number,)))
            threads[-1].start()
            while len(queue.tasks) <= number:
                time.sleep(0.001)
        yield answers
    for thread in threads:
        thread.join()
    answers += [found[number] for number in range(len(pods))]


def written_after(placer: Placer, revision: Revision) -> list[Transaction]:
    identity = placer.world.store.head(CLUSTER).identity
    return list(placer.world.store.follow(CLUSTER, identity, revision, wait=0))


def test_placements_are_judged_in_order_and_written_together(placer: Placer):
    before = placer.world.store.head(CLUSTER).revision
    with in_line(placer, [named(name, BY_ZONE) for name in "abcd"]) as answers:
        pass

    (transaction,) = written_after(placer, before)
    held = [
        (entry.key.name, entry.object)
        for entry in transaction.entries
        if isinstance(entry.object, StoredObject)
    ]
    nodes = {name: answer.node for name, answer in zip("abcd", answers, strict=True)}
    assert sorted(name for name, _ in held) == list("abcd")
    # The zones held 2, 1 and 0 before.
    total = Counter({"n-a": 2, "n-b": 1}) + Counter(nodes.values())
    assert sorted(total.values()) == [2, 2, 3]
    assert len({answer.token for answer in answers}) == 1
    assert placer.held() == {f"default/{name}": node for name, node in nodes.items()}


def test_write_is_never_larger_than_the_limit(placer: Placer):
    before = placer.world.store.head(CLUSTER).revision
    with in_line(placer, [named(f"p{number}") for number in range(MOST + 3)]):
        pass

    sizes = [len(transaction.entries) for transaction in written_after(placer, before)]
    assert sizes == [MOST, 3]


def test_the_same_pod_twice_is_placed_once_and_renewed(placer: Placer):
    with in_line(placer, [named("a", BY_ZONE), named("a", BY_ZONE), named("b", BY_ZONE)]) as found:
        pass

    assert found[0].node == found[1].node
    assert len(placer.held()) == 2


def test_rejected_or_bound_pod_does_not_stop_others(placer: Placer):
    pod = named("bound", BY_ZONE)
    placer.apply(bound(pod, "n-c"))
    nowhere = named("nowhere", constraint("example.com/rack"))
    broken = named("broken", constraint(labelSelector={"matchLabels": {"a b": "c"}}))
    with in_line(placer, [pod, nowhere, broken, named("a", BY_ZONE)]) as answers:
        pass

    assert [answer.node for answer in answers][:3] == ["n-c", "", ""]
    assert answers[0].already_bound
    assert answers[1].message.startswith("0/3 nodes are available: 3 ")
    assert placer.held() == {"default/a": answers[3].node}


def test_moved_pod_frees_its_old_place_for_the_next_placement(placer: Placer):
    first = placer.place(named("a", BY_ZONE))
    assert first.node == "n-c"
    moved = named("a", constraint(maxSkew=9))
    moved["metadata"]["labels"] = {"app": "other"}
    with in_line(placer, [moved, named("b", BY_ZONE)]) as answers:
        pass

    # With a's place in zone c gone, only that zone takes b.
    assert answers[1].node == "n-c"


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

    def scan(self, cluster: str, page: int = 2000) -> Iterator[Sequence[StoredObject]]:
        self._wanted.wait(30.0)
        return self._store.scan(cluster, page)


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
        with in_line(placer, [named(name, BY_ZONE) for name in "abc"]) as answers:
            pass
        assert len(placer.held()) == 3
    assert all(answer.node for answer in answers)


def wait_in_line(placer: Placer, holding: PlacementCoordinator, seconds: float) -> PlacementResult:
    pod = pod_from_manifest(named("late", BY_ZONE)).SerializeToString()
    wanted = holding.new_request(DecisionRequest(seconds_from_now(seconds), CLUSTER), pod, 60_000)
    queue = holding._queues[hash(wanted.place) % len(holding._queues)]
    with led(queue):
        return place(holding, wanted, Preference(), untraced)


def test_waiting_in_the_queue_ends_at_the_deadline(placer: Placer):
    holding = PlacementCoordinator(placer.engine, placer.world.store)
    with pytest.raises(DeadlineExceeded, match="'default'"):
        wait_in_line(placer, holding, 1.0)
    assert placer.held() == {}
    # Nobody seeks a place for whoever has gone.
    assert placer.place(named("a", BY_ZONE)).node == "n-c"
    assert placer.held() == {"default/a": "n-c"}


class Counting:
    """Processor time that goes on by 30 ms with each look at it."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 0.03
        return self._now


def test_long_computed_placements_are_written_before_the_next_is_judged(placer: Placer):
    placer.holding = PlacementCoordinator(placer.engine, placer.world.store, thread_time=Counting())
    before = placer.world.store.head(CLUSTER).revision
    with in_line(placer, [named(f"p{number}", BY_ZONE) for number in range(8)]) as answers:
        pass

    assert all(answer.node for answer in answers)
    sizes = [len(transaction.entries) for transaction in written_after(placer, before)]
    # Two are 60 ms; the one that the thread itself waits for is judged in any case.
    assert sum(sizes) == 8
    assert max(sizes) <= 3


def judged_by_hand(placer: Placer, pod: dict[str, Any], choose: Choose) -> PlacementResult:
    """The place of a pod that is sought with all that stand in line, by the holder of its lock."""
    queue, task = line_of(placer, pod), PlacementTask(placer.wanted(pod), choose, untraced)
    queue.tasks.append(task)
    placer.holding._batches.run(task, queue.take(task, MOST), queue)
    return task.result()


def in_another_thread(placer: Placer, pod: dict[str, Any], seconds: float, found: list[Any]) -> Any:
    """A caller that stands in line for a pod, with a deadline; then its answer, or its error."""
    message = pod_from_manifest(pod).SerializeToString()
    queue = line_of(placer, pod)
    number = len(queue.tasks)

    def call() -> None:
        wanted = placer.holding.new_request(
            DecisionRequest(seconds_from_now(seconds), CLUSTER), message, 60_000
        )
        try:
            found.append(place(placer.holding, wanted, Preference(), untraced))
        except TopospreadError as failure:
            found.append(failure)

    thread = threading.Thread(target=call)
    thread.start()
    while len(queue.tasks) == number:
        time.sleep(0.001)
    return thread


def test_caller_that_gave_up_meanwhile_gets_no_place(placer: Placer):
    pod, found = named("b", BY_ZONE), list[Any]()

    def choose(cycle: Cycle, held: Any) -> str | Rejection:
        thread.join()  # it is judged until the other's time is over
        return chosen(cycle, NO_DEMAND, Preference())

    queue = line_of(placer, pod)
    with led(queue):
        thread = in_another_thread(placer, named("a", BY_ZONE), 1.0, found)
        held = judged_by_hand(placer, pod, choose)

    assert isinstance(found[0], DeadlineExceeded)
    # Zone c is the one that takes a pod; with a's place there, b would have gone to another.
    assert held.node == "n-c"
    assert placer.held() == {"default/b": "n-c"}


def test_a_caller_waits_for_the_write_that_has_begun(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    """Its time for other tries ends with the write under way, not its time for an answer."""
    monkeypatch.setattr("topospread.service.placement.requests.GIVE_UP", 29.5)
    pod, found, began = named("b"), list[Any](), threading.Event()

    def apply(*given: Any, **options: Any) -> Any:
        began.set()
        while not waiting.abandoned:
            time.sleep(0.001)
        return store.apply(*given, **options)

    store = placer.world.store
    slow = cast("Store", SimpleNamespace(apply=apply, get=store.get))
    placer.holding._batches._store = slow
    queue = line_of(placer, pod)
    with led(queue):
        thread = in_another_thread(placer, named("a", BY_ZONE), 30.0, found)
        (waiting,) = queue.tasks
        held = judged_by_hand(
            placer, pod, lambda cycle, held: chosen(cycle, NO_DEMAND, Preference())
        )
    thread.join()

    assert began.is_set()
    assert found[0].node == "n-c"
    assert placer.held() == {"default/a": "n-c", "default/b": held.node}


def by_score(cycle: Cycle, held: Any) -> str | Rejection:
    return chosen(cycle, NO_DEMAND, Preference())


def test_a_caller_has_its_answer_while_others_are_still_placed(placer: Placer):
    """It waited for the line, and was answered DEADLINE_EXCEEDED with its place in the store."""
    found = list[Any]()
    with led(line_of(placer, named("a"))):
        thread = in_another_thread(placer, named("a", BY_ZONE), 10.0, found)
        judged_by_hand(placer, named("b"), by_score)
        thread.join()

    assert isinstance(found[0], PlacementResult)
    assert placer.held()["default/a"] == found[0].node == "n-c"


def test_an_answer_is_given_when_this_server_has_seen_the_write(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    rounds, found, early = placer.holding._batches, list[Any](), list[bool]()

    def show(*given: Any) -> bool:
        early.append(waiting.done)
        return seen(*given)

    seen = rounds.show
    monkeypatch.setattr(rounds, "show", show)
    queue = line_of(placer, named("a"))
    with led(queue):
        thread = in_another_thread(placer, named("a"), 30.0, found)
        (waiting,) = queue.tasks
        judged_by_hand(placer, named("b"), by_score)
    thread.join()

    assert early == [False]


def test_leader_has_a_last_try_alone(placer: Placer, monkeypatch: pytest.MonkeyPatch):
    """Its time for tries ended while it was judged beside others, with time for one more."""
    found = list[Any]()

    def choose(cycle: Cycle, held: Any) -> str | Rejection:
        # Its deadline is 30 s away, that of the other 3,000.
        monkeypatch.setattr("topospread.service.placement.requests.GIVE_UP", 100.0)
        return by_score(cycle, held)

    before = placer.world.store.head(CLUSTER).revision
    with led(line_of(placer, named("a"))):
        thread = in_another_thread(placer, named("a"), 3000.0, found)
        own = judged_by_hand(placer, named("b"), choose)
    thread.join()

    assert placer.held() == {"default/a": found[0].node, "default/b": own.node}
    assert [len(each.entries) for each in written_after(placer, before)] == [1, 1]


def test_a_pod_twice_is_placed_in_order_though_its_first_is_put_off(placer: Placer):
    placer.holding = PlacementCoordinator(placer.engine, placer.world.store, thread_time=Counting())
    before = placer.world.store.head(CLUSTER).revision
    pods = [named("x"), named("y"), named("same", uid="first")]
    with led(line_of(placer, pods[0])):
        threads = [in_another_thread(placer, pod, 30.0, []) for pod in pods]
        judged_by_hand(placer, named("same", uid="second"), by_score)
    for thread in threads:
        thread.join()

    placed = [entry.object for each in written_after(placer, before) for entry in each.entries]
    uids = [row.uid for row in placed if isinstance(row, StoredObject) and row.uid]
    assert uids == ["first", "second"]


def test_pod_is_not_rejected_by_a_state_that_may_be_old(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    """The store was out of reach: one was told so, and the others were refused unseen."""

    def catch_up(replica: Replica) -> Any:
        raise StoreUnavailable("out of reach")

    monkeypatch.setattr(Replica, "catch_up", catch_up)
    nowhere, found = constraint("example.com/rack"), list[Any]()
    with led(line_of(placer, named("a"))):
        thread = in_another_thread(placer, named("a", nowhere), 30.0, found)
        with pytest.raises(StoreUnavailable):
            judged_by_hand(placer, named("b", nowhere), by_score)
    thread.join()

    assert isinstance(found[0], StoreUnavailable)


def test_cache_of_claims_is_bounded_in_bytes(placer: Placer, monkeypatch: pytest.MonkeyPatch):
    most = 200_000
    monkeypatch.setattr(BUDGETS["claims"], "most", most)
    for number in range(40):
        values = [f"{number}-{value}" for value in range(50)]
        expression = {"key": "app", "operator": "NotIn", "values": values}
        placer.place(named("a", constraint(labelSelector={"matchExpressions": [expression]})))

    claims = placer.holding._batches._claims
    assert 0 < len(claims) < 40
    assert claims.size <= most

"""Those who stand in line for places of one namespace get them in one write."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.service.places import Placer, bound, named, untraced
from tests.service.world import CLUSTER, World, constraint
from topospread.bounded import Budget
from topospread.errors import (
    DeadlineExceeded,
    LimitExceeded,
    StoreUnavailable,
    TopospreadError,
)
from topospread.kube.demands import NO_DEMAND
from topospread.replica.replica import Replica, ReplicaOptions
from topospread.replica.replicas import Replicas, seconds_from_now
from topospread.service.asks import Ask
from topospread.service.engine import Engine
from topospread.service.holding import MOST, Holding
from topospread.service.place import Preference, place
from topospread.service.place import choose as chosen
from topospread.service.rules_book import RulesBook
from topospread.service.wanted import Held, Job
from topospread.store.api import Revision, StoredObject
from topospread_client import pod_from_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.service.cycle import Cycle
    from topospread.service.wanted import Choose, Line, Refusal
    from topospread.store.api import Store, Transaction

BY_ZONE = constraint()


@pytest.fixture
def placer(three_zones: World) -> Placer:
    made = Placer(three_zones)
    made.held()  # it follows the cluster
    return made


def line_of(placer: Placer, pod: dict[str, Any]) -> Line:
    wanted = placer.wanted(pod)
    return placer.holding._lines[hash(wanted.place) % len(placer.holding._lines)]


@contextmanager
def led(line: Line) -> Iterator[None]:
    """The line, led by this thread."""
    line.lock.acquire()
    try:
        yield
    finally:
        line.release()


@contextmanager
def in_line(placer: Placer, pods: list[dict[str, Any]]) -> Iterator[list[Held]]:
    """Callers that stand in line until the block ends; then their answers, in order."""
    line, found = line_of(placer, pods[0]), dict[int, Held]()
    answers: list[Held] = []

    def call(number: int) -> None:
        found[number] = placer.place(pods[number])

    threads = []
    with led(line):
        for number in range(len(pods)):
            threads.append(threading.Thread(target=call, args=(number,)))
            threads[-1].start()
            while len(line.jobs) <= number:
                time.sleep(0.001)
        yield answers
    for thread in threads:
        thread.join()
    answers += [found[number] for number in range(len(pods))]


def written_after(placer: Placer, revision: Revision) -> list[Transaction]:
    identity = placer.world.store.head(CLUSTER).identity
    return list(placer.world.store.follow(CLUSTER, identity, revision, wait=0))


def test_they_are_judged_one_after_the_other_and_written_at_once(placer: Placer):
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


def test_no_write_is_larger_than_the_most(placer: Placer):
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


def test_who_is_refused_or_bound_does_not_stop_the_others(placer: Placer):
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


def test_a_move_frees_its_old_place_for_the_next_in_line(placer: Placer):
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

    def entering_wait(self) -> Callable[[], None]:
        self._wanted.set()
        return lambda: None

    def scan(self, cluster: str, page: int = 2000) -> Iterator[Sequence[StoredObject]]:
        self._wanted.wait(30.0)
        return self._store.scan(cluster, page)


def test_they_wait_for_a_cluster_that_is_being_loaded(three_zones: World):
    """Those behind the first, who was told to try again, ended in an error of the server."""
    slow = SlowStore(three_zones.store)
    source = cast("Store", slow)
    with closing(Replicas(source, ReplicaOptions(), entering_wait=slow.entering_wait)) as replicas:
        replicas._started(CLUSTER)
        placer = Placer(
            three_zones, Engine(replicas, source, RulesBook(), three_zones.process.cycles)
        )
        with in_line(placer, [named(name, BY_ZONE) for name in "abc"]) as answers:
            pass
        assert len(placer.held()) == 3
    assert all(answer.node for answer in answers)


def wait_in_line(placer: Placer, holding: Holding, seconds: float) -> Held:
    pod = pod_from_manifest(named("late", BY_ZONE)).SerializeToString()
    wanted = holding.wanted(Ask(seconds_from_now(seconds), CLUSTER), pod, 60_000)
    line = holding._lines[hash(wanted.place) % len(holding._lines)]
    with led(line):
        return place(holding, wanted, Preference(), untraced)


def test_standing_in_line_ends_at_the_deadline(placer: Placer):
    left: list[str] = []

    def entering_wait():
        left.append("lent")
        return lambda: left.append("back")

    holding = Holding(placer.engine, placer.world.store, entering_wait=entering_wait)
    with pytest.raises(DeadlineExceeded, match="'default'"):
        wait_in_line(placer, holding, 1.0)
    assert left == ["lent", "back"]
    assert placer.held() == {}
    # Nobody seeks a place for whoever has gone.
    assert placer.place(named("a", BY_ZONE)).node == "n-c"
    assert placer.held() == {"default/a": "n-c"}


def test_a_wait_may_be_refused(placer: Placer):
    def entering_wait():
        raise LimitExceeded("too many wait")

    holding = Holding(placer.engine, placer.world.store, entering_wait=entering_wait)
    with pytest.raises(LimitExceeded):
        wait_in_line(placer, holding, 30.0)
    assert all(job.abandoned for line in holding._lines for job in line.jobs)


class Counting:
    """Processor time that goes on by 30 ms with each look at it."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 0.03
        return self._now


def test_what_has_been_computed_for_long_is_written_before_the_next_is_judged(placer: Placer):
    placer.holding = Holding(placer.engine, placer.world.store, thread_time=Counting())
    before = placer.world.store.head(CLUSTER).revision
    with in_line(placer, [named(f"p{number}", BY_ZONE) for number in range(8)]) as answers:
        pass

    assert all(answer.node for answer in answers)
    sizes = [len(transaction.entries) for transaction in written_after(placer, before)]
    # Two are 60 ms; the one that the thread itself waits for is judged in any case.
    assert sum(sizes) == 8
    assert max(sizes) <= 3


def judged_by_hand(placer: Placer, pod: dict[str, Any], choose: Choose) -> Held:
    """The place of a pod that is sought with all that stand in line, by the holder of its lock."""
    line, job = line_of(placer, pod), Job(placer.wanted(pod), choose, untraced)
    line.jobs.append(job)
    placer.holding._rounds.run(job, line.take(job, MOST), line)
    return job.result()


def in_another_thread(placer: Placer, pod: dict[str, Any], seconds: float, found: list[Any]) -> Any:
    """A caller that stands in line for a pod, with a deadline; then its answer, or its error."""
    message = pod_from_manifest(pod).SerializeToString()
    line = line_of(placer, pod)
    number = len(line.jobs)

    def call() -> None:
        wanted = placer.holding.wanted(Ask(seconds_from_now(seconds), CLUSTER), message, 60_000)
        try:
            found.append(place(placer.holding, wanted, Preference(), untraced))
        except TopospreadError as failure:
            found.append(failure)

    thread = threading.Thread(target=call)
    thread.start()
    while len(line.jobs) == number:
        time.sleep(0.001)
    return thread


def test_no_place_is_held_for_a_caller_who_gave_up_while_others_were_judged(placer: Placer):
    pod, found = named("b", BY_ZONE), list[Any]()

    def choose(cycle: Cycle, held: Any) -> str | Refusal:
        thread.join()  # it is judged until the other's time is over
        return chosen(cycle, NO_DEMAND, Preference())

    line = line_of(placer, pod)
    with led(line):
        thread = in_another_thread(placer, named("a", BY_ZONE), 1.0, found)
        held = judged_by_hand(placer, pod, choose)

    assert isinstance(found[0], DeadlineExceeded)
    # Zone c is the one that takes a pod; with a's place there, b would have gone to another.
    assert held.node == "n-c"
    assert placer.held() == {"default/b": "n-c"}


def test_a_wait_that_is_refused_is_answered_with_the_place_that_is_held_already(placer: Placer):
    """Whoever leads may have written by then."""

    def entering_wait():
        (job,) = line.jobs
        job.writing = True
        job.answer(Held("token", "n-c"))
        raise LimitExceeded("too many wait")

    holding = Holding(placer.engine, placer.world.store, entering_wait=entering_wait)
    pod = pod_from_manifest(named("late", BY_ZONE)).SerializeToString()
    wanted = holding.wanted(Ask(seconds_from_now(30.0), CLUSTER), pod, 60_000)
    line = holding._lines[hash(wanted.place) % len(holding._lines)]
    with led(line):
        assert place(holding, wanted, Preference(), untraced).node == "n-c"


def test_a_caller_waits_for_the_write_that_has_begun(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    """Its time for other tries ends with the write under way, not its time for an answer."""
    monkeypatch.setattr("topospread.service.wanted.GIVE_UP", 29.5)
    pod, found, began = named("b"), list[Any](), threading.Event()

    def apply(*given: Any, **options: Any) -> Any:
        began.set()
        while not waiting.abandoned:
            time.sleep(0.001)
        return store.apply(*given, **options)

    store = placer.world.store
    slow = cast("Store", SimpleNamespace(apply=apply, get=store.get))
    placer.holding._rounds._store = slow
    line = line_of(placer, pod)
    with led(line):
        thread = in_another_thread(placer, named("a", BY_ZONE), 30.0, found)
        (waiting,) = line.jobs
        held = judged_by_hand(
            placer, pod, lambda cycle, held: chosen(cycle, NO_DEMAND, Preference())
        )
    thread.join()

    assert began.is_set()
    assert found[0].node == "n-c"
    assert placer.held() == {"default/a": "n-c", "default/b": held.node}


def by_score(cycle: Cycle, held: Any) -> str | Refusal:
    return chosen(cycle, NO_DEMAND, Preference())


def test_a_caller_has_its_answer_while_others_are_still_placed(placer: Placer):
    """It waited for the line, and was answered DEADLINE_EXCEEDED with its place in the store."""
    found = list[Any]()
    with led(line_of(placer, named("a"))):
        thread = in_another_thread(placer, named("a", BY_ZONE), 10.0, found)
        judged_by_hand(placer, named("b"), by_score)
        thread.join()

    assert isinstance(found[0], Held)
    assert placer.held()["default/a"] == found[0].node == "n-c"


def test_an_answer_is_given_when_this_server_has_seen_the_write(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    rounds, found, early = placer.holding._rounds, list[Any](), list[bool]()

    def show(*given: Any) -> bool:
        early.append(waiting.done)
        return seen(*given)

    seen = rounds.show
    monkeypatch.setattr(rounds, "show", show)
    line = line_of(placer, named("a"))
    with led(line):
        thread = in_another_thread(placer, named("a"), 30.0, found)
        (waiting,) = line.jobs
        judged_by_hand(placer, named("b"), by_score)
    thread.join()

    assert early == [False]


class Announced(threading.Event):
    """An event that says when somebody waits for it, and how each wait ended."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Event()
        self.ends: list[bool] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.set()
        self.ends.append(super().wait(timeout))
        return self.ends[-1]


def test_who_stops_waiting_leaves_the_lead_to_the_next(placer: Placer):
    """The line's lock becomes free just when the first in line is refused its wait."""
    woken, found, refused = Announced(), list[Any](), list[Any]()

    def entering_wait() -> Callable[[], None]:
        if threading.current_thread() is not first:
            line.jobs[1].woken = woken
            return lambda: None
        assert woken.waits.wait(30.0)
        line.release()  # wakes this thread's job
        raise LimitExceeded("too many wait")

    placer.holding = Holding(placer.engine, placer.world.store, entering_wait=entering_wait)
    line = line_of(placer, named("a"))
    line.lock.acquire()

    def call() -> None:
        with pytest.raises(LimitExceeded) as failure:
            placer.place(named("a"))
        refused.append(failure.value)

    first = threading.Thread(target=call)
    first.start()
    while not line.jobs:
        time.sleep(0.001)
    second = in_another_thread(placer, named("b"), 20.0, found)
    first.join()
    second.join()

    assert refused
    assert isinstance(found[0], Held)
    assert all(woken.ends), "it would have waited until its deadline"


def test_who_leads_has_a_last_try_alone(placer: Placer, monkeypatch: pytest.MonkeyPatch):
    """Its time for tries ended while it was judged beside others, with time for one more."""
    found = list[Any]()

    def choose(cycle: Cycle, held: Any) -> str | Refusal:
        # Its deadline is 30 s away, that of the other 3,000.
        monkeypatch.setattr("topospread.service.wanted.GIVE_UP", 100.0)
        return by_score(cycle, held)

    before = placer.world.store.head(CLUSTER).revision
    with led(line_of(placer, named("a"))):
        thread = in_another_thread(placer, named("a"), 3000.0, found)
        own = judged_by_hand(placer, named("b"), choose)
    thread.join()

    assert placer.held() == {"default/a": found[0].node, "default/b": own.node}
    assert [len(each.entries) for each in written_after(placer, before)] == [1, 1]


def test_a_pod_twice_is_placed_in_order_though_its_first_is_put_off(placer: Placer):
    placer.holding = Holding(placer.engine, placer.world.store, thread_time=Counting())
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


def test_nobody_is_refused_by_a_state_that_may_be_old(
    placer: Placer, monkeypatch: pytest.MonkeyPatch
):
    """The store was out of reach: one was told so, and the others were refused unseen."""

    def pull(replica: Replica) -> Any:
        raise StoreUnavailable("out of reach")

    monkeypatch.setattr(Replica, "pull", pull)
    nowhere, found = constraint("example.com/rack"), list[Any]()
    with led(line_of(placer, named("a"))):
        thread = in_another_thread(placer, named("a", nowhere), 30.0, found)
        with pytest.raises(StoreUnavailable):
            judged_by_hand(placer, named("b", nowhere), by_score)
    thread.join()

    assert isinstance(found[0], StoreUnavailable)


def test_what_claims_are_remembered_for_is_bounded_in_bytes(placer: Placer):
    for number in range(40):
        values = [f"{number}-{value}-" + "x" * 50 for value in range(500)]
        expression = {"key": "app", "operator": "NotIn", "values": values}
        placer.place(named("a", constraint(labelSelector={"matchExpressions": [expression]})))

    kept = placer.holding._rounds._claims._entries
    sizes = [judgeable.nbytes + claim.value.nbytes for (judgeable, _), claim in kept.items()]
    assert sizes
    assert 40 * max(sizes) > Budget.usual("claims").most
    assert sum(sizes) <= Budget.usual("claims").most

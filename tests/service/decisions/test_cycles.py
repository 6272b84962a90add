"""A cycle judges one pod at one frozen state, for a bounded time, in the process that made it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from tests.service.world import (
    CLUSTER,
    HOSTNAME,
    Process,
    World,
    constraint,
    incoming,
    node,
    running,
    soft,
)
from topospread.cache import BUDGETS
from topospread.errors import CycleExpired, InvalidRequest, NotFound
from topospread.replica.replicas import seconds_from_now
from topospread.replica.view import Consistency
from topospread.service.decisions.cycle import CycleCache
from topospread.service.decisions.extension_points import filter_, pre_filter, score
from topospread.service.decisions.request import DecisionRequest, PodRef, SettingsOverride
from topospread.spread.settings import LIST, Profile
from topospread.spread.verdicts import FITS, TOO_SKEWED, Code
from topospread.store.model import Kind

HARD = incoming(constraint())
SPREADING = incoming(constraint(), soft(HOSTNAME))


def begun(world: World, pod=HARD, **others) -> str:
    return pre_filter(world.engine, world.ask(pod, **others)).resolved.cycle_id


def verdicts(world: World, cycle: str = "", pod=None, **others) -> list[int]:
    ask = world.ask(pod, cycle=cycle, **others)
    return filter_(world.engine, ask).verdicts.tolist()


def test_filter_answers_from_the_counts_that_pre_filter_froze(three_zones: World):
    cycle = begun(three_zones)
    frozen = [TOO_SKEWED, TOO_SKEWED, FITS]
    assert verdicts(three_zones, cycle) == frozen
    three_zones.apply(running("w4", "n-c"))
    three_zones.apply(running("w5", "n-c"), running("w6", "n-c"))
    assert verdicts(three_zones, pod=HARD) == [TOO_SKEWED, FITS, TOO_SKEWED]
    assert verdicts(three_zones, cycle) == frozen


def test_nodes_that_come_and_go_are_not_seen_by_a_cycle(three_zones: World):
    cycle = begun(three_zones)
    before = filter_(three_zones.engine, three_zones.ask(cycle=cycle)).resolved.cycle.view
    three_zones.delete(Kind.NODE, "n-a")
    three_zones.apply(node("n-d", "d"), node("n-b", "z"))
    answer = filter_(three_zones.engine, three_zones.ask(cycle=cycle))
    assert answer.resolved.cycle.view is before
    assert list(before.snapshot.nodes.sorted_names) == ["n-a", "n-b", "n-c"]
    assert answer.verdicts.tolist() == [TOO_SKEWED, TOO_SKEWED, FITS]


def test_score_answers_from_the_same_state_as_filter(three_zones: World):
    cycle = begun(three_zones, incoming(constraint(maxSkew=5), soft(HOSTNAME)))
    before = score(three_zones.engine, three_zones.ask(cycle=cycle))
    three_zones.apply(running("w4", "n-c"), running("w5", "n-b"))
    after = score(three_zones.engine, three_zones.ask(cycle=cycle))
    assert before.scores is not None
    assert after.scores is not None
    assert after.scores.raw.tolist() == before.scores.raw.tolist() == [3, 2, 0]
    assert after.resolved.cycle.view.token == before.resolved.cycle.view.token


def test_workloads_that_change_do_not_change_a_cycles_default_constraints(three_zones: World):
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}},
    }
    three_zones.apply(service)
    cycle = begun(three_zones, incoming())
    assert score(three_zones.engine, three_zones.ask(cycle=cycle)).status.code is Code.SUCCESS
    three_zones.delete(Kind.SERVICE, "web", "default")
    assert score(three_zones.engine, three_zones.ask(cycle=cycle)).status.code is Code.SUCCESS
    anew = score(three_zones.engine, three_zones.ask(incoming()))
    assert anew.status.code is Code.SKIP


def test_a_cycle_names_itself_in_each_answer(three_zones: World):
    cycle = begun(three_zones, SPREADING)
    for _ in range(2):
        filtered = filter_(three_zones.engine, three_zones.ask(cycle=cycle)).resolved
        scored = score(three_zones.engine, three_zones.ask(cycle=cycle)).resolved
        assert [filtered.cycle_id, scored.cycle_id] == [cycle, cycle]
        assert not filtered.remade
        assert not scored.remade


def test_a_known_cycle_goes_before_a_pod(three_zones: World):
    cycle = begun(three_zones)
    answer = filter_(three_zones.engine, three_zones.ask(incoming(), cycle=cycle))
    assert answer.verdicts.tolist() == [TOO_SKEWED, TOO_SKEWED, FITS]
    assert not answer.resolved.remade


def test_a_cycle_lives_for_its_time_and_no_longer(three_zones: World):
    clock = three_zones.process.clock
    cycle = begun(three_zones)
    clock.now += 59.9
    assert verdicts(three_zones, cycle) == [TOO_SKEWED, TOO_SKEWED, FITS]
    clock.now += 0.1
    with pytest.raises(CycleExpired, match="expired after 60 s"):
        verdicts(three_zones, cycle)


def test_an_expired_cycle_is_made_again_from_the_pod_at_the_newest_state(three_zones: World):
    cycle = begun(three_zones)
    before = three_zones.revision
    three_zones.apply(running("w4", "n-c"))
    three_zones.process.clock.now += 60
    answer = filter_(three_zones.engine, three_zones.ask(HARD, cycle=cycle))
    assert answer.resolved.remade
    assert answer.resolved.cycle.view.token == three_zones.revision != before
    assert answer.verdicts.tolist() == [TOO_SKEWED, FITS, FITS]
    again = filter_(three_zones.engine, three_zones.ask(cycle=answer.resolved.cycle_id))
    assert again.resolved.cycle is answer.resolved.cycle
    assert not again.resolved.remade


def test_a_cycle_is_made_again_with_the_what_ifs_of_the_request(three_zones: World):
    world, moved = three_zones, running("w1", "n-a")
    answer = filter_(world.engine, world.ask(HARD, cycle="lost", remove=[(moved, "")]))
    assert answer.resolved.remade
    assert answer.verdicts.tolist() == [TOO_SKEWED, TOO_SKEWED, FITS]
    both = [(moved, ""), (running("w3", "n-b"), "n-b")]
    answer = filter_(world.engine, world.ask(HARD, cycle="lost", remove=both))
    assert answer.verdicts.tolist() == [TOO_SKEWED, FITS, FITS]


def test_a_cycle_is_made_again_for_a_pod_of_the_state(three_zones: World):
    stored = incoming(constraint())
    three_zones.apply(stored)
    answer = filter_(three_zones.engine, three_zones.ask(PodRef("incoming"), cycle="lost"))
    assert answer.resolved.remade
    assert answer.verdicts.tolist() == [TOO_SKEWED, TOO_SKEWED, FITS]


@pytest.mark.parametrize("use_case", [filter_, score])
def test_an_unknown_cycle_without_a_pod_is_refused(three_zones: World, use_case):
    with pytest.raises(CycleExpired, match=r"'never'.*Call PreFilter again, or send the pod"):
        use_case(three_zones.engine, three_zones.ask(cycle="never"))


@pytest.mark.parametrize("use_case", [pre_filter, filter_, score])
def test_neither_cycle_nor_pod_is_bad_input(three_zones: World, use_case):
    with pytest.raises(InvalidRequest, match="give a pod"):
        use_case(three_zones.engine, three_zones.ask())


def test_another_process_does_not_know_the_cycle(three_zones: World):
    cycle = begun(three_zones)
    with closing(Process(three_zones.store)) as other:
        with pytest.raises(CycleExpired, match="another process made it"):
            filter_(other.engine, three_zones.ask(cycle=cycle))
        answer = filter_(other.engine, three_zones.ask(HARD, cycle=cycle))
        assert answer.resolved.remade
        assert answer.verdicts.tolist() == [TOO_SKEWED, TOO_SKEWED, FITS]
        assert answer.resolved.cycle.view.token == three_zones.revision
        with pytest.raises(CycleExpired):
            verdicts(three_zones, answer.resolved.cycle_id)


def test_a_cycle_belongs_to_its_cluster(three_zones: World):
    cycle = begun(three_zones)
    three_zones.apply(node("n"), cluster="test")
    with pytest.raises(CycleExpired):
        filter_(three_zones.engine, three_zones.ask(cycle=cycle, cluster="test"))
    answer = filter_(three_zones.engine, three_zones.ask(HARD, cycle=cycle, cluster="test"))
    assert answer.resolved.remade
    assert answer.resolved.cycle.cluster == "test"
    assert verdicts(three_zones, cycle) == [TOO_SKEWED, TOO_SKEWED, FITS]


def test_an_unknown_cluster_is_not_found(three_zones: World):
    with pytest.raises(NotFound, match="'nowhere' is not known: apply objects to it first"):
        pre_filter(three_zones.engine, three_zones.ask(HARD, cluster="nowhere"))


def test_a_cycle_of_a_pod_that_skips_lets_every_node_pass(three_zones: World):
    cycle = begun(three_zones, incoming())
    answer = filter_(three_zones.engine, three_zones.ask(cycle=cycle))
    assert answer.status.code is Code.SKIP
    assert answer.verdicts.tolist() == [FITS, FITS, FITS]


def test_a_cycle_of_a_pod_that_does_not_parse_has_no_verdicts_and_no_scores(three_zones: World):
    broken = {"matchExpressions": [{"key": "app", "operator": "In"}]}
    pod = incoming(constraint(labelSelector=broken), soft(HOSTNAME))
    begin = pre_filter(three_zones.engine, three_zones.ask(pod))
    assert begin.status.code is Code.ERROR
    assert (begin.constraints, begin.extensions) == ((), ())
    for use_case in (filter_, score):
        answer = use_case(three_zones.engine, three_zones.ask(cycle=begin.resolved.cycle_id))
        assert answer.status == begin.status
    assert verdicts(three_zones, begin.resolved.cycle_id) == []
    scored = score(three_zones.engine, three_zones.ask(cycle=begin.resolved.cycle_id))
    assert scored.scores is None


def test_filter_and_score_of_a_pod_alone_need_no_cycle(three_zones: World):
    filtered = filter_(three_zones.engine, three_zones.ask(SPREADING))
    scored = score(three_zones.engine, three_zones.ask(SPREADING))
    assert filtered.verdicts.tolist() == [TOO_SKEWED, TOO_SKEWED, FITS]
    assert filtered.resolved.cycle_id == scored.resolved.cycle_id == ""
    assert scored.positions is not None
    assert scored.positions.tolist() == [2]


def test_a_cycle_of_settings_keeps_its_rules(three_zones: World):
    """What is in force may change in the middle of a scheduling cycle."""
    asked = SettingsOverride(Profile(defaulting=LIST))
    cycle = begun(three_zones, incoming(), settings=asked)
    answer = score(three_zones.engine, three_zones.ask(cycle=cycle))
    assert answer.resolved.cycle.rules.profile.defaulting == LIST


def test_reading_a_cycle_waits_for_no_one(three_zones: World):
    """A resumed cycle asks for the cluster's state only as far as the caller demands."""
    cycle = begun(three_zones)
    ask = DecisionRequest(seconds_from_now(0), CLUSTER, cycle=cycle, consistency=Consistency())
    assert filter_(three_zones.engine, ask).verdicts.tolist() == [TOO_SKEWED, TOO_SKEWED, FITS]


MAX_BYTES = BUDGETS["cycles"].most


def test_the_newest_cycles_are_kept(three_zones: World):
    cycle = three_zones.process.cycles.get(begun(three_zones))
    assert cycle is not None
    cycles = CycleCache()
    kept = [cycles.put(cycle) for _ in range(10_000)]
    assert None not in [cycles.get(name) for name in kept[-1024:]]
    assert cycles.get(kept[0]) is None


def test_counts_that_several_cycles_rest_on_are_counted_once():
    shared, other = (_Counts(MAX_BYTES // 3) for _ in range(2))
    cycles = CycleCache()
    kept = [cycles.put(_cycle(groups=(shared,))) for _ in range(30)]
    assert all(cycles.get(name) for name in kept)
    cycles.put(_cycle(groups=(other,)))
    assert cycles.get(cycles.put(_cycle(groups=(shared,)))) is not None
    assert not any(cycles.get(name) for name in kept)


def test_a_kept_cycle_keeps_no_counts_that_others_asked_for(three_zones: World):
    apps = [f"app-{number}" for number in range(20)]
    pods = [incoming(constraint(app=app), app=app) for app in apps]
    answers = [pre_filter(three_zones.engine, three_zones.ask(pod)) for pod in pods]
    for answer in answers:
        kept = three_zones.process.cycles.get(answer.resolved.cycle_id)
        assert kept is not None
        assert set(kept.view.snapshot.groups) == set(kept.effective.groups)


def _cycle(size: int = 0, groups: tuple[_Counts, ...] = ()) -> Any:
    return SimpleNamespace(size=size, groups=groups, growth=0)


@dataclass(eq=False)
class _Counts:
    size: int

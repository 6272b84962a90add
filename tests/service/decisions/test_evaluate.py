"""EvaluatePod and BatchEvaluatePods: the best nodes, in which order, at which revision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.service.world import (
    HOSTNAME,
    World,
    best,
    constraint,
    encoded,
    incoming,
    node,
    running,
    soft,
    world,
)
from topospread.cache import LARGEST_KEY
from topospread.errors import InvalidRequest, NotFound
from topospread.index.builder import Builder
from topospread.service.decisions.batch import evaluate_batch
from topospread.service.decisions.evaluate import (
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    Evaluation,
    evaluate,
)
from topospread.service.decisions.pods import Limits
from topospread.service.decisions.request import PodRef, SettingsOverride
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.index.groups import Group
    from topospread.index.pods import SortedSlots
    from topospread.spread.topology import GroupKey

BROKEN = {"matchExpressions": [{"key": "app", "operator": "In"}]}


def spread_out(world: World, pods: dict[str, int]) -> None:
    """Nodes, each a zone of its own, with so many pods."""
    world.apply(*(node(name, f"zone-of-{name}") for name in pods))
    world.apply(
        *(running(f"{name}-{n}", name) for name, count in pods.items() for n in range(count))
    )


# ------------------------------ order


def test_equal_scores_and_pods_are_ordered_by_name_as_bytes(empty_world: World):
    spread_out(empty_world, dict.fromkeys(["n10", "n2", "N3", "~n", "n1"], 1))
    for pod in (incoming(constraint()), incoming(soft()), incoming()):
        assert best(empty_world, pod) == ["N3", "n1", "n10", "n2", "~n"]


def test_scores_go_before_matching_pods(empty_world: World):
    """Hard on zones, soft on other pods' nodes: the two orders are opposite here."""
    spread_out(empty_world, {"n1": 2, "n2": 1, "n3": 0})
    empty_world.apply(*(running(f"db-{n}", "n3", "db") for n in range(4)))
    pod = incoming(constraint(maxSkew=9), soft(HOSTNAME, "db"))
    assert best(empty_world, pod) == ["n2", "n1", "n3"]


@pytest.mark.parametrize("zones", [3, 200], ids=["few classes of nodes", "many"])
def test_top_k_cuts_the_order_off(empty_world: World, zones: int):
    """However many nodes are equally good: those that are named are the first of the order."""
    names = [f"n{number:03}" for number in range(240)]
    empty_world.apply(*(node(name, f"z{at % zones}") for at, name in enumerate(names)))
    empty_world.apply(*(running(f"w-{n}", names[n * 7 % 240]) for n in range(100)))
    pod = incoming(constraint(maxSkew=99), soft(HOSTNAME))
    everything = best(empty_world, pod, 1000)
    assert sorted(everything) == names
    for top_k in (1, 2, 5, 17, 100, 239, 240, 241):
        assert best(empty_world, pod, top_k) == everything[:top_k]
    assert best(empty_world, pod) == everything[:5]


def test_top_k_is_limited(three_zones: World):
    with pytest.raises(InvalidRequest, match="topK: must be 0 to 1000"):
        evaluate(three_zones.engine, three_zones.ask(incoming()), 1001)


def test_raw_and_normalized_scores_are_0_when_pre_score_skips(three_zones: World):
    answer = evaluate(three_zones.engine, three_zones.ask(incoming()))
    assert answer.pre_score.code is Code.SKIP
    assert {(ranked.raw, ranked.normalized) for ranked in answer.top} == {(0, 0)}


# ------------------------------ what it says


def test_verdicts_are_counted_most_frequent_first(three_zones: World):
    three_zones.apply(node("keyless-1"), node("keyless-2"), node("keyless-3"))
    answer = evaluate(three_zones.engine, three_zones.ask(incoming(constraint())))
    assert [(status.code, nodes) for status, nodes in answer.verdicts] == [
        (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, 3),
        (Code.UNSCHEDULABLE, 2),
        (Code.SUCCESS, 1),
    ]
    assert (answer.nodes, answer.feasible, answer.message, answer.reason) == (6, 1, "", "")


def test_a_pod_that_fits_nowhere_gets_the_schedulers_message(three_zones: World):
    three_zones.apply(node("keyless"), running("w4", "n-c"))
    pod = incoming(constraint(minDomains=4))
    answer = evaluate(three_zones.engine, three_zones.ask(pod))
    assert answer.reason == UNSCHEDULABLE
    assert answer.message == (
        "0/4 nodes are available: "
        "1 node(s) didn't match pod topology spread constraints (missing required label), "
        "3 node(s) didn't match pod topology spread constraints."
    )


def test_a_pod_that_does_not_parse_gets_the_schedulers_error(three_zones: World):
    pod = incoming(constraint(labelSelector=BROKEN))
    answer = evaluate(three_zones.engine, three_zones.ask(pod))
    assert answer.pre_filter.code is Code.ERROR
    assert answer.reason == SCHEDULER_ERROR
    assert answer.message.startswith(
        'running PreFilter plugin "PodTopologySpread": get constraints'
    )
    assert (answer.nodes, answer.feasible, answer.verdicts, answer.top) == (3, 0, (), ())


def test_empty_cluster_is_unschedulable_even_for_an_unparsable_pod(empty_world: World):
    """kube-scheduler gives up before it runs a plugin."""
    empty_world.apply(running("lost", "n-a"))
    pod = incoming(constraint(labelSelector=BROKEN))
    answer = evaluate(empty_world.engine, empty_world.ask(pod))
    assert answer.pre_filter.code is Code.ERROR
    assert (answer.message, answer.reason) == (
        "no nodes available to schedule pods",
        UNSCHEDULABLE,
    )


# ------------------------------ pods of the state


def test_a_pod_of_the_state_is_asked_about_by_name(three_zones: World):
    three_zones.apply(incoming(constraint()))
    assert best(three_zones, PodRef("incoming")) == ["n-c"]
    with pytest.raises(NotFound, match="pod other/incoming is not in cluster 'prod'"):
        best(three_zones, PodRef("incoming", "other"))


def test_validation_passes_over_fields_that_creation_drops(three_zones: World):
    """A field whose gate is off never reaches the API server's validation (KEP-3022)."""
    pod = incoming(constraint(minDomains=-1))
    off = SettingsOverride(gates={"MinDomainsInPodTopologySpread": False})
    with pytest.raises(InvalidRequest, match=r"minDomains: Invalid value: -1"):
        evaluate(three_zones.engine, three_zones.ask(pod, validate=True))
    ask = three_zones.ask(pod, validate=True, settings=off)
    assert evaluate(three_zones.engine, ask).pre_filter.code is Code.SUCCESS


def test_a_pod_is_validated_when_that_is_asked_for(three_zones: World):
    pod = incoming(constraint(maxSkew=0, whenUnsatisfiable="Never"), constraint(""))
    assert evaluate(three_zones.engine, three_zones.ask(pod)).nodes == 3
    with pytest.raises(InvalidRequest) as refused:
        evaluate(three_zones.engine, three_zones.ask(pod, validate=True))
    assert [violation.field for violation in refused.value.violations] == [
        "spec.topologySpreadConstraints[0].maxSkew",
        "spec.topologySpreadConstraints[0].whenUnsatisfiable",
        "spec.topologySpreadConstraints[1].topologyKey",
    ]


# ------------------------------ batches


def test_each_pod_of_a_batch_is_judged_as_if_alone(three_zones: World):
    pods = [incoming(constraint()), incoming(constraint(HOSTNAME)), incoming(soft()), incoming()]
    answers = evaluate_batch(
        three_zones.engine, three_zones.ask(), [encoded(pod) for pod in pods]
    ).answers
    for pod, answer in zip(pods, answers, strict=True):
        alone = evaluate(three_zones.engine, three_zones.ask(pod))
        assert isinstance(answer, Evaluation)
        assert (answer.top, answer.verdicts) == (alone.top, alone.verdicts)


def test_a_bad_pod_fails_alone_and_all_are_at_one_revision(three_zones: World):
    too_many = incoming(*[constraint(f"key-{n}") for n in range(65)])
    invalid = incoming(constraint(maxSkew=-1))
    pods = [incoming(constraint()), too_many, invalid, incoming(constraint(labelSelector=BROKEN))]
    ask = three_zones.ask(validate=True)
    first, second, third, fourth = evaluate_batch(
        three_zones.engine, ask, [encoded(pod) for pod in pods]
    ).answers
    assert isinstance(first, Evaluation)
    assert [ranked.name for ranked in first.top] == ["n-c"]
    assert isinstance(second, InvalidRequest)
    assert "65 constraints" in str(second)
    assert isinstance(third, InvalidRequest)
    assert third.violations[0].field == "spec.topologySpreadConstraints[0].maxSkew"
    assert isinstance(fourth, InvalidRequest)
    answers = evaluate_batch(
        three_zones.engine, three_zones.ask(), [encoded(pod) for pod in (*pods, pods[0])]
    ).answers
    revisions = {a.resolved.cycle.view.token for a in answers if isinstance(a, Evaluation)}
    assert revisions == {three_zones.revision}


def test_a_batch_with_more_selectors_than_are_kept():
    """Each asked the index to count its groups, which then let go of the others': for ever."""
    with world(max_groups=16) as made:
        made.apply(node("n", "z"), *(running(f"w{n}", "n", f"app-{n}") for n in range(50)))
        pods = [incoming(constraint(app=f"app-{n}"), app=f"app-{n}") for n in range(50)]
        pods.append(incoming(*(constraint(f"key-{n}", app=f"app-{n}") for n in range(40))))
        answers = evaluate_batch(made.engine, made.ask(), [encoded(pod) for pod in pods]).answers
        assert [a.feasible for a in answers if isinstance(a, Evaluation)] == [*[1] * 50, 0]
        counted = [a.resolved.cycle for a in answers[:50] if isinstance(a, Evaluation)]
        assert [int(cycle.states[0].counts[0]) for cycle in counted] == [1] * 50
        assert len({cycle.view.token for cycle in counted}) == 1


def test_selectors_of_one_request_do_not_evict_each_other(monkeypatch):
    counted: list[GroupKey] = []
    count = Builder._count

    def counting(builder: Builder, group: GroupKey, by_label_set: SortedSlots | None) -> Group:
        counted.append(group)
        return count(builder, group, by_label_set)

    monkeypatch.setattr(Builder, "_count", counting)
    with world(max_groups=100) as made:
        made.apply(node("n", "z"))
        pods = [encoded(incoming(constraint(app=f"app-{n}"), app=f"app-{n}")) for n in range(140)]
        evaluate_batch(made.engine, made.ask(), pods[:60])
        evaluate_batch(made.engine, made.ask(), pods[100:])
        assert len(counted) == 100
        evaluate_batch(made.engine, made.ask(), pods[:100])
        assert len(counted) == 140, "each was counted once"


def test_a_batch_may_be_empty_and_not_too_big():
    with world(limits=Limits(batch_pods=3)) as made:
        made.apply(node("n"))
        pod = encoded(incoming())
        assert evaluate_batch(made.engine, made.ask(), []).answers == []
        assert len(evaluate_batch(made.engine, made.ask(), [pod] * 3).answers) == 3
        with pytest.raises(InvalidRequest, match="4 in one batch, at most 3: split it"):
            evaluate_batch(made.engine, made.ask(), [pod] * 4)
        with pytest.raises(NotFound):
            evaluate_batch(made.engine, made.ask(cluster="nowhere"), [pod])


def test_a_batch_is_bounded_as_a_whole():
    """Each pod is within its limits, and together they would take minutes and gigabytes."""
    limits = Limits(batch_cells=125_000, batch_bytes=10_000, batch_conditions=100, groups=20)
    with world(limits=limits) as made:
        made.apply(node("n"))

        def batch(pods: int, constraints: int, app: str = "x") -> Sequence[object]:
            asked = [
                incoming(
                    *(constraint(f"key-{c}", app=f"{app}{c}") for c in range(constraints)),
                    app=f"app-{p}",
                )
                for p in range(pods)
            ]
            return evaluate_batch(made.engine, made.ask(), [encoded(pod) for pod in asked]).answers

        assert len(batch(20, 3)) == 20
        with pytest.raises(
            InvalidRequest,
            match=r"are more than 100, .* for 1 nodes: split it, the first 16 are not too many",
        ):
            batch(20, 5)
        with pytest.raises(InvalidRequest, match="more than 10000 bytes in one batch"):
            batch(2, 4, "x" * 5000)
        with pytest.raises(InvalidRequest, match=r"25 different selectors, at most 20 .*split it"):
            batch(3, 25)
        terms = [{"matchExpressions": [{"key": "a", "operator": "Exists"}] * 3}]
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        some = [incoming(app=f"a{p}", affinity={"nodeAffinity": affinity}) for p in range(12)]
        bound = [encoded(pod) for pod in some]
        with pytest.raises(InvalidRequest, match=r"than 100 in one .*, the first 6 are not too"):
            evaluate_batch(made.engine, made.ask(), bound)
        assert len(evaluate_batch(made.engine, made.ask(), bound[:6]).answers) == 6
        # What is remembered is not read again.
        assert len(evaluate_batch(made.engine, made.ask(), bound[:12:2]).answers) == 6
        assert len(evaluate_batch(made.engine, made.ask(), bound).answers) == 12
        # A large one is not kept, and so counts each time.
        large = encoded(incoming(constraint("key", app="x"), app="x" * LARGEST_KEY))
        assert len(evaluate_batch(made.engine, made.ask(), [large]).answers) == 1
        with pytest.raises(InvalidRequest, match="more than 10000 bytes in one batch"):
            evaluate_batch(made.engine, made.ask(), [large] * 2)
        # However many they are, equal ones are judged once.
        one = encoded(incoming(constraint("key", app="x"), app="app"))
        answers = evaluate_batch(made.engine, made.ask(), [one] * 200).answers
        assert len({id(a.verdicts) for a in answers if isinstance(a, Evaluation)}) == 1

"""What a pod takes from its node: containers, initialization, sidecars, overhead."""

from __future__ import annotations

from fractions import Fraction

import pytest

from topospread.kube.demands import Container, pod_requests


def container(cpu: str, sidecar: bool = False) -> Container:
    return Container({"cpu": Fraction(cpu)}, sidecar)


@pytest.mark.parametrize(
    ("containers", "init_containers", "cpu"),
    [
        (["1", "2"], [], 3000),
        (["1"], ["5"], 5000),  # the initialization takes more than what runs later
        (["1"], ["3", "5", "2"], 5000),  # one step at a time
        (["1"], ["2*"], 3000),  # a sidecar goes on running
        (["1"], ["2*", "4"], 6000),  # and runs beside the steps after it
        (["1"], ["4", "2*"], 4000),  # but not beside those before
        (["6"], ["1*", "4", "2*"], 9000),
        (["0.0001"], [], 1),
    ],
)
def test_the_larger_of_what_runs_and_what_any_step_of_initialization_takes(
    containers, init_containers, cpu
):
    requests = pod_requests(
        [container(one) for one in containers],
        [container(one.rstrip("*"), one.endswith("*")) for one in init_containers],
    )
    assert requests == (("cpu", cpu),)


def test_resources_are_added_up_each_by_itself_in_the_schedulers_units():
    first = Container({"cpu": Fraction("0.5"), "memory": Fraction(100)})
    second = Container({"memory": Fraction("0.5"), "example.com/gpu": Fraction(2)})

    assert pod_requests([first, second], [Container({"memory": Fraction(7)})]) == (
        ("cpu", 500),
        ("example.com/gpu", 2),
        ("memory", 101),
    )


def test_requests_of_the_whole_pod_take_the_place_of_the_containers():
    whole = {"cpu": Fraction(1), "example.com/gpu": Fraction(9), "hugepages-2Mi": Fraction(4)}
    gpu = Container({"cpu": Fraction(3), "example.com/gpu": Fraction(1)})

    assert pod_requests([gpu], whole_pod=whole) == (
        ("cpu", 1000),
        ("example.com/gpu", 1),
        ("hugepages-2Mi", 4),
    )


def test_overhead_comes_on_top():
    overhead = {"cpu": Fraction("0.25"), "memory": Fraction(10)}

    assert pod_requests([container("1")], overhead=overhead) == (("cpu", 1250), ("memory", 10))


def test_amounts_that_no_node_has_are_all_the_same():
    assert pod_requests([container("8" + "0" * 18)]) == pod_requests([container("9" * 30)])


def test_pod_without_requests():
    assert pod_requests([]) == ()
    assert pod_requests([container("0")]) == ()

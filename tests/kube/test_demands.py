"""Quantities, and what a pod takes from its node: containers, init steps, sidecars, overhead."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topospread.kube.demands import (
    Container,
    QuantityError,
    parse_quantity,
    pod_requests,
    thousandths,
    whole_units,
)

LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("12", 12),
        ("+12", 12),
        ("-3", -3),
        ("250m", Fraction(1, 4)),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("0.1", Fraction(1, 10)),
        ("1k", 1000),
        ("1M", 10**6),
        ("1E", 10**18),
        ("2Gi", 2 * 1024**3),
        ("1.5Ki", 1536),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12E-1", Fraction(6, 5)),
        ("1e+2", 100),
        ("3u", Fraction(3, 10**6)),
        ("7n", Fraction(7, 10**9)),
        ("0.1n", Fraction(1, 10**9)),  # nothing is finer than a billionth
        ("1e-30", Fraction(1, 10**9)),
        ("100E", LARGEST),  # what is larger than an int64 is cut
        ("-100E", -LARGEST),
    ],
)
def test_amounts(text, amount):
    assert parse_quantity(text) == amount


@pytest.mark.parametrize(
    "text",
    ["", ".", "m", "1mi", "1ki", "1KI", "1 Gi", " 1", "1e", "1E+", "1m3", "1e1000", "0x10",
     "\N{ARABIC-INDIC DIGIT ONE}", "1_0", "--1", "1" * 65, "NaN"],
)  # fmt: skip
def test_text_that_is_no_quantity(text):
    with pytest.raises(QuantityError):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("text", "milli", "whole"),
    [("100m", 100, 1), ("1", 1000, 1), ("1.0001", 1001, 2), ("1n", 1, 1), ("-1500m", -1500, -2)],
)
def test_amounts_are_rounded_up_to_the_unit(text, milli, whole):
    assert (thousandths(parse_quantity(text)), whole_units(parse_quantity(text))) == (milli, whole)


@given(st.integers(0, 2**62), st.sampled_from(["", "k", "Ki", "M", "Mi"]))
def test_whole_numbers_are_exact(number, suffix):
    factor = {"": 1, "k": 1000, "Ki": 1024, "M": 10**6, "Mi": 1024**2}[suffix]
    assert whole_units(parse_quantity(f"{number}{suffix}")) == min(number * factor, LARGEST)


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text):
    try:
        parse_quantity(text)
    except QuantityError:
        return
    assert any(c.isdigit() for c in text)


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

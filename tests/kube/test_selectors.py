"""Label syntax and selectors: what they match, when they are equal, and what does not parse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kube.values import selector
from tests.reference import selectors as reference
from tests.reference import strategies
from topospread.kube.label_syntax import (
    label_key_errors,
    label_value_errors,
    parse_canonical_int64,
    parse_int64,
)
from topospread.kube.selectors import (
    EVERYTHING,
    NOTHING,
    Requirement,
    Selector,
    SelectorError,
    compile_selector,
    selector_from_pairs,
)

SUBDOMAIN = ".".join(["d" * 50] * 5)


@pytest.mark.parametrize(
    "key",
    ["a", "A.b_c-9", "example.com/a", "1.2/3", "a-b.c/D", "x" * 63, f"{SUBDOMAIN[:253]}/a"],
)
def test_keys_that_are_valid(key):
    assert label_key_errors(key) == []


@pytest.mark.parametrize(
    ("key", "starts"),
    [
        ("", ["name part must be non-empty", "name part must consist of"]),
        ("/a", ["prefix part must be non-empty"]),
        ("a/", ["name part must be non-empty", "name part must consist of"]),
        ("a/b/c", ["a valid label key must consist of"]),
        ("x" * 64, ["name part must be no more than 63 bytes"]),
        ("Example.com/a", ["prefix part a lowercase RFC 1123 subdomain"]),
        (f"{SUBDOMAIN}/a", ["prefix part must be no more than 253 bytes"]),
        ("a b", ["name part must consist of"]),
        ("a\n", ["name part must consist of"]),
        ("é" * 32, ["name part must be no more than 63 bytes", "name part must consist of"]),
        ("-a", ["name part must consist of"]),
    ],
)
def test_keys_that_are_not(key, starts):
    errors = label_key_errors(key)
    assert len(errors) == len(starts)
    assert all(e.startswith(s) for e, s in zip(errors, starts, strict=True)), errors


@pytest.mark.parametrize("value", ["", "a", "A.b_c-9", "0", "x" * 63])
def test_values_that_are_valid(value):
    assert label_value_errors(value) == []


@pytest.mark.parametrize(
    ("value", "errors"), [("-1", 1), ("a b", 1), ("a\n", 1), ("x" * 64, 1), ("x" * 63 + "-", 2)]
)
def test_values_that_are_not(value, errors):
    assert len(label_value_errors(value)) == errors


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("007", 7),
        ("-0", 0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0" * 5000 + "1", 1),
    ],
)
def test_numbers_as_go_parses_them(text, number):
    assert parse_int64(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "1_0",
        " 1",
        "1 ",
        "1\n",
        "٣",
        "1.0",
        "0x1",
        "--1",
        "+-1",
        "9223372036854775808",
        "-9223372036854775809",
        "9" * 5000,
    ],
)
def test_texts_that_go_parses_as_no_number(text):
    assert parse_int64(text) is None


@pytest.mark.parametrize("text", ["007", "+7", "-0", "00", "", "1_0", "9223372036854775808"])
def test_numbers_that_are_not_in_canonical_form(text):
    assert parse_canonical_int64(text) is None


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("-7", -7), ("70", 70)])
def test_numbers_in_canonical_form(text, number):
    assert parse_canonical_int64(text) == number


NO_VALUES = "values set must be empty for exists and does not exist"
A, B = {"app": "a"}, {"app": "b"}


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("written", "matching", "others"),
    [
        (None, [], [{}, A]),
        ({}, [{}, A], []),
        ({"matchLabels": A}, [A, {"app": "a", "x": "y"}], [{}, B, {"App": "a"}]),
        ({"matchLabels": {"app": ""}}, [{"app": ""}], [{}, A]),
        (expression("app", "In", "a", "b"), [A, B], [{}, {"app": "c"}]),
        (expression("app", "NotIn", "a"), [{}, B], [A]),
        (expression("app", "Exists"), [A, {"app": ""}], [{}, {"x": "y"}]),
        (expression("app", "DoesNotExist"), [{}, {"x": "y"}], [A, {"app": ""}]),
    ],
)
def test_selector_matches(written, matching, others):
    compiled = compile_selector(selector(written))
    assert all(compiled.matches(labels) for labels in matching)
    assert not any(compiled.matches(labels) for labels in others)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (expression("a", "Gt", "1"), '"Gt" is not a valid label selector operator'),
        (expression("a", "in\t", "1"), '"in\\t" is not a valid label selector operator'),
        (
            expression("a", "In"),
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            expression("a", "Exists", "x", "y"),
            f'values: Invalid value: ["x","y"]: {NO_VALUES}',
        ),
    ],
)
def test_unparsable_selector_has_upstreams_text(written, text):
    with pytest.raises(SelectorError) as caught:
        compile_selector(selector(written))
    assert str(caught.value) == text


def test_everything_wrong_with_one_requirement_is_said_at_once():
    with pytest.raises(SelectorError) as caught:
        compile_selector(selector(expression("a b", "NotIn", "ok", "c d")))
    text = str(caught.value)
    assert text.startswith('[key: Invalid value: "a b": name part must')
    assert ', values[1][a b]: Invalid value: "c d": a valid label must' in text


def test_selectors_of_one_meaning_are_equal():
    written = {"matchLabels": {"a": "1", "b": "2"}, **expression("c", "In", "y", "x", "x")}
    turned = {"matchExpressions": [*written["matchExpressions"], *written["matchExpressions"]]}
    turned["matchExpressions"] += [
        {"key": key, "operator": "In", "values": [value]} for key, value in (("b", "2"), ("a", "1"))
    ]
    one, other = compile_selector(selector(written)), compile_selector(selector(turned))
    assert one == other
    assert hash(one) == hash(other)
    assert one.requirements == (
        Requirement("a", "In", ("1",)),
        Requirement("b", "In", ("2",)),
        Requirement("c", "In", ("x", "y")),
    )


def test_selector_of_nothing_is_not_empty_and_of_everything_is():
    assert EVERYTHING.empty
    assert not NOTHING.empty
    assert compile_selector(selector(None)) == NOTHING
    assert compile_selector(selector({})) == EVERYTHING == selector_from_pairs([])


def test_merging_labels_leaves_nothing_alone_and_narrows_everything():
    assert NOTHING.merged([("app", "a")]) == NOTHING
    assert EVERYTHING.merged([("app", "a")]) == selector_from_pairs([("app", "a")])
    assert EVERYTHING.merged([]).empty


def test_requirements_of_another_selector_are_added_and_nothing_has_none():
    app = selector_from_pairs([("app", "a")])
    both = app.and_requirements(selector_from_pairs([("rev", "not valid!")]))
    assert both.matches({"app": "a", "rev": "not valid!"})
    assert not both.matches(A)
    assert app.and_requirements(NOTHING) == app
    assert NOTHING.and_requirements(app) == NOTHING


@given(written=strategies.selectors(), labels=strategies.pod_labels())
def test_compiling_agrees_with_the_reference(written, labels):
    try:
        expected = reference.parse_selector(written)
    except reference.SelectorError:
        with pytest.raises(SelectorError):
            compile_selector(selector(written))
        return
    compiled = compile_selector(selector(written))
    assert compiled.matches(labels) == expected.matches(labels)
    assert compiled.empty == expected.empty


@given(
    requirements=st.lists(
        st.builds(
            Requirement,
            st.sampled_from("ab"),
            st.sampled_from(["In", "NotIn"]),
            st.lists(st.sampled_from("xyz"), min_size=1).map(tuple),
        )
    ),
    order=st.randoms(),
)
def test_the_order_of_requirements_does_not_matter(requirements, order):
    shuffled = list(requirements)
    order.shuffle(shuffled)
    assert Selector(tuple(shuffled)) == Selector(tuple(requirements))


VALUES = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)
REQUIREMENTS = st.builds(
    lambda key, operator, values: Requirement(
        key, operator, tuple(values) if operator in ("In", "NotIn") else ()
    ),
    st.sampled_from(["app", "tier", "x"]),
    st.sampled_from(["In", "NotIn", "NotIn", "Exists", "DoesNotExist"]),
    VALUES,
)


@given(
    requirements=st.lists(REQUIREMENTS, max_size=20),
    labels=st.dictionaries(st.sampled_from(["app", "tier", "y"]), st.sampled_from("abcde")),
)
def test_many_conditions_match_as_each_of_them(requirements, labels):
    expected = all(each.accepts(labels.get(each.key)) for each in requirements)
    assert Selector(tuple(requirements)).matches(labels) == expected

"""Field errors as Go prints them."""

import pytest

from topospread.errors import FieldViolation
from topospread.kube.violations import (
    duplicate,
    invalid,
    not_supported,
    quoted,
    required,
    violation_text,
    violations_text,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 日本", '"plain é 日本"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("\a\b\f\n\r\t\v", '"\\a\\b\\f\\n\\r\\t\\v"'),
        ("\x00\x1f\x7f", '"\\x00\\x1f\\x7f"'),
        ("\u00a0\u200b\ue000", '"\\u00a0\\u200b\\ue000"'),
        ("\U000e0001", '"\\U000e0001"'),
    ],
)
def test_quoting(text, shown):
    assert quoted(text) == shown


@pytest.mark.parametrize(
    ("violation", "text"),
    [
        (required("a.b", "can not be empty"), "a.b: Required value: can not be empty"),
        (invalid("a", -1, "too small"), "a: Invalid value: -1: too small"),
        (invalid("a", "x", "bad"), 'a: Invalid value: "x": bad'),
        (invalid("a", ["é", "<&>"], "bad"), r'a: Invalid value: ["é","\u003c\u0026\u003e"]: bad'),
        (invalid("a", None, "bad"), "a: Invalid value: null: bad"),
        (duplicate("a[0]", "{b, c}"), 'a[0]: Duplicate value: "{b, c}"'),
        (
            not_supported("a", "z", ("x", "y")),
            'a: Unsupported value: "z": supported values: "x", "y"',
        ),
    ],
)
def test_text_of_an_error(violation: FieldViolation, text):
    assert violation_text(violation) == text


def test_several_errors_stand_in_brackets_and_equal_ones_once():
    one, other = invalid("a", 1, "x"), invalid("b", 2, "y")
    assert violations_text([one, one]) == violation_text(one)
    both = f"[{violation_text(one)}, {violation_text(other)}]"
    assert violations_text([one, other, one]) == both

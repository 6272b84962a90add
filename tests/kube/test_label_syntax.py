"""Label keys, label values and numbers as apimachinery and Go read them."""

import pytest

from topospread.kube.label_syntax import (
    label_key_errors,
    label_value_errors,
    parse_canonical_int64,
    parse_int64,
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

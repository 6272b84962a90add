"""docs/lint.md has every code, with an example that gets it and a mended one that does not."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, text
from topospread.spread.findings import FindingCode
from topospread.spread.linting.catalog import RULES

SECTIONS = dict(
    re.findall(
        r"^## (\w+)\n(.*?)(?=^## |\Z)", text(ROOT / "docs/lint.md"), re.MULTILINE | re.DOTALL
    )
)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_each_code_has_a_section():
    assert sorted(SECTIONS) == sorted(code.value for code in FindingCode)


@pytest.mark.parametrize("code", RULES, ids=lambda code: code.value)
def test_the_example_gets_its_code_and_the_mended_one_does_not(code):
    # That the page shows what the commands print is for test_worked_examples.
    example, mended = CONSOLE.findall(SECTIONS[code.value])
    assert f" {code.value}: " in example
    assert f" {code.value}: " not in mended
    assert example.splitlines()[0] == mended.splitlines()[0]


@pytest.mark.parametrize("code", RULES, ids=lambda code: code.value)
def test_the_section_says_how_grave_it_is(code):
    severity = re.search(r"\*(Error|Warning|Info)", SECTIONS[code.value])
    shown = re.search(rf": (error|warning|info) {code.value}: ", SECTIONS[code.value])
    assert severity
    assert shown
    assert severity[1].lower() == shown[1]

"""docs/lint.md has every code, with an example that gets it and a mended one that does not."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, text
from topospread.spread.linting.engine import RULES
from topospread_proto.v1.explanation_pb2 import FindingCode

SECTIONS = dict(
    re.findall(
        r"^## (\w+)\n(.*?)(?=^## |\Z)", text(ROOT / "docs/lint.md"), re.MULTILINE | re.DOTALL
    )
)
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_each_code_has_a_section():
    names = [name.removeprefix("FINDING_CODE_") for name in FindingCode.keys()[1:]]
    assert sorted(SECTIONS) == sorted(name.title().replace("_", "") for name in names)


@pytest.mark.parametrize("code", [each.code for each in RULES.values()])
def test_the_example_gets_its_code_and_the_mended_one_does_not(code):
    # That the page shows what the commands print is for test_worked_examples.
    example, mended = CONSOLE.findall(SECTIONS[code])
    assert f" {code}: " in example
    assert f" {code}: " not in mended
    assert example.splitlines()[0] == mended.splitlines()[0]


@pytest.mark.parametrize("code", [each.code for each in RULES.values()])
def test_the_section_says_how_grave_it_is(code):
    severity = re.search(r"\*(Error|Warning|Info)", SECTIONS[code])
    shown = re.search(rf": (error|warning|info) {code}: ", SECTIONS[code])
    assert severity
    assert shown
    assert severity[1].lower() == shown[1]

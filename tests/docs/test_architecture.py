"""What docs/architecture.md says of the code."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tools.loc import ROOT

SERVER = "server/topospread/"


def counted() -> dict[str, set[str]]:
    """The files of each way of an EvaluatePod: a process of its own, which profiles all threads."""
    command = [sys.executable, "-m", "tools.path", "EvaluatePod"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    ways, files = dict[str, set[str]](), set[str]()
    for line in printed.splitlines():
        if ends := re.fullmatch(r"EvaluatePod, (\w+): \d+ files", line):
            ways[ends[1]], files = files, set()
        else:
            files.add(line.removeprefix(SERVER))
    return ways


@pytest.fixture(scope="module")
def listed() -> list[set[str]]:
    """The files in each table of the section."""
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    section = page.partition("### The files it enters\n")[2].partition("\n## ")[0]
    return [
        set(re.findall(r"^\| `([\w/]+\.py)` \|", table, re.MULTILINE))
        for table in section.split("Judged anew")
    ]


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_and_folders_that_are_named_exist(page):
    """As a reader finds them: from the top, or within the server's package."""
    written = (ROOT / page).read_text("utf-8")
    named = re.findall(r"`([\w.-]+/[\w./-]+(?:/|\.py|\.proto|\.yaml))`", written)
    assert named
    for path in named:
        if "NAME" not in path:
            assert any((root / path).exists() for root in (ROOT, ROOT / SERVER)), path


def test_files_of_an_evaluate_pod_are_listed(listed):
    remembered, more = listed
    assert counted() == {"remembered": remembered, "judged": remembered | more}

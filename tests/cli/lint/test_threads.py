"""Each thread in which users report a mistake that lint is to find."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

THREADS = yaml.safe_load(Path(__file__).with_name("threads.yaml").read_text(encoding="utf-8"))


def codes(command, manifest: str) -> list[str]:
    said = command("lint", "-f", "-", "-o", "json", "--fail-on", "never", stdin=manifest)
    assert (said.code, said.err) == (0, "")
    return sorted(each["code"] for each in json.loads(said.out)["items"])


@pytest.mark.parametrize("case", THREADS, ids=lambda case: case["thread"])
def test_the_manifest_of_the_thread_gets_these_codes(bare, case):
    assert codes(bare, case["manifest"]) == sorted(case["codes"])


MENDED = [case for case in THREADS if "mended" in case]


@pytest.mark.parametrize("case", MENDED, ids=lambda case: case["thread"])
def test_the_mended_manifest_gets_no_such_codes(bare, case):
    assert codes(bare, case["mended"]) == sorted(case["codes_mended"])

"""What the command line prints, to the letter: the transcripts in `transcripts`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.spreads import STATES
from tests.cli.transcript import FILES, FOLDER, printed, steps
from tests.redis_server import ROOT


@pytest.mark.parametrize("name", sorted(each.stem for each in FOLDER.glob("*.txt")))
def test_each_command_prints_what_the_transcript_has(
    topospread, cluster, tmp_path, monkeypatch, pytestconfig, name
):
    path = FOLDER / f"{name}.txt"
    folder = Path(shutil.copytree(FILES, tmp_path / "files"))
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "states.yaml").write_text(STATES)
    monkeypatch.chdir(folder)
    recorded = path.read_text("utf-8")
    found = "".join(printed(each, topospread, folder, cluster) for each in steps(recorded)).lstrip()
    if pytestconfig.getoption("--record", default=False):
        path.write_text(found, "utf-8")
    assert found == path.read_text("utf-8")

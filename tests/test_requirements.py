"""A program that is missing is a skip where a person runs tests, and a failure in CI."""

from __future__ import annotations

import pytest

from tests import requirements


@pytest.mark.parametrize(
    ("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)]
)
def test_missing_program_names_the_target_that_fetches_it(monkeypatch, tmp_path, ci, outcome):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(requirements, "FETCHED", tmp_path)
    with pytest.raises(outcome, match="promtool is missing: `make prometheus` fetches it"):
        requirements.need("promtool", target="prometheus")


def test_program_is_found_on_path_before_what_was_fetched(monkeypatch, tmp_path):
    for folder in ("path", "fetched"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "haproxy").touch(0o755)
    monkeypatch.setattr(requirements, "FETCHED", tmp_path / "fetched")
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert requirements.need("haproxy") == str(tmp_path / "fetched" / "haproxy")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert requirements.need("haproxy") == str(tmp_path / "path" / "haproxy")

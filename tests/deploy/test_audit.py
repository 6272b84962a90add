"""What is locked: the audit passes, and finds each way to be bad; the list of it is whole."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from email.message import Message
from typing import TYPE_CHECKING

import pytest

from tests.deploy.files import ROOT
from tools import audit, sbom

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLICK = re.compile(r"^click==(\S+) \\\n((?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE)
HASH = f"sha256:{'0' * 64}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of what is locked, to be doctored."""
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "server").mkdir()
    shutil.copy(ROOT / "server" / "pyproject.toml", tmp_path / "server")
    return tmp_path


def doctor(path: Path, change: Callable[[str], str]) -> None:
    text = path.read_text(encoding="utf-8")
    changed = change(text)
    assert changed != text
    path.write_text(changed, encoding="utf-8")


def test_the_locks_pass():
    made = subprocess.run(
        [sys.executable, "-m", "tools.audit"], cwd=ROOT, capture_output=True, text=True
    )
    assert (made.returncode, made.stderr) == (0, "")


BAD = {
    "another version": (
        lambda text: text.replace("click==", "click==0.0.0.", 1),
        ["asks for it, locked is 0.0.0.", "which is what is tested, has another", "make setup"],
    ),
    "a range": (lambda text: text.replace("click==", "click>=", 1), ["not one version"]),
    "a pattern": (lambda text: CLICK.sub(r"click==8.* \\\n\2", text), ["not one version"]),
    "no hash": (lambda text: CLICK.sub(r"click==\1\n", text), ["not locked by sha256 hashes"]),
    "a weak hash": (
        lambda text: CLICK.sub(r"click==\1 \\\n    --hash=md5:00\n", text),
        ["not locked by sha256 hashes"],
    ),
    "an address": (
        lambda text: f"{text}evil @ https://example.org/evil.whl --hash={HASH}\n",
        ["evil @ https://example.org/evil.whl: not one version"],
    ),
    "an index": (lambda text: f"--index-url https://example.org\n{text}", ["only packages of an"]),
    "a folder": (lambda text: f"{text}-e ./evil\n", ["only packages of an index"]),
    "too little": (lambda text: CLICK.sub("", text), ["pyproject.toml asks for it, and it is not"]),
    "too little, deeper": (
        lambda text: text.replace("\nanyio==", "\nother==", 1),
        ["starlette asks for it, and it is not locked", "other: locked, and nothing asks"],
    ),
    "too much": (
        lambda text: f"{text}evil==1.0 --hash={HASH}\n",
        ["evil: locked, and nothing asks for it", "has another"],
    ),
}


@pytest.mark.parametrize(("change", "said"), BAD.values(), ids=BAD)
def test_a_bad_lock_is_reported(root, change, said):
    doctor(root / "requirements" / "server.lock", change)
    problems = "\n".join(audit.problems(root))
    for each in said:
        assert each in problems


def test_a_requirement_that_is_not_locked_is_reported(root):
    doctor(
        root / "server" / "pyproject.toml", lambda text: text.replace('"click>=8.3"', '"click>=99"')
    )
    problems = audit.problems(root)
    assert len(problems) == 3
    assert all("pyproject.toml asks for it, locked is" in each for each in problems)


def test_a_server_with_another_client_is_reported(root):
    doctor(root / "server" / "pyproject.toml", lambda text: text.replace("client==", "client==9."))
    assert "does not ask for topospread-client==" in "\n".join(audit.problems(root))


def test_the_sbom_names_what_is_locked():
    made = subprocess.run(
        [sys.executable, "-m", "tools.sbom"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    document = json.loads(made.stdout)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    named = {f"{each['name']}=={each['version']}" for each in document["components"]}
    lines = (ROOT / "requirements" / "server.lock").read_text(encoding="utf-8").splitlines()
    pins = [line.split()[0] for line in lines if "==" in line and not line.startswith((" ", "#"))]
    locked = {re.sub(r"\[.*\]", "", each) for each in pins}
    assert named == locked
    assert {"grpcio", "protobuf", "numpy"} <= {each["name"] for each in document["components"]}
    hashes = [each["value"] for one in document["components"] for each in one["properties"]]
    assert len(hashes) == sum(line.count("--hash=sha256:") for line in lines)
    assert all(each["properties"] for each in document["components"])


def test_an_sbom_that_differs_from_the_lock_is_reported():
    text = (ROOT / "requirements" / "server.lock").read_text(encoding="utf-8")
    locked, components = audit.parsed(text)[0], sbom.components(text)
    assert list(audit.differing(locked, components)) == []
    (missing,) = audit.differing(locked, components[1:])
    assert "not in the SBOM" in missing
    (added,) = audit.differing(locked, [*components, {"name": "evil", "version": "1.0"}])
    assert added == "evil==1.0: in the SBOM, and not locked"


@pytest.mark.parametrize(
    ("fields", "licences"),
    [
        ([("License-Expression", "MPL-2.0 AND (Apache-2.0 OR MIT)")], "MPL-2.0 Apache-2.0 MIT"),
        ([("License", "3-Clause BSD License")], "BSD-3-Clause"),
        ([("Classifier", "License :: OSI Approved :: MIT License")], "MIT"),
        ([("License", "GPL-3.0-only")], "GPL-3.0-only"),
        ([("License-Expression", "AGPL-3.0-or-later")], "AGPL-3.0-or-later"),
        ([("Classifier", "Topic :: System")], ""),
    ],
)
def test_licences_are_read_as_packages_write_them(fields, licences):
    package = Message()
    for name, value in fields:
        package[name] = value
    assert audit.licences(package) == set(licences.split())


def test_a_licence_that_is_not_allowed_is_reported(monkeypatch):
    lock, _ = audit.parsed(f"click==1.0 --hash={HASH}\n")
    monkeypatch.setattr(audit, "ALLOWED", {"MIT"})
    assert list(audit.unlicensed(lock)) == ["click: its licence is BSD-3-Clause"]

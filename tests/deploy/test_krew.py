"""What krew installs: a manifest that it takes, and a script that runs the package."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile

import pytest
import yaml
from jsonschema import Draft202012Validator

from tools import krew

TEXT = {"type": "string", "minLength": 1}
REQUIREMENT = {
    "type": "object",
    "required": ["key", "operator"],
    "properties": {"key": {"enum": ["os", "arch"]}},
}
SELECTOR = {
    "type": "object",
    "additionalProperties": False,
    "minProperties": 1,
    "properties": {
        "matchLabels": {
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"enum": ["os", "arch"]},
        },
        "matchExpressions": {"type": "array", "minItems": 1, "items": REQUIREMENT},
    },
}
PLATFORM = {
    "type": "object",
    "additionalProperties": False,
    "required": ["uri", "sha256", "bin", "selector"],
    "properties": {
        "uri": {**TEXT, "pattern": "^https://"},
        "sha256": {"pattern": "^[a-f0-9]{64}$"},
        "bin": TEXT,
        "files": {"type": "array", "minItems": 1},
        "selector": SELECTOR,
    },
}
PLUGIN = {
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "krew.googlecontainertools.github.com/v1alpha2"},
        "kind": {"const": "Plugin"},
        "metadata": {"properties": {"name": {"pattern": r"^[\w-]+$"}}, "required": ["name"]},
        "spec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["version", "shortDescription", "platforms"],
            "properties": {
                "version": {"pattern": r"^v\d+\.\d+\.\d+(-[\w.-]+)?$"},
                "homepage": TEXT,
                # krew's index asks for no more than 50 characters.
                "shortDescription": {"pattern": r"^[^\r\n]{1,50}$"},
                "description": TEXT,
                "caveats": TEXT,
                "platforms": {"type": "array", "minItems": 1, "items": PLATFORM},
            },
        },
    },
}
"""What krew checks of a manifest before it installs it (its package validation)."""

URL = "https://example.com/kubectl-topospread.tar.gz"


@pytest.fixture
def written(tmp_path):
    krew.main(tmp_path, URL)
    return tmp_path


def test_a_manifest_is_one_that_krew_takes(written):
    plugin = yaml.safe_load((written / "topospread.yaml").read_text())
    assert [each.message for each in Draft202012Validator(PLUGIN).iter_errors(plugin)] == []
    assert plugin["metadata"]["name"] == "topospread", "as the file is called"
    archive = (written / f"kubectl-topospread-{plugin['spec']['version']}.tar.gz").read_bytes()
    [platform] = plugin["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive).hexdigest()
    assert platform["uri"] == URL


def test_the_template_names_no_address():
    text = (krew.FOLDER / "topospread.yaml").read_text()
    assert not re.search(r"https?://", text)


def test_an_archive_has_the_same_bytes_again(written):
    assert krew.archive() == krew.archive()


def run(written, *arguments, python):
    [archive] = written.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        # No filter before 3.11.4: the archive is of this test.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(written)
    return subprocess.run(
        [written / "kubectl-topospread", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "TOPOSPREAD_PYTHON": python},
    )


def test_the_program_in_an_archive_runs_the_package(written):
    said = run(written, "version", python=sys.executable)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("topospread ")


def test_the_program_says_what_to_install_without_the_package(written):
    program = written / "python"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    said = run(written, "version", python=str(program))
    assert (said.returncode, said.stdout) == (2, "")
    assert "pip install 'topospread[sync]'" in said.stderr

"""The list of what a server is made of names each locked package, with its hashes."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from tests.deploy.files import ROOT

LOCK = ROOT / "requirements" / "server.lock"


def test_the_sbom_names_what_is_locked():
    made = subprocess.run(
        [sys.executable, "-m", "tools.sbom"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    document = json.loads(made.stdout)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    named = {f"{each['name']}=={each['version']}" for each in document["components"]}
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    pins = [line.split()[0] for line in lines if "==" in line and not line.startswith((" ", "#"))]
    locked = {re.sub(r"\[.*\]", "", each) for each in pins}
    assert named == locked
    assert {"grpcio", "protobuf", "numpy"} <= {each["name"] for each in document["components"]}
    hashes = [each["value"] for one in document["components"] for each in one["properties"]]
    assert len(hashes) == sum(line.count("--hash=sha256:") for line in lines)
    assert all(each["properties"] for each in document["components"])

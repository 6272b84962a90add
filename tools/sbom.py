"""Writes what a server is made of, from its lock, as CycloneDX 1.6 in JSON; needs no network.

make sbom > topospread.cdx.json
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "server.lock"
_PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def components(lock: str) -> list[dict[str, object]]:
    """The packages of a lock; each names the files that it allows by their hashes."""
    starts = list(_PACKAGE.finditer(lock))
    ends = [found.start() for found in starts[1:]] + [len(lock)]
    return [
        {
            "type": "library",
            "name": found[1],
            "version": found[2],
            "bom-ref": f"pkg:pypi/{found[1]}@{found[2]}",
            "purl": f"pkg:pypi/{found[1]}@{found[2]}",
            "properties": [
                {"name": "topospread:sha256", "value": digest}
                for digest in _HASH.findall(lock, found.start(), end)
            ],
        }
        for found, end in zip(starts, ends, strict=True)
    ]


def document(lock: str) -> dict[str, object]:
    """The whole document."""
    project = tomllib.loads((ROOT / "server" / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    about = {"type": "application", "name": project["name"], "version": project["version"]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**about, "bom-ref": project["name"]}},
        "components": components(lock),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(document(LOCK.read_text(encoding="utf-8")), indent=2) + "\n")

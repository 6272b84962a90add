"""`python -m tools.krew FOLDER URL`: the archive that krew installs, and its manifest.

URL is the address at which the archive will be. The archive has the same bytes on every machine, so
that its SHA-256 can be told before it is uploaded.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / "deploy" / "krew"
PROGRAM: Final = "kubectl-topospread"


def archive() -> bytes:
    """The program and the licence as a tar.gz."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, mode in ((FOLDER / PROGRAM, 0o755), (ROOT / "LICENSE", 0o644)):
            content = path.read_bytes()
            # No time, owner or umask of this machine.
            entry = tarfile.TarInfo(path.name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


def manifest(url: str, content: bytes) -> str:
    """The manifest of an archive that is at an address."""
    text = (FOLDER / "topospread.yaml").read_text(encoding="utf-8")
    _, _, text = text.partition("\n")
    values = {"version": version(), "uri": url, "sha256": hashlib.sha256(content).hexdigest()}
    for name, value in values.items():
        text = text.replace(f'"{{{name}}}"', f'"{value}"')
    return text


def version() -> str:
    """Of the package, as krew writes it."""
    project = tomllib.loads((ROOT / "server" / "pyproject.toml").read_text(encoding="utf-8"))
    return f"v{project['project']['version']}"


def main(folder: Path, url: str) -> None:
    """Write both files."""
    content = archive()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{PROGRAM}-{version()}.tar.gz").write_bytes(content)
    (folder / "topospread.yaml").write_text(manifest(url, content), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[2].startswith("https://"):
        sys.exit("usage: python -m tools.krew FOLDER https://…")
    main(Path(sys.argv[1]), sys.argv[2])

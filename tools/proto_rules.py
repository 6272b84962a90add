"""`python -m tools.proto_rules [--accept]`: buf's rules, over what our own protoc makes of proto/.

The frames' file, which the build generates, is held to the style, too.

`buf lint` (STANDARD) holds the style, and `buf breaking` (PACKAGE) the promise to callers: what
stands in proto/released.binpb keeps its numbers, its types and its names, on the wire, in JSON and
in generated sources. `--accept` writes that file anew, which is due with a release, and with a
break that is meant.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from hatch_build import FRAMES, PROTO_ROOT, PUBLISHED, include_path, protoc, write_frames

ROOT: Final = Path(__file__).resolve().parent.parent
PROTOS: Final = ROOT / PROTO_ROOT
RELEASED: Final = PROTOS / "released.binpb"

# Not ours to style: google.rpc's files, and the protocol of the autoscaler's.
_OTHERS: Final = ["google", "third_party"]
_LINT: Final = {"version": "v2", "lint": {"use": ["STANDARD"], "ignore": _OTHERS}}
_BREAKING: Final = {"version": "v2", "breaking": {"use": ["PACKAGE"], "ignore": _OTHERS}}


def main(arguments: list[str]) -> int:
    """0 when all rules hold."""
    with tempfile.TemporaryDirectory(prefix="topospread-proto-") as made:
        if arguments == ["--accept"]:
            _describe([PROTOS], _published(), RELEASED, comments=False)
            return 0
        everything = Path(made) / "all.binpb"
        public = Path(made) / "public.binpb"
        generated = Path(made) / "generated"
        write_frames(PROTOS, generated)
        written = [file.relative_to(PROTOS).as_posix() for file in PROTOS.rglob("*.proto")]
        _describe([PROTOS, generated], sorted([*written, FRAMES]), everything, comments=True)
        _describe([PROTOS], _published(), public, comments=False)
        lint = _buf("lint", everything, "--config", json.dumps(_LINT))
        against = ["--against", str(RELEASED), "--against-config", json.dumps(_BREAKING)]
        breaking = _buf("breaking", public, "--config", json.dumps(_BREAKING), *against)
        if breaking:
            print("callers break: keep what was there; or, where that is meant: see --accept")
        return lint or breaking


def _published() -> list[str]:
    return [
        file.relative_to(PROTOS).as_posix()
        for each in PUBLISHED
        for file in sorted((PROTOS / each.protos).glob("*.proto"))
    ]


def _describe(roots: list[Path], names: list[str], target: Path, *, comments: bool) -> None:
    """Write the descriptors of some files below some directories, and of what they import."""
    protoc(
        *include_path(*roots),
        f"--descriptor_set_out={target}",
        "--include_imports",
        *(["--include_source_info"] if comments else []),
        *names,
    )
    if not comments:
        described = FileDescriptorSet.FromString(target.read_bytes())
        target.write_bytes(described.SerializeToString(deterministic=True))


def _buf(command: str, image: Path, *options: str) -> int:
    binary = Path(sysconfig.get_path("scripts")) / "buf"
    return subprocess.run([binary, command, image, *options], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

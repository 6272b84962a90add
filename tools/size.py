"""`make size`: print how large the project is, by figures that two commits are compared with.

Files are those that git tracks, as the work tree has them.
"""

from __future__ import annotations

import re
from typing import Final

from tools.loc import ROOT, count, tracked
from tools.path import entered

_RPC: Final = re.compile(r"^\s*rpc \w+\(", re.MULTILINE)
_SETTING: Final = re.compile(r"^\| `--", re.MULTILINE)


def main() -> None:
    """Print a line a figure."""
    server = count("server")
    lua = [path.read_text("utf-8").splitlines() for path in tracked("server/*.lua")]
    rpcs = "".join(path.read_text("utf-8") for path in tracked("proto/topospread/v1/*.proto"))
    settings = (ROOT / "docs/settings.md").read_text("utf-8")
    ways = entered("EvaluatePod")
    for name, figure in (
        ("server, lines of .py", server.total()),
        ("server, code without docstrings, comments, blanks, imports", server["code"]),
        ("server, files of .py", len(tracked("server/*.py"))),
        ("server, lines of .lua", sum(map(len, lua))),
        ("client, lines of .py", count("client").total()),
        ("tests, lines of .py", count("tests").total()),
        ("bench, lines of .py", count("bench").total()),
        *((f"files that EvaluatePod enters, {way}", len(files)) for way, files in ways.items()),
        ("settings", len(_SETTING.findall(settings))),
        ("RPCs", len(_RPC.findall(rpcs))),
    ):
        print(f"{figure:>7,}  {name}")


if __name__ == "__main__":
    main()

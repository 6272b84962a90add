"""Print which share of lines and branches the tests of `make coverage` reached, and of how many."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Final

import coverage

from tools.loc import ROOT

FOLDERS: Final = ("server", "client")


def main() -> None:
    """Print a line for each folder."""
    recorded = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    recorded.load()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        for each in FOLDERS:
            recorded.json_report(include=[f"{ROOT / each}/*"], outfile=str(report))
            totals = json.loads(report.read_text("utf-8"))["totals"]
            shares = (
                f"{covered:,} of {there:,} {what} ({covered / there:.2%})"
                for what, covered, there in (
                    ("lines", totals["covered_lines"], totals["num_statements"]),
                    ("branches", totals["covered_branches"], totals["num_branches"]),
                )
            )
            print(f"coverage: {each}: {', '.join(shares)}")


if __name__ == "__main__":
    main()

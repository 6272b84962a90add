"""`python -m tools.release_notes VERSION`: prints its part of CHANGELOG.md, a release's notes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

CHANGELOG: Final = Path(__file__).resolve().parents[1] / "CHANGELOG.md"


def notes(version: str, changelog: str) -> str:
    """The text below a version's heading.

    Raises:
        LookupError: The version has no heading, or nothing below it.
    """
    parts = re.split(r"^## \[([^\]]+)\].*\n", changelog, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True)).get(version, "").strip()
    if not found:
        raise LookupError(f"CHANGELOG.md says nothing of {version}")
    return found


if __name__ == "__main__":
    try:
        print(notes(sys.argv[1], CHANGELOG.read_text(encoding="utf-8")))
    except LookupError as error:
        sys.exit(str(error))

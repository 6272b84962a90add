"""`python -m tools.unasync`: the blocking client from the one for asyncio.

What differs is text: words of asyncio go, names change. `--check`, which `make lint` runs, says
whether the blocking client is what would be written.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "client/topospread_client/_aio.py"
TARGET: Final = SOURCE.with_name("_client.py")

HEAD: Final = '''"""The blocking client. Threads may share one.

Generated from `_aio.py` by `python -m tools.unasync`: change it there.
"""
'''

RULES: Final = {
    r'\A"""[^"]*"""\n': HEAD,
    r"AsyncGenerator\[(.+), None\]": r"Generator[\1, None, None]",
    r"\bAsync(?=[A-Z])": "",
    r"\basync (?=def|for|with)|\bawait ": "",
    r"__a(?=enter__|exit__)": "__",
    r"an awaitable method": "a method",
    r"\n +for each in (getattr.+):\n +yield each": r"\n            yield from \1",
}
"""What is replaced, in this order."""


def blocking(source: str) -> str:
    """The text of the blocking client."""
    for pattern, replacement in RULES.items():
        source = re.sub(pattern, replacement, source)
    ruff = [sys.executable, "-m", "ruff"]
    for step in (["check", "--quiet", "--select=I", "--fix"], ["format", "--quiet"]):
        source = subprocess.run(
            [*ruff, *step, f"--stdin-filename={TARGET}", "-"],
            input=source,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
    return source


def main() -> None:
    """Write the blocking client, or check it."""
    made = blocking(SOURCE.read_text("utf-8"))
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(made, "utf-8")
    elif made != TARGET.read_text("utf-8"):
        sys.exit(f"{TARGET.relative_to(ROOT)} is not {SOURCE.name}'s: run python -m tools.unasync")


if __name__ == "__main__":
    main()

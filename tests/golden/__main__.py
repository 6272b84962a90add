"""Record what the product answers now.

    python -m tests.golden --record [PART ...]

Without --record it prints what differs, as the test does.
"""

from __future__ import annotations

import argparse
import sys

from tests.golden.recorded import PARTS, difference, found, write


def main() -> int:
    """Record or compare some parts, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write what is answered now")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    differs = False
    for part, answers in found().items():
        if asked.parts and part not in asked.parts:
            continue
        if text := difference(part, answers):
            differs = True
            sys.stdout.write(f"{text}\n")
        if asked.record:
            write(part, answers)
    return 1 if differs and not asked.record else 0


if __name__ == "__main__":
    sys.exit(main())

"""What each field that grows costs in a cluster of some size, and whether that is within bounds.

    python -m tests.costs --nodes 5000 --pods 50000 [--only EvaluatePod]

Ends with 1 when a field is beyond its bounds.
"""

from __future__ import annotations

import argparse
import sys

from tests.costs.combined import COMBINED, judged_together
from tests.costs.grown import growths
from tests.costs.judged import judged
from tests.costs.measured import MIB, Measured, load
from tests.servers import ServerProcess


def main() -> None:
    """Try them all and print what is beyond its bounds."""
    parser = argparse.ArgumentParser(prog="python -m tests.costs")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--only", default="", help="methods whose name has this in it")
    parser.add_argument("--slack", type=float, default=1.0, help="times the bounds of time")
    asked = parser.parse_args()
    faults = tried = 0
    with ServerProcess("--listen", "127.0.0.1:0", "--http", "off", "--store", "memory:") as server:
        measured = Measured(server.process.pid, server.address)
        load(measured, asked.nodes, asked.pods)
        before = measured.rss
        for growth in growths():
            if asked.only not in growth.name:
                continue
            tried += 1
            for fault in judged(measured, growth, slack=asked.slack):
                faults += 1
                sys.stdout.write(f"{fault}\n")
                sys.stdout.flush()
        for name in COMBINED:
            if asked.only in name:
                tried += 1
                for fault in judged_together(measured, name, slack=asked.slack):
                    faults += 1
                    sys.stdout.write(f"{fault}\n")
        after = measured.rss
    sys.stdout.write(
        f"{tried} fields at {asked.nodes} nodes and {asked.pods} pods: {faults} beyond bounds; "
        f"RSS {before / MIB:.0f} MiB, then {after / MIB:.0f} MiB\n"
    )
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()

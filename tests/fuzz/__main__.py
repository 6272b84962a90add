"""All campaigns, each against a server of its own, with their figures.

    python -m tests.fuzz --requests 100000 --files 20000 --peers 10000 --memory 100

Ends with 1 when anything was found.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.campaign import Campaign
from tests.fuzz.cuts import cut
from tests.fuzz.files import Files
from tests.fuzz.found import Found
from tests.fuzz.memory import ATTACKS, CALLERS, UNAUTHENTICATED, attacked, open_files
from tests.fuzz.peers import crowded
from tests.fuzz.stored import in_redis, in_sqlite
from tests.redis_server import RedisProcess, default_redis_binary
from tests.servers import served
from topospread.transports.grpc.server import MAX_UNTAKEN


def requests(many: int, seed: int) -> Found:
    """Calls and HTTP requests."""
    with served(http="127.0.0.1:0", extender="filter") as server:
        return Campaign(server, seed).run(many)


def files(many: int, seed: int) -> Found:
    """Files for the command line."""
    with served() as server:
        return Files(server.address, seed).run(many)


def stored(many: int, seed: int) -> Found:
    """Damage to a SQLite file and to a Redis, half each."""
    found = Found()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        found.add(in_sqlite(path, seed, many - many // 2))
        with RedisProcess(Path(folder) / "redis", binary=default_redis_binary()) as server:
            found.add(in_redis(server.url, seed, many // 2))
    return found


def peers(many: int, seed: int) -> Found:
    """Idle connections and resets, of each kind so many; nothing in it is random."""
    del seed
    return crowded(many)


def cuts(many: int, seed: int) -> Found:
    """Lists that are cut while they are sent, on both stores."""
    return cut(many, seed)


def memory(many: int, seed: int) -> Found:
    """What callers can make a server keep, by many attacks: of each this percentage."""
    del seed
    open_files()
    found = Found()
    for attack, calls, unauthenticated in ATTACKS:
        found.sent += 1
        for tls in (False, True):
            came = attacked(attack, max(1, calls * many // 100), tls=tls)
            grown = came["peak"] - came["before"]
            left = came["after"] - (1.5 * came["before"] + 50)
            failed = came["failed"] + (came["dropped"] if calls < MAX_UNTAKEN else 0)
            if grown > (UNAUTHENTICATED if unauthenticated else CALLERS) or left > 0 or failed:
                found.faults.append(f"{attack.__name__}, TLS {tls}: {came}")
    return found


CAMPAIGNS = (
    (requests, 100_000),
    (files, 20_000),
    (stored, 1000),
    (peers, 10_000),
    (cuts, 1000),
    (memory, 100),
)
"""Each with how many inputs it tries; 0 leaves it out."""


def main() -> None:
    """Run them and print what they came to."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    for campaign, many in CAMPAIGNS:
        name = campaign.__name__
        parser.add_argument(f"--{name}", type=int, default=many, help=campaign.__doc__)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    faults = 0
    for campaign, _ in CAMPAIGNS:
        name = campaign.__name__
        if not (many := getattr(asked, name)):
            continue
        began = time.monotonic()
        found = campaign(many, asked.seed)
        faults += len(found.faults)
        sys.stdout.write(found.report(f"{name}, seed {asked.seed}", time.monotonic() - began))
        sys.stdout.flush()
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()

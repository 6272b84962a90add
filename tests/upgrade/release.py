"""Writes down what a release offers, stores and answers, once it is released.

    python -m tests.upgrade.release

Tests hold what comes after it to that. Beside the descriptors of the API and of stored values there
are a SQLite file, a Redis and the calls of its script, as a server left them to which the story was
told, and what it answered.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.redis_server import RedisProcess
from tests.servers import Peer, served
from tests.upgrade import stores
from tests.upgrade.descriptors import DESCRIPTORS, current
from tests.upgrade.story import SERVED, Api, Teller, told_to
from topospread.store.redis import keys
from topospread.store.redis.script import Script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor_pb2 import FileDescriptorSet


def written(files: FileDescriptorSet) -> None:
    """Tell the story to a server on each store, and write down what became of them.

    Args:
        files: descriptors of what the release offers.
    """
    with TemporaryDirectory() as directory:
        path = Path(directory) / "state.db"
        told = _told(f"sqlite://{path}", files)
        stores.keep("sqlite", {**told, "statements": stores.taken_from_file(path)})
        with RedisProcess(Path(directory) / "redis") as server, server.client() as client:
            told = _recorded(server.url, files)
            stores.keep("redis", {**told, "keys": stores.taken_from_redis(client)})


def _told(store: str, files: FileDescriptorSet) -> dict[str, Any]:
    """What a server answers to the story, and the revisions of its writes."""
    with served(store=store, **SERVED) as server, Peer(server.address) as peer:
        teller = Teller(peer.channel, Api(files))
        answers = teller.tell(told_to(files))
    return {"answers": answers, "revisions": teller.revisions}


def _recorded(store: str, files: FileDescriptorSet) -> dict[str, Any]:
    """The same, with the script and all calls of it: its keys and arguments."""
    calls: list[Any] = []
    scripts: set[str] = set()
    run = Script.run

    def noted(self: Script, cluster: str, words: Sequence[Any], **more: Any) -> Any:
        scripts.add(self._text)
        given = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        calls.append([list(keys.script_keys(cluster)), [word.decode("latin-1") for word in given]])
        return run(self, cluster, words, **more)

    with patch.object(Script, "run", noted):
        told = _told(store, files)
    (script,) = scripts
    return {**told, "script": script, "calls": calls}


if __name__ == "__main__":
    stores.RELEASED.mkdir(exist_ok=True)
    DESCRIPTORS.write_bytes(current().SerializeToString(deterministic=True))
    written(current())
    sys.stdout.write(f"{stores.RELEASED}\n")

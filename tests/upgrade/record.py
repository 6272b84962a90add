"""Records what a version offers, stores and answers, for later versions to be compared with.

    python -m tests.upgrade.record

Beside the descriptors of the API and of stored values there are a SQLite file, a Redis and the
calls of its script, as a server left them after the calls of story.jsonl, and its answers.
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
from tests.upgrade.story import SERVED, Api, StoryCaller, steps_known_to
from topospread.store.redis import keys
from topospread.store.redis.client import Script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.descriptor_pb2 import FileDescriptorSet


def written(files: FileDescriptorSet) -> None:
    """Make the calls of the story to a server on each store, and record stores and answers.

    Args:
        files: descriptors of what the version offers.
    """
    with TemporaryDirectory() as directory:
        path = Path(directory) / "state.db"
        answers = _answers(f"sqlite://{path}", files)
        stores.keep("sqlite", {**answers, "statements": stores.taken_from_file(path)})
        with RedisProcess(Path(directory) / "redis") as server, server.client() as client:
            answers = _recorded(server.url, files)
            stores.keep("redis", {**answers, "keys": stores.taken_from_redis(client)})


def _answers(store: str, files: FileDescriptorSet) -> dict[str, Any]:
    """A server's answers to the story, and the revisions of its writes."""
    with served(store=store, **SERVED) as server, Peer(server.address) as peer:
        caller = StoryCaller(peer.channel, Api(files))
        answers = caller.make_calls(steps_known_to(files))
    return {"answers": answers, "revisions": caller.revisions}


def _recorded(store: str, files: FileDescriptorSet) -> dict[str, Any]:
    """The same, with the script and all calls of it: its keys and arguments."""
    calls: list[Any] = []
    scripts: set[str] = set()
    run = Script.run

    def recording(self: Script, cluster: str, words: Sequence[Any], **more: Any) -> Any:
        scripts.add(self._text)
        given = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        calls.append([list(keys.script_keys(cluster)), [word.decode("latin-1") for word in given]])
        return run(self, cluster, words, **more)

    with patch.object(Script, "run", recording):
        answers = _answers(store, files)
    (script,) = scripts
    return {**answers, "script": script, "calls": calls}


if __name__ == "__main__":
    stores.RECORDED.mkdir(exist_ok=True)
    DESCRIPTORS.write_bytes(current().SerializeToString(deterministic=True))
    written(current())
    sys.stdout.write(f"{stores.RECORDED}\n")

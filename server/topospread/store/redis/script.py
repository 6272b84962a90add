"""The Lua script, run by its hash; Redis is given its text when it does not know it."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import TYPE_CHECKING

from redis import exceptions

from topospread.store.redis import keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.redis.connections import Reply, Word
    from topospread.store.redis.wire import Wires


class Script:
    """store.lua, wherever a cluster's keys are."""

    def __init__(self, wires: Wires) -> None:
        self._wires = wires
        self._text = resources.files(__package__).joinpath("store.lua").read_text("utf-8")
        self._sha = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    def run(
        self,
        cluster: str,
        words: Sequence[Word],
        *,
        timeout: float | None = None,
        repeat: bool = True,
    ) -> Reply:
        """Run it for one cluster; see :meth:`Wire.call`."""
        wire = self._wires.of(cluster)
        names = keys.script_keys(cluster)
        tail = (len(names), *names, *words)

        def run(command: str, script: str) -> Reply:
            replicas = self._wires.settings.wait_replicas
            return wire.call(
                command, script, *tail, timeout=timeout, repeat=repeat, replicas=replicas
            )

        try:
            return run("EVALSHA", self._sha)
        except exceptions.NoScriptError:
            return run("EVAL", self._text)

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
    from topospread.store.redis.wire import Wire


class Script:
    """store.lua on one Redis."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
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
        names = keys.script_keys(cluster)
        tail = (len(names), *names, *words)
        try:
            return self._wire.call("EVALSHA", self._sha, *tail, timeout=timeout, repeat=repeat)
        except exceptions.NoScriptError:
            return self._wire.call("EVAL", self._text, *tail, timeout=timeout, repeat=repeat)

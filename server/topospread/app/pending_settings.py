"""Changes of the configuration file that a running server does not take."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from topospread.config.settings import SETTINGS, ServerSettings
from topospread.config.values import without_password

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG: Final = logging.getLogger(__name__)


class PendingSettings:
    """Settings that the file has otherwise than when the server started.

    Args:
        settings: that hold. What a flag or a variable says is not the file's to change.
        at_start: settings by field name that the file had.
    """

    def __init__(self, settings: ServerSettings, at_start: Mapping[str, object]) -> None:
        self._overriding = settings.overriding
        self._at_start = at_start
        self._defaults = ServerSettings()

    def keys(self, now: Mapping[str, object]) -> tuple[str, ...]:
        """Keys of those that differ, as the file writes them.

        Args:
            now: settings by field name that the file has.
        """
        return tuple(self._differing(now))

    def warn(self, now: Mapping[str, object]) -> None:
        """Warn of what waits for a restart; argument as of :meth:`keys`."""
        if differing := self._differing(now):
            changes = ", ".join(f"{key} ({_change(*pair)})" for key, pair in differing.items())
            LOG.warning("settings are read at the start: these wait for a restart: %s", changes)

    def _differing(self, now: Mapping[str, object]) -> dict[str, tuple[object, object]]:
        """What was at the start and is now, by key."""
        found = {
            setting.key: (self._value(name, self._at_start), self._value(name, now))
            for name, setting in SETTINGS.items()
            if name not in self._overriding
        }
        return {key: pair for key, pair in found.items() if pair[0] != pair[1]}

    def _value(self, name: str, given: Mapping[str, object]) -> object:
        return given.get(name, getattr(self._defaults, name))


def _change(before: object, now: object) -> str:
    return f"{_shown(before)} → {_shown(now)}"


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return "off" if value is None else without_password(str(value)) or "default"

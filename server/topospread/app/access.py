"""Who may do what, read from the access file of the settings."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from topospread.access.file import read_access
from topospread.access.gate import Gate, Roll
from topospread.config.reloading import Reloading

if TYPE_CHECKING:
    from topospread.config.settings import ServerSettings

LOG: Final = logging.getLogger(__name__)


def watched_access(settings: ServerSettings) -> Reloading[Roll] | None:
    """The access file, read again when it changes; None where there is none.

    Raises:
        ConfigError: it cannot be used.
    """
    path = settings.access_file
    if not path:
        return None
    if settings.insecure and not settings.tls:
        LOG.warning("--access-file: without TLS, tokens can be read on their way")
    return Reloading(path, lambda text: read_access(text, path))


def make_gate(access: Reloading[Roll] | None) -> Gate | None:
    """Tells callers by what is in force; None lets anybody in."""
    return None if access is None else Gate(lambda: access.current.value)

"""`topospread serve`: one process, or several under a supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.telemetry.logs import start_logging

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.app.serving import Serving
    from topospread.config.settings import ServerSettings


def serve(settings: ServerSettings, announce: Callable[[Serving], None]) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reads the configuration again.

    Args:
        settings: what was configured.
        announce: told of what serves once it is ready, with the addresses that it has then.

    Raises:
        ConfigError: something in the settings cannot be used.
        Unavailable: the store is out of reach, or a process could not start.
    """
    output = start_logging(settings.log_level, settings.log_format)  # type: ignore[arg-type] # checked
    try:
        # Each is imported by whoever needs it: a supervisor starts its workers before it has loaded
        # what only they use.
        if settings.workers == 1:
            from topospread.app.serving import Process

            Process(settings).run(announce)
        else:
            from topospread.app.supervisor import Supervisor

            Supervisor(settings).run(announce)
    finally:
        output.close()

"""What keeps the doors of a process: access file and certificates, read when they change."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from topospread.access.file import read_access
from topospread.access.gate import Gate
from topospread.access.rates import Rates
from topospread.access.refusals import Refusals
from topospread.config.certificates import Pem, PemFiles
from topospread.config.reloading import Loaded, Reloading

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.access.gate import Roll
    from topospread.config.settings import ServerSettings

LOG: Final = logging.getLogger(__name__)

ACCESS_POLL: Final = 0.5
"""Seconds between two looks at the access file: who is taken out of it is soon known no more."""


class Renewing(Protocol):
    """Something that reads its certificates again when it is told to."""

    def reload_certificates(self) -> None:
        """Read them.

        Raises:
            ConfigError: they cannot be used; the old ones stay.
        """


class Doors:
    """Who may come in, and by which certificates.

    Args:
        settings: which name the files.
        told: of each reading after the first that found something new: "access" or "certificates",
            and whether it is in force.

    Attributes:
        gate: tells callers; None lets anybody in.
        rates: how often each may call; None: as often as it likes.
        refusals: tells the audit log of who was not let in.

    Raises:
        ConfigError: a file cannot be used.
    """

    def __init__(
        self,
        settings: ServerSettings,
        told: Callable[[str, bool], None] = lambda _, __: None,
    ) -> None:
        self._told = told
        self._http: list[Renewing] = []
        self._access: Reloading[Roll] | None = None
        self._certificates: Reloading[Pem] | None = None
        self.gate: Gate | None = None
        self.rates: Rates | None = None
        self.refusals = Refusals()
        if settings.rate_limit:
            self.rates = Rates(settings.rate_limit, settings.rate_burst)
        if path := settings.access_file:
            access = self._access = Reloading(
                path,
                lambda text: read_access(text, path),
                on_reload=lambda loaded: told("access", not loaded.error),
                interval=ACCESS_POLL,
            )
            self.gate = Gate(lambda: access.current.value)
            if settings.insecure and not settings.tls:
                LOG.warning("--access-file: without TLS, tokens can be read on their way")
        if settings.tls:
            grpc = PemFiles(settings.tls_cert, settings.tls_key, settings.client_ca)
            http = self.http_files = PemFiles(
                settings.tls_cert, settings.tls_key, settings.http_verifies_clients_by
            )
            self._certificates = Reloading(
                {path for files in (grpc, http) for path in files.paths()},
                lambda *_: _checked(grpc, http),
                on_reload=self._renewed,
            )

    def current_pem(self) -> Pem:
        """What the files of gRPC's listener hold; only with TLS."""
        assert self._certificates is not None, "asked only where there is TLS"
        return self._certificates.current.value

    def renew(self, http: Renewing) -> None:
        """Keep a server of HTTP up to date as well."""
        self._http.append(http)

    def start(self) -> None:
        """Begin to watch the files."""
        for watched in (self._access, self._certificates):
            if watched is not None:
                watched.start()

    def reload(self) -> bool:
        """Read the files now; returns whether what they hold is in force."""
        known = self._access is None or self._access.reload()
        renewed = self._certificates is None or self._certificates.reload()
        return known and renewed

    def close(self) -> None:
        """Stop watching."""
        for watched in (self._access, self._certificates):
            if watched is not None:
                watched.close()

    def _renewed(self, loaded: Loaded[Pem]) -> None:
        if not loaded.error:
            for server in self._http:
                server.reload_certificates()
        self._told("certificates", not loaded.error)


def _checked(grpc: PemFiles, http: PemFiles) -> Pem:
    """What gRPC needs of the files; HTTP reads them by itself."""
    http.context()
    return grpc.read()

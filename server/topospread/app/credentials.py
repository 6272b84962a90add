"""The access file and certificates of a process, read again when they change."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from topospread.access.audit import DenialLog
from topospread.access.authentication import Authenticator
from topospread.access.file import read_access
from topospread.access.rate_limit import RateLimiter
from topospread.config.certificates import Pem, PemFiles
from topospread.config.reloading import FileWatcher, Loaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.access.authentication import CallerRegistry
    from topospread.config.settings import ServerSettings

LOG: Final = logging.getLogger(__name__)

ACCESS_POLL: Final = 0.5
"""Seconds between two checks of the access file: a removed caller soon has no access any more."""


class CertificateReloadable(Protocol):
    """A server that can read its certificates again."""

    def reload_certificates(self) -> None:
        """Read them.

        Raises:
            ConfigError: they cannot be used; the old ones stay.
        """


class CredentialWatcher:
    """Keeps the access file and the certificates up to date.

    Args:
        settings: with the paths of the files.
        on_reload: called after each reading that found a change, with "access" or "certificates"
            and whether the new content is in force.

    Attributes:
        authenticator: finds callers; None: anonymous callers may do everything.
        rate_limiter: bounds the calls of each caller; None: no bound.
        denials: logs denied calls.

    Raises:
        ConfigError: a file cannot be used.
    """

    def __init__(
        self,
        settings: ServerSettings,
        on_reload: Callable[[str, bool], None] = lambda _, __: None,
    ) -> None:
        self._on_reload = on_reload
        self._http: list[CertificateReloadable] = []
        self._access: FileWatcher[CallerRegistry] | None = None
        self._certificates: FileWatcher[Pem] | None = None
        self.authenticator: Authenticator | None = None
        self.rate_limiter: RateLimiter | None = None
        self.denials = DenialLog()
        if settings.rate_limit:
            self.rate_limiter = RateLimiter(settings.rate_limit, settings.rate_burst)
        if path := settings.access_file:
            access = self._access = FileWatcher(
                path,
                lambda text: read_access(text, path),
                on_reload=lambda loaded: on_reload("access", not loaded.error),
                interval=ACCESS_POLL,
            )
            self.authenticator = Authenticator(lambda: access.current.value)
            if settings.insecure and not settings.tls:
                LOG.warning("--access-file: without TLS, tokens are sent in plain text")
        if settings.tls:
            grpc = PemFiles(settings.tls_cert, settings.tls_key, settings.client_ca)
            http = self.http_files = PemFiles(
                settings.tls_cert, settings.tls_key, settings.http_verifies_clients_by
            )
            self._certificates = FileWatcher(
                {path for files in (grpc, http) for path in files.paths()},
                lambda *_: _checked(grpc, http),
                on_reload=self._on_certificates_reload,
            )

    def current_pem(self) -> Pem:
        """The content of the gRPC listener's files; only with TLS."""
        assert self._certificates is not None, "called only with TLS"
        return self._certificates.current.value

    def keep_reloaded(self, http: CertificateReloadable) -> None:
        """Reload the certificates of an HTTP server as well."""
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

    def _on_certificates_reload(self, loaded: Loaded[Pem]) -> None:
        if not loaded.error:
            for server in self._http:
                server.reload_certificates()
        self._on_reload("certificates", not loaded.error)


def _checked(grpc: PemFiles, http: PemFiles) -> Pem:
    """Check both, and return what gRPC needs; HTTP reads the files by itself."""
    http.context()
    return grpc.read()

"""The files of a process, read again when they change: configuration, callers, certificates."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from topospread.access.audit import DenialLog
from topospread.access.authentication import Authenticator
from topospread.access.file import read_access
from topospread.access.rate_limit import RateLimiter
from topospread.api.server_info import settings_digest
from topospread.codec.scheduler_config import read_rules
from topospread.config.files import FileWatcher, Loaded, Pem, PemFiles
from topospread.config.loading import changed_settings
from topospread.service.decisions.request import ProfileRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.access.authentication import CallerRegistry
    from topospread.config.settings import ServerSettings
    from topospread.spread.settings import ConfiguredRules
    from topospread.telemetry.metrics import Metrics

LOG: Final = logging.getLogger(__name__)

ACCESS_POLL: Final = 0.5
"""Seconds between two checks of the access file: a removed caller soon has no access any more."""


class WatchedConfiguration:
    """The configuration file: profiles and gates hold as soon as it changes, settings do not.

    Attributes:
        profiles: those in force.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(self, settings: ServerSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        name = settings.config or "configuration"
        self._watched = FileWatcher(
            settings.config,
            lambda text: read_rules(text, name, settings.feature_gates),
            on_reload=self._on_reload,
        )
        self._at_start = self._watched.current.value
        self.profiles: Final = ProfileRegistry(self._at_start)
        self.start: Final = self._watched.start
        self.reload: Final = self._watched.reload
        self.close: Final = self._watched.close
        self._expect_profiles(self._at_start)

    def state(self) -> tuple[int, str]:
        """The generation that is in force, and why the newest content was refused."""
        loaded = self._watched.current
        return loaded.generation, loaded.error

    def digest(self) -> str:
        """A digest of the settings that answers depend on."""
        return settings_digest(self._settings, self._watched.current.value)

    def _on_reload(self, loaded: Loaded[ConfiguredRules]) -> None:
        self._metrics.config_reloaded(loaded.generation, accepted=not loaded.error)
        if loaded.error:
            return
        self.profiles.replace(loaded.value)
        self._expect_profiles(loaded.value)
        if changed := changed_settings(
            self._at_start.settings, loaded.value.settings, self._settings.overriding
        ):
            LOG.warning("settings of the file wait for a restart: %s", ", ".join(changed))

    def _expect_profiles(self, rules: ConfiguredRules) -> None:
        for profile in rules.profiles:
            self._metrics.expect_profile(profile)


class CredentialWatcher:
    """Keeps the access file and the certificates up to date.

    Args:
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
        self._uses: list[Callable[[], None]] = []
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

    def on_new_certificates(self, use: Callable[[], None]) -> None:
        """Call this, too, when there are new certificates that can be used."""
        self._uses.append(use)

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
            for use in self._uses:
                use()
        self._on_reload("certificates", not loaded.error)


def _checked(grpc: PemFiles, http: PemFiles) -> Pem:
    """Check both, and return what gRPC needs; HTTP reads the files by itself."""
    http.context()
    return grpc.read()

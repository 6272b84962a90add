"""Every setting of the server: its unit, its default and the reason for it.

A setting has one name in three spellings: ``max_waiting`` is the flag ``--max-waiting``, the
variable ``TOPOSPREAD_MAX_WAITING`` and the key ``maxWaiting`` of a ``TopospreadConfiguration``.

Annotations of settings are values here, not text (``from __future__ import annotations``): SETTINGS
is made of them, and to evaluate them one by one takes as long as all the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Final, get_type_hints

from topospread.config import values
from topospread.config.following import FollowingSettings
from topospread.config.limits import LimitSettings
from topospread.config.listeners import ListenerSettings
from topospread.config.spelling import About, Setting
from topospread.config.values import without_password
from topospread.config.work import WorkSettings


@dataclass(frozen=True, kw_only=True)
class ServerSettings(FollowingSettings, LimitSettings, WorkSettings, ListenerSettings):
    """All settings. Immutable: what may change while the server runs is in the scheduler's rules.

    Those of operation and access stand here, after those of the bases, the last base's first.
    ``repr`` shows no store address: it may hold a password.
    """

    unready_when_stale: Annotated[
        bool,
        About(
            values.switch(),
            "",
            "Answer 503 at /readyz while the store is out of reach.",
            "Off: all servers would leave the balancer together, although each can answer.",
        ),
    ] = False
    grace: Annotated[
        float,
        About(
            values.seconds(),
            "seconds",
            "How long running calls may take after SIGTERM.",
            "Five seconds less than Kubernetes' terminationGracePeriodSeconds.",
        ),
    ] = 25.0
    max_connection_age: Annotated[
        float,
        About(
            values.seconds(),
            "seconds",
            "After which clients connect anew; streams are cut a minute later. 0 for never.",
            "Lets load move to new servers within minutes of a restart.",
        ),
    ] = 300.0
    reflection: Annotated[
        bool,
        About(
            values.switch(),
            "",
            "Serve gRPC reflection.",
            "grpcurl and ghz need it; with an access file it takes the role read.",
        ),
    ] = True
    scheduler_metrics: Annotated[
        bool,
        About(
            values.switch(),
            "",
            "Expose metrics under kube-scheduler's names.",
            "Its dashboards work; off where a kube-scheduler is summed with this server.",
        ),
    ] = True
    feature_gates: Annotated[
        Mapping[str, bool],
        About(
            values.switches(),
            "",
            "Feature gates by upstream's names, `Name=true,OtherName=false`; they go before those"
            " in the configuration file.",
            "Upstream's defaults.",
        ),
    ] = field(default_factory=dict)
    log_level: Annotated[
        str,
        About(
            values.choice("debug", "info", "warning", "error"),
            "",
            "The least important messages that are logged.",
            "No message is logged for each call at info.",
        ),
    ] = "info"
    log_format: Annotated[
        str,
        About(
            values.choice("auto", "json", "text"),
            "",
            "How log lines look; auto is text on a terminal and JSON elsewhere.",
            "Each reader gets what it can read.",
        ),
    ] = "auto"
    tls_cert: Annotated[
        str,
        About(
            values.text(),
            "",
            "PEM file with the server's certificate chain.",
            "Plain text on loopback.",
        ),
    ] = ""
    tls_key: Annotated[
        str, About(values.text(), "", "PEM file with its private key.", "As for the certificate.")
    ] = ""
    client_ca: Annotated[
        str,
        About(
            values.text(),
            "",
            "PEM file with the CAs that client certificates must be signed by; asks for one.",
            "Clients need no certificate.",
        ),
    ] = ""
    http_client_ca: Annotated[
        str,
        About(
            values.text(),
            "",
            "The same for HTTP; `none` asks for no certificate there. Empty: as --client-ca says.",
            "One word closes both doors; kubelet's probes have no certificate and need `none`.",
        ),
    ] = ""
    access_file: Annotated[
        str,
        About(
            values.text(),
            "",
            "YAML file of kind TopospreadAccess: hashed tokens, names in client certificates, and"
            " the roles of each; read again when it changes (docs/security.md).",
            "Without one, whoever reaches the server may do everything.",
        ),
    ] = ""
    insecure: Annotated[
        bool,
        About(
            values.switch(),
            "",
            "Allow plain text on an address that others can reach.",
            "Must be spelled out.",
        ),
    ] = False

    @property
    def tls(self) -> bool:
        """Whether calls are encrypted."""
        return bool(self.tls_cert)

    @property
    def http_verifies_clients_by(self) -> str:
        """The CA file for HTTP's client certificates; empty when none is asked for."""
        chosen = self.http_client_ca or self.client_ca
        return "" if chosen == "none" else chosen

    def shown(self) -> Mapping[str, object]:
        """All settings by key, fit for a terminal or a log: without passwords."""
        shown = {
            setting.key: getattr(self, name)
            for name, setting in SETTINGS.items()
            if name != "store"
        }
        return {**shown, "store": without_password(self.store)}


_HINTS = get_type_hints(ServerSettings, include_extras=True)
SETTINGS: Final[Mapping[str, Setting]] = {
    one.name: Setting(one.name, _HINTS[one.name].__metadata__[0]) for one in fields(ServerSettings)
}
"""By field name, in the order of the class."""

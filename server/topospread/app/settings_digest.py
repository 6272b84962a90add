"""The digest of the settings that answers depend on, by which servers are compared."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from topospread.codec.scheduler_config import ConfiguredRules
    from topospread.config.settings import ServerSettings

LIMITS: Final = (
    "max_constraints",
    "max_selector_terms",
    "max_batch_pods",
    "max_what_if_pods",
    "max_simulated_pods",
    "max_simulated_nodes",
    "max_batch_objects",
    "max_replace_objects",
    "max_held_bytes",
    "max_request_bytes",
    "max_decision_bytes",
    "max_response_bytes",
    "max_groups",
    "max_clusters",
    "max_cluster_constraints",
)
"""Settings by which one server may refuse what another answers, beside the rules."""


def settings_digest(settings: ServerSettings, rules: ConfiguredRules) -> str:
    """Return a digest of the profiles, feature gates and limits; equal ones have the same.

    Args:
        settings: of the server.
        rules: its profiles and feature gates.
    """
    limits = [getattr(settings, name) for name in LIMITS]
    content = repr((list(rules.profiles.items()), rules.gates, limits))
    return hashlib.sha256(content.encode()).hexdigest()[:12]

"""The service config of gRPC for callers in other languages: docs/service-config.json."""

from __future__ import annotations

import json

from topospread_client._methods import METHODS

RETRIES = {
    "maxAttempts": 5,
    "initialBackoff": "0.1s",
    "maxBackoff": "3s",
    "backoffMultiplier": 3,
    "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "CANCELLED"],
}
"""Of calls that were lost or refused: after 0.1, 0.3, 0.9 and 2.7 s, each give or take a fifth.
gRPC tries no more than five times; while there is no connection, calls wait for one instead.
"""


def service_config() -> str:
    """The methods that may be repeated whatever their request, and how they are."""
    repeated = [method.path.split("/")[1:] for method in METHODS.values() if method.idempotent]
    names = [{"service": service, "method": method} for service, method in sorted(repeated)]
    method_config = {"name": names, "waitForReady": True, "retryPolicy": RETRIES}
    return json.dumps({"methodConfig": [method_config]}, indent=2) + "\n"

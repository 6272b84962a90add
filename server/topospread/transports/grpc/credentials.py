"""TLS of the gRPC listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.config.certificates import Pem

Credentials = grpc.ServerCredentials


def credentials(current: Callable[[], Pem]) -> Credentials:
    """TLS with the certificates that are in force whenever a connection begins.

    Args:
        current: what the files hold; whether clients are asked for certificates stays as it is.
    """
    used = current()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal used
        newest = current()
        if newest is used:
            return None
        used = newest
        return _configuration(newest)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(used),
        changed,  # type: ignore[arg-type] # None, for no change, is documented
        require_client_authentication=bool(used.client_ca),
    )


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(pem.key, pem.cert)], root_certificates=pem.client_ca or None
    )

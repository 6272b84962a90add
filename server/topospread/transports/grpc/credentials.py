"""TLS of the gRPC listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.config.certificates import Pem

Credentials = grpc.ServerCredentials


def credentials(current: Callable[[], Pem], *, ask_clients: bool = True) -> Credentials:
    """TLS with the certificates that are in force whenever a connection begins.

    Args:
        current: what the files hold; whether clients are asked for certificates stays as it is.
        ask_clients: off asks them for none, whatever the files hold.
    """
    used = current()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal used
        newest = current()
        if newest is used:
            return None
        used = newest
        return _configuration(newest, ask_clients)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(used, ask_clients),
        changed,  # type: ignore[arg-type] # None, for no change, is documented
        require_client_authentication=ask_clients and bool(used.client_ca),
    )


def _configuration(pem: Pem, ask_clients: bool) -> grpc.ServerCertificateConfiguration:
    roots = (pem.client_ca or None) if ask_clients else None
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.cert)], root_certificates=roots)

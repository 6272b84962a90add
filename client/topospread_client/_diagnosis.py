"""Says why calls reach no server: connects once more, and looks at what answers.

gRPC's own texts differ from version to version and name few causes. Here the system, OpenSSL and
the first bytes of the peer are asked instead. Each step has a deadline, and of a peer no more than
a few bytes and its certificate are read.
"""

from __future__ import annotations

import os
import pkgutil
import socket
import ssl
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from topospread_client._endpoints import Endpoint, endpoints, has_proxy, resolve
from topospread_client._errors import BadConnection, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread_client._credentials import Tls

OUT_OF_REACH: Final = "OUT_OF_REACH"
TLS_REQUIRED: Final = "TLS_REQUIRED"
TLS_NOT_SERVED: Final = "TLS_NOT_SERVED"
TLS_HANDSHAKE_FAILED: Final = "TLS_HANDSHAKE_FAILED"
SERVER_CERTIFICATE_NOT_TRUSTED: Final = "SERVER_CERTIFICATE_NOT_TRUSTED"
SERVER_CERTIFICATE_EXPIRED: Final = "SERVER_CERTIFICATE_EXPIRED"
SERVER_CERTIFICATE_FOR_OTHER_NAME: Final = "SERVER_CERTIFICATE_FOR_OTHER_NAME"
CLIENT_CERTIFICATE_REQUIRED: Final = "CLIENT_CERTIFICATE_REQUIRED"
CLIENT_CERTIFICATE_REFUSED: Final = "CLIENT_CERTIFICATE_REFUSED"
NOT_GRPC: Final = "NOT_GRPC"
"""Reasons of what is found."""

_MAX_ENDPOINTS: Final = 8
_MAX_NAMES: Final = 5
_SHORTEST: Final = 0.01
"""Seconds to wait for a peer at least: 0 would not wait at all."""

# HTTP/2's connection preface and an empty SETTINGS frame, with which each side begins.
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
_FRAME_HEAD: Final = 9

# X509_V_ERR_… of OpenSSL.
_NOT_VALID_NOW: Final = frozenset({9, 10})
_OTHER_NAME: Final = frozenset({62, 64})

_Found = BadConnection | Unavailable | None


def diagnose(address: str, tls: Tls | None, timeout: float) -> _Found:
    """Connect to each server of an address.

    Args:
        address: a target of gRPC, as `Connection` has it.
        tls: as `Connection` has it; its files can be used.
        timeout: seconds for all of it.

    Returns:
        What is wrong with all of them, the options first; None where a connection works, or where
        this cannot tell: of targets that gRPC reaches by an HTTP proxy or resolves by itself.
    """
    deadline = time.monotonic() + timeout
    unreachable: Unavailable | None = None
    unfit: BadConnection | None = None
    for endpoint in endpoints(address)[:_MAX_ENDPOINTS]:
        found = None if has_proxy(endpoint) else _look(endpoint, tls, deadline)
        if found is None:
            return None
        if isinstance(found, BadConnection):
            unfit = unfit or found
        else:
            unreachable = unreachable or found
    return unfit or unreachable


def _look(endpoint: Endpoint, tls: Tls | None, deadline: float) -> _Found:
    try:
        return _Probe(endpoint, tls, deadline).run()
    except TimeoutError:
        return _no_server(f"{endpoint.text}: no answer in time")
    except OSError as error:
        return _no_server(f"{endpoint.text}: {error.strerror or error}")


class _Probe:
    """One look at one endpoint. Errors of the system are raised as they are."""

    def __init__(self, endpoint: Endpoint, tls: Tls | None, deadline: float) -> None:
        self._endpoint = endpoint
        self._tls = tls
        self._deadline = deadline

    def run(self) -> _Found:
        return self._in_plain_text() if self._tls is None else self._by_tls(self._tls)

    def _in_plain_text(self) -> _Found:
        with self._connect() as stream:
            received = _greet(stream)
        if received is None:
            return self._silent()
        if not received and not self._speaks_tls():
            return _no_server(f"{self._endpoint.text}: connections are closed without a word")
        if not received or received.startswith(b"\x15\x03"):  # a TLS alert
            return _mismatch(TLS_REQUIRED, f"the server at {self._endpoint.text} speaks TLS only")
        return self._judge(received)

    def _by_tls(self, tls: Tls) -> _Found:
        try:
            self._name(tls).encode("idna")  # as ssl does, which leaves its socket open if it fails
        except UnicodeError:
            text = f"{self._name(tls)} is no name that a certificate can be for"
            return _mismatch(SERVER_CERTIFICATE_FOR_OTHER_NAME, text)
        try:
            with self._connect() as stream, self._wrap(stream, tls) as encrypted:
                received = _greet(encrypted)
                alpn = encrypted.selected_alpn_protocol()
        except ssl.SSLCertVerificationError as error:
            return self._not_verified(error, tls)
        except ssl.SSLError as error:
            return self._refused(error, tls)
        except (ConnectionError, TimeoutError):
            return self._without_tls()
        if received == b"":
            return self._client_certificate(tls)
        if received is None:
            return self._silent()
        found = self._judge(received)
        if found is None and alpn != "h2":
            return _mismatch(NOT_GRPC, f"{self._endpoint.text} does not offer HTTP/2 in TLS")
        return found

    def _silent(self) -> Unavailable:
        return _no_server(f"{self._endpoint.text}: connections are accepted, and nothing is said")

    def _judge(self, received: bytes) -> _Found:
        """What the first bytes of a peer say of it."""
        if len(received) >= _FRAME_HEAD and received[3] == 4 and not any(received[5:9]):
            return None  # SETTINGS, as HTTP/2 begins
        if received.startswith(b"HTTP/"):
            text = f"an HTTP/1 server answers at {self._endpoint.text}, and no gRPC server"
        else:
            text = f"what answers at {self._endpoint.text} is no gRPC server"
        return _mismatch(NOT_GRPC, text)

    def _not_verified(self, error: ssl.SSLCertVerificationError, tls: Tls) -> _Found:
        of = f"the certificate of {self._endpoint.text}"
        if error.verify_code in _NOT_VALID_NOW:
            text = f"{of} is not valid now: {error.verify_message}"
            return _mismatch(SERVER_CERTIFICATE_EXPIRED, text)
        if error.verify_code in _OTHER_NAME:
            names = ", ".join(self._names(tls)) or "other names"
            text = f"{of} is for {names}, and not for {self._name(tls)}"
            return _mismatch(SERVER_CERTIFICATE_FOR_OTHER_NAME, text)
        by = f"the CA in {tls.ca}" if tls.ca is not None else "gRPC's built-in CAs"
        text = f"{of} is not trusted by {by}: {error.verify_message}"
        return _mismatch(SERVER_CERTIFICATE_NOT_TRUSTED, text)

    def _refused(self, error: ssl.SSLError, tls: Tls) -> _Found:
        reason = str(error.reason or "")
        if "ALERT" not in reason:
            return self._without_tls()
        if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
            return self._client_certificate(tls)
        words = reason.lower().replace("_", " ")
        text = f"the server at {self._endpoint.text} refuses the TLS handshake: {words}"
        return _mismatch(TLS_HANDSHAKE_FAILED, text)

    def _without_tls(self) -> _Found:
        """What a peer is that does not answer a handshake."""
        found = self._in_plain_text()
        if found is None:
            text = f"the server at {self._endpoint.text} speaks plain text, without TLS"
            return _mismatch(TLS_NOT_SERVED, text)
        if found.reason == TLS_REQUIRED:
            text = f"the server at {self._endpoint.text} ends the TLS handshake"
            return _mismatch(TLS_HANDSHAKE_FAILED, text)
        return found

    def _client_certificate(self, tls: Tls) -> _Found:
        """Of a server that ends a connection once it has seen the client's certificate, or none."""
        at = f"the server at {self._endpoint.text}"
        if tls.cert is None:
            text = f"{at} asks for a client certificate, and none is given"
            return _mismatch(CLIENT_CERTIFICATE_REQUIRED, text)
        text = f"{at} does not accept the client certificate in {tls.cert}"
        return _mismatch(CLIENT_CERTIFICATE_REFUSED, text)

    def _names(self, tls: Tls) -> Iterator[str]:
        """The names that the server's certificate is for, a few of them."""
        with suppress(OSError), self._connect() as stream:
            context = _context(tls)
            context.check_hostname = False
            with context.wrap_socket(stream) as encrypted:
                certificate = encrypted.getpeercert() or {}
            alternatives = certificate.get("subjectAltName", ())
            for kind_and_name in alternatives[:_MAX_NAMES]:
                yield str(kind_and_name[1])

    def _speaks_tls(self) -> bool:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            with self._connect() as stream, context.wrap_socket(stream):
                return True
        except ssl.SSLError as error:
            return "ALERT" in str(error.reason)
        except OSError:
            return False

    def _wrap(self, stream: socket.socket, tls: Tls) -> ssl.SSLSocket:
        return _context(tls).wrap_socket(stream, server_hostname=self._name(tls))

    def _name(self, tls: Tls) -> str:
        of_address = self._endpoint.host if self._endpoint.port is not None else "localhost"
        return tls.server_name or of_address

    def _connect(self) -> socket.socket:
        host, port = self._endpoint
        if port is None:
            return _connect_unix(host, self._remaining())
        refused: OSError | None = None
        for address in resolve(host, port, self._remaining()):
            try:
                stream = socket.create_connection(address, self._remaining())
            except OSError as error:
                refused = error
            else:
                # Half of the time for each of the two looks at a silent peer.
                stream.settimeout(max(self._remaining() / 2, _SHORTEST))
                return stream
        raise refused or OSError("no address")

    def _remaining(self) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _connect_unix(path: str, timeout: float) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX)
    try:
        stream.settimeout(timeout)
        stream.connect(path)
    except OSError:
        stream.close()
        raise
    return stream


def _greet(stream: socket.socket) -> bytes | None:
    """First bytes of a peer that is spoken to in HTTP/2; None if it is silent.

    The stream's time-out is for all of it: a peer may send one byte after the other.
    """
    received = b""
    ends = time.monotonic() + (stream.gettimeout() or 0)
    try:
        with suppress(ConnectionError):
            stream.sendall(_PREFACE)
        while len(received) < _FRAME_HEAD:
            stream.settimeout(max(ends - time.monotonic(), _SHORTEST))
            more = stream.recv(_FRAME_HEAD)
            if not more:
                break
            received += more
    except TimeoutError:
        return received or None
    except ConnectionError:
        pass
    return received


def _context(tls: Tls) -> ssl.SSLContext:
    """Context for the options, which trusts what gRPC trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key, password="")
    if tls.ca is not None:
        context.load_verify_locations(tls.ca)
        return context
    if named := os.environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
        with suppress(OSError):  # then gRPC takes its own, too
            context.load_verify_locations(named)
            return context
    built_in = pkgutil.get_data("grpc._cython", "_credentials/roots.pem")
    if built_in:
        # Names in its comments may be others than ASCII.
        context.load_verify_locations(cadata=built_in.decode("ascii", "ignore"))
    else:
        context.load_default_certs()
    return context


def _mismatch(reason: str, text: str) -> BadConnection:
    return BadConnection(text, reason=reason)


def _no_server(text: str) -> Unavailable:
    return Unavailable(text, reason=OUT_OF_REACH)

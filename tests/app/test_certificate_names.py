"""Names in certificates that an authority signed unread: the callers, on both ports."""

from __future__ import annotations

import datetime
import ipaddress
from typing import TYPE_CHECKING, Any

import grpc
import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from tests.access.callers import AccessFile
from tests.app.certificates import Mint
from tests.servers import Peer, served
from tests.waiting import PATIENCE
from topospread.access.certificates import names_of_pem
from topospread_proto.v1 import cluster_state_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    import trustme

URI = "spiffe://ours/adm"
CN = NameOID.COMMON_NAME


class Subject:
    """What stands in a certificate."""

    def __init__(self, *common: tuple[str, Any] | str, other: Sequence[x509.GeneralName] = ()):
        self.name = x509.Name(
            [
                x509.NameAttribute(CN, text, _type=kind, _validate=False)
                for text, kind in (
                    (one, _ASN1Type.UTF8String) if isinstance(one, str) else one for one in common
                )
            ]
        )
        self.other = list(other)


def unchecked(name: x509.GeneralName, text: str) -> x509.GeneralName:
    """A name of any text, which the library would not make of it."""
    name._value = text  # type: ignore[attr-defined] # there is no public way
    return name


def dns(text: str) -> x509.GeneralName:
    return unchecked(x509.DNSName("x"), text)


def uri(text: str) -> x509.GeneralName:
    return unchecked(x509.UniformResourceIdentifier("x:y"), text)


def mail(text: str) -> x509.GeneralName:
    return unchecked(x509.RFC822Name("x@y"), text)


KNOWN = {
    "common name": Subject("feeder"),
    "common name in BMPString": Subject(("feeder", _ASN1Type.BMPString)),
    "common name in PrintableString": Subject(("feeder", _ASN1Type.PrintableString)),
    "URI": Subject("x", other=[uri(URI)]),
    "URI alone": Subject(other=[dns("a.example.org"), uri(URI)]),
    "DNS name": Subject("x", other=[dns("a.example.org"), dns("reader.example.org")]),
    "IP": Subject("x", other=[x509.IPAddress(ipaddress.ip_address("10.1.2.3"))]),
    "e-mail": Subject("x", other=[mail("me@example.org")]),
}
NO_CALLERS = {
    "NUL in a common name": Subject("feeder\0.evil.com"),
    "NUL at the end": Subject("feeder\0"),
    "NUL in a BMPString": Subject(("feeder\0x", _ASN1Type.BMPString)),
    "two common names": Subject("feeder", "evil"),
    "two common names, the other first": Subject("evil", "feeder"),
    "twice the same": Subject("feeder", "feeder"),
    "two common names and a URI": Subject("a", "b", other=[uri(URI)]),
    "NUL in a URI": Subject("x", other=[uri(f"{URI}\0.evil.com")]),
    "NUL in another URI": Subject("x", other=[uri("spiffe://evil\0x"), uri(URI)]),
    "URI in a DNS name": Subject("x", other=[dns(URI)]),
    "URI in an e-mail address": Subject("x", other=[mail(URI)]),
    "DNS name in a URI": Subject("x", other=[uri("reader.example.org")]),
    "IP in a DNS name": Subject("x", other=[dns("10.1.2.3")]),
    "e-mail address in a DNS name": Subject("x", other=[dns("me@example.org")]),
    "URI in a common name": Subject(URI),
    "common name in a DNS name": Subject("x", other=[dns("feeder")]),
    "TeletexString": Subject(("feeder", _ASN1Type.T61String)),
    "TeletexString beside a URI": Subject(("x", _ASN1Type.T61String), other=[uri(URI)]),
    "blank": Subject("feeder "),
    "nothing": Subject(),
}


@pytest.fixture(scope="module")
def mint(tmp_path_factory):
    return Mint(tmp_path_factory.mktemp("names"))


@pytest.fixture(scope="module")
def server(mint, tmp_path_factory):
    access = AccessFile(tmp_path_factory.mktemp("access") / "access.yaml")
    access.certificate("read", commonName="feeder")
    for name in (URI, "reader.example.org", "10.1.2.3", "me@example.org"):
        access.certificate("read", alternativeName=name)
    access.write()
    with served(**mint.flags, access_file=str(access), http="127.0.0.1:0") as server:
        yield server


def signed(authority: trustme.CA, subject: Subject) -> tuple[bytes, bytes]:
    """Key and certificate, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject.name)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )
    if subject.other:
        names = x509.SubjectAlternativeName(subject.other)
        builder = builder.add_extension(names, critical=not list(subject.name))
    signing = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    made = builder.sign(signing, hashes.SHA256())  # type: ignore[arg-type] # of an authority
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private, made.public_bytes(serialization.Encoding.PEM)


def let_in(server: Any, mint: Mint, subject: Subject) -> tuple[bool, ...]:
    """Whether gRPC, by both transports, and HTTP know who shows a certificate."""
    shown = signed(mint.authority, subject)
    codes = []
    with Peer(server.address, mint.credentials(shown)) as peer:
        for call, request in (
            (peer.state.ListClusters, pb.ListClustersRequest()),
            (peer.engine.EvaluatePod, pb.ListClustersRequest()),
        ):
            try:
                call(request, timeout=PATIENCE)
                codes.append(grpc.StatusCode.OK)
            except grpc.RpcError as error:
                codes.append(error.code())
    with httpx.Client(verify=mint.context(shown), trust_env=False, timeout=PATIENCE) as browser:
        status = browser.get(f"https://{server.http_address}/metrics").status_code
    listed, asked = codes
    assert listed in {grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED}
    # Whoever is known may not ask, with the role read alone.
    assert asked in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}
    assert status in {200, 401}
    return (
        listed is grpc.StatusCode.OK,
        asked is grpc.StatusCode.PERMISSION_DENIED,
        status == 200,
    )


@pytest.mark.parametrize("name", KNOWN)
def test_names_in_certificates_identify_callers(server, mint, name):
    assert let_in(server, mint, KNOWN[name]) == (True, True, True)


@pytest.mark.parametrize("name", NO_CALLERS)
def test_malformed_certificates_are_unauthenticated(server, mint, name):
    assert let_in(server, mint, NO_CALLERS[name]) == (False, False, False)


def test_the_defect_of_a_malformed_certificate_is_logged(mint, caplog):
    _, pem = signed(mint.authority, Subject("feeder", "evil"))
    with caplog.at_level("DEBUG", logger="topospread"):
        names_of_pem(pem)
    assert "a client certificate has no usable names: several common names" in caplog.text

"""The names in a client's certificate, read from its DER.

TLS libraries return names as text that is cut at a NUL, without saying which kind a name is, or
only the first of several. What identifies a caller is therefore read here, the same for all
transports. The certificate was verified before; a malformed one yields no names.

Source: RFC 5280 (certificates), X.690 (DER).
"""

from __future__ import annotations

import ipaddress
import logging
import re
import ssl
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


LOG: Final = logging.getLogger(__name__)

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_BOOLEAN: Final = 0x01
_OCTETS: Final = 0x04
_OID: Final = 0x06
_EXTENSIONS: Final = 0xA3
_VERSION: Final = 0xA0
_COMMON_NAME: Final = bytes.fromhex("550403")
_ALTERNATIVE_NAMES: Final = bytes.fromhex("551d11")
_CONTEXT: Final = 0x80
# UTF8String, PrintableString, IA5String, UniversalString, BMPString.
_ENCODINGS: Final = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x16: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}


class NameType(Enum):
    """Type of an alternative name; the value is its tag in a GeneralName."""

    EMAIL = 1
    DNS = 2
    URI = 6
    IP = 7


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """The names in a certificate that was verified; empty when none was shown.

    Attributes:
        common: the common names of its subject.
        alternative: its subject alternative names, each with its type.
    """

    common: Sequence[str] = ()
    alternative: Sequence[tuple[NameType, str]] = ()


NO_NAMES: Final = CertificateNames()

_FORMS: Final = {
    NameType.EMAIL: re.compile(r"\A[!-?A-~]+@[!-?A-~]+"),
    NameType.DNS: re.compile(r"\A[A-Za-z0-9._*-]+"),
    NameType.URI: re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*:[!-~]+"),
}


def type_of(name: str) -> NameType:
    """The type of alternative name that a text of the access file means."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if _FORMS[NameType.URI].fullmatch(name):
            return NameType.URI
        return NameType.EMAIL if "@" in name else NameType.DNS
    return NameType.IP


@lru_cache(maxsize=1024)
def names_of_pem(pem: bytes) -> CertificateNames:
    """The names in a certificate in PEM; see :func:`names_of`."""
    try:
        return names_of(ssl.PEM_cert_to_DER_cert(pem.decode("ascii")))
    except ValueError:
        return NO_NAMES


@lru_cache(maxsize=1024)
def names_of(der: bytes) -> CertificateNames:
    """The names in a certificate; none in a malformed one.

    Malformed are several common names, and names with control characters, in an encoding that is
    not Unicode's, or of another form than their type has: a URI as a DNS name, for example.
    """
    try:
        return CertificateNames(*_names(der))
    except (ValueError, IndexError) as error:
        LOG.debug("a client certificate has no usable names: %.200s", error)
        return NO_NAMES


def _names(der: bytes) -> tuple[tuple[str, ...], tuple[tuple[NameType, str], ...]]:
    certificate = _one(_SEQUENCE, der)
    tag, body = next(_values(certificate))
    if tag != _SEQUENCE:
        raise ValueError("no certificate")
    fields = [field for field in _values(body) if field[0] != _VERSION]
    # Serial number, algorithm, issuer, validity, subject, key, and what is optional.
    subject = fields[4]
    if subject[0] != _SEQUENCE:
        raise ValueError("no subject")
    common = tuple(_common_names(subject[1]))
    if len(common) > 1:
        raise ValueError("several common names")
    alternative = [
        name
        for tag, extensions in fields[6:]
        if tag == _EXTENSIONS
        for _, extension in _values(_one(_SEQUENCE, extensions))
        for name in _alternative_names(extension)
    ]
    return common, tuple(alternative)


def _common_names(subject: bytes) -> Iterator[str]:
    for tag, several in _values(subject):
        if tag != _SET:
            raise ValueError("no set of attributes")
        for _, attribute in _values(several):
            (kind, oid), (encoding, value) = _values(attribute)
            if (kind, oid) == (_OID, _COMMON_NAME):
                if encoding not in _ENCODINGS:
                    raise ValueError("an encoding that is not Unicode's")
                yield _plain(value.decode(_ENCODINGS[encoding]))


def _alternative_names(extension: bytes) -> Iterator[tuple[NameType, str]]:
    parts = [part for part in _values(extension) if part[0] != _BOOLEAN]
    (kind, oid), (octets, value) = parts
    if (kind, oid) != (_OID, _ALTERNATIVE_NAMES):
        return
    if octets != _OCTETS:
        raise ValueError("no octets")
    for tag, name in _values(_one(_SEQUENCE, value)):
        known = next((each for each in NameType if tag == _CONTEXT | each.value), None)
        if known is NameType.IP:
            yield known, str(ipaddress.ip_address(name))
        elif known is not None:
            text = name.decode("ascii")
            if not _FORMS[known].fullmatch(text):
                raise ValueError("a name of another type's form")
            yield known, text


def _plain(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a name that is not printable")
    return text


def _one(tag: int, der: bytes) -> bytes:
    """The content of the one value that these bytes are."""
    ((found, content),) = _values(der)
    if found != tag:
        raise ValueError("a value of another type")
    return content


def _values(der: bytes) -> Iterator[tuple[int, bytes]]:
    """The values one after the other: tag and content."""
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if tag & 0x1F == 0x1F:
            raise ValueError("a tag of several bytes")
        if length & 0x80:
            count = length & 0x7F
            if not 0 < count <= 4:
                raise ValueError("a length that is not DER")
            length, at = int.from_bytes(der[at : at + count]), at + count
        if at + length > len(der):
            raise ValueError("shorter than it says")
        yield tag, der[at : at + length]
        at += length

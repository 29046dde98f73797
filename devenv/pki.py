"""A certificate authority for one control plane, valid for a month, in its directory.

Keys of certificates are ECDSA P-256, which take no noticeable time to make. The key for service account tokens is RSA,
as in RKE2, K3s and kubeadm. Every key file is readable by its owner only.
"""

import datetime as dt
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = dt.timedelta(days=30)
_CLOCK_SKEW = dt.timedelta(minutes=5)
_Extensions: TypeAlias = dict[x509.ExtensionType, bool]
"""Extensions of a certificate, and whether each is critical."""


@dataclass(frozen=True)
class KeyPair:
    """Paths of a certificate and its private key, both PEM."""

    certificate: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS context of a server with this certificate, which asks for none of its clients."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context


class Authority:
    """A root certificate and what it signs, written as PEM files into one directory."""

    def __init__(self, name: str, directory: Path) -> None:
        """Create a new authority called ``name``. ``directory`` is created if it is absent."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory = directory
        self.ca_file = directory / "ca.crt"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject([(NameOID.COMMON_NAME, name)])
        self._write(self.ca_file, self._name, self._key, {x509.BasicConstraints(ca=True, path_length=0): True})

    def issue_server(self, file_name: str, hosts: Sequence[str]) -> KeyPair:
        """Return a serving certificate for ``hosts`` (DNS names and IP addresses); the first is its common name."""
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        subject = _subject([(NameOID.COMMON_NAME, hosts[0])])
        return self._issue(file_name, subject, ExtendedKeyUsageOID.SERVER_AUTH, {names: False})

    def issue_client(self, file_name: str, user: str, *, groups: Sequence[str] = ()) -> KeyPair:
        """Return a client certificate that a Kubernetes API server takes for ``user`` in ``groups``."""
        subject = _subject([*((NameOID.ORGANIZATION_NAME, group) for group in groups), (NameOID.COMMON_NAME, user)])
        return self._issue(file_name, subject, ExtendedKeyUsageOID.CLIENT_AUTH, {})

    def write_signing_key(self, file_name: str) -> Path:
        """Return a bare private RSA key, as an API server signs service account tokens with.

        An RSA signature depends only on the key and the content, an ECDSA signature differs each time. With ECDSA, two
        tokens with the same content look different, which hides that a token was not replaced.
        """
        return self._write_key(file_name, rsa.generate_private_key(public_exponent=65537, key_size=2048))

    def _issue(
        self, file_name: str, subject: x509.Name, purpose: x509.ObjectIdentifier, extensions: _Extensions
    ) -> KeyPair:
        key, path = ec.generate_private_key(ec.SECP256R1()), self.directory / f"{file_name}.crt"
        common: _Extensions = {
            x509.BasicConstraints(ca=False, path_length=None): True,
            x509.ExtendedKeyUsage([purpose]): False,
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()): False,
        }
        self._write(path, subject, key, {**common, **extensions})
        return KeyPair(path, self._write_key(file_name, key))

    def _write(self, path: Path, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extensions: _Extensions) -> None:
        now, is_authority = dt.datetime.now(dt.UTC), subject == self._name
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + VALID_FOR)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_usage(signs_certificates=is_authority), critical=True)
        )
        for extension, critical in extensions.items():
            builder = builder.add_extension(extension, critical=critical)
        certificate = builder.sign(self._key, hashes.SHA256())
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _write_key(self, file_name: str, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> Path:
        path = self.directory / f"{file_name}.key"
        path.touch(mode=0o600)
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        return path


def _subject(attributes: Sequence[tuple[x509.ObjectIdentifier, str]]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes])


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)

"""A certificate authority for one control plane, valid for a few days and kept in its run directory.

Keys are ECDSA P-256, which take no noticeable time to make. Every key file is readable by its owner only.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_FOR = dt.timedelta(days=30)
_CLOCK_SKEW = dt.timedelta(minutes=5)


@dataclass(frozen=True)
class KeyPair:
    """Paths of a certificate and its private key, both PEM."""

    certificate: Path
    key: Path


class Authority:
    """A root certificate and what it signs, written as PEM files into one directory."""

    def __init__(self, name: str, directory: Path) -> None:
        """Make a new authority called ``name``. ``directory`` is created if it is absent."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            _unsigned(self._name, self._name, key=self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        self.ca_file = directory / "ca.crt"
        self.ca_file.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def issue_server(self, file_name: str, hosts: Sequence[str]) -> KeyPair:
        """A serving certificate for ``hosts`` (DNS names and IP addresses); the first is its common name."""
        names: list[x509.GeneralName] = [_general_name(host) for host in hosts]
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _unsigned(subject, self._name, key=key).add_extension(
            x509.SubjectAlternativeName(names), critical=False
        )
        return self._sign(file_name, builder, key=key, purpose=ExtendedKeyUsageOID.SERVER_AUTH)

    def issue_client(self, file_name: str, user: str, *, groups: Sequence[str] = ()) -> KeyPair:
        """A client certificate that a Kubernetes API server takes for ``user`` in ``groups``."""
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
                x509.NameAttribute(NameOID.COMMON_NAME, user),
            ]
        )
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _unsigned(subject, self._name, key=key)
        return self._sign(file_name, builder, key=key, purpose=ExtendedKeyUsageOID.CLIENT_AUTH)

    def write_signing_key(self, file_name: str) -> Path:
        """A bare private key, as an API server signs service account tokens with."""
        return self._write_key(file_name, ec.generate_private_key(ec.SECP256R1()))

    def _sign(
        self,
        file_name: str,
        builder: x509.CertificateBuilder,
        *,
        key: ec.EllipticCurvePrivateKey,
        purpose: x509.ObjectIdentifier,
    ) -> KeyPair:
        certificate = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        path = self.directory / f"{file_name}.crt"
        path.write_bytes(_pem(certificate))
        return KeyPair(path, self._write_key(file_name, key))

    def _write_key(self, file_name: str, key: ec.EllipticCurvePrivateKey) -> Path:
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


def _unsigned(subject: x509.Name, issuer: x509.Name, *, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + VALID_FOR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


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


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)

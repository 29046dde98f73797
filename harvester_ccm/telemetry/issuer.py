"""Program that prints a new private key and a certificate that it signed itself, both PEM.

It runs as a short-lived process, by path and not as a module: the library that it needs occupies several megabytes
once it is loaded. The certificate names no host: it changes with each start, so no client can verify it.
"""

import datetime as dt
import sys
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VALID_FOR: Final = dt.timedelta(days=3650)
"""Longer than any process runs."""
CLOCK_SKEW: Final = dt.timedelta(hours=1)


def self_signed() -> bytes:
    """Return key and certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "harvester-ccm")])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    certificate = builder.not_valid_before(now - CLOCK_SKEW).not_valid_after(now + VALID_FOR).sign(key, hashes.SHA256())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)


if __name__ == "__main__":
    sys.stdout.buffer.write(self_signed())

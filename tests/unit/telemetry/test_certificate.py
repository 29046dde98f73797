"""The serving certificate: self-signed in memory, or from files that change."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from structlog.testing import capture_logs

from devenv.pki import Authority, KeyPair
from harvester_ccm.config import ServerSettings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.telemetry import server as module
from harvester_ccm.telemetry.server import ServingCertificate


def settings(pair: KeyPair | None = None, *, min_tls: str = "1.2") -> ServerSettings:
    return ServerSettings(
        bind_address="127.0.0.1",
        port=10258,
        certificate=pair.certificate if pair else None,
        key=pair.key if pair else None,
        min_tls=min_tls,
        open_paths=frozenset(),
    )


def shown(context: ssl.SSLContext, version: ssl.TLSVersion | None = None) -> x509.Certificate:
    """Return the certificate that a client gets in a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    if version is not None:
        trusting.maximum_version = version
    client = trusting.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    given = client.getpeercert(binary_form=True)
    assert given is not None
    return x509.load_der_x509_certificate(given)


def names(certificate: x509.Certificate) -> list[str]:
    alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in alternatives]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority("test", tmp_path)


@pytest.mark.security("The certificate is created at each start")
async def test_self_signed_certificate_without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = ServingCertificate(settings())
    await serving.load()
    certificate = shown(serving.context)
    assert certificate.issuer == certificate.subject
    certificate.verify_directly_issued_by(certificate)
    assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)
    next_start = ServingCertificate(settings())
    await next_start.load()
    assert shown(next_start.context).public_key() != certificate.public_key()

    monkeypatch.setattr(module, "_ISSUER", Path("/nonexistent/issuer.py"))
    with pytest.raises(ConfigurationError, match=r"no self-signed certificate could be made: .*/nonexistent.*give "):
        await ServingCertificate(settings()).load()


async def test_protocols_below_the_minimum_are_rejected(authority: Authority) -> None:
    serving = ServingCertificate(settings(authority.issue_server("one", ["one.example.org"]), min_tls="1.3"))
    await serving.load()
    with pytest.raises(ssl.SSLError):
        shown(serving.context, ssl.TLSVersion.TLSv1_2)
    assert names(shown(serving.context, ssl.TLSVersion.TLSv1_3)) == ["one.example.org"]


def encrypted(pair: KeyPair) -> None:
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    how = serialization.BestAvailableEncryption(b"secret")
    pair.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how),
    )


BREAKAGES: dict[str, tuple[Callable[[KeyPair, KeyPair], object], str]] = {
    "certificate missing": (lambda pair, _: pair.certificate.unlink(), r"one.*: No such file"),
    "key missing": (lambda pair, _: pair.key.unlink(), r"one.*: No such file"),
    "another key": (lambda pair, other: pair.key.write_bytes(other.key.read_bytes()), "key values mismatch"),
    "not PEM": (lambda pair, _: pair.certificate.write_text("hello"), "not an unencrypted PEM certificate"),
    "key encrypted": (lambda pair, _: encrypted(pair), "not an unencrypted PEM certificate"),
}


@pytest.mark.parametrize(("damage", "message"), BREAKAGES.values(), ids=BREAKAGES.keys())
async def test_unusable_files_are_an_error_at_the_start_and_ignored_later(
    authority: Authority, damage: Callable[[KeyPair, KeyPair], object], message: str
) -> None:
    pair = authority.issue_server("one", ["one.example.org"])
    good = pair.certificate.read_bytes(), pair.key.read_bytes()
    serving = ServingCertificate(settings(pair))
    await serving.load()
    damage(pair, authority.issue_server("two", ["two.example.org"]))
    with pytest.raises(ConfigurationError, match=f"--tls-cert-file, --tls-private-key-file: .*{message}"):
        await ServingCertificate(settings(pair)).load()

    with capture_logs() as logs:
        serving.refresh()
    assert names(shown(serving.context)) == ["one.example.org"]
    assert [entry["event"] for entry in logs] == ["serving certificate not reloaded"]
    pair.certificate.write_bytes(good[0])
    pair.key.write_bytes(good[1])
    serving.refresh()
    assert names(shown(serving.context)) == ["one.example.org"]


@pytest.mark.security("unless `--tls-cert-file` is set")
async def test_new_files_are_loaded_once(authority: Authority) -> None:
    pair = authority.issue_server("one", ["one.example.org"])
    serving = ServingCertificate(settings(pair))
    await serving.load()
    other = authority.issue_server("two", ["two.example.org"])
    other.certificate.replace(pair.certificate)
    other.key.replace(pair.key)
    with capture_logs() as logs:
        serving.refresh()
        serving.refresh()
    assert names(shown(serving.context)) == ["two.example.org"]
    assert [entry["event"] for entry in logs] == ["serving certificate reloaded"]

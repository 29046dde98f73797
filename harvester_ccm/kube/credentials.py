"""Where an API server is and how we prove who we are: kubeconfig files and the in-cluster service account.

A kubeconfig is read by us rather than by the ``kubernetes`` package, which costs 20 MiB of memory and hides which
part of the file is wrong. Every problem is a CredentialError with a sentence that names the file and what to change.
What is not supported is refused by name: left out, it would make another identity of the one that is written there.
Nothing read here is ever logged.
"""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field  # noqa: TID251  # a field must not be printed
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast
from urllib.parse import unquote, urlsplit

from harvester_ccm.errors import CredentialError
from harvester_ccm.kube.credential_files import PIPE_SECONDS, load_certificate, read_text, readable_by_all
from harvester_ccm.kube.kubeconfig import Entry, read_kubeconfig
from harvester_ccm.kube.plugin import ExecToken
from harvester_ccm.kube.proxy import proxy_for
from harvester_ccm.kube.tokens import FileToken, FixedToken, Section, TokenSource, checked_token
from harvester_ccm.redaction import redact_text

_IDENTITIES: Final = (
    "token", "tokenFile", "client-certificate", "client-certificate-data", "client-key", "client-key-data",
)  # fmt: skip
"""Texts of a user that prove who one is; ``exec`` does so, too."""
_UNSUPPORTED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("as", "as-uid", "as-groups", "as-user-extra"), "give the credential of the identity that is to be used"
    ),
    **dict.fromkeys(("username", "password"), "API servers take no passwords any more; give a token"),
    "auth-provider": "give exec, the credential plugin of that provider",
}
"""Fields of a user, and what to write instead."""
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Credentials:
    """One API server and one identity."""

    server: str
    """Base URL without a trailing slash."""
    namespace: str
    """Namespace of the kubeconfig's context or of the service account; empty when none is named."""
    tls: ssl.SSLContext | None
    """None for plain http."""
    token: TokenSource = field(repr=False)
    tls_server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)
    """URL of the HTTP proxy to go through; may hold a password."""
    origin: str = ""
    """The file this came from, for messages."""
    files: tuple[Path, ...] = ()
    """Files to read anew when one of them changes: kubeconfigs, and the certificates and keys that they name."""

    readable_by_all: bool = False
    """Whether every user of the host may read the file."""

    @property
    def weaknesses(self) -> tuple[str, ...]:
        """What does not protect the credential, in words."""
        found = []
        if self.tls is None:
            found.append("the server is asked over http://, without encryption")
        elif self.tls.verify_mode is ssl.CERT_NONE:
            found.append("the server's certificate is not verified (insecure-skip-tls-verify)")
        if self.readable_by_all:
            found.append(f"every user of this host may read {self.origin}; set its mode to 0600")
        return tuple(found)


def load_kubeconfig(
    paths: Path | Sequence[Path],
    environment: Mapping[str, str] = MappingProxyType({}),
    *,
    master: str = "",
    context: str = "",
    pipe_seconds: float = PIPE_SECONDS,
) -> Credentials:
    """Return the credentials of a context of one file or several, the current one unless told. Raises CredentialError.

    ``environment`` names the proxy where the file does not. ``master`` is the URL of a server in place of the file's.
    ``pipe_seconds``: so long a file may take that comes through a pipe.
    """
    listed = (paths,) if isinstance(paths, Path) else tuple(paths)
    named = read_kubeconfig(listed, context, pipe_seconds=pipe_seconds)
    cluster, user = named.cluster, named.user
    _refuse_unsupported(user, cluster)
    server = (master or cluster.text("server")).rstrip("/")
    if not _is_web_address(server):
        raise CredentialError(f"{cluster} has server {redact_text(server)!r}; expected https://host:port")
    if "@" in urlsplit(server).netloc:
        raise CredentialError(f"{cluster} has a login in its server address; put it under users")
    proxy = cluster.text("proxy-url") or proxy_for(server, environment)
    if proxy and not (_is_web_address(proxy) and _has_usable_login(proxy)):
        raise CredentialError(
            f"{cluster.path}: the proxy for {server} is not an http:// or https:// address with a host"
        )
    server_name = cluster.text("tls-server-name")
    if server_name and not _is_host(server_name):
        raise CredentialError(f"{cluster} has tls-server-name {server_name!r}, which is no name of a host")
    tls = _tls(cluster, user) if urlsplit(server).scheme == "https" else None
    if tls is not None and not _proves_identity(user):
        raise CredentialError(f"{user} has no credential; expected one of: exec, {', '.join(_IDENTITIES)}")
    return Credentials(
        server=server,
        namespace=named.namespace,
        tls=tls,
        token=_token_source(user, cluster, tls),
        tls_server_name=server_name or None,
        proxy=proxy,
        origin=str(user.path),
        files=(*listed, *_material_files(cluster, user)),
        readable_by_all=readable_by_all(user.path),
    )


def load_in_cluster(
    environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT, *, master: str = ""
) -> Credentials:
    """Return the credentials of the pod's service account. Raises CredentialError when not run in a pod.

    ``master`` is the URL of a server in place of the one that the environment names.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise CredentialError(
            "no kubeconfig was given and this is not a pod (KUBERNETES_SERVICE_HOST is not set); "
            "set --kubeconfig or KUBECONFIG to the kubeconfig of the guest cluster"
        )
    namespace_file = directory / "namespace"
    authority = directory / "ca.crt"
    token = FileToken(directory / "token")
    token.get()
    server = master.rstrip("/") or (f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")
    return Credentials(
        server=server,
        namespace=read_text(namespace_file).strip() if namespace_file.exists() else "",
        tls=_trusting(read_text(authority), f"{authority}: the file"),
        token=token,
        proxy=proxy_for(server, environment),
        origin=str(directory),
        files=(authority,),
    )


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in {"http", "https"} and parts.port != 0 and not (parts.query or parts.fragment)
    except ValueError:
        return False
    return is_web and _is_host(parts.hostname or "") and url.isprintable()


def _is_host(name: str) -> bool:
    """Return whether a name can be looked up and asked for in TLS: the libraries fail in their own ways."""
    try:
        return bool(name.encode("idna")) and name.isprintable() and " " not in name
    except UnicodeError:
        return False


def _has_usable_login(proxy: str) -> bool:
    """Return whether the login in an address, if there is one, can be sent in the manner of HTTP."""
    parts = urlsplit(proxy)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    try:
        return ":" not in user and bool(f"{user}:{password}".encode("latin-1"))
    except UnicodeError:
        return False


def _material(entry: Entry, key: str) -> bytes | None:
    """Return the bytes of ``<key>-data``, or of the file that ``<key>`` names, or None."""
    data = entry.text(f"{key}-data")
    if data:
        try:
            # Broken into lines it is as good, to Go programs too.
            return base64.b64decode("".join(data.split("\n")), validate=True)
        except (binascii.Error, ValueError):
            raise CredentialError(f"{entry.path}: {key}-data is not valid base64") from None
    name = entry.text(key)
    return read_text(entry.path.parent / name).encode() if name else None


def _material_files(cluster: Entry, user: Entry) -> tuple[Path, ...]:
    pairs = ((cluster, "certificate-authority"), (user, "client-certificate"), (user, "client-key"))
    named = ((entry, entry.text(key)) for entry, key in pairs if not entry.text(f"{key}-data"))
    return tuple(entry.path.parent / name for entry, name in named if name)


def _refuse_unsupported(user: Entry, cluster: Entry) -> None:
    for key, instead in _UNSUPPORTED.items():
        if user.section.get(key):
            raise CredentialError(f"{user} has {key}, which is not supported; {instead}")
    if not isinstance(user.section.get("exec") or {}, dict):
        raise CredentialError(f"{user} has exec that is no mapping; expected command and apiVersion in it")
    if "token" in user.section and not user.text("token") and not _proves_identity(user):
        raise CredentialError(f"{user} has an empty token")
    authorities = ("certificate-authority", "certificate-authority-data")
    if _skips_verification(cluster) and any(cluster.section.get(key) for key in authorities):
        raise CredentialError(
            f"{cluster.path}: the cluster has insecure-skip-tls-verify and a certificate-authority; remove one of them"
        )


def _skips_verification(cluster: Entry) -> bool:
    value = cluster.section.get("insecure-skip-tls-verify")
    if value is not None and not isinstance(value, bool):
        raise CredentialError(f"{cluster} has insecure-skip-tls-verify that is neither true nor false")
    return value is True


def _proves_identity(user: Entry) -> bool:
    return bool(user.section.get("exec")) or any(user.text(key) for key in _IDENTITIES)


def _tls(cluster: Entry, user: Entry) -> ssl.SSLContext:
    authority = _material(cluster, "certificate-authority")
    text = None if authority is None else authority.decode("utf-8", "replace")
    context = _trusting(text, f"{cluster.path}: certificate-authority")
    if _skips_verification(cluster):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _material(user, "client-certificate"), _material(user, "client-key")
    if (certificate is None) != (key is None):
        missing = "client-key" if key is None else "client-certificate"
        raise CredentialError(f"{user.path}: {missing} is missing; client-certificate and client-key come as a pair")
    if certificate and key:
        _load_client_certificate(user.path, context, certificate + b"\n" + key)
    return context


def _trusting(authority: str | None, what: str) -> ssl.SSLContext:
    """Return a context that trusts this authority, or the system's when it is None."""
    try:
        if authority is not None and not authority.strip():
            raise CredentialError(f"{what} is empty; expected a PEM certificate")
        context = ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError):
        raise CredentialError(f"{what} is not a PEM certificate") from None
    # Newer Python versions refuse authorities without a key identifier, which many clusters have and Go accepts.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _load_client_certificate(path: Path, context: ssl.SSLContext, pem: bytes) -> None:
    try:
        load_certificate(context, pem)
    except OSError:
        why = " (the key is encrypted, and nobody is asked for its password)" if b"ENCRYPTED" in pem else ""
        raise CredentialError(f"{path}: client-certificate and client-key do not form a valid PEM pair{why}") from None


def _token_source(user: Entry, cluster: Entry, tls: ssl.SSLContext | None) -> TokenSource:
    plugin, path = user.section.get("exec"), user.path
    if isinstance(plugin, dict):
        take = None if tls is None else lambda pem: _load_client_certificate(path, tls, pem.encode())
        return ExecToken(path, cast("Section", plugin), cluster.section, take_certificate=take)
    file_name, token = user.text("tokenFile"), user.text("token")
    if file_name:
        source = FileToken(path.parent / file_name)
        source.get()
        return source
    return FixedToken(checked_token(token, f"{path}: the token") if token else None)

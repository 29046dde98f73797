"""Server, TLS and bearer token of an API client, from kubeconfig files or from the service account of the pod.

Several kubeconfigs are merged by client-go's rules for ``KUBECONFIG``: the first file that defines an entry or
``current-context`` wins, missing files are skipped, and a relative path starts at the directory of its file.
Every problem is a CredentialError that names file and field. Unknown fields of a user are rejected, because ignoring
one, such as ``as``, would use another identity than the file names.

Credentials are never logged.
"""

import base64
import os
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field  # noqa: TID251  # a field must not be printed
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml
from msgspec import Struct

from harvester_ccm.kube.connection import load_certificate, read_bytes
from harvester_ccm.kube.errors import CredentialError, NotInCluster
from harvester_ccm.kube.objects import DNS_LABEL
from harvester_ccm.kube.proxy import proxy_for
from harvester_ccm.kube.tokens import (
    ExecToken,
    FileToken,
    Plugin,
    TokenSource,
    certificate_end,
    checked_token,
    fixed_token,
    token_claims,
)
from harvester_ccm.redaction import redact_text, sanitize

T = TypeVar("T")
Section = dict[str, Any]

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST: Final = r"(?:[\w-]{1,63}\.)*[\w-]{1,63}\.?|\[[0-9a-f:.]+\]"
_URL: Final = re.compile(rf"https?://(?:[!-.0-?A-~]*@)?(?:{_HOST})(?::[0-9]{{1,5}})?(?:/[^\s?#]*)?", re.IGNORECASE)


@dataclass(frozen=True)
class Credentials:
    """One API server and one identity."""

    server: str
    """Base URL without a trailing slash."""
    namespace: str
    """Namespace of the kubeconfig's context or of the service account; empty if none exists."""
    tls: ssl.SSLContext | None
    """None for plain http."""
    token: TokenSource = field(repr=False)
    tls_server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)
    """URL of the HTTP proxy; can contain a password."""
    origin: str = ""
    """File of the identity, for messages."""
    files: Mapping[Path, bytes] = field(default_factory=dict, repr=False)
    """Contents of the kubeconfigs and of the certificates and keys that they name; empty for a missing file."""
    certificate: bytes = field(default=b"", repr=False)
    """The client certificate in the kubeconfig, as PEM; empty without one."""
    user_agent: str = ""
    """Name and version of the program: API servers record the name as the manager of the fields that it writes. Empty:
    that of the HTTP library."""

    @property
    def expiry(self) -> datetime | None:
        """When the token or the client certificate ends, if it stays until it is replaced; None if unknown."""
        end, _ = token_claims(fixed_token(self.token))
        return end or certificate_end(self.certificate)

    @property
    def weakness(self) -> str:
        """Return why a third party on the network can read or change the traffic; empty if it cannot."""
        if self.tls is None:
            return "it is not encrypted (http://)"
        if self.tls.verify_mode is ssl.CERT_NONE:
            return "the certificate of the server is not verified (insecure-skip-tls-verify)"
        return ""


class _Cluster(Struct, rename="kebab", omit_defaults=True):
    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class _User(Struct, rename="kebab", forbid_unknown_fields=True):
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    exec: Plugin | None = None
    extensions: Any = None


class _Context(Struct):
    cluster: str
    user: str | None = None
    namespace: Annotated[str, msgspec.Meta(pattern=rf"^({DNS_LABEL.pattern})?\Z")] | None = None


class _Kubeconfig(Struct, rename="kebab"):
    kind: Literal["Config"] = "Config"
    current_context: str | None = None
    clusters: list[Section] | None = None
    users: list[Section] | None = None
    contexts: list[Section] | None = None


class _Entry(NamedTuple, Generic[T]):
    """A cluster, user or context of a kubeconfig."""

    path: Path
    where: str
    """File, kind and name, for messages."""
    value: T


_Identity = tuple[_Entry[_Cluster], _Entry[_User], str]
"""A cluster, a user, and the namespace; empty if none is named."""


def load_credentials(
    paths: Path | Sequence[Path], environment: Mapping[str, str] = {}, *, master: str = "", context: str = ""
) -> Credentials:
    """Return the credentials of a context, by default the current one. Without paths, return those of the pod.

    ``environment`` has the address of the pod's API server, and names the proxy if the file does not. ``master``
    replaces the URL of the server. Raises CredentialError, and NotInCluster outside of a pod.
    """
    files: dict[Path, bytes] = {}
    if isinstance(paths, Path):
        paths = (paths,)
    if paths:
        cluster, user, namespace = _read_files(paths, context, files)
    else:
        cluster, user, namespace = _read_pod(environment)
    server = (master or cluster.value.server).strip().rstrip("/")
    server_name = cluster.value.tls_server_name or None
    if not _is_url(server) or "@" in server:
        raise CredentialError(f"{cluster.where}: server: {redact_text(server)!r} is not https://host:port")
    # Without colons, an IPv6 address has the form of a host name.
    if server_name and not _is_url(f"https://{server_name.replace(':', '')}"):
        raise CredentialError(f"{cluster.where}: tls-server-name: not a valid host name")
    proxy = cluster.value.proxy_url or proxy_for(server, environment)
    if proxy and not _is_url(proxy):
        raise CredentialError(f"{cluster.where}: proxy-url, or the proxy of the environment: not an http:// URL")
    certificate = _material(user, "client-certificate", files)
    tls = _tls(cluster, user, certificate, files) if urlsplit(server).scheme == "https" else None
    return Credentials(
        server=server,
        namespace=namespace,
        tls=tls,
        token=_token_source(user, cluster.value, tls),
        certificate=certificate or b"",
        tls_server_name=server_name,
        proxy=proxy,
        origin=str(user.path),
        files=files,
    )


class _Kubeconfigs:
    """Several kubeconfigs: of the entries with one name, the first counts."""

    def __init__(self, documents: Mapping[Path, _Kubeconfig]) -> None:
        self._documents = documents
        self._where = os.pathsep.join(map(str, documents))

    def current_context(self) -> str:
        """Return the name of the current context. Raises CredentialError if no file names one."""
        for document in self._documents.values():
            if document.current_context:
                return document.current_context
        if all(document == _Kubeconfig() for document in self._documents.values()):
            raise CredentialError(f"{self._where}: empty; write the kubeconfig again")
        raise CredentialError(f"{self._where}: current-context: not set; name the context to use")

    def find(self, kind: str, name: str, view: type[T]) -> _Entry[T]:
        """Return the cluster, user or context of this name. Raises CredentialError."""
        for path, section in self._sections(kind):
            if section.get("name") == name:
                where = f"{path}: {kind} {name!r}"
                return _Entry(path, where, _convert(where, section.get(kind) or {}, view))
        raise CredentialError(f"{self._where}: {kind} {name!r} not found; available: {self._names(kind)}")

    def _names(self, kind: str) -> str:
        # A name that is no text can be a nested alias, whose text would not fit into memory.
        names = {section["name"] for _, section in self._sections(kind) if isinstance(section.get("name"), str)}
        return sanitize(", ".join(sorted(names))) or "none"

    def _sections(self, kind: str) -> Iterator[tuple[Path, Section]]:
        for path, document in self._documents.items():
            for section in getattr(document, f"{kind}s") or ():
                yield path, section


def _read_files(paths: Sequence[Path], context: str, files: dict[Path, bytes]) -> _Identity:
    """Return the identity of a context in these files, and put their contents into ``files``."""
    files |= dict.fromkeys(paths, b"")
    present = [path for path in paths if os.path.exists(path)]
    # Without any, the error is about the first one.
    kubeconfigs = _Kubeconfigs({path: _parse(path, files) for path in present or paths[:1]})
    chosen = kubeconfigs.find("context", context or kubeconfigs.current_context(), _Context)
    # A server without TLS may need no user.
    user = _Entry(chosen.path, f"{chosen.where}: user", _User())
    if chosen.value.user:
        user = kubeconfigs.find("user", chosen.value.user, _User)
    cluster = kubeconfigs.find("cluster", chosen.value.cluster, _Cluster)
    return cluster, user, chosen.value.namespace or ""


def _read_pod(environment: Mapping[str, str]) -> _Identity:
    """Return the identity of the service account of the pod."""
    host = environment.get("KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise NotInCluster("no kubeconfig was given and this is not a pod")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    where = str(SERVICE_ACCOUNT)
    cluster = _Entry(SERVICE_ACCOUNT / "ca.crt", where, _Cluster(server, certificate_authority="ca.crt"))
    user = _Entry(SERVICE_ACCOUNT / "token", where, _User(token_file="token"))  # noqa: S106 - a file name
    namespace = ""
    file = SERVICE_ACCOUNT / "namespace"
    if file.exists():
        namespace = read_bytes(file).decode("utf-8", "replace").strip()
    return cluster, user, namespace


_Loader: Final[type[yaml.SafeLoader]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader in C needs a tenth of the time."""


def _parse(path: Path, files: dict[Path, bytes]) -> _Kubeconfig:
    files[path] = read_bytes(path)
    try:
        document = _Loader(files[path]).get_single_data() or {}
    except Exception as error:
        # PyYAML raises errors of many classes besides its own: IndexError for "!!int ''", KeyError for "!!bool x",
        # AttributeError for "!!timestamp x", ValueError for the date 2024-13-45, RecursionError for deep nesting.
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark else ""
        raise CredentialError(f"{path}: not valid YAML{place}") from None
    if not isinstance(document, dict):
        raise CredentialError(f"{path}: not a kubeconfig; it may be base64-encoded twice")
    return _convert(str(path), document, _Kubeconfig)


def _convert(where: str, document: Section, kind: type[T]) -> T:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        problem, _, name = str(error).partition(" - at `$")
        raise CredentialError(": ".join(filter(None, (where, name.strip(".`"), problem)))) from None


def _is_url(url: str) -> bool:
    """Return whether aiohttp can use the URL of a server or proxy: it raises various errors for an invalid one."""
    if not url.isprintable() or _URL.fullmatch(url) is None:
        return False
    try:
        # Raises ValueError for a port above 65535, and for an IPv6 address in brackets that is none.
        port = urlsplit(url).port
    except ValueError:
        return False
    return port != 0


def _token_source(entry: _Entry[_User], cluster: _Cluster, tls: ssl.SSLContext | None) -> TokenSource:
    user = entry.value
    if user.exec is not None:
        return ExecToken(entry.path, user.exec, msgspec.to_builtins(cluster), tls)
    if user.token_file:
        return FileToken(entry.path.parent / user.token_file)
    if user.token:
        return TokenSource(checked_token(user.token, f"{entry.where}: token"))
    if tls is not None and not (user.client_certificate or user.client_certificate_data):
        supported = "use token, tokenFile, client-certificate with client-key, or exec"
        raise CredentialError(f"{entry.where}: no credential; {supported}")
    return TokenSource(None)


def _tls(
    cluster: _Entry[_Cluster], user: _Entry[_User], certificate: bytes | None, files: dict[Path, bytes]
) -> ssl.SSLContext:
    authority = _material(cluster, "certificate-authority", files)
    # Other characters are in comments. Python rejects them with a TypeError, Go accepts them.
    pem = None if authority is None else authority.decode("ascii", "ignore")
    if pem == "":
        # Empty data would select the authorities of the system.
        pem = "empty"
    try:
        context = ssl.create_default_context(cadata=pem)
    except (ssl.SSLError, ValueError):
        raise CredentialError(f"{cluster.where}: certificate-authority: expected a PEM certificate") from None
    # Newer Python versions reject authorities without a key identifier, which many clusters have and Go accepts.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # Go clients reject a file with both; here the authority decides.
    if cluster.value.insecure_skip_tls_verify and authority is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    pair = [certificate, _material(user, "client-key", files)]
    if pair != [None, None]:
        try:
            load_certificate(context, b"\n".join(filter(None, pair)))
        except OSError:
            raise CredentialError(f"{user.where}: client-certificate, client-key: no unencrypted PEM pair") from None
    return context


def _material(entry: _Entry[Any], key: str, files: dict[Path, bytes]) -> bytes | None:
    """Return the contents of ``<key>-data`` or of the file ``<key>``; None if the entry has neither."""
    attribute = key.replace("-", "_")
    data = getattr(entry.value, f"{attribute}_data")
    if data:
        try:
            return base64.b64decode(data)
        except ValueError:
            raise CredentialError(f"{entry.where}: {key}-data: not valid base64") from None
    name = getattr(entry.value, attribute)
    if not name:
        return None
    path = entry.path.parent / name
    files[path] = read_bytes(path)
    return files[path]

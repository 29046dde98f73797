"""Server and identity of an API client, from kubeconfig files or from the service account of the pod.

Several kubeconfigs are merged by client-go's rules for ``KUBECONFIG``: the first file that defines an entry or
``current-context`` wins, missing files are skipped, and a relative path starts at the directory of its file.
Every problem is a CredentialError that names file and field. Unknown fields of a user are rejected, because ignoring
one, such as ``as``, would use another identity than the file names. Credentials are never logged.
"""

import base64
import os
import re
import ssl
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field  # noqa: TID251  # a field must not be printed
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml
from msgspec import Struct

from harvester_ccm.errors import CredentialError
from harvester_ccm.kube.connection import proxy_for
from harvester_ccm.kube.tokens import (
    ExecToken,
    FileToken,
    FixedToken,
    Plugin,
    TokenSource,
    checked_token,
    load_certificate,
    read_bytes,
)
from harvester_ccm.model.meta import DNS_LABEL
from harvester_ccm.redaction import redact_text

T = TypeVar("T")
Section = dict[str, Any]

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST: Final = r"(?:[\w-]{1,63}\.)*[\w-]{1,63}\.?|\[[0-9a-f:.]+\]"
_URL: Final = re.compile(rf"https?://(?:[!-.0-?A-~]*@)?(?:{_HOST})(?::[0-9]{{1,5}})?(?:/[^\s?#]*)?", re.IGNORECASE)
_SUPPORTED: Final = "use token, tokenFile, client-certificate with client-key, or exec"


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
    readable_by_all: bool = False
    """Whether every user of the host can read the file."""


class _Cluster(Struct, rename="kebab"):
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


class _Entry(NamedTuple):
    """A cluster, user or context of a kubeconfig."""

    path: Path
    where: str
    """File, kind and name, for messages."""
    section: Section


def load_kubeconfig(
    paths: Path | Sequence[Path],
    environment: Mapping[str, str] | None = None,
    *,
    master: str = "",
    context: str = "",
) -> Credentials:
    """Return the credentials of a context, by default of the current one. Raises CredentialError.

    ``environment`` names the proxy if the file does not. ``master`` replaces the URL of the server.
    """
    paths = (paths,) if isinstance(paths, Path) else paths
    files = dict.fromkeys(paths, b"")
    cluster_entry, user_entry, namespace = _select_context(paths, context, files)
    return _credentials(cluster_entry, user_entry, namespace, files, environment=environment or {}, master=master)


def load_in_cluster(
    environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT, *, master: str = ""
) -> Credentials:
    """Return the credentials of the pod's service account. Raises CredentialError if this is not a pod.

    ``master`` replaces the URL of the server in the environment.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise CredentialError("no kubeconfig was given and this is not a pod; set --kubeconfig or KUBECONFIG")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    cluster = _Entry(directory / "ca.crt", str(directory), {"server": server, "certificate-authority": "ca.crt"})
    user = _Entry(directory / "token", str(directory), {"tokenFile": "token"})
    file = directory / "namespace"
    namespace = read_bytes(file).decode("utf-8", "replace").strip() if file.exists() else ""
    return _credentials(cluster, user, namespace, {}, environment=environment, master=master)


def _credentials(
    cluster_entry: _Entry,
    user_entry: _Entry,
    namespace: str,
    files: dict[Path, bytes],
    *,
    environment: Mapping[str, str],
    master: str,
) -> Credentials:
    cluster = _convert(cluster_entry.where, cluster_entry.section, _Cluster)
    user = _convert(user_entry.where, user_entry.section, _User)
    server = (master or cluster.server).strip().rstrip("/")
    if not _is_url(server) or "@" in server:
        raise CredentialError(f"{cluster_entry.where}: server: {redact_text(server)!r} is not https://host:port")
    # Without colons, an IPv6 address has the form of a host name.
    if cluster.tls_server_name and not _is_url(f"https://{cluster.tls_server_name.replace(':', '')}"):
        raise CredentialError(f"{cluster_entry.where}: tls-server-name: not a valid host name")
    proxy = cluster.proxy_url or proxy_for(server, environment)
    if proxy and not _is_url(proxy):
        raise CredentialError(f"{cluster_entry.where}: proxy-url, or the proxy of the environment: not an http:// URL")
    tls = _tls(cluster_entry, user_entry, files) if urlsplit(server).scheme == "https" else None
    token = _token_source(user_entry, user, cluster_entry.section, tls)
    mode = user_entry.path.lstat().st_mode
    return Credentials(
        server=server,
        namespace=namespace,
        tls=tls,
        token=token,
        tls_server_name=cluster.tls_server_name or None,
        proxy=proxy,
        origin=str(user_entry.path),
        files=files,
        # A mounted Secret is a link that only one pod can see.
        readable_by_all=stat.S_ISREG(mode) and bool(mode & stat.S_IROTH),
    )


def _select_context(paths: Sequence[Path], context: str, files: dict[Path, bytes]) -> tuple[_Entry, _Entry, str]:
    """Return cluster, user and namespace of a context, by default of the current one."""
    present = [path for path in paths if os.path.exists(path)] or paths[:1]
    documents = {path: _parse(path, files) for path in present}
    where = os.pathsep.join(map(str, present))

    def find(kind: str, name: str) -> _Entry:
        entries = [(path, one) for path in present for one in getattr(documents[path], f"{kind}s") or ()]
        for path, one in entries:
            if one.get("name") == name:
                return _Entry(path, f"{path}: {kind} {name!r}", one.get(kind) or {})
        available = ", ".join(sorted({str(one.get("name")) for _, one in entries})) or "none"
        raise CredentialError(f"{where}: {kind} {name!r} not found; available: {available}")

    name = context or next(filter(None, (one.current_context for one in documents.values())), "")
    if not name:
        raise CredentialError(f"{where}: current-context: not set; name the context to use")
    entry = find("context", name)
    found = _convert(entry.where, entry.section, _Context)
    user = find("user", found.user) if found.user else _Entry(entry.path, f"{entry.where}: user", {})
    return find("cluster", found.cluster), user, found.namespace or ""


def _parse(path: Path, files: dict[Path, bytes]) -> _Kubeconfig:
    files[path] = read_bytes(path)
    try:
        document = yaml.load(files[path], getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}  # noqa: S506 - safe
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # ValueError: the text resembles a date or a number.
        mark = getattr(error, "problem_mark", None)
        raise CredentialError(f"{path}: not valid YAML{f' at line {mark.line + 1}' if mark else ''}") from None
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
    return url.isprintable() and _URL.fullmatch(url) is not None


def _token_source(entry: _Entry, user: _User, cluster: Section, tls: ssl.SSLContext | None) -> TokenSource:
    if user.exec is not None:
        return ExecToken(entry.path, user.exec, cluster, tls)
    if user.token_file:
        return FileToken(entry.path.parent / user.token_file)
    if user.token:
        return FixedToken(checked_token(user.token, f"{entry.where}: token"))
    if tls is not None and not (user.client_certificate or user.client_certificate_data):
        raise CredentialError(f"{entry.where}: no credential; {_SUPPORTED}")
    return FixedToken(None)


def _tls(cluster: _Entry, user: _Entry, files: dict[Path, bytes]) -> ssl.SSLContext:
    authority = _material(cluster, "certificate-authority", files)
    context = _trusting(authority, f"{cluster.where}: certificate-authority")
    if cluster.section.get("insecure-skip-tls-verify"):
        if authority is not None:
            raise CredentialError(f"{cluster.where}: insecure-skip-tls-verify: remove it or the certificate-authority")
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    pair = [_material(user, key, files) for key in ("client-certificate", "client-key")]
    if pair != [None, None]:
        try:
            load_certificate(context, b"\n".join(filter(None, pair)))
        except OSError:
            raise CredentialError(f"{user.where}: client-certificate, client-key: no unencrypted PEM pair") from None
    return context


def _material(entry: _Entry, key: str, files: dict[Path, bytes]) -> bytes | None:
    """Return the contents of ``<key>-data`` or of the file ``<key>``; None if the entry has neither."""
    data, name = entry.section.get(f"{key}-data"), entry.section.get(key)
    if data:
        try:
            return base64.b64decode(data)
        except ValueError:
            raise CredentialError(f"{entry.where}: {key}-data: not valid base64") from None
    if not name:
        return None
    path = entry.path.parent / name
    files[path] = read_bytes(path)
    return files[path]


def _trusting(authority: bytes | None, where: str) -> ssl.SSLContext:
    """Return a TLS context that trusts this authority, or those of the system if None."""
    try:
        # Empty data would select the authorities of the system.
        context = ssl.create_default_context(cadata=None if authority is None else authority.decode() or "empty")
    except (ssl.SSLError, ValueError):
        raise CredentialError(f"{where}: expected a PEM certificate") from None
    # Newer Python versions reject authorities without a key identifier, which many clusters have and Go accepts.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context

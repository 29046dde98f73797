"""Server, TLS and bearer token of an API client, from kubeconfig files or from the service account of the pod.

Several kubeconfigs are merged by client-go's rules for ``KUBECONFIG``: the first file that defines an entry or
``current-context`` wins, missing files are skipped, and a relative path starts at the directory of its file.
Every problem is a CredentialError that names file and field. Unknown fields of a user are rejected, because ignoring
one, such as ``as``, would use another identity than the file names.

A token is fixed, in a file that is rotated, or from a credential plugin (client.authentication.k8s.io). Credentials are
never logged.
"""

import asyncio
import base64
import math
import os
import re
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field  # noqa: TID251  # a field must not be printed
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml
from msgspec import Struct

from harvester_ccm.errors import UNREADABLE, CredentialError
from harvester_ccm.kube.connection import load_certificate, proxy_for, read_bytes
from harvester_ccm.model.meta import DNS_LABEL
from harvester_ccm.redaction import one_line, redact_text, sanitize

T = TypeVar("T")
Section = dict[str, Any]

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PLUGIN_SECONDS: Final = 20.0
"""Time limit for a run of a plugin; then it is killed."""
_ZERO_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)
"""The zero value of Go's time: like client-go, treat it as no expiry."""
_HOST: Final = r"(?:[\w-]{1,63}\.)*[\w-]{1,63}\.?|\[[0-9a-f:.]+\]"
_URL: Final = re.compile(rf"https?://(?:[!-.0-?A-~]*@)?(?:{_HOST})(?::[0-9]{{1,5}})?(?:/[^\s?#]*)?", re.IGNORECASE)
_SUBJECT: Final = re.compile(r"system:serviceaccount:([a-z0-9][a-z0-9-]{0,62}):([a-z0-9][a-z0-9.-]{0,252})")


def checked_token(text: str, where: str) -> str:
    """Return a token without surrounding whitespace. Raises CredentialError if a header cannot carry it."""
    token = text.strip()
    if not re.fullmatch("[!-~]+", token):
        raise CredentialError(f"{where}: expected one word of ASCII characters")
    return token


class TokenSource:
    """A bearer token that never changes, or none; the other sources of tokens override its methods."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def get(self) -> str | None:
        """Return the current token; None if no token exists or a plugin renews it. Raises CredentialError."""
        return self._token

    def forget(self) -> None:
        """Fetch a new token for the next request: the server rejected the current one."""

    async def fetch(self) -> str | None:
        """Return the token to send, without blocking the event loop. Raises CredentialError."""
        return self.get()


class FileToken(TokenSource):
    """A token file that the kubelet rotates; it is read for every request."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises CredentialError."""
        self._path = path
        self.get()

    def get(self) -> str | None:
        return checked_token(read_bytes(self._path).decode("utf-8", "replace"), f"{self._path}: token")


class Plugin(Struct, rename="camel"):
    """The field ``exec`` of a user in a kubeconfig."""

    api_version: str
    command: str
    args: list[str] | None = None
    env: list[dict[str, str]] | None = None
    provide_cluster_info: bool = False


class _Status(Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    """With a time zone, without which the time is not defined."""


class _ExecCredential(Struct):
    status: _Status


class ExecToken(TokenSource):
    """A token, a client certificate, or both, from a plugin. It runs again when they have expired, as in client-go."""

    def __init__(self, path: Path, plugin: Plugin, cluster: Mapping[str, object], tls: ssl.SSLContext | None) -> None:
        """Build it for a kubeconfig at ``path``; ``tls`` receives the client certificates."""
        super().__init__(None)
        self._path = path
        self._plugin = plugin
        self._cluster = cluster
        self._tls = tls
        self._valid_until = -math.inf
        self._run: asyncio.Task[str | None] | None = None
        """The last run, which all callers wait for."""

    def forget(self) -> None:
        self._valid_until = -math.inf

    async def fetch(self) -> str | None:
        if self._run is None or (self._run.done() and time.time() >= self._valid_until):
            self._run = asyncio.create_task(self._renew(), name="credential plugin")
            # Retrieve the exception: all callers may have been cancelled.
            self._run.add_done_callback(lambda run: run.cancelled() or run.exception())
        return await asyncio.shield(self._run)

    async def _renew(self) -> str | None:
        """Return a new token; None if there is only a certificate."""
        self._valid_until = -math.inf
        output = await asyncio.to_thread(self._output)
        try:
            status = msgspec.json.decode(output, type=_ExecCredential).status
            if status.client_certificate_data and self._tls is not None:
                load_certificate(self._tls, f"{status.client_certificate_data}\n{status.client_key_data}".encode())
            elif not status.token:
                raise self._failure("it printed neither a token nor a client certificate")
        except (*UNREADABLE, OSError) as error:
            raise self._failure(f"it printed no ExecCredential: {one_line(str(error))}") from None
        token = checked_token(status.token, f"{self._path}: token of the plugin") if status.token else None
        expiry = status.expiration_timestamp
        if expiry is None or expiry == _ZERO_TIME:
            self._valid_until = math.inf
        else:
            self._valid_until = expiry.timestamp()
        return token

    def _output(self) -> bytes:
        """Run the plugin and return its standard output."""
        plugin = self._plugin
        spec = {"interactive": False, **({"cluster": self._cluster} if plugin.provide_cluster_info else {})}
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        variables = {one.get("name", ""): one.get("value", "") for one in plugin.env or ()}
        variables["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
        try:
            done = subprocess.run(
                [plugin.command, *(plugin.args or ())],
                check=False,
                env=os.environ | variables,
                cwd=self._path.parent,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PLUGIN_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise self._failure(f"it did not end within {PLUGIN_SECONDS:g} s") from None
        except (OSError, ValueError) as error:
            raise self._failure(getattr(error, "strerror", None) or str(error)) from None
        if done.returncode:
            message = one_line(redact_text(done.stderr.decode(errors="replace").strip()))[-500:]
            raise self._failure(f"it ended with exit code {done.returncode}: {message}")
        return done.stdout

    def _failure(self, why: str) -> CredentialError:
        return CredentialError(f"{self._path}: credential plugin {self._plugin.command!r} failed: {why}")


class _Claims(Struct):
    exp: float | None = None
    sub: str = ""


def token_claims(token: str | None) -> tuple[datetime | None, str]:
    """Return when a token expires, and the ``namespace/name`` of its ServiceAccount.

    They are None and empty if the token is not a JSON web token with such a claim. The signature is not verified: only
    the server knows whether a token is valid.
    """
    try:
        # The decoder ignores surplus padding.
        claims = msgspec.json.decode(base64.urlsafe_b64decode(f"{(token or '').split('.')[1]}==="), type=_Claims)
        end = None if claims.exp is None else datetime.fromtimestamp(claims.exp, UTC)
    except (IndexError, OverflowError, *UNREADABLE):
        return None, ""
    match = _SUBJECT.fullmatch(claims.sub)
    return end, f"{match[1]}/{match[2]}" if match is not None else ""


def credential_text(token: str, origin: str, now: datetime) -> str:
    """Return the text for a rejected credential; ``token`` is empty for a client certificate."""
    if not token:
        return f"the credential in {origin}"
    end, account = token_claims(token)
    owner = f" of ServiceAccount {account}" if account else ""
    expiry = f", which {'expired on' if end <= now else 'is valid until'} {end:%Y-%m-%d %H:%M} UTC" if end else ""
    return f"the token{owner} in {origin}{expiry}"


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
    """Return the credentials of a context, by default of the current one; without paths, those of the pod.

    ``environment`` has the address of the pod's API server, and names the proxy if the file does not. ``master``
    replaces the URL of the server. Raises CredentialError.
    """
    files: dict[Path, bytes] = {}
    paths = (paths,) if isinstance(paths, Path) else paths
    cluster, user, namespace = _read_files(paths, context, files) if paths else _read_pod(environment)
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
    tls = _tls(cluster, user, files) if urlsplit(server).scheme == "https" else None
    return Credentials(
        server=server,
        namespace=namespace,
        tls=tls,
        token=_token_source(user, cluster.value, tls),
        tls_server_name=server_name,
        proxy=proxy,
        origin=str(user.path),
        files=files,
    )


def _read_files(paths: Sequence[Path], context: str, files: dict[Path, bytes]) -> _Identity:
    files |= dict.fromkeys(paths, b"")
    documents = {path: _parse(path, files) for path in [one for one in paths if os.path.exists(one)] or paths[:1]}
    where = os.pathsep.join(map(str, documents))

    def find(kind: str, name: str, view: type[T]) -> _Entry[T]:
        entries = [(path, one) for path in documents for one in getattr(documents[path], f"{kind}s") or ()]
        for path, one in entries:
            if one.get("name") == name:
                entry = f"{path}: {kind} {name!r}"
                return _Entry(path, entry, _convert(entry, one.get(kind) or {}, view))
        # A name that is no text can be a nested alias, whose text would not fit into memory.
        names = {one.get("name") for _, one in entries if isinstance(one.get("name"), str)}
        available = sanitize(", ".join(sorted(names))) or "none"
        raise CredentialError(f"{where}: {kind} {name!r} not found; available: {available}")

    name = context or next(filter(None, (one.current_context for one in documents.values())), "")
    if not name:
        raise CredentialError(f"{where}: current-context: not set; name the context to use")
    path, entry, found = find("context", name, _Context)
    user = find("user", found.user, _User) if found.user else _Entry(path, f"{entry}: user", _User())
    return find("cluster", found.cluster, _Cluster), user, found.namespace or ""


def _read_pod(environment: Mapping[str, str]) -> _Identity:
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise CredentialError("no kubeconfig was given and this is not a pod; set --kubeconfig or KUBECONFIG")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    where = str(SERVICE_ACCOUNT)
    cluster = _Entry(SERVICE_ACCOUNT / "ca.crt", where, _Cluster(server, certificate_authority="ca.crt"))
    user = _Entry(SERVICE_ACCOUNT / "token", where, _User(token_file="token"))  # noqa: S106 - a file name
    file = SERVICE_ACCOUNT / "namespace"
    return cluster, user, read_bytes(file).decode("utf-8", "replace").strip() if file.exists() else ""


class _Loader(yaml.SafeLoader):
    """Rejects text that cannot be encoded, such as half of a character: no header, file name or certificate has it."""

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Return the text of a node. Raises UnicodeEncodeError."""
        text = super().construct_scalar(node)
        text.encode()
        return text


def _parse(path: Path, files: dict[Path, bytes]) -> _Kubeconfig:
    files[path] = read_bytes(path)
    try:
        document = _Loader(files[path]).get_single_data() or {}
    except Exception as error:
        # PyYAML raises errors of many classes besides its own: IndexError for "!!int ''", KeyError for "!!bool x",
        # AttributeError for "!!timestamp x", ValueError for the date 2024-13-45, RecursionError for deep nesting.
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


def _tls(cluster: _Entry[_Cluster], user: _Entry[_User], files: dict[Path, bytes]) -> ssl.SSLContext:
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
    pair = [_material(user, key, files) for key in ("client-certificate", "client-key")]
    if pair != [None, None]:
        try:
            load_certificate(context, b"\n".join(filter(None, pair)))
        except OSError:
            raise CredentialError(f"{user.where}: client-certificate, client-key: no unencrypted PEM pair") from None
    return context


def _material(entry: _Entry[Any], key: str, files: dict[Path, bytes]) -> bytes | None:
    """Return the contents of ``<key>-data`` or of the file ``<key>``; None if the entry has neither."""
    field_name = key.replace("-", "_")
    data, name = getattr(entry.value, f"{field_name}_data"), getattr(entry.value, field_name)
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

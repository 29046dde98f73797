"""Files and servers that would fill the memory, or every later request, of a running controller."""

import asyncio
import ssl
import tracemalloc
from pathlib import Path

import pytest

from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.connection import MAX_FILE
from harvester_ccm.kube.credentials import Credentials, load_credentials
from harvester_ccm.kube.errors import CredentialError
from harvester_ccm.kube.tokens import ExecToken, Plugin, TokenSource
from harvester_ccm.model.core import SERVICES
from tests.support.hostile_server import Reply, hostile_server, whole

MERGES = """
a0: &a0 {server: x}
a1: &a1 {<<: [*a0, *a0]}
a2: {<<: [*a1, *a1]}
"""


def test_kubeconfig_with_merge_keys_is_refused(tmp_path: Path) -> None:
    """Five levels of nine of them took seconds, seven gigabytes."""
    file = tmp_path / "kubeconfig"
    file.write_text(MERGES)
    with pytest.raises(CredentialError, match=r"not valid YAML at line 3"):
        load_credentials(file)


def test_file_of_more_than_a_megabyte_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_bytes(b"#" * (MAX_FILE + 1))
    with pytest.raises(CredentialError, match="larger than 1 MiB"):
        load_credentials(file)


async def test_cookies_of_a_server_are_not_sent() -> None:
    """With twelve of them, a proxy that limits headers to 8 KB refused every later request."""
    cookies = tuple(f"Set-Cookie: c{number}={'x' * 600}" for number in range(12))
    body = b'{"metadata":{"name":"web"}}'
    async with hostile_server(lambda _path: Reply(whole(body), headers=cookies)) as server:
        # A session keeps no cookies of a server that is an IP address.
        url = server.url.replace("127.0.0.1", "localhost")
        tls: ssl.SSLContext | None = None
        async with ApiClient(Credentials(url, "", tls, TokenSource(None)), cluster="harvester") as client:
            for _ in range(2):
                await client.get(SERVICES, "web", namespace="shop")
        await asyncio.sleep(0)
    assert len(server.heads) == 2
    assert not any("Cookie" in head for head in server.heads)


@pytest.mark.parametrize("stream", ["", ">&2"], ids=["output", "errors"])
async def test_output_of_a_plugin_is_read_up_to_a_megabyte(tmp_path: Path, stream: str) -> None:
    """600 MiB of output were kept in memory."""
    plugin = Plugin("client.authentication.k8s.io/v1", "/bin/sh", ["-c", f"head -c 100000000 /dev/zero {stream}"])
    source = ExecToken(tmp_path / "kubeconfig", plugin, {}, None)
    tracemalloc.start()
    with pytest.raises(CredentialError, match=r"credential plugin '/bin/sh' failed: it (ended with exit|printed no)"):
        await source.fetch()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * MAX_FILE

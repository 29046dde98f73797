"""Servers on loopback that are not Kubernetes API servers."""

import http.server
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from devenv.pki import KeyPair


@contextmanager
def closed_port() -> Iterator[str]:
    """An address that nothing listens on, kept free for the time of the block."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"https://127.0.0.1:{holder.getsockname()[1]}"


@contextmanager
def web_server(
    *, status: int = 200, body: bytes = b"", headers: Mapping[str, str] | None = None, tls: KeyPair | None = None
) -> Iterator[str]:
    """A web server that gives one answer to everything, in clear text unless it has a certificate."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls.certificate, tls.key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up is the point
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            scheme = "https" if tls else "http"
            yield f"{scheme}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()

"""A clock that stands still, and servers that say what the test wants."""

from __future__ import annotations

import contextlib
import http.server
import threading
from typing import TYPE_CHECKING, Any

import pytest
from paceline.testing import Sandbox, VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


class Server:
    """Answers what is in ``script``, one entry a request, and then 200; keeps what it was sent."""

    def __init__(self) -> None:
        self.script: list[tuple[int, dict[str, str]]] = []
        self.seen: list[tuple[str, str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        self.connections = 0
        #: gives the content type and the body of an answer, by the request's path and body
        self.respond: Callable[[str, bytes], tuple[str, bytes]] | None = None
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                server.connections += 1
                super().setup()

            def handle(self) -> None:
                # A client may hang up in the middle of an answer.
                with contextlib.suppress(ConnectionError):
                    super().handle()

            def body(self) -> bytes:
                if self.headers.get("Transfer-Encoding") != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = b""
                while length := int(self.rfile.readline(), 16):
                    body += self.rfile.read(length)
                    self.rfile.readline()
                self.rfile.readline()
                return body

            def answer(self) -> None:
                server.seen.append((self.command, self.path, self.body()))
                server.headers.append({name.lower(): it for name, it in self.headers.items()})
                status, headers = server.script.pop(0) if server.script else (200, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                content = b"answer %d" % len(server.seen)
                if server.respond is not None:
                    kind, content = server.respond(self.path, server.seen[-1][2])
                    self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = answer  # noqa: N815 - the library's names

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        class Listener(http.server.ThreadingHTTPServer):
            # Whoever does not get in at once tries again a second later.
            request_queue_size = 512

        self.http = Listener(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"


@pytest.fixture
def sandbox(request: pytest.FixtureRequest) -> Generator[str]:
    """Start a server that enforces limits; a test's ``flags`` are its own."""
    flags = getattr(request, "param", ())
    with Sandbox(*flags) as running:
        yield running.url


@pytest.fixture
def server() -> Generator[Server]:
    running = Server()
    thread = threading.Thread(target=running.http.serve_forever, args=(0.01,))
    thread.start()
    yield running
    running.http.shutdown()
    thread.join()
    running.http.server_close()

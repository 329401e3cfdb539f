"""Servers that nobody here wrote: they refuse nothing, and nearly all of their quota is used."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests
import requests.adapters
from paceline import RateLimiter
from servers import PATIENCE, free_port

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from typing_extensions import Self

TESTS = Path(__file__).resolve().parent
MODULES = TESTS.parent.parent / "target" / "servers_node" / "node_modules"
THREADS = 8
LIMIT = 20
MISSING = "{} is not installed: run make test"


@contextlib.contextmanager
def process(*command: str | Path, port: int, **environment: str) -> Generator[str]:
    """Run a server until the block ends; gives its URL once it listens."""
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(MISSING.format(command[0]))
    running = subprocess.Popen(
        command, cwd=TESTS, env=os.environ | environment, stdout=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + PATIENCE
        while running.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(0.01)
        yield f"http://127.0.0.1:{port}/"
    finally:
        running.terminate()
        running.wait()


class Counting(requests.adapters.HTTPAdapter):
    """Counts every answer of the server, also those that a retry hides from the caller."""

    def __init__(self) -> None:
        super().__init__(pool_maxsize=THREADS)
        #: When each answer came, and what it was.
        self.answers: list[tuple[float, int]] = []

    def send(self, *args: Any, **kwargs: Any) -> requests.Response:
        response = super().send(*args, **kwargs)
        self.answers.append((time.monotonic(), response.status_code))
        return response


class Traffic:
    """Threads that send all they may for so many seconds."""

    def __init__(self, url: str, seconds: float, limit: Mapping[str, Any] | None = None) -> None:
        self.url, self.seconds = url, seconds
        self.limiter = RateLimiter()
        if limit:
            self.limiter.set_limit(url, **limit)
        self.counting = Counting()
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount("http://", self.counting)
        self.limiter.wrap_session(self.session)
        self.errors: list[BaseException] = []

    def run(self) -> Self:
        # The first answer says what there is to share.
        self.session.get(self.url)
        self.began = self.counting.answers[0][0]
        threads = [threading.Thread(target=self._work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.session.close()
        assert not self.errors
        return self

    def _work(self) -> None:
        try:
            while time.monotonic() < self.began + self.seconds:
                self.session.get(self.url)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self.errors.append(error)

    def statuses(self) -> list[int]:
        end = self.began + self.seconds
        return [status for at, status in self.counting.answers if at <= end]

    def check(self, most: float, *, refused: int = 0) -> None:
        """Check that no more than ``refused`` were, and that 90 % of ``most`` were admitted."""
        statuses = self.statuses()
        told = {status: statuses.count(status) for status in set(statuses)}
        assert set(told) <= {200, 429}
        assert told.get(429, 0) <= refused, told
        assert told.get(200, 0) >= 0.9 * most, (told, most)


def check_windows(url: str, windows: int, window: float, late: float = 0) -> None:
    """Follow so many windows, each of which frees a whole limit.

    ``late`` is by how much a server tells their ends later than they come: who believes it opens
    the next one so much later, and spreads a window over so much more.
    """
    Traffic(url, windows * (window + late)).run().check(windows * LIMIT)


def test_flask_limiter_fixed_window() -> None:
    # Resets are epochs in whole seconds, to which one second is added: `RequestLimit.reset_at`.
    with flask("fixed-window", 1) as url:
        check_windows(url, 3, 1, late=1)


def test_flask_limiter_moving_window() -> None:
    # Told as above, and the end is that of the oldest request.
    with flask("moving-window", 2) as url:
        check_windows(url, 2, 2, late=1)


@contextlib.contextmanager
def flask(strategy: str, window: int) -> Generator[str]:
    port = free_port()
    app = f"servers_flask:app({strategy!r})"
    gunicorn = [sys.executable, "-m", "gunicorn", "--log-level=error", "--threads", str(THREADS)]
    command = [*gunicorn, "--keep-alive=30", f"--bind=127.0.0.1:{port}", app]
    with process(*command, port=port, LIMIT=f"{LIMIT} per {window} seconds") as url:
        yield url


def test_slowapi() -> None:
    # Resets are epochs with a fraction, to which one second is added: `_inject_headers`.
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--log-level=error", f"--port={port}"]
    limit = f"{LIMIT} per 1 second"
    with process(*command, "servers_slowapi:app", port=port, LIMIT=limit) as url:
        check_windows(url, 3, 1, late=1)


def test_express_rate_limit_with_legacy_headers() -> None:
    # Resets are epochs in whole seconds, rounded up.
    with node("express.js", 2) as url:
        check_windows(url + "legacy", 2, 2, late=1)


@pytest.mark.parametrize("draft", ["draft-7", "draft-8"])
def test_express_rate_limit_with_headers_of_a_draft(draft: str) -> None:
    # What is left is told in whole seconds, rounded up, and so is the window.
    with node("express.js", 1) as url:
        check_windows(url + draft, 3, 1)


def test_fastify_rate_limit() -> None:
    # What is left is told in whole seconds, rounded up.
    with node("fastify.js", 1) as url:
        check_windows(url, 3, 1)


@contextlib.contextmanager
def node(script: str, window: int) -> Generator[str]:
    port = free_port()
    if not MODULES.exists():
        raise FileNotFoundError(MISSING.format("what servers_node/package.json names"))
    command: list[str | Path] = [
        "node",
        TESTS / "servers_node" / script,
        str(port),
        str(LIMIT),
        str(window * 1000),
    ]
    with process(*command, port=port, NODE_PATH=str(MODULES)) as url:
        yield url


@contextlib.contextmanager
def nginx(folder: Path, burst: str) -> Generator[str]:
    port = free_port()
    config = folder / "nginx.conf"
    temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    config.write_text(f"""
        daemon off; master_process off; pid {folder}/pid; error_log stderr crit;
        events {{}}
        http {{
            access_log off;
            {"".join(f"{name}_temp_path {folder}/{name};" for name in temporary)}
            limit_req_zone $binary_remote_addr zone=each:1m rate={LIMIT}r/s;
            limit_req_status 429;
            server {{
                listen 127.0.0.1:{port};
                keepalive_requests 1000;
                location / {{ limit_req zone=each {burst}; return 200; }}
            }}
        }}
    """)
    with process("nginx", "-e", "stderr", "-p", folder, "-c", config, port=port) as url:
        yield url


def test_nginx_with_a_burst(tmp_path: Path) -> None:
    # It tells nothing, so the limit is declared. `burst` is what may come beyond the first one.
    with nginx(tmp_path, "burst=4 nodelay") as url:
        limit = {"limit": LIMIT, "window": "1s", "burst": 5}
        Traffic(url, 3, limit).run().check(5 + LIMIT * 3)


def test_nginx_without_a_burst(tmp_path: Path) -> None:
    # It counts in milliseconds and forgives none: whoever arrives a millisecond less than 50 after
    # the one before, on a machine that has others to serve as well, is refused.
    with nginx(tmp_path, "") as url:
        limit = {"limit": LIMIT, "window": "1s", "burst": 1}
        Traffic(url, 4, limit).run().check(LIMIT * 4, refused=2)

"""Forks, subclasses, copies, and the end of the interpreter."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from paceline import AsyncRateLimiter, RateLimiter, RetryConfig

if TYPE_CHECKING:
    from conftest import Server

API = "api.example.com"


def run(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=20)


def test_the_interpreter_ends_although_daemon_threads_wait() -> None:
    ended = run("""
        import threading
        from paceline import RateLimiter
        limiter = RateLimiter()
        limiter.set_limit("a.example", 1, "1h")
        limiter.acquire("a.example")
        for _ in range(4):
            threading.Thread(target=limiter.acquire, args=("a.example",), daemon=True).start()
        while limiter.waiting < 4:
            pass
        print("done")
    """)
    # So long a wait is told once; nothing else is.
    told = "https://a.example: waiting 3600.0 s for 1/1h\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", told)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_rule_36_a_fork_goes_on_with_its_copy_and_says_so() -> None:
    ended = run("""
        import os, threading
        from paceline import RateLimiter
        limiter = RateLimiter()
        limiter.set_limit("a.example", 1, "200ms")
        limiter.acquire("a.example")
        thread = threading.Thread(target=limiter.acquire, args=("a.example",))
        thread.start()
        while limiter.waiting < 1:
            pass
        child = os.fork()
        if child == 0:
            limiter.acquire("a.example")  # the thread that waits is not here
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        thread.join()
    """)
    assert ended.returncode == 0, ended.stderr
    assert "no longer shares the count" in ended.stderr


def test_a_limiter_can_be_subclassed_as_usual() -> None:
    class Ours(RateLimiter):
        def __init__(self, name: str, **settings: Any) -> None:
            super().__init__(**settings)
            self.name = name

    class Theirs(AsyncRateLimiter):
        def __init__(self) -> None:
            super().__init__(max_wait=5)

    assert Ours("a", max_wait=3).max_wait == 3
    assert Theirs().max_wait == 5

    class Forgetful(RateLimiter):
        def __init__(self) -> None:
            """Set nothing up."""

    with pytest.raises(RuntimeError, match="__init__ was not called"):
        Forgetful().acquire(API)


def test_a_retry_configuration_can_be_copied() -> None:
    config = RetryConfig(max_retries=7)
    assert copy.deepcopy(config) == config
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - our own
    assert asdict(config)["max_retries"] == 7


def test_calls_share_no_cookies(server: Server) -> None:
    server.script = [(200, {"Set-Cookie": "visitor=1"})]
    limiter = RateLimiter()
    limiter.request("GET", server.url)
    assert "Cookie" not in limiter.request("GET", server.url).request.headers


def test_leaving_the_block_lets_those_go_who_wait_for_the_answer(server: Server) -> None:
    server.script = [(429, {"Retry-After": "0.01"})]
    limiter = RateLimiter(retry=RetryConfig(max_retries=0))
    limiter.request("GET", server.url)
    with limiter.acquire(server.url) as first:
        assert limiter.try_acquire(server.url) is None, "one goes first after a rejection"
    assert limiter.try_acquire(server.url) is not None
    first.cancel()


def test_no_client_is_imported_before_it_is_used() -> None:
    ended = run("""
        import sys
        import paceline
        clients = {"requests", "urllib3", "httpx", "httpx2", "aiohttp", "trio", "anyio"}
        print(sorted(clients & sys.modules.keys()))
    """)
    assert ended.stdout.strip() == "[]", ended.stderr

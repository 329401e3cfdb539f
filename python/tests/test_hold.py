"""A rejection holds everybody, in every process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from paceline import RateLimiter, RateLimitExceeded, RetryConfig
from servers import RedisServer

if TYPE_CHECKING:
    from conftest import Server

PROCESSES, THREADS, SECONDS = 4, 50, 5

CALLER = """
import sys, threading
import requests
from paceline import RateLimiter

storage, held, free, threads = sys.argv[1:]
limiter = RateLimiter(storage, fail_closed=True, storage_timeout=5)
session = requests.Session()
session.trust_env = False
session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=100))
limiter.wrap_session(session)
# Once, so that all that is imported and connected is.
session.get(free)
print("ready", flush=True)
input()
calls = [(url,) for url in (held, free) for _ in range(int(threads))]
callers = [threading.Thread(target=session.get, args=call) for call in calls]
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
"""


@pytest.fixture
def times(server: Server) -> list[tuple[float, str]]:
    """When each request came, and to which host."""
    seen: list[tuple[float, str]] = []

    class Times(list[dict[str, str]]):
        def append(self, headers: dict[str, str]) -> None:
            seen.append((time.monotonic(), headers["host"].partition(":")[0]))

    server.headers = Times()
    return seen


def test_rule_13_200_callers_in_4_processes_wait_and_then_go_one_by_one(
    server: Server, times: list[tuple[float, str]]
) -> None:
    held, free = server.url, server.url.replace("127.0.0.1", "localhost")
    server.script = [(200, {})] * PROCESSES + [(429, {"Retry-After": str(SECONDS)})]
    with RedisServer() as redis:
        command = [sys.executable, "-c", CALLER, redis.url, held, free, str(THREADS)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        callers = [subprocess.Popen(command, text=True, **pipes) for _ in range(PROCESSES)]  # type: ignore[call-overload]
        for caller in callers:
            assert caller.stdout.readline() == "ready\n"
        limiter = RateLimiter(redis.url, retry=RetryConfig(max_retries=0))
        assert limiter.request("GET", held).status_code == 429
        rejected = times[-1][0]
        for caller in callers:
            caller.stdin.write("go\n")
            caller.stdin.flush()
        for caller in callers:
            caller.communicate(timeout=30)
            assert caller.returncode == 0
    after = [at - rejected for at, host in times if host == "127.0.0.1" and at > rejected]
    assert len(after) == PROCESSES * THREADS
    assert after[0] >= SECONDS - 0.01, "nobody is sent while the server says stop"
    # One goes first, and the others follow one by one, each when the one before was answered.
    assert sum(at < after[0] + 0.01 for at in after) < 20
    others = [at - rejected for at, host in times if host == "localhost" and at > rejected]
    assert len(others) == PROCESSES * THREADS
    assert max(others) < SECONDS, "other scopes go on"


def test_rule_13_a_hold_is_the_wait_that_a_caller_who_may_not_wait_hears_of(
    server: Server,
) -> None:
    server.script = [(429, {"Retry-After": "5"})]
    limiter = RateLimiter(raise_on_limit=True)
    for _ in range(2):
        with pytest.raises(RateLimitExceeded) as refused:
            limiter.request("GET", server.url)
        assert refused.value.retry_after == pytest.approx(5, abs=0.5)
    assert len(server.seen) == 1


def test_rule_36_threads_that_share_a_limiter_get_exactly_what_there_is(server: Server) -> None:
    limiter = RateLimiter(max_wait=0)
    limiter.set_limit(server.url, limit=20, window="1h")
    refused = []

    def ask() -> None:
        for _ in range(10):
            try:
                limiter.request("GET", server.url)
            except RateLimitExceeded as error:  # noqa: PERF203 - half of them are
                refused.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(server.seen), len(refused)) == (20, 60)

"""The books of a store, as Python writes and reads them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import time
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import trio
from paceline import AsyncRateLimiter, RateLimiter, StorageUnavailable
from servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from paceline.testing import VirtualClock

MODEL = "openai:gpt-4o"


@pytest.fixture(params=["sqlite", "redis"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'limits.db'}"
    else:
        with RedisServer() as server:
            yield server.url


def sent(limiter: RateLimiter | AsyncRateLimiter) -> int:
    return sum(tally["sent"] for _, _, tally in limiter.usage())


def test_what_is_counted_stands_in_the_books_of_its_day(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    assert limiter.usage() == []
    limiter.count(MODEL, sent=2, waited=1.5, delayed=1, input_tokens=900, output_tokens=50)
    limiter.count(MODEL, rejected=1, failed=2, cached=3, refused=4, micro_usd=2_250)
    clock.advance(86_400)
    limiter.count(MODEL)
    (first, second) = limiter.usage()
    scope, day, tally = first
    assert (scope, second[1] - day) == (MODEL, timedelta(days=1))
    assert type(day) is date
    assert tally == {
        "sent": 2,
        "waited": 1.5,
        "delayed": 1,
        "refused": 4,
        "rejected": 1,
        "failed": 2,
        "cached": 3,
        "input_tokens": 900,
        "output_tokens": 50,
        "micro_usd": 2_250,
    }
    assert set(second[2].values()) == {0}


@pytest.mark.parametrize(
    ("fields", "error", "part"),
    [
        ({"tokens": 1}, TypeError, 'nothing is counted as "tokens": sent, waited'),
        ({"sent": 1.5}, TypeError, "sent must be a whole number, not 1.5"),
        ({"sent": "many"}, TypeError, "sent must be a whole number"),
        ({"waited": "long"}, TypeError, "real number"),
        ({"sent": -1}, ValueError, "sent must be zero or more, not -1"),
        ({"waited": -0.5}, ValueError, "bad waited -0.5"),
        ({"waited": float("nan")}, ValueError, "bad waited NaN"),
    ],
)
def test_what_cannot_be_counted_says_why(fields: Any, error: type[Exception], part: str) -> None:
    limiter = RateLimiter()
    with pytest.raises(error, match=part):
        limiter.count(MODEL, **fields)
    assert limiter.usage() == []


def test_processes_share_the_books(storage: str) -> None:
    script = """
        import sys
        from paceline import RateLimiter
        limiter = RateLimiter(sys.argv[1])
        for _ in range(100):
            limiter.count("openai:gpt-4o", sent=1)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), storage]
    workers = [subprocess.Popen(command) for _ in range(3)]
    assert [worker.wait(timeout=30) for worker in workers] == [0, 0, 0]
    assert sent(RateLimiter(storage)) == 300


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_rule_36_a_fork_counts_nothing_twice(storage: str) -> None:
    script = """
        import os, sys
        from paceline import RateLimiter
        limiter = RateLimiter(sys.argv[1])
        limiter.count("openai:gpt-4o", sent=1)
        child = os.fork()
        limiter.count("openai:gpt-4o", sent=10)
        if child == 0:
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), storage]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert sent(RateLimiter(storage)) == 21


@pytest.mark.parametrize("run", [asyncio.run, trio.run])
def test_an_event_loop_does_not_wait_for_the_books(run: Any) -> None:
    with RedisServer() as server:
        limiter = AsyncRateLimiter(server.url, storage_timeout=5)
        other = RateLimiter(server.url, storage_timeout=5)

        async def main() -> None:
            server.command("CLIENT", "PAUSE", "300")
            started = time.monotonic()
            for _ in range(1_000):
                limiter.count(MODEL, sent=1)
            assert time.monotonic() - started < 0.2

        run(main) if run is trio.run else run(main())
        # It was left at the desk, and nobody counts any more.
        deadline = time.monotonic() + 10
        while sent(other) < 1_000:
            assert time.monotonic() < deadline
            time.sleep(0.005)  # noqa: TID251 - a real server


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_a_program_without_event_loops_has_no_thread_for_its_books(storage: str) -> None:
    script = """
        import os, sys
        from paceline import RateLimiter
        limiter = RateLimiter(sys.argv[1])
        limiter.count("openai:gpt-4o", sent=1)
        limiter.flush()
        print(len(os.listdir("/proc/self/task")))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), storage]
    assert subprocess.run(command, check=True, capture_output=True).stdout == b"1\n"


def test_books_that_cannot_be_reached_are_said_so() -> None:
    limiter = RateLimiter("redis://127.0.0.1:1")
    limiter.count(MODEL, sent=1)
    with pytest.raises(StorageUnavailable, match=r"Connection refused|did not answer"):
        limiter.usage()

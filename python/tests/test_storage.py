"""Limits that processes share: in a file, and in a real Redis."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
from typing import TYPE_CHECKING

import pytest
from paceline import AsyncRateLimiter, RateLimiter, RateLimitExceeded, StorageUnavailable
from servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from conftest import Server
    from paceline.testing import VirtualClock

API = "api.example.com"
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


@pytest.fixture
def redis() -> Generator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "redis"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'limits.db'}"
    else:
        with RedisServer() as server:
            yield server.url


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)


def test_two_limiters_share_a_limit(storage: str) -> None:
    one, other = RateLimiter(storage), RateLimiter(storage)
    one.set_limit(API, 2, "1h")
    with one.acquire(API), other.acquire(f"https://{API}/v1"):
        pass
    assert one.try_acquire(API) is None
    assert other.try_acquire(API) is None
    assert other.list_endpoints() == [f"https://{API}"]
    status = other.get_status(API)
    assert status is not None
    assert (status.limit, status.remaining, status.confidence) == (2, 0, "configured")
    assert other.clear(API) == 1
    assert one.get_status(API) is None or one.try_acquire(API) is not None


def test_rule_13_what_one_process_learns_all_follow(storage: str, server: Server) -> None:
    server.script = [(200, {"X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "7"})]
    RateLimiter(storage).request("GET", server.url)
    status = RateLimiter(storage).get_status(server.url)
    assert status is not None
    assert (status.limit, status.remaining) == (50, 7)


def test_rule_15_what_one_learns_of_the_servers_own_buckets_all_follow(
    storage: str, clock: VirtualClock
) -> None:
    limiter, other = (RateLimiter(storage, clock=clock) for _ in range(2))
    api = f"http://{API}"
    for path, bucket, limit, left in [("/a", "wide", "100", "90"), ("/b", "narrow", "1000", "10")]:
        said = [("x-ratelimit-limit", limit), ("x-ratelimit-remaining", left)]
        bucket_of = ("x-ratelimit-bucket", bucket)
        limiter.acquire(api + path).observe(200, [*said, bucket_of], api + path)
    assert other.list_endpoints() == [f"{api}/#narrow", f"{api}/#wide"]
    # A host shows the tightest, whoever asks, with or without the scheme.
    for asked in (limiter, other):
        for endpoint in (api, API):
            status = asked.get_status(endpoint)
            assert status is not None
            assert (status.endpoint, status.remaining) == (f"{api}/#narrow", 10)
    limiter.acquire(f"{api}/a").observe(429, [("Retry-After", "5")], f"{api}/a")
    status = other.get_status(api)
    assert status is not None
    assert (status.endpoint, status.hold) == (f"{api}/#wide", 5)


def test_a_virtual_clock_moves_a_shared_limit(storage: str, clock: VirtualClock) -> None:
    limiter = RateLimiter(storage, clock=clock)
    limiter.set_limit(API, 60, "1m")
    for _ in range(61):
        limiter.acquire(API)
    assert clock.now == 1.0


def test_rule_18_threads_wait_their_turn(storage: str) -> None:
    limiter = RateLimiter(storage)
    limiter.set_limit(API, 20, "200ms")
    threads = [threading.Thread(target=limiter.acquire, args=(API,)) for _ in range(40)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - started >= 0.2 - 0.01


def test_several_event_loops_share_one_limiter(storage: str) -> None:
    limiter = AsyncRateLimiter(storage)
    limiter.set_limit(API, 300, "1h")
    granted: list[int] = []

    async def take() -> None:
        async def one() -> int:
            try:
                async with limiter.acquire(API, max_wait=0.5):
                    return 1
            except RateLimitExceeded:
                return 0

        granted.append(sum(await asyncio.gather(*(one() for _ in range(100)))))

    threads = [threading.Thread(target=asyncio.run, args=(take(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) == 300


async def _turns(call: asyncio.Task[object]) -> int:
    """How often the loop turns until a call is done."""
    turns = 0
    while not call.done():
        turns += 1
        await asyncio.sleep(0.001)  # noqa: TID251 - a real server is waited for
    return turns


def test_a_paused_server_does_not_stop_an_event_loop(redis: RedisServer) -> None:
    async def main() -> int:
        limiter = AsyncRateLimiter(redis.url, storage_timeout=0.2)
        await limiter.acquire(API)
        redis.pause()
        turns = await _turns(asyncio.ensure_future(limiter.acquire(API)))
        redis.resume()
        return turns

    assert asyncio.run(main()) > 30


def test_rule_22_raise_mode_never_waits_on_an_event_loop(storage: str) -> None:
    async def main() -> None:
        limiter = AsyncRateLimiter(storage, raise_on_limit=True)
        limiter.set_limit(API, 1, "1h")
        await limiter.acquire(API)
        with pytest.raises(RateLimitExceeded) as error:
            await limiter.acquire(API)
        assert 3500 < error.value.retry_after <= 3600

    asyncio.run(main())


def test_rule_34_calls_go_through_with_one_warning(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = RateLimiter(redis.url)
    limiter.set_limit(API, 1, "1h")
    redis.kill()
    with caplog.at_level(logging.WARNING, logger="paceline"):
        for _ in range(5):
            limiter.acquire(API)
    # The wait for the limit, before anybody knew, is another matter.
    told = [record.message for record in caplog.records if f"{redis.url}:" in record.message]
    assert len(told) == 1
    assert "unpaced until it is back" in told[0]
    away, failures, unmetered = limiter.storage_health
    assert away
    assert failures >= 1
    assert unmetered == 5


def test_rule_34_or_they_are_refused(redis: RedisServer) -> None:
    limiter = RateLimiter(redis.url, fail_closed=True)
    redis.kill()
    with pytest.raises(StorageUnavailable) as error:
        limiter.acquire(API)
    assert isinstance(error.value, RateLimitExceeded)
    assert error.value.retry_after > 0
    with pytest.raises(StorageUnavailable):
        RateLimiter(redis.url, fail_closed=True)


def test_rule_34_or_each_process_paces_its_share(redis: RedisServer) -> None:
    limiter = RateLimiter(redis.url, fallback="local")
    limiter.set_limit(API, 3, "1h")
    limiter.acquire(API)
    redis.kill()
    assert [limiter.try_acquire(API) is None for _ in range(4)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"storage": "redis://user:hunter2@h:x"}, 'port "x"'),
        ({"storage": "sqlite://file.db"}, "three slashes"),
        ({"storage": "postgres://h"}, "unknown scheme"),
        ({"storage": "memory", "lease": 0.1}, "goes with Redis"),
        ({"fallback": "remote"}, 'bad fallback "remote"'),
        ({"fallback": "local", "fail_closed": True}, "choose one"),
    ],
)
def test_a_setting_that_makes_no_sense_says_which_part(
    settings: dict[str, object], part: str
) -> None:
    with pytest.raises(ValueError, match=part) as error:
        RateLimiter(**settings)  # type: ignore[arg-type]
    assert "hunter2" not in str(error.value)


FORKED = """
    import os, sys, asyncio
    from paceline import AsyncRateLimiter, RateLimiter
    limiter, loops = RateLimiter(sys.argv[1]), AsyncRateLimiter(sys.argv[1])
    limiter.set_limit("a.example", 100, "1h")

    async def one():
        async with loops.acquire("a.example", max_wait=5):
            pass

    limiter.acquire("a.example")
    asyncio.run(one())
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            granted = sum(limiter.try_acquire("a.example") is not None for _ in range(10))
            asyncio.run(one())
            os._exit(granted)
        children.append(child)
    print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
    limiter.acquire("a.example")
    print(limiter.get_status("a.example").remaining)
"""


@forks
def test_rule_36_a_fork_after_use_shares_the_count(storage: str) -> None:
    ended = run(FORKED, storage)
    assert (ended.stdout, ended.stderr) == (f"[10, 10, 10, 10]\n{100 - 2 - 44 - 1}\n", "")


@forks
def test_rule_36_a_fork_while_another_thread_visits_the_store(storage: str) -> None:
    ended = run(
        """
        import os, sys, threading
        from paceline import RateLimiter
        limiter = RateLimiter(sys.argv[1], fail_closed=True, storage_timeout=5)
        limiter.set_limit("a.example", 1_000_000, "1d")
        stop = threading.Event()

        def visit():
            while not stop.is_set():
                limiter.acquire("a.example")

        thread = threading.Thread(target=visit)
        thread.start()
        ended = set()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                limiter.acquire("a.example")
                os._exit(0)
            ended.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        stop.set()
        thread.join()
        print(ended)
        """,
        storage,
    )
    assert (ended.stdout, ended.stderr) == ("{0}\n", "")


@forks
def test_rule_36_children_go_on_counting_when_their_parent_is_done(storage: str) -> None:
    ended = run(
        """
        import gc, os, sys
        from paceline import RateLimiter
        limiter = RateLimiter(sys.argv[1])
        limiter.set_limit("a.example", 100, "1d")
        limiter.acquire("a.example")
        go, children = os.pipe(), []
        for _ in range(2):
            child = os.fork()
            if child == 0:
                granted = sum(limiter.try_acquire("a.example") is not None for _ in range(10))
                os.read(go[0], 1)
                granted += sum(limiter.try_acquire("a.example") is not None for _ in range(10))
                os._exit(granted)
            children.append(child)
        del limiter
        gc.collect()
        os.write(go[1], b"!!")
        print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
        other = RateLimiter(sys.argv[1])
        print(sum(other.try_acquire("a.example") is not None for _ in range(100)))
        """,
        storage,
    )
    assert (ended.stdout, ended.stderr) == ("[20, 20]\n59\n", "")


def test_rule_36_spawned_workers_share_the_count(storage: str, tmp_path: Path) -> None:
    script = tmp_path / "spawning.py"
    script.write_text(
        textwrap.dedent("""
            import multiprocessing, sys
            from paceline import RateLimiter

            def work(storage):
                limiter = RateLimiter(storage)
                return sum(limiter.try_acquire("a.example") is not None for _ in range(20))

            if __name__ == "__main__":
                RateLimiter(sys.argv[1]).set_limit("a.example", 30, "1h")
                with multiprocessing.get_context("spawn").Pool(3) as pool:
                    print(sum(pool.map(work, [sys.argv[1]] * 3)))
        """)
    )
    command = [sys.executable, str(script), storage]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("30\n", "")


def test_the_interpreter_ends_although_somebody_waits(storage: str) -> None:
    ended = run(
        """
        import asyncio, sys, threading
        from paceline import AsyncRateLimiter, RateLimiter
        limiter, loops = RateLimiter(sys.argv[1]), AsyncRateLimiter(sys.argv[1])
        limiter.set_limit("a.example", 1, "1h")
        limiter.acquire("a.example")
        for _ in range(3):
            threading.Thread(target=limiter.acquire, args=("a.example",), daemon=True).start()

        async def main():
            waiting = [asyncio.ensure_future(loops.acquire("a.example")) for _ in range(3)]
            await asyncio.sleep(0.02)

        threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
        while limiter.waiting < 3:
            pass
        print("done")
        """,
        storage,
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n")
    # Each of the limiters tells once of so long a wait; nothing else is told.
    assert set(ended.stderr.splitlines()) == {"https://a.example: waiting 3600.0 s for 1/1h"}
    assert ended.stderr.count("waiting") <= 2


def test_leases_share_a_limit_and_never_exceed_it(redis: RedisServer) -> None:
    limiters = [RateLimiter(redis.url, lease=0.1, max_wait=0) for _ in range(3)]
    limiters[0].set_limit(API, 1000, "1s")
    redis.command("CONFIG", "RESETSTAT")
    started, granted = time.monotonic(), 0
    while time.monotonic() - started < 0.5:
        for limiter in limiters:
            granted += limiter.try_acquire(API) is not None
    assert granted <= 1000 + 1000 * (time.monotonic() - started)

"""What users test with: a clock for everything they make, and servers that enforce limits."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import paceline
import pytest
from models import Api, say
from paceline import AsyncRateLimiter, RateLimiter
from paceline.testing import Sandbox, VirtualClock, virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable


def code_under_test(calls: int) -> RateLimiter:
    limiter = RateLimiter()
    limiter.set_limit("api.example.com", limit=60, window="1m")
    for _ in range(calls):
        with limiter.acquire("api.example.com"):
            pass
    return limiter


def test_an_hour_of_traffic_takes_no_time(paceline_clock: VirtualClock) -> None:
    began = time.perf_counter()
    code_under_test(60 + 3600)
    assert paceline_clock.now == pytest.approx(3600)
    assert time.perf_counter() - began < 5


def test_coroutines_and_guards_live_by_it_too(paceline_clock: VirtualClock) -> None:
    async def use() -> None:
        limiter = AsyncRateLimiter(default_limits={"requests_per_hour": 1})
        for _ in range(3):
            async with limiter.acquire("api.example.com"):
                pass

    asyncio.run(use())
    assert paceline_clock.now == pytest.approx(7200)
    limiter = paceline.Guard(max_wait=None).limiter
    limiter.set_limit("openai:gpt-4o", limit=1, window="1m", burst=1)
    for _ in range(2):
        limiter.acquire("openai:gpt-4o")
    assert paceline_clock.now == pytest.approx(7260)


def test_what_a_guard_keeps_grows_old_by_it_too(paceline_clock: VirtualClock) -> None:
    api = Api()
    guard = paceline.Guard(cache=True, cache_ttl=60)
    with guard, api.openai() as client:
        for _ in range(2):
            say(client)
        paceline_clock.advance(61)
        say(client)
    assert len(api.seen) == 2


def test_a_clock_of_one_s_own_stays_and_the_block_ends() -> None:
    own = VirtualClock()
    with virtual_time() as clock:
        limiter = RateLimiter(clock=own)
        limiter.set_limit("api.example.com", limit=1, window="1h")
        for _ in range(2):
            limiter.acquire("api.example.com")
    assert (own.now, clock.now) == (3600, 0)
    limiter = RateLimiter(raise_on_limit=True)
    limiter.set_limit("api.example.com", limit=1, window="1h")
    limiter.acquire("api.example.com")
    with pytest.raises(paceline.RateLimitExceeded):
        limiter.acquire("api.example.com")
    assert clock.now == 0


def test_several_servers_enforce_what_they_are_told(
    paceline_sandbox: Callable[..., Sandbox],
) -> None:
    strict = paceline_sandbox("--policy=sliding", limits=["5/1m"], headers="ietf")
    free = paceline_sandbox()
    limiter = RateLimiter(raise_on_limit=True)
    for _ in range(5):
        limiter.request("GET", f"{strict.url}/items")
    with pytest.raises(paceline.RateLimitExceeded):
        limiter.request("GET", f"{strict.url}/items")
    limiter.request("GET", free.url)
    assert (strict.report()["admitted"], strict.report()["refused"]) == (5, 0)
    assert free.report()["admitted"] == 1


def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(RuntimeError, match="has no window; expected N/window"):
        Sandbox(limits=["60"])

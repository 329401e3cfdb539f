"""Waiting in event loops."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from paceline import AsyncRateLimiter, RateLimitExceeded

if TYPE_CHECKING:
    from paceline.testing import VirtualClock

API = "api.example.com"


def test_await_and_async_with_give_a_permit(clock: VirtualClock) -> None:
    async def main() -> None:
        async with AsyncRateLimiter(clock=clock) as limiter:
            limiter.set_limit(API, limit=2, window="1m")
            permit = await limiter.acquire(API)
            assert permit.waited == 0.0
            async with limiter.acquire(API, cost={"tokens": 5}) as permit:
                permit.settle(tokens=3)
            assert (await limiter.acquire(API)).waited == 30.0

    asyncio.run(main())


def test_rule_18_tasks_go_in_the_order_in_which_they_came() -> None:
    order: list[int] = []

    async def main() -> None:
        limiter = AsyncRateLimiter()
        limiter.set_limit(API, limit=1000, window="1s", burst=1)

        async def one(i: int) -> None:
            await limiter.acquire(API)
            order.append(i)

        await asyncio.gather(*(one(i) for i in range(30)))

    asyncio.run(main())
    assert order == list(range(30))


def test_rule_20_a_cancelled_task_gives_its_place_back() -> None:
    async def main() -> None:
        limiter = AsyncRateLimiter()
        limiter.set_limit(API, limit=25, window="1s", burst=1)
        await limiter.acquire(API)
        tasks = [asyncio.ensure_future(limiter.acquire(API)) for _ in range(5)]
        await asyncio.sleep(0)  # noqa: TID251 - lets them join the line
        assert limiter.waiting == 5
        for task in tasks[:4]:
            task.cancel()
        permit = await tasks[4]
        assert permit.waited < 0.16, "it went at the time of the first, not of the fifth"
        assert limiter.waiting == 0

    asyncio.run(main())


def test_rule_20_cancelling_in_the_tick_of_the_grant_loses_nothing() -> None:
    async def main() -> None:
        limiter = AsyncRateLimiter()
        limiter.set_limit(API, limit=1000, window="1h", burst=1)
        held = await limiter.acquire(API)
        for _ in range(1000):
            task = asyncio.ensure_future(limiter.acquire(API))
            await asyncio.sleep(0)  # noqa: TID251 - lets it join the line
            held.cancel()  # grants it, in this very tick
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            taken = limiter.try_acquire(API)
            assert taken is not None
            held = taken
        assert limiter.try_acquire(API) is None

    asyncio.run(main())


def test_rule_22_raise_mode_never_waits(clock: VirtualClock) -> None:
    async def main() -> None:
        limiter = AsyncRateLimiter(raise_on_limit=True, clock=clock)
        limiter.set_limit(API, limit=1, window="1m")
        await limiter.acquire(API)
        with pytest.raises(RateLimitExceeded) as caught:
            await limiter.acquire(API)
        assert caught.value.retry_after == 60.0

    asyncio.run(main())
    assert clock.now == 0


def test_rule_36_one_limiter_serves_several_loops() -> None:
    limiter = AsyncRateLimiter()
    limiter.set_limit(API, limit=1000, window="1s", burst=1)
    done: list[int] = []

    async def main(i: int) -> None:
        for _ in range(5):
            await limiter.acquire(API)
            done.append(i)

    threads = [threading.Thread(target=asyncio.run, args=(main(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 20
    asyncio.run(main(9))

"""Waiting in event loops."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import trio
import trio.testing
from paceline import AsyncRateLimiter, RateLimiter, RateLimitExceeded, RetryConfig
from paceline.httpx import AsyncRateLimitTransport

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


def test_rule_36_a_limiter_at_module_level_outlives_its_loops() -> None:
    limiter = AsyncRateLimiter()
    limiter.set_limit(API, limit=1000, window="1s", burst=1)

    async def main() -> float:
        permits = await asyncio.gather(*(limiter.acquire(API) for _ in range(3)))
        return max(permit.waited for permit in permits)

    waits = [asyncio.run(main()) for _ in range(20)]
    assert min(waits) > 0, "each loop has waited"
    assert limiter.waiting == 0


def test_rule_36_trio_tasks_go_in_the_order_in_which_they_came() -> None:
    limiter = AsyncRateLimiter()
    limiter.set_limit(API, limit=500, window="1s", burst=1)
    order: list[int] = []
    started = time.perf_counter()

    async def one(i: int) -> None:
        async with limiter.acquire(API):
            order.append(i)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for i in range(20):
                nursery.start_soon(one, i)
                # Trio starts tasks in any order.
                await trio.testing.wait_all_tasks_blocked()

    trio.run(main)
    assert order == list(range(20))
    assert time.perf_counter() - started >= 0.038


def test_rule_36_trio_waits_on_a_virtual_clock(clock: VirtualClock) -> None:
    limiter = AsyncRateLimiter(clock=clock)
    limiter.set_limit(API, limit=1, window="1h")

    async def main() -> None:
        await limiter.acquire(API)
        assert (await limiter.acquire(API)).waited == 3600

    trio.run(main)


def test_rule_36_trio_waits_for_a_store_that_takes_time(tmp_path: Path) -> None:
    limiter = AsyncRateLimiter(f"sqlite:///{tmp_path}/limits.db")
    limiter.set_limit(API, limit=100, window="1s", burst=1)
    waits: list[float] = []

    async def one() -> None:
        waits.append((await limiter.acquire(API)).waited)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(one)

    trio.run(main)
    assert max(waits) >= 0.035
    assert limiter.waiting == 0


def test_rule_20_a_cancelled_trio_task_gives_its_place_back() -> None:
    async def main() -> None:
        limiter = AsyncRateLimiter()
        limiter.set_limit(API, limit=25, window="1s", burst=1)
        await limiter.acquire(API)
        waits: list[float] = []

        async def one() -> None:
            waits.append((await limiter.acquire(API)).waited)

        async with trio.open_nursery() as nursery:
            with trio.move_on_after(0.01) as scope:
                await limiter.acquire(API)
            assert scope.cancelled_caught
            async with trio.open_nursery() as others:
                for _ in range(4):
                    others.start_soon(one)
                await trio.testing.wait_all_tasks_blocked()
                assert limiter.waiting == 4
                others.cancel_scope.cancel()
            nursery.start_soon(one)
        assert len(waits) == 1
        assert waits[0] < 0.16, "it went at the time of the first, not of the sixth"
        assert limiter.waiting == 0

    trio.run(main)


def test_rule_20_cancelling_in_the_tick_of_the_grant_loses_nothing_on_trio() -> None:
    async def main() -> None:
        limiter = AsyncRateLimiter()
        limiter.set_limit(API, limit=1000, window="1h", burst=1)
        held = await limiter.acquire(API)

        async def one() -> None:
            # Trio cancels nobody who is woken already.
            (await limiter.acquire(API)).cancel()

        for _ in range(200):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one)
                await trio.testing.wait_all_tasks_blocked()
                held.cancel()  # grants it, in this very tick
                nursery.cancel_scope.cancel()
            taken = limiter.try_acquire(API)
            assert taken is not None
            held = taken
        assert limiter.try_acquire(API) is None

    trio.run(main)


def test_rule_36_a_thread_makes_room_for_a_trio_task_and_an_asyncio_task() -> None:
    limiter = AsyncRateLimiter()
    limiter.set_limit(API, limit=2, window="1d")
    held = [limiter.try_acquire(API), limiter.try_acquire(API)]

    def make_room() -> None:
        while limiter.waiting < 2:
            time.sleep(0.001)  # noqa: TID251 - both loops have to come first
        for permit in held:
            assert permit is not None
            permit.cancel()

    async def main() -> None:
        assert (await limiter.acquire(API)).waited < 10

    threads = [
        threading.Thread(target=make_room),
        threading.Thread(target=trio.run, args=(main,)),
        threading.Thread(target=lambda: asyncio.run(main())),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert limiter.waiting == 0


def _cancel_on_a_thread(limiter: RateLimiter, dice: random.Random, goal: int) -> int:
    for _ in range(goal):
        try:
            permit = limiter.acquire(API, max_wait=dice.choice([0, None]))
        except RateLimitExceeded:
            continue
        if dice.random() < 0.5:
            permit.settle(requests=dice.choice([0, 1]))
        permit.cancel()
    return goal


def _cancel_in_a_loop(limiter: RateLimiter, dice: random.Random, goal: int) -> int:
    done = 0

    async def one() -> None:
        nonlocal done
        for _ in range(5):
            permit = await limiter.acquire_async(API)
            try:
                if dice.random() < 0.5:
                    await asyncio.sleep(0)  # noqa: TID251 - lets others come between
            finally:
                permit.cancel()
                done += 1

    async def main() -> None:
        nonlocal done
        while done < goal:
            tasks = [asyncio.ensure_future(one()) for _ in range(40)]
            for task in dice.sample(tasks, 20):
                await asyncio.sleep(0)  # noqa: TID251
                done += task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    return done


def test_rule_20_a_hundred_thousand_cancellations_lose_no_permit_and_leave_no_debt() -> None:
    limiter = RateLimiter()
    # Nothing refills while the test runs: what is there at the end was given back.
    limiter.set_limit(API, limit=8, window="1d")
    work = [_cancel_on_a_thread] * 3 + [_cancel_in_a_loop] * 2
    with ThreadPoolExecutor(len(work)) as pool:
        done = [
            pool.submit(it, limiter, random.Random(i), 20_000)  # noqa: S311 - the same each time
            for i, it in enumerate(work)
        ]
    assert sum(it.result() for it in done) >= 100_000
    assert limiter.waiting == 0
    assert sum(limiter.try_acquire(API) is not None for _ in range(9)) == 8


def _kept_from_running() -> float:
    """Seconds for which the machine had no core for this thread although it wanted one."""
    path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    return int(path.read_text().split()[1]) / 1e9


@pytest.mark.parametrize("storage", ["memory", "sqlite"])
def test_rule_19_the_event_loop_goes_on_while_a_hundred_wait(storage: str, tmp_path: Path) -> None:
    url = storage if storage == "memory" else f"sqlite:///{tmp_path}/limits.db"
    limiter = AsyncRateLimiter(url, retry=RetryConfig(base_delay=0.02))
    limiter.set_limit(API, limit=1500, window="1s", burst=5)
    answers = 0

    def answer(_: httpx.Request) -> httpx.Response:
        nonlocal answers
        answers += 1
        headers = {"X-RateLimit-Limit": "1500", "X-RateLimit-Remaining": "1000"}
        return httpx.Response(503 if answers % 10 == 0 else 200, headers=headers)

    async def main() -> float:
        over = False
        longest = 0.0

        async def ask(client: httpx.AsyncClient) -> None:
            while not over:
                await client.get(f"https://{API}/x")

        transport = AsyncRateLimitTransport(limiter, httpx.MockTransport(answer))
        async with httpx.AsyncClient(transport=transport) as client:
            tasks = [asyncio.ensure_future(ask(client)) for _ in range(100)]
            end = time.perf_counter() + 1
            while (now := time.perf_counter()) < end:
                kept = _kept_from_running()
                await asyncio.sleep(0.01)  # noqa: TID251 - the ticker
                gap = time.perf_counter() - now - (_kept_from_running() - kept)
                longest = max(longest, gap)
            over = True
            await asyncio.gather(*tasks)
        return longest

    # To look through all that a run of tests has in memory takes tens of milliseconds.
    gc.freeze()
    longest = asyncio.run(main())
    gc.unfreeze()
    assert longest < 0.05
    assert answers > 300

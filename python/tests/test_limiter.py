"""Limits, levels and waits, on a virtual clock."""

from __future__ import annotations

import asyncio
import inspect
import math
import pickle
import signal
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from paceline import Paced, RateLimiter, RateLimitExceeded, StorageUnavailable
from paceline.testing import VirtualClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

API = "api.example.com"


def test_rule_3_sixty_go_at_once_and_the_next_waits_a_second(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(API, limit=60, window="1m")
    for _ in range(60):
        limiter.acquire(API)
    assert clock.now == 0
    assert limiter.acquire(API).waited == 1.0
    assert clock.now == 1.0


def test_rule_4_a_refused_request_charges_nothing(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock, raise_on_limit=True)
    limiter.set_limit(API, limit=100, window="1m")
    limiter.set_limit(API, limit=1000, window="1m", dimension="tokens")
    limiter.acquire(API, cost={"tokens": 900})
    for _ in range(50):
        with pytest.raises(RateLimitExceeded) as caught:
            limiter.acquire(API, cost={"tokens": 500})
        assert caught.value.dimension == "tokens"
        assert caught.value.retry_after == 24.0
    status = limiter.get_status(API)
    assert status is not None
    assert status.remaining == 99
    assert status.dimensions["tokens"].remaining == 100


@settings(max_examples=300, deadline=None)
@example(limit=1, window="1h", cost=9321.286538483153)
@given(
    limit=st.integers(1, 10_000),
    window=st.sampled_from(["100ms", "1s", "7s", "1m", "1h", "1d"]),
    cost=st.floats(0.001, 20_000),
)
def test_rule_21_waiting_as_long_as_told_always_succeeds(
    limit: int, window: str, cost: float
) -> None:
    clock = VirtualClock()
    limiter = RateLimiter(clock=clock, raise_on_limit=True)
    limiter.set_limit(API, limit=limit, window=window, dimension="tokens")
    limiter.acquire(API, cost={"tokens": cost})
    try:
        limiter.acquire(API, cost={"tokens": cost})
    except RateLimitExceeded as error:
        clock.advance(error.retry_after)
        limiter.acquire(API, cost={"tokens": cost})


def test_rule_21_max_wait_is_decided_up_front(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock, max_wait=0.5)
    limiter.set_limit(API, limit=60, window="1m", burst=1)
    limiter.acquire(API)
    with pytest.raises(RateLimitExceeded) as caught:
        limiter.acquire(API)
    assert caught.value.scope == "https://api.example.com"
    assert caught.value.retry_after == 1.0
    assert clock.now == 0
    limiter.acquire(API, max_wait=1.0)
    assert clock.now == 1.0


def test_a_permit_settles_once_and_may_be_cancelled(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(API, limit=1000, window="1m", dimension="tokens")

    def left() -> int:
        status = limiter.get_status(API)
        assert status is not None
        return status.remaining

    with limiter.acquire(API, cost={"tokens": 600}) as permit:
        permit.settle(tokens=100)
    assert left() == 900
    permit.settle(tokens=150)
    assert left() == 850
    with pytest.raises(ZeroDivisionError), limiter.acquire(API, cost={"tokens": 50}):
        raise ZeroDivisionError
    assert left() == 800, "only the caller knows whether the request left"
    limiter.acquire(API, cost={"tokens": 800}).cancel()
    assert left() == 800
    assert permit.cost == {"requests": 1.0, "tokens": 150.0}


def test_rule_15_the_narrowest_scope_governs(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(API, limit=100)
    limiter.set_limit(f"{API}/search", limit=1)
    assert limiter.try_acquire(f"https://{API}/search/deep?q=1") is not None
    assert limiter.try_acquire(f"https://{API}/search") is None
    assert limiter.try_acquire(f"https://{API}/searching") is not None
    assert limiter.wait_time(f"{API}/search") == 60.0
    assert limiter.list_endpoints() == [f"https://{API}", f"https://{API}/search"]
    assert limiter.clear(f"{API}/search") == 1
    assert limiter.try_acquire(f"https://{API}/search") is not None


def test_default_limits_all_apply(clock: VirtualClock) -> None:
    limits = {"requests_per_second": 2, "requests_per_hour": 3, "tokens_per_minute": 10}
    limiter = RateLimiter(default_limits=limits, clock=clock)
    for _ in range(3):
        limiter.acquire(API)
    assert clock.now == 0.5
    assert limiter.wait_time(API) == pytest.approx(1200, abs=1)
    status = limiter.get_status(API)
    assert status is not None
    assert set(status.dimensions) == {"requests", "requests/1h", "tokens"}


def test_status_tells_everything(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    assert limiter.get_status(API) is None
    limiter.set_limit(API, limit=4, window="1m")
    limiter.acquire(API)
    status = limiter.get_status(API)
    assert status is not None
    assert (status.endpoint, status.limit, status.remaining) == ("https://" + API, 4, 3)
    assert status.window == timedelta(minutes=1)
    assert status.reset_in == 15.0
    assert status.reset_time.tzinfo is not None
    assert status.utilization == 0.25
    assert status.confidence == "configured"
    assert not status.is_exceeded
    assert status.hold is None
    limiter.set_limit(API, limit=10, window="1h", burst=3)
    hourly = limiter.get_status(API)
    assert hourly is not None
    full = hourly.dimensions["requests/1h"]
    assert (full.burst, full.remaining, full.utilization) == (3, 3, 0.0)


BAD: list[tuple[Callable[[RateLimiter], Any], type[Exception], str]] = [
    (lambda it: it.set_limit(API, limit=0), ValueError, "limit must be 1"),
    (lambda it: it.set_limit(API, limit=-5), ValueError, "limit must be 1"),
    (lambda it: it.set_limit(API, limit=10**40), ValueError, "too large"),
    (lambda it: it.set_limit(API, limit=1.5), TypeError, "whole number"),  # type: ignore[arg-type]
    (lambda it: it.set_limit(API, limit="60"), TypeError, "whole number"),  # type: ignore[arg-type]
    (lambda it: it.set_limit(API, limit=1, window="1w"), ValueError, "bad window"),
    (lambda it: it.set_limit(API, limit=1, window="0s"), ValueError, "bad window"),
    (lambda it: it.set_limit(API, limit=1, strict=True, burst=1), ValueError, "no burst"),
    (lambda it: it.set_limit(API, limit=1, dimension="a b"), ValueError, "bad dimension"),
    (lambda it: it.set_limit("", limit=1), ValueError, "empty"),
    (lambda it: it.acquire(API, cost={"tokens": -1}), ValueError, "bad cost"),
    (lambda it: it.acquire(API, cost={"tokens": math.nan}), ValueError, "bad cost"),
    (lambda it: it.acquire(API, cost={"tokens": "5"}), TypeError, "a cost is a number, not str"),  # type: ignore[dict-item]
    (lambda it: it.acquire("https://"), ValueError, "bad endpoint"),
    (lambda it: it.acquire(API, max_wait=-1), ValueError, "bad max_wait"),
    (lambda _: RateLimiter("mysql://x"), ValueError, "bad storage"),
    (lambda _: RateLimiter(default_limits={"rpm": 5}), ValueError, "known: requests_per_second"),
    (lambda _: RateLimiter(headers_map={"limit": "X Max"}), ValueError, 'bad header name "X Max"'),
    (lambda _: RateLimiter(headers_map={"limit": ""}), ValueError, 'bad header name ""'),
    (lambda it: it.register_provider(API, tokens={"reset": "Größe"}), ValueError, 'name "Größe"'),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_a_mistake_is_named(
    call: Callable[[RateLimiter], Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        call(RateLimiter())


def test_a_function_waits_for_its_permit(clock: VirtualClock) -> None:
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(API, limit=1, window="1m")
    limiter.set_limit(API, limit=100, window="1m", dimension="tokens")

    @limiter.limit(API, cost={"tokens": 10})
    def double(number: int, *, plus: int = 0) -> int:
        """Double it."""
        return 2 * number + plus

    @limiter.limit(API)
    async def fail() -> None:
        raise ZeroDivisionError

    assert (double.__name__, double.__doc__) == ("double", "Double it.")
    assert [double(1), double(2, plus=1)] == [2, 5]
    assert clock.now == 60
    assert inspect.iscoroutinefunction(fail)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(fail())
    assert clock.now == 120, "the cost stands"
    status = limiter.get_status(API)
    assert status is not None
    assert status.dimensions["tokens"].remaining == 100


def test_a_generator_cannot_wait_for_a_permit_when_it_is_called() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def more() -> AsyncIterator[int]:
        yield 1

    for function in (numbers, more):
        with pytest.raises(TypeError, match="acquire a permit inside of it"):
            RateLimiter().limit(API)(function)


def test_errors_survive_a_process_pool() -> None:
    error = RateLimitExceeded("full", "https://a.example", "tokens", 1.5)
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (str(copy), copy.scope, copy.dimension, copy.retry_after) == (
        "full",
        "https://a.example",
        "tokens",
        1.5,
    )
    assert issubclass(StorageUnavailable, RateLimitExceeded)


def test_rule_18_threads_are_served_and_never_more_than_the_limit() -> None:
    limiter = RateLimiter()
    limiter.set_limit(API, limit=50, window="100ms", burst=5)
    waits: list[float] = []
    started = time.perf_counter()
    threads = [
        threading.Thread(target=lambda: waits.append(limiter.acquire(API).waited))
        for _ in range(25)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(waits) == 25
    assert time.perf_counter() - started >= 0.04, "twenty of them had to wait two ms each"
    assert limiter.waiting == 0


def test_rule_20_an_interrupt_ends_a_wait_and_gives_its_place_back() -> None:
    limiter = RateLimiter()
    limiter.set_limit(API, 1, "1h")
    limiter.acquire(API)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.03, signal.pthread_kill, (main, signal.SIGINT))
    # A shell starts what runs in its background deaf to interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            limiter.acquire(API)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert limiter.waiting == 0
    status = limiter.get_status(API)
    assert status is not None
    assert status.reset_in == pytest.approx(3600, abs=1), "nothing was charged"


def test_what_pacing_did_is_a_value() -> None:
    paced = Paced(1.5, "https://api.example.com", attempts=2, limit="60/1m")
    shown = "Paced(waited=1.5, scope='https://api.example.com', attempts=2, limit='60/1m')"
    assert repr(paced) == shown
    assert pickle.loads(pickle.dumps(paced)) == paced  # noqa: S301 - our own
    assert len({paced, Paced(1.5, "https://api.example.com", 2, "60/1m")}) == 1
    assert paced != Paced(1.5, "https://api.example.com", 2)
    assert paced != (1.5, "https://api.example.com", 2, "60/1m")
    match paced:
        case Paced(waited, scope, attempts, limit):
            assert (waited, scope, attempts, limit) == (1.5, "https://api.example.com", 2, "60/1m")
    with pytest.raises(AttributeError):
        paced.waited = 0.0  # type: ignore[misc] # what is tested

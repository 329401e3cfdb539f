"""The Python rows of `make bench`: what paceline costs, side by side with its peers.

Prints one JSON object a line, a row each, for `run.py` to put in one table with the Rust rows. With
words on the command line only the rows run whose name contains one of them.

A new row is one function that yields it and one entry in `ROWS`.
"""

# ruff: noqa: SLF001 - some peers have no public call for what is compared
from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import aiolimiter
import httpx
import httpx2
import paceline
import paceline.httpx
import paceline.httpx2
import parry
import requests
import requests.adapters
import smartratelimit
import smartratelimit.async_client
import throttled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    #: Makes a number of calls.
    Calls = Callable[[int], object]
    Row = dict[str, Any]

HOST = "api.example.com"
URL = f"https://{HOST}/v1/items"
#: So large that no call is ever refused, and the same for everybody.
LIMIT = 10**9
DAY = 86_400
#: What an API that states two limits answers with each response.
HEADERS = {
    "Content-Type": "application/json",
    "Date": "Tue, 01 Jan 2030 00:00:00 GMT",
    "Server": "api",
    "X-Request-Id": "req_0123456789abcdef",
    "Cache-Control": "no-store",
    "X-RateLimit-Limit-Requests": "10000",
    "X-RateLimit-Remaining-Requests": "9999",
    "X-RateLimit-Reset-Requests": "6ms",
    "X-RateLimit-Limit-Tokens": "2000000",
    "X-RateLimit-Remaining-Tokens": "1999000",
    "X-RateLimit-Reset-Tokens": "30ms",
}
ROUNDS = 15
CALLS = 20_000


def race(calls: dict[str, tuple[Calls, int]]) -> dict[str, list[float]]:
    """Let all take turns, in another order each round; microseconds of one call in each round."""
    figures: dict[str, list[float]] = {name: [] for name in calls}
    gc.disable()
    for number in range(ROUNDS + 1):
        order = list(calls.items())
        turn = number % len(order)
        for name, (call, count) in order[turn:] + order[:turn]:
            gc.collect()
            start = time.perf_counter()
            call(count)
            figures[name].append((time.perf_counter() - start) / count * 1e6)
    gc.enable()
    # The first round warms up.
    return {name: rounds[1:] for name, rounds in figures.items()}


def versus(row: str, peer_name: str, ours: float, peer: float, most: float | None) -> Row:
    """Make a row from two medians; `most` is the goal for their ratio."""
    return {
        "row": row,
        "ours": ours,
        "peer": peer,
        "peer_name": peer_name,
        "unit": "µs",
        "ratio": ours / peer,
        "goal": None if most is None else f"≤ {most} ×",  # noqa: RUF001
        "ok": most is None or ours <= most * peer,
    }


def repeated(step: Callable[..., object], *arguments: object) -> Calls:
    """Call `step` with nothing around it that would cost as much as the step itself."""

    def calls(count: int) -> None:
        if len(arguments) == 1:
            (argument,) = arguments
            for _ in range(count):
                step(argument)
        else:
            for _ in range(count):
                step(*arguments)

    return calls


def awaited(
    runner: asyncio.Runner, step: Callable[..., Awaitable[object]], *arguments: object
) -> Calls:
    """Await `step` again and again within one task."""

    async def calls(count: int) -> None:
        if arguments:
            (argument,) = arguments
            for _ in range(count):
                await step(argument)
        else:
            for _ in range(count):
                await step()

    return lambda count: runner.run(calls(count))


def beside(row: str, figures: dict[str, list[float]], most: float) -> Iterator[Row]:
    """Yield ours beside each peer; the goal is in terms of `aiolimiter`, the fastest of them."""
    medians = {name: statistics.median(rounds) for name, rounds in figures.items()}
    ours = medians.pop("ours")
    for name, peer in medians.items():
        if name == "aiolimiter":
            yield versus(row, name, ours, peer, most)
        else:
            yield versus(f"{row}, beside {name}", name, ours, peer, None)


def acquire_sync() -> Iterator[Row]:
    limiter = paceline.RateLimiter()
    limiter.set_limit(HOST, limit=LIMIT, window="1d")
    aio = aiolimiter.AsyncLimiter(LIMIT, DAY)
    throttle = throttled.Throttled(
        using=throttled.RateLimiterType.GCRA.value,
        quota=throttled.per_day(LIMIT, burst=LIMIT),
        store=throttled.MemoryStore(),
    )
    # It has no public call for this; these are the steps of its `request` before the sending.
    smart = smartratelimit.RateLimiter(use_provider_profiles=False)
    smart.set_limit(HOST, limit=LIMIT, window="1d")
    known = smart._resolve_limit(URL)
    guard = parry._parry_native.RateLimit()
    guard.set_limit("openai:gpt-4o", requests_per_minute=LIMIT)
    with asyncio.Runner() as runner:
        figures = race(
            {
                "ours": (repeated(limiter.acquire, HOST), CALLS),
                "aiolimiter": (awaited(runner, aio.acquire), CALLS),
                "throttled-py": (repeated(throttle.limit, HOST), CALLS),
                "smartratelimit": (repeated(smart._acquire_limit, known), CALLS),
                "llm-parry": (repeated(guard.acquire, "openai", "gpt-4o"), CALLS // 10),
            }
        )
    yield from beside("acquire from Python, by endpoint", figures, 0.25)


def acquire_async() -> Iterator[Row]:
    limiter = paceline.AsyncRateLimiter()
    limiter.set_limit(HOST, limit=LIMIT, window="1d")
    aio = aiolimiter.AsyncLimiter(LIMIT, DAY)
    smart = smartratelimit.async_client.AsyncRateLimiter(use_provider_profiles=False)
    smart.set_limit(HOST, limit=LIMIT, window="1d")
    known = smart._resolve_limit(URL)
    with asyncio.Runner() as runner:
        figures = race(
            {
                "ours": (awaited(runner, limiter.acquire, HOST), CALLS),
                "aiolimiter": (awaited(runner, aio.acquire), CALLS),
                "smartratelimit": (awaited(runner, smart._acquire_limit, known), CALLS // 40),
            }
        )
    yield from beside("acquire from Python, asyncio", figures, 0.7)


class InMemory(requests.adapters.BaseAdapter):
    """Answers at once, without a network."""

    def __init__(self) -> None:
        """Make the one answer."""
        super().__init__()
        self.response = requests.Response()
        self.response.status_code = 200
        self.response.url = URL
        self.response.headers.update(HEADERS)
        self.response._content = b"{}"

    def send(  # type: ignore[override] # takes what there is and looks at none of it
        self, request: requests.PreparedRequest, **_: Any
    ) -> requests.Response:
        """Give it."""
        self.response.request = request
        return self.response

    def close(self) -> None:
        """Keep nothing open."""


def in_memory_session() -> requests.Session:
    session = requests.Session()
    # Reading the proxies from the environment takes longer than all the rest.
    session.trust_env = False
    session.mount("https://", InMemory())
    return session


def request() -> Iterator[Row]:
    plain = in_memory_session()
    limiter = paceline.RateLimiter()
    limiter.set_limit(HOST, limit=LIMIT, window="1d")
    limiter._session = limiter.wrap_session(in_memory_session())
    smart = smartratelimit.RateLimiter(use_provider_profiles=False)
    smart.set_limit(HOST, limit=LIMIT, window="1d")
    smart._session = in_memory_session()
    count = CALLS // 20
    figures = race(
        {
            "plain": (repeated(plain.request, "GET", URL), count),
            "ours": (repeated(limiter.request, "GET", URL), count),
            "smartratelimit": (repeated(smart.request, "GET", URL), count),
        }
    )

    ours = added(figures, "ours")
    peer = added(figures, "smartratelimit")
    row = versus("requests, added", "smartratelimit", ours, peer, None)
    yield row | {"goal": "≤ 6 µs", "ok": ours <= 6.0}


def added(figures: dict[str, list[float]], name: str) -> float:
    """Tell what a call costs more than a plain one, round by round."""
    pairs = zip(figures[name], figures["plain"], strict=True)
    return statistics.median(with_it - without for with_it, without in pairs)


def clients() -> Iterator[Row]:
    limiter = paceline.RateLimiter()
    limiter.set_limit(HOST, limit=LIMIT, window="1d")
    packages: list[tuple[Any, Any]] = [(httpx, paceline.httpx), (httpx2, paceline.httpx2)]
    for package, ours in packages:
        # The parameters keep what each of the two packages is.
        def answer(_: Any, package: Any = package) -> Any:
            return package.Response(200, headers=HEADERS, content=b"{}")

        memory = package.MockTransport(answer)
        wrapped = ours.RateLimitTransport(limiter, memory)
        figures = race(
            {
                name: (repeated(package.Client(transport=transport).get, URL), CALLS // 50)
                for name, transport in (("plain", memory), ("ours", wrapped))
            }
        )
        yield beyond(f"{package.__name__}, added", figures)
        wrapped = ours.AsyncRateLimitTransport(limiter, memory)
        with asyncio.Runner() as runner:
            figures = race(
                {
                    name: (
                        awaited(runner, package.AsyncClient(transport=transport).get, URL),
                        CALLS // 50,
                    )
                    for name, transport in (("plain", memory), ("ours", wrapped))
                }
            )
        yield beyond(f"{package.__name__} async, added", figures)


def beyond(row: str, figures: dict[str, list[float]]) -> Row:
    """Make a row of what pacing adds to a client that answers from memory."""
    ours, plain = added(figures, "ours"), statistics.median(figures["plain"])
    made = versus(row, "the client alone", ours, plain, None)
    return made | {"goal": "≤ 6 µs", "ok": ours <= 6.0}


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "python acquire": acquire_sync,
    "python asyncio": acquire_async,
    "python request": request,
    "python clients": clients,
}


def main(words: list[str]) -> None:
    for name, rows in ROWS.items():
        if not words or any(word in name for word in words):
            for row in rows():
                print(json.dumps(row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

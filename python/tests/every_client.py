"""Every client there is, as one function: send these requests, one after the other."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx
import httpx2
import paceline.aiohttp
import paceline.httpx
import paceline.httpx2
import requests
import trio
from paceline import AsyncRateLimiter, Paced, RateLimiter, spending

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator


@dataclass
class Ask:
    """A request."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None
    #: parts of a body that can be sent once only
    once: list[bytes] | None = None
    cost: dict[str, float] | None = None


@dataclass
class Answer:
    """A response, with what pacing left on it."""

    status: int
    content: bytes
    paced: Paced


@dataclass
class Client:
    """A client: how its requests are sent, and which limiter goes with it."""

    name: str
    limiter: type[RateLimiter | AsyncRateLimiter]
    send: Callable[..., list[Answer]]
    #: gives the number of bytes that it read of a stream, and calls back for each piece
    drain: Callable[[Any, str, Callable[[], None]], int] | None
    #: what it raises when no connection can be made
    connect_error: type[Exception]

    def __repr__(self) -> str:
        return self.name


def _parts(ask: Ask) -> Any:
    def parts() -> Iterator[bytes]:
        yield from ask.once or ()

    return ask.content if ask.once is None else parts()


def _async_parts(ask: Ask) -> Any:
    async def parts() -> AsyncIterator[bytes]:
        for part in ask.once or ():
            yield part

    return ask.content if ask.once is None else parts()


def _requests(limiter: RateLimiter, *asked: Ask) -> list[Answer]:
    answers = []
    with limiter.wrap_session(requests.Session()) as session:
        for ask in asked:
            with spending(ask.cost):
                it = session.request(
                    ask.method, ask.url, headers=ask.headers, data=_parts(ask), stream=True
                )
            content = it.raw.read()
            answers.append(Answer(it.status_code, content, it.paceline))  # type: ignore[attr-defined]
    return answers


def _drain_requests(limiter: RateLimiter, url: str, tick: Callable[[], None]) -> int:
    total = 0
    with limiter.wrap_session(requests.Session()) as session:
        for part in session.get(url, stream=True).iter_content(1 << 18):
            total += len(part)
            tick()
    return total


def _httpx(package: Any, ours: Any, limiter: Any, *asked: Ask) -> list[Answer]:
    answers = []
    transport = ours.RateLimitTransport(limiter)
    with package.Client(transport=transport, follow_redirects=True, timeout=30) as client:
        for ask in asked:
            with (
                spending(ask.cost),
                client.stream(ask.method, ask.url, headers=ask.headers, content=_parts(ask)) as it,
            ):
                content = b"".join(it.iter_raw())
            answers.append(Answer(it.status_code, content, it.extensions["paceline"]))
    return answers


def _drain_httpx(package: Any, ours: Any, limiter: Any, url: str, tick: Any) -> int:
    total = 0
    with (
        package.Client(transport=ours.RateLimitTransport(limiter)) as client,
        client.stream("GET", url) as response,
    ):
        for part in response.iter_raw():
            total += len(part)
            tick()
    return total


def _asyncio(function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    async def main() -> Any:
        return await function(*arguments)

    return asyncio.run(main())


def _async_httpx(loop: Any, package: Any, ours: Any, limiter: Any, *asked: Ask) -> list[Answer]:
    async def main() -> list[Answer]:
        answers = []
        transport = ours.AsyncRateLimitTransport(limiter)
        async with package.AsyncClient(
            transport=transport, follow_redirects=True, timeout=30
        ) as client:
            for ask in asked:
                content = _async_parts(ask)
                with spending(ask.cost):
                    async with client.stream(
                        ask.method, ask.url, headers=ask.headers, content=content
                    ) as it:
                        body = b"".join([part async for part in it.aiter_raw()])
                answers.append(Answer(it.status_code, body, it.extensions["paceline"]))
        return answers

    result: list[Answer] = loop(main)
    return result


def _drain_async_httpx(package: Any, ours: Any, limiter: Any, url: str, tick: Any) -> int:
    async def main() -> int:
        total = 0
        transport = ours.AsyncRateLimitTransport(limiter)
        async with (
            package.AsyncClient(transport=transport) as client,
            client.stream("GET", url) as response,
        ):
            async for part in response.aiter_raw():
                total += len(part)
                tick()
        return total

    return asyncio.run(main())


def _arequest_httpx(package: Any, limiter: AsyncRateLimiter, *asked: Ask) -> list[Answer]:
    async def main() -> list[Answer]:
        answers = []
        async with package.AsyncClient(follow_redirects=True, timeout=30) as client:
            for ask in asked:
                content = _async_parts(ask)
                it = await limiter.arequest_httpx(
                    client,
                    ask.method,
                    ask.url,
                    cost=ask.cost,
                    headers=ask.headers,
                    content=content,
                )
                answers.append(Answer(it.status_code, it.content, it.extensions["paceline"]))
        return answers

    return asyncio.run(main())


def _aiohttp(limiter: Any, *asked: Ask) -> list[Answer]:
    async def main() -> list[Answer]:
        answers = []
        middleware = paceline.aiohttp.RateLimitMiddleware(limiter)
        async with aiohttp.ClientSession(middlewares=[middleware]) as session:
            for ask in asked:
                data = _async_parts(ask)
                with spending(ask.cost):
                    async with session.request(
                        ask.method, ask.url, headers=ask.headers, data=data
                    ) as it:
                        content = await it.read()
                answers.append(Answer(it.status, content, it.paceline))  # type: ignore[attr-defined]
        return answers

    return asyncio.run(main())


def _drain_aiohttp(limiter: Any, url: str, tick: Callable[[], None]) -> int:
    async def main() -> int:
        total = 0
        middleware = paceline.aiohttp.RateLimitMiddleware(limiter)
        async with (
            aiohttp.ClientSession(middlewares=[middleware]) as session,
            session.get(url) as response,
        ):
            async for part in response.content.iter_any():
                total += len(part)
                tick()
        return total

    return asyncio.run(main())


def _arequest_aiohttp(limiter: AsyncRateLimiter, *asked: Ask) -> list[Answer]:
    async def main() -> list[Answer]:
        answers = []
        async with aiohttp.ClientSession() as session:
            for ask in asked:
                it = await limiter.arequest_aiohttp(
                    session,
                    ask.method,
                    ask.url,
                    cost=ask.cost,
                    headers=ask.headers,
                    data=_async_parts(ask),
                )
                content = await it.read()
                answers.append(Answer(it.status, content, it.paceline))  # type: ignore[attr-defined]
        return answers

    return asyncio.run(main())


def _both(package: Any, ours: Any) -> list[Client]:
    name, error = package.__name__, package.ConnectError
    bind = functools.partial
    return [
        Client(
            name,
            RateLimiter,
            bind(_httpx, package, ours),
            bind(_drain_httpx, package, ours),
            error,
        ),
        Client(
            f"{name}-asyncio",
            AsyncRateLimiter,
            bind(_async_httpx, _asyncio, package, ours),
            bind(_drain_async_httpx, package, ours),
            error,
        ),
        Client(
            f"{name}-trio",
            AsyncRateLimiter,
            bind(_async_httpx, trio.run, package, ours),
            None,
            error,
        ),
        Client(f"arequest_{name}", AsyncRateLimiter, bind(_arequest_httpx, package), None, error),
    ]


CLIENTS = [
    Client("requests", RateLimiter, _requests, _drain_requests, requests.ConnectionError),
    *_both(httpx, paceline.httpx),
    *_both(httpx2, paceline.httpx2),
    Client("aiohttp", AsyncRateLimiter, _aiohttp, _drain_aiohttp, aiohttp.ClientConnectorError),
    Client(
        "arequest_aiohttp", AsyncRateLimiter, _arequest_aiohttp, None, aiohttp.ClientConnectorError
    ),
]

"""Pacing for ``aiohttp``: a middleware that takes a permit for everything a session sends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

from paceline import _drive
from paceline._flow import LONGEST_ERROR, PlainCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from paceline._native import Paced, Permit
    from paceline.limiter import AsyncRateLimiter, RateLimiter


class RateLimitMiddleware:
    """Give it to a session, or to one request, to pace what is sent. Needs aiohttp 3.12.

        session = aiohttp.ClientSession(middlewares=[RateLimitMiddleware(limiter)])

    Each hop of a redirect is a request of its own. The last middleware is closest to the network:
    there it also sees what other middlewares send again. A response's ``paceline`` is a
    :class:`paceline.Paced`.

    The session's ``timeout`` goes on while a request waits for its turn: ``ClientTimeout.total`` is
    five minutes unless set otherwise.

    Args:
        limiter: whose limits apply.

    """

    def __init__(self, limiter: RateLimiter | AsyncRateLimiter) -> None:
        """Keep the limiter."""
        self.limiter = limiter

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send when the limits allow, and again if need be."""
        response: aiohttp.ClientResponse = await _drive.run_async(
            _Call(self.limiter, request, handler)
        )
        return response


def pacing(
    limiter: RateLimiter | AsyncRateLimiter,
    session: aiohttp.ClientSession,
    given: Sequence[aiohttp.ClientMiddlewareType] | None,
) -> Sequence[aiohttp.ClientMiddlewareType]:
    """Give a request's middlewares: its own or its session's, and one that paces it."""
    middlewares = session._middlewares if given is None else given  # noqa: SLF001 - no other way
    for it in middlewares:
        if isinstance(it, RateLimitMiddleware) and it.limiter is limiter:
            return middlewares
    return (*middlewares, RateLimitMiddleware(limiter))


class _Call(PlainCall):
    """One request on its way."""

    __slots__ = ("handler", "limiter", "request", "url")

    def __init__(
        self,
        limiter: RateLimiter | AsyncRateLimiter,
        request: aiohttp.ClientRequest,
        handler: aiohttp.ClientHandlerType,
    ) -> None:
        self.limiter = limiter
        self.request = request
        self.handler = handler
        self.url = str(request.url)

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def keyed(self) -> bool:
        return "Idempotency-Key" in self.request.headers

    def send(self) -> Awaitable[aiohttp.ClientResponse]:
        return self.handler(self.request)

    def read(self, response: aiohttp.ClientResponse) -> tuple[int, Iterable[tuple[bytes, bytes]]]:
        return response.status, response.raw_headers

    def kind(self, response: aiohttp.ClientResponse) -> str | None:
        return response.headers.get("content-type")

    async def body(self, response: aiohttp.ClientResponse) -> bytes | None:
        # It is kept, and read again from there.
        short = response.content_length is not None and response.content_length <= LONGEST_ERROR
        return await response.read() if short else None

    def tell(self, response: aiohttp.ClientResponse, paced: Paced, _permit: Permit) -> None:
        response.paceline = paced  # type: ignore[attr-defined] # there is no place for such things

    def never_left(self, error: BaseException) -> bool:
        return isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))

    def lost(self, error: BaseException) -> bool:
        return isinstance(error, aiohttp.ClientConnectionError)

    def rewind(self) -> bool:
        body = self.request.body
        if isinstance(body, bytes):
            return True
        # What cannot be read twice says so, but not every version before it was read to the end.
        return not (body.consumed or isinstance(body, aiohttp.AsyncIterablePayload))

    async def discard(self, response: aiohttp.ClientResponse) -> None:
        response.close()
        # A body that the server did not wait for is still being written.
        await self.request.close()

"""Pacing for ``httpx2``: transports that take a permit for everything a client sends.

Each hop of a redirect and each step of an authentication is a request of its own. A response's
``extensions["paceline"]`` is a :class:`paceline.Paced`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeVar

import httpx2

from paceline import _httpx

if TYPE_CHECKING:
    from paceline.limiter import AsyncRateLimiter, RateLimiter

_Client = TypeVar("_Client", httpx2.Client, httpx2.AsyncClient)


class RateLimitTransport(_httpx.Blocking, httpx2.BaseTransport):
    """Hand it to a client to pace what it sends.

        client = httpx2.Client(transport=RateLimitTransport(limiter))

    A client that is given a transport leaves proxies, certificates and HTTP/2 to it: ``wrap`` keeps
    what the client has.

    Args:
        limiter: whose limits apply.
        transport: what sends; a plain ``HTTPTransport`` unless given.

    """

    package: ClassVar = httpx2


class AsyncRateLimitTransport(_httpx.Async, httpx2.AsyncBaseTransport):
    """The same for ``AsyncClient``, on asyncio and Trio."""

    package: ClassVar = httpx2


def wrap(client: _Client, limiter: RateLimiter | AsyncRateLimiter) -> _Client:
    """Pace everything that a client sends, and give the client back.

    Its transports stay in use beneath, with their proxies, certificates, HTTP/2 and connections;
    so do its mounts, cookies and authentication. To wrap it again with the same limiter changes
    nothing.
    """
    is_async = isinstance(client, httpx2.AsyncClient)
    _httpx.wrap(client, limiter, AsyncRateLimitTransport if is_async else RateLimitTransport)
    return client

"""Pacing for ``requests``: an adapter that takes a permit for everything a session sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests
import requests.adapters
import requests.utils
import urllib3.exceptions

from paceline import _drive
from paceline._flow import LONGEST_ERROR, PlainCall

if TYPE_CHECKING:
    from collections.abc import Iterable

    from paceline._native import Paced, Permit
    from paceline.limiter import AsyncRateLimiter, RateLimiter


class RateLimitAdapter(requests.adapters.BaseAdapter):
    """Mount it on a session to pace what goes through it.

        session.mount("https://", RateLimitAdapter(limiter))

    A response's ``paceline`` is a :class:`paceline.Paced`. What is no HTTP, such as ``file://``,
    passes untouched.

    Args:
        limiter: whose limits apply.
        adapter: what sends; a plain ``HTTPAdapter`` unless given.

    """

    def __init__(
        self,
        limiter: RateLimiter | AsyncRateLimiter,
        adapter: requests.adapters.BaseAdapter | None = None,
    ) -> None:
        """Stand in front of another adapter."""
        super().__init__()
        self.limiter = limiter
        self.adapter = adapter if adapter is not None else requests.adapters.HTTPAdapter()

    def send(  # type: ignore[override] # what else there is, the inner adapter knows
        self, request: requests.PreparedRequest, **kwargs: Any
    ) -> requests.Response:
        """Send when the limits allow, and again if need be."""
        response: requests.Response = _drive.run(_Call(self, request, kwargs))
        return response

    def close(self) -> None:
        """Close the inner adapter."""
        self.adapter.close()


def paced(
    adapter: requests.adapters.BaseAdapter, limiter: RateLimiter | AsyncRateLimiter
) -> requests.adapters.BaseAdapter:
    """Put an adapter of this limiter before another one, unless there is one already."""
    it = adapter
    while isinstance(it, RateLimitAdapter):
        if it.limiter is limiter:
            return adapter
        it = it.adapter
    return RateLimitAdapter(limiter, adapter)


class _Call(PlainCall):
    """One request on its way."""

    __slots__ = ("adapter", "kwargs", "limiter", "request", "url")

    def __init__(
        self, adapter: RateLimitAdapter, request: requests.PreparedRequest, kwargs: dict[str, Any]
    ) -> None:
        self.limiter = adapter.limiter
        self.adapter = adapter.adapter
        self.request = request
        self.kwargs = kwargs
        self.url = request.url or ""

    @property
    def method(self) -> str:
        return self.request.method or "GET"

    @property
    def keyed(self) -> bool:
        return "Idempotency-Key" in self.request.headers

    async def send(self) -> requests.Response:
        return self.adapter.send(self.request, **self.kwargs)

    def read(self, response: requests.Response) -> tuple[int, Iterable[tuple[str, str]]]:
        return response.status_code, response.headers.lower_items()

    def kind(self, response: requests.Response) -> str | None:
        return response.headers.get("content-type")

    async def body(self, response: requests.Response) -> bytes | None:
        length = response.headers.get("content-length", "")
        # It is kept, and read again from there.
        return response.content if length.isdecimal() and int(length) <= LONGEST_ERROR else None

    def tell(self, response: requests.Response, paced: Paced, _permit: Permit) -> None:
        response.paceline = paced  # type: ignore[attr-defined] # there is no place for such things

    def never_left(self, error: BaseException) -> bool:
        if isinstance(error, requests.ConnectTimeout):
            return True
        reason = getattr(error.args[0] if error.args else None, "reason", None)
        return isinstance(reason, urllib3.exceptions.NewConnectionError)

    def lost(self, error: BaseException) -> bool:
        return isinstance(error, requests.ConnectionError)

    def rewind(self) -> bool:
        body = self.request.body
        if body is None or isinstance(body, (bytes, str)):
            return True
        try:
            requests.utils.rewind_body(self.request)
        except requests.exceptions.UnrewindableBodyError:
            return False
        return True

    async def discard(self, response: requests.Response) -> None:
        response.close()

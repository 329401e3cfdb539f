"""Pacing for ``requests``: an adapter that takes a permit for everything a session sends."""

from __future__ import annotations

import contextlib
import contextvars
from typing import TYPE_CHECKING, Any

import requests
import requests.adapters
import requests.utils
import urllib3.exceptions

from paceline import _drive, _flow

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from paceline._native import Permit
    from paceline.limiter import RateLimiter

#: What the next request of this context spends. A redirect's later hops spend one request each.
_cost: contextvars.ContextVar[Mapping[str, float] | None] = contextvars.ContextVar(
    "paceline_cost", default=None
)


@contextlib.contextmanager
def spending(cost: Mapping[str, float]) -> Generator[None]:
    """Let the next request in this block spend ``cost``, beside its one request."""
    token = _cost.set(cost)
    try:
        yield
    finally:
        _cost.reset(token)


class RateLimitAdapter(requests.adapters.BaseAdapter):
    """Mount it on a session to pace what goes through it.

        session.mount("https://", RateLimitAdapter(limiter))

    Args:
        limiter: whose limits apply.
        adapter: what sends; a plain ``HTTPAdapter`` unless given.

    """

    def __init__(
        self, limiter: RateLimiter, adapter: requests.adapters.BaseAdapter | None = None
    ) -> None:
        """Stand in front of another adapter."""
        super().__init__()
        self.limiter = limiter
        self.adapter = adapter if adapter is not None else requests.adapters.HTTPAdapter()

    def send(  # type: ignore[override] # what else there is, the inner adapter knows
        self, request: requests.PreparedRequest, **kwargs: Any
    ) -> requests.Response:
        """Send when the limits allow, and again if need be."""
        response: requests.Response = _drive.run(_flow.exchange(_Call(self, request, kwargs)))
        return response

    def close(self) -> None:
        """Close the inner adapter."""
        self.adapter.close()


class _Call:
    """One request on its way."""

    __slots__ = ("adapter", "cost", "kwargs", "limiter", "request")

    def __init__(
        self, adapter: RateLimitAdapter, request: requests.PreparedRequest, kwargs: dict[str, Any]
    ) -> None:
        self.limiter = adapter.limiter
        self.adapter = adapter.adapter
        self.request = request
        self.kwargs = kwargs
        self.cost = _cost.get()
        if self.cost is not None:
            # A redirect's later hops are not what was paid for.
            _cost.set(None)

    @property
    def method(self) -> str:
        return self.request.method or "GET"

    def acquire(self, max_wait: float | None) -> Permit:
        return self.limiter.acquire(self.request.url or "", self.cost, max_wait=max_wait)

    def send(self, _: None) -> tuple[requests.Response, int, Iterable[tuple[str, str]]]:
        response = self.adapter.send(self.request, **self.kwargs)
        return response, response.status_code, response.headers.lower_items()

    def never_left(self, error: BaseException) -> bool:
        if isinstance(error, requests.ConnectTimeout):
            return True
        reason = getattr(error.args[0] if error.args else None, "reason", None)
        return isinstance(reason, urllib3.exceptions.NewConnectionError)

    def rewind(self, _: None) -> bool:
        body = self.request.body
        if body is None or isinstance(body, (bytes, str)):
            return True
        try:
            requests.utils.rewind_body(self.request)
        except requests.exceptions.UnrewindableBodyError:
            return False
        return True

    def discard(self, response: requests.Response) -> None:
        response.close()

    def pause(self, seconds: float) -> None:
        _drive.pause(self.limiter, seconds)

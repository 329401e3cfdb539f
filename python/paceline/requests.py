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
    from collections.abc import Generator, Mapping

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
        call = _Call(self, request, kwargs)
        response: requests.Response = _drive.run(_flow.exchange(call), call)
        return response

    def close(self) -> None:
        """Close the inner adapter."""
        self.adapter.close()


class _Call:
    """One request on its way: what the lifecycle knows of it, and how its steps are done."""

    __slots__ = (
        "adapter",
        "cost",
        "kwargs",
        "limiter",
        "max_wait",
        "method",
        "raise_on_limit",
        "request",
        "retry",
        "url",
    )

    def __init__(
        self, adapter: RateLimitAdapter, request: requests.PreparedRequest, kwargs: dict[str, Any]
    ) -> None:
        limiter = adapter.limiter
        self.limiter = limiter
        self.adapter = adapter.adapter
        self.request = request
        self.kwargs = kwargs
        self.method = request.method or "GET"
        self.url = request.url or ""
        self.retry = limiter.retry.policy
        self.max_wait = limiter.max_wait
        self.raise_on_limit = limiter.raise_on_limit
        self.cost = _cost.get()
        if self.cost is not None:
            _cost.set(None)

    def never_left(self, error: BaseException) -> bool:
        if isinstance(error, requests.ConnectTimeout):
            return True
        reason = getattr(error.args[0] if error.args else None, "reason", None)
        return isinstance(reason, urllib3.exceptions.NewConnectionError)

    def acquire(self, max_wait: float | None) -> Permit:
        return self.limiter.acquire(self.url, self.cost, max_wait=max_wait)

    def send(self, _: None) -> _Answer:
        return _Answer(self.adapter.send(self.request, **self.kwargs))

    def rewind(self, _: None) -> bool:
        body = self.request.body
        if body is None or isinstance(body, (bytes, str)):
            return True
        try:
            requests.utils.rewind_body(self.request)
        except requests.exceptions.UnrewindableBodyError:
            return False
        return True

    def discard(self, answer: _Answer) -> None:
        answer.response.close()

    def pause(self, seconds: float) -> None:
        _drive.pause(self.limiter, seconds)


class _Answer:
    """A response under the names that the lifecycle knows."""

    __slots__ = ("headers", "response", "status")

    def __init__(self, response: requests.Response) -> None:
        self.response = response
        self.status = response.status_code
        self.headers = response.headers

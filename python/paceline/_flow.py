"""The life of one HTTP call, written once.

A generator that says what to do next and never how: whoever drives it knows threads, event loops
and clients. Each step is an operation of the call and its argument; the driver performs it and
sends back the result, or throws what was raised.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from paceline.errors import RateLimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from paceline._native import Permit
    from paceline.limiter import RateLimiter

Flow: TypeAlias = "Generator[tuple[Callable[[Any], Any], Any], Any, Any]"


class Call(Protocol):
    """One call of a client: what the lifecycle has to know of it, and how its steps are done."""

    limiter: RateLimiter

    @property
    def method(self) -> str:
        """The HTTP method."""

    def acquire(self, max_wait: float | None) -> Permit:
        """Wait for a permit."""

    def send(self, _: None) -> tuple[Any, int, Iterable[tuple[str, str]]]:
        """Send, and give the response, its status and its headers."""

    def rewind(self, _: None) -> bool:
        """Get ready to send again; ``False`` when the request cannot be."""

    def discard(self, response: Any) -> None:
        """Free the connection of a response that nobody will see."""

    def pause(self, seconds: float) -> None:
        """Let time pass."""

    def never_left(self, error: BaseException) -> bool:
        """Whether an error shows that the request was never sent."""


def exchange(call: Call) -> Flow:
    """Wait for a permit, send, learn from the answer, and again if need be."""
    limiter = call.limiter
    left = limiter.max_wait
    attempt = 0
    while True:
        permit: Permit = yield call.acquire, left
        try:
            response, status, headers = yield call.send, None
        except BaseException as error:
            if call.never_left(error):
                permit.cancel()
            raise
        told = permit.observe(status, headers)
        if status not in limiter.retry.retry_on_status:
            return response
        if left is not None:
            left = max(0.0, left - permit.waited)
        pause = limiter.retry.policy.pause(call.method, status, told, attempt, random.random())  # noqa: S311
        if limiter.raise_on_limit or (
            # The scope is held for as long as the server said: waiting for a permit is the pause.
            pause is not None and told is not None and left is not None and told > left
        ):
            yield call.discard, response
            raise _exceeded(permit, status, pause if told is None else told)
        if pause is None or (told is None and left is not None and pause > left):
            return response
        if not (yield call.rewind, None):
            return response
        yield call.discard, response
        if told is None:
            yield call.pause, pause
            left = None if left is None else left - pause
        attempt += 1


def _exceeded(permit: Permit, status: int, retry_after: float | None) -> RateLimitExceeded:
    seconds = retry_after or 0.0
    message = f"{permit.scope}: the server answered {status}; retry after {seconds:.3f} s"
    return RateLimitExceeded(message, permit.scope, "requests", seconds)

"""The life of one HTTP call, written once.

A generator that says what to do next and never how: whoever drives it knows threads, event loops
and clients. Each step is the name of an operation and its argument; the driver performs it and
sends back the result, or throws what was raised.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from paceline.errors import RateLimitExceeded

if TYPE_CHECKING:
    from collections.abc import Generator

    from paceline._native import Permit, RetryPolicy

#: Operations: ``acquire`` (max_wait) gives a permit, ``send`` an answer, ``rewind`` tells whether
#: the request can be sent again, ``discard`` (an answer) frees its connection, ``pause`` (seconds)
#: waits.
Flow: TypeAlias = "Generator[tuple[str, Any], Any, Any]"


class Answer(Protocol):
    """What the lifecycle has to know of a response."""

    status: int
    headers: Any
    response: Any


class Call(Protocol):
    """What the lifecycle has to know of a call."""

    method: str
    retry: RetryPolicy
    max_wait: float | None
    raise_on_limit: bool

    def never_left(self, error: BaseException) -> bool:
        """Whether an error shows that the request was never sent."""


def exchange(call: Call) -> Flow:
    """Wait for a permit, send, learn from the answer, and again if need be."""
    left = call.max_wait
    attempt = 0
    while True:
        permit: Permit = yield "acquire", left
        if left is not None:
            left = max(0.0, left - permit.waited)
        try:
            answer = yield "send", None
        except BaseException as error:
            if call.never_left(error):
                permit.cancel()
            raise
        status = answer.status
        _, told = permit.observe(status, answer.headers)
        pause = call.retry.pause(call.method, status, told, attempt, random.random())  # noqa: S311
        if call.raise_on_limit and call.retry.retries(status):
            yield "discard", answer
            raise _exceeded(permit, status, told if told is not None else pause)
        if pause is None or not (yield "rewind", None):
            return answer.response
        if told is not None and left is not None and told > left:
            yield "discard", answer
            raise _exceeded(permit, status, told)
        if told is None and left is not None and pause > left:
            return answer.response
        yield "discard", answer
        # Where the server named a wait, the scope is held: waiting for a permit is the pause.
        if told is None:
            yield "pause", pause
            left = None if left is None else left - pause
        attempt += 1


def _exceeded(permit: Permit, status: int, retry_after: float | None) -> RateLimitExceeded:
    seconds = retry_after or 0.0
    message = f"{permit.scope}: the server answered {status}; retry after {seconds:.3f} s"
    return RateLimitExceeded(message, permit.scope, "requests", seconds)

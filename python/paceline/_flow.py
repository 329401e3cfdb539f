"""The life of one HTTP call, written once.

It knows neither threads nor event loops nor clients. Whatever may take time is awaited; where that
blocks the thread instead, nothing is ever suspended, and one step runs all of it (see ``_drive``).
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import random
from typing import TYPE_CHECKING, Any, Protocol

from paceline._native import Permit
from paceline.errors import RateLimitExceeded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping

    from paceline._native import Cost, Paced, RetryPolicy
    from paceline.limiter import AsyncRateLimiter, RateLimiter
    from paceline.retry import RetryConfig

#: What the next request of this context spends. A redirect's later hops spend one request each.
_cost: contextvars.ContextVar[Mapping[str, float] | None] = contextvars.ContextVar(
    "paceline_cost", default=None
)
#: For which account the requests of this context count.
_account: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "paceline_account", default=None
)


@contextlib.contextmanager
def spending(
    cost: Mapping[str, float] | None = None, *, account: str | None = None
) -> Generator[None]:
    """Say what requests in this block spend, by any client.

    >>> from paceline import spending
    >>> with spending({"tokens": 1500}, account="team-a"):
    ...     pass  # client.post("https://api.example.com/chat", json=...)

    Args:
        cost: what the next request spends beside its one request.
        account: for whom all of them count, apart from other accounts at the same endpoint. A name,
            and no secret: it is part of keys and messages.

    """
    tokens = _cost.set(cost), _account.set(account or _account.get())
    try:
        yield
    finally:
        _cost.reset(tokens[0])
        _account.reset(tokens[1])


def account() -> str | None:
    """Give the account for which requests of this context count."""
    return _account.get()


#: How URLs begin that may have a limit: those of HTTP, whatever it goes over, and of WebSockets.
_PACED = ("http", "ws")
#: Statuses from here on are errors.
_ERROR = 400
_TOO_MANY = 429
#: Longer errors are not looked at: nobody states a limit in them.
LONGEST_ERROR = 65_536


class Call(Protocol):
    """One call of a client: what the lifecycle has to know of it, and how its steps are done."""

    limiter: RateLimiter | AsyncRateLimiter
    #: whose answer it will be
    url: str

    @property
    def retried_above(self) -> bool:
        """Whether somebody above sends it again after a rejection."""

    @property
    def retry(self) -> RetryConfig:
        """What to send again, and how."""

    @property
    def patience(self) -> float | None:
        """The seconds that it may wait in all; ``None`` for ever."""

    def spends(self) -> tuple[str, Mapping[str, float] | Cost | None, str | None]:
        """Give where it is counted, what it spends there, and for which account."""

    @property
    def method(self) -> str:
        """The HTTP method."""

    @property
    def keyed(self) -> bool:
        """Whether it carries an ``Idempotency-Key``, so that sending it again has no effect."""

    def send(self) -> Awaitable[Any]:
        """Send, and give the response."""

    def read(self, response: Any) -> tuple[int, Iterable[tuple[str, str] | tuple[bytes, bytes]]]:
        """Give a response's status and headers."""

    def kind(self, response: Any) -> str | None:
        """Give a response's content type."""

    def body(self, response: Any) -> Awaitable[bytes | None]:
        """Give the body of a response that is an error, so that others can read it all the same."""

    def tell(self, response: Any, paced: Paced, permit: Permit) -> None:
        """Leave on a response what pacing did; settle for what it says was spent."""

    def rewind(self) -> bool:
        """Get ready to send again; ``False`` when the request cannot be."""

    def discard(self, response: Any) -> Awaitable[object]:
        """Free the connection of a response that nobody will see."""

    def never_left(self, error: BaseException) -> bool:
        """Whether an error shows that the request was never sent."""

    def lost(self, error: BaseException) -> bool:
        """Whether an error says that the connection could not be made, or broke."""


class PlainCall:
    """What most calls share: they are counted by their URL, and spend what their context says."""

    __slots__ = ()
    limiter: RateLimiter | AsyncRateLimiter
    url: str

    @property
    def retried_above(self) -> bool:
        return False

    @property
    def retry(self) -> RetryConfig:
        return self.limiter.retry

    @property
    def patience(self) -> float | None:
        return self.limiter.max_wait

    def spends(self) -> tuple[str, Mapping[str, float] | Cost | None, str | None]:
        if (cost := _cost.get()) is not None:
            _cost.set(None)
        return self.url, cost, _account.get()


async def exchange(  # noqa: C901, PLR0912, PLR0915 - it reads best in one piece
    call: Call,
    acquire: Callable[..., Permit | Awaitable[Permit]],
    pause: Callable[[Any, float], Awaitable[object]],
) -> Any:
    """Wait for a permit, send, learn from the answer, and again if need be."""
    if not call.url.startswith(_PACED):
        # Such as file: clients take adapters for anything, and nobody limits it.
        return await call.send()
    limiter = call.limiter
    retry = call.retry
    endpoint, cost, account = call.spends()
    left = patience = call.patience
    waited = 0.0
    limit = None
    attempt = 0
    while True:
        granted = acquire(limiter, endpoint, cost, max_wait=left, account=account)
        # To await what is there already would cost as much as to get it.
        permit = granted if isinstance(granted, Permit) else await granted
        if permit.waited:
            waited += permit.waited
            limit = permit.limit
        if attempt:
            permit.again()
        told = None
        try:
            response = await call.send()
        except BaseException as error:
            if unsent := call.never_left(error):
                permit.cancel()
            if limiter.raise_on_limit or not (retry.retry_on_connection_error and call.lost(error)):
                raise
            left = _left(patience, waited)
            # It leaves as much open as a 503, if it leaves anything open.
            policy, keyed = retry.after_connection_error, unsent or call.keyed
            delay = _again(call, policy, keyed, 503, None, attempt=attempt, left=left)
            if delay is None:
                raise
        else:
            status, headers = call.read(response)
            body = await _error(call, permit, response, status) if status >= _ERROR else None
            told = permit.observe(status, headers, call.url, body)
            if status not in retry.retry_on_status or permit.spent:
                call.tell(response, permit.paced(waited, attempt + 1, limit), permit)
                return response
            left = _left(patience, waited)
            delay = _again(call, retry.policy, call.keyed, status, told, attempt=attempt, left=left)
            goes_on = delay is not None or call.retried_above
            too_long = goes_on and told is not None and told > left
            if limiter.raise_on_limit or too_long:
                await call.discard(response)
                raise _exceeded(permit, status, delay if told is None else told)
            if delay is None:
                call.tell(response, permit.paced(waited, attempt + 1, limit), permit)
                return response
            await call.discard(response)
        if told is None:
            await pause(limiter, delay)
            waited += delay
            left = _left(patience, waited)
        attempt += 1


async def _error(call: Call, permit: Permit, response: Any, status: int) -> bytes | None:
    """Read the body of an error, where that says something of limits."""
    if permit.wants_body(call.url, status, call.kind(response)):
        # Whoever reads it later hears of what is wrong with it.
        with contextlib.suppress(Exception):
            return await call.body(response)
    return None


def _left(patience: float | None, waited: float) -> float:
    """Give the seconds that a call may still wait."""
    return math.inf if patience is None else max(0.0, patience - waited)


def _again(
    call: Call,
    policy: RetryPolicy,
    keyed: bool,
    status: int,
    told: float | None,
    *,
    attempt: int,
    left: float,
) -> float | None:
    """Give the seconds before the next attempt; ``None`` if there is to be none.

    Where the server said how long, the scope is held: waiting for a permit is the pause.
    """
    delay = policy.pause(call.method, keyed, status, told, attempt, random.random())  # noqa: S311
    if delay is None or (told is None and delay > left) or not call.rewind():
        return None
    # Whoever was told to wait is paced by that, and multiplies nothing.
    if status != _TOO_MANY and not call.limiter.may_retry(policy.budget):
        return None
    return delay


def _exceeded(permit: Permit, status: int, retry_after: float | None) -> RateLimitExceeded:
    seconds = retry_after or 0.0
    message = f"{permit.scope}: the server answered {status}; retry after {seconds:.3f} s"
    return RateLimitExceeded(message, permit.scope, "requests", seconds)

"""When to send again, and after how long."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from paceline._native import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable


class RetryStrategy(enum.Enum):
    """How waits grow from attempt to attempt."""

    #: ``base_delay * backoff_factor ** attempt``
    EXPONENTIAL = "exponential"
    #: ``base_delay * (attempt + 1)``
    LINEAR = "linear"
    #: ``base_delay`` each time
    FIXED = "fixed"
    #: no waits of our own, only those that the server asks for
    NONE = "none"


@dataclass(frozen=True)
class RetryConfig:
    """What to retry and how long to wait; delays are in seconds.

    What the server asks for with ``Retry-After`` wins over ``strategy``, up to ``max_delay``.

    Raises ``ValueError`` for numbers that make no sense together.
    """

    #: further attempts after the first
    max_retries: int = 3
    strategy: RetryStrategy = RetryStrategy.EXPONENTIAL
    #: the first wait
    base_delay: float = 1.0
    #: the longest wait, also when the server asks for more
    max_delay: float = 60.0
    backoff_factor: float = 2.0
    retry_on_status: tuple[int, ...] = (429, 503, 504)
    #: the share of a wait that is left to chance
    jitter: float = 0.1
    #: ``"safe"`` sends a method that is not idempotent again only after a 429, or if the request
    #: has an ``Idempotency-Key``
    replay: Literal["all", "safe"] = "all"
    #: the share of all requests that may be retries, 0 to 1, beside the first few: so that an
    #: outage is not multiplied. What is sent again after a 429 is not counted: a limit paces it.
    budget: float = 0.2
    #: whether a connection that could not be made, or broke before there was an answer, is
    #: treated like a 503
    retry_on_connection_error: bool = False

    def __reduce__(self) -> tuple[Callable[..., RetryConfig], tuple[object, ...]]:
        """Survive copying and a process pool."""
        return type(self), tuple(getattr(self, it.name) for it in fields(self))

    def __post_init__(self) -> None:
        """Check everything at once, where the mistake is made."""
        # A configuration file, too, says it by its name.
        object.__setattr__(self, "strategy", RetryStrategy(self.strategy))
        _ = self.policy

    @cached_property
    def policy(self) -> RetryPolicy:
        """The same for the engine."""
        return self._policy(self.retry_on_status)

    @cached_property
    def after_connection_error(self) -> RetryPolicy:
        """The same where no status came: asked about 503, which leaves as much open."""
        return self._policy((503,))

    def _policy(self, retry_on_status: tuple[int, ...]) -> RetryPolicy:
        return RetryPolicy(
            max_retries=self.max_retries,
            strategy=self.strategy.value,
            base_delay=self.base_delay,
            max_delay=self.max_delay,
            backoff_factor=self.backoff_factor,
            retry_on_status=list(retry_on_status),
            jitter=self.jitter,
            replay=self.replay,
            budget=self.budget,
        )

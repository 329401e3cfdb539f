"""Pacing for LangChain where :func:`paceline.install` does not reach: its seam for rate limits.

Models whose SDK is guarded need nothing of this: one layer is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.rate_limiters import BaseRateLimiter

from paceline import _native

if TYPE_CHECKING:
    from paceline.limiter import AsyncRateLimiter, RateLimiter


class LangChainRateLimiter(BaseRateLimiter):
    """Hand it to a chat model: ``ChatModel(rate_limiter=LangChainRateLimiter(limiter, scope))``.

    >>> import paceline
    >>> limiter = paceline.RateLimiter()
    >>> limiter.set_limit("internal:llama-3", limit=60, window="1m")
    >>> limited = LangChainRateLimiter(limiter, "internal:llama-3")
    >>> limited.acquire(blocking=False)
    True

    LangChain asks before each call and tells nothing afterwards: requests are paced, and tokens
    and answers are not seen.

    Args:
        limiter: whose limits apply, of either kind.
        scope: where calls count: a model such as ``internal:llama-3``, or an endpoint.

    """

    def __init__(self, limiter: RateLimiter | AsyncRateLimiter, scope: str) -> None:
        """Count in that scope."""
        self._limiter = limiter
        self._scope = scope

    def acquire(self, *, blocking: bool = True) -> bool:
        """Wait for a turn on this thread, or tell at once whether there is one.

        Raises :class:`paceline.RateLimitExceeded` when it would wait longer than the limiter's
        ``max_wait``.
        """
        if blocking:
            with _native.Limiter.acquire(self._limiter, self._scope):
                return True
        permit = self._limiter.try_acquire(self._scope)
        if permit is None:
            return False
        with permit:
            return True

    async def aacquire(self, *, blocking: bool = True) -> bool:
        """Do the same in an event loop."""
        if not blocking:
            return self.acquire(blocking=False)
        async with _native.Limiter.acquire_async(self._limiter, self._scope):
            return True

"""Pacing for LlamaIndex where :func:`paceline.install` does not reach: its seam for rate limits.

Models whose SDK is guarded need nothing of this: one layer is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llama_index.core.rate_limiter import BaseRateLimiter

from paceline import _native

if TYPE_CHECKING:
    from paceline.limiter import AsyncRateLimiter, RateLimiter


class LlamaIndexRateLimiter(BaseRateLimiter):
    """Hand it to a model: ``SomeLLM(rate_limiter=LlamaIndexRateLimiter(limiter, scope))``.

    >>> import paceline
    >>> limiter = paceline.RateLimiter()
    >>> limiter.set_limit("internal:llama-3", limit=60, window="1m")
    >>> limited = LlamaIndexRateLimiter(limiter, "internal:llama-3")
    >>> limited.acquire()

    LlamaIndex asks before each call, and before each batch of embeddings, and tells nothing
    afterwards: requests are paced, and tokens and answers are not seen. Where one method of a model
    passes a call on to another, both ask: ``CustomLLM.chat`` takes two turns.

    A model that takes no ``rate_limiter`` when it is made has it set: ``model.rate_limiter = ...``.

    Args:
        limiter: whose limits apply, of either kind.
        scope: where calls count: a model such as ``internal:llama-3``, or an endpoint.

    """

    def __init__(self, limiter: RateLimiter | AsyncRateLimiter, scope: str) -> None:
        """Count in that scope."""
        self._limiter = limiter
        self._scope = scope

    def acquire(self, num_tokens: int = 0) -> None:
        """Wait for a turn on this thread.

        ``num_tokens`` counts towards a limit of ``tokens``; LlamaIndex itself names none.

        Raises :class:`paceline.RateLimitExceeded` when it would wait longer than the limiter's
        ``max_wait``.
        """
        with _native.Limiter.acquire(self._limiter, self._scope, {"tokens": num_tokens}):
            return

    async def async_acquire(self, num_tokens: int = 0) -> None:
        """Do the same in an event loop."""
        cost = {"tokens": num_tokens}
        async with _native.Limiter.acquire_async(self._limiter, self._scope, cost):
            return

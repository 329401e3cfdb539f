"""What a guarded call may raise beside what its SDK does."""

from __future__ import annotations

from paceline.errors import RateLimitExceeded


class RateLimited(RateLimitExceeded):
    """A call would have to wait longer than it may, or its budget is spent. Nothing was charged.

    It reaches the caller as it is and at once, also through SDKs that wrap the errors of others.

    Attributes:
        provider: whose API it is, such as ``openai``.
        model: the model, such as ``gpt-4o``.
        dimension: what is used up: ``requests``, ``tokens``, ``input_tokens``, ``output_tokens``
            or ``usd``.
        retry_after: seconds after which it would be admitted, if nobody else spends meanwhile;
            infinite for a call that costs more than its whole budget.
        scope: the scope whose limit binds, such as ``openai:gpt-4o``.

    """

    def __init__(
        self,
        message: str,
        scope: str = "",
        dimension: str = "requests",
        retry_after: float = 0.0,
        provider: str = "",
        model: str = "",
    ) -> None:
        """Keep whose call it was, what binds and for how long."""
        super().__init__(message, scope, dimension, retry_after)
        self.provider = provider
        self.model = model

    def __reduce__(self) -> tuple[type, tuple[str, str, str, float, str, str]]:  # type: ignore[override] # more of them
        """Survive a process pool."""
        known = str(self), self.scope, self.dimension, self.retry_after
        return type(self), (*known, self.provider, self.model)


class UnknownPrice(ValueError):  # noqa: N818 - it says what is wrong
    """A budget covers a model of which no price is known: tell it with ``guard.set_price``."""


class Escape(BaseException):
    """Carries an error through an SDK that would wrap it or try again."""

    def __init__(self, error: Exception) -> None:
        """Carry it."""
        super().__init__()
        self.error = error

"""What a caller may have to catch."""

from __future__ import annotations


class RateLimitExceeded(Exception):  # noqa: N818 - the name is part of the public face
    """The call would have to wait longer than it may. Nothing was charged.

    Attributes:
        scope: the scope whose limit binds, such as ``https://api.example.com``.
        dimension: what is used up there, such as ``requests`` or ``tokens``.
        retry_after: seconds after which the call would be admitted, if nobody else spends
            meanwhile.

    """

    def __init__(
        self,
        message: str,
        scope: str = "",
        dimension: str = "requests",
        retry_after: float = 0.0,
    ) -> None:
        """Keep what binds and for how long."""
        super().__init__(message)
        self.scope = scope
        self.dimension = dimension
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[type, tuple[str, str, str, float]]:
        """Survive a process pool."""
        message = str(self)
        return type(self), (message, self.scope, self.dimension, self.retry_after)


class StorageUnavailable(RateLimitExceeded):
    """The store that keeps the limits cannot be reached."""

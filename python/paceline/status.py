"""What a scope looks like at the moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline._native import Limiter, _Scoped


@dataclass(frozen=True)
class DimensionStatus:
    """One limit and its level."""

    #: units per window
    limit: int
    #: units that a full bucket holds: the limit, unless it was declared otherwise
    burst: int
    #: whole units that would be granted now; 0 in debt
    remaining: int
    #: when it is full again; for a window that the server counts, its reset
    reset_time: datetime
    #: seconds until then
    reset_in: float
    window: timedelta
    #: ``configured``, ``confirmed``, ``estimated`` or ``registry``
    confidence: str

    @property
    def utilization(self) -> float:
        """The share of the bucket in use, 0 to 1."""
        return min(1.0, max(0.0, 1.0 - self.remaining / self.burst))

    @property
    def is_exceeded(self) -> bool:
        """Whether not even one unit would be granted now."""
        return self.remaining == 0


@dataclass(frozen=True)
class RateLimitStatus(DimensionStatus):
    """A scope: the limit of its requests (or its first one), and all others."""

    #: the scope that governs, such as ``https://api.example.com``
    endpoint: str
    #: seconds for which the server has told everybody to stay away; ``None`` when it has not
    hold: float | None
    #: every limit by the name of what it meters; a second limit on the same thing is called
    #: ``name/window``
    dimensions: dict[str, DimensionStatus]


@dataclass(frozen=True)
class Explanation:
    """Which limits a call meets, and why those. Printed, it says so in words."""

    #: the scope that governs; ``None`` where none does
    governing: RateLimitStatus | None
    #: wider scopes with limits, which are charged only with ``also_parents``
    wider: tuple[RateLimitStatus, ...]
    words: str

    def __str__(self) -> str:
        """Say it in words."""
        return self.words


def explain(limiter: Limiter, endpoint: str) -> Explanation:
    """Say which limits a call meets, and why those."""
    words, scopes = limiter.explained(endpoint)
    found = tuple(map(_status, scopes))
    return Explanation(found[0] if found else None, found[1:], words)


def read(limiter: Limiter, endpoint: str) -> RateLimitStatus | None:
    """Read the state of the scope that governs an endpoint; ``None`` where nothing is known."""
    found = limiter.status(endpoint)
    return None if found is None else _status(found)


def _status(found: _Scoped) -> RateLimitStatus:
    scope, hold, levels = found
    now = datetime.now(timezone.utc)
    dimensions: dict[str, DimensionStatus] = {}
    for name, window, text, limit, burst, remaining, reset_in, confidence in levels:
        dimensions[f"{name}/{text}" if name in dimensions else name] = DimensionStatus(
            limit=limit,
            burst=burst,
            remaining=remaining,
            reset_time=now + timedelta(seconds=reset_in),
            reset_in=reset_in,
            window=timedelta(seconds=window),
            confidence=confidence,
        )
    if not dimensions:
        # Only a hold is known.
        held = DimensionStatus(
            1, 1, 0, now + timedelta(seconds=hold), hold, timedelta(), "estimated"
        )
        dimensions["requests"] = held
    first = dimensions.get("requests") or next(iter(dimensions.values()))
    return RateLimitStatus(
        limit=first.limit,
        burst=first.burst,
        remaining=first.remaining,
        reset_time=first.reset_time,
        reset_in=first.reset_in,
        window=first.window,
        confidence=first.confidence,
        endpoint=scope,
        hold=hold or None,
        dimensions=dimensions,
    )

"""What one response says of limits, read by the same code that a limiter runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from paceline import _native

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeAlias

    _Pairs: TypeAlias = Iterable[tuple[str, str] | tuple[bytes, bytes]]
    _Headers: TypeAlias = Mapping[str, str] | Mapping[bytes, bytes] | _Pairs


@dataclass(frozen=True)
class DetectedLimit:
    """One limit that a response stated; what it did not state is ``None``."""

    #: what it meters, such as ``requests`` or ``tokens``
    dimension: str
    #: what the server calls it, where it has several on one dimension
    name: str | None
    #: units per window
    limit: int | None
    #: units left
    remaining: int | None
    #: seconds until the reset, from when the response was made
    reset_in: float | None
    window: timedelta | None
    #: ``window``: what is left falls until the reset, and then all is there again; ``bucket``: it
    #: refills all the time, and the reset is when it is full
    counts: str


@dataclass(frozen=True)
class Detection:
    """Everything that one response asserted."""

    #: every limit that was stated
    dimensions: tuple[DetectedLimit, ...]
    #: seconds to stay away, on a rejection
    retry_after: float | None
    #: whether the call was refused for rate or load reasons
    rejected: bool
    #: whether what is used up does not come back by waiting
    spent: bool
    #: the bucket in which the server counted the request, where one host has several
    bucket: str | None


def detect(
    status: int,
    headers: _Headers,
    url: str | None = None,
    now: datetime | float | None = None,
    body: bytes | str | None = None,
    *,
    headers_map: Mapping[str, str] | None = None,
    use_provider_profiles: bool = True,
) -> Detection:
    """Read one response.

    >>> from paceline import detect
    >>> seen = detect(200, {"X-RateLimit-Limit": "60", "X-RateLimit-Remaining": "59"})
    >>> seen.dimensions[0].limit, seen.dimensions[0].remaining, seen.rejected
    (60, 59, False)

    Args:
        status: its status.
        headers: a mapping, or pairs in the order in which they came, repeats included; text, or
            bytes as clients keep them (``response.headers.raw``).
        url: what was asked for; without it nothing is known of the host.
        now: when it came: an aware datetime, or seconds since 1970; the present unless given.
        body: its body, for the few hosts that say it only there.
        headers_map: the names of headers of one's own, by ``limit``, ``remaining``, ``reset`` and
            ``retry_after``.
        use_provider_profiles: whether to use what is built in about single hosts.

    Raises:
        ValueError: for an unknown key or what is no name of a header in ``headers_map``, or a time
            before 1970.

    """
    pairs = headers.items() if hasattr(headers, "items") else headers
    moment = now.astimezone(timezone.utc).timestamp() if isinstance(now, datetime) else now
    told, retry_after, rejected, spent, bucket = _native.detect(
        status,
        [(_field(name), _field(value)) for name, value in pairs],
        url,
        moment,
        body.encode() if isinstance(body, str) else body,
        headers_map,
        use_provider_profiles,
    )
    limits = tuple(
        DetectedLimit(
            dimension=dimension,
            name=name,
            limit=limit,
            remaining=remaining,
            reset_in=reset_in,
            window=None if window is None else timedelta(seconds=window),
            counts="bucket" if refills else "window",
        )
        for dimension, name, limit, remaining, reset_in, window, refills in told
    )
    return Detection(limits, retry_after, rejected, spent, bucket)


def _field(given: object) -> str | bytes:
    return given if isinstance(given, bytes) else str(given)

"""What would happen under limits, without sending anything.

The engine itself runs, on a clock of its own: what waits here waits in production, and for as long.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from paceline import _native

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True)
class Spans:
    """How long something took, in seconds."""

    #: how many took any time
    some: int
    p50: float
    p99: float
    max: float
    mean: float


@dataclass(frozen=True)
class Bound:
    """What everything waited for."""

    #: a limit such as ``tokens=90000/1m``, ``workers``, ``arrivals``, …
    by: str
    seconds: float
    #: of all of the time, 0 to 1
    share: float


@dataclass(frozen=True)
class LimitUse:
    """How much of a limit was used."""

    limit: str
    dimension: str
    #: per window
    units: int
    #: in seconds
    window: float
    burst: int
    strict: bool
    #: units in all
    spent: float
    #: the share of what it allows from the first request to the last one, 0 to 1
    used: float


@dataclass(frozen=True)
class Concurrency:
    """How much is under way at once."""

    #: the most that was
    most: int
    #: as many as the limits have work for; ``None`` where there is no limit
    of_use: int | None
    #: what all workers get through in a minute, whatever the limits; ``None`` without a latency
    ceiling: int | None


@dataclass(frozen=True)
class Advice:
    """The one change that would help most, and what would come of it."""

    change: str
    #: seconds
    finished: float
    #: calls that would not be answered
    unanswered: int
    #: 429s
    rejected: int


@dataclass(frozen=True)
class Slot:
    """What happened in one slot of time."""

    came: int
    sent: int
    refused: int
    rejected: int
    #: the most that waited at once
    waiting: int
    #: what was left of each limit at the end
    left: tuple[float, ...]
    #: the same by the server's count
    server_left: tuple[int, ...]


@dataclass(frozen=True)
class Timeline:
    """What happened when: slots of ``width`` seconds, one after the other."""

    width: float
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Mark:
    """What became of one request; times in seconds from the beginning."""

    came: float
    #: when it was sent at last, or refused
    at: float
    fate: Literal["sent", "waited", "refused", "rejected"]


@dataclass(frozen=True)
class Outcome:
    """What came of a simulation; times in seconds."""

    requests: int
    answered: int
    #: calls refused before they were sent, for they would have waited too long
    refused: int
    #: 429s that the server sent
    rejected: int
    #: requests given up after their last attempt
    failed: int
    #: when everything was over
    finished: float
    #: what decides how long it takes; ``None`` where nothing took any time
    binding: str | None
    #: what everything waited for, the longest first
    bounds: tuple[Bound, ...]
    #: how long answered requests waited for their limits
    waits: Spans
    #: how long after they came they were sent: the wait for a worker, too
    delays: Spans
    limits: tuple[LimitUse, ...]
    concurrency: Concurrency
    #: ``None`` where no single change helps
    advice: Advice | None
    timeline: Timeline
    #: what became of the first ``marks`` requests
    marks: tuple[Mark, ...]


def simulate(
    *,
    limits: Iterable[str] = (),
    rpm: int | None = None,
    tpm: int | None = None,
    rpd: int | None = None,
    burst: int | None = None,
    strict: bool = False,
    keys: int = 1,
    requests: int = 100,
    arrivals: str = "at-once",
    replay: str | os.PathLike[str] | None = None,
    cost: Mapping[str, float | tuple[float, float]] | None = None,
    workers: int = 16,
    latency: float = 0.0,
    jitter: float = 0.0,
    on_rate_limit: Literal["wait", "raise"] = "wait",
    max_wait: float | None = None,
    retries: int = 3,
    server: str | None = None,
    server_limits: Iterable[str] = (),
    tells: Literal["nothing", "retry-after", "github", "ietf", "openai"] = "retry-after",
    strangers: float = 0.0,
    refusals_cost: bool = False,
    seed: int = 0,
    marks: int = 0,
) -> Outcome:
    """Foretell how long requests take under limits: what ``paceline simulate`` does.

    >>> import paceline
    >>> outcome = paceline.simulate(rpm=4410, tpm=100_000, requests=1000, cost={"tokens": 2000})
    >>> outcome.finished / 60
    19.0
    >>> outcome.binding
    'tokens=100000/1m'
    >>> outcome.advice.change
    'a limit of tokens=200000/1m'

    Args:
        limits: such as ``"60/1m"`` or ``"tokens=90000/1m"``; all apply
        rpm: requests per minute
        tpm: tokens per minute
        rpd: requests per day
        burst: how many requests go back to back: of ``rpm``, or of the one limit
        strict: never exceed a limit in any span of its window
        keys: how many keys take turns; each has all of the limits
        requests: how many there are
        arrivals: ``"at-once"``, ``"10/1s"``, ``"poisson:10/1s"`` or ``"burst:100/1m"``
        replay: a file of JSON lines with a ``time`` (seconds or RFC 3339), and perhaps ``tokens``,
            ``cost`` and ``latency``
        cost: what a request spends beside itself; a pair for anything between the two
        workers: requests waiting and under way at once
        latency: seconds until an answer
        jitter: seconds by which each way takes longer at most
        on_rate_limit: whether a call that would have to wait waits, or is refused
        max_wait: the longest wait of one call in seconds
        retries: further attempts after a 429
        server: how the server counts: ``"fixed"``, ``"fixed-first"``, ``"fixed-clock"``,
            ``"sliding"``, ``"bucket"`` or ``"gcra"``; without it nothing is ever rejected
        server_limits: its limits; the same as ``limits`` unless given
        tells: what it says of them
        strangers: the share of each limit that others with the same key take, 0 to 1
        refusals_cost: whether what is rejected is counted
        seed: decides everything that is left to chance
        marks: of how many requests it is told what became of them

    Raises:
        ValueError: what makes no sense, in words

    """
    told = json.loads(_native.simulate(list(_pairs(dict(locals())))))
    timeline = told["timeline"]
    slots = (
        Slot(**slot | {"left": tuple(slot["left"]), "server_left": tuple(slot["server_left"])})
        for slot in timeline["slots"]
    )
    return Outcome(
        **told
        | {
            "bounds": tuple(Bound(**it) for it in told["bounds"]),
            "waits": Spans(**told["waits"]),
            "delays": Spans(**told["delays"]),
            "limits": tuple(LimitUse(**it) for it in told["limits"]),
            "concurrency": Concurrency(**told["concurrency"]),
            "advice": told["advice"] and Advice(**told["advice"]),
            "timeline": Timeline(timeline["width"], tuple(slots)),
            "marks": tuple(Mark(**it) for it in told.get("marks", ())),
        }
    )


#: What the command calls differently: options that are repeated.
_EACH = {"limits": "limit", "server_limits": "server-limit"}
#: What is said only where it is asked for: it makes no sense without other options.
_USUAL = {"arrivals": "at-once", "tells": "retry-after", "strangers": "0%"}


def _pairs(options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Say the same as the options of the command."""
    for name, amount in (options.pop("cost") or {}).items():
        least, most = amount if isinstance(amount, tuple) else (amount, amount)
        yield "cost", f"{name}={least}..{most}"
    for name, option in _EACH.items():
        each = options.pop(name)
        yield from ((option, str(limit)) for limit in ([each] if isinstance(each, str) else each))
    options["strangers"] = f"{options['strangers'] * 100:g}%"
    for name, value in options.items():
        option = name.replace("_", "-")
        if value is True:
            yield option, ""
        elif value is not None and value is not False and _USUAL.get(name) != value:
            yield option, str(value)

"""What is told of calls to whoever scrapes it: the names, once for every exporter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from paceline.llm.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from paceline._native import _ScopeMetrics, _StoreMetrics
    from paceline.limiter import AsyncRateLimiter, RateLimiter


@dataclass(frozen=True)
class Family:
    """One measurement: its name by the conventions of OpenTelemetry, and its values by labels."""

    name: str
    help: str
    kind: Literal["counter", "gauge"] = "counter"
    unit: str = ""
    samples: Sequence[tuple[Mapping[str, str], float]] = ()


#: Counters of a scope: the name, its field, and what it says.
_COUNTERS = (
    ("requests.sent", "sent", "", "Attempts that took a permit and were sent"),
    ("requests.delayed", "delayed", "", "Attempts that waited for their permit"),
    ("requests.refused", "refused", "", "Calls that got an error in place of a wait"),
    ("requests.failed", "failed", "", "Attempts that came to nothing, but not for a limit"),
    ("requests.retried", "retried", "", "Attempts of calls that were sent before"),
    ("requests.cached", "cached", "", "Calls answered from the cache"),
    ("holds", "holds", "", "Rejections that said how long to stay away"),
    ("tokens.input", "input_tokens", "", "Tokens of prompts"),
    ("tokens.output", "output_tokens", "", "Tokens of answers"),
    ("wait.seconds", "waited", "s", "Time that attempts waited for their permits"),
)


def guarded(paced: RateLimiter | AsyncRateLimiter | Guard) -> RateLimiter | AsyncRateLimiter:
    """Give what paces, and begin to measure it."""
    limiter = paced.limiter if isinstance(paced, Guard) else paced
    limiter.measure()
    return limiter


def families(
    metrics: tuple[int, _StoreMetrics, list[tuple[str, _ScopeMetrics]]],
) -> Iterator[Family]:
    """Give everything that was measured, but how waits are spread."""
    waiting, store, scopes = metrics
    for name, key, unit, text in _COUNTERS:
        samples = [({"scope": it}, float(told[key])) for it, told in scopes]  # type: ignore[literal-required]
        yield Family(f"paceline.{name}", text, unit=unit, samples=samples)
    yield Family(
        "paceline.requests.rejected",
        "Attempts that the server rejected: for a limit, or since a quota is spent",
        samples=[sample for it, told in scopes for sample in _rejected(it, told)],
    )
    spent = [({"scope": it}, told["micro_usd"] / 1e6) for it, told in scopes]
    yield Family("paceline.cost.usd", "Dollars spent", samples=spent)
    limits = [sample for it, told in scopes for sample in _limits(it, told)]
    for name, text, at in (
        ("limit.units", "Units of a limit per window", 0),
        ("limit.remaining", "Units that would be granted now", 1),
        ("limit.utilization", "The share of a limit in use, 0 to 1", 2),
    ):
        levels = [(labels, values[at]) for labels, values in limits]
        yield Family(f"paceline.{name}", text, "gauge", samples=levels)
    held = [({"scope": it}, told["hold"]) for it, told in scopes]
    yield Family("paceline.hold.seconds", "For how long a scope is held", "gauge", "s", held)
    yield Family("paceline.waiting", "Callers that wait", "gauge", samples=[({}, waiting)])
    for name, key, unit, text in (
        ("store.visits", "visits", "", "Visits to the store"),
        ("store.failures", "failures", "", "Visits that failed"),
        ("store.unmetered", "unmetered", "", "Calls that went without the store"),
        ("store.seconds", "busy", "s", "Time that visits took"),
    ):
        value = float(store[key])  # type: ignore[literal-required]
        yield Family(f"paceline.{name}", text, unit=unit, samples=[({}, value)])
    away = float(store["away"])
    text = "Whether the store cannot be reached"
    yield Family("paceline.store.away", text, "gauge", samples=[({}, away)])


def _rejected(scope: str, told: _ScopeMetrics) -> Iterator[tuple[Mapping[str, str], float]]:
    yield {"scope": scope, "reason": "limit"}, float(told["rejected"] - told["spent"])
    yield {"scope": scope, "reason": "quota"}, float(told["spent"])


def _limits(
    scope: str, told: _ScopeMetrics
) -> Iterator[tuple[Mapping[str, str], tuple[float, float, float]]]:
    # A server's limit may stand beside the user's, and a series has one value: the tightest one's.
    tightest: dict[tuple[str, str], tuple[float, float, float]] = {}
    for dimension, _, window, units, burst, remaining, _, _ in told["limits"]:
        used = min(1.0, max(0.0, 1.0 - remaining / burst))
        level, known = (float(units), float(remaining), used), tightest.get((dimension, window))
        if known is None or remaining < known[1]:
            tightest[dimension, window] = level
    for (dimension, window), level in tightest.items():
        yield {"scope": scope, "dimension": dimension, "window": window}, level

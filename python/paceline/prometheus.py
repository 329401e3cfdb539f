"""What became of calls, for Prometheus.

>>> from prometheus_client import CollectorRegistry, generate_latest
>>> from paceline import RateLimiter
>>> from paceline.prometheus import Collector
>>> limiter = RateLimiter()
>>> registry = CollectorRegistry()  # or prometheus_client.REGISTRY
>>> registry.register(Collector(limiter))
>>> with limiter.acquire("api.example.com"):
...     pass
>>> "paceline_requests_sent_total" in generate_latest(registry).decode()
True
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector as _Collector

from paceline._metrics import families, guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from paceline.limiter import AsyncRateLimiter, RateLimiter
    from paceline.llm import Guard


class Collector(_Collector):
    """Collects what a limiter or a guard measures in this process, each time it is scraped.

    Nothing is measured before the first collector of a limiter is made. Counters have the label
    ``scope``, an endpoint or a model; gauges of limits ``dimension`` and ``window`` as well.
    """

    def __init__(self, paced: RateLimiter | AsyncRateLimiter | Guard) -> None:
        """Begin to measure what that paces."""
        self._limiter = guarded(paced)

    def describe(self) -> list[Metric]:
        """Say nothing: names do not collide, and what there is depends on the calls."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Give everything that was measured until now."""
        metrics = self._limiter.metrics()
        for family in families(metrics):
            name = family.name.replace(".", "_")
            labels = list(family.samples[0][0]) if family.samples else []
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = kind(name, family.help, labels=labels)
            for values, value in family.samples:
                metric.add_metric(list(values.values()), value)
            yield metric
        waits = HistogramMetricFamily(
            "paceline_wait_duration_seconds",
            "How long attempts waited for their permits",
            labels=["scope"],
        )
        for scope, told in metrics[2]:
            buckets, total = [], 0
            for end, count in told["waits"]:
                total += count
                buckets.append(("+Inf" if math.isinf(end) else str(end), total))
            waits.add_metric([scope], buckets, told["waited"])
        yield waits

"""What became of calls, for OpenTelemetry.

>>> from opentelemetry.sdk.metrics import MeterProvider
>>> from opentelemetry.sdk.metrics.export import InMemoryMetricReader
>>> from paceline import RateLimiter
>>> from paceline.opentelemetry import instrument
>>> limiter = RateLimiter()
>>> reader = InMemoryMetricReader()
>>> instrument(limiter, MeterProvider([reader]))  # or the provider of the program, if none is given
>>> with limiter.acquire("api.example.com"):
...     pass
>>> metrics = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
>>> "paceline.requests.sent" in [metric.name for metric in metrics]
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter

from paceline._metrics import families, guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from paceline.limiter import AsyncRateLimiter, RateLimiter
    from paceline.llm import Guard


def instrument(
    paced: RateLimiter | AsyncRateLimiter | Guard, meter_provider: MeterProvider | None = None
) -> None:
    """Observe what a limiter or a guard measures in this process, each time metrics are read.

    Nothing is measured before. Counters have the attribute ``scope``, an endpoint or a model;
    gauges of limits ``dimension`` and ``window`` as well.

    Args:
        paced: what paces
        meter_provider: whose meter it is; the program's unless given

    """
    limiter = guarded(paced)
    meter = get_meter("paceline", meter_provider=meter_provider)

    def observe(name: str) -> Callable[[CallbackOptions], Iterator[Observation]]:
        def observed(_: CallbackOptions) -> Iterator[Observation]:
            for family in families(limiter.metrics()):
                if family.name == name:
                    yield from (Observation(value, labels) for labels, value in family.samples)

        return observed

    for family in families(limiter.metrics()):
        counts = family.kind == "counter"
        make = meter.create_observable_counter if counts else meter.create_observable_gauge
        make(family.name, [observe(family.name)], family.unit, family.help)

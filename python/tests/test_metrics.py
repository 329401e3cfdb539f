"""What became of calls is told to whoever scrapes it, and equals what the server counted."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import paceline
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from paceline import RateLimiter
from paceline.opentelemetry import instrument
from paceline.prometheus import Collector
from paceline.testing import VirtualClock
from prometheus_client import CollectorRegistry, generate_latest

if TYPE_CHECKING:
    from conftest import Server


def scrape(paced: RateLimiter | paceline.Guard) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Collector(paced))
    return registry


def test_counts_under_load_equal_the_sandbox_s_own(sandbox: str) -> None:
    limiter = RateLimiter(retry=paceline.RetryConfig(max_retries=2))
    # Even a slow machine sends more than that.
    limiter.set_limit(sandbox, limit=50, window="1s")
    registry = scrape(limiter)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: limiter.request("GET", f"{sandbox}/{i}"), range(150)))
    told = httpx.get(f"{sandbox}/_sandbox").json()
    assert all(answer.ok for answer in answers)
    labels = {"scope": limiter.list_endpoints()[0]}
    sent = registry.get_sample_value("paceline_requests_sent_total", labels)
    assert sent == told["admitted"] + told["refused"] == 150
    waits = registry.get_sample_value("paceline_wait_duration_seconds_count", labels)
    assert waits == sent
    delayed = registry.get_sample_value("paceline_requests_delayed_total", labels)
    assert delayed is not None
    assert 0 < delayed <= 100


def test_each_fate_has_a_counter(server: Server) -> None:
    limiter = RateLimiter(clock=VirtualClock(), max_wait=30)
    registry = scrape(limiter)
    limiter.set_limit(server.url, limit=2, window="10s")
    server.script = [(503, {}), (200, {}), (429, {"Retry-After": "5"})]
    limiter.request("GET", server.url)
    limiter.request("GET", server.url)
    limiter.set_limit(f"{server.url}/rare", limit=1, window="1h")
    with limiter.acquire(f"{server.url}/rare"), pytest.raises(paceline.RateLimitExceeded):
        limiter.acquire(f"{server.url}/rare")

    def value(name: str, **labels: str) -> float | None:
        scope = {"scope": limiter.list_endpoints()[0]}
        return registry.get_sample_value(f"paceline_{name}", scope | labels)

    assert value("requests_failed_total") == 1
    assert value("requests_retried_total") == 2
    assert value("requests_rejected_total", reason="limit") == 1
    assert value("requests_rejected_total", reason="quota") == 0
    assert value("holds_total") == 1
    assert value("requests_sent_total") == 4
    assert value("limit_units", dimension="requests", window="10s") == 2
    rare = {"scope": limiter.list_endpoints()[1]}
    assert registry.get_sample_value("paceline_requests_refused_total", rare) == 1
    utilization = {"dimension": "requests", "window": "1h"} | rare
    assert registry.get_sample_value("paceline_limit_utilization", utilization) == 1


def test_a_series_has_one_value_where_two_limits_share_its_labels() -> None:
    limiter = RateLimiter()
    registry = scrape(limiter)
    limiter.set_limit("api.example.com", limit=60, window="1m")
    with limiter.acquire("api.example.com") as permit:
        told = [("RateLimit-Policy", '"d";q=60;w=60'), ("RateLimit", '"d";r=20;t=30')]
        permit.observe(200, told, "https://api.example.com/")
    status = limiter.get_status("api.example.com")
    assert status is not None
    assert len(status.dimensions) == 2
    text = generate_latest(registry).decode()
    assert text.count("paceline_limit_remaining{") == 1
    labels = {"scope": "https://api.example.com", "dimension": "requests", "window": "1m"}
    assert registry.get_sample_value("paceline_limit_remaining", labels) == 20


def test_a_permit_that_is_cancelled_was_not_sent() -> None:
    limiter = RateLimiter()
    registry = scrape(limiter)
    limiter.acquire("api.example.com").cancel()
    assert b'scope="' not in generate_latest(registry)


def test_a_guard_tells_of_models_and_of_what_they_spent(sandbox: str) -> None:
    import openai  # noqa: PLC0415

    guard = paceline.Guard()
    guard.set_price("gpt-4o", input=1.0, output=2.0)
    registry = scrape(guard)
    client = openai.OpenAI(base_url=f"{sandbox}/v1", api_key="none")
    with guard, client:
        client.chat.completions.create(
            model="gpt-4o", messages=[{"role": "user", "content": "Hello!"}]
        )
    ours = {"scope": "127.0.0.1:gpt-4o"}
    assert registry.get_sample_value("paceline_requests_sent_total", ours) == 1
    assert (registry.get_sample_value("paceline_tokens_output_total", ours) or 0) > 0
    assert (registry.get_sample_value("paceline_cost_usd_total", ours) or 0) > 0


def test_opentelemetry_is_told_the_same() -> None:
    limiter = RateLimiter(clock=VirtualClock())
    limiter.set_limit("api.example.com", limit=1, window="10s")
    reader = InMemoryMetricReader()
    instrument(limiter, MeterProvider([reader]))
    for _ in range(3):
        with limiter.acquire("api.example.com"):
            pass
    data = reader.get_metrics_data()
    assert data is not None
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    values = {it.name: [point.value for point in it.data.data_points] for it in metrics}  # type: ignore[union-attr]
    assert values["paceline.requests.sent"] == [3]
    assert values["paceline.requests.delayed"] == [2]
    assert values["paceline.wait.seconds"] == [20]
    assert values["paceline.limit.utilization"] == [1]


def test_long_waits_are_logged_once_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "paceline")
    limiter = RateLimiter(clock=VirtualClock())
    limiter.set_limit("api.example.com", limit=1, window="5s")
    limiter.set_limit("slow.example.com", limit=1, window="1h")
    for _ in range(2):
        with limiter.acquire("api.example.com"):
            pass
        with limiter.acquire("slow.example.com"):
            pass
    said = [(record.levelname, record.message) for record in caplog.records]
    assert said == [
        ("INFO", "https://api.example.com: waiting 5.0 s for 1/5s"),
        ("WARNING", "https://slow.example.com: waiting 3595.0 s for 1/1h"),
    ]

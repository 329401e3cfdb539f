"""A storage is watched, live and by Prometheus: what is shown is what the workers sent."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from paceline import RateLimiter
from paceline.prometheus import Collector
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = [sys.executable, "-m", "paceline"]
WORKERS = 4
REQUESTS = 60
WORKER = f"""
import sys
from concurrent.futures import ThreadPoolExecutor
from paceline import RateLimiter

limiter = RateLimiter(sys.argv[1])
with ThreadPoolExecutor(4) as pool:
    list(pool.map(lambda _: limiter.request("GET", sys.argv[2]), range({REQUESTS})))
limiter.flush()
"""


@pytest.fixture
def redis() -> Iterator[str]:
    server = RedisServer().start()
    yield f"{server.url}/0"
    server.close()


def workers(storage: str, url: str) -> list[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", WORKER, storage, url]
    return [subprocess.Popen(command) for _ in range(WORKERS)]


@pytest.mark.parametrize("sandbox", [("--limit=100/1s",)], indirect=True)
def test_top_shows_what_four_workers_do(redis: str, sandbox: str) -> None:
    assert shutil.which("tmux"), "there is no tmux: run make test"
    limiter = RateLimiter(redis)
    limiter.set_limit(sandbox, limit=30, window="1s")
    session = f"paceline-{redis.rsplit(':', 1)[-1].partition('/')[0]}"
    tmux = ["tmux", "-L", session]
    top = " ".join([*COMMAND, "top", "--storage", redis])
    subprocess.run([*tmux, "new-session", "-d", "-x", "140", "-y", "12", top], check=True)
    try:
        working = workers(redis, sandbox)
        seen = []
        while any(worker.poll() is None for worker in working):
            pane = subprocess.run([*tmux, "capture-pane", "-p"], check=True, stdout=subprocess.PIPE)
            seen.append(pane.stdout.decode())
        subprocess.run([*tmux, "send-keys", "q"], check=True)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
    rows = [re.search(rf"{sandbox} +30/1s.* +([\d.]+)/s +([\d.]+) +0/m +0/m", it) for it in seen]
    # By now what went at once in the beginning is longer ago than what rates are taken of.
    rate, waiting = map(float, next(filter(None, reversed(rows))).groups())
    assert rate == pytest.approx(30, rel=0.25)
    # Four workers of four threads each; one or two of them are under way.
    assert waiting == pytest.approx(15, rel=0.35)
    assert " 0 \N{MULTIPLICATION SIGN} 429 a minute" in seen[-1]
    ((_, _, tally),) = limiter.usage()
    assert (
        tally["sent"] == WORKERS * REQUESTS == httpx.get(f"{sandbox}/_sandbox").json()["admitted"]
    )


def families(text: str) -> dict[str, Any]:
    parse: Any = text_string_to_metric_families
    return {family.name: family for family in parse(text)}


@pytest.mark.parametrize("sandbox", [("--limit=100/1s",)], indirect=True)
def test_prometheus_is_told_what_the_sandbox_counted(redis: str, sandbox: str) -> None:
    RateLimiter(redis).set_limit(sandbox, limit=80, window="1s")
    command = [*COMMAND, "serve", "--metrics", "--storage", redis, "--port", "0", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        serving.stdout.readline()
        url = serving.stdout.readline().rsplit(" ", 1)[-1].strip()
        try:
            working = workers(redis, sandbox)
            # Under load, too, what is told can be read.
            assert "paceline_limit_units" in families(httpx.get(url).text)
            assert [worker.wait() for worker in working] == [0] * WORKERS
            told = families(httpx.get(url).text)
        finally:
            serving.terminate()
    counted = httpx.get(f"{sandbox}/_sandbox").json()
    (sent,) = told["paceline_requests_sent"].samples
    (rejected,) = told["paceline_requests_rejected"].samples
    assert sent.labels == {"scope": sandbox}
    assert sent.value == counted["admitted"] + counted["refused"] == WORKERS * REQUESTS
    assert rejected.value == counted["refused"]
    units = {it.labels["window"]: it.value for it in told["paceline_limit_units"].samples}
    assert units["1s"] == 80


def test_the_dashboard_asks_for_what_is_exported(redis: str) -> None:
    dashboard = Path(__file__).parents[2] / "dashboards" / "paceline.json"
    queries = [
        target["expr"]
        for panel in json.loads(dashboard.read_text(encoding="utf-8"))["panels"]
        for target in panel["targets"]
    ]
    asked = {name for query in queries for name in re.findall(r"paceline_\w+", query)}
    limiter = RateLimiter()
    limiter.set_limit("api.example.com", limit=5)
    registry = CollectorRegistry()
    registry.register(Collector(limiter))
    with limiter.acquire("api.example.com"):
        pass
    by_process = {sample.name for family in registry.collect() for sample in family.samples}
    shared = RateLimiter(redis)
    shared.set_limit("api.example.com", limit=5)
    with shared.acquire("api.example.com"):
        pass
    shared.flush()
    command = [*COMMAND, "serve", "--metrics", "--storage", redis, "--port", "0", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        serving.stdout.readline()
        url = serving.stdout.readline().rsplit(" ", 1)[-1].strip()
        text = httpx.get(url).text
        serving.terminate()
    by_store = {sample.name for family in families(text).values() for sample in family.samples}
    assert len(asked) >= 10
    assert asked <= by_process
    assert asked <= by_store

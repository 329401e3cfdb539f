"""Settings from a file: what it says is what is lived by."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import paceline
import pytest
from paceline import AsyncRateLimiter, RateLimiter, RetryConfig, RetryStrategy
from paceline.testing import VirtualClock

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """
max_wait = "5s"
learn_first = true
default_limits = ["100/1s"]

[retry]
max_retries = 7
strategy = "linear"

[[scope]]
endpoint = "api.example.com"
limits = ["10/1m"]

[[provider]]
hosts = ["api.internal"]
requests = { limit = "X-L", remaining = "X-R", window = "1h" }

[[rule]]
model = "gpt-4o"
requests_per_minute = 7
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "paceline.toml"
    file.write_text(TEXT, encoding="utf-8")
    return file


def left(limiter: RateLimiter | AsyncRateLimiter, endpoint: str = "api.example.com") -> int:
    status = limiter.get_status(endpoint)
    assert status is not None
    return status.remaining


def test_a_limiter_lives_by_its_file(file: Path) -> None:
    limiter = RateLimiter(config=file, clock=VirtualClock())
    assert limiter.retry == RetryConfig(max_retries=7, strategy=RetryStrategy.LINEAR)
    assert limiter.max_wait == 5
    for _ in range(10):
        limiter.acquire("api.example.com")
    with pytest.raises(paceline.RateLimitExceeded):
        limiter.acquire("api.example.com")
    with limiter.acquire("api.internal") as permit:
        permit.observe(200, [("X-L", "50"), ("X-R", "20")], "https://api.internal/")
    assert left(limiter, "api.internal") == 20


def test_what_is_said_in_code_wins(file: Path) -> None:
    limiter = RateLimiter(config=str(file), max_wait=9, retry=RetryConfig(max_retries=1))
    assert (limiter.max_wait, limiter.retry.max_retries) == (9, 1)


def test_reloading_keeps_what_was_used(file: Path) -> None:
    limiter = AsyncRateLimiter(config=file, clock=VirtualClock())

    async def use() -> None:
        for _ in range(4):
            async with limiter.acquire("api.example.com"):
                pass

    asyncio.run(use())
    file.write_text(TEXT.replace("10/1m", "20/1m"), encoding="utf-8")
    limiter.reload()
    assert left(limiter) == 16
    file.write_text(TEXT.replace("10/1m", "oops"), encoding="utf-8")
    with pytest.raises(ValueError, match=r"line 12: bad limit \"oops\"; expected"):
        limiter.reload()
    assert left(limiter) == 16


def test_a_guard_takes_its_rules_from_a_file(file: Path) -> None:
    guard = paceline.Guard(config=file)
    assert guard.rate_limit_for("openai", "gpt-4o")["requests_per_minute"] == 7
    file.write_text(TEXT.replace("= 7", "= 9"), encoding="utf-8")
    guard.reload()
    assert guard.rate_limit_for("openai", "gpt-4o")["requests_per_minute"] == 9
    file.write_text(TEXT.partition("[[rule]]")[0], encoding="utf-8")
    guard.reload()
    assert guard.rate_limit_for("openai", "gpt-4o")["requests_per_minute"] == 500


def test_the_file_is_found_by_its_name(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert RateLimiter(config=True).max_wait == 5
    other = tmp_path / "other.toml"
    other.write_text("max_wait = 8", encoding="utf-8")
    monkeypatch.setenv("PACELINE_CONFIG", str(other))
    assert RateLimiter(config=True).max_wait == 8
    monkeypatch.delenv("PACELINE_CONFIG")
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"no paceline\.toml"):
        RateLimiter(config=True)
    with pytest.raises(OSError, match="cannot read"):
        RateLimiter(config=file)
    with pytest.raises(ValueError, match="no config was given"):
        RateLimiter().reload()

"""Paces outgoing API calls so that the provider never has a reason to answer 429.

>>> from paceline import RateLimiter
>>> limiter = RateLimiter()
>>> limiter.set_limit("api.example.com", limit=60, window="1m")
>>> with limiter.acquire("api.example.com", cost={"tokens": 1500}) as permit:
...     permit.settle(tokens=842)  # any work, not only HTTP
>>> limiter.get_status("api.example.com").remaining
59
"""

from paceline._flow import spending
from paceline._native import Paced, Permit
from paceline.detection import DetectedLimit, Detection, detect
from paceline.errors import RateLimitExceeded, StorageUnavailable
from paceline.limiter import AsyncRateLimiter, RateLimiter
from paceline.llm import (
    Guard,
    ModelStats,
    bypass,
    bypass_cache,
    get_guard,
    install,
    is_installed,
    stats,
    uninstall,
    unwrap,
    wrap,
)
from paceline.llm.errors import RateLimited, UnknownPrice
from paceline.retry import RetryConfig, RetryStrategy
from paceline.simulation import simulate
from paceline.status import DimensionStatus, Explanation, RateLimitStatus

__all__ = [
    "AsyncRateLimiter",
    "DetectedLimit",
    "Detection",
    "DimensionStatus",
    "Explanation",
    "Guard",
    "ModelStats",
    "Paced",
    "Permit",
    "RateLimitExceeded",
    "RateLimitStatus",
    "RateLimited",
    "RateLimiter",
    "RetryConfig",
    "RetryStrategy",
    "StorageUnavailable",
    "UnknownPrice",
    "bypass",
    "bypass_cache",
    "detect",
    "get_guard",
    "install",
    "is_installed",
    "simulate",
    "spending",
    "stats",
    "uninstall",
    "unwrap",
    "wrap",
]

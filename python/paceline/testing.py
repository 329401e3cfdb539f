"""Time for tests: an hour of traffic in milliseconds.

>>> from paceline import RateLimiter
>>> from paceline.testing import VirtualClock
>>> clock = VirtualClock()
>>> limiter = RateLimiter(clock=clock)
>>> limiter.set_limit("api.example.com", limit=1, window="1h")
>>> for _ in range(3):
...     permit = limiter.acquire("api.example.com")  # a wait moves the clock instead
>>> clock.now
7200.0
"""

from paceline._native import VirtualClock

__all__ = ["VirtualClock"]

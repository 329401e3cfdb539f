"""A web service on an API that allows fifty calls an hour, whichever worker makes them.

`examples/gunicorn_preload.py` serves it and counts.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from paceline import RateLimiter

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

API = "api.example.com"

# With `--preload` this runs once, in the parent of all workers.
limiter = RateLimiter(storage="sqlite:///limits.db")
limiter.set_limit(API, limit=50, window="1h")

with limiter.acquire(API):
    pass  # What the service needs once would be fetched here, before the workers are forked.


def app(_environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
    """Call the API if it may be called now; else say when to come again."""
    permit = limiter.try_acquire(API)
    if permit is None:
        again = math.ceil(limiter.wait_time(API))
        start_response("503 Service Unavailable", [("Retry-After", str(again))])
        return []
    with permit:  # The call would be made in this block.
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"worker {os.getpid()}".encode()]

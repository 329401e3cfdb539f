"""A task module whose workers share one limit: fifty calls a second in all.

It runs without Celery, under `examples/celery_workers.py`. In a Celery app it is `tasks.py`, with

* `app = Celery("tasks", broker=...)` above the limiter,
* `@app.task` above `fetch`, which is then called with `fetch.delay(item)`, and
* `celery --app tasks worker --concurrency 4` as often and on as many machines as you like. With
  workers on several machines, the storage is Redis.

A task that waits keeps its worker busy. To hand it back instead, `acquire(API, max_wait=1)` raises
`RateLimitExceeded` as `error`, and a task with `bind=True` does
`raise self.retry(countdown=error.retry_after)`.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from paceline import RateLimiter

API = "celery-workers.example.com"
LIMIT = 50

# Each worker has its own limiter; what they share is the storage. Celery's default pool forks after
# it has imported this, which is as good.
limiter = RateLimiter(storage=os.environ["STORAGE"])
limiter.set_limit(API, limit=LIMIT, window="1s")


class Done(NamedTuple):
    """What became of a task; the instants are those of the machine's monotonic clock."""

    item: int
    worker: int
    taken: float
    granted: float


def fetch(item: int) -> Done:
    """Call the API, when it is time to."""
    taken = time.monotonic()
    with limiter.acquire(API):  # The call would be made in this block.
        return Done(item, os.getpid(), taken, time.monotonic())

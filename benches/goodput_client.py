"""A client of `goodput.py`: one process whose threads share one limiter, ours or a peer's.

Told on the command line, in JSON, who it is and whom it calls. Says `ready`, waits for a line,
sends for as long as told, and prints in JSON what became of each call.
"""

# ruff: noqa: PLC0415 - each process imports only whom it plays
from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import requests
import requests.adapters

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], requests.Response]
    Job = dict[str, Any]

LIMIT, WINDOW = 100, 2


def session() -> requests.Session:
    """As many connections as there are threads, and none of the environment's proxies."""
    made = requests.Session()
    made.trust_env = False
    made.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=64))
    return made


def ours(job: Job) -> Call:
    import paceline

    known = inspect.signature(paceline.RateLimiter.__init__).parameters
    settings = dict(job.get("settings", {}))
    if "learn_first" in known:
        settings["learn_first"] = True
    limiter = paceline.RateLimiter(storage=job["storage"], **settings)
    if job.get("limit"):
        limiter.set_limit(job["url"], **job["limit"])
    wrapped = limiter.wrap_session(session())
    return lambda: wrapped.get(job["url"])


def smartratelimit(job: Job) -> Call:
    import smartratelimit

    limiter = smartratelimit.RateLimiter(storage=job["storage"])
    wrapped = session()
    limiter.wrap_session(wrapped)
    return lambda: wrapped.get(job["url"])


def pyrate_limiter(job: Job) -> Call:
    import pyrate_limiter

    rates = [pyrate_limiter.Rate(LIMIT, pyrate_limiter.Duration.SECOND * WINDOW)]
    bucket: Any = pyrate_limiter.InMemoryBucket(rates)
    if job["storage"] != "memory":
        import redis

        bucket = pyrate_limiter.RedisBucket.init(rates, redis.from_url(job["storage"]), "goodput")
    limiter = pyrate_limiter.Limiter(bucket)
    plain = session()

    def call() -> requests.Response:
        limiter.try_acquire("goodput")
        return plain.get(job["url"])

    return call


def limits(job: Job) -> Call:
    import limits

    in_memory = job["storage"] == "memory"
    storage = limits.storage.storage_from_string("memory://" if in_memory else job["storage"])
    moving = limits.strategies.MovingWindowRateLimiter(storage)
    rate = limits.RateLimitItemPerSecond(LIMIT, WINDOW)
    plain = session()

    def call() -> requests.Response:
        # It only says no; waiting until what it calls the reset is up to its caller.
        while not moving.hit(rate, "goodput"):
            left = moving.get_window_stats(rate, "goodput").reset_time - time.time()  # noqa: TID251
            time.sleep(max(left, 0.001))  # noqa: TID251 - a peer's way to wait
        return plain.get(job["url"])

    return call


CONTENDERS: dict[str, Callable[[Job], Call]] = {
    "ours": ours,
    "smartratelimit": smartratelimit,
    "pyrate-limiter": pyrate_limiter,
    "limits": limits,
}


class Record:
    """What became of the calls."""

    def __init__(self, seconds: float) -> None:
        """Begin now."""
        self.began = time.monotonic()
        self.ends = self.began + seconds
        #: When each call began, how long it took, and its status.
        self.calls: list[tuple[float, float, int]] = []
        self.errors: list[str] = []

    def make(self, call: Call) -> None:
        """Make one call."""
        start = time.monotonic()
        try:
            status = call().status_code
        except Exception as error:  # noqa: BLE001 - whatever it is, the row shows it
            self.errors.append(repr(error))
        else:
            self.calls.append((start - self.began, time.monotonic() - start, status))

    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.ends


def on_threads(job: Job, call: Call) -> Record:
    record = Record(job["seconds"])

    def work() -> None:
        while not record.is_over():
            record.make(call)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(job["threads"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, record.ends + job["patience"] - time.monotonic()))
    stuck = sum(thread.is_alive() for thread in threads)
    if stuck:
        record.errors.append(f"{stuck} threads still waited {job['patience']} s after the end")
    return record


async def in_tasks(job: Job) -> Record:
    """Send from a thread per task: aiolimiter, which waits in an event loop, paces the tasks."""
    import aiolimiter

    # Its documentation: a rate of one spaces calls evenly, without a burst.
    limiter = aiolimiter.AsyncLimiter(1, WINDOW / LIMIT)
    plain = session()
    record = Record(job["seconds"])

    async def work() -> None:
        while not record.is_over():
            async with limiter:
                pass
            await asyncio.to_thread(record.make, lambda: plain.get(job["url"]))

    await asyncio.gather(*(work() for _ in range(job["threads"])))
    return record


def main() -> None:
    job: Job = json.loads(sys.argv[1])
    made = CONTENDERS[job["who"]](job) if job["who"] in CONTENDERS else None
    print("ready", flush=True)
    sys.stdin.readline()
    record = on_threads(job, made) if made else asyncio.run(in_tasks(job))
    print(json.dumps({"calls": record.calls, "errors": record.errors}), flush=True)
    # Threads that still wait are of no interest any more.
    os._exit(0)


if __name__ == "__main__":
    main()

"""The rows of `make bench` about limits that processes share: in a file and in Redis.

Prints one JSON object a line, a row each, for `run.py`. Starts a Redis of its own. Here a larger
ratio is better: charges in a second, ours over the peer's. This very file, run with `worker` as its
first word, is one process of several.
"""

# ruff: noqa: SLF001 - some peers have no public call for what is compared
from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import paceline
import smartratelimit
import throttled

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python" / "tests"))
from servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Row = dict[str, Any]
    #: Charges in a second, the 99th percentile in seconds, and what each took or when it was.
    Told = tuple[float, float, list[float]]

HOST = "api.example.com"
URL = f"https://{HOST}/v1/items"
LIMIT = 10**9
#: An endpoint whose limit is smaller than what could be sent.
SCARCE = "scarce.example.com"
ROUNDS = 3
SECONDS = 1.0


def row(name: str, ours: float, peer: float | None, unit: str, least: float, **more: Any) -> Row:
    ratio = ours / peer if peer else None
    made = {
        "row": name,
        "ours": ours,
        "peer": peer,
        "peer_name": "smartratelimit" if peer else None,
        "unit": unit,
        "ratio": ratio,
        "goal": f"≥ {least} ×",  # noqa: RUF001
        "ok": ratio is not None and ratio >= least,
    }
    return made | more


def ours(storage: str, **settings: Any) -> Callable[[], object]:
    limiter = paceline.RateLimiter(storage, **settings)
    limiter.set_limit(HOST, limit=LIMIT, window="1d")
    return lambda: limiter.try_acquire(HOST)


def smart(storage: str) -> Callable[[], object]:
    limiter = smartratelimit.RateLimiter(storage=storage, use_provider_profiles=False)
    limiter.set_limit(HOST, limit=LIMIT, window="1d")
    known = limiter._resolve_limit(URL)
    return lambda: limiter._acquire_limit(known)


def throttle(storage: str) -> Callable[[], object]:
    limiter = throttled.Throttled(
        using=throttled.RateLimiterType.GCRA.value,
        quota=throttled.per_day(LIMIT, burst=LIMIT),
        store=throttled.RedisStore(server=storage),
    )
    return lambda: limiter.limit(HOST)


LIBRARIES: dict[str, Callable[[str], Callable[[], object]]] = {
    "ours": ours,
    "smartratelimit": smart,
    "throttled-py": throttle,
}


def steadily(charge: Callable[[], object], seconds: float) -> tuple[float, list[float]]:
    """Charge as often as can be; charges in a second, and the seconds that each took."""
    took = []
    start = last = time.perf_counter()
    while last - start < seconds:
        charge()
        now = time.perf_counter()
        took.append(now - last)
        last = now
    return len(took) / (last - start), took


def tasks(storage: str, seconds: float, count: int = 32) -> tuple[float, list[float]]:
    """Charge from as many tasks of one event loop."""
    took: list[float] = []

    async def main() -> float:
        limiter = paceline.AsyncRateLimiter(storage)
        limiter.set_limit(HOST, limit=LIMIT, window="1d")
        start = time.perf_counter()

        async def one() -> None:
            last = start
            while last - start < seconds:
                await limiter.acquire(HOST)
                now = time.perf_counter()
                took.append(now - last)
                last = now

        await asyncio.gather(*(one() for _ in range(count)))
        return time.perf_counter() - start

    elapsed = asyncio.run(main())
    return len(took) / elapsed, took


def leased(storage: str, seconds: float) -> tuple[float, list[float]]:
    """Use a limit that is smaller than what one could send, and take it in leases."""
    limiter = paceline.RateLimiter(storage, lease=0.1)
    end = time.perf_counter() + seconds
    granted = []
    while time.perf_counter() < end:
        limiter.acquire(SCARCE)
        granted.append(time.time())  # noqa: TID251 - compared between processes
    return len(granted) / seconds, granted


def worker(library: str, storage: str) -> None:
    """Be one process of several."""
    charge = LIBRARIES[library](storage) if library in LIBRARIES else None
    if charge is not None:
        charge()
    print("ready", flush=True)
    sys.stdin.readline()
    if charge is not None:
        charges, took = steadily(charge, SECONDS)
    elif library == "leases":
        charges, took = leased(storage, 3 * SECONDS)
    else:
        charges, took = tasks(storage, SECONDS)
    took.sort()
    print(json.dumps([charges, took[len(took) * 99 // 100], took if charge is None else []]))


class Worker:
    """A process that waits until it is told to go."""

    def __init__(self, library: str, storage: str) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, __file__, "worker", library, storage],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_until_ready(self) -> None:
        """Wait until it is connected."""
        cast("IO[str]", self._process.stdout).readline()

    def go(self) -> None:
        """Tell it to go."""
        stream = cast("IO[str]", self._process.stdin)
        stream.write("go\n")
        stream.flush()

    def told(self) -> Told:
        """Wait for what it found."""
        charges, slowest, each = json.loads(self._process.communicate()[0])
        return charges, slowest, each


def together(library: str, storage: str, count: int = 4) -> list[Told]:
    """Run several processes at once: charges in a second, 99th percentile, and what each took."""
    workers = [Worker(library, storage) for _ in range(count)]
    for one in workers:
        one.wait_until_ready()
    for one in workers:
        one.go()
    # All are read at once, or those whose pipes are full would wait.
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(Worker.told, workers))


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(it[name] for it in rounds) for name in rounds[0]}


def alone(storages: dict[str, str]) -> dict[str, float]:
    charges = {name: LIBRARIES[name](storage) for name, storage in storages.items()}
    rounds = [
        {name: steadily(charge, SECONDS)[0] for name, charge in charges.items()}
        for _ in range(ROUNDS)
    ]
    return medians(rounds)


def sqlite() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        storages = {name: f"sqlite:///{folder}/{name}.db" for name in ("ours", "smartratelimit")}
        one = alone(storages)
        yield row("SQLite, 1 process", one["ours"], one["smartratelimit"], "charges/s", 40)
        told = {name: together(name, storage) for name, storage in storages.items()}
        total = {name: sum(it[0] for it in each) for name, each in told.items()}
        mine = told["ours"]
        name = "SQLite, 4 processes on one file"
        yield row(name, total["ours"], total["smartratelimit"], "charges/s", 15)
        slowest = max(it[1] for it in mine) * 1e3
        theirs = max(it[1] for it in told["smartratelimit"]) * 1e3
        limit = {"goal": "< 5 ms", "ok": slowest < 5}
        yield row(f"{name}, 99th percentile", slowest, theirs, "ms", 0, **limit)
        least = min(it[0] for it in mine) / (total["ours"] / 4)
        least_of = min(it[0] for it in told["smartratelimit"]) / (total["smartratelimit"] / 4)
        fair = {"goal": "≥ 0.5", "ok": least >= 0.5}
        yield row(f"{name}, least share of a fair one", least, least_of, "", 0, **fair)


class Counting:
    """A session of a server that counts a window and says so in headers, without an HTTP client."""

    def __init__(self) -> None:
        """Begin with a whole window."""
        self.status_code = 200
        self.left = LIMIT
        self.headers: dict[str, str] = {}
        self.reset = str(int(time.time()) + 3600)  # noqa: TID251 - as a server does

    def request(self, *_: str) -> Counting:
        """Count one more, and be the response, too."""
        self.left -= 1
        self.headers = {
            "Content-Type": "application/json",
            "X-RateLimit-Limit": str(LIMIT),
            "X-RateLimit-Remaining": str(self.left),
            "X-RateLimit-Reset": self.reset,
        }
        return self


def commands(redis: RedisServer) -> int:
    """Round trips so far: a script is one, whatever it does inside."""
    stats = redis.command("INFO", "commandstats").splitlines()
    inside = {"mget", "set", "get", "time", "del", "hget", "hset", "hmget", "expire", "pexpire"}
    calls = {
        line.split(":")[0].removeprefix("cmdstat_"): int(line.split("calls=")[1].split(",")[0])
        for line in stats
        if line.startswith("cmdstat_")
    }
    scripts = calls.get("evalsha", 0) + calls.get("eval", 0)
    ignored = {"info", "config|resetstat"} | (inside if scripts else set())
    return sum(count for name, count in calls.items() if name not in ignored)


def redis_request() -> Iterator[Row]:
    with RedisServer() as redis:
        limiter = paceline.RateLimiter(f"{redis.url}/1")
        peer = smartratelimit.RateLimiter(storage=f"{redis.url}/2", use_provider_profiles=False)
        mine, theirs = Counting(), Counting()

        def ours_request() -> None:
            with limiter.acquire(URL) as permit:
                response = mine.request("GET", URL)
                permit.observe(response.status_code, response.headers.items())

        callers = {
            "ours": ours_request,
            "smartratelimit": lambda: peer._request("GET", URL, theirs),
        }
        trips = {}
        for name, call in callers.items():
            call()
            redis.command("CONFIG", "RESETSTAT")
            for _ in range(100):
                call()
            trips[name] = commands(redis) / 100
        few = {"goal": "≤ 2", "ok": trips["ours"] <= 2}
        name = "Redis, commands for a request whose response has headers"
        yield row(name, trips["ours"], trips["smartratelimit"], "", 0, **few)
        rounds = [
            {name: steadily(call, SECONDS)[0] for name, call in callers.items()}
            for _ in range(ROUNDS)
        ]
        one = medians(rounds)
        name = "Redis, 1 caller, requests with headers"
        yield row(name, one["ours"], one["smartratelimit"], "requests/s", 10)


def redis_charges() -> Iterator[Row]:
    with RedisServer() as redis:
        names = ("ours", "smartratelimit", "throttled-py")
        storages = {name: f"{redis.url}/{at}" for at, name in enumerate(names)}
        one = alone(storages)
        for peer in names[1:]:
            name = f"Redis, 1 caller, beside {peer}"
            free = {"goal": None, "ok": True, "peer_name": peer}
            yield row(name, one["ours"], one[peer], "charges/s", 0, **free)
        mine = statistics.median(tasks(redis.url, SECONDS)[0] for _ in range(ROUNDS))
        theirs = one["smartratelimit"]
        yield row("Redis, 1 process, 32 callers", mine, theirs, "charges/s", 4)
        many = together("ours, 32 tasks", redis.url)
        peers = together("smartratelimit", storages["smartratelimit"])
        name = "Redis, 4 processes of 32 callers"
        yield row(name, sum(it[0] for it in many), sum(it[0] for it in peers), "charges/s", 2.4)


def redis_leases() -> Iterator[Row]:
    rate, count = 5_000, 4
    with RedisServer() as redis:
        paceline.RateLimiter(redis.url).set_limit(SCARCE, limit=rate, window="1s")
        redis.command("CONFIG", "RESETSTAT")
        told = together("leases", redis.url, count)
        sent = sorted(at for _, _, each in told for at in each)
        # After the first second the burst is used, and the last one is not whole.
        steady = [at for at in sent if sent[0] + 1 <= at < sent[0] + 2.5]
        used = len(steady) / (1.5 * rate)
        name = "Redis, leases, 4 processes at 5,000/s"
        goal = {"goal": "≥ 0.98", "ok": used >= 0.98}
        yield row(f"{name}, share of the limit used", used, None, "", 0, **goal)
        each = commands(redis) / len(sent)
        goal = {"goal": "≤ 0.05", "ok": each <= 0.05}
        yield row(f"{name}, commands per request", each, None, "", 0, **goal)
        ahead = [at - (when - sent[0]) * rate for at, when in enumerate(sent)]
        least, most = 0.0, 0.0
        for level in ahead:
            least = min(least, level)
            most = max(most, level - least + 1)
        goal = {"goal": f"≤ {rate:,}", "ok": most <= rate}
        yield row(f"{name}, most at once above the rate", most, None, "", 0, **goal)


async def _gap(limiter: paceline.AsyncRateLimiter | None, disturb: Callable[[], None]) -> float:
    """Measure the longest time for which the loop did not turn, in milliseconds."""
    longest = 0.0
    call = asyncio.ensure_future(limiter.acquire(HOST)) if limiter else None  # type: ignore[arg-type]
    await asyncio.sleep(0)  # noqa: TID251
    disturb()
    last = time.perf_counter()
    end = last + 0.6
    while last < end:
        await asyncio.sleep(0.001)  # noqa: TID251 - a loop that turns is what is measured
        if limiter is not None and call is not None and call.done():
            call = asyncio.ensure_future(limiter.acquire(HOST))  # type: ignore[arg-type]
        now = time.perf_counter()
        longest = max(longest, now - last)
        last = now
    if call is not None:
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    return longest * 1e3


def event_loop() -> Iterator[Row]:
    idle = asyncio.run(_gap(None, lambda: None))
    with RedisServer() as redis, tempfile.TemporaryDirectory() as folder:

        def pause() -> None:
            redis.pause()
            threading.Timer(0.4, redis.resume).start()

        async def paused() -> float:
            limiter = paceline.AsyncRateLimiter(redis.url)
            await limiter.acquire(HOST)
            return await _gap(limiter, pause)

        async def busy() -> float:
            limiter = paceline.AsyncRateLimiter(storage)
            limiter.set_limit(HOST, limit=LIMIT, window="1d")
            await limiter.acquire(HOST)
            return await _gap(limiter, lambda: None)

        goal = {"goal": "≤ idle + 5 ms", "peer_name": "an idle loop"}
        gap = asyncio.run(paused())
        name = "asyncio, longest gap while Redis is paused for 400 ms"
        yield row(name, gap, idle, "ms", 0, ok=gap <= idle + 5, **goal)
        storage = f"sqlite:///{folder}/busy.db"
        writer = Worker("ours", storage)
        writer.wait_until_ready()
        writer.go()
        gap = asyncio.run(busy())
        writer.told()
        name = "asyncio, longest gap while another process writes the file"
        yield row(name, gap, idle, "ms", 0, ok=gap <= idle + 5, **goal)


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "store sqlite": sqlite,
    "store redis request": redis_request,
    "store redis charges": redis_charges,
    "store redis leases": redis_leases,
    "store asyncio gap": event_loop,
}


def main(words: list[str]) -> None:
    if words[:1] == ["worker"]:
        worker(*words[1:])
        return
    for name, rows in ROWS.items():
        if not words or any(word in name for word in words):
            for made in rows():
                print(json.dumps(made, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

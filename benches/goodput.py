"""How well a limiter follows servers of every kind, ours beside the peers: `make goodput`.

For each kind of server: how many of its answers are 429s, and how much of what the server could
have admitted was admitted. The server is `paceline sandbox`, which counts by code that shares
nothing with our engine; both figures are taken from its own journal. Each row runs twice: 16
threads that share one limiter, and 4 processes of 4 threads that share one Redis.

Prints a table and writes `target/goodput.json`. With words on the command line only the rows run
whose name begins with one of them, and nothing is written; `--as-built` takes what the last run has
built.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import run

sys.path.insert(0, str(run.ROOT / "python" / "tests"))
from servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    Figures = dict[str, Any]

LIMIT, WINDOW = 100, 2
SECONDS = 20
#: Clients go on beyond the measured time, so that its end is no end for them.
BEYOND = 2
#: How long the last calls may take then.
PATIENCE = 12
SANDBOX = run.TARGET / "release" / "paceline"
#: Where the rows run: processes, and threads of each.
PLACES = ((1, 16), (4, 4))


@dataclass(frozen=True)
class Row:
    """A kind of server, who follows it, and how well ours should."""

    name: str
    #: How the sandbox counts, and how it tells.
    counts: str
    tells: tuple[str, ...]
    peers: tuple[str, ...]
    #: The most refusals per 1,000 admitted, and the least share of what could be admitted.
    refused: float
    share: float
    #: What our limiter is told beforehand.
    limit: dict[str, Any] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    #: Seconds before the measured time.
    warm_up: float = 0


#: At most one refusal in each window.
ONE_A_WINDOW = 1000 / LIMIT
SMART = ("smartratelimit",)
GITHUB = ("--headers=github",)
SILENT = ("--headers=none",)
RETRY = ("--headers=none", "--retry-after")
HALF = (*GITHUB, "--stranger=50%")
ROWS = [
    Row("a. fixed window, X-RateLimit-*, epoch", "fixed", GITHUB, SMART, 0, 0.97),
    Row("b. fixed window, IETF RateLimit", "fixed", ("--headers=ietf",), SMART, 0, 0.97),
    Row("c. bucket, OpenAI's durations", "bucket", ("--headers=openai",), SMART, 0, 0.97),
    Row("d. sliding window, X-RateLimit-*", "sliding", GITHUB, SMART, 0, 0.95),
    Row(
        "e. sliding window, nothing; strict",
        "sliding",
        SILENT,
        ("pyrate-limiter", "limits"),
        0,
        0.95,
        limit={"limit": LIMIT, "window": f"{WINDOW}s", "strict": True},
    ),
    Row(
        "f. GCRA without burst, nothing; burst=1",
        "gcra",
        SILENT,
        ("aiolimiter",),
        5,
        0.92,
        limit={"limit": LIMIT, "window": f"{WINDOW}s", "burst": 1},
    ),
    Row("g. fixed window, half a stranger's", "fixed", HALF, SMART, 5, 0.95),
    Row("h. fixed window, Retry-After on 429", "fixed", RETRY, SMART, ONE_A_WINDOW, 0.90),
    Row("h. bucket, Retry-After on 429", "bucket", RETRY, SMART, ONE_A_WINDOW, 0.90),
    Row(
        "i. hidden limit, nothing; adaptive",
        "bucket",
        SILENT,
        (),
        20,
        0.85,
        settings={"adaptive": True},
        warm_up=10 * WINDOW,
    ),
]


@contextlib.contextmanager
def sandbox(row: Row) -> Iterator[str]:
    command = [str(SANDBOX), "sandbox", "--port=0", "--json", f"--policy={row.counts}"]
    command += [f"--limit={LIMIT}/{WINDOW}s", *row.tells]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield json.loads((server.stdout or sys.stdin).readline())["url"]
        finally:
            server.terminate()


def measure(row: Row, who: str, processes: int, threads: int) -> Figures:
    """Run one contender against one server."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(sandbox(row))
        storage = "memory" if processes == 1 else stack.enter_context(RedisServer()).url
        job = {
            "who": who,
            "url": f"{url}/items",
            "storage": storage,
            "threads": threads,
            "seconds": row.warm_up + SECONDS + BEYOND,
            "patience": PATIENCE,
            "limit": row.limit,
            "settings": row.settings,
        }
        command = [str(run.PYTHON), str(run.BENCHES / "goodput_client.py"), json.dumps(job)]
        # What a peer logs of its retries.
        log = stack.enter_context((run.TARGET / "goodput.log").open("a"))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "text": True}
        clients = [subprocess.Popen(command, **pipes) for _ in range(processes)]
        for client in clients:
            client.stdout.readline()
        for client in clients:
            client.stdin.write("go\n")
            client.stdin.flush()
        told = [json.loads(client.communicate()[0]) for client in clients]
        with urllib.request.urlopen(f"{url}/_sandbox/journal") as answer:  # noqa: S310 - ours
            journal = json.load(answer)
    errors = [error for one in told for error in one["errors"]]
    if errors:
        print(f"  {who}: {len(errors)} errors, the first: {errors[0]}", file=sys.stderr)
    return figures(row, journal) | {
        "errors": errors,
        "given_up": sum(status == 429 for one in told for _, _, status in one["calls"]),
        "waits": [
            waited for one in told for start, waited, _ in one["calls"] if start > 2 * WINDOW
        ],
    }


def figures(row: Row, journal: list[dict[str, Any]]) -> Figures:
    """Take from the server's journal what was admitted and refused in the measured time."""
    if not journal:
        raise SystemExit("no client sent anything")
    first = journal[0]
    begin = first["at"] + row.warm_up
    if row.counts.startswith("fixed"):
        # Whole windows of the server: what is left of one is not everybody's fault.
        begin += first["standings"]["requests"]["reset_s"] - WINDOW
    end = begin + SECONDS
    within = [entry for entry in journal if begin <= entry["at"] < end]
    admitted = sum(entry["admitted"] for entry in within)
    refused = len(within) - admitted

    def strangers(entries: list[dict[str, Any]]) -> int:
        spent: int = entries[-1]["standings"]["requests"]["stranger"] if entries else 0
        return spent

    before = [entry for entry in journal if entry["at"] < begin]
    could = could_admit(row) - (strangers(within) - strangers(before))
    return {
        "admitted": admitted,
        "refused": refused,
        "could_admit": could,
        "refused_per_1000": 1000 * refused / admitted if admitted else math.inf,
        "share": admitted / could,
    }


def could_admit(row: Row) -> int:
    """Tell the most that the server admits in the measured time."""
    refilled = SECONDS * LIMIT // WINDOW
    # A bucket is full when the first request comes; later its depth is spent.
    burst = LIMIT if row.counts == "bucket" and not row.warm_up else 0
    return refilled + burst + (1 if row.counts == "gcra" else 0)


def knows(setting: str) -> bool:
    """Whether our limiter takes a setting."""
    code = f"import paceline; paceline.RateLimiter({setting}=True)"
    tried = subprocess.run([run.PYTHON, "-c", code], check=False, capture_output=True, text=True)
    if tried.returncode and "TypeError" not in tried.stderr:
        raise SystemExit(tried.stderr)
    return not tried.returncode


def measured(row: Row) -> Iterator[Figures]:
    unknown = [setting for setting in row.settings if not knows(setting)]
    if unknown:
        yield {"row": row.name, "skipped": f"RateLimiter takes no {', '.join(unknown)}"}
        return
    for processes, threads in PLACES:
        ours = measure(row, "ours", processes, threads)
        waits = ours.pop("waits")
        peers = {}
        for peer in row.peers:
            # It waits in one event loop and has no store.
            if peer == "aiolimiter" and processes > 1:
                continue
            peers[peer] = measure(row, peer, processes, threads)
            del peers[peer]["waits"]
        place = f"{processes} × {threads}"  # noqa: RUF001
        yield {
            "row": row.name,
            "where": place,
            "ours": ours,
            "peers": peers,
            "goal": {"refused_per_1000": row.refused, "share": row.share},
            "ok": ours["refused_per_1000"] <= row.refused
            and ours["share"] >= row.share
            and not ours["errors"],
        }
        if row is ROWS[0] and processes == 1:
            yield evenness(waits)


def evenness(waits: list[float]) -> Figures:
    """Make a row of how alike the calls of one limiter are treated."""
    cuts = statistics.quantiles(waits, n=100)
    p50, p99 = cuts[49], cuts[98]
    return {
        "row": "j. calls while paced, as in a: p99 of their time over p50",
        "where": "1 × 16",  # noqa: RUF001
        "ours": {"p50_s": p50, "p99_s": p99, "ratio": p99 / p50},
        "goal": {"ratio": 1.5},
        "ok": p99 <= 1.5 * p50,
    }


def cells(found: Figures) -> Iterator[list[str]]:
    """Lay a row out for the table, one line for ours and one for each peer."""
    if "skipped" in found:
        yield [found["row"], "", "", "", "", "", "", f"skipped: {found['skipped']}"]
        return
    mark = "yes" if found["ok"] else "NO"
    goal = found["goal"]
    if "ratio" in goal:
        ratio = f"{found['ours']['ratio']:.2f} ×"  # noqa: RUF001
        line = [found["row"], found["where"], "ours", "", "", ratio, f"≤ {goal['ratio']} ×", mark]  # noqa: RUF001
        yield line
        return
    for who, one in {"ours": found["ours"], **found["peers"]}.items():
        mine = who == "ours"
        errors = f"{len(one['errors'])} errors: {one['errors'][0]}" if one["errors"] else ""
        yield [
            found["row"] if mine else "",
            found["where"] if mine else "",
            who,
            f"{one['refused_per_1000']:.1f}",
            f"≤ {goal['refused_per_1000']:g}" if mine else "",
            f"{one['share']:.1%}",
            f"≥ {goal['share']:.0%}" if mine else "",
            f"{mark if mine else ''} {errors}".strip(),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="what the names of the rows to run begin with")
    parser.add_argument("--as-built", action="store_true", help="build and install nothing")
    options = parser.parse_args()
    if not options.as_built:
        run.do("cargo", "build", "--release", "--locked", "--bin", "paceline")
        run.environment()
    words = tuple(options.words)
    found: list[Figures] = []
    for row in ROWS:
        if not words or row.name.startswith(words):
            for figures in measured(row):
                print(json.dumps(figures, ensure_ascii=False), file=sys.stderr)
                found.append(figures)
    head = ["server counts by, tells", "where", "who", "429s/1,000", "goal", "admitted", "goal", ""]
    print(f"\n{run.table([head, *(line for figures in found for line in cells(figures))])}")
    missed = sum(not figures.get("ok", True) for figures in found)
    print(f"\n{len(found)} rows; goals not reached: {missed}")
    if not words:
        report = run.TARGET / "goodput.json"
        report.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"written to {report}")


if __name__ == "__main__":
    main()

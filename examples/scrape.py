"""Fetch many pages of an API that allows ten requests a second, from a few threads.

Runs against a sandbox of its own: `paceline sandbox` enforces the limit and counts.
"""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from paceline import RateLimiter

command = [sys.executable, "-m", "paceline", "sandbox", "--limit", "10/1s", "--headers", "github"]
with subprocess.Popen(  # noqa: S603
    [*command, "--port", "0"], stdout=subprocess.PIPE, text=True
) as server:
    if server.stdout is None or not (found := re.search(r"http://\S+", server.stdout.readline())):
        sys.exit("the sandbox did not start")
    url = found[0]

    limiter = RateLimiter()
    limiter.set_limit(url, limit=10, window="1s")
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda page: limiter.request("GET", f"{url}/pages/{page}"), range(25))
        )

    status = limiter.get_status(url)
    print("statuses:", sorted({answer.status_code for answer in answers}))
    print("left in this window:", status.remaining if status else "unknown")
    server.terminate()

if any(answer.status_code != 200 for answer in answers):  # noqa: PLR2004
    sys.exit("the limit was overrun")

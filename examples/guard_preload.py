"""Guard LLM calls in the workers of `gunicorn --preload`: threads and event loops, one budget.

The parent installs the guard of `apps/guard_app.py`. Whichever of its four workers is asked, and
whether it calls on a thread or in an event loop of its own: the provider, here `paceline sandbox`,
never has a reason to answer 429.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

WORKERS = 4
REQUESTS = 120

provider = [sys.executable, "-m", "paceline", "sandbox", "--port=0", "--json"]
provider += ["--limit", "40/1s", "--headers", "openai"]
command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", str(WORKERS)]
command += ["--threads", "4", "--bind", "127.0.0.1:0", "--no-control-socket"]
command += ["--pythonpath", str(Path(__file__).parent.resolve()), "apps.guard_app:app"]


def serve(url: str, folder: Path) -> tuple[list[requests.Response], str]:
    """Serve the app, ask it, and give its answers and its log."""
    known = os.environ | {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none"}
    with subprocess.Popen(  # noqa: S603
        command, cwd=folder, env=known, stderr=subprocess.PIPE, text=True
    ) as server:
        log, workers = "", 0
        for line in server.stderr or ():
            log += line
            workers += "Booting worker" in line
            if workers == WORKERS:
                break
        try:
            if not (found := re.search(r"http://\S+", log)):
                sys.exit(f"gunicorn did not start:\n{log}")
            asked = [f"{found[0]}/{('thread', 'loop')[it % 2]}" for it in range(REQUESTS)]
            with ThreadPoolExecutor(16) as pool:
                return list(pool.map(lambda it: requests.get(it, timeout=60), asked)), log
        finally:
            server.terminate()


with (
    tempfile.TemporaryDirectory() as folder,
    subprocess.Popen(provider, stdout=subprocess.PIPE, text=True) as sandbox,  # noqa: S603
):
    try:
        url = json.loads(sandbox.stdout.readline() if sandbox.stdout else "{}")["url"]
        answers, log = serve(url, Path(folder))
        report = requests.get(f"{url}/_sandbox", timeout=5).json()
    finally:
        sandbox.terminate()

statuses = Counter(answer.status_code for answer in answers)
by = Counter(answer.text for answer in answers if answer.ok)
print("statuses:", dict(statuses))
print("answered by:", dict(by))
print(f"the provider admitted {report['admitted']} and refused {report['refused']}")

if statuses != {200: REQUESTS} or report["refused"] > 0:
    sys.exit(f"expected {REQUESTS} answers and no 429\n{log}")
if len(by) == 1:
    sys.exit("one worker answered all, so nothing was shared")

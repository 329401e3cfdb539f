"""Share one limit between the workers of `gunicorn --preload`: a fork after use is safe.

The parent makes the limiter of `apps/gunicorn_app.py` and takes one of its fifty calls. However
many requests come then, its four workers make the other 49 in all, and refuse the rest.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

WORKERS = 4
REQUESTS = 200
LEFT = 49

command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", str(WORKERS)]
# Port 0 is a free one. The control socket would be made in the home directory.
command += ["--bind", "127.0.0.1:0", "--no-control-socket"]
command += ["--pythonpath", str(Path(__file__).parent.resolve()), "apps.gunicorn_app:app"]

with (
    # The app keeps its limits in the directory in which it is started.
    tempfile.TemporaryDirectory() as folder,
    subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server,  # noqa: S603
):
    log, workers = "", 0
    for line in server.stderr or ():
        log += line
        workers += "Booting worker" in line
        if workers == WORKERS:  # Else the first might be done before the others are there.
            break
    if not (found := re.search(r"http://\S+", log)):
        sys.exit(f"gunicorn did not start:\n{log}")
    url = found[0]

    try:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: requests.get(url, timeout=30), range(REQUESTS)))
    finally:
        server.terminate()
        log += server.stderr.read() if server.stderr else ""

statuses = Counter(answer.status_code for answer in answers)
granted = Counter(answer.text for answer in answers if answer.ok)
print("statuses:", dict(statuses))
print("granted by:", dict(granted))

if statuses != {200: LEFT, 503: REQUESTS - LEFT}:
    sys.exit(f"expected {LEFT} calls in all\n{log}")
if len(granted) == 1:
    sys.exit("one worker made all calls, so nothing was shared")

"""The command that comes with the wheel: the same Rust code as the cargo-built binary."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from paceline import RateLimiter

if TYPE_CHECKING:
    from collections.abc import Generator

PACELINE = [str(Path(sys.executable).with_name("paceline"))]


@pytest.fixture
def sandbox() -> Generator[str]:
    command = [*PACELINE, "sandbox", "--port", "0", "--limit", "5/100ms", "--policy", "sliding"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        match = re.search(r"http://\S+", process.stdout.readline())
        assert match
        yield match[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


def test_the_command_tells_its_version_and_its_help() -> None:
    version = subprocess.run([*PACELINE, "--version"], check=True, capture_output=True, text=True)
    assert re.fullmatch(r"paceline \d+\.\d+\.\d+\n", version.stdout)
    usage = subprocess.run([*PACELINE, "batch", "--help"], check=True, capture_output=True)
    assert b"Exit status" in usage.stdout
    module = [sys.executable, "-m", "paceline", "nonsense"]
    assert subprocess.run(module, check=False, capture_output=True).returncode == 2


def test_a_batch_through_the_wheel(sandbox: str, tmp_path: Path) -> None:
    urls = tmp_path / "urls.txt"
    urls.write_text("".join(f"{sandbox}/{i}\n" for i in range(12)))
    out = tmp_path / "out.jsonl"
    command = [*PACELINE, "batch", "--limit", "5/100ms", "--strict", "--json"]
    run = subprocess.run([*command, "-o", out, urls], check=True, capture_output=True)
    assert json.loads(run.stdout)["rejected"] == 0
    assert len(out.read_text().splitlines()) == 12


def test_rule_7_a_strict_limit_is_never_refused_by_an_exact_window(sandbox: str) -> None:
    limiter = RateLimiter()
    # The server is told less than it allows, for what is sent in order may arrive closer together.
    limiter.set_limit(sandbox, limit=4, window="100ms", strict=True)
    statuses: list[int] = []

    def work() -> None:
        statuses.extend(limiter.request("GET", sandbox).status_code for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 20

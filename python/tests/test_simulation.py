"""What is foretold from Python is what the command foretells."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import paceline
import pytest

if TYPE_CHECKING:
    from pathlib import Path


def test_nineteen_minutes_of_tokens() -> None:
    outcome = paceline.simulate(rpm=4410, tpm=100_000, requests=1000, cost={"tokens": 2000})
    assert outcome.finished == 19 * 60
    assert outcome.binding == "tokens=100000/1m"
    assert [it.used for it in outcome.limits] == pytest.approx([0.011, 1.0], abs=1e-3)
    assert outcome.advice is not None
    assert outcome.advice.finished == 9 * 60


def test_everything_that_can_be_said_is_understood(tmp_path: Path) -> None:
    past = tmp_path / "past.jsonl"
    past.write_text('{"time": 5, "tokens": 3, "latency": 0.5}\n{"time": "1970-01-01T00:00:06Z"}\n')
    outcome = paceline.simulate(
        limits=["60/1m", "tokens=900/1m"],
        rpd=5000,
        keys=2,
        replay=past,
        workers=3,
        latency=0.25,
        jitter=0.01,
        max_wait=5,
        retries=1,
        server="fixed",
        server_limits=("50/1m",),
        tells="github",
        strangers=0.25,
        refusals_cost=True,
        seed=7,
        marks=9,
    )
    assert (outcome.requests, outcome.answered) == (2, 2)
    assert [mark.came for mark in outcome.marks] == [0.0, 1.0]
    assert len(outcome.timeline.slots[0].server_left) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"limits": ["often"]}, r"expected \[DIMENSION=\]N/WINDOW"),
        ({"requests": 0}, "requests must be from 1"),
        ({"burst": 5}, "--burst goes with"),
        ({"rpm": 5, "strict": True, "burst": 5}, "cannot be used with"),
        ({"server": "magic"}, "possible values: fixed"),
        ({"cost": {"no spaces": 1}}, "bad dimension"),
        ({"cost": {"tokens": -1}}, "bad cost"),
        ({"latency": -1}, "expected such as 50ms"),
        ({"replay": "/nowhere.jsonl"}, "cannot read /nowhere.jsonl"),
        ({"strangers": 2.0, "rpm": 5, "server": "fixed"}, "expected 0% to 100%"),
    ],
)
def test_what_makes_no_sense_is_said(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        paceline.simulate(**options)  # type: ignore[arg-type]
    assert "Usage" not in str(error.value)


def test_the_command_tells_the_same() -> None:
    said = ["--rpm", "60", "--requests", "300", "--arrivals", "poisson:90/1m", "--json"]
    command = [sys.executable, "-m", "paceline", "simulate", *said]
    told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    outcome = paceline.simulate(rpm=60, requests=300, arrivals="poisson:90/1m")
    assert told["finished"] == outcome.finished
    assert told["waits"]["p99"] == outcome.waits.p99

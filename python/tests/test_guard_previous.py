"""The majors of the SDKs before the current ones are guarded as well: rule 29."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PYTHON = TESTS.parents[1] / "target" / "previous_sdks" / "bin" / "python"


def test_rule_29_the_majors_before_are_guarded_too(sandbox: str) -> None:
    assert PYTHON.exists(), "they are not installed: run make test"
    ran = subprocess.run(
        [PYTHON, TESTS / "previous_sdks.py", sandbox],
        env=os.environ | {"PYTHONPATH": str(TESTS.parent)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    told = json.loads(ran.stdout)
    assert [it.partition(".")[0] for it in told["versions"]] == ["1", "0"]
    assert told["sent"] == {"gpt-4o": 4, "e": 1, "claude": 2}
    assert told["refused"]
    assert told["restored"]

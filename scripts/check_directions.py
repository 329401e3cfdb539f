"""Check that dependencies point one way only, and that the engine stays pure.

    core <- store <- paceline <- cli        py -> all of them

Run it from the root of the repository; it exits with 1 and says what is wrong.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

#: The rooms that each room may know.
ALLOWED = {
    "paceline-core": set(),
    "paceline-store": {"paceline-core"},
    "paceline": {"paceline-core", "paceline-store"},
    "paceline-cli": {"paceline-core", "paceline"},
    "paceline-py": {"paceline-core", "paceline-store", "paceline", "paceline-cli"},
    "paceline-bench": {"paceline-core", "paceline-store", "paceline"},
}
#: What lives in one room only.
HOMES = {
    "pyo3": {"paceline-py"},
    "tokio": {"paceline", "paceline-cli", "paceline-bench"},
    # The library knows clients as features only: nobody gets them who does not ask.
    "reqwest": {"paceline", "paceline-cli"},
    "reqwest-middleware": {"paceline"},
    "tower": {"paceline"},
    "axum": {"paceline-cli"},
    "quanta": {"paceline-store"},
    "redis": {"paceline-store"},
    "rusqlite": {"paceline-store"},
}
#: What the engine may stand on: parsers and containers, nothing that does anything.
PURE = {
    *("httpdate", "jiff", "memchr", "percent-encoding", "serde", "serde_json", "sfv"),
    *("smallvec", "thiserror", "tiktoken-rs", "url"),
}


def problems() -> list[str]:
    """Compare the workspace with the rules."""
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    packages = {package["name"]: package for package in metadata["packages"]}
    found = [f"{name}: no room of that name is known" for name in packages.keys() - ALLOWED.keys()]
    for name, package in packages.items():
        for dependency in package["dependencies"]:
            other, development = dependency["name"], dependency["kind"] == "dev"
            if other == name:  # turns on a feature for its own tests
                continue
            if other in packages and other not in ALLOWED.get(name, set()):
                found.append(f"{name} must not know {other}")
            if other in HOMES and name not in HOMES[other] and not development:
                found.append(f"{name} must not know {other}: it lives in {sorted(HOMES[other])}")
            if name == "paceline-core" and not development and other not in PURE:
                found.append(f"the engine must not stand on {other}")
    waits = re.compile(r"\basync\s+(fn|move|\{)|\.await\b")
    sources = Path("crates/paceline-core/src").rglob("*.rs")
    return found + [
        f"{it}: the engine is not async" for it in sources if waits.search(it.read_text())
    ]


if __name__ == "__main__":
    wrong = problems()
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(bool(wrong))

"""Runs every benchmark, prints one table and writes `target/bench.json`: `make bench`.

Builds the wheel and the Rust rows, installs the peers in a throw-away environment, and starts one
program after the other, each of which prints a row a line. With words on the command line only the
rows run whose name contains one of them, and nothing is written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    Row = dict[str, Any]

BENCHES = Path(__file__).resolve().parent
ROOT = BENCHES.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
ENVIRONMENT = TARGET / "bench-venv"
PYTHON = ENVIRONMENT / "bin" / "python"
WHEELS = TARGET / "bench-wheels"
#: What prints rows. To add some in another language or with another store, add its command.
SOURCES: list[list[str | Path]] = [
    [TARGET / "release" / "paceline-bench"],
    [PYTHON, BENCHES / "python.py"],
    [PYTHON, BENCHES / "stores.py"],
    [PYTHON, BENCHES / "guard.py"],
]
#: What a row of the report has; what else a program prints of it is for the table.
KEYS = ("row", "ours", "peer", "peer_name", "unit", "ratio", "goal", "ok")


def do(*command: str | Path) -> None:
    print("$", *command, file=sys.stderr)
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)


def prepare() -> None:
    """Build what is measured and install what it is compared with."""
    do("cargo", "build", "--release", "--bin", "paceline-bench", "--bin", "paceline")
    environment()


def environment() -> None:
    """Make the throw-away environment, with the peers and our own wheel in it."""
    venv.create(ENVIRONMENT, clear=True)
    # The pip that runs here installs there, so that none has to be unpacked first.
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", PYTHON, "install", "--quiet"]
    do(*pip, "--requirement", BENCHES / "requirements.txt")
    for old in WHEELS.glob("*.whl"):
        old.unlink()
    do(PYTHON, "-m", "maturin", "build", "--release", "--quiet", "--out", WHEELS)
    do(*pip, *WHEELS.glob("*.whl"))


def rows(words: list[str]) -> Iterator[Row]:
    for source in SOURCES:
        command = [*map(str, source), *words]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
            for line in program.stdout or ():
                row = json.loads(line)
                print(f"  {row['row']}", file=sys.stderr)
                yield row
        if program.returncode:
            message = f"{command[0]} failed with status {program.returncode}"
            raise SystemExit(message)


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(lines: list[list[str]]) -> str:
    """Align columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([text[0], "-" * max(map(len, text)), *text[1:]])


def figures(found: list[Row]) -> str:
    lines = [["row", "ours", "peer", "unit", "ratio", "goal", "", "peer's name"]]
    for row in found:
        mark = "" if row["goal"] is None else "yes" if row["ok"] else "NO"
        cells = [number(row["ours"]), number(row["peer"]), row["unit"], number(row["ratio"])]
        lines.append([row["row"], *cells, row["goal"] or "", mark, row["peer_name"] or ""])
    return table(lines)


def curves(found: list[Row]) -> str:
    """One line a curve, and one for the peer's."""
    sizes = sorted({row["at"] for row in found})
    lines = [["nanoseconds, over the number of", *(f"{size:,}" for size in sizes), "goal", ""]]
    for curve in dict.fromkeys(row["curve"] for row in found):
        points = {row["at"]: row for row in found if row["curve"] == curve}
        ends = list(points.values())[-1]
        ok = all(row["ok"] for row in points.values())
        mark = "" if ends["goal"] is None else "yes" if ok else "NO"
        ours = [number(points.get(size, {}).get("ours")) for size in sizes]
        lines.append([curve, *ours, ends["goal"] or "", mark])
        if ends["peer_name"]:
            peer = [number(points.get(size, {}).get("peer")) for size in sizes]
            lines.append([f"  {ends['peer_name']}", *peer, "", ""])
    return table(lines)


def main(words: list[str]) -> None:
    prepare()
    found = list(rows(words))
    points = [row for row in found if row.get("curve")]
    single = [row for row in found if not row.get("curve")]
    for part in (figures(single) if single else "", curves(points) if points else ""):
        if part:
            print(f"\n{part}")
    missed = sum(not row["ok"] for row in found)
    print(f"\n{len(found)} rows; goals not reached: {missed}")
    if not words:
        report = TARGET / "bench.json"
        kept = [{key: row[key] for key in KEYS} for row in found]
        report.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"written to {report}")


if __name__ == "__main__":
    main(sys.argv[1:])

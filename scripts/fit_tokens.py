"""Fit the weights by which the engine estimates how many tokens a text takes.

    python -m venv v && v/bin/pip install numpy scipy tiktoken
    v/bin/python scripts/fit_tokens.py texts/ > crates/paceline-core/src/llm/weights.rs

`texts/` has a folder for each kind of text (a programming language, a natural one, base64), and
each kind counts the same. A text is cut into classes of bytes, and a weight belongs to each class
that follows another: the count of tokens is close to the sum. The true counts are those of
o200k_base, and of the older cl100k_base for what is not ASCII, where it takes up to five times as
much. tiktoken downloads both.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tiktoken
from scipy.optimize import minimize
from scipy.sparse import csr_matrix, diags

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Classes of bytes beside the lower case letters, each of which is one. Class 0 starts a text.
GROUPS: list[Iterable[int]] = [
    *(b"AEIOUY", b"BCDFGHLMNPRST", b"JKQVWXZ", b"0123456789", b" ", b"\n\r", b"\t"),
    *(b"_", b"-", b".", b",", b":;", b'"', b"'`", b"\\", b"/", b"([{<", b")]}>", b"=+*"),
    b"#@$%^&|~!?",
    [*range(9), 11, 12, *range(14, 32), 127],
    *(range(0xC0, 0xC4), range(0xC4, 0xCA), range(0xCA, 0xD0), range(0xD0, 0xD4)),
    *(range(0xD4, 0xE0), [0xE0], [0xE1], [0xE2, 0xEE, 0xEF], [0xE3], range(0xE4, 0xEA)),
    *(range(0xEA, 0xEE), range(0xF0, 0x100)),
    *(range(0x80, 0x90), range(0x90, 0xA0), range(0xA0, 0xB0), range(0xB0, 0xC0)),
]
#: Classes that fit in one row of the table.
WIDTH = 64
#: Classes from here on are not ASCII.
FOREIGN = 48
#: Parts of a token in which the engine weighs.
GRAIN = 1024

CLASSES = np.zeros(256, dtype=np.int64)
for number, group in enumerate([*([letter] for letter in range(97, 123)), *GROUPS], start=1):
    CLASSES[list(group)] = number


def pairs(text: str) -> np.ndarray:
    """Count each class that follows another."""
    classes = CLASSES[np.frombuffer(text.encode(), dtype=np.uint8)]
    before = np.concatenate([[0], classes[:-1]])
    return np.bincount(before * WIDTH + classes, minlength=WIDTH * WIDTH)


def fit(
    features: csr_matrix, counts: np.ndarray, share: np.ndarray, base: np.ndarray
) -> np.ndarray:
    """Find the weights with the least relative error, near `base` where little is known."""
    scale = 1 / (counts + 6)
    rows, goal = diags(scale) @ features, counts * scale

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        error, away = rows @ weights - goal, weights - base
        value = (share * error**2).sum() + 0.003 * (away**2).sum()
        return value / 2, rows.T @ (share * error) + 0.003 * away

    # No weight is negative, so that more text never weighs less.
    bounds = [(0.004, 4)] * base.size
    options = {"maxiter": 500}
    return minimize(loss, base, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x


def table(name: str, weights: np.ndarray) -> list[str]:
    """Write weights as Rust."""
    rows = np.rint(weights * GRAIN).astype(int)
    return [
        "#[rustfmt::skip]",
        f"pub(super) const {name}: [u16; {rows.size}] = [",
        *("    " + ", ".join(map(str, row)) + "," for row in rows),
        "];",
    ]


def main() -> None:
    """Read the texts, fit, and print the tables."""
    files = sorted(path for path in Path(sys.argv[1]).glob("*/*") if path.is_file())
    texts = [path.read_bytes().decode() for path in files]
    kinds = Counter(path.parent.name for path in files)
    share = np.array([min(1, 120 / kinds[path.parent.name]) for path in files])
    features = csr_matrix(np.array([pairs(text) for text in texts], dtype=float))
    # What a class takes wherever it stands is the best guess where a pair is rare.
    alone = csr_matrix(np.tile(np.eye(WIDTH), (WIDTH, 1)))

    def weights(encoding: str) -> np.ndarray:
        encode = tiktoken.get_encoding(encoding).encode_ordinary
        counts = np.array([len(encode(text)) for text in texts], dtype=float)
        classes = fit(csr_matrix(features @ alone), counts, share, np.full(WIDTH, 0.3))
        return fit(features, counts, share, alone @ classes).reshape(WIDTH, WIDTH)

    lines = [
        "//! How much each class of bytes weighs after another. Made by `scripts/fit_tokens.py`.",
        "",
        "/// The class of each byte. Class 0 starts a text; from 48 on they are not ASCII.",
        "#[rustfmt::skip]",
        "pub(super) const CLASSES: [u8; 256] = [",
        *("    " + ", ".join(map(str, row)) + "," for row in CLASSES.reshape(8, 32)),
        "];",
        "",
        f"/// In 1/{GRAIN} of a token of o200k: a row for the class before, a column for the next.",
        *table("WEIGHTS", weights("o200k_base")),
        "",
        "/// The same for cl100k: columns for the classes from 48 on.",
        *table("OLDER", weights("cl100k_base")[:, FOREIGN:]),
    ]
    print("\n".join(lines))


if __name__ == "__main__":
    main()

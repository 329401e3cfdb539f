"""Draw the pictures of the documentation: what the engine does, on a clock of its own.

`python scripts/draw_pictures.py` makes docs/pictures anew, with matplotlib (the group `docs`) and
paceline installed. The same engine draws the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib import pyplot as plt
from paceline import RateLimiter
from paceline.testing import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
API = "https://api.example.com"

#: Legible on white and on black.
INK = "#7d8590"
COLOURS = ("#0f9b8e", "#d97706", "#6d6fd1")

mpl.rcParams.update(
    {
        "svg.hashsalt": "paceline",  # the same names in each run
        "svg.fonttype": "none",  # text is text
        "font.family": "sans-serif",
        "font.size": 11,
        "text.color": INK,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "lines.linewidth": 2,
    }
)


def draw(name: str, seconds: int, paint: Callable[[Axes], None]) -> None:
    """Draw one picture, with time to the right."""
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    paint(axes)
    axes.set_xlabel("seconds")
    axes.set_xlim(0, seconds)
    axes.set_ylim(bottom=0)
    axes.legend()
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.svg"
    figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    # Lines end where they end.
    text = path.read_text(encoding="utf-8")
    path.write_text("".join(f"{line.rstrip()}\n" for line in text.splitlines()), encoding="utf-8")


def counting(axes: Axes) -> None:
    """Draw how many calls went through, by the three ways to count ten per ten seconds."""
    seconds = 30

    def goes(limiter: RateLimiter, clock: VirtualClock, *, told: bool = False) -> list[float]:
        gone: list[float] = []
        while clock.now < seconds:
            permit = limiter.acquire(API)
            gone.append(clock.now)
            if told:
                # The server's windows begin with the picture.
                begun = clock.now // 10 * 10
                left = 10 - sum(it >= begun for it in gone)
                state = f'"default";r={left};t={begun + 10 - clock.now:.0f}'
                fields = [("RateLimit-Policy", '"default";q=10;w=10'), ("RateLimit", state)]
                permit.observe(200, fields, API)
        return gone

    for label, strict, told in (
        ("a bucket: 10 at once, then one a second", False, False),
        ("strict: never more than 10 in any 10 seconds", True, False),
        ("a window that the server counts, and tells", False, True),
    ):
        clock = VirtualClock()
        limiter = RateLimiter(clock=clock)
        if not told:
            limiter.set_limit(API, limit=10, window="10s", strict=strict)
        gone = goes(limiter, clock, told=told)
        colour = COLOURS[len(axes.lines)]
        steps = range(1, len(gone) + 1)
        axes.plot([0, *gone], [0, *steps], drawstyle="steps-post", label=label, color=colour)
    axes.set_ylabel("calls that went")


def settling(axes: Axes) -> None:
    """Draw the tokens that are left: each call reserves 1500, and takes 500 in four seconds."""
    for settles in (True, False):
        clock = VirtualClock()
        limiter = RateLimiter(clock=clock)
        limiter.set_limit(API, limit=6000, window="1m", dimension="tokens")
        under_way, left = [], []
        for step in range(161):
            while settles and under_way and under_way[0][0] <= step:
                under_way.pop(0)[1].settle(tokens=500)
            # Somebody wants to call every three seconds.
            if step % 12 == 0 and (permit := limiter.try_acquire(API, cost={"tokens": 1500})):
                under_way.append((step + 16, permit))
            status = limiter.get_status(API)
            left.append(status.remaining if status else 0)
            clock.advance(0.25)
        label = "settled: what was not used comes back" if settles else "the estimates stand"
        colour = COLOURS[not settles]
        axes.plot([step / 4 for step in range(161)], left, label=label, color=colour)
    axes.set_ylabel("tokens left")


def holding(axes: Axes) -> None:
    """Draw when calls go, the twelfth of which is told to stay away for six seconds."""
    clock = VirtualClock()
    limiter = RateLimiter(clock=clock)
    limiter.set_limit(API, limit=10, window="10s")
    gone: list[float] = []
    refused = 12
    while clock.now < 16:  # noqa: PLR2004 - a little less than the picture
        permit = limiter.acquire(API)
        gone.append(clock.now)
        if len(gone) == refused:
            permit.observe(429, [("Retry-After", "6")], API)
    numbers = range(1, len(gone) + 1)
    axes.plot(gone, numbers, "o", markersize=5, color=COLOURS[0], label="calls")
    at = gone[refused - 1]
    axes.plot([at], [refused], "o", markersize=8, color=COLOURS[1], label="429, Retry-After: 6")
    axes.axvspan(at, at + 6, alpha=0.15, color=COLOURS[1], linewidth=0, label="the hold")
    axes.set_ylabel("calls that went")


if __name__ == "__main__":
    draw("counting", 30, counting)
    draw("settling", 40, settling)
    draw("holding", 17, holding)

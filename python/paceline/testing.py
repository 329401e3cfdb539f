"""For tests: a clock that moves when told to, and a server that really enforces limits.

>>> from paceline import RateLimiter
>>> from paceline.testing import VirtualClock
>>> clock = VirtualClock()
>>> limiter = RateLimiter(clock=clock)
>>> limiter.set_limit("api.example.com", limit=1, window="1h")
>>> for _ in range(3):
...     permit = limiter.acquire("api.example.com")  # a wait moves the clock instead
>>> clock.now
7200.0

pytest finds both as the fixtures ``paceline_clock`` and ``paceline_sandbox``.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

from paceline import limiter as _limiter
from paceline._native import VirtualClock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from typing_extensions import Self

__all__ = ["Sandbox", "VirtualClock", "virtual_time"]


@contextlib.contextmanager
def virtual_time() -> Generator[VirtualClock]:
    """Let every limiter and guard that is made in this block live by one virtual clock.

    An hour of waiting takes no time: whoever waits moves the clock. Limiters that were made before,
    or are given a clock of their own, go on by that.

    >>> from paceline import RateLimiter
    >>> with virtual_time() as clock:
    ...     limiter = RateLimiter(default_limits={"requests_per_hour": 1})
    ...     for _ in range(25):
    ...         permit = limiter.acquire("api.example.com")
    >>> clock.now / 3600
    24.0
    """
    before, _limiter.usual_clock = _limiter.usual_clock, VirtualClock()
    try:
        yield _limiter.usual_clock
    finally:
        _limiter.usual_clock = before


class Sandbox:
    """A local server that really enforces limits; it stops at the end of its ``with`` block.

    >>> with Sandbox(limits=["2/1m"], headers="ietf") as sandbox:
    ...     import requests
    ...     [requests.get(f"{sandbox.url}/{i}").status_code for i in range(3)]
    ...     sandbox.report()["admitted"]
    [200, 200, 429]
    2

    It speaks enough of the OpenAI and Anthropic APIs for their SDKs, and answers JSON on any other
    path; ``paceline sandbox --help`` tells what it can do.
    """

    def __init__(self, *flags: str, limits: Iterable[str] = (), headers: str | None = None) -> None:
        """Start it on any free port; it accepts connections when this returns.

        Args:
            flags: of the command, such as ``"--policy=sliding"``
            limits: such as ``"60/1m"`` or ``"tokens=90000/1m"``; all apply
            headers: which headers answers carry: ``"github"``, ``"openai"``, ``"anthropic"``,
                ``"ietf"``, ``"legacy"`` or ``"none"``

        Raises:
            RuntimeError: when it does not start; the message says why

        """
        said = [*flags, *(f"--limit={limit}" for limit in limits)]
        if headers is not None:
            said.append(f"--headers={headers}")
        command = [sys.executable, "-m", "paceline", "sandbox", "--port=0", "--json", *said]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)  # noqa: S603
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        announced = self._process.stdout.readline()
        if not announced:
            _, error = self._process.communicate()
            raise RuntimeError(f"the sandbox did not start: {error.strip()}")
        #: where it listens, such as ``http://127.0.0.1:40123``
        self.url: str = json.loads(announced)["url"]

    def report(self) -> dict[str, Any]:
        """Tell what it admitted and refused until now, as ``GET /_sandbox`` does."""
        with urllib.request.urlopen(f"{self.url}/_sandbox") as answer:  # noqa: S310 - our own URL
            told: dict[str, Any] = json.load(answer)
        return told

    def stop(self) -> None:
        """Stop it, if it was not stopped before."""
        self._process.terminate()
        self._process.communicate()

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()

"""What a process has to know of its own beginning and end."""

from __future__ import annotations

import atexit
import logging
import os
import time

from paceline import _native

logger = logging.getLogger("paceline")
#: How long the end of the interpreter waits for threads that wait.
_PATIENCE = 1.0
_in_use = False


def used() -> None:
    """Note that there is a limiter, whose waits have to end and which a fork has to know about."""
    global _in_use  # noqa: PLW0603 - once in each process
    if not _in_use:
        _in_use = True
        atexit.register(_end)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_forked)


def _end() -> None:
    # Only daemon threads are left now. One that still waited later would take the process down.
    for _ in range(int(_PATIENCE * 1000)):
        if _native.end_waits() == 0:
            return
        time.sleep(0.001)  # noqa: TID251 - nothing else runs any more


def _forked() -> None:
    _native.forked()
    logger.warning(
        "process %d is a fork: it goes on with a copy of the limits and no longer shares the count",
        os.getpid(),
    )

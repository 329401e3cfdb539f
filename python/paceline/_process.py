"""What a process has to know of its own beginning and end."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import time
import weakref
from typing import TYPE_CHECKING

from paceline import _native

if TYPE_CHECKING:
    from paceline._native import Limiter

logger = logging.getLogger("paceline")
#: How long the end of the interpreter waits for threads that wait.
_PATIENCE = 1.0
#: Limiters whose stores keep something back, to be handed in at the end.
_shared: weakref.WeakSet[Limiter] = weakref.WeakSet()
_in_use = False
_in_memory = False


def used(limiter: Limiter, *, shared: bool) -> None:
    """Note that there is a limiter, whose waits have to end and which a fork has to know about."""
    global _in_use, _in_memory  # noqa: PLW0603 - once in each process
    if shared:
        _shared.add(limiter)
    else:
        _in_memory = True
    if not _in_use:
        _in_use = True
        atexit.register(_end)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=_native.before_fork,
                after_in_parent=_native.after_fork_in_parent,
                after_in_child=_forked,
            )


def _end() -> None:
    for limiter in list(_shared):
        with contextlib.suppress(Exception):
            limiter.flush()
    # Only daemon threads are left now. One that still waited later would take the process down.
    for _ in range(int(_PATIENCE * 1000)):
        if _native.end_waits() == 0:
            return
        time.sleep(0.001)  # noqa: TID251 - nothing else runs any more


def _forked() -> None:
    _native.after_fork_in_child()
    if _in_memory:
        logger.warning(
            "process %d is a fork: it goes on with a copy of the limits in memory and no longer "
            "shares the count",
            os.getpid(),
        )

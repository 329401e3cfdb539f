"""The only place that waits: on threads, and in event loops."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

from paceline._native import Permit

if TYPE_CHECKING:
    from paceline._flow import Flow
    from paceline._native import Acquisition, Limiter, Waiter


def run(flow: Flow) -> Any:
    """Drive a lifecycle on this thread."""
    try:
        operation, argument = next(flow)
        while True:
            try:
                result = operation(argument)
            except BaseException as error:  # noqa: BLE001, PERF203 - the flow decides
                operation, argument = flow.throw(error)
            else:
                operation, argument = flow.send(result)
    except StopIteration as stop:
        return stop.value


def pause(limiter: Limiter, seconds: float) -> None:
    """Let time pass on this thread."""
    if not limiter.pass_virtual_time(seconds):
        time.sleep(seconds)  # noqa: TID251 - this is the place


class Alarm:
    """Wakes one task, from any thread, now or later."""

    __slots__ = ("_future", "_loop", "_thread", "_timer")

    def __init__(self) -> None:
        """Belong to the event loop that runs here."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._timer: asyncio.TimerHandle | None = None
        self._future = self._loop.create_future()

    def arm(self) -> asyncio.Future[None]:
        """Give what to await until it rings."""
        if self._future.done():
            self._future = self._loop.create_future()
        return self._future

    def ring(self) -> None:
        """Wake the task now."""
        if threading.get_ident() == self._thread:
            self._wake()
        else:
            self._loop.call_soon_threadsafe(self._wake)

    def ring_after(self, seconds: float) -> None:
        """Wake the task in so many seconds, or sooner if it is to be woken sooner already."""
        if threading.get_ident() == self._thread:
            self._set(seconds)
        else:
            self._loop.call_soon_threadsafe(self._set, seconds)

    def stop(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, seconds: float) -> None:
        now = self._loop.time()
        # Two who made room may ring in the wrong order: the sooner one counts.
        if self._timer is None or not now < self._timer.when() <= now + seconds:
            self.stop()
            self._timer = self._loop.call_at(now + seconds, self._wake)

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


async def wait(waiter: Waiter, alarm: Alarm, limiter: Limiter, acquisition: Acquisition) -> Permit:
    """Wait in line; whatever ends the wait early leaves it."""
    try:
        while True:
            rung = alarm.arm()
            step = waiter.poll()
            if isinstance(step, Permit):
                acquisition.keep(step)
                return step
            if step is not None:
                if limiter.pass_virtual_time(step):
                    continue
                alarm.ring_after(step)
            await rung
    finally:
        alarm.stop()
        waiter.close()

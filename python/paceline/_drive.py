"""The only place that waits: on threads, and in event loops."""

from __future__ import annotations

import abc
import asyncio
import math
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from paceline._flow import exchange
from paceline._native import Limiter, Permit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from types import ModuleType

    from paceline._flow import Call
    from paceline._native import Acquisition, Waiter


def run(call: Call) -> Any:
    """Make a call on this thread."""
    # Whichever the limiter: its own way to acquire may be the other one.
    return finish(exchange(call, Limiter.acquire, pause))


def finish(life: Coroutine[Any, Any, Any]) -> Any:
    """Run what blocks instead of being suspended."""
    try:
        life.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a call that blocks was suspended")


def run_async(call: Call) -> Coroutine[Any, Any, Any]:
    """Make a call in an event loop."""
    return exchange(call, Limiter.acquire_soon, pause_async)


async def pause(limiter: Limiter, seconds: float) -> None:
    """Let time pass on this thread."""
    if not limiter.pass_virtual_time(seconds):
        time.sleep(seconds)  # noqa: ASYNC251, TID251 - this is the place


async def pause_async(limiter: Limiter, seconds: float) -> None:
    """Let time pass in an event loop."""
    if not limiter.pass_virtual_time(seconds):
        await (_trio() or asyncio).sleep(seconds)


async def until(tell: Callable[[Callable[[], object]], object]) -> None:
    """Wait on this thread until what is handed over is called."""
    event = threading.Event()
    tell(event.set)
    event.wait()


async def until_async(tell: Callable[[Callable[[], object]], object]) -> None:
    """Wait in an event loop until what is handed over is called."""
    bell = alarm()
    tell(bell.ring)
    await bell.rung()


def _trio() -> ModuleType | None:
    """Trio, if it runs here; whoever runs it has imported it."""
    trio = sys.modules.get("trio")
    return trio if trio is not None and trio.lowlevel.in_trio_task() else None


def in_loop() -> bool:
    """Tell whether an event loop runs on this thread, and so must not wait for a store."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _trio() is not None
    return True


def alarm() -> Alarm:
    """Make an alarm for the task that runs here."""
    trio = _trio()
    return _AsyncioAlarm() if trio is None else _TrioAlarm(trio)


class Alarm(abc.ABC):
    """Wakes one task, from any thread, now or later."""

    __slots__ = ("_due", "_thread")

    def __init__(self) -> None:
        """Belong to the event loop that runs here."""
        self._thread = threading.get_ident()
        #: When it rings by itself.
        self._due = math.inf

    @abc.abstractmethod
    def arm(self) -> None:
        """Forget that it rang."""

    @abc.abstractmethod
    def rung(self) -> Awaitable[object]:
        """Give what to await until it rings."""

    def ring(self) -> None:
        """Wake the task now."""
        if self._is_here():
            self._wake()
        else:
            self._call(self._wake)

    def ring_after(self, seconds: float) -> None:
        """Wake the task in so many seconds, or sooner if it is to be woken sooner already."""
        if self._is_here():
            self._set(seconds)
        else:
            self._call(self._set, seconds)

    def stop(self) -> None:
        """Ring no more by itself."""
        self._due = math.inf

    def _set(self, seconds: float) -> None:
        now = self._now()
        # Two who made room may ring in the wrong order: the sooner one counts.
        if not now < self._due <= now + seconds:
            self._due = now + seconds
            self._set_timer()

    def _is_here(self) -> bool:
        return threading.get_ident() == self._thread

    @abc.abstractmethod
    def _call(self, function: Callable[..., object], *arguments: float) -> None:
        """Have the event loop call something soon."""

    @abc.abstractmethod
    def _now(self) -> float:
        """Read the event loop's clock."""

    @abc.abstractmethod
    def _set_timer(self) -> None:
        """Have it ring when it is due."""

    @abc.abstractmethod
    def _wake(self) -> None:
        """Wake the task, in its own event loop."""


class _AsyncioAlarm(Alarm):
    __slots__ = ("_future", "_loop", "_timer")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._future = self._loop.create_future()

    def arm(self) -> None:
        if self._future.done():
            self._future = self._loop.create_future()

    def rung(self) -> asyncio.Future[None]:
        return self._future

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _call(self, function: Callable[..., object], *arguments: float) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)

    def _now(self) -> float:
        return self._loop.time()

    def _set_timer(self) -> None:
        self.stop()
        self._timer = self._loop.call_at(self._due, self._wake)

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


class _TrioAlarm(Alarm):
    __slots__ = ("_event", "_scope", "_token", "_trio")

    def __init__(self, trio: Any) -> None:
        super().__init__()
        self._trio = trio
        self._token = trio.lowlevel.current_trio_token()
        self._event = trio.Event()
        self._scope: Any = None

    def arm(self) -> None:
        if self._event.is_set():
            self._event = self._trio.Event()

    async def rung(self) -> None:
        with self._trio.CancelScope(deadline=self._due) as self._scope:
            await self._event.wait()
        if self._scope.cancelled_caught:
            self._due = math.inf

    def _is_here(self) -> bool:
        # On its thread, another event loop may run that Trio is a guest of.
        return super()._is_here() and bool(self._trio.lowlevel.in_trio_run())

    def _call(self, function: Callable[..., object], *arguments: float) -> None:
        self._token.run_sync_soon(function, *arguments)

    def _now(self) -> float:
        return float(self._trio.current_time())

    def _set_timer(self) -> None:
        if self._scope is not None:
            self._scope.deadline = self._due

    def _wake(self) -> None:
        self._event.set()


async def wait(
    waiter: Waiter, alarm: Alarm, limiter: Limiter, acquisition: Acquisition | None
) -> Permit:
    """Wait in line; whatever ends the wait early leaves it."""
    try:
        while True:
            alarm.arm()
            step = waiter.poll()
            if isinstance(step, Permit):
                if acquisition is not None:
                    acquisition.keep(step)
                return step
            if step is not None:
                if limiter.pass_virtual_time(step):
                    continue
                alarm.ring_after(step)
            await alarm.rung()
    finally:
        alarm.stop()
        waiter.close()

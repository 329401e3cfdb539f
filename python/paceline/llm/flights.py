"""Calls that ask the same at the same time share one request."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from paceline.llm.errors import Escape

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from paceline._native import Answer

    #: waits until what it hands over is called
    Wait = Callable[[Callable[[Callable[[], object]], object]], Awaitable[object]]


class Flight:
    """A request that is under way, and those who wait for its answer."""

    __slots__ = ("_calls", "_has_landed", "kept", "was_left")

    def __init__(self) -> None:
        """Begin."""
        self._calls: list[Callable[[], object]] = []
        self._has_landed = False
        #: the answer, if it was one to be kept
        self.kept: Answer | None = None
        #: whether whoever sent it went away before it came
        self.was_left = False

    def tell(self, call: Callable[[], object]) -> None:
        """Call that when it is over, from whichever thread, at least once."""
        self._calls.append(call)
        if self._has_landed:
            call()

    def land(self) -> None:
        """Be over."""
        self._has_landed = True
        for call in self._calls:
            # An event loop that is closed waits no longer.
            with contextlib.suppress(RuntimeError):
                call()


class Flights:
    """The requests that are under way."""

    def __init__(self) -> None:
        """Begin with none."""
        #: by process and key: who flies in a parent never lands in a child
        self._flights: dict[tuple[int, bytes], Flight] = {}

    async def share(
        self,
        key: bytes,
        again: Callable[[], Answer | None],
        fetch: Callable[[], Awaitable[tuple[Any, Answer | None]]],
        wait: Wait,
    ) -> tuple[Any, Answer | None]:
        """Send a request, or wait for the same one: give its response, or else another's answer.

        If the answer that was waited for is an error, all send by themselves. If whoever sent it
        was cancelled, the next in line sends.
        """
        name = os.getpid(), key
        while True:
            mine = Flight()
            # One step, so that of many only one finds its own.
            if (flight := self._flights.setdefault(name, mine)) is mine:
                break
            await wait(flight.tell)
            if flight.kept is not None:
                return None, flight.kept
            if not flight.was_left:
                return await fetch()
        response = None
        try:
            # One that has just landed may have been missed before.
            if (kept := again()) is None:
                response, kept = await fetch()
            mine.kept = kept
        except BaseException as error:
            mine.was_left = not isinstance(error, (Exception, Escape))
            raise
        finally:
            del self._flights[name]
            mine.land()
        return response, kept

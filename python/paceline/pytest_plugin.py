"""Fixtures for pytest, which finds them where paceline is installed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from paceline.testing import Sandbox, VirtualClock


@pytest.fixture
def paceline_clock() -> Generator[VirtualClock]:
    """Give a clock by which all limiters and guards live that the test makes: no wait takes time."""
    from paceline.testing import virtual_time  # noqa: PLC0415 - most tests need none of it

    with virtual_time() as clock:
        yield clock


@pytest.fixture
def paceline_sandbox() -> Generator[Callable[..., Sandbox]]:
    """Start servers that really enforce limits: ``paceline_sandbox(limits=["60/1m"])``.

    They take what :class:`paceline.testing.Sandbox` takes, and stop when the test is over.
    """
    from paceline.testing import Sandbox  # noqa: PLC0415

    with contextlib.ExitStack() as running:

        def start(*flags: str, **options: Any) -> Sandbox:
            return running.enter_context(Sandbox(*flags, **options))

        yield start

"""Pace work by the tokens that it spends: reserve an estimate, then settle the truth."""

from __future__ import annotations

import asyncio

from paceline import AsyncRateLimiter

limiter = AsyncRateLimiter()
limiter.set_limit("api.example.com", limit=100, window="1s")
limiter.set_limit("api.example.com", limit=20_000, window="1s", dimension="tokens")


async def ask(question: str) -> int:
    """Pretend to ask a model; its answers are shorter than what was reserved."""
    async with limiter.acquire("api.example.com", cost={"tokens": 1_500}) as permit:
        used = 100 + len(question)
        permit.settle(tokens=used)
    return used


async def main() -> None:
    """Ask fifty questions at once."""
    spent = await asyncio.gather(*(ask(f"question {i}") for i in range(50)))
    status = limiter.get_status("api.example.com")
    print("tokens spent:", sum(spent))
    print("left:", status.dimensions["tokens"].remaining if status else "unknown")


asyncio.run(main())

"""Fetch pages of an API that allows twenty requests a second, with every client at once.

Runs against a sandbox of its own: `paceline sandbox` enforces the limit and counts. The clients
share one limiter, so together they keep to the limit that they read from the responses.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys

import aiohttp
import httpx
import httpx2
import paceline.httpx
import paceline.httpx2
import requests
from paceline import AsyncRateLimiter
from paceline.aiohttp import RateLimitMiddleware
from paceline.requests import RateLimitAdapter

limiter = AsyncRateLimiter()
PAGES = range(15)


def with_requests(url: str) -> list[int]:
    """Mount the adapter."""
    with requests.Session() as session:
        session.mount("http://", RateLimitAdapter(limiter))
        return [session.get(f"{url}/requests/{page}").status_code for page in PAGES]


def with_httpx(url: str) -> list[int]:
    """Wrap a client that exists."""
    with paceline.httpx.wrap(httpx.Client(timeout=30), limiter) as client:
        return [client.get(f"{url}/httpx/{page}").status_code for page in PAGES]


async def with_httpx2(url: str) -> list[int]:
    """Hand over the transport."""
    transport = paceline.httpx2.AsyncRateLimitTransport(limiter)
    async with httpx2.AsyncClient(transport=transport) as client:
        return [(await client.get(f"{url}/httpx2/{page}")).status_code for page in PAGES]


async def with_aiohttp(url: str) -> list[int]:
    """Add the middleware."""
    async with aiohttp.ClientSession(middlewares=[RateLimitMiddleware(limiter)]) as session:

        async def status(page: int) -> int:
            async with session.get(f"{url}/aiohttp/{page}") as response:
                return response.status

        return [await status(page) for page in PAGES]


async def main(url: str) -> None:
    """Run all of them at once."""
    answers = await asyncio.gather(
        asyncio.to_thread(with_requests, url),
        asyncio.to_thread(with_httpx, url),
        with_httpx2(url),
        with_aiohttp(url),
    )
    statuses = [status for client in answers for status in client]
    print("answers:", len(statuses), "statuses:", sorted(set(statuses)))
    if set(statuses) != {200}:
        sys.exit("the limit was overrun")


command = [sys.executable, "-m", "paceline", "sandbox", "--limit", "20/1s", "--headers", "github"]
with subprocess.Popen(  # noqa: S603
    [*command, "--port", "0"], stdout=subprocess.PIPE, text=True
) as server:
    if server.stdout is None or not (found := re.search(r"http://\S+", server.stdout.readline())):
        sys.exit("the sandbox did not start")
    try:
        asyncio.run(main(found[0]))
    finally:
        server.terminate()

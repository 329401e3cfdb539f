"""The Python of the README and the docs runs as it stands, against a server of its own."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

import httpx
import openai
import paceline
import pytest
import requests
from servers import RedisServer

if TYPE_CHECKING:
    from conftest import Server

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/http.md", "docs/llm.md")
BLOCKS = [
    pytest.param(block, id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_the_readme_runs(
    block: str,
    server: Server,
    sandbox: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{sandbox}/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", sandbox)
    request.addfinalizer(paceline.uninstall)
    # The places that are not on every machine.
    block = block.replace("https://api.example.com", server.url)
    block = block.replace("/var/lib/app", str(tmp_path))
    if "redis://" in block:
        redis = RedisServer().start()
        request.addfinalizer(redis.close)
        block = block.replace("redis://limits.internal:6379", redis.url)
    code = compile(block, "a page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(code, CodeType)
    names: dict[str, Any] = {"my_session": requests.Session()}
    if "docs/llm.md" in request.node.name:
        # The page goes on where it was.
        names |= {"paceline": paceline, "openai": openai, "guard": paceline.Guard()}
        names["client"] = openai.OpenAI()
    result = eval(code, names)  # noqa: S307 - our own README
    if result is not None:
        asyncio.run(result)
    for left_open in names.values():
        if isinstance(left_open, (requests.Session, httpx.Client, openai.OpenAI)):
            left_open.close()
    assert bool(server.seen) == ("/items" in block)


def test_the_pages_have_examples() -> None:
    assert len(BLOCKS) >= 16

"""The README's Python runs as it stands, against an adapter that answers from memory."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import requests
from servers import RedisServer

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


class Memory(requests.adapters.HTTPAdapter):
    def send(self, request: requests.PreparedRequest, **_: Any) -> requests.Response:  # type: ignore[override]
        response = requests.Response()
        response.status_code = 200
        response.url = request.url or ""
        response.request = request
        return response


@pytest.mark.parametrize("block", BLOCKS)
def test_the_readme_runs(
    block: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr("requests.sessions.HTTPAdapter", Memory)
    monkeypatch.setattr("requests.adapters.HTTPAdapter", Memory)
    # The places that are not on every machine.
    block = block.replace("/var/lib/app", str(tmp_path))
    if "redis://" in block:
        server = RedisServer().start()
        request.addfinalizer(server.close)
        block = block.replace("redis://limits.internal:6379", server.url)
    code = compile(block, str(README), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(code, CodeType)
    names: dict[str, Any] = {"my_session": requests.Session()}
    result = eval(code, names)  # noqa: S307 - our own README
    if result is not None:
        asyncio.run(result)


def test_the_readme_has_examples() -> None:
    assert len(BLOCKS) == 3

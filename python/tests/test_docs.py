"""What the README and the pages in docs show is run, and gives what they say.

* ``python`` and ``console`` run from the top of a page to its end, each going on where the one
  before it was; those of the README stand alone. A ``text`` after ``python`` is what that prints.
  What follows a command is what it prints, but for its numbers, which differ as clocks do; a
  command that nothing follows may print anything. ``…`` is anything in both. With a title, it is
  a file for commands.
* ``http`` is a response, and the ``text`` after it what ``paceline.detect`` returns.
* ``rust`` stands like that in an example, or in the README, which ``cargo test`` runs.
* ``<!-- not run: the reason -->`` above any of them keeps it from being run.
"""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import itertools
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import openai
import paceline
import pytest
import requests
from servers import RedisServer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from conftest import Server

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
#: Fences of these kinds show no code: files, and what something prints.
SHOWN = ("text", "json", "toml")
BLOCK = re.compile(
    r"^(?P<mark><!-- not run: .+ -->\n+)?"
    r"""(?P<indent> *)```(?P<kind>\w*)(?: title="(?P<title>[^"]+)")?\n"""
    r"(?P<text>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
#: When the responses of the pages are read: 2027-01-15T08:00:00Z.
NOW = 1_800_000_000
SANDBOX = "http://127.0.0.1:8429"


class Block(NamedTuple):
    """Code between fences."""

    kind: str
    text: str
    #: lines above the text
    line: int
    run: bool
    #: the name of the file that it is
    title: str | None
    #: the ``text`` that follows at once
    output: str | None


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    found = list(BLOCK.finditer(text))
    for it, after in itertools.zip_longest(found, found[1:]):
        adjacent = after and after["kind"] == "text" and not text[it.end() : after.start()].strip()
        yield Block(
            it["kind"],
            textwrap.dedent(it["text"]),
            text.count("\n", 0, it.start("text")),
            not it["mark"],
            it["title"],
            textwrap.dedent(after["text"]) if after and adjacent else None,
        )


class Reader:
    """Follows one page: its names, its shell, and the places that are not on every machine."""

    def __init__(self, page: Path, folder: Path, api: Server, model: str) -> None:
        self.page = page
        self.folder = folder
        self.api = api
        self.names: dict[str, Any] = {}
        self.opened: list[requests.Session | httpx.Client | openai.OpenAI] = []
        self.processes: list[subprocess.Popen[str]] = []
        self.redis: RedisServer | None = None
        self.places = {"https://api.example.com": api.url, "/var/lib/app": str(folder)}
        store = f"sqlite:///{folder / 'limits.db'}"
        known = {"OPENAI_BASE_URL": f"{model}/v1", "ANTHROPIC_BASE_URL": model}
        known |= {"OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none", "PACELINE_STORAGE": store}
        known["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = known
        # What a worker did before somebody looked.
        limiter = paceline.RateLimiter(store)
        for scope in ("openai:gpt-4o", "anthropic:claude"):
            limiter.count(scope, sent=9, input_tokens=900)
        (folder / "requests.jsonl").write_text(f'{{"url": "{api.url}/items"}}\n')

    def here(self, text: str) -> str:
        """Name the places of this machine."""
        if "redis://" in text and self.redis is None:
            self.redis = RedisServer().start()
            for name in ("redis://limits.internal:6379", "redis://localhost:6379"):
                self.places[name] = self.redis.url
        for there, here in self.places.items():
            text = text.replace(there, here)
        return text

    def there(self, text: str) -> str:
        """Name the places of the page."""
        for there, here in self.places.items():
            text = text.replace(here, there)
        return text

    def python(self, block: Block) -> None:
        if self.page.name == "README.md":
            self.names.clear()
            self.names["my_session"] = requests.Session()
        self.api.seen.clear()
        paceline.uninstall()
        source = "\n" * block.line + self.here(block.text)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(source, str(self.page), "exec", flags=flags, dont_inherit=True)
        assert isinstance(code, CodeType)
        try:
            result = eval(code, self.names)  # noqa: S307 - our own page
            if result is not None:
                asyncio.run(result)
        finally:
            kinds = (requests.Session, httpx.Client, openai.OpenAI)
            self.opened += (it for it in self.names.values() if isinstance(it, kinds))
        assert bool(self.api.seen) == ("https://api.example.com/items" in block.text)

    def console(self, block: Block) -> None:
        for told in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, expected = told.split("\n", 1)
            command = command.partition("  #")[0]
            name, _, value = command.removeprefix("export ").partition("=")
            if command.startswith("export "):
                self.environment[name] = self.here(value)
                continue
            printed = (self.serve if "paceline sandbox" in command else self.shell)(command)
            if expected.strip():
                same(numberless(printed), numberless(expected))

    def shell(self, command: str) -> str:
        done = subprocess.run(  # noqa: S602 - as a reader would
            self.here(command),
            shell=True,
            check=False,
            cwd=self.folder,
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            timeout=30,
        )
        # Who finds something says so by the status, too.
        assert done.returncode == 0 or done.stdout, done.stderr
        return self.there(done.stdout)

    def serve(self, command: str) -> str:
        arguments = [*command.split(), "--port=0"]
        arguments[0] = str(Path(sys.executable).with_name(arguments[0]))
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        assert process.stdout is not None
        printed = process.stdout.readline()
        self.places[SANDBOX] = printed.split()[-1]
        return self.there(printed)

    def close(self) -> None:
        paceline.uninstall()
        for it in self.opened:
            it.close()
        for process in self.processes:
            process.terminate()
            process.communicate()
        if self.redis is not None:
            self.redis.close()


def numberless(text: str) -> str:
    """Leave out numbers, and `now`, which is one, and the room that they take."""
    return re.sub(r"(\b(\d[\w.,/]*|now)\b *)+", "# ", text)


def same(printed: str, expected: str) -> None:
    """Compare line by line; `…` is anything, lines too, and space is space."""
    got, wanted = (
        [" ".join(line.split()) for line in text.strip().splitlines()]
        for text in (printed, expected)
    )
    pattern = "\n".join(re.escape(line).replace("…", ".*") for line in wanted)
    if not re.fullmatch(pattern, "\n".join(got), re.DOTALL):
        assert got == wanted


@pytest.fixture
def reader(
    page: Path, tmp_path: Path, server: Server, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> Generator[Reader]:
    it = Reader(page, tmp_path, server, sandbox)
    for name, value in it.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    yield it
    it.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_runs(page: Path, reader: Reader, capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks(page):
        if block.run and block.title is not None:
            (reader.folder / block.title).write_text(reader.here(block.text))
        elif block.run and block.kind == "python":
            capsys.readouterr()
            reader.python(block)
            if block.output is not None:
                same(reader.there(capsys.readouterr().out), block.output)
        elif block.run and block.kind == "console":
            reader.console(block)


def stated(seen: paceline.Detection | paceline.DetectedLimit) -> str:
    """Say what a response stated: what it did not is left out."""
    names = [it.name for it in dataclasses.fields(seen) if not it.name.startswith("dimension")]
    values = ((name, getattr(seen, name)) for name in names)
    return ", ".join(f"{name}={it}" for name, it in values if it is not None and it is not False)


def read(response: str) -> list[str]:
    """Give what is read of a response: a line for each limit, and one for all."""
    head, _, body = response.strip().partition("\n\n")
    first, *fields = head.splitlines()
    url = None
    if first.startswith(("GET ", "POST ")):
        url = first.split()[1]
        first, *fields = fields
    headers = [(name, value.strip()) for name, _, value in (it.partition(":") for it in fields)]
    seen = paceline.detect(int(first.split()[1]), headers, url, now=NOW, body=body or None)
    limits = [f"{it.dimension}: {stated(it)}" for it in seen.dimensions]
    return [*limits, *filter(None, [stated(seen)])]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_responses_say_what_the_pages_tell(page: Path) -> None:
    for block in blocks(page):
        if block.kind == "http":
            assert block.output is not None, block.text
            assert read(block.text) == block.output.splitlines(), block.text


def squeezed(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_rust_is_that_of_the_examples(page: Path) -> None:
    sources = [ROOT / "README.md", *ROOT.glob("crates/*/examples/*.rs")]
    compiled = [squeezed(it.read_text(encoding="utf-8")) for it in sources]
    for block in blocks(page):
        if block.kind == "rust":
            assert any(squeezed(block.text) in it for it in compiled), block.text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_all_code_says_what_it_is(page: Path) -> None:
    kinds = {"python", "console", "rust", "http", *SHOWN}
    assert {block.kind for block in blocks(page)} <= kinds


def test_the_reference_has_every_public_name() -> None:
    told = re.findall(r"^::: [\w.]+?(\w+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    assert set(paceline.__all__) <= set(told)

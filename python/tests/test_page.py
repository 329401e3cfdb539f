"""The page in a real browser: what is moved is what is simulated, and what the command tells."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

COMMAND = [sys.executable, "-m", "paceline"]
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
#: Every slider, and how far it is moved.
SLIDERS = {
    "rpm": 5,
    "burst": 3,
    "tpm": 31,
    "keys": 1,
    "requests": 2,
    "avg-tokens": 12,
    "workers": 6,
    "max-wait": 1,
    "latency": -3,
    "strangers": 3,
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [*COMMAND, "serve", "--port", "0", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        yield serving.stdout.readline().rsplit(" ", 1)[-1].strip()
        serving.terminate()
        assert serving.wait(5) == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium, "there is no chromium: run make test"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    wrong: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(url)
    settled(page)
    yield page
    context.close()
    # A browser tells of every answer that is an error; nothing else may go wrong.
    assert [it for it in wrong if "400 (Bad Request)" not in it] == []
    assert all(it.startswith((url, "data:")) for it in asked), "nothing leaves the machine"


def report(page: Page) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(page.evaluate("document.body.dataset.report"))
    return told


def in_picture(told: dict[str, Any]) -> list[Any]:
    levels = [(slot["left"], slot["server_left"]) for slot in told["timeline"]["slots"]]
    return [told["finished"], told["limits"], told["marks"], levels]


def settled(page: Page) -> None:
    page.wait_for_selector("#outcome[aria-busy=false]")


def command_tells(page: Page) -> dict[str, Any]:
    words = shlex.split(page.locator("#command").inner_text())
    assert words[:2] == ["paceline", "simulate"]
    ran = subprocess.run(
        [*COMMAND, *words[1:], "--marks", "2000", "--json"], check=False, stdout=subprocess.PIPE
    )
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


def test_each_slider_moves_the_picture_and_the_numbers(page: Page) -> None:
    page.select_option("#server", "sliding")
    settled(page)
    for name, steps in SLIDERS.items():
        before, drawn = report(page), page.locator("#picture svg").inner_html()
        slider = page.locator(f"#{name}-slider")
        slider.focus()
        for _ in range(abs(steps)):
            slider.press("ArrowRight" if steps > 0 else "ArrowLeft")
        settled(page)
        assert report(page) == command_tells(page), name
        assert report(page) != before, name
        is_redrawn = page.locator("#picture svg").inner_html() != drawn
        assert is_redrawn == (in_picture(report(page)) != in_picture(before)), name
    figures = page.locator("#figures").inner_text()
    assert f"{report(page)['answered']} of {report(page)['requests']}" in figures


def test_what_may_not_wait_is_refused(page: Page) -> None:
    page.select_option("#on-rate-limit", "raise")
    settled(page)
    assert report(page)["refused"] > 0
    assert report(page) == command_tells(page)


@pytest.mark.parametrize(
    "query",
    [
        "rpm=30&burst=5&requests=150&workers=4&latency=1500ms&on-rate-limit=raise",
        "limit=tokens%3D9000%2F1m&cost=tokens%3D100..900&seed=5&server=fixed&strangers=20%25",
    ],
)
def test_a_link_keeps_the_settings(page: Page, url: str, query: str) -> None:
    page.goto(f"{url}?{query}")
    settled(page)
    first = report(page)
    assert first == command_tells(page)
    page.reload()
    settled(page)
    assert report(page) == first
    assert sorted(page.url.split("?")[1].split("&")) == sorted(query.split("&"))


def test_a_mistake_is_told_and_what_was_shown_stays(page: Page) -> None:
    shown = report(page)
    page.fill("#arrivals", "often")
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert "expected at-once" in alert.inner_text()
    assert report(page) == shown
    page.fill("#arrivals", "10/1s")
    alert.wait_for(state="hidden")


def test_on_a_phone_in_the_dark_nothing_is_cut_off(browser: Browser, url: str) -> None:
    phone = {"width": 360, "height": 740}
    context = browser.new_context(viewport=phone, color_scheme="dark")  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(url)
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= phone["width"]
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(20, 24, 31)"
    page.locator("#strangers-slider").scroll_into_view_if_needed()
    assert page.locator("#picture").bounding_box()["y"] < phone["height"] / 2  # type: ignore[index]
    context.close()


def test_another_site_s_name_for_this_machine_is_refused(url: str) -> None:
    with httpx.Client() as client:
        answer = client.get(url, headers={"host": "evil.example"})
        assert answer.status_code == httpx.codes.MISDIRECTED_REQUEST
        answer = client.get(f"{url}simulate?replay=/etc/passwd")
        assert answer.status_code == httpx.codes.BAD_REQUEST
        assert "root" not in answer.text


def test_the_command_opens_the_page_with_what_it_was_told() -> None:
    said = ["--rpm", "30", "--strict", "--cost", "tokens=1..9", "--serve", "--port", "0"]
    command = [*COMMAND, "simulate", *said, "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        link = serving.stdout.readline().strip()
        serving.terminate()
    assert link.endswith("/?rpm=30&strict=&cost=tokens%3D1..9")

"""Headless Chromium, one for a module, and hosts to look at. `make browser-tools` brings what is missing."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import pytest_asyncio

from a2a_gcs.host.settings import Settings
from a2a_gcs.host.telemetry import configure_telemetry
from a2a_gcs.objectstore import InstrumentedStore, MemoryStore
from tests.browser.scene import furnish
from tests.support.host_thread import serve_in_thread

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
AXE = Path(sys.prefix) / "browser-tools/node_modules/axe-core/axe.min.js"
TOKENS = {"alice": "alice-token-0123456789", "bob": "bob-token-0123456789"}


def chromium():
    """Where Chromium is; None if it is nowhere."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def axe():
    """The source of axe-core."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make browser-tools")
    return AXE.read_text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser():
    playwright = pytest.importorskip("playwright.async_api", reason="Playwright is not installed")
    if chromium() is None:
        pytest.skip("Chromium is not installed: make browser-tools")
    async with playwright.async_playwright() as driver:
        started = await driver.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield started
        await started.close()


@pytest_asyncio.fixture(loop_scope="module")
async def visit(browser):
    """Opens a fresh browser profile, with a page; what it complains about fails the test."""
    opened, complaints = [], []

    async def visit(**options):
        context = await browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        context.set_default_timeout(30_000)
        opened.append(context)
        page = await context.new_page()
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None)
        return page

    yield visit
    for context in opened:
        await context.close()
    assert not complaints


@pytest.fixture(scope="module")
def host():
    """A host whose agent is `scene.Showing`, without authentication."""
    configure_telemetry(Settings(), environ={})
    with serve_in_thread(InstrumentedStore(MemoryStore()), agent="tests.browser.scene:showing") as serving:
        yield serving


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(host):
    """Task ids by name, of contexts in all states."""
    return await furnish(host.url)


@pytest.fixture(scope="module")
def shared_host():
    """A host that asks for tokens."""
    tokens = ",".join(f"{name}:{token}" for name, token in TOKENS.items())
    with serve_in_thread(MemoryStore(), agent="tests.browser.scene:showing", auth="tokens", tokens=tokens) as serving:
        yield serving

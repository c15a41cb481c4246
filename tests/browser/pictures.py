"""Makes the pictures of the console that the README shows: python -m tests.browser.pictures DIRECTORY."""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

from PIL import Image
from playwright.async_api import async_playwright

from a2a_gcs.host.logging import configure_logging
from a2a_gcs.host.settings import Settings
from a2a_gcs.host.telemetry import configure_telemetry
from a2a_gcs.objectstore import InstrumentedStore, MemoryStore
from tests.browser.conftest import FLAGS, chromium
from tests.browser.scene import furnish
from tests.support.host_thread import serve_in_thread

COLOURS = 96
SCREEN, PHONE = {"width": 1080, "height": 760}, {"width": 390, "height": 760}
PICTURES = (
    ("contexts", "", SCREEN, "light"),
    ("context", "/contexts/quarterly-report", SCREEN, "dark"),
    ("task", "/tasks/{report}", SCREEN, "light"),
    ("question", "/tasks/{waits}", SCREEN, "dark"),
    ("files", "/tasks/{report}/files", SCREEN, "dark"),
    ("changes", "/tasks/{last}/changes", SCREEN, "light"),
    ("host", "/host", SCREEN, "dark"),
    ("phone", "/contexts/quarterly-report", PHONE, "light"),
    ("phone-dark", "/tasks/{waits}", PHONE, "dark"),
)


async def take(url, directory):
    ids = await furnish(url, pause=1.2)
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        for name, path, size, scheme in PICTURES:
            page = await browser.new_page(viewport=size, color_scheme=scheme, locale="en-GB", timezone_id="UTC")
            await page.goto(f"{url}/console{path.format(**ids)}", wait_until="load")
            small = (
                Image.open(io.BytesIO(await page.screenshot()))
                .convert("RGB")
                .quantize(COLOURS, dither=Image.Dither.NONE)
            )
            small.save(directory / f"{name}.png", optimize=True)
            await page.close()
        await browser.close()


def main():
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    configure_logging("error")
    configure_telemetry(Settings(), environ={})
    with serve_in_thread(InstrumentedStore(MemoryStore()), agent="tests.browser.scene:showing") as host:
        asyncio.run(take(host.url, directory))


if __name__ == "__main__":
    main()

"""A visit to the console, as people make it."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.browser.conftest import TOKENS
from tests.browser.scene import HOSTILE_FILE, SCRIPT
from tests.support.a2a_http import A2AClient

playwright = pytest.importorskip("playwright.async_api", reason="Playwright is not installed")
expect = playwright.expect
expect.set_options(timeout=30_000)

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def send(page, text, context=None):
    await page.get_by_label("Message").fill(text)
    if context is not None:
        await page.get_by_label("Context", exact=True).fill(context)
    await page.get_by_role("button", name="Start a task").click()
    await page.wait_for_url("**/tasks/*")


def state(page):
    return page.locator("#state")


async def test_first_visit(host, visit):
    """Send, watch it stream, cancel it; answer a task that asks; open a file of it, and see what it changed."""
    page = await visit()
    await page.goto(f"{host.url}/console")
    await send(page, "import", context="first-visit")
    log = page.locator("[data-artifact=log] pre.live")
    await expect(log).to_contain_text(re.compile(r"row +3: import"))
    await page.evaluate("window.stillHere = true")
    await expect(log).to_contain_text(re.compile(r"row +12: import"))
    assert await page.evaluate("window.stillHere")  # it came by itself, without another page
    await page.get_by_role("button", name="Cancel this task").click()
    await expect(state(page)).to_have_text("canceled")

    await page.get_by_role("link", name="first-visit").click()
    await send(page, "ask Which colour?")
    await expect(state(page)).to_have_text("input required")
    await page.get_by_label("Your answer").fill("write colour.txt blue")
    await page.keyboard.press("Control+Enter")
    await expect(state(page)).to_have_text("completed")

    await page.get_by_role("navigation", name="Task").get_by_role("link", name="Files").click()
    await page.get_by_role("link", name="journal.md").click()
    await expect(page.locator("pre")).to_contain_text("ask Which colour?")
    await page.get_by_role("navigation", name="Task").get_by_role("link", name="Changes").click()
    await expect(page.locator(".diff .plus", has_text="ask Which colour?")).to_be_visible()


async def test_a_task_that_another_client_answers(host, visit):
    """The page of a task that waits sees it go on, whoever answers it."""
    page = await visit()
    async with A2AClient(host.url) as client:
        asked = await client.send("ask Who answers?", context="answered-elsewhere")
        async with page.expect_response("**/events"):
            await page.goto(f"{host.url}/console/tasks/{asked.id}")
        await expect(state(page)).to_have_text("input required")
        await client.send("somebody else", context="answered-elsewhere", task=asked.id)
    await expect(state(page)).to_have_text("completed")
    await expect(page.locator(".said.user").last).to_contain_text("somebody else")


async def test_a_refusal_keeps_what_was_written(host, scene, visit):
    """A message that the linear rule refuses is there to be sent again, beside the task that is in the way."""
    page = await visit()
    await page.goto(f"{host.url}/console")
    await page.get_by_label("Message").fill("one more")
    await page.get_by_label("Context", exact=True).fill("website-copy")
    await page.get_by_role("button", name="Start a task").click()
    await expect(page.get_by_role("alert")).to_contain_text("waits for an answer")
    await expect(page.get_by_label("Message")).to_have_value("one more")
    await page.get_by_role("link", name="See the task that is in the way").click()
    await expect(page).to_have_url(f"{host.url}/console/tasks/{scene['waits']}")


async def test_scripts_in_a_task_do_not_run(host, visit):
    """Neither in a context id, a message, an artifact, its name, a file's name and content, nor while they stream."""
    page = await visit()
    async with A2AClient(host.url) as client:
        done = await client.send(f"hostile {SCRIPT}", context=SCRIPT)
        asked = await client.send(f"ask {SCRIPT}", context=f"{SCRIPT}2")
    await page.goto(f"{host.url}/console?q=%3Cscript")
    await page.get_by_role("link", name=SCRIPT, exact=True).click()
    base = f"{host.url}/console/tasks/{done.id}"
    for path in ("", "/files", f"/file?path={httpx.QueryParams({'': HOSTILE_FILE})!s}".replace("?path==", "?path=")):
        await page.goto(base + path)
        await expect(page.locator("main")).to_contain_text("onerror=")
        assert await page.title() != "pwned"
    await page.goto(f"{base}/changes")
    await expect(page.locator(".diff")).to_contain_text([SCRIPT])
    async with page.expect_response("**/events"):
        await page.goto(f"{host.url}/console/tasks/{asked.id}")
    await page.evaluate("window.stillHere = true")
    other = await visit()
    await other.goto(page.url)
    await other.get_by_label("Your answer").fill(f"import {SCRIPT}")
    await other.get_by_role("button", name="Answer").click()  # from here on `page` is made by its script alone
    await expect(page.locator("pre.live").last).to_contain_text(re.compile(r"row +9: import <script>"))
    await expect(page.locator("main h3").last).to_contain_text("<script>")
    assert await page.evaluate("window.stillHere")
    assert await page.title() != "pwned"
    assert not await page.locator("main script, main img[src=x], main [onerror]").count()
    await page.get_by_role("button", name="Cancel this task").click()
    await expect(state(page)).to_have_text("canceled")


async def test_signing_in_and_the_tasks_of_others(shared_host, visit):
    """A token opens its owner's pages; those of another owner are as absent as pages that never were."""
    pages = {}
    for name, token in TOKENS.items():
        page = pages[name] = await visit()
        await page.goto(f"{shared_host.url}/console/host")
        await page.get_by_label("Token").fill("wrong-token-0123456789")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_contain_text("not valid")
        await page.get_by_label("Token").fill(token)
        await page.get_by_role("button", name="Sign in").click()
        await page.wait_for_url("**/console/host")
        assert token not in await page.evaluate("document.cookie")
    await pages["alice"].get_by_role("link", name="Contexts").click()
    await send(pages["alice"], "write secret.txt mine", context="plans")
    await expect(state(pages["alice"])).to_have_text("completed")
    theirs = pages["alice"].url
    for path in ("", "/files", "/changes", "/task.json", "/raw?path=secret.txt", "/workspace.tar.gz", "/events"):
        assert (await pages["alice"].context.request.get(theirs + path)).status == 200
        answer = await pages["bob"].context.request.get(theirs + path)
        nothing = await pages["bob"].context.request.get(f"{shared_host.url}/console/tasks/nothing{path}")
        assert (answer.status, nothing.status) == (404, 404)
        assert "plans" not in await answer.text()
    assert (await pages["bob"].context.request.get(f"{shared_host.url}/console/contexts/plans")).status == 404
    await pages["alice"].get_by_role("button", name="Sign out").click()
    await expect(pages["alice"].get_by_label("Token")).to_be_visible()


async def test_without_scripts(host, scene, visit):
    """Reading, sending and answering need no JavaScript."""
    page = await visit(java_script_enabled=False)
    await page.goto(f"{host.url}/console")
    await page.get_by_role("link", name="quarterly-report").click()
    await expect(page.locator(".timeline > li")).to_have_count(5)
    await expect(page.locator("time").first).to_contain_text("UTC")
    await page.goto(f"{host.url}/console")
    await send(page, "hello", context="no-script")
    await page.get_by_role("link", name="no-script").click()
    await expect(page.locator(".timeline > li")).to_have_count(1)


async def test_keyboard(host, scene, visit):
    """The first key leads past the menu, / to the search, and Enter searches."""
    page = await visit()
    await page.goto(f"{host.url}/console")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    await page.keyboard.press("/")
    await expect(page.get_by_role("searchbox")).to_be_focused()
    await page.keyboard.type(scene["report"][:13])
    await page.keyboard.press("Enter")
    await expect(page.locator(".list > li")).to_have_count(1)
    await expect(page.get_by_role("link", name="quarterly-report")).to_be_visible()


PAGES = (
    "",
    "/contexts/quarterly-report",
    "/contexts/website-copy",
    "/tasks/{report}",
    "/tasks/{waits}",
    "/tasks/{running}",
    "/tasks/{report}/files",
    "/tasks/{report}/file?path=report/summary.md",
    "/tasks/{report}/changes",
    "/host",
    "/tasks/none",
)


_RUN = "axe.run(document, {resultTypes: ['violations'], %s}).then(found => found.violations)"
AXE = {"light": _RUN % "", "dark": _RUN % "runOnly: ['color-contrast', 'link-in-text-block']"}  # the rest has no colour


async def test_every_page_at_every_width(host, scene, visit, axe):
    """No page scrolls sideways, and axe-core finds nothing serious: on a phone and a screen, in light and dark."""
    page = await visit(bypass_csp=True)  # for axe alone, which is a script
    for path in PAGES:
        await page.goto(f"{host.url}/console{path.format(**scene)}")
        await page.evaluate(axe)
        for width in (390, 1280):
            await page.set_viewport_size({"width": width, "height": 900})
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
            for scheme in ("light", "dark"):
                await page.emulate_media(color_scheme=scheme)
                found = await page.evaluate(AXE[scheme])
                serious = [
                    (one["id"], one["nodes"][0]["html"], one["nodes"][0].get("failureSummary"))
                    for one in found
                    if one["impact"] in {"serious", "critical"}
                ]
                assert not serious, (path, width, scheme)

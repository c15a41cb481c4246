"""A bucket with something to look at, sent over the API like any client does."""

from __future__ import annotations

import asyncio
import struct
import zlib

from a2a.server.agent_execution import AgentExecutor
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import AgentCard, Part
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from a2a_gcs.executors.demo import DemoAgent
from a2a_gcs.executors.workspace import workspace
from tests.support.a2a_http import A2AClient

SCRIPT = "<script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"
HOSTILE_FILE = "a<img src=x onerror=document.title='pwned'>.txt"


def png(red=61, green=107, blue=224, side=48):
    """A square of one colour."""
    rows = (b"\0" + bytes((red, green, blue)) * side) * side
    chunks = (
        (b"IHDR", struct.pack(">2I5B", side, side, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    body = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


class Showing(AgentExecutor):
    """The demo agent, and three words more: artifacts of every kind, and hostile ones."""

    card = AgentCard(
        name="Research",
        description="Shows what a page can show.",
        version="1",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
    )

    def __init__(self):
        self._demo = DemoAgent()

    async def execute(self, context, event_queue):
        said = context.get_user_input()
        if said == "report":
            await self._report(context, event_queue)
        elif said.startswith("hostile"):
            await self._hostile(context, event_queue)
        elif said.startswith("message"):
            answer = TaskUpdater(event_queue, "", context.context_id)
            parts = [Part(text=SCRIPT), Part(raw=png(), media_type="image/png"), Part(text="x" * 70_000)]
            await event_queue.enqueue_event(answer.new_agent_message(parts))
        elif said == "large":
            task = TaskUpdater(event_queue, context.current_task.id, context.current_task.context_id)
            large = SCRIPT.encode() + bytes(300_000)
            await task.add_artifact([Part(raw=large, media_type="text/html", filename="large.html")])
            await task.add_artifact([Part(raw=png() + bytes(300_000), media_type="image/png", filename="large.png")])
            await task.complete()
        elif said.startswith("import"):
            await self._import(context, event_queue)
        else:
            await self._demo.execute(context, event_queue)

    async def cancel(self, context, event_queue):
        await self._demo.cancel(context, event_queue)

    async def _report(self, context, event_queue):
        task = TaskUpdater(event_queue, context.current_task.id, context.current_task.context_id)
        root = workspace(context)
        (root / "report").mkdir(exist_ok=True)
        (root / "report" / "summary.md").write_text("# Summary\n\nRevenue grew by 4 %.\nCosts fell.\n")
        (root / "report" / "chart.png").write_bytes(png())
        (root / "figures.csv").write_text("quarter,revenue\nQ1,120\nQ2,131\n")
        figures = ParseDict({"quarters": [{"name": "Q1", "revenue": 120}, {"name": "Q2", "revenue": 131}]}, Value())
        summary = "# Summary\n\n- Revenue grew by **4 %**.\n- Costs fell.\n"
        await task.add_artifact([Part(text=summary, media_type="text/markdown", filename="summary.md")], name="Summary")
        await task.add_artifact([Part(data=figures)], name="Figures")
        await task.add_artifact([Part(raw=png(), media_type="image/png", filename="chart.png")], name="Chart")
        await task.add_artifact(
            [Part(raw=b"PK\x03\x04" + bytes(4000), media_type="application/zip", filename="data.zip")], name="Raw data"
        )
        await task.complete(task.new_agent_message([Part(text="The report is ready: a summary, figures and a chart.")]))

    async def _import(self, context, event_queue):
        """A line now and then, until it is canceled; what was said is in each."""
        said = context.get_user_input()
        task = TaskUpdater(event_queue, context.current_task.id, context.current_task.context_id)
        for number in range(1, 10_000):
            line = Part(text=f"row {number:>4}: {said}\n")
            await task.add_artifact([line], artifact_id="log", name=f"Log of {said}", append=number > 1)
            await asyncio.sleep(0.05)

    async def _hostile(self, context, event_queue):
        task = TaskUpdater(event_queue, context.current_task.id, context.current_task.context_id)
        (workspace(context) / HOSTILE_FILE).write_text(SCRIPT)
        page = Part(raw=SCRIPT.encode(), media_type="text/html", filename="page.html")
        drawing = f"<svg xmlns='http://www.w3.org/2000/svg'>{SCRIPT}</svg>".encode()
        await task.add_artifact([Part(text=SCRIPT)], name=SCRIPT, artifact_id=f"a{SCRIPT}")
        await task.add_artifact([page, Part(raw=drawing, media_type="image/svg+xml", filename="drawing.svg")])
        await task.add_artifact([Part(url="javascript:document.title='pwned'", filename="link")])
        await task.complete(task.new_agent_message([Part(text=SCRIPT)]))


def showing():
    """What the tests and pictures are taken of."""
    return Showing()


async def furnish(url, *, pause=0.0):
    """Contexts in all the states that a page shows; their task ids by name."""
    ids = {}
    async with A2AClient(url) as client:
        for name, context, said in (
            ("first", "quarterly-report", "write notes.md Collect the numbers of Q1 and Q2."),
            ("broken", "quarterly-report", "fail the source was not reachable"),
            ("report", "quarterly-report", "report"),
            ("hello", "hello-world", "hello"),
            ("site", "website-copy", "write index.html <h1>Hello</h1>"),
        ):
            ids[name] = (await client.send(said, context=context)).id
        asked = await client.send("ask Which currency shall I use?", context="quarterly-report")
        await asyncio.sleep(pause)
        ids["answered"] = (await client.send("Euro", context="quarterly-report", task=asked.id)).id
        ids["last"] = (await client.send("write notes.md Use euro throughout.", context="quarterly-report")).id
        ids["waits"] = (await client.send("ask Which colour shall the button have?", context="website-copy")).id
        ids["running"] = (await client.send("import the archive", context="data-import", at_once=True)).id
    return ids

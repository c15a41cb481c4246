"""What /ready costs the bucket: one read in a few seconds, whoever asks and however many."""

import asyncio

import httpx

from a2a_gcs.errors import Unavailable
from a2a_gcs.host.app import create_app
from a2a_gcs.host.readiness import KEEP_SECONDS, Readiness
from a2a_gcs.host.settings import Settings
from a2a_gcs.objectstore.instrument import InstrumentedStore
from a2a_gcs.objectstore.memory import MemoryStore


class Looks:
    """A bucket that answers when it is let, and a clock that is moved by hand."""

    def __init__(self):
        self.count = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.broken = False
        self.now = 100.0

    async def look(self):
        self.count += 1
        await self.answers.wait()
        if self.broken:
            raise Unavailable("hosts/h.json", OSError("unplugged"))


async def test_a_good_answer_counts_for_some_seconds_and_no_longer():
    """One look for all who ask meanwhile; then the next one sees that the bucket is gone, and that it is back."""
    bucket = Looks()
    readiness = Readiness(bucket.look, lambda: bucket.now)
    assert [await readiness.problem() for _ in range(3)] == [None] * 3
    bucket.broken = True
    bucket.now += KEEP_SECONDS - 0.1
    assert (await readiness.problem(), bucket.count) == (None, 1)
    bucket.now += 0.1
    problem = await readiness.problem()
    assert problem.startswith("the bucket does not answer: ")
    bucket.broken = False
    assert (await readiness.problem(), bucket.count) == (problem, 2)
    bucket.now += KEEP_SECONDS
    assert (await readiness.problem(), bucket.count) == (None, 3)


async def test_all_who_ask_at_once_share_one_look():
    """Also when the first of them goes away before the answer is there."""
    bucket = Looks()
    bucket.answers.clear()
    readiness = Readiness(bucket.look, lambda: bucket.now)
    asking = [asyncio.create_task(readiness.problem()) for _ in range(50)]
    await asyncio.sleep(0)
    asking[0].cancel()
    await asyncio.sleep(0)
    bucket.answers.set()
    assert await asyncio.gather(*asking[1:]) == [None] * 49
    assert bucket.count == 1


async def test_probes_cost_one_read(tmp_path):
    """A hundred requests for /ready, one class B."""
    store = InstrumentedStore(MemoryStore())
    app = create_app(Settings(work_dir=tmp_path), store=store)
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host")
    async with app.router.lifespan_context(app), http:
        before = store.stats.operations["head"]
        codes = {(await http.get("/ready")).status_code for _ in range(100)}
        looks = store.stats.operations["head"] - before
    assert (codes, looks) == ({200}, 1)

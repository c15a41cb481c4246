"""What the gateway costs: puts and gets of small objects, side by side with the plain emulator.

    python tests/benchmark/bench_gateway.py [--objects 1000] [--rounds 3] [--concurrency 16] [--size 2000] [--check]

The plain emulator runs on its filesystem backend, as the one behind the gateway does; its memory
backend is shown too. Rounds alternate, so that a busy machine is busy for all; the medians count.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import time

import aiohttp

from fake_gcs.process import FakeGcs
from fake_gcs.server import FakeGcsServer, create_bucket

BUCKET = "bench"
LIMITS = {"put": 2.0, "get": 4.0}


async def measure(url, options, round_number):
    """Answers microseconds per put and per get of small objects, several in flight."""
    names = [f"r{round_number}/{number}" for number in range(options.objects)]
    body = b"x" * options.size

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=options.concurrency)) as session:

        async def put(name):
            params = {"uploadType": "media", "name": name, "ifGenerationMatch": "0"}
            async with session.post(f"{url}/upload/storage/v1/b/{BUCKET}/o", params=params, data=body) as answer:
                assert answer.status == 200, await answer.text()
                await answer.read()

        async def get(name):
            async with session.get(f"{url}/storage/v1/b/{BUCKET}/o/{name.replace('/', '%2F')}?alt=media") as answer:
                assert answer.status == 200
                assert len(await answer.read()) == options.size

        return {"put": await timed(put, names, options), "get": await timed(get, names, options)}


async def timed(operation, names, options):
    waiting = list(reversed(names))

    async def work():
        while waiting:
            await operation(waiting.pop())

    started = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(options.concurrency)))
    return (time.perf_counter() - started) / len(names) * 1e6


async def run(servers, options):
    results = {name: {"put": [], "get": []} for name in servers}
    for round_number in range(options.rounds):
        for name, url in servers.items():
            for operation, microseconds in (await measure(url, options, round_number)).items():
                results[name][operation].append(microseconds)
    return {
        name: {operation: statistics.median(found) for operation, found in kinds.items()}
        for name, kinds in results.items()
    }


def report(results):
    """Prints the table, and answers the gateway's ratios to the plain emulator."""
    print(f"{'':24}{'put':>10}{'get':>10}   microseconds per operation")
    for name, kinds in results.items():
        print(f"{name:24}{kinds['put']:10.0f}{kinds['get']:10.0f}")
    ratios = {
        operation: results["gateway"][operation] / results["plain, filesystem"][operation] for operation in LIMITS
    }
    print(f"{'gateway / plain':24}{ratios['put']:10.2f}{ratios['get']:10.2f}   limits: put 2, get 4")
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=int, default=1000, help="objects per round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=16, help="requests in flight")
    parser.add_argument("--size", type=int, default=2000, help="bytes per object")
    parser.add_argument("--check", action="store_true", help="fail when a ratio is over its limit")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        servers = {
            "plain, filesystem": stack.enter_context(FakeGcsServer()).url,
            "plain, memory": stack.enter_context(FakeGcsServer(memory=True)).url,
            "gateway": stack.enter_context(FakeGcs.start(options=["--log-level=error"])).url,
        }
        for url in servers.values():
            create_bucket(url, BUCKET)
        ratios = report(asyncio.run(run(servers, options)))
    if options.check and any(ratios[operation] > limit for operation, limit in LIMITS.items()):
        sys.exit("the gateway is slower than it may be")


if __name__ == "__main__":
    main()

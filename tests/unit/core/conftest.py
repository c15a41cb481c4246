"""A bucket, and hosts on it that run agents of the test's."""

import contextlib

import pytest

from tests.support.hosts import Bucket
from tests.support.turn_host import TurnHost


@pytest.fixture
def bucket():
    return Bucket()


@pytest.fixture
async def start(bucket, tmp_path):
    """Starts hosts, and stops them after the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(script, name="a", store=None, **options):
            host = TurnHost(store or bucket.store, name, script, tmp_path, **options)
            await host.beat()
            stack.push_async_callback(host.close)
            return host

        yield begin

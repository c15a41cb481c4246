"""Requests of an exchange, counted by the gateway: later changes cannot grow them unseen."""

import uuid

import pytest

from fake_gcs.process import FakeGcs
from tests.benchmark.exchanges import exchange


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    with FakeGcs.start() as emulator, exchange(emulator, tmp_path_factory.mktemp("host") / "log") as host:
        host.send("warm up")
        yield host


def test_a_short_task_in_a_new_context(host):
    """Pointer and claim, workspace, task.json: four class A requests in three round trips; six in all."""
    _, before, after = host.send("hello")
    assert before.of_class("A") <= 4, before.keys()
    assert before.of_class("B") == 0, before.keys()
    assert before.round_trips <= 3, before.keys()
    assert before.of_class("A") + after.of_class("A") <= 6, after.keys()


def test_a_short_task_in_a_context_that_this_host_knows(host):
    """The record of the context is not read again; the one read is that of the last workspace."""
    context = str(uuid.uuid4())
    host.send("hello", contextId=context)
    _, before, after = host.send("hello again", contextId=context)
    assert before.of_class("A") <= 4, before.keys()
    assert before.of_class("B") <= 1, before.keys()
    assert before.round_trips <= 4, before.keys()
    assert before.of_class("A") + after.of_class("A") <= 6, after.keys()


def test_a_context_that_the_client_names_is_read_once(host):
    """A client's own context id may be anybody's, so its record is read before the claim."""
    _, before, _ = host.send("hello", contextId=str(uuid.uuid4()))
    assert before.of_class("B") <= 1, before.keys()
    assert before.round_trips <= 4, before.keys()


def test_the_first_event_of_a_stream(host):
    """Two round trips: pointer and claim together, then task.json."""
    first, _, _ = host.stream("hello")
    written = [r for r in first.requests if not r["key"].endswith("workspace.tar.gz")]
    assert len(written) <= 4, first.keys()


def test_a_stream_of_200_chunks(host):
    """Class A requests follow the clock and not the chunks: a batch in a quarter of a second at most."""
    _, whole, after = host.stream("stream 200 256")
    batches = [r for r in whole.requests if r["key"].endswith(".events.json")]
    tasks = [r for r in whole.requests if r["key"].endswith("task.json") and r["operation"] == "objects.insert"]
    assert len(batches) <= 60, whole.keys()
    assert len(tasks) <= 8, whole.keys()
    assert after.of_class("A") == 0, after.keys()


def test_the_bytes_of_a_stream_of_1000_chunks(host):
    """What is written stays below three times what the agent has put out."""
    _, whole, after = host.stream("stream 1000 1024")
    assert whole.bytes_written + after.bytes_written < 3 * 1000 * 1024

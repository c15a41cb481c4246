"""What several hosts over one bucket promise, one fact a test; afterwards the checker looks at it all.

The hosts a and b are shared; each test works in contexts of its own, and finds them mended.
"""

from __future__ import annotations

import os

import pytest
import pytest_asyncio

from tests.chaos import scenarios
from tests.chaos.checker import check
from tests.chaos.world import World, dumped

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

ROUNDS = int(os.environ.get("A2A_GCS_CHAOS_ROUNDS", "3"))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(gateway, tmp_path_factory):
    """Two hosts that live as long as the module. No invariant may be broken in all that the tests do with them."""
    directory = tmp_path_factory.mktemp("many-hosts")
    async with World(gateway, directory) as world:
        yield world
        trace = await world.trace()
        with dumped(trace, directory / "trace.json"):
            assert [str(v) for v in check(trace)] == []


async def test_of_20_messages_at_once_one_is_accepted(world):
    """20 parallel messages to one fresh context over 2 hosts: exactly one is accepted, round after round."""
    await scenarios.rush(world, ROUNDS)


async def test_a_killed_host_blocks_nobody_and_keeps_what_was_journaled(world):
    """kill -9 in a run: the context accepts a new task in time, the old one is FAILED with its journaled artifacts."""
    await scenarios.killed_while_streaming(world)


async def test_a_task_of_a_dead_host_ends_though_nobody_looks(world):
    """The sweep of another host ends what a dead host left running."""
    await scenarios.nobody_looks(world)


async def test_a_frozen_host_that_wakes_overwrites_nothing(world):
    """SIGSTOP for longer than the lease, take-over, SIGCONT: nothing moves backwards."""
    await scenarios.frozen_past_its_lease(world)


async def test_a_host_without_the_bucket_stops_its_agents(world):
    """A partition longer than the lease stops the host's agents, and others take over."""
    await scenarios.parted_from_the_bucket(world)


async def test_a_host_takes_no_work_without_a_lease(world):
    """A host that could not renew its lease refuses work until it has: others would end it at once."""
    await scenarios.work_after_a_lapse(world)


async def test_a_silent_agent_is_canceled_from_another_host(world):
    """A cancel on another host stops an agent that says nothing within seconds."""
    await scenarios.silent_agent_canceled(world)


async def test_a_blocking_agent_is_canceled_from_another_host(world):
    """A cancel on another host is stored at once though the agent blocks its host's loop, which keeps its lease."""
    await scenarios.blocking_agent_canceled(world)


async def test_a_cancel_is_seen_on_the_running_host_at_once(world):
    """After a cancel elsewhere the running host shows nothing of what it has not flushed."""
    await scenarios.read_after_cancel(world)


async def test_a_cancel_wins_over_an_end_on_its_way(world):
    """The first terminal state wins for ever: a completion that lands after a cancel changes nothing."""
    await scenarios.late_end(world)


async def test_a_cancel_loses_no_artifact(world):
    """A cancel that is overtaken by the running host's writes keeps what they stored."""
    await scenarios.cancel_meets_progress(world)


async def test_a_parked_task_is_answered_on_another_host(world):
    """A parked task outlives its host, whoever looks at it, and is answered on another one."""
    await scenarios.parked_host_dies(world)


async def test_of_two_answers_one_wins(world):
    """Two answers to one parked task on two hosts: one runs, the other is refused."""
    await scenarios.two_answers(world)


async def test_streams_are_the_same_on_every_host(world):
    """Subscribers on any host get the same events in the same order, across turns that move between hosts."""
    await scenarios.story(world)


async def test_a_deploy_destroys_no_work(world):
    """SIGTERM with everything at once: exit within 8 s, streams get their last event, the next host continues."""
    await scenarios.everything_at_once_is_drained(world)


async def test_a_deploy_without_the_bucket_ends_in_time(world):
    """SIGTERM during a partition: the process ends within 8 s, and its task is settled by others."""
    await scenarios.drained_without_the_bucket(world)


async def test_a_deploy_with_a_silent_bucket_ends_in_time(world):
    """The same where the bucket takes requests and never answers."""
    await scenarios.drained_in_silence(world)


async def test_a_silent_bucket_stops_the_agents(world):
    """A partition in which nothing is refused, and nothing answered, stops agents within the lease as well."""
    await scenarios.silent_bucket(world)


async def test_a_deploy_does_not_wait_for_deaf_agents(world):
    """SIGTERM with agents that do not stop: exit within 8 s, and the next host continues their tasks."""
    await scenarios.drained_with_deaf_agents(world)


async def test_a_host_may_fail_its_tasks_instead(world):
    """on_shutdown = fail: what ran has FAILED, and the context is free."""
    await scenarios.host_fails_its_tasks(world)


async def test_a_run_has_a_deadline(world):
    """max_run_seconds: the task fails with a message that says so, and the context is free."""
    await scenarios.ran_too_long(world)


async def test_a_wait_has_a_deadline(world):
    """max_wait_seconds: a parked task fails with a message that says so, and the context is free."""
    await scenarios.waited_too_long(world)


async def test_a_bucket_in_trouble_is_an_error_that_says_retry(world):
    """503 for longer than the budget: the request fails, says retry, and the context goes on afterwards."""
    await scenarios.bucket_in_trouble(world)


async def test_an_end_is_told_once_it_is_stored(world):
    """A task whose end cannot be written keeps trying, and never reports success before it is stored."""
    await scenarios.end_that_cannot_be_written(world)

"""Deliveries: what is owed is told in order, at least once, by one host at a time, whatever dies in between."""

import asyncio
import json
from functools import partial

import pytest

from a2a_gcs.host.push import deliveries as module
from a2a_gcs.host.push.deliveries import Deliveries, Pushing
from a2a_gcs.host.push.payload import DELIVERY_ID
from a2a_gcs.host.push.sender import DeliveryFailed
from a2a_gcs.layout import owed_key, push_config_key
from a2a_gcs.ledger.heartbeat import Liveness
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.objectstore.prefix import PrefixStore
from a2a_gcs.records import PushConfigRecord
from a2a_gcs.tasks.notices import next_owed
from a2a_gcs.tasks.push_configs import PushConfigs
from tests.support.faulty_store import FaultyStore
from tests.support.hosts import (
    AUTH_REQUIRED,
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    WORKING,
    Bucket,
    says,
)
from tests.support.moving import move
from tests.support.series import growth
from tests.support.waiting import until

URL = "https://hooks.example/"


class Receiver:
    """The network, as far as a host can see: what it was told, and how it answers."""

    def __init__(self):
        self.told = []
        self.answering = asyncio.Event()
        self.answering.set()
        self.slow = ""  # the URL that `answering` is about; any, if empty
        self.failing = 0
        self.at_once = self.most_at_once = 0

    async def check(self, url):
        return

    async def post(self, url, headers, body):
        status = json.loads(body)["statusUpdate"]["status"]
        self.told.append((url, status["state"].removeprefix("TASK_STATE_"), headers[DELIVERY_ID]))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.slow in {"", url}:
                await self.answering.wait()
        finally:
            self.at_once -= 1
        if self.failing:
            self.failing -= 1
            raise DeliveryFailed("it does not want to")

    @property
    def states(self):
        return [state for _, state, _ in self.told]

    async def aclose(self):
        return


class CountedLiveness(Liveness):
    """Counts how often somebody asked whether another host is dead."""

    asked = 0

    async def is_dead(self, owner):
        self.asked += 1
        return await super().is_dead(owner)


@pytest.fixture
def receiver():
    return Receiver()


@pytest.fixture
def bucket():
    return Bucket()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(module, "_FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(module, "_LONGEST_WAIT_FOR_HOST_SECONDS", 0.01)


@pytest.fixture
async def host_of(bucket, receiver):
    """Hosts that deliver to the receiver, or not, as one that dies before."""
    made = []

    async def host(name, *, delivers=True, retry_for=3600.0, store=None):
        host = await bucket.host(name, store)
        host.liveness = CountedLiveness(host.bucket, host.table)
        host.deliveries = Deliveries(
            host.bucket,
            lambda root: Pushing(host.bucket, PrefixStore(host.bucket, root) if root else host.bucket, root),
            lambda root: host.settler,
            host.liveness,
            receiver,
            host=name,
            retry_for=retry_for,
            every=3600.0,
        )
        if delivers:
            host.records._announce = partial(host.deliveries.announce, "")
        host.configs = PushConfigs(host.bucket, host.records, host.bucket, root="", table=host.table)
        made.append(host)
        return host

    yield host
    for one in made:
        await one.deliveries.aclose()


async def register(host, ref, config_id="c", url=URL):
    await host.configs.register(ref, PushConfigRecord(id=config_id, url=url))
    return ref


async def finished(bucket, ref):
    """All is told, and what told what is owed is gone."""

    async def tidy():
        return not any(key.startswith("push/") or "/owed/" in key for key in await bucket.keys())

    await until(tidy, what=f"what was kept for {ref} to be gone")


def test_what_is_owed_next():
    """The least number that is greater than what was delivered, wherever it is told."""
    assert next_owed([], 0, 0) is None
    assert next_owed([], 7, 0) == 7
    assert next_owed([5, 3], 7, 0) == 3
    assert next_owed([5, 3], 7, 3) == 5
    assert next_owed([5, 3], 7, 5) == 7
    assert next_owed([5, 3], 7, 7) is None
    assert next_owed([5, 7], 7, 5) == 7
    assert next_owed([5], 0, 5) is None


async def test_every_state_that_somebody_waits_for(host_of, receiver, bucket):
    """INPUT_REQUIRED, AUTH_REQUIRED in the middle of a turn, and the end; what lies between is not told."""
    host = await host_of("a")
    claim = await host.start()
    await register(host, claim.ref)
    await host.park(claim)
    claim = await host.answer(claim.ref.task_id)
    await host.save(claim, WORKING)
    await host.save_task(_with(claim, AUTH_REQUIRED), says(claim, AUTH_REQUIRED))
    await host.save(claim, WORKING)
    await host.end(claim)
    await finished(bucket, claim.ref)
    assert receiver.states == ["INPUT_REQUIRED", "AUTH_REQUIRED", "COMPLETED"]
    assert len({one for _, _, one in receiver.told}) == 3


def _with(claim, state):
    task = claim.record.copy_task()
    task.status.CopyFrom(says(claim, state).status)
    return task


async def test_states_that_were_owed_below_another_root_are_told_after_the_move(host_of, receiver, bucket):
    """`migrate --to-root` takes along what leads a host to them: nobody has to touch the task."""
    mute = await host_of("mute", delivers=False)
    claim = await mute.start()
    await register(mute, claim.ref)
    await mute.park(claim)
    await mute.end(await mute.answer(claim.ref.task_id))
    await mute.index.drained()
    await mute.die()
    await move(bucket.store, "", "users/alice")
    await (await host_of("found")).deliveries.look_for_marks()
    await finished(bucket, claim.ref)
    assert receiver.states == ["INPUT_REQUIRED", "COMPLETED"]


@pytest.mark.parametrize("dies_after", range(4))
async def test_states_that_a_dead_host_owed_are_told_by_the_next(host_of, receiver, bucket, dies_after):
    """Each state is stored by a host that delivers nothing and dies; a later one tells all of them in order."""
    mute = [await host_of(f"mute-{n}", delivers=False) for n in range(4)]
    claim = await mute[0].start()
    ref = await register(mute[0], claim.ref)
    await mute[0].park(claim)
    for n in range(1, dies_after + 1):
        claim = await mute[n].answer(ref.task_id)
        await mute[n].save(claim, WORKING)
        await (mute[n].end(claim) if n == 3 else mute[n].park(claim, AUTH_REQUIRED if n == 2 else INPUT_REQUIRED))
    for host in mute:
        await host.die()
    found = await host_of("found")
    await found.deliveries.look_for_marks()
    expected = ["INPUT_REQUIRED", "INPUT_REQUIRED", "AUTH_REQUIRED", "COMPLETED"][: dies_after + 1]
    await until(lambda: receiver.states == expected)
    if dies_after == 3:
        await finished(bucket, ref)


async def test_who_reads_a_task_makes_up_what_is_owed(host_of, receiver, bucket):
    """A get is enough, on any host; and one that finds everything told starts nothing."""
    mute, reads = await host_of("mute", delivers=False), await host_of("reads")
    claim = await mute.start()
    ref = await register(mute, claim.ref)
    await mute.end(claim)
    await mute.die()
    assert (await reads.tasks.read(ref.task_id)).terminal
    await finished(bucket, ref)
    assert receiver.states == ["COMPLETED"]
    await until(lambda: not reads.deliveries._workers)
    assert (await reads.tasks.read(ref.task_id)).terminal
    assert not reads.deliveries._workers


@pytest.mark.parametrize("canceled", [True, False])
async def test_a_configuration_that_comes_with_an_answer(host_of, receiver, bucket, canceled):
    """It is not told what the answer is for, but how the turn ends, be that by its holder or by somebody else."""
    host, other = await host_of("a"), await host_of("b")
    claim = await host.start()
    await host.park(claim)
    claim = await host.answer(claim.ref.task_id)
    await register(host, claim.ref)
    assert claim.record.meta.push
    assert (await other.record(claim.ref.task_id)).meta.push
    await (other.tasks.cancel(claim.ref.task_id) if canceled else host.end(claim))
    await finished(bucket, claim.ref)
    assert receiver.states == ["CANCELED" if canceled else "COMPLETED"]


async def test_a_repeat_has_the_same_id(host_of, receiver, bucket):
    """A host that dies between the receiver's answer and its mark: the next one tells it again, by the same id."""
    first, second = await host_of("first"), await host_of("second")
    claim = await first.start()
    await register(first, claim.ref)
    receiver.answering.clear()
    await first.end(claim)
    await until(lambda: receiver.told)
    await first.deliveries.aclose()
    await first.die()
    receiver.answering.set()
    await second.deliveries.look_for_marks()
    await finished(bucket, claim.ref)
    assert receiver.states == ["COMPLETED"] * 2
    assert len({one for _, _, one in receiver.told}) == 1


async def test_hosts_do_not_overtake_each_other(host_of, receiver, bucket):
    """While one host's request is on its way, another that has the next state waits: and takes over once it is dead."""
    first, second = await host_of("first"), await host_of("second")
    claim = await first.start()
    ref = await register(first, claim.ref)
    receiver.answering.clear()
    await first.park(claim)
    await until(lambda: receiver.told)
    await second.end(await second.answer(ref.task_id))
    await until(lambda: second.liveness.asked >= 3)
    assert receiver.states == ["INPUT_REQUIRED"]
    await first.deliveries.aclose()
    await first.die()
    receiver.answering.set()
    await finished(bucket, ref)
    assert receiver.states == ["INPUT_REQUIRED", "INPUT_REQUIRED", "COMPLETED"]


async def test_a_failure_is_tried_again_and_given_up_in_time(host_of, receiver, bucket):
    """A notice that fails for too long is left out, and what follows it is told."""
    host = await host_of("a", retry_for=0.0)
    claim = await host.start()
    ref = await register(host, claim.ref)
    receiver.failing = 1
    await host.park(claim)
    await until(lambda: receiver.states == ["INPUT_REQUIRED"])
    await host.end(await host.answer(ref.task_id))
    await finished(bucket, ref)
    assert receiver.states == ["INPUT_REQUIRED", "COMPLETED"]

    patient = await host_of("b")
    claim = await patient.start("other")
    await register(patient, claim.ref)
    receiver.failing = 3
    await patient.end(claim)
    await finished(bucket, claim.ref)
    assert receiver.states[2:] == ["COMPLETED"] * 4


async def test_deliveries_are_counted_by_their_outcome(host_of, receiver, bucket):
    """What was accepted, what was not, and what will not be tried again."""
    host = await host_of("a", retry_for=0.0)
    claim = await host.start()
    ref = await register(host, claim.ref)
    receiver.failing = 1
    with growth() as grown:
        await host.park(claim)
        await until(lambda: receiver.states == ["INPUT_REQUIRED"])
        await host.end(await host.answer(ref.task_id))
        await finished(bucket, ref)
        outcomes = ("delivered", "failed", "given up")
        assert [grown("push_deliveries_total", outcome=outcome) for outcome in outcomes] == [1, 1, 1]


async def test_one_receiver_does_not_hold_up_another(host_of, receiver, bucket):
    """Each goes at its own pace through the states of one task."""
    host = await host_of("a")
    claim = await host.start()
    receiver.slow = "https://slow.example/"
    ref = await register(host, claim.ref, "slow", receiver.slow)
    receiver.answering.clear()
    await host.park(claim)
    await until(lambda: receiver.told)
    await register(host, ref, "quick")
    await host.end(await host.answer(ref.task_id))

    def heard(url):
        return [state for at, state, _ in receiver.told if at == url]

    await until(lambda: heard(URL) == ["INPUT_REQUIRED", "COMPLETED"])
    assert heard(receiver.slow) == ["INPUT_REQUIRED"]
    receiver.answering.set()
    await finished(bucket, ref)
    assert heard(receiver.slow) == ["INPUT_REQUIRED", "COMPLETED"]


async def test_a_configuration_that_is_removed_is_not_asked_again(host_of, receiver, bucket):
    """Between two tries; and one that gets another URL is asked there."""
    host = await host_of("a")
    claim = await host.start()
    ref = await register(host, claim.ref, "gone")
    await register(host, ref, "moved", "https://old.example/")
    receiver.failing = 2
    receiver.answering.clear()
    await host.end(claim)
    await until(lambda: len(receiver.told) == 2)
    await host.configs.delete(ref, "gone")
    await register(host, ref, "moved", "https://new.example/")
    receiver.answering.set()
    await finished(bucket, ref)
    assert sorted(url for url, _, _ in receiver.told) == [URL, "https://new.example/", "https://old.example/"]


async def test_a_registration_takes_part_from_the_present_state_on(host_of, receiver, bucket):
    """What the task waits for now is told; what it waited for before is not; nor is anything told twice."""
    host = await host_of("a")
    claim = await host.start()
    await host.park(claim)
    ref = claim.ref
    claim = await host.answer(ref.task_id)
    await host.park(claim, AUTH_REQUIRED)
    await register(host, ref)
    host.deliveries.look_at("", ref)
    await until(lambda: receiver.told)
    await register(host, ref)  # the same id again: another secret, perhaps
    host.deliveries.look_at("", ref)
    await host.end(await host.answer(ref.task_id))
    await finished(bucket, ref)
    assert receiver.states == ["AUTH_REQUIRED", "COMPLETED"]

    await register(host, ref, "late")
    host.deliveries.look_at("", ref)
    await finished(bucket, ref)
    assert receiver.states[2:] == ["COMPLETED"]


@pytest.mark.parametrize("saved", [True, False])
async def test_what_a_dead_host_ran_is_settled_and_told(host_of, receiver, bucket, saved):
    """A marked task whose host is dead: nobody but the look for marks comes upon it, with or without a task.json."""
    dead, found = await host_of("dead", delivers=False), await host_of("found")
    claim = await (dead.start() if saved else dead.claim())
    await register(dead, claim.ref)
    await found.deliveries.look_for_marks()
    await until(lambda: not found.deliveries._workers)
    assert receiver.told == []  # it lives
    await dead.die()
    await found.deliveries.look_for_marks()
    await finished(bucket, claim.ref)
    assert receiver.states == ["FAILED"]
    assert (await found.record(claim.ref.task_id)).task.status.state == FAILED


async def test_a_claim_that_was_given_back_leaves_nothing(host_of, receiver, bucket):
    """A Message for an answer: the configuration goes with the claim's pointer, and a claim under way keeps its own."""
    host = await host_of("a")
    claim = await host.claim()
    ref = await register(host, claim.ref)
    await host.deliveries.look_for_marks()
    await until(lambda: not host.deliveries._workers)
    assert push_config_key(ref, "c") in await bucket.keys()
    await host.ledger.release(claim)
    await host.deliveries.look_for_marks()
    await finished(bucket, ref)
    assert not any("/push/" in key for key in await bucket.keys())
    assert receiver.told == []


async def test_canceled_by_another_host(host_of, receiver, bucket):
    """Who cancels tells so; the run that it ends tells nothing."""
    runs, cancels = await host_of("runs"), await host_of("cancels")
    claim = await runs.start()
    await register(runs, claim.ref)
    await cancels.tasks.cancel(claim.ref.task_id)
    assert not await runs.tasks.still_ours(claim)
    await finished(bucket, claim.ref)
    assert receiver.states == ["CANCELED"]
    assert (await runs.record(claim.ref.task_id)).task.status.state == CANCELED


async def test_the_writer_of_a_task_takes_over_a_registration_from_elsewhere(host_of, receiver, bucket):
    """It is written into the record over which the writer's next write goes, with whatever state that brings."""
    runs, registers = await host_of("runs"), await host_of("registers")
    claim = await runs.start()
    await register(registers, claim.ref)
    assert not claim.record.meta.push
    assert await runs.tasks.still_ours(claim)
    await runs.save_task(_with(claim, WORKING), says(claim, WORKING))
    await runs.end(claim)
    await finished(bucket, claim.ref)
    assert receiver.states == ["COMPLETED"]


async def test_a_look_that_fails_is_made_up_by_the_next(host_of, receiver, bucket):
    """The store is away for a while: nothing is lost, and nothing waits for it."""
    store = FaultyStore(bucket.store)
    host = await host_of("a", store=store)
    claim = await host.start()
    ref = await register(host, claim.ref)
    store.fail("list", "*/push/*")
    await host.end(claim)
    await until(lambda: not host.deliveries._workers)
    assert receiver.told == []
    store.verify()
    await host.deliveries.look_for_marks()
    await finished(bucket, ref)
    assert receiver.states == ["COMPLETED"]


async def test_no_more_than_so_many_are_served_at_a_time(host_of, receiver, bucket, monkeypatch):
    """Receivers that do not answer hold a bounded number of workers; the others are found again by their marks."""
    monkeypatch.setattr(module, "MOST_AT_ONCE", 3)
    host = await host_of("a")
    receiver.answering.clear()
    claims = [await host.start(f"ctx-{n}") for n in range(6)]
    for claim in claims:
        await register(host, claim.ref)
        await host.end(claim)
    await until(lambda: receiver.told)
    assert len(host.deliveries._workers) <= 2 * 3
    receiver.answering.set()

    async def all_told():
        await host.deliveries.look_for_marks()
        return len(receiver.told) >= 6

    await until(all_told)
    assert len({one for _, _, one in receiver.told}) == 6
    assert receiver.most_at_once <= 3


async def test_a_configuration_that_cannot_be_read_is_left_alone(host_of, receiver, bucket):
    """And the others of the task are served."""
    host = await host_of("a")
    claim = await host.start()
    ref = await register(host, claim.ref)
    await bucket.store.put(push_config_key(ref, "broken"), b"{", OVERWRITE)
    await host.end(claim)
    await finished(bucket, ref)
    assert receiver.states == ["COMPLETED"]
    assert (await bucket.store.get(push_config_key(ref, "broken"))).body == b"{"


async def test_a_task_without_configurations_keeps_nothing(host_of, bucket):
    """Not one object more, nor a request: its states are not kept when they are written over."""
    host = await host_of("a")
    claim = await host.start()
    await host.park(claim)
    number = claim.record.meta.notice
    await host.end(await host.answer(claim.ref.task_id))
    assert number
    keys = await bucket.keys()
    assert owed_key(claim.ref, number) not in keys
    assert not any("push" in key for key in keys)
    assert not host.deliveries._workers
    assert (await host.record(claim.ref.task_id)).task.status.state == COMPLETED


async def _owes_three(host_of, damage, body):
    """A dead host that owes three states, one of the kept ones overwritten."""
    mute = await host_of("mute", delivers=False)
    claim = await mute.start()
    ref = await register(mute, claim.ref)
    numbers = []
    for state in (INPUT_REQUIRED, AUTH_REQUIRED):
        await mute.park(claim, state)
        numbers.append(claim.record.meta.notice)
        claim = await mute.answer(ref.task_id)
    await mute.end(claim)
    await mute.bucket.put(owed_key(ref, numbers[damage]), body, OVERWRITE)
    await mute.die()
    return ref


@pytest.mark.parametrize(
    ("damage", "told"), [(0, ["AUTH_REQUIRED", "COMPLETED"]), (1, ["INPUT_REQUIRED", "COMPLETED"])]
)
async def test_a_kept_state_that_cannot_be_read_holds_up_no_later_one(host_of, receiver, bucket, damage, told):
    """It is left out; what was told before is not told again, and the end is."""
    ref = await _owes_three(host_of, damage, b"{")
    await (await host_of("found")).deliveries.look_for_marks()
    await finished(bucket, ref)
    assert receiver.states == told


async def test_a_kept_state_of_a_later_release_waits_for_it(host_of, receiver, bucket):
    """It can be read there, so it is neither left out nor overtaken."""
    await _owes_three(host_of, 0, b'{"schema": 99}')
    found = await host_of("found")
    await found.deliveries.look_for_marks()
    await until(lambda: not found.deliveries._workers)
    assert receiver.states == []
    assert any("/owed/" in key for key in await bucket.keys())

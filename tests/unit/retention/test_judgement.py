"""What may go: by example, and for any holdings what never may."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_gcs.layout import (
    TaskRef,
    context_key,
    encode_segment,
    file_key,
    journal_key,
    owed_key,
    parse_belongs,
    part_key,
    pointer_key,
    push_config_key,
    task_key,
    workspace_key,
)
from a2a_gcs.objectstore.port import ObjectInfo
from a2a_gcs.records import Active, ContextRecord, LastCompleted, Pin, TaskMeta
from a2a_gcs.retention.holdings import ContextHoldings, sort_out
from a2a_gcs.retention.judgement import Judgement, Rules, judge, may_go

RUN, DAY = 100, 1000
RULES = Rules(runs=RUN, tasks=10 * DAY, failed=5 * DAY, contexts=30 * DAY)
COMPLETED, FAILED, WORKING, ASKS = (
    f"TASK_STATE_{name}" for name in ("COMPLETED", "FAILED", "WORKING", "INPUT_REQUIRED")
)


def info(key, age, **metadata):
    return ObjectInfo(key, 1, 10, "crc", metadata, updated=0.0, as_of=float(age))


def task(name, state, age, *extra, is_open=False, pin=None):
    """A task of context `c` with its pointer and workspace; `extra` are further keys with ages."""
    where = TaskRef("c", name)
    return [
        info(pointer_key(name), age + 1, context="c"),
        info(task_key(where), age, **TaskMeta(state=state, open=is_open, turn=1, pin=pin).to_metadata()),
        info(workspace_key(where), age),
        *(info(key, old) for key, old in extra),
    ]


def held(*groups, record_age=0):
    infos = {one.key: one for group in groups for one in group}
    return sort_out([*infos.values(), info(context_key("c"), record_age)], {})["c"]


def record(active=None, last=None, **changes):
    return ContextRecord(
        context_id="c",
        active=Active(task_id=active, owner="h/1") if active else None,
        last_completed=LastCompleted(task_id=last, generation=1, crc32c="x") if last else None,
        **changes,
    )


def keys(infos):
    return [one.key for one in infos]


# ---------------------------------------------------------------- tasks


@pytest.mark.parametrize(
    ("state", "days", "goes"),
    [
        (COMPLETED, 10, True),
        (COMPLETED, 9.9, False),
        (FAILED, 5, True),
        ("TASK_STATE_CANCELED", 5, True),
        ("TASK_STATE_REJECTED", 5, True),
        (FAILED, 4.9, False),
        (WORKING, 1000, False),
        (ASKS, 1000, False),
        ("", 1000, False),
        ("TASK_STATE_OF_A_LATER_VERSION", 1000, False),
    ],
)
def test_tasks_go_by_age_and_state(state, days, goes):
    """Only what has ended; what this version does not understand has not."""
    judgement = judge(held(task("t", state, days * DAY)), record(active="x", last="x"), RULES)
    assert judgement.tasks == (("t",) if goes else ())


def test_a_task_that_is_claimed_is_never_removed_whatever_its_state_says():
    """`open` is the truth about a turn (rule turnflag)."""
    assert judge(held(task("t", FAILED, 99 * DAY, is_open=True)), record(), RULES) == Judgement()


@pytest.mark.parametrize("named", [record(last="t"), record(active="t"), record(active="t", last="u")], ids=str)
def test_the_workspace_that_the_next_task_starts_from_stays(named):
    """The last completed one, and the active one, which may become that."""
    assert judge(held(task("t", COMPLETED, 99 * DAY)), named, replace(RULES, contexts=None)).tasks == ()


@pytest.mark.parametrize("state", [COMPLETED, FAILED])
@pytest.mark.parametrize("pin", [None, Pin(1, "x")])
def test_the_last_completed_one_is_needed_until_the_active_one_takes_its_place(state, pin):
    """That is when it is completed and has a workspace; the record learns of it with the next claim."""
    found = held(task("last", COMPLETED, 99 * DAY), task("active", state, 99 * DAY, pin=pin))
    goes = state == COMPLETED and pin is not None
    assert judge(found, record("active", "last"), RULES).tasks == (("last",) if goes else ())


def test_without_a_record_all_tasks_stay():
    """Nobody knows which one the context goes on from; doctor tells of it."""
    assert judge(held(task("t", COMPLETED, 99 * DAY)), None, RULES).tasks == ()


def test_nothing_younger_than_the_longest_run_goes():
    """A late save of a dead host meets the record that ended its task."""
    rules = Rules(runs=RUN, tasks=0, failed=0, contexts=0)
    young = held(task("t", FAILED, RUN - 2, (part_key(workspace_key(TaskRef("c", "t")), "ab"), RUN - 1)))
    assert judge(young, record(), rules, referenced=frozenset(), unchanged=True) == Judgement()
    assert not may_go(young, rules)
    assert judge(held(task("t", FAILED, RUN)), record(), rules).tasks == ("t",)


def test_without_rules_no_task_goes():
    """For ever is the default."""
    found = held(task("t", COMPLETED, 10**9), record_age=10**9)
    assert judge(found, record(), Rules(runs=RUN), unchanged=True) == Judgement()


# ---------------------------------------------------------------- contexts


def idle(*groups, days=30):
    return held(*groups, record_age=days * DAY)


@pytest.mark.parametrize(
    ("found", "named", "options", "goes"),
    [
        (idle(task("t", COMPLETED, 30 * DAY)), record(active="t"), {}, True),
        (idle(), record(), {}, True),
        (idle(task("t", COMPLETED, 29 * DAY)), record(active="t"), {}, False),
        (idle(task("t", COMPLETED, 30 * DAY), days=29), record(active="t"), {}, False),
        (idle(task("t", COMPLETED, 30 * DAY)), record(active="t"), {"unchanged": False}, False),
        (idle(task("t", ASKS, 99 * DAY)), record(active="t"), {}, False),
        (idle(task("t", WORKING, 99 * DAY, is_open=True)), record(active="t"), {}, False),
        (idle(), record(active="t"), {}, False),
        (idle(), record(active="t"), {"abandoned": True}, True),
    ],
    ids=[
        *("idle", "empty", "a task that ended since", "a claim since", "read anew", "one waits", "one runs"),
        *("one is about to start", "one was to start on a host that is dead"),
    ],
)
def test_contexts_go_when_they_are_idle(found, named, options, goes):
    """Everything in them has ended, and nobody has asked for anything since."""
    assert judge(found, named, RULES, **{"unchanged": True, **options}).whole == goes


def test_a_removal_that_broke_off_goes_on():
    """Its mark is young; that is no reason to wait as long again."""
    found = held(task("t", COMPLETED, 40 * DAY), record_age=1)
    assert judge(found, record().emptied(), RULES, unchanged=True).whole
    assert not judge(held(task("t", ASKS, 40 * DAY)), record().emptied(), RULES, unchanged=True).whole


def test_a_claim_ends_a_removal():
    """Also one by an earlier version, which writes the mark back as it found it."""
    marked = record(last="t").emptied()
    assert (marked.being_removed, marked.last_completed) == (True, None)
    claimed = marked.claimed(Active(task_id="t2", owner="h/2"), None, None)
    assert not claimed.being_removed
    assert not claimed.released().being_removed


# ---------------------------------------------------------------- what belongs to no task


def test_orphans_go_once_no_run_can_need_them():
    """A pointer without a task, archives and notifications without a record, batches of either."""
    lost, where = TaskRef("c", "lost"), workspace_key(TaskRef("c", "lost"))
    found = held(
        task(
            "t", COMPLETED, RUN, (journal_key(TaskRef("c", "t"), 1, 1), RUN), (journal_key(TaskRef("c", "t"), 1, 2), 1)
        ),
        [info(pointer_key("lost"), RUN, context="c"), info(where, RUN), info(journal_key(lost, 1, 1), RUN)],
        [info(pointer_key("young"), RUN - 1, context="c")],
        [info(pointer_key("active"), 99 * DAY, context="c")],
    )
    judgement = judge(found, record(active="active", last="t"), RULES)
    assert keys(judgement.orphans) == [where, pointer_key("lost")]
    assert keys(judgement.batches) == [journal_key(TaskRef("c", "t"), 1, 1), journal_key(lost, 1, 1)]
    assert judgement.tasks == ()


def test_batches_of_a_task_that_goes_on_stay():
    """They are part of what it is."""
    batch = journal_key(TaskRef("c", "t"), 1, 1)
    assert judge(held(task("t", ASKS, 99 * DAY, (batch, 99 * DAY))), record(active="t"), RULES).batches == ()


def test_parts_that_nothing_refers_to_go():
    """Not while it is unknown what refers to them."""
    used, unused, young = (part_key(workspace_key(TaskRef("c", "t")), name) for name in ("aa", "bb", "cc"))
    found = held(task("t", COMPLETED, RUN), [info(used, RUN), info(unused, RUN), info(young, RUN - 1)])
    assert keys(judge(found, record(last="t"), RULES, referenced=frozenset({used})).parts) == [unused]
    assert judge(found, record(last="t"), RULES).parts == ()


@pytest.mark.parametrize(
    "where", [TaskRef("c", "t"), TaskRef("parts", "context.json"), TaskRef("..", "\u00fc/ %")], ids=str
)
def test_every_kind_of_object_is_known_to_be_somebodys(where):
    """A kind that is not would stay for ever: whoever adds one to the layout adds it here."""
    of_task = [
        *(task_key(where), workspace_key(where), journal_key(where, 3, 7), file_key(where, "0a" * 32)),
        *(push_config_key(where, "id"), owed_key(where, 5)),
    ]
    of_context = [context_key(where.context_id), part_key(workspace_key(where), "ab" * 32)]
    assert {parse_belongs(key) for key in of_task} == {where}
    assert {parse_belongs(key) for key in of_context} == {(where.context_id, "")}
    pointer = info(pointer_key(where.task_id), DAY, context=encode_segment(where.context_id))
    [found] = sort_out([pointer, *(info(key, DAY) for key in (*of_task, *of_context))], {}).values()
    assert len(found.objects) == 1 + len(of_task) + len(of_context)


def test_what_is_not_ours_is_not_seen():
    """Other names below a context, and ids that no host writes."""
    foreign = ["contexts/c/notes.txt", "contexts/c/t/file", "tasks/t/other", "contexts/c/parts/x.bin", "x"]
    assert sort_out([info(key, 99 * DAY) for key in foreign], {}) == {}


def test_a_pointer_that_does_not_tell_its_context_is_left_to_its_body():
    """Then whoever reads it knows."""
    pointer = info(pointer_key("t"), DAY)
    assert sort_out([pointer], {}) == {}
    assert sort_out([pointer], {"t": "c"})["c"].tasks["t"].pointer == pointer


# ---------------------------------------------------------------- for any holdings

names = st.sampled_from("abc")
ages = st.integers(0, 60 * DAY)
states = st.sampled_from([COMPLETED, FAILED, WORKING, ASKS, ""])
limits = st.none() | st.integers(0, 40 * DAY)
rules = st.builds(Rules, runs=st.integers(0, 2 * DAY), tasks=limits, failed=limits, contexts=limits)
tasks = st.builds(task, names, states, ages, is_open=st.booleans())
loose = st.builds(
    lambda key, age: [info(key, age, context="c")],
    st.sampled_from(
        [pointer_key("d"), workspace_key(TaskRef("c", "d")), journal_key(TaskRef("c", "a"), 1, 1)]
        + [part_key(workspace_key(TaskRef("c", "a")), name) for name in ("aa", "bb")]
    ),
    ages,
)
holdings = st.builds(lambda groups, age: held(*groups, record_age=age), st.lists(tasks | loose, max_size=6), ages)
records = st.none() | st.builds(record, st.none() | names, st.none() | names)


def gone(found: ContextHoldings, judgement: Judgement) -> list[ObjectInfo]:
    if judgement.whole:
        return found.objects
    removed = [one for name in judgement.tasks for one in found.tasks[name].objects]
    return [*removed, *judgement.orphans, *judgement.batches, *judgement.parts]


def _kept(named, found):
    return {one.task_id for one in (named.active, named.last_completed) if one} if named else set(found.tasks)


@settings(max_examples=50)
@given(holdings, records, rules, st.booleans(), st.booleans())
def test_what_never_goes(found, named, given_rules, unchanged, abandoned):
    """No task that has not ended, none that the record names while the context lives, nothing young, nothing twice."""
    judgement = judge(found, named, given_rules, referenced=frozenset(), unchanged=unchanged, abandoned=abandoned)
    removed = gone(found, judgement)
    assert len({one.key for one in removed}) == len(removed)
    for name in found.tasks if judgement.whole else judgement.tasks:
        assert found.tasks[name].ended or found.tasks[name].record is None
    if judgement.whole:
        assert unchanged
        assert found.record.age >= given_rules.runs
        return
    assert found.record not in removed
    active = named.active.task_id if named and named.active else None
    kept = {active} if active in found.tasks and found.tasks[active].ended else _kept(named, found)
    assert not kept & set(judgement.tasks)
    for one in (*judgement.orphans, *judgement.batches, *judgement.parts):
        assert one.age >= given_rules.runs
    for name in judgement.tasks:
        assert found.tasks[name].record.age >= given_rules.runs
    if removed:
        assert may_go(found, given_rules)


@settings(max_examples=50)
@given(holdings, records, rules, st.integers(1, 10 * DAY))
def test_whoever_keeps_longer_keeps_more(found, named, given_rules, more):
    """No rule that is made longer lets go what a shorter one did not."""

    def longer(value):
        return None if value is None else value + more

    patient = Rules(
        runs=given_rules.runs,
        tasks=longer(given_rules.tasks),
        failed=longer(given_rules.failed),
        contexts=longer(given_rules.contexts),
    )
    strict = {one.key for one in gone(found, judge(found, named, given_rules, unchanged=True))}
    assert {one.key for one in gone(found, judge(found, named, patient, unchanged=True))} <= strict

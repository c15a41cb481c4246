"""Bars of a timeline."""

from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.console.history import Past
from a2a_gcs.console.timeline import WIDTH, bars
from a2a_gcs.records import Ran

HOUR = 3_600_000


def past(name, *turns, state="TASK_STATE_COMPLETED", changed=None):
    ran = tuple(Ran(*turn) for turn in turns)
    last = changed if changed is not None else (ran[-1].until or ran[-1].since)
    return Past(name, state, open=not ran[-1].until, since=ran[0].since, changed=last, turns=ran, pinned=False, size=0)


def test_a_wait_lies_between_two_turns():
    (found,) = bars([past("a", (1000, 2000), (5000, 6000))], now=9000).values()
    assert [(bar.kind, bar.seconds) for bar in found] == [("ran", 1.0), ("waited", 3.0), ("ran", 1.0)]
    assert found[0].left == 0
    assert found[-1].left + found[-1].width == WIDTH


def test_what_has_not_ended_goes_on_until_now():
    runs = past("a", (1000,), state="TASK_STATE_WORKING", changed=1000)
    waits = past("b", (1000, 2000), state="TASK_STATE_INPUT_REQUIRED")
    found = bars([runs, waits], now=9000)
    assert [(bar.kind, bar.seconds) for bar in found["a"]] == [("ran", 8.0)]
    assert [(bar.kind, bar.seconds) for bar in found["b"]] == [("ran", 1.0), ("waited", 7.0)]


def test_a_day_without_tasks_does_not_make_them_invisible():
    found = bars([past("a", (0, 1000)), past("b", (24 * HOUR, 24 * HOUR + 1000))], now=0)
    assert [round(found[name][0].width) for name in "ab"] == [350, 350]


@given(
    st.lists(
        st.tuples(st.integers(0, 10**13), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9)),
        max_size=20,
    )
)
def test_every_bar_can_be_seen_and_lies_on_the_axis(times):
    tasks = [past(str(n), (a, a + b), (a + b + c, a + b + c + d)) for n, (a, b, c, d) in enumerate(times)]
    for some in bars(tasks, now=10**13).values():
        for bar in some:
            assert bar.width >= 6
            assert 0 <= bar.left <= WIDTH - bar.width + 0.1

"""How sizes, times and names look."""

import pytest

from a2a_gcs.console.rendering import duration, moment, printable, size, state_class, state_label


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (123_456, "123 KB"), (5e7, "50.0 MB"), (2e16, "20000.0 TB")],
)
def test_sizes(number, text):
    assert size(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0421, "42 ms"), (3.25, "3.2 s"), (125, "2 min 5 s"), (7500, "2 h 5 min"), (200_000, "2 d 7 h")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_states():
    assert state_label("TASK_STATE_INPUT_REQUIRED") == "input required"
    assert state_class("TASK_STATE_INPUT_REQUIRED") == "input-required"
    assert state_class('"><script>') == "unknown"


def test_a_time_that_is_none():
    assert moment(0) is None
    assert moment(1e30) is None


def test_a_name_that_turns_the_text_around_it_is_escaped():
    assert printable("a\u202egpj.exe\n\udc80é") == "a\\u202egpj.exe\\n\\udc80é"

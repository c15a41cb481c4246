"""Range headers: RFC 9110's own examples, what is ignored, and what cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.host.byte_range import Unsatisfiable, byte_range


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("bytes=0-499", range(500)),
        ("bytes=500-999", range(500, 1000)),
        ("bytes=-500", range(9500, 10000)),
        ("bytes=9500-", range(9500, 10000)),
        ("bytes=0-0", range(1)),
        ("bytes=9999-20000", range(9999, 10000)),
        ("bytes=-20000", range(10000)),
        ("BYTES = 1 - 2", range(1, 3)),
        ("bytes=0-0,-1", None),
        ("bytes=5-4", None),
        ("bytes=-", None),
        ("lines=1-2", None),
        ("bytes=a-b", None),
        ("bytes=" + "9" * 30 + "-", None),
        ("", None),
        (None, None),
    ],
)
def test_what_a_header_asks_for(header, wanted):
    """Of 10,000 bytes; None: the whole, as for anything that a server may ignore."""
    assert byte_range(header, 10_000) == wanted


@pytest.mark.parametrize(("header", "size"), [("bytes=10000-", 10_000), ("bytes=-0", 10_000), ("bytes=0-", 0)])
def test_nothing_of_it_is_there(header, size):
    """Beyond the end, of no length, or of an empty content: 416."""
    with pytest.raises(Unsatisfiable):
        byte_range(header, size)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 40))
def test_a_range_is_what_a_slice_is(first, last, size):
    """A range that begins inside is never empty, and never reaches beyond the end."""
    content = bytes(range(size))
    if first < size and first <= last:
        wanted = byte_range(f"bytes={first}-{last}", size)
        assert content[wanted.start : wanted.stop] == content[first : last + 1] != b""

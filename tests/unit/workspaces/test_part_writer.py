"""Parts that several threads compress: the same bytes in the same order, and not much of them at once."""

import gzip
import random
import threading

import pytest

from a2a_gcs.workspaces.limits import Limits, Meter
from a2a_gcs.workspaces.manifest import Part
from a2a_gcs.workspaces.members import Kind, Member
from a2a_gcs.workspaces.part_writer import PartWriter

SIZE = 64 << 10


def write(writer, files, every=3, seed=1):
    rng = random.Random(seed)
    for number in range(files):
        data = rng.randbytes(rng.choice([100, 5000, 2 * SIZE]))
        writer.member(Member(b"f%03d" % number, Kind.FILE, 0o644, 0, len(data)))
        writer.content(data)
        writer.end_of_file(len(data))
        if number % every == 0:
            writer.cut()
    writer.cut()
    writer.finish()


def packed(threads, monkeypatch, files=60):
    monkeypatch.setattr("os.cpu_count", lambda: threads)
    found = []
    with PartWriter(SIZE, lambda part, data: found.append((part, data)), Meter(Limits())) as writer:
        write(writer, files)
    assert [part for part, _ in found] == writer.parts
    assert len(found) == writer.count
    return found


def test_bytes_and_order_do_not_hang_on_the_threads(monkeypatch):
    """One thread or four: the same parts, one after the other, and together they are the tar."""
    one, four = packed(1, monkeypatch), packed(4, monkeypatch)
    assert one == four
    assert len(one) > 20
    for part, data in four:
        assert part.unpacked == len(gzip.decompress(data))


def test_parts_that_are_kept_stay_in_their_place():
    """Also while the part before them is still being packed."""
    kept = Part("k" * 64, 1, 512, 0)
    order = []
    with PartWriter(SIZE, lambda part, _: order.append(part), Meter(Limits())) as writer:
        for number in range(20):
            writer.member(Member(b"d%d" % number, Kind.DIRECTORY, 0o755, 0))
            writer.cut()
            writer.keep([kept])
        writer.finish()
    assert [part == kept for part in writer.parts] == [False, True] * 20
    assert [part for part in writer.parts if part != kept] == order


def test_only_some_parts_are_under_way(monkeypatch):
    """A reader that is faster than all threads waits for them: memory is bounded."""
    monkeypatch.setattr("a2a_gcs.workspaces.part_writer._AHEAD", 4 * SIZE)
    held, most = threading.Semaphore(0), 0
    with PartWriter(SIZE, lambda *_: held.release(), Meter(Limits())) as writer:
        for number in range(30):
            writer.member(Member(b"f%d" % number, Kind.FILE, 0o644, 0, SIZE))
            writer.content(bytes(SIZE))
            writer.end_of_file(SIZE)
            writer.cut()
            most = max(most, writer.count - len(writer.parts))
        writer.finish()
    assert 1 <= most <= 4


def test_whoever_stops_leaves_no_thread():
    """A sink that raises, as one does that nobody listens to any more, ends the threads too."""

    def refuse(*_):
        raise ConnectionError

    with pytest.raises(ConnectionError), PartWriter(SIZE, refuse, Meter(Limits())) as writer:
        write(writer, 20)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("workspace-gzip")]

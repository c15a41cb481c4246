"""What a program finds beside its workspace, and what of its outbox becomes artifacts."""

import json
import os
from pathlib import Path

import pytest
from a2a.types.a2a_pb2 import Message, Part, Role
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.executors.command_files import MAX_HANDED_OUT, OutboxRefused, handed_out, safe_name, turn_files
from a2a_gcs.layout import TaskRef
from a2a_gcs.workspaces.workdir import WorkDirs


@pytest.fixture
def workdirs(tmp_path):
    made = WorkDirs(tmp_path / "work")
    yield made
    made.close()


def message(*parts):
    return Message(message_id="m", role=Role.ROLE_USER, parts=parts)


def raw(name, body=b"x", media_type=""):
    return Part(raw=body, filename=name, media_type=media_type)


async def inbox(workdirs, *parts):
    """What a message's parts become: name to content."""
    async with turn_files(workdirs, TaskRef("c", "t"), message(*parts)) as files:
        assert {path.parent for path in files.inbox.rglob("*")} <= {files.inbox}
        return {path.name: path.read_bytes() for path in files.inbox.iterdir()}


async def test_the_message_is_there_as_json_and_as_text(workdirs):
    """The JSON is an A2A message, bytes and all; the text ends with a newline. Afterwards nothing is left."""
    sent = message(Part(text="héllo"), raw("a.bin", b"\0\xff"), Part(url="http://x/y", filename="y"))
    async with turn_files(workdirs, TaskRef("c", "t"), sent) as files:
        assert ParseDict(json.loads(files.message.read_text("utf-8")), Message()) == sent
        assert files.stdin.read_bytes() == "héllo\n".encode()
        assert list(files.outbox.iterdir()) == []
        assert files.directory.stat().st_mode & 0o777 == 0o700
    assert not files.directory.exists()


async def test_a_message_without_text_is_empty_input(workdirs):
    """And one that ends with a newline gets no second one."""
    async with turn_files(workdirs, TaskRef("c", "t"), message(raw("a"))) as files:
        assert files.stdin.read_bytes() == b""
    async with turn_files(workdirs, TaskRef("c", "t"), message(Part(text="a\r\n"))) as files:
        assert files.stdin.read_bytes() == b"a\r\n"


async def test_file_parts_are_placed_under_safe_names(workdirs):
    """Nothing outside of the inbox, no hidden file, no two of one name; URLs are not fetched."""
    parts = [
        raw("../../etc/passwd", b"1"),
        raw("/abs/path.txt", b"2"),
        raw("C:\\dir\\win.txt", b"3"),
        raw("..", b"4", "image/png"),
        raw(".bashrc", b"5"),
        raw("-rf", b"6"),
        raw("PATH.txt", b"7"),
        raw("path.TXT", b"8"),
        raw("a\nb\x1b.txt", b"9"),
        raw("", b"10"),
        Part(url="http://127.0.0.1/secret", filename="url.txt"),
        Part(text="text", filename="text.txt"),
    ]
    assert await inbox(workdirs, *parts) == {
        "passwd": b"1",
        "path.txt": b"2",
        "win.txt": b"3",
        "file-4.png": b"4",
        "bashrc": b"5",
        "rf": b"6",
        "PATH-2.txt": b"7",
        "path-3.TXT": b"8",
        "a_b_.txt": b"9",
        "file-10": b"10",
    }


@given(given_name=st.text(max_size=400))
def test_every_name_becomes_one_that_any_file_system_takes(given_name):
    """One segment, never hidden, short, printable ends; or nothing."""
    name = safe_name(given_name)
    assert "/" not in name
    assert "\0" not in name
    assert not name.startswith((".", "-"))
    assert len(name.encode()) <= 170
    assert name == Path(name).name or not name


def test_a_long_name_keeps_its_suffix():
    """What kind of file it is stays visible."""
    assert safe_name("é" * 300 + ".csv") == "é" * 73 + ".csv"


@pytest.fixture
def outbox(tmp_path):
    (tmp_path / "outbox").mkdir()
    return tmp_path / "outbox"


def test_files_in_the_outbox_are_parts_with_a_media_type(outbox):
    """Also those in directories, in the order of their names, with bytes as they are."""
    (outbox / "sub").mkdir()
    for name, body in {
        "b.png": b"\x89PNG",
        "a.txt": b"text",
        "sub/c.tar.gz": b"\x1f\x8b",
        "d": b"",
        "n.json": b"{}",
    }.items():
        (outbox / name).write_bytes(body)
    (outbox / "empty").mkdir()
    assert [(part.filename, part.media_type, part.raw) for part in handed_out(outbox, 100)] == [
        ("a.txt", "text/plain", b"text"),
        ("b.png", "image/png", b"\x89PNG"),
        ("d", "application/octet-stream", b""),
        ("n.json", "application/json", b"{}"),
        ("sub/c.tar.gz", "application/gzip", b"\x1f\x8b"),
    ]


def test_a_name_that_is_no_utf8_is_shown_escaped(outbox):
    """A part's name has to be text."""
    Path(os.fsdecode(os.fsencode(outbox) + b"/\xff.txt")).write_bytes(b"x")
    assert [part.filename for part in handed_out(outbox, 100)] == ["\\xff.txt"]


def link(outbox):
    (outbox / "link").symlink_to("/etc/passwd")


def linked_directory(outbox):
    (outbox / "link").symlink_to("/etc")


def fifo(outbox):
    os.mkfifo(outbox / "fifo")


def many(outbox):
    for n in range(MAX_HANDED_OUT + 1):
        (outbox / str(n)).touch()


def large(outbox):
    (outbox / "a").write_bytes(bytes(60))
    (outbox / "b").write_bytes(bytes(60))


@pytest.mark.parametrize(
    ("fill", "says"),
    [
        (link, "'link' into its outbox, which cannot be read"),
        (linked_directory, "'link' into its outbox, which cannot be read"),
        (fifo, "'fifo' into its outbox, which is no file"),
        (many, "more than 100 files"),
        (large, "more bytes into its outbox than the host allows .*, with 'b'"),
    ],
)
def test_what_cannot_be_an_artifact_is_refused_by_name(outbox, fill, says):
    """Links are not followed, pipes are not waited for, and limits count all files together."""
    fill(outbox)
    with pytest.raises(OutboxRefused, match=says):
        list(handed_out(outbox, 100))


def test_an_outbox_that_is_gone_or_a_link_is_empty(outbox):
    """The program may have removed it, or put something else in its place."""
    outbox.rmdir()
    assert list(handed_out(outbox, 100)) == []
    outbox.symlink_to("/etc")
    assert list(handed_out(outbox, 100)) == []

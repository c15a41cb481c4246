"""Messages and artifacts as blocks of a page."""

import math

from a2a.types.a2a_pb2 import Artifact, Message, Part, Role, Task
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

from a2a_gcs.console.parts import (
    MAX_ARTIFACTS,
    MAX_BLOCK_CHARS,
    MAX_BLOCKS,
    MAX_MESSAGES,
    MAX_PAGE_CHARS,
    Allowance,
    artifacts,
    conversation,
    part_at,
)
from a2a_gcs.tasks.files import SIZE


def blocks(*parts):
    made, _ = artifacts(Task(artifacts=[Artifact(artifact_id="a", parts=parts)]), Allowance())
    return made[0].blocks


def test_chunks_of_a_stream_are_one_text():
    assert [b.text for b in blocks(Part(text="a"), Part(text="b"), Part(text="c"))] == ["abc"]


def test_text_with_a_file_name_stands_alone():
    found = blocks(Part(text="a"), Part(text="b", filename="b.md", media_type="text/markdown"), Part(text="c"))
    assert [(b.text, b.name) for b in found] == [("a", ""), ("b", "b.md"), ("c", "")]


def test_numbers_of_data_look_as_they_were_written():
    value = ParseDict({"whole": 120, "part": 1.5, "list": [1]}, Value())
    (found,) = blocks(Part(data=value))
    assert found.kind == "json"
    assert '"whole": 120' in found.text
    assert "120.0" not in found.text
    assert "1.5" in found.text


def test_data_that_is_large_is_a_download():
    (found,) = blocks(Part(data=ParseDict(["x" * 2_000_000], Value())))
    assert found.kind == "file"


def test_only_images_that_run_nothing_are_shown():
    kinds = {t: blocks(Part(raw=b"x", media_type=t))[0].kind for t in ("image/png", "image/svg+xml", "text/html", "")}
    assert kinds == {"image/png": "image", "image/svg+xml": "file", "text/html": "file", "": "file"}


def test_only_web_addresses_are_followed():
    hrefs = {
        u: blocks(Part(url=u))[0].href for u in ("https://a.example/b", "javascript:alert(1)", "data:text/html,x", "[")
    }
    assert [u for u, href in hrefs.items() if href] == ["https://a.example/b"]


def test_what_is_kept_beside_the_task_is_told_by_its_metadata():
    """An address that only looks like the API's is a link, and so is one with a size that is none."""
    name = "0" * 64
    known = Part(url=f"https://h.example/files/t/{name}", media_type="image/png", metadata={SIZE: 7})
    (found,) = blocks(known)
    assert (found.kind, found.size, found.where) == ("image", 7, f"files/{name}")
    for url, size in ((known.url, "7"), (known.url, -1), (known.url, math.inf), ("https://h.example/files/t/x", 7)):
        assert blocks(Part(url=url, metadata={SIZE: size}))[0].kind == "link"
    assert blocks(Part(url=known.url))[0].kind == "link"


def test_a_page_is_bounded_whatever_a_task_holds():
    """Each text is cut, all together are, and the number of messages, artifacts and blocks is."""
    long = "x" * (MAX_BLOCK_CHARS + 10)
    many = [Artifact(artifact_id=str(n), parts=[Part(text=long), Part(raw=b"")] * 70) for n in range(MAX_ARTIFACTS + 5)]
    history = [Message(role=Role.ROLE_USER, parts=[Part(text=long)]) for _ in range(MAX_MESSAGES + 3)]
    allowance = Allowance()
    made, more = artifacts(Task(artifacts=many), allowance)
    said, earlier = conversation(Task(history=history), allowance)
    assert (len(made), more, len(said), earlier) == (MAX_ARTIFACTS, 5, MAX_MESSAGES, 3)
    assert max(len(one.blocks) for one in made) == MAX_BLOCKS
    shown = [block for one in (*made, *said) for block in one.blocks]
    assert sum(len(block.text) for block in shown) == MAX_PAGE_CHARS
    assert (len(shown[0].text), shown[0].cut) == (MAX_BLOCK_CHARS, 10)


def test_a_part_is_found_by_its_name():
    task = Task(
        artifacts=[Artifact(parts=[Part(text="x"), Part(raw=b"one")])],
        history=[Message(parts=[Part(raw=b"two")])],
    )
    task.status.message.parts.add(raw=b"three")
    assert [part_at(task, where).raw for where in ("a0.1", "h0.0", "s.0")] == [b"one", b"two", b"three"]
    for wrong in (
        "",
        "a",
        "a0",
        "a0.2",
        "a1.0",
        "a-1.0",
        "a0.-1",
        "x0.0",
        "s0.0",
        "a0.99999999999",
        "a\u0660.0",
        "a0.1.1",
    ):
        assert part_at(task, wrong) is None, wrong

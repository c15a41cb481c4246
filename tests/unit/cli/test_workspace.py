"""`workspace ls | cat | pull | diff`: what tasks left, read from a store that no host serves."""

import asyncio
import contextlib
import gzip
import io
import itertools
import json
import os
import shutil
import subprocess
import tarfile
import tracemalloc

import pytest
from a2a.types.a2a_pb2 import Task

from a2a_gcs.layout import workspace_key
from a2a_gcs.objectstore import open_store
from a2a_gcs.objectstore.port import OVERWRITE
from a2a_gcs.records import START_FROM
from a2a_gcs.workspaces.errors import SnapshotCorrupt
from a2a_gcs.workspaces.reading import TarGz
from a2a_gcs.workspaces.snapshots import Snapshots
from tests.support.hosts import CANCELED, COMPLETED, FAILED, INPUT_REQUIRED, WORKING, Bucket, message, status

TIME = 1_700_000_000
SHOWN = "2023-11-14T22:13:20Z"


class Tasks:
    """Leaves tasks in a store, as hosts would.

    Attributes:
        uri: The store.
    """

    def __init__(self, tmp_path):
        self.uri = f"file:{tmp_path / 'store'}"
        self._directory = tmp_path / "tree"

    def end(self, state=COMPLETED, *, context="ctx", start_from=None, **files):
        """Runs a task to a state, with files by name (`__` for `/`): text, bytes, or a function of the path."""
        said = message()
        if start_from:
            said.metadata[START_FROM] = start_from
        return asyncio.run(self._end(state, context, said, files))

    def begin(self):
        """A task that runs."""
        return asyncio.run(self._with_host(lambda host, _: host.start("ctx")))

    async def _with_host(self, act):
        async with open_store(self.uri) as store:
            host = await Bucket(store).host("h")
            return (await act(host, store)).ref.task_id

    async def _end(self, state, context, said, files):
        async def act(host, store):
            claim = await host.start(context, said)
            await host.save_task(Task(id=claim.ref.task_id, context_id=context, history=[said], status=status(WORKING)))
            with self._tree(files) as tree:
                saved = await Snapshots(store).save(tree, workspace_key(claim.ref), replaces=0)
            if state == INPUT_REQUIRED:
                await host.park(claim, pin=saved.pin)
            else:
                await host.end(claim, state, None if state == CANCELED else saved.pin)
            return claim

        return await self._with_host(act)

    @contextlib.contextmanager
    def _tree(self, files):
        self._directory.mkdir()
        try:
            for name, content in files.items():
                path = self._directory / name.replace("__", "/")
                path.parent.mkdir(parents=True, exist_ok=True)
                if callable(content):
                    content(path)
                else:
                    path.write_bytes(content.encode() if isinstance(content, str) else content)
                    path.chmod(0o644)
            for path in sorted(self._directory.rglob("*"), reverse=True):
                os.utime(path, (TIME, TIME), follow_symlinks=False)
            yield self._directory
        finally:
            shutil.rmtree(self._directory)

    def replace(self, task, body):
        """Puts other bytes in the place of a task's archive."""

        async def write():
            async with open_store(self.uri) as store:
                ref = next(
                    info.key for info in (await store.list("contexts/")).objects if f"/{task}/workspace" in info.key
                )
                await store.put(ref, body, OVERWRITE)

        asyncio.run(write())

    def forget_bases(self):
        """Leaves task.json as versions wrote it that did not record where a task started."""

        async def forget():
            async with open_store(self.uri) as store:
                records = [info for info in (await store.list("contexts/")).objects if info.key.endswith("/task.json")]
                for info in sorted(records, key=lambda info: info.updated):
                    metadata = {name: value for name, value in info.metadata.items() if name != "base"}
                    assert metadata != info.metadata
                    await store.put(info.key, (await store.get(info.key)).body, OVERWRITE, metadata=metadata)

        asyncio.run(forget())


@pytest.fixture
def tasks(tmp_path):
    return Tasks(tmp_path)


@pytest.fixture
def workspace(run, tasks):
    """Runs a command that succeeds: what it prints."""

    def workspace(*arguments, **environment):
        result = run("workspace", *arguments, A2A_GCS_STORE=tasks.uri, **environment)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    return workspace


@pytest.fixture
def refused(run, tasks):
    """Runs a command that fails with status 1: its message."""

    def refused(*arguments):
        result = run("workspace", *arguments, A2A_GCS_STORE=tasks.uri)
        assert (result.exit_code, result.stdout) == (1, "")
        return result.stderr.splitlines()[-1].removeprefix("error: ")

    return refused


def link(target):
    return lambda path: path.symlink_to(target)


def executable(path):
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


# ---------------------------------------------------------------------- ls


def test_ls_shows_mode_size_time_and_path(workspace, tasks):
    """One line an entry, in the order of the archive; links show where they lead."""
    task = tasks.end(**{"a.txt": "12345", "bin__run": executable, "link": link("a.txt")})
    assert workspace("ls", task).splitlines() == [
        f"-rw-r--r--              5  {SHOWN}  a.txt",
        f"drwxr-xr-x              0  {SHOWN}  bin",
        f"-rwxr-xr-x             10  {SHOWN}  bin/run",
        f"lrwxrwxrwx              0  {SHOWN}  link -> a.txt",
    ]


@pytest.mark.parametrize("path", ["bin", "bin/", "./bin", "/bin", "bin/run/.."])
def test_ls_of_a_path_shows_it_and_what_is_below(workspace, tasks, path):
    """However it is written; names that only begin like it are not shown."""
    task = tasks.end(bin__run=executable, binary="x")
    assert [line.split()[-1] for line in workspace("ls", task, path).splitlines()] == ["bin", "bin/run"]


def test_ls_json_is_one_object_a_line(workspace, tasks):
    """For scripts: octal mode, bytes, UTC."""
    task = tasks.end(**{"a.txt": "12345", "link": link("a.txt")})
    assert [json.loads(line) for line in workspace("ls", task, "--json").splitlines()] == [
        {"path": "a.txt", "type": "file", "mode": "0644", "size": 5, "mtime": SHOWN},
        {"path": "link", "type": "symlink", "mode": "0777", "size": 0, "mtime": SHOWN, "target": "a.txt"},
    ]


def test_names_do_nothing_to_the_terminal(workspace, tasks):
    """Control characters and bytes that are no UTF-8 are shown escaped."""
    task = tasks.end(**{"\x1b[2J": "x", os.fsdecode(b"\xff"): "x"})
    assert [line.split()[-1] for line in workspace("ls", task).splitlines()] == ["\\x1b[2J", "\\udcff"]


# ---------------------------------------------------------------------- cat


def test_cat_prints_a_file_byte_for_byte(run, tasks):
    """Whatever is in it."""
    body = bytes(range(256)) * 10_000
    task = tasks.end(before="x" * 1000, data=body, later="x")
    result = run("workspace", "cat", task, "data", A2A_GCS_STORE=tasks.uri)
    assert result.stdout_bytes == body


def test_cat_follows_links_inside_of_the_workspace(workspace, tasks):
    """Symbolic ones relative to their place, hard ones to the file that carries the bytes."""
    task = tasks.end(
        z__file="content",
        a__link=link("../z/file"),
        b=link("a/link"),
        hard=lambda path: path.hardlink_to(path.with_name("z") / "file"),
    )
    assert [workspace("cat", task, path) for path in ("a/link", "b", "hard")] == ["content"] * 3


# ---------------------------------------------------------------------- pull


def test_pull_unpacks_everything(workspace, tasks, tmp_path):
    """Modes, times and links too, into a directory that is made if need be."""
    task = tasks.end(**{"a.txt": "12345", "bin__run": executable, "link": link("a.txt")})
    workspace("pull", task, str(tmp_path / "new/dir"))
    assert sorted(path.name for path in (tmp_path / "new/dir").iterdir()) == ["a.txt", "bin", "link"]
    assert (tmp_path / "new/dir/bin/run").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "new/dir/a.txt").stat().st_mtime == TIME
    assert (tmp_path / "new/dir/link").readlink().name == "a.txt"


def test_pull_does_not_mix_with_what_is_there(refused, tasks, tmp_path):
    """A directory that holds something stays as it is."""
    task = tasks.end(a="1")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    assert refused("pull", task, str(tmp_path / "full")) == "the workspace directory 'full' is not empty"
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]


def test_pull_of_a_hostile_archive_writes_nothing_outside(refused, tasks, tmp_path):
    """It is the hosts' own restore: the member is named, and the directory is gone again."""
    task = tasks.end(a="1")
    tasks.replace(task, archive({"../escaped": b"x"}))
    assert "member '../escaped' of the archive is refused" in refused("pull", task, str(tmp_path / "to"))
    assert not (tmp_path / "to").exists()
    assert not (tmp_path / "escaped").exists()


def test_pull_has_limits_that_can_be_moved(refused, tasks, tmp_path):
    """The same as of a host, by the same variables."""
    task = tasks.end(a="12345")
    assert "more than 4 bytes" in refused("pull", task, str(tmp_path / "to"), "--max-bytes", "4")


# ---------------------------------------------------------------------- diff


def test_diff_shows_what_a_task_changed(workspace, tasks):
    """Against the completed task before it: not the failed one in between, and not one of another context."""
    tasks.end(same="s", **{"notes.md": "one\ntwo\n", "gone__old": "x\n", "run": executable, "link": link("a")})
    tasks.end(FAILED, other="x")
    tasks.end(context="elsewhere", other="x")
    task = tasks.end(
        same="s",
        **{"notes.md": "one\n2\n", "new.txt": "no end", "run": "#!/bin/sh\n", "link": link("b"), "data": b"\0\1"},
    )
    tasks.end(later="x")
    assert (
        workspace("diff", task)
        == """\
added data (2 bytes)
removed gone/old
--- a/gone/old
+++ /dev/null
@@ -1 +0,0 @@
-x
changed link (link a -> b)
added new.txt
--- /dev/null
+++ b/new.txt
@@ -0,0 +1 @@
+no end
\\ No newline at end of file
changed notes.md
--- a/notes.md
+++ b/notes.md
@@ -1,2 +1,2 @@
 one
-two
+2
changed run (mode 755 -> 644)
"""
    )


def test_diff_of_two_tasks(workspace, tasks):
    """In the order in which they are named."""
    first, second = tasks.end(a="1\n"), tasks.end(a="2\n")
    assert "-1\n+2\n" in workspace("diff", first, second)
    assert "-2\n+1\n" in workspace("diff", second, first)
    assert workspace("diff", first, first) == ""


def test_diff_of_the_first_task_is_all_of_it(workspace, tasks):
    """There was nothing before."""
    task = tasks.end(a="1\n", empty="", dir__=lambda path: None)
    assert workspace("diff", task).splitlines()[:3] == ["added a", "--- /dev/null", "+++ b/a"]


def test_diff_of_a_task_that_asks_is_what_it_changed_so_far(workspace, tasks):
    """Its predecessor is the same while it waits."""
    tasks.end(a="1\n")
    assert "+2\n" in workspace("diff", tasks.end(INPUT_REQUIRED, a="1\n2\n"))


def test_diff_of_a_task_that_was_told_where_to_start(workspace, tasks):
    """Its message named an earlier task, so the one before it has nothing to do with what it changed."""
    first = tasks.end(a="1\n")
    tasks.end(a="other\n")
    assert workspace("diff", tasks.end(a="1\n2\n", start_from=first), "--stat").startswith("changed   a  +1 -0\n")


def test_diff_of_a_task_whose_base_was_replaced_says_so(refused, tasks):
    """What it started from is recorded by its checksum, so other bytes in its place are not taken for it."""
    first = tasks.end(a="1\n")
    task = tasks.end(a="2\n")
    tasks.replace(first, archive({"a": b"other"}))
    assert (
        refused("diff", task) == f"task {task!r} started from what task {first!r} held then, which was replaced since"
    )


def test_diff_of_a_task_of_an_earlier_version(workspace, tasks):
    """Nothing was recorded: the last one that completed before it, or the one that its message named."""
    first = tasks.end(a="1\n")
    tasks.end(FAILED, a="failed\n")
    second, third = tasks.end(a="2\n"), tasks.end(a="3\n", start_from=first)
    tasks.forget_bases()
    assert "-1\n+2\n" in workspace("diff", second)
    assert "-1\n+3\n" in workspace("diff", third)


def test_diff_stat_counts(workspace, tasks):
    """A line for each file, and one for all."""
    tasks.end(a="1\n2\n", b=b"\0", c="x")
    task = tasks.end(a="1\n3\n4\n", b=b"\0\0")
    assert workspace("diff", task, "--stat").splitlines() == [
        "changed   a  +2 -1",
        "changed   b  1 -> 2 bytes",
        "removed   c  +0 -1",
        "3 changed, 2 lines added, 2 lines removed",
    ]


def test_patch_takes_a_diff(run, workspace, tasks, tmp_path):
    """The tree before, patched, is the tree after."""
    lines = [f"line {n}\n" for n in range(100)]
    before = tasks.end(**{"a b.txt": "".join(lines), "removed": "x\n", "crlf": "one\r\ntwo\r\n", "sub__f": "no end"})
    lines[50] = "changed\n"
    task = tasks.end(
        **{"a b.txt": "".join(lines[10:]), "added": "1\n2\n", "crlf": "one\r\nthree\r\n", "sub__f": "an end\n"}
    )
    workspace("pull", before, str(tmp_path / "before"))
    workspace("pull", task, str(tmp_path / "after"))
    patch = run("workspace", "diff", task, A2A_GCS_STORE=tasks.uri).stdout_bytes
    subprocess.run(["patch", "-p1", "--binary", "-E"], cwd=tmp_path / "before", input=patch, check=True)
    assert contents(tmp_path / "before") == contents(tmp_path / "after")


def contents(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def test_files_too_large_for_lines_are_summed_up(workspace, tasks):
    """Comparing their lines would take too long."""
    tasks.end(a="x\n" * 200_000)
    assert workspace("diff", tasks.end(a="x\n" * 200_001)) == "changed a (400,000 -> 400,002 bytes)\n"


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize("command", [("ls",), ("cat", "a"), ("pull", "x"), ("diff",)])
def test_a_task_that_is_not_there(refused, tasks, command):
    """Each command names it."""
    tasks.end(a="1")
    assert refused(command[0], "nobody", *command[1:]) == "there is no task 'nobody' in this store"


def test_a_task_without_a_workspace(refused, tasks):
    """It still runs, so there will be one."""
    task = tasks.begin()
    assert refused("ls", task) == f"task {task!r} has no workspace yet: it is saved when its turn ends"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("ls", "b"), "'b' is not in the workspace of task"),
        (("cat", "b"), "'b' is not in the workspace of task"),
        (("cat", "dir"), "'dir' is a directory, not a file"),
        (("cat", "out"), "'out' is a link to '/etc/passwd', which is not in the workspace"),
        (("cat", "up"), "'up' is a link to '../x', which is not in the workspace"),
        (("cat", "dangling"), "'b' is not in the workspace of task"),
        (("cat", "loop"), "'loop' leads through more than 16 links"),
    ],
)
def test_a_path_that_cannot_be_shown(refused, tasks, command, says):
    """What is wrong with it, and nothing on standard output."""
    links = {"out": "/etc/passwd", "up": "../x", "dangling": "b", "loop": "loop"}
    task = tasks.end(dir__a="1", **{name: link(target) for name, target in links.items()})
    assert refused(command[0], task, *command[1:]).startswith(says)


def test_an_archive_that_is_not_pinned_is_shown_with_a_note(run, tasks):
    """That of a canceled task is there for a look; nothing starts from it."""
    task = tasks.end(CANCELED, a="1")
    result = run("workspace", "ls", task, A2A_GCS_STORE=tasks.uri)
    assert (result.exit_code, result.stdout.split()[-1]) == (0, "a")
    assert "nothing starts from it" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--store", "memory"], "a store in memory is its host's alone"),
        (["--store", "nonsense"], "a store is"),
        (["--store", "file:x", "--root", "../y"], "--root: '../y' is no root"),
    ],
)
def test_a_store_that_cannot_be_read_is_bad_usage(run, arguments, says):
    """Status 2, as of every setting that cannot be used."""
    result = run("workspace", "ls", "task", *arguments)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_root_below_the_store(run, tmp_path):
    """Where a host serves several agents, each has its own."""

    async def leave():
        async with open_store(f"file:{tmp_path}") as bucket:
            from a2a_gcs.objectstore import PrefixStore

            host = await Bucket(PrefixStore(bucket, "agents/writer")).host("h")
            claim = await host.start("ctx")
            (tmp_path / "tree").mkdir()
            (tmp_path / "tree/mine").touch()
            saved = await Snapshots(host.bucket).save(tmp_path / "tree", workspace_key(claim.ref), replaces=0)
            await host.end(claim, pin=saved.pin)
            return claim.ref.task_id

    task = asyncio.run(leave())
    result = run("workspace", "ls", task, "--store", f"file:{tmp_path}", "--root", "agents/writer")
    assert result.stdout.split()[-1] == "mine"


# ---------------------------------------------------------------------- reading archives


def archive(files, *, form=tarfile.PAX_FORMAT, **header):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=form) as tar:
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            for key, value in header.items():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(body))
    return out.getvalue()


def read(body, size=100):
    """Every member of an archive that comes in chunks of this size: path to content."""

    async def chunks():
        for start in range(0, len(body), size):
            yield body[start : start + size]

    async def all_of():
        members = TarGz(chunks())
        return {entry.path: b"".join([piece async for piece in members.content()]) async for entry in members}

    return asyncio.run(all_of())


FILES = {"a": b"1", "x" * 90 + "/" + "é" * 150: b"2", "empty": b"", "large": bytes(3_000_000), "end": b"3" * 513}


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("size", [1, 1000, 10**9])
def test_every_plain_archive_is_read(form, size):
    """Long names in either format, content larger than any chunk, and chunks larger than any content."""
    assert read(archive(FILES, form=form), size) == FILES


def test_an_archive_of_several_gzip_members_is_read():
    """As those are that are put together from parts."""
    plain = gzip.decompress(archive(FILES))
    cut = [0, 512, 1024, 100_000, len(plain)]
    parts = [gzip.compress(plain[a:b]) for a, b in itertools.pairwise(cut)]
    assert read(b"".join(parts), 50) == FILES


WHOLE = archive({"a": os.urandom(5000)})


@pytest.mark.parametrize(
    "body",
    [b"", WHOLE[:10], WHOLE[:3000], gzip.compress(gzip.decompress(WHOLE)[:5632])],
    ids=["nothing", "header", "middle", "whole gzip of half a tar"],
)
def test_a_truncated_archive_is_not_a_short_one(body):
    """Wherever it breaks off, in the compressed stream or in what was compressed."""
    with pytest.raises(SnapshotCorrupt, match="it is truncated"):
        read(body)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"no gzip at all", "the archive cannot be unpacked"),
        (gzip.compress(b"no tar" * 200), "damaged header"),
        (archive({"a": b""}, pax_headers={"comment": "x" * (2 << 20)}), "an extended header of 2,097"),
    ],
    ids=["no-gzip", "no-tar", "header"],
)
def test_a_damaged_archive_is_an_error(body, says):
    """Not an empty workspace, and no memory for what a header claims."""
    with pytest.raises(SnapshotCorrupt, match=says):
        read(body)


def test_reading_takes_little_memory():
    """256 MiB of content that were packed into 256 KiB."""
    body = archive({"zeros": bytes(256 << 20)})
    tracemalloc.start()
    try:

        async def skim():
            async def chunks():
                yield body

            return [entry.size async for entry in TarGz(chunks())]

        assert asyncio.run(skim()) == [256 << 20]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20

"""contexts, tasks, show: what a store holds, for people and programs, without a change to it."""

import asyncio
import json

import pytest

from a2a_gcs.cli import tables
from a2a_gcs.journal import Journal, Journaled
from a2a_gcs.layout import TaskRef, task_key, workspace_key
from a2a_gcs.objectstore import OVERWRITE, PrefixStore, open_store
from a2a_gcs.records import TURN_STRIDE, Pin
from tests.support.hosts import FAILED, WORKING, Bucket, artifact, makes, message

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\u202e"
ODD = "odd/\u202econtext é"


async def filled(store):
    """Three contexts: one with an end and a wait, one with an odd id, and one whose host has died."""
    bucket = Bucket(store)
    host, dead = await bucket.host("a"), await bucket.host("dead")
    first = await host.start("plain", message("hello"))
    saved = await store.put(workspace_key(first.ref), b"archive", OVERWRITE)
    await host.save(first, WORKING, artifact(HOSTILE, "content"))
    await host.end(first, pin=Pin(saved.version, saved.crc32c))
    waits = await host.start("plain", message("second"), "waits")
    await host.park(waits)
    turn = await host.answer("waits", message(f"line one\nline two {HOSTILE}"))
    await host.park(turn)
    await host.run(ODD, FAILED)
    left = await dead.start("left", task_id="left-behind")
    await Journal(store).append(left.ref, 1, 1, [Journaled(TURN_STRIDE + 5, makes(left, "a"))])
    await dead.die()
    for each in (host, dead):
        await each.tasks.aclose()
    return first.ref.task_id


@pytest.fixture
def place(tmp_path):
    """A directory store with tasks: its URI, the id of a completed one, and a look at all versions."""

    class Place:
        uri = f"file:{tmp_path / 'objects'}"

        def versions(self):
            async def look():
                async with open_store(self.uri) as store:
                    return {info.key: info.version for info in (await store.list("")).objects}

            return asyncio.run(look())

        def fill(self, root=""):
            async def fill():
                async with open_store(self.uri) as store:
                    return await filled(PrefixStore(store, root) if root else store)

            return asyncio.run(fill())

    return Place()


def entries(result):
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_contexts_in_json(run, place):
    """How many tasks each has, how many have not ended, and how the newest stands, from metadata alone."""
    place.fill()
    found = {e["contextId"]: e for e in entries(run("contexts", "--store", place.uri, "--json"))}
    assert set(found) == {"plain", ODD, "left"}
    plain = found["plain"]
    assert (plain["tasks"], plain["unfinished"], plain["newestTaskId"]) == (2, 1, "waits")
    assert plain["newestState"] == "TASK_STATE_INPUT_REQUIRED"
    assert plain["ledger"] is True
    assert plain["bytes"] > len(b"archive")
    assert found[ODD]["newestState"] == "TASK_STATE_FAILED"


def test_tasks_are_filtered_and_limited(run, place):
    """By context and state; what was left out is told on stderr."""
    done = place.fill()

    def ids(*options):
        return {e["id"] for e in entries(run("tasks", "--store", place.uri, "--json", *options))}

    assert len(ids()) == 4
    assert ids("--context", "plain") == {done, "waits"}
    assert ids("--state", "completed") == {done}
    assert ids("--state", "input-required", "--context", "plain") == {"waits"}
    assert ids("--context", ODD, "--state", "completed") == set()
    limited = run("tasks", "--store", place.uri, "--limit", "2")
    assert len(limited.stdout.splitlines()) == 3
    assert "2 of 4 tasks" in limited.stderr


def test_show_tells_everything_of_a_task(run, place):
    """Its state, turn, messages, artifacts and workspace; in JSON the task as it is stored."""
    done = place.fill()
    shown = run("show", done, "--store", place.uri).stdout
    for part in (done, "plain", "completed since", "1, ended", "7 bytes", "bytes"):
        assert part in shown
    (entry,) = entries(run("show", done, "--store", place.uri, "--json"))
    assert entry["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert entry["pin"] == {k: entry["workspace"][k] for k in ("generation", "crc32c")}
    assert (entry["turn"], entry["open"], entry["owner"]) == (1, False, "a/1")


def test_a_message_is_shown_line_by_line(run, place):
    """The ends of its lines are lines; nothing else of it moves the cursor."""
    place.fill()
    shown = run("show", "waits", "--store", place.uri).stdout
    assert "line one\n" in shown
    assert r"line two \x1b]0;owned\x07\x1b[31mred\u202e" in shown


@pytest.mark.parametrize("command", [("contexts",), ("tasks",), ("show", "waits")])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_nothing_stored_reaches_a_terminal_raw(run, place, command, options):
    """Neither ids nor names nor messages can move the cursor, color, or turn the direction of text."""
    done = place.fill()
    printed = run(*command, "--store", place.uri, *options).stdout
    printed += run("show", done, "--store", place.uri, *options).stdout
    assert all(c.isprintable() or c == "\n" for c in printed)


@pytest.mark.parametrize("command", [("contexts",), ("tasks",), ("show", "left-behind"), ("show", "waits")])
def test_looking_changes_nothing(run, place, command):
    """The task of a dead host is shown as it is stored, with its journal; hosts settle, not those who look."""
    place.fill()
    before = place.versions()
    result = run(*command, "--store", place.uri)
    assert result.exit_code == 0
    assert place.versions() == before
    if command[-1] == "left-behind":
        assert "1, held by dead/1" in result.stdout
        assert "working since" in result.stdout
        assert result.stdout.splitlines()[-1].split()[0] == "a"  # the artifact, which only the journal has


def test_a_root_of_its_own(run, place):
    """Where owners have roots, --root says whose; without it there is nothing, which is said."""
    place.fill("users/alice")
    assert len(entries(run("tasks", "--store", place.uri, "--root", "users/alice", "--json"))) == 4
    none = run("tasks", "--store", place.uri)
    assert (none.exit_code, none.stdout) == (0, "")
    assert "--root" in none.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("show", "nobody"), 1, "there is no task 'nobody'"),
        (("show", "a\nb"), 2, "control characters"),
        (("tasks", "--state", "done"), 2, "completed"),
        (("tasks", "--limit", "0"), 2, "limit"),
        (("tasks", "--context", "a\nb"), 2, "error: --context: id 'a\\nb' holds control characters"),
        (("tasks", "--context", "a" * 999), 2, "error: --context: id"),
        (("contexts", "--root", "user/alice"), 2, "is no root"),
        (("tasks", "--root", "users/alice@b"), 2, "users/alice@b' is no root: it is stored with alice%40b"),
    ],
)
def test_what_cannot_be_shown_is_said(run, place, arguments, status, said):
    """1 for what is not there, 2 for what cannot be."""
    place.fill()
    result = run(*arguments, "--store", place.uri)
    assert result.exit_code == status
    assert said in result.output


def test_a_store_in_memory_cannot_be_looked_into(run):
    """It is its host's alone."""
    assert run("contexts", "--store", "memory").exit_code == 2


@pytest.mark.parametrize(
    "command",
    ["contexts", "tasks", "show t", "workspace ls t", "doctor", "gc", "migrate --to-root users/alice"],
)
def test_a_directory_that_is_not_there_is_not_made(run, tmp_path, command):
    """A slip of the pen is told, and is no empty store from then on."""
    result = run(*command.split(), "--store", f"file:{tmp_path / 'slip'}")
    assert result.exit_code == 2
    assert "is no directory yet" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_task_is_told_by_its_key(run, place):
    """And the listing goes on without it."""
    place.fill()

    async def damage():
        async with open_store(place.uri) as store:
            await store.put(task_key(TaskRef("plain", "waits")), b"{", OVERWRITE)

    asyncio.run(damage())
    assert "waits" not in run("tasks", "--store", place.uri, "--json").stdout
    shown = run("show", "waits", "--store", place.uri)
    assert shown.exit_code == 1
    assert "contexts/plain/waits/task.json" in shown.stderr


class Screen:
    """A terminal of so many lines, as far as rich asks."""

    def __init__(self, monkeypatch, lines):
        self.paged = []
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("LINES", str(lines))
        monkeypatch.setattr(tables.click, "echo_via_pager", self.paged.append)


@pytest.mark.parametrize(("lines", "paged"), [(3, 1), (50, 0)])
def test_long_listings_go_to_a_pager(run, place, monkeypatch, lines, paged):
    """Only those that are longer than the terminal."""
    place.fill()
    screen = Screen(monkeypatch, lines)
    result = run("tasks", "--store", place.uri)
    assert result.exit_code == 0
    assert len(screen.paged) == paged
    assert ("waits" in result.stdout) is not bool(paged)

"""`send` and `cancel` against a real server of the SDK."""

import json
import re
import signal
import socket

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

TASK = re.compile(r"task (\S+)  context (\S+)  ([a-z-]+)")


def summary(result):
    return TASK.search(result.stderr).groups()


def test_artifacts_go_to_stdout_and_states_to_stderr(run, agent_url):
    """stdout holds the artifact's text alone; stderr the states, the reply, and the ids at the end."""
    result = run("send", "hello", "--context", "c1", "--url", agent_url)
    assert (result.exit_code, result.stdout) == (0, "journal.md 9\n")
    assert result.stderr.count("working") == 1
    assert "artifact files" in result.stderr
    assert "completed: journal.md holds 1 message" in result.stderr
    assert summary(result)[1:] == ("c1", "completed")


def test_chunks_are_joined_as_they_come(run, agent_url):
    """A streamed artifact reads like a file, and its name appears once."""
    result = run("send", "stream 3", "--url", agent_url)
    assert result.stdout.startswith("chunk 1 of 3\nchunk 2 of 3\nchunk 3 of 3\n")
    assert result.stderr.count("artifact stream") == 1


def test_an_artifact_without_a_line_end_gets_one(run, agent_url):
    """What follows it starts on a line of its own."""
    result = run("send", "write a.txt no end", "--context", "c1", "--url", agent_url)
    assert result.exit_code == 0
    assert run("send", "read a.txt", "--context", "c1", "--url", agent_url).stdout.startswith("no end\n")


def test_input_required_says_how_to_answer_and_the_answer_goes_on(run, agent_url):
    """The hint is a command line that works with another text; the context is implied by the task."""
    asked = run("send", "ask Which colour?", "--url", agent_url)
    task, context, state = summary(asked)
    assert (asked.exit_code, state) == (0, "input-required")
    assert "input-required: Which colour?" in asked.stderr
    assert f"to answer: a2a-gcs send --url {agent_url} --task {task} 'your answer'" in asked.stderr
    answered = run("send", "blue", "--task", task, "--url", agent_url)
    assert (answered.exit_code, summary(answered)) == (0, (task, context, "completed"))


def test_a_failed_task_is_status_1_with_its_reason(run, agent_url):
    """The agent's reason is on stderr."""
    result = run("send", "fail out of ink", "--url", agent_url)
    assert (result.exit_code, summary(result)[2]) == (1, "failed")
    assert "failed: out of ink" in result.stderr


def test_a_plain_message_is_printed_on_stdout(run, agent_url):
    """An answer without a task has no ids to show."""
    result = run("send", "message well met", "--url", agent_url)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "well met\n", "")


def test_json_prints_each_event_as_one_line(run, agent_url):
    """Every line of stdout is an event; the last one holds the final state."""
    result = run("send", "stream 2", "--json", "--url", agent_url)
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert {next(iter(event)) for event in events} == {"task", "statusUpdate", "artifactUpdate"}
    assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert summary(result)[2] == "completed"


@pytest.mark.parametrize("state", ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"])
def test_a_busy_context_names_the_task_and_what_to_do(run, agent_url, state):
    """The refusal of a second task: the server's words, and the commands that cancel it, if it can be, or answer it."""
    result = run("send", f"busy {state}", "--url", agent_url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error: the context works on another task (CONTEXT_BUSY)\n" in result.stderr
    cancel = f"to cancel it: a2a-gcs cancel --url {agent_url} t-1"
    assert (cancel in result.stderr) == (state != "TASK_STATE_SUBMITTED")
    answer = f"to answer it: a2a-gcs send --url {agent_url} --task t-1 'your answer'"
    assert (answer in result.stderr) == (state == "TASK_STATE_INPUT_REQUIRED")


def test_an_unknown_task_is_refused_in_one_line(run, agent_url):
    """Both commands pass on the server's refusal, without a traceback."""
    for arguments in (["send", "hi", "--task", "nobody"], ["cancel", "nobody"]):
        result = run(*arguments, "--url", agent_url)
        assert (result.exit_code, result.stdout) == (1, "")
        assert re.fullmatch(r"error: Task.* not found: \S+ does not know it\n", result.stderr)


@pytest.mark.parametrize("arguments", [["send", "hi"], ["cancel", "t1"]])
def test_nobody_there_names_the_address_and_how_to_start(run, arguments):
    """Connection refused is not a traceback but the URL and `make run`."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    result = run(*arguments, "--url", url)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: nothing answers at {url}; start a host with `make run`")


def test_what_is_no_agent_is_said_to_be_none(run, serving):
    """A web server without a card, and one that wants credentials, read differently; the token is sent."""

    async def card(request):
        known = request.headers.get("authorization") == "Bearer secret"
        return PlainTextResponse("not a card" if known else "who?", status_code=404 if known else 401)

    with serving(lambda _url: Starlette(routes=[Route("/.well-known/agent-card.json", card)])) as url:
        without = run("send", "hi", "--url", url)
        assert (without.exit_code, without.stderr) == (
            1,
            f"error: {url} wants credentials (HTTP 401): give them with --token\n",
        )
        with_token = run("send", "hi", "--url", url, A2A_GCS_TOKEN="secret")
        assert with_token.exit_code == 1
        assert with_token.stderr == (
            f"error: there is no agent card at {url} (HTTP 404); "
            "where a host has several agents, --url names one: URL/AGENT\n"
        )


@pytest.fixture
def hostile(serving):
    """Two servers: one whose card says that its agent is at the other, which writes down all that it is sent."""
    heard = []

    async def hear(request):
        heard.append((request.headers.get("authorization"), await request.body()))
        return PlainTextResponse("thanks", status_code=500)

    with serving(lambda _url: Starlette(routes=[Route("/{path:path}", hear, methods=["GET", "POST"])])) as there:
        interface = {"url": f"{there}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        card = {"name": "trap", "description": "d", "version": "1", "supportedInterfaces": [interface]}

        async def answer(_request):
            return JSONResponse(card)

        with serving(lambda _url: Starlette(routes=[Route("/.well-known/agent-card.json", answer)])) as here:
            yield here, there, heard


@pytest.mark.parametrize("arguments", [["send", "hi"], ["cancel", "t1"]])
def test_a_token_goes_to_no_other_origin_than_it_was_sent_to(run, hostile, arguments):
    """Whatever the card says: nothing is sent there, and the error names both and what to do; the option allows it."""
    here, there, heard = hostile
    refused = run(*arguments, "--url", here, "--token", "secret")
    assert (refused.exit_code, heard) == (1, [])
    assert f"the card at {here} says that the agent is at {there}, which is another origin" in refused.stderr
    assert "Traceback" not in refused.stderr
    run(*arguments, "--url", here, "--token", "secret", "--allow-other-origin")
    assert [token for token, _ in heard] == ["Bearer secret"]
    run(*arguments, "--url", here)
    assert [token for token, _ in heard] == ["Bearer secret", None]


def test_localhost_is_this_machine_by_any_name(run, agent_url):
    """The card names 127.0.0.1, the user localhost: the token goes there."""
    result = run("send", "hello", "--url", agent_url.replace("127.0.0.1", "localhost"), "--token", "secret")
    assert result.exit_code == 0


def test_an_error_does_nothing_to_a_terminal(run):
    """Whatever it quotes is escaped."""
    told = run("send", "hello", "--url", "http://\x1b]0;owned\x07\u202e").stderr
    assert told.rstrip("\n").isprintable()
    assert "http://\\x1b]0;owned" in told


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "nonsense", "ftp://127.0.0.1", "http://[::1"])
def test_a_url_that_is_none_is_a_usage_error(run, url):
    """Status 2, and the value that was given."""
    result = run("send", "hi", "--url", url)
    assert (result.exit_code, result.stderr.startswith(f"error: --url {url}: ")) == (2, True)


@pytest.mark.parametrize("arguments", [["send"], ["send", " "], ["send", "a", "b"], ["cancel"], ["send", "--no"]])
def test_bad_usage_is_status_2(run, arguments):
    """Missing, empty and surplus arguments never reach the network."""
    assert run(*arguments).exit_code == 2


def test_ctrl_c_leaves_the_task_running_and_says_how_to_cancel(start, run, agent_url):
    """The printed command then cancels it; a second cancel is refused."""
    command = start("send", "sleep 3600", "--url", agent_url)
    command.errors_until("working")
    command.signal(signal.SIGINT)
    status, _, errors = command.end()
    assert status == 130
    printed = re.search(r"the task goes on, to cancel it: a2a-gcs cancel --url \S+ (\S+)\n", errors)
    canceled = run("cancel", printed[1], "--url", agent_url)
    assert (canceled.exit_code, TASK.search(canceled.stdout)[3]) == (0, "canceled")
    again = run("cancel", printed[1], "--url", agent_url)
    assert (again.exit_code, again.stderr) == (1, "error: Task cannot be canceled: it has ended already\n")

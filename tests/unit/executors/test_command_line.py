"""From a command SPEC to argv, and the environment that goes with it."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.errors import ConfigError
from a2a_gcs.executors.command_line import CommandLine, MessageRefused, environment

VALUES = {"text": "T", "task": "t-1", "context": "c-1", "workspace": "/w", "message_file": "/m.json"}


def filled(line, text="T"):
    return CommandLine.parse(line).filled({**VALUES, "text": text})[1:]


def test_words_are_split_as_a_shell_does_and_nothing_is_expanded():
    """Quotes and backslashes group; what a shell would expand or run stays as it is."""
    assert filled(r"""env 'a b' "c d" e\ f $HOME * a|b >x `id`""") == [
        *("a b", "c d", "e f", "$HOME", "*", "a|b", ">x", "`id`")
    ]


def test_every_placeholder_is_replaced_wherever_it_stands():
    """Also inside of a word, and several times; other braces are the program's."""
    line = "env {task} --c={context}/{task} {workspace} {message_file} --p={text} {} {other} {{}}"
    assert filled(line) == ["t-1", "--c=c-1/t-1", "/w", "/m.json", "--p=T", "{}", "{other}", "{{}}"]


@given(text=st.text().filter(lambda text: not text.startswith("-")))
def test_a_message_is_one_argument_whatever_it_holds(text):
    """Neither split nor searched for placeholders again."""
    assert filled("env {text} --flag={text}", text) == [text, f"--flag={text}"]


def test_a_message_cannot_become_an_option():
    """Refused where it would be a word of its own, unless `--` has ended the options."""
    with pytest.raises(MessageRefused, match="begins with '-' could be taken for an option of env"):
        filled("env {text}", "--unsafe")
    with pytest.raises(MessageRefused):
        filled("env '{text} please'", "-x")
    assert filled("env -- {text}", "--unsafe") == ["--", "--unsafe"]
    assert filled("env --prompt={text}", "-x") == ["--prompt=-x"]


@pytest.mark.parametrize(
    ("line", "reads"), [("env", True), ("env {task}", True), ("env a{text}", False), ("env {message_file}", False)]
)
def test_the_message_is_on_stdin_when_no_argument_takes_it(line, reads):
    """Ids do not count as the message."""
    assert CommandLine.parse(line).reads_stdin is reads


def test_a_relative_program_is_that_of_the_current_directory(tmp_path, monkeypatch):
    """It is found once, when the host starts: a workspace with a file of that name does not replace it."""
    program = tmp_path / "agent.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert CommandLine.parse("./agent.sh").words == (str(program),)
    assert CommandLine.parse("./agent.sh").name == "agent.sh"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "names no program; write command:PROGRAM ARGUMENTS"),
        ("''", "names no program"),
        ("'open", "cannot be split into words: No closing quotation"),
        ("{text}", "the program itself cannot come from a placeholder"),
        ("no-such-program x", "there is no program 'no-such-program' on PATH that may be run"),
        ("./agent.sh", r"there is no program './agent.sh' here that may be run"),
    ],
)
def test_a_command_line_that_cannot_work_is_refused_at_the_start(line, says, tmp_path, monkeypatch):
    """With what is wrong with it; a file without the right to be run is no program."""
    (tmp_path / "agent.sh").write_text("#!/bin/sh\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=says):
        CommandLine.parse(line)


def test_a_program_on_path_is_named_by_its_place():
    """What is looked up once is not looked up again in another directory."""
    program = Path(CommandLine.parse(Path(sys.executable).name).words[0])
    assert program.is_absolute()
    assert os.access(program, os.X_OK)


HOST = {
    "PATH": "/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C",
    "TZ": "UTC",
    "TERM": "xterm",
    "TMPDIR": "/t",
    "HOME": "/root",
    "GOOGLE_APPLICATION_CREDENTIALS": "/key.json",
    "STORAGE_EMULATOR_HOST": "http://e",
    "A2A_GCS_STORE": "gs://b",
    "AWS_SECRET_ACCESS_KEY": "s",
    "OPENAI_API_KEY": "k",
    "OPENAI_BASE_URL": "u",
    "PYTHONPATH": "/p",
    "LD_PRELOAD": "/l.so",
}
USUAL = {"PATH", "LANG", "LC_ALL", "TZ", "TERM", "TMPDIR"}


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ((), USUAL),
        (("OPENAI_*",), USUAL | {"OPENAI_API_KEY", "OPENAI_BASE_URL"}),
        (("OPENAI_API_KEY", "HOME"), USUAL | {"OPENAI_API_KEY", "HOME"}),
        (("openai_*",), USUAL),
        (("*",), HOST.keys() - {"A2A_GCS_STORE"}),
        (("A2A_GCS_STORE", "A2A_*"), USUAL),
    ],
)
def test_only_what_is_named_gets_through(more, names):
    """Nothing else of the host's environment does, and its own settings never do."""
    assert environment(HOST, more, {}) == {name: HOST[name] for name in names}


def test_variables_of_the_turn_win_and_there_is_always_a_path():
    """An agent's HOME is not the host's, also where that is passed on."""
    assert environment({"HOME": "/root"}, ["HOME"], {"HOME": "/w"}) == {"PATH": os.defpath, "HOME": "/w"}

"""Carries out a Dockerfile without a container runtime: each stage is an overlay over this machine's root.

    python image.py build DOCKERFILE CHECKOUT OUT [NAME=VALUE ...]   build arguments
    python image.py run OUT JSON                                     {"env": {}, "entrypoint": [], "command": []}

Runs as root in a mount namespace of its own (`unshare --mount`), so that nothing is left mounted. What stands in for
the base image python:<version> is this machine, with the Python that runs this script as `python`; all that a stage
writes goes to a directory of its own, and the stage after it sees only what it copies from there. `run` is what
`docker run --read-only` does: nothing is writable but the volumes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dockerfile_parse import DockerfileParser
from pathspec import GitIgnoreSpec

PYTHON = Path(sys.executable).resolve()
PATH = f"{PYTHON.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
REACHING_THE_INDEX = ("PIP_", "SSL_", "REQUESTS_", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY")
SHARED = ("dev", "proc", "sys")


@dataclass
class Config:
    """What an image says of the container that is made of it."""

    env: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    user: str = "0:0"
    workdir: str = "/"
    volumes: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    cmd: list[str] = field(default_factory=list)


class Stage:
    """One stage of a build, from its FROM on."""

    def __init__(self, out: Path, context: Path, args: dict[str, str]) -> None:
        self.out, self.context, self.args = out, context, args
        self.root = mounted(out)
        self.config = Config()
        base_python(self.root)

    def carry_out(self, instruction: str, value: str) -> None:
        getattr(self, f"do_{instruction.lower()}")(value)  # an instruction that nobody wrote down here is an error

    def expanded(self, text: str) -> str:
        known = {**self.args, **self.config.env}
        return re.sub(r"\$\{?(\w+)\}?", lambda match: known[match[1]], text)

    def inside(self, path: str) -> Path:
        return self.root / str(Path(self.config.workdir) / path).lstrip("/")

    def do_arg(self, value: str) -> None:
        name, _, default = value.partition("=")
        self.args.setdefault(name, default.strip('"'))

    def do_env(self, value: str) -> None:
        pairs = [pair.partition("=") for pair in value.split()]
        self.config.env |= {name: self.expanded(given) for name, _, given in pairs}

    def do_workdir(self, value: str) -> None:
        self.config.workdir = value
        self.inside("").mkdir(parents=True, exist_ok=True)

    def do_user(self, value: str) -> None:
        self.config.user = value

    def do_volume(self, value: str) -> None:
        self.config.volumes += json.loads(value)

    def do_expose(self, value: str) -> None:
        assert value.isdecimal()

    def do_entrypoint(self, value: str) -> None:
        self.config.entrypoint = json.loads(value)

    def do_cmd(self, value: str) -> None:
        self.config.cmd = json.loads(value)

    def do_run(self, value: str) -> None:
        reaching = {name: given for name, given in os.environ.items() if name.startswith(REACHING_THE_INDEX)}
        command = f"cd {self.config.workdir} && {value}"
        subprocess.run(
            ["chroot", f"--userspec={self.config.user}", self.root, "/bin/sh", "-ec", command],
            env={"HOME": "/root", **reaching, **self.args, **self.config.env},
            check=True,
        )

    def do_copy(self, value: str) -> None:
        words = value.split()
        source = self.context
        if words[0].startswith("--from="):
            source = self.out.parent / words.pop(0).removeprefix("--from=") / "root"
        *names, target = words
        for name in names:
            what, to = source / name.lstrip("/"), self.inside(target)
            if what.is_dir():
                shutil.copytree(what, to, symlinks=True, dirs_exist_ok=True)
            else:
                to = to / Path(name).name if target.endswith("/") else to
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(what, to)


def mounted(out: Path) -> Path:
    """This machine's root with a layer of its own on top, without what lies in /tmp."""
    for name in ("upper", "work", "root"):
        (out / name).mkdir(parents=True, exist_ok=True)
    root = out / "root"
    layers = f"lowerdir=/,upperdir={out}/upper,workdir={out}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, root], check=True)
    for name in SHARED:
        subprocess.run(["mount", "--rbind", f"/{name}", root / name], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", root / "tmp"], check=True)
    return root


def base_python(root: Path) -> None:
    """Has `python` beside the Python that runs this, and lets every user reach it: it may be below somebody's home."""
    directory = root / str(PYTHON.parent).lstrip("/")
    if not (directory / "python").exists():
        (directory / "python").symlink_to(PYTHON.name)
    for parent in PYTHON.parents[:-1]:
        inside = root / str(parent).lstrip("/")
        inside.chmod(inside.stat().st_mode | 0o111)


def sent(dockerfile: Path, checkout: Path, context: Path) -> None:
    """Copies what the builder would get: the checkout without what Dockerfile.dockerignore names."""
    lines = Path(f"{dockerfile}.dockerignore").read_text().splitlines()
    # Unlike those of .gitignore, these patterns are all anchored.
    ignored = GitIgnoreSpec.from_lines(re.sub(r"^(!?)(?=[^#!/])", r"\1/", line) for line in lines)
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=checkout,
        stdout=subprocess.PIPE,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (checkout / name).is_file() and not ignored.match_file(name):
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, context / name)


def build(dockerfile: Path, checkout: Path, out: Path, args: dict[str, str]) -> None:
    context = out / "context"
    sent(dockerfile, checkout, context)
    stage: Stage | None = None
    for step in DockerfileParser(path=str(dockerfile)).structure:
        instruction, value = step["instruction"], step["value"]
        if instruction == "FROM":
            _, _, name = value.partition(" AS ")
            stage = Stage(out / (name or "image"), context, dict(args))
        elif instruction == "COMMENT" or stage is None:
            assert instruction in {"COMMENT", "ARG"}
        else:
            stage.carry_out(instruction, value)
    assert stage is not None
    (out / "image/config.json").write_text(json.dumps(asdict(stage.config)))


def run(out: Path, given: dict[str, Any]) -> None:
    config = Config(**json.loads((out / "image/config.json").read_text()))
    root = mounted(out / "image")
    subprocess.run(["umount", root / "tmp"], check=True)  # a volume, or as read-only as the rest
    subprocess.run(["mount", "-o", "remount,ro", root], check=True)
    for volume in config.volumes:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", root / volume.lstrip("/")], check=True)
    entrypoint = given.get("entrypoint", config.entrypoint)
    command = given.get("command", config.cmd if entrypoint == config.entrypoint else [])
    chroot = ["chroot", f"--userspec={config.user}", "--groups=", str(root), *entrypoint, *command]
    os.execvpe("chroot", chroot, {**config.env, **given.get("env", {})})


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "build":
        build(*map(Path, words[:3]), dict(word.split("=", 1) for word in words[3:]))
    else:
        run(Path(words[0]), json.loads(words[1]))

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from a2a_gcs.objectstore.memory import MemoryStore
from a2a_gcs.workspaces.workdir import WorkDirs


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where work directories are, before anybody has made them."""
    return tmp_path / "work"


@pytest.fixture
def dirs(root: Path) -> Iterator[WorkDirs]:
    dirs = WorkDirs(root)
    yield dirs
    dirs.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.mkdir()
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target"
    path.mkdir()
    return path


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A directory of a user for whom modes count; tests that run as root turn into one meanwhile."""
    path = Path(tempfile.mkdtemp(prefix="a2a-gcs-test-"))
    root = os.geteuid() == 0
    if root:
        path.chmod(0o755)
        os.chown(path, 65534, 65534)
        os.seteuid(65534)
    try:
        yield path
    finally:
        if root:
            os.seteuid(0)
        for parent, _, _ in os.walk(path):
            Path(parent).chmod(0o700)
        shutil.rmtree(path)

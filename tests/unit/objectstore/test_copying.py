"""Bytes from file to file: inside the kernel, and where that cannot, through this process."""

import errno
import os

import pytest

from a2a_gcs.errors import Unavailable
from a2a_gcs.objectstore import LocalStore
from a2a_gcs.objectstore.checksums import decoded_crc32c, encoded_crc32c
from a2a_gcs.objectstore.copying import copy_bytes
from a2a_gcs.objectstore.port import IF_ABSENT, Source
from a2a_gcs.objectstore.rules import Crc32c, crc32c

DATA = os.urandom(3 << 20)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "source").write_bytes(DATA)
    with (tmp_path / "source").open("rb") as source, (tmp_path / "target").open("w+b", buffering=0) as target:
        yield source.fileno(), target


def cannot(code):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.fixture(params=["kernel", errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, "zero", "none"])
def kernel(request, monkeypatch):
    """What the operating system can do."""
    if request.param == "none":
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    elif request.param == "zero":
        monkeypatch.setattr(os, "copy_file_range", lambda *_: 0)
    elif request.param != "kernel":
        monkeypatch.setattr(os, "copy_file_range", cannot(request.param))


def test_all_bytes_go_after_what_is_there(files, kernel):
    source, target = files
    target.write(b"before")
    copy_bytes(source, target.fileno(), len(DATA))
    target.seek(0)
    assert target.read() == b"before" + DATA


def test_a_source_that_is_too_short_is_an_error(files, kernel):
    """Nothing is made up for what is missing."""
    source, target = files
    with pytest.raises(OSError, match="1 of"):
        copy_bytes(source, target.fileno(), len(DATA) + 1)


def test_a_disk_that_is_full_is_an_error(files, monkeypatch):
    """It is no reason to try again in another way."""
    source, target = files
    monkeypatch.setattr(os, "copy_file_range", cannot(errno.ENOSPC))
    with pytest.raises(OSError) as failed:
        copy_bytes(source, target.fileno(), len(DATA))
    assert failed.value.errno == errno.ENOSPC
    assert target.tell() == 0


def test_a_checksum_goes_on_over_bytes_that_are_known():
    """As if they had been read."""
    checksum = Crc32c()
    for piece in (DATA[:1000], b"", DATA[1000:]):
        checksum.append(crc32c(piece), len(piece))
    checksum.update(b"more")
    assert checksum.encoded() == crc32c(DATA + b"more")
    assert encoded_crc32c(decoded_crc32c(crc32c(DATA))) == crc32c(DATA)


async def test_a_joined_object_of_damaged_parts_cannot_be_read(tmp_path):
    """The bytes are not looked at when they are joined; who reads them is told."""
    async with LocalStore(tmp_path) as store:
        await store.put("part", DATA, IF_ABSENT)
        path = (tmp_path / "part").resolve()
        path.chmod(0o644)
        with path.open("r+b") as file:
            file.write(b"damaged")
        joined = await store.compose("all", [Source("part")] * 2, IF_ABSENT)
        assert joined.crc32c == crc32c(DATA + DATA)
        with pytest.raises(Unavailable, match="checksum"):
            await store.get("all")

"""Bytes from file to file, inside the kernel where it can: file systems with reflinks copy none at all."""

from __future__ import annotations

import errno
import os

_CHUNK = 1 << 20
_CANNOT = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}
"""What copy_file_range(2) says where the kernel or the file system cannot."""


def copy_bytes(source: int, target: int, size: int) -> None:
    """Copies `size` bytes between two descriptors, each from where it stands.

    Raises:
        OSError: The source ends before, or cannot be read, or the target not be written.
    """
    left = _in_kernel(source, target, size) if hasattr(os, "copy_file_range") else size
    while left:
        data = os.read(source, min(left, _CHUNK))
        if not data:
            raise OSError(errno.EIO, f"{left:,} of {size:,} bytes are missing")
        left -= len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(target, view) :]


def _in_kernel(source: int, target: int, size: int) -> int:
    """What is left to be copied."""
    left = size
    while left:
        try:
            copied = os.copy_file_range(source, target, left)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            return left
        if not copied:
            return left  # the end, or a file system that says so instead of an error
        left -= copied
    return 0

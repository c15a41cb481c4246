"""CRC-32C of what is joined, from the checksums of its pieces; pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence

_POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected


def join_crc32c(parts: Sequence[tuple[int, int]]) -> int:
    """The checksum of byte strings joined, from the checksum and the length of each."""
    crc = 0
    for value, length in parts:
        crc = _shifted(crc, length) ^ value
    return crc


def encoded_crc32c(value: int) -> str:
    """The checksum as in `ObjectInfo.crc32c`."""
    return base64.b64encode(value.to_bytes(4, "big")).decode()


def decoded_crc32c(text: str) -> int:
    """The checksum behind an `ObjectInfo.crc32c`. Raises ValueError."""
    return int.from_bytes(base64.b64decode(text, validate=True), "big")


def _shifted(crc: int, length: int) -> int:
    """The checksum after so many zero bytes, without the conditioning of its ends (as zlib's crc32_combine)."""
    for matrix in _SHIFTS:
        if not length:
            break
        if length & 1:
            crc = _times(matrix, crc)
        length >>= 1
    return crc


def _times(matrix: Sequence[int], vector: int) -> int:
    result = 0
    for row in matrix:
        if vector & 1:
            result ^= row
        vector >>= 1
    return result


def _shifts() -> list[list[int]]:
    """Matrices over GF(2) that append 1, 2, 4, ... 2^39 zero bytes."""
    matrix = [_POLYNOMIAL, *(1 << n for n in range(31))]  # one zero bit
    matrices = []
    for power in range(43):
        if power >= 3:  # noqa: PLR2004 - eight bits are a byte
            matrices.append(matrix)
        matrix = [_times(matrix, row) for row in matrix]
    return matrices


_SHIFTS = _shifts()

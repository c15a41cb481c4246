"""The text that the benchmark's agent puts out, for servers in other environments too: needs Python alone."""

from __future__ import annotations

ALPHABET = "abcdefghijklmnopqrstuvwxyz012345"


def chunk_of(number, size):
    """Text of so many bytes, another one each time, so that nothing is saved by keeping equal ones once."""
    return (f"{number:08d}" + ALPHABET * (size // len(ALPHABET) + 1))[:size]


def output_of(chunks, size):
    """All of it: what a task of so many chunks holds in the end."""
    return "".join(chunk_of(number, size) for number in range(chunks))

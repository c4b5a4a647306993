"""Mutations of the bytes of a file."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

ENDLESS = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"  # the varint 2**63 - 1
_GRAPH_KIND = b"\xa0\x01\x05"  # field 20 of an attribute: its type is GRAPH


def flip_bits(rng: Random, data: bytearray) -> None:
    """Flips one bit, or many."""
    for _ in range(rng.choice([1, 1, 2, 4, 16, 64])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def flip_early_bits(rng: Random, data: bytearray) -> None:
    """Flips bits where a model has its structure, not its weights."""
    for _ in range(rng.choice([1, 2, 4])):
        data[rng.randrange(min(len(data), 400))] ^= 1 << rng.randrange(8)


def overwrite(rng: Random, data: bytearray) -> None:
    """Overwrites a few bytes with random ones."""
    start = rng.randrange(len(data))
    data[start : start + rng.choice([1, 2, 8, 32])] = rng.randbytes(rng.choice([1, 2, 8, 32]))


def claim_a_huge_size(rng: Random, data: bytearray) -> None:
    """Writes a huge number where a length or a size may stand."""
    start = rng.randrange(len(data))
    data[start : start + rng.choice([0, 1, 9])] = ENDLESS[-rng.choice([2, 3, 5, 9]) :]


def cut_off(rng: Random, data: bytearray) -> None:
    """Cuts off the end."""
    del data[rng.randrange(len(data)) :]


def take_out(rng: Random, data: bytearray) -> None:
    """Removes a piece."""
    start = rng.randrange(len(data))
    del data[start : start + rng.choice([1, 2, 8, 64, 512])]


def move(rng: Random, data: bytearray) -> None:
    """Copies a piece to another place."""
    start, size = rng.randrange(len(data)), rng.choice([2, 8, 64, 512])
    place = rng.randrange(len(data))
    data[place:place] = data[start : start + size]


def spoil_text(rng: Random, data: bytearray) -> None:
    """Replaces a letter by a byte that is no valid UTF-8."""
    letters = [place for place, byte in enumerate(data[:20000]) if 97 <= byte <= 122]
    if letters:
        data[rng.choice(letters)] = rng.choice([0x80, 0xC0, 0xFF, 0xED])


def nest_deeply(rng: Random, data: bytearray) -> None:
    """Adds an If in an If, or a sequence of sequences, deeper than protobuf itself would write them."""
    depth, body = rng.choice([5, 20, 33, 40, 200, 5000]), b""
    if rng.random() < 0.5:
        for _ in range(depth):
            attribute = _field(1, b"then_branch") + _field(6, body) + _GRAPH_KIND
            body = _field(1, _field(4, b"If") + _field(2, b"deep") + _field(5, attribute))
    else:
        for _ in range(depth):
            body = _field(4, _field(1, body))
        body = _field(11, _field(1, b"deep") + _field(2, body))
    data += _field(7, body)  # merged with the graph that is there


def _field(number: int, payload: bytes) -> bytes:
    """A field that holds a message or text, as protobuf writes it."""
    size, length = bytearray(), len(payload)
    while length > 127:
        size.append(length & 127 | 128)
        length >>= 7
    return bytes([number << 3 | 2, *size, length]) + payload


DAMAGES: tuple[Callable[[Random, bytearray], None], ...] = (
    flip_bits,
    flip_early_bits,
    overwrite,
    claim_a_huge_size,
    cut_off,
    take_out,
    move,
    spoil_text,
    nest_deeply,
)

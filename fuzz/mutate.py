"""Mutations: seeded functions from bytes to bytes.

Each takes a random generator, the bytes and the bytes of another input, and returns new bytes. They
know no format, as :mod:`fuzz.structure` does; :data:`TOKENS` are what the formats at hand stumble
over.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from fuzz.structure import structured

Mutation = Callable[[Random, bytes, bytes], bytes]

BLOCK = 4096
"""Most bytes that are cut out, doubled, swapped or spliced at once."""

TOKENS = (
    *(b"NaN", b"-Infinity", b"null", b"true", b'""', b"{}", b"[]", b"{", b"}", b"[", b"]", b","),
    *(
        b'"',
        b"\\",
        b"\\u",
        b"\\ud800",
        b"\n",
        b"\r",
        b"\0",
        b"\x1f",
        b"\xff",
        b"\xc3",
        b"\xef\xbb\xbf",
    ),
    *(b"-1", b"0", b"1e999", b"-0.0", b"1e-400", b"9007199254740993", b"9223372036854775807"),
    *(b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"0.0000000001"),
    *(
        b"[" * 3000,
        b'{"a":' * 3000,
        b"9" * 5000,
        b'"ph":"B",',
        b'"ts":0,',
        b'"dur":-5,',
        b"\x80" * 11,
    ),
    *(b"\xff\xff\xff\xff\x0f", b"\x00\x00\x00\x00\x00\x00\x00\x80", b"\xff" * 8),
)
"""Put into inputs: odd numbers, halves of brackets and escapes, deep nesting, large lengths."""

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_SPECIAL = (
    *(
        b"0",
        b"-1",
        b"-5.5",
        b"1e308",
        b"-1e308",
        b"1e18",
        b"9223372036854775",
        b"9223372036854775.8",
    ),
    *(
        b"9223372036854775807",
        b"-9223372036854775808",
        b"9223372036854775808",
        b"18446744073709551615",
    ),
    *(
        b"4294967295",
        b"4294967296",
        b"2147483648",
        b"-2147483648",
        b"1.5",
        b"0.0005",
        b"NaN",
        b"1e400",
    ),
    *(b"31536000000000", b"31536000000000000", b"1e-9", b'"7"', b"null", b"007", b"+3", b"1_000"),
)


def _span(rng: Random, data: bytes, most: int = BLOCK) -> tuple[int, int]:
    """A stretch of ``data``, short ones more often."""
    at = rng.randrange(len(data) + 1)
    return at, min(len(data), at + int(most ** rng.random()))


def cut(rng: Random, data: bytes, other: bytes) -> bytes:
    """The file ends early."""
    return data[: rng.randrange(len(data) + 1)]


def bit_flip(rng: Random, data: bytes, other: bytes) -> bytes:
    """Up to 8 bits are wrong."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(out)) if out else 0
        out[at : at + 1] = bytes(b ^ 1 << rng.randrange(8) for b in out[at : at + 1])
    return bytes(out)


def noise(rng: Random, data: bytes, other: bytes) -> bytes:
    """A stretch is random bytes."""
    start, end = _span(rng, data, 256)
    return data[:start] + rng.randbytes(end - start) + data[end:]


def zeros(rng: Random, data: bytes, other: bytes) -> bytes:
    """A stretch is zeros, as a file system leaves it after a crash."""
    start, end = _span(rng, data)
    return data[:start] + bytes(end - start) + data[end:]


def hole(rng: Random, data: bytes, other: bytes) -> bytes:
    """A stretch is missing."""
    start, end = _span(rng, data)
    return data[:start] + data[end:]


def double(rng: Random, data: bytes, other: bytes) -> bytes:
    """A stretch stands twice."""
    start, end = _span(rng, data)
    return data[:end] + data[start:]


def swap(rng: Random, data: bytes, other: bytes) -> bytes:
    """Two stretches change places."""
    a, b, c, d = sorted(rng.randrange(len(data) + 1) for _ in range(4))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def splice(rng: Random, data: bytes, other: bytes) -> bytes:
    """The end is that of another file."""
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def implant(rng: Random, data: bytes, other: bytes) -> bytes:
    """A stretch of another file stands in between."""
    at = rng.randrange(len(data) + 1)
    start, end = _span(rng, other)
    return data[:at] + other[start:end] + data[at:]


def token(rng: Random, data: bytes, other: bytes) -> bytes:
    """A token is put in, or stands in place of a few bytes."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(TOKENS) + data[at + rng.choice((0, 0, 1, 4)) :]


def number(rng: Random, data: bytes, other: bytes) -> bytes:
    """Up to 3 numbers in the text are absurd."""
    for _ in range(rng.randint(1, 3)):
        found = _NUMBER.search(data, rng.randrange(len(data) + 1))
        if found is not None:
            data = data[: found.start()] + rng.choice(_SPECIAL) + data[found.end() :]
    return data


def field(rng: Random, data: bytes, other: bytes) -> bytes:
    """An integer in the bytes is at an end of its range."""
    width = rng.choice((1, 2, 4, 8))
    at = rng.randrange(len(data) + 1)
    value = rng.choice((b"\0" * width, b"\xff" * width, b"\xff" * (width - 1) + b"\x7f"))
    return data[:at] + value + data[at + width :]


def lines(rng: Random, data: bytes, other: bytes) -> bytes:
    """Lines are lost, doubled, moved, or cut into by those of another writer."""
    rows = data.split(b"\n")
    at, to = rng.randrange(len(rows)), rng.randrange(len(rows))
    act = rng.randrange(4)
    if act == 0:
        del rows[at : at + 1 + rng.randrange(3)]
    elif act == 1:
        rows.insert(to, rows[at])
    elif act == 2:
        rows.insert(to, rows.pop(at))
    else:
        half = rng.randrange(len(rows[at]) + 1)
        rows[at] = rows[at][:half] + rows[to] + rows[at][half:]
    return b"\n".join(rows)


_MEMBER = re.compile(
    rb'"\w{1,16}"\s*:\s*(?:"[^"\\]{0,64}"|-?[0-9][-+.0-9eE]{0,30}|\{[^{}]{0,256}\})'
)


def member(rng: Random, data: bytes, other: bytes) -> bytes:
    """A member of one object stands in another, too, where its key may be doubled."""
    found = _MEMBER.search(data, rng.randrange(len(data) + 1))
    brace = data.find(b"{", rng.randrange(len(data) + 1))
    if found is None or brace < 0:
        return data
    where = brace + 1 if rng.random() < 0.5 else data.find(b"}", brace)
    if where < 0:
        return data
    joint = (b"", b",") if where == brace + 1 else (b",", b"")
    return data[:where] + joint[0] + found[0] + joint[1] + data[where:]


KINDS: dict[str, Mutation] = {
    one.__name__: one
    for one in (
        *(cut, bit_flip, noise, zeros, hole, double, swap),
        *(splice, implant, token, number, field, lines, member),
    )
}
"""All mutations, by name."""


def mutated(rng: Random, data: bytes, other: bytes) -> tuple[str, bytes]:
    """``data`` after one to three mutations, half of the time after one that knows the format, or
    after that one alone; and their names joined by "+"."""
    names = []
    if rng.random() < 0.5 and (changed := structured(rng, data, other)):
        if rng.random() < 0.7:
            return changed
        names, data = [changed[0]], changed[1]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name, mutation = rng.choice(list(KINDS.items()))
        names.append(name)
        data = mutation(rng, data, other)
    return "+".join(names), data

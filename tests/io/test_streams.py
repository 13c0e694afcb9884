"""Streams that are compressed."""

import zlib

import pytest
from isal import isal_zlib

from traceconv.io.streams import Deflating

LONG = bytes(range(256)) * 300


def like(address):
    """Content whose third to sixth byte are those of an address in memory, and come again."""
    seen = (address >> 16 & 0xFFFFFFFF).to_bytes(4, "little")
    return b"ab" + seen + bytes(range(100, 200)) + seen + LONG


def test_equal_content_gives_equal_bytes(monkeypatch):
    """ISA-L alone looks for the third byte where its state is in memory."""
    plain, made = isal_zlib.compressobj, []
    monkeypatch.setattr(isal_zlib, "compressobj", lambda *of: made.append(plain(*of)) or made[-1])
    streams = [Deflating() for _ in range(8)]
    assert len({id(one) >> 16 for one in made}) > 1
    content = like(id(made[0]))
    assert len({one.add(content) + one.end() for one in streams}) == 1


@pytest.mark.parametrize("size", [1, 15, 16, 17, 40, 1000])
def test_content_in_pieces_is_one_stream(size):
    """However short the first ones are."""
    for length in (0, 1, 16, 17, 300):
        content, deflating = LONG[:length], Deflating()
        pieces = [content[at : at + size] for at in range(0, length, size)]
        stream = b"".join(map(deflating.add, pieces)) + deflating.end()
        assert zlib.decompress(stream) == content

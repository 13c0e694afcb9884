"""Protobuf as columns: both tiers, and a decoder that takes a field at a time."""

import struct

import numpy as np
import pytest
from effort import effort
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_bytes import Fixed, field, msg, varint

from traceconv import native
from traceconv.protobuf.message import varints
from traceconv.protobuf.message_columns import (
    ABSENT,
    CUT,
    DAMAGED,
    FIXED32,
    FIXED64,
    FOREIGN,
    OTHERS,
    REPEATED,
    VARINT,
    WHOLE,
    codes,
    columns,
    frames,
    repeated,
)

BUILT = native.wire() is not None
COMMON = settings(
    deadline=None,
    max_examples=effort(60, 400),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
WANTED = (1, 2, 7, 16, 200, 1990)


@pytest.fixture(params=["native", "python"])
def tier(request, monkeypatch):
    """Either tier."""
    if request.param == "python":
        monkeypatch.setenv("TRACECONV_NATIVE", "0")
    elif not BUILT:
        pytest.skip("needs the compiled parts")
    return request.param


numbers = st.sampled_from((*WANTED, 3, 15, 16383))
values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=20),
    st.floats(allow_nan=False),
    st.integers(0, 2**64 - 1).map(Fixed),
)
messages = st.lists(st.lists(st.tuples(numbers, values), max_size=6), max_size=8)


def laid(parts):
    """Messages one behind the other, with something between: data, starts, sizes."""
    data, start = b"", []
    for part in parts:
        data += b"\xff"
        start.append(len(data))
        data += part
    return data, np.array(start, np.int64), np.array([len(part) for part in parts], np.int64)


def expected(fields):
    """Value and length of each wanted field by its last occurrence, and the bits of the rest."""
    found, rest, seen = {}, 0, {}
    for number, value in fields:
        if number not in WANTED:
            rest |= OTHERS
            continue
        plain = isinstance(value, int) and not isinstance(value, Fixed)
        if number in seen and plain:
            rest |= REPEATED
        seen[number] = True
        if isinstance(value, bytes):
            found[number] = (value, len(value))
        elif isinstance(value, float):
            found[number] = (struct.unpack("<Q", struct.pack("<d", value))[0], FIXED64)
        else:
            found[number] = (value & (2**64 - 1), VARINT if plain else FIXED64)
    return found, rest


@COMMON
@given(messages)
def test_columns_have_the_last_value_of_each_field(tier, found):
    data, start, size = laid([msg(*fields) for fields in found])
    of = columns(data, start, size, WANTED)
    for row, fields in enumerate(found):
        known, rest = expected(fields)
        assert of.rest[row] == rest
        for at, number in enumerate(WANTED):
            length, value = int(of.lengths[at, row]), int(of.values[at, row])
            if number not in known:
                assert (length, value) == (ABSENT, 0)
            elif length >= 0:
                assert data[value : value + length] == known[number][0]
            else:
                assert (value, length) == known[number]


@COMMON
@given(messages, numbers)
def test_repeated_has_all_of_them_in_order(tier, found, number):
    data, start, size = laid([msg(*fields) for fields in found])
    owner, value, length = repeated(data, start, size, number)
    got = []
    for row, one, n in zip(owner.tolist(), value.tolist(), length.tolist(), strict=True):
        got.append((row, data[one : one + n] if n >= 0 else one))
    wanted = []
    for row, fields in enumerate(found):
        for n, one in fields:
            if n == number and isinstance(one, bytes):
                wanted.append((row, one))
            elif n == number and isinstance(one, float):
                wanted.append((row, struct.unpack("<Q", struct.pack("<d", one))[0]))
            elif n == number:
                wanted.append((row, one & (2**64 - 1)))
    assert got == wanted


@pytest.mark.skipif(not BUILT, reason="needs the compiled parts")
@COMMON
@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_tiers_agree_on_any_bytes(monkeypatch, parts, more):
    """Also where bytes are no message, and whatever stands around them."""
    data, start, size = laid(parts)
    at, most = more.draw(st.integers(0, len(data))), more.draw(st.integers(0, 5))
    found = []
    for off in ("", "0"):
        monkeypatch.setenv("TRACECONV_NATIVE", off)
        of = columns(data, start, size, WANTED)
        one = repeated(data, start, size, 2)
        run = frames(data, at, len(data), most)
        found.append(
            (
                *(of.values.tolist(), of.lengths.tolist(), of.rest.tolist()),
                *(column.tolist() for column in one),
                *(run.start.tolist(), run.size.tolist(), run.end, run.how),
            )
        )
    assert found[0] == found[1]


def test_a_message_that_is_damaged_says_so(tier):
    """What is before the damage is there."""
    cut = msg((1, 5), (2, b"abcdef"))[:-2]
    whole = msg((1, 6)) + varint(2 << 3 | 5) + bytes(4)
    for bad in (cut, msg((1, 5)) + b"\x0b", msg((1, 5)) + b"\x80" * 11, msg((1, 5)) + b"\x00\x00"):
        of = columns(*laid([bad, whole]), WANTED)
        assert [int(rest & DAMAGED) for rest in of.rest] == [DAMAGED, 0]
        assert of.integer(1).tolist() == [5, 6]
        assert of.lengths[1, 1] == FIXED32


@pytest.mark.parametrize("span", [(0, 99), (-1, 2), (5, 1), (3, -1), (2**62, 2**62)])
def test_messages_outside_the_buffer_are_refused(tier, span):
    with pytest.raises(ValueError, match="outside"):
        columns(b"abc", np.array([span[0]]), np.array([span[1]]), WANTED)
    with pytest.raises(ValueError, match="outside"):
        repeated(b"abc", np.array([span[0]]), np.array([span[1]]), 1)


def test_how_a_run_of_frames_ends(tier):
    one = field(1, b"abc")
    for data, ends in (
        (one + one, (2, 10, WHOLE)),
        (one + one[:-1], (1, 5, CUT)),
        (one + b"\x0a", (1, 5, CUT)),
        (one + b"\x12\x00", (1, 5, FOREIGN)),
        (one + b"\x0a" + b"\x80" * 12, (1, 5, FOREIGN)),
        (b"\x0a\x00" + one, (1, 7, WHOLE)),
        (b"", (0, 0, WHOLE)),
    ):
        found = frames(data, 0, len(data), 99)
        assert (len(found.start), found.end, found.how) == ends
    assert len(frames(one * 5, 0, 25, 3).start) == 3


def test_codes_count_from_the_first(tier):
    """Texts and numbers, the same ones in later calls."""
    table = codes()
    data = b"one two one"
    starts, sizes = np.array([0, 4, 8, 3]), np.array([3, 3, 3, 0])
    assert np.frombuffer(table.texts(data, starts, sizes), np.int32).tolist() == [0, 1, 0, 2]
    assert np.frombuffer(table.texts(data, starts[1:2], sizes[1:2]), np.int32).tolist() == [1]
    assert (len(table), table.entries(1)) == (3, [b"two", b""])
    table = codes()
    values = np.array([7, 2**63, 7, 0], np.uint64)
    assert np.frombuffer(table.numbers(values), np.int32).tolist() == [0, 1, 0, 2]
    assert table.entries(0) == [one.tobytes() for one in values[[0, 1, 3]]]


@COMMON
@given(st.lists(st.integers(0, 2**64 - 1), max_size=20), st.integers(0, 3))
def test_packed_numbers(found, cut):
    """Up to the one that is cut off."""
    data = b"".join(map(varint, found))
    size = max(len(data) - cut, 0)
    whole, room = [], size
    for one in found:
        room -= len(varint(one))
        if room < 0:
            break
        whole.append(one)
    assert varints(data[:size]) == whole

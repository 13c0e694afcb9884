"""Arguments as JSON: both tiers alike, whatever the bytes; what they say, as Python reads it."""

import json
import math

import numpy as np
import pytest
from effort import effort
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_bytes import Fixed, msg

from traceconv import native
from traceconv.protobuf.perfetto_schema import OWN_FIELD
from traceconv.readers.perfetto.annotations import Texts, interned_text, objects

BUILT = native.wire() is not None
COMMON = settings(
    deadline=None,
    max_examples=effort(80, 500),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
NAMES, STRINGS = {1: "kept", 2: 'quo"te', 70_000_000: "far"}, {1: "text", 3: "\u00e9\n", 9: ""}


def texts():
    made = Texts()
    for iid, name in NAMES.items():
        made.names.add(iid, json.dumps(name, ensure_ascii=False).encode() + b":")
    for iid, name in STRINGS.items():
        made.strings.add(iid, json.dumps(name, ensure_ascii=False).encode())
    return made


keys = st.one_of(
    st.sampled_from(sorted(NAMES)).map(lambda iid: ((1, iid), NAMES[iid])),
    st.text(max_size=5).filter(lambda t: t.isprintable()).map(lambda t: ((10, t), t)),
)
scalars = st.one_of(
    st.booleans().map(lambda v: ((2, int(v)), v)),
    st.integers(0, 2**64 - 1).map(lambda v: ((3, v), v)),
    st.integers(-(2**63), 2**63 - 1).map(lambda v: ((4, v), v)),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda v: ((5, v), v)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(lambda v: ((6, v), v)),
    st.sampled_from(sorted(STRINGS)).map(lambda iid: ((17, iid), STRINGS[iid])),
    st.integers(0, 2**64 - 1).map(lambda v: ((7, v), f"0x{v:x}")),
)


@st.composite
def nested(draw, depth=3):
    """Fields of a value, and what it is."""
    kind = draw(st.sampled_from("sssda" if depth else "s"))
    if kind == "s":
        one, value = draw(scalars)
        return [one], value
    if kind == "d":
        pairs = draw(st.lists(st.tuples(keys, nested(depth - 1)), min_size=1, max_size=3))
        fields = [(11, msg(key, *inner)) for (key, _), (inner, _) in pairs]
        return fields, {name: value for (_, name), (_, value) in pairs}
    items = draw(st.lists(nested(depth - 1), min_size=1, max_size=3))
    return [(12, msg(*inner)) for inner, _ in items], [value for _, value in items]


rows = st.lists(st.lists(st.tuples(keys, nested()), max_size=4), max_size=5)


def laid(rows_):
    """Annotations of rows: data, starts, sizes, ends of rows."""
    data, start, ends = b"", [], []
    for row in rows_:
        for one in row:
            start.append((len(data), len(one)))
            data += one
        ends.append(len(start))
    places = np.array(start, np.int64).reshape(-1, 2)
    return data, places[:, 0].copy(), places[:, 1].copy(), np.array(ends, np.int64)


def split(made):
    ends = np.cumsum(made.length)
    return [made.text[end - n : end] for end, n in zip(ends, made.length, strict=True)]


@pytest.mark.parametrize("native_", ["", "0"], ids=["native", "python"])
@COMMON
@given(rows)
def test_what_is_written_is_read(monkeypatch, native_, found):
    monkeypatch.setenv("TRACECONV_NATIVE", native_)
    made = objects(
        *laid([[msg(key, *inner) for (key, _), (inner, _) in row] for row in found]), texts()
    )
    for row, text in zip(found, split(made), strict=True):
        assert json.loads(text) == {name: value for (_, name), (_, value) in row}
    assert (list(made.undefined), made.replaced) == ([], 0)


@pytest.mark.skipif(not BUILT, reason="needs the compiled parts")
@COMMON
@given(rows, st.data())
def test_tiers_agree_on_damaged_bytes(monkeypatch, found, more):
    """Any byte may be another one; what comes out is JSON all the same."""
    data, start, size, ends = laid(
        [[msg(key, *inner) for (key, _), (inner, _) in row] for row in found]
    )
    damaged = bytearray(data)
    for _ in range(more.draw(st.integers(0, 4)) if data else 0):
        damaged[more.draw(st.integers(0, len(data) - 1))] = more.draw(st.integers(0, 255))
    outcome = []
    for off in ("", "0"):
        monkeypatch.setenv("TRACECONV_NATIVE", off)
        made = objects(bytes(damaged), start, size, ends, texts())
        outcome.append((made.text, made.length.tolist(), list(made.undefined), made.replaced))
        for text in split(made):
            assert isinstance(json.loads(text), dict)
    assert outcome[0] == outcome[1]


@pytest.fixture(params=["", "0"], ids=["native", "python"])
def row_of(request, monkeypatch):
    """Reads one annotation, or several."""
    monkeypatch.setenv("TRACECONV_NATIVE", request.param)
    return lambda *ones: objects(*laid([list(ones)]), texts())


def test_what_is_not_defined_is_left_out_and_said(row_of):
    made = row_of(msg((1, 5), (3, 1)), msg((1, 1), (17, 4)), msg((1, 1), (3, 2)))
    assert (made.text, list(made.undefined)) == (b'{"kept":2}', [0])


def test_a_number_of_another_wire_type_is_one(row_of):
    """The number of a key as eight bytes: not defined, and said, in both tiers."""
    made = row_of(msg((1, Fixed(5)), (3, 1)), msg((1, Fixed(1)), (3, 2)))
    assert (made.text, list(made.undefined)) == (b'{"kept":2}', [0])


def test_numbers_that_json_does_not_have(row_of):
    odd = (math.nan, math.inf, -math.inf)
    made = row_of(*(msg((10, n), (5, v)) for n, v in zip("abc", odd, strict=True)))
    assert made.text == b'{"a":NaN,"b":Infinity,"c":-Infinity}'


def test_bytes_that_are_no_text_are_replaced_and_counted(row_of):
    made = row_of(msg((10, b"k\xff"), (6, b"\xc3")))
    assert (made.text.decode(), made.replaced) == ('{"k\ufffd":"\ufffd"}', 2)


def test_json_inside_is_json_if_it_is(row_of):
    made = row_of(msg((10, "a"), (9, ' {"x": [1]} ')), msg((10, "b"), (9, "{")))
    assert made.text == b'{"a":{"x": [1]},"b":"{"}'


def test_a_thousand_levels_are_not_followed(row_of):
    """Those deeper than any real ones are left out; nothing overflows."""
    inner = msg((3, 1))
    for _ in range(3000):
        inner = msg((12, inner))
    made = row_of(msg((10, "deep")) + inner)
    assert made.text.startswith(b'{"deep":[[') and len(made.text) < 500
    assert json.loads(made.text)


def test_what_files_of_ours_add(row_of):
    """How many decimals a number had; the JSON text a string stands for, if that is JSON."""
    made = row_of(
        msg((10, "a"), (5, 1.5), (OWN_FIELD, 3)),
        msg((10, "b"), (6, "null"), (OWN_FIELD, b"null")),
        msg((10, "c"), (6, "x"), (OWN_FIELD, b"}{")),
        msg((10, "d"), (5, 0.1), (OWN_FIELD, 10**6)),
        msg((10, "e"), (5, 0.15), (OWN_FIELD, 1)),
    )
    assert made.text == b'{"a":1.500,"b":null,"c":"x","d":0.1,"e":0.15}'


def test_a_name_is_a_string_whatever_is_said_of_it():
    assert interned_text(b"n", b"5", name=True) == b'"n"'
    assert interned_text(b"n", b'"\\u006e"', name=True) == b'"\\u006e"'
    assert interned_text(b"n", b"5") == b"5"

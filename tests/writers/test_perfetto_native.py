"""The C part of the Perfetto encoder writes the same bytes as the Python part, on anything."""

import json
import threading

import msgspec
import numpy as np
import pytest
from effort import effort
from hypothesis import given, settings
from hypothesis import strategies as st

from traceconv.core.model import Args
from traceconv.writers.perfetto import arguments as perfetto_args
from traceconv.writers.perfetto.packets import FLOW, NONE_OPEN, Rows, python_packets

_encode = pytest.importorskip("traceconv.native._encode", reason="the C part is not built")

TEXT = st.text(max_size=8) | st.sampled_from(
    ["", "args", "a, ", 'a", "b', "\\", "\u00e9", "\U0001f600"]
)
EDGES = """
0 -0 1 127 128 -1 9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809
18446744073709551616 100000000000000000000000 0.0 -0.0 0.5 1e5 1E-7 123456789.123456789 1e22 1e23
9007199254740993.0 0.1e-400 1e307 9e307 1e308 -2e308 179769313486231570000e289 4.9e-324
1.7976931348623157e308 0.30000000000000004 1e999 1e99999999999999999999 1e-99999999999999999999
0e999 NaN Infinity -Infinity 0.10 12.500 0.00 -0.00 0.00010 0.00001 0.0000100 1.5e3 1.50E3 100.00
123456789012.000 1234567890123456.0 0.000000000000000000000000000000000000000000000000000000000001
"""
NUMBERS = st.sampled_from(EDGES.split()) | st.floats(allow_nan=False, allow_infinity=False).map(
    repr
)
SCALARS = st.one_of(
    NUMBERS,
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["true", "false", "null", '"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00\\n\\/"']),
    st.sampled_from(['"\\u0041"', '"\\u000a"', '"\\u001F"', '"\\u001f"', '"a\nb"', '"\\u000b"']),
    st.text(max_size=300).map(json.dumps),
    TEXT.map(lambda t: json.dumps(t, ensure_ascii=False)),
)
SPACE = st.sampled_from(["", "", "", " ", "\n\t "])


@st.composite
def containers(draw, inner):
    """A JSON object or array as text, with spaces where they may stand."""
    comma = draw(st.sampled_from([", ", ",", " , "]))
    colon = draw(st.sampled_from([": ", ":", " :\n"]))
    values = draw(st.lists(inner, max_size=6))
    if draw(st.booleans()):
        return "[" + draw(SPACE) + comma.join(values) + draw(SPACE) + "]"
    keys = [json.dumps(draw(TEXT), ensure_ascii=draw(st.booleans())) for _ in values]
    pairs = comma.join(k + colon + v for k, v in zip(keys, values, strict=True))
    return "{" + draw(SPACE) + pairs + draw(SPACE) + "}"


VALUES = st.recursive(SCALARS, containers, max_leaves=12)
FLAT = st.dictionaries(TEXT, SCALARS, max_size=6).map(
    lambda d: "{" + ", ".join(f"{json.dumps(k)}: {v}" for k, v in d.items()) + "}"
)
ENCODED = (VALUES | FLAT).map(lambda t: t.encode("utf-8", "replace"))


@st.composite
def damaged(draw):
    """JSON with a few bytes changed, taken out or put in."""
    raw = bytearray(draw(ENCODED))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 2))] = draw(
            st.binary(max_size=2)
            | st.sampled_from([b'"', b"\\", b"{", b"}", b"[", b",", b"\xff", b"-", b"e"])
        )
    return bytes(raw)


ROWS = st.lists(ENCODED | damaged() | st.sampled_from([b"", b" ", b"{}", b'{"a": 1}']), max_size=12)


def args_of(raws):
    return Args().extended(raws)[0]


def coders(wanted=None):
    return perfetto_args.NativeCoder(_encode.Coder, wanted), perfetto_args.PythonCoder(wanted)


def same(ours, theirs):
    """Whether two blocks are equal, field by field."""
    assert theirs.data == ours.data
    assert theirs.ends.tolist() == ours.ends.tolist()
    assert theirs.interned == ours.interned
    assert theirs.odd.tolist() == ours.odd.tolist()
    counts = [(c.not_json, c.clipped, c.replaced, c.dropped) for c in (theirs, ours)]
    assert counts[0] == counts[1]


@settings(max_examples=effort(60, 200), deadline=None)
@given(
    st.lists(ROWS, min_size=1, max_size=3),
    st.sampled_from([None, frozenset(), frozenset(["a", "", "args"])]),
)
def test_arguments_are_encoded_alike(blocks, wanted):
    """Any bytes as arguments, over several blocks, give equal annotations, strings and counts."""
    native, python = coders(wanted)
    for raws in blocks:
        ids = np.arange(-1, len(raws), dtype=np.int32)
        same(native.block(args_of(raws), ids), python.block(args_of(raws), ids))
    assert python.sizes == native.sizes


@settings(max_examples=effort(20, 60), deadline=None)
@given(ROWS, ROWS)
def test_full_tables_are_used_alike(first, second):
    """So they do when tables are full."""
    limits = {"MAX_STRINGS": 2, "MAX_NAMES": 3, "MAX_BYTES": 4}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(perfetto_args, name, value)
        native, python = coders()
        for raws in (first, second):
            ids = np.arange(len(raws), dtype=np.int32)
            same(native.block(args_of(raws), ids), python.block(args_of(raws), ids))


@pytest.mark.parametrize("depth", [1, 31, 32, 33, 40, 5000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_depth_ends_at_the_same_level(depth, opening, closing):
    """Both take 32 levels and no more."""
    native, python = coders()
    args, ids = args_of([opening * depth + b"1" + closing * depth]), np.zeros(1, np.int32)
    same(native.block(args, ids), python.block(args, ids))


def test_long_content_moves_what_is_written_later():
    """Length fields of several bytes are put in before doubles that are set at the end."""
    raw = json.dumps(
        {"a": {"b": [0.30000000000000004] * 5000, "c": {"d": 1.1e-300}}, "e": 2.2e-300}
    ).encode()
    native, python = coders()
    args, ids = args_of([raw, raw]), np.arange(2, dtype=np.int32)
    same(native.block(args, ids), python.block(args, ids))


def test_addresses_outside_the_buffers_read_nothing():
    """Lengths are cut at the end of a buffer; nothing outside is touched."""
    address = np.array([0, 3, 99, 7 << 48, -1, 2], np.int64)
    length = np.array([2**31 - 1, 10, 10, 10, 10, -5], np.int32)
    coder = _encode.Coder(None, 0, 16, 16, 16)
    data, ends, *_ = coder.block((b'{"a": 1}',), address, length)
    taken = np.diff(np.frombuffer(ends, np.int64), prepend=0) > 0
    assert (taken.tolist(), len(data) > 0) == ([True, True, False, False, False, False], True)


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("time", lambda c: c[:-1]),
        ("last", lambda c: np.append(c, True)),
        ("arg_ends", lambda c: c + 1),
        ("flow_ends", lambda c: c - 1),
    ],
)
def test_columns_that_do_not_fit_are_refused(column, change):
    """Lengths and ends are checked before anything is read."""
    rows, args = rows_of([[(0, 5, 0)]], 0, 0)
    columns = {**msgspec.structs.asdict(rows), "arg_ends": args.ends}
    columns[column] = np.ascontiguousarray(change(columns[column]))
    with pytest.raises(ValueError, match=r"columns|ends"):
        _encode.packets(b"\x50\x01", *columns.values(), args.data, NONE_OPEN)


def test_one_thread_at_a_time():
    """A coder that is busy says so; it never mixes two calls."""
    coder = _encode.Coder(None, 0, 4096, 65536, 256)
    raws = [b'{"a": "%d"}' % i for i in range(20000)]
    args = args_of(raws)
    refused = []

    def work():
        for _ in range(10):
            try:
                coder.block(args.blobs, args.address, args.length)
            except RuntimeError as e:
                refused.append(str(e))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {"one thread at a time"} | set(refused) == {"one thread at a time"}
    assert coder.sizes == (1, 20000)


def rows_of(tracks, flows, arg_bytes, seed=0):
    """Columns of rows given as (start, duration, kind) per track, sorted as tables are, and any
    bytes as their arguments."""
    rng = np.random.default_rng(seed)
    rows = [
        (t, *row)
        for t, track in enumerate(tracks)
        for row in sorted(track, key=lambda r: (r[0], -r[1]))
    ]
    table = np.array(rows, np.int64).reshape(-1, 4)
    n = len(table)
    flow_ends = np.cumsum(rng.integers(0, flows + 1, n))
    arg_ends = np.cumsum(rng.integers(0, arg_bytes + 1, n))
    ends = np.zeros(int(flow_ends[-1]) if n else 0, FLOW)
    ends["id"] = np.arange(len(ends))
    rows = Rows(
        kind=table[:, 3].astype(np.int8),
        last=np.append(np.diff(table[:, 0]) != 0, True)[:n],
        time=table[:, 1].copy(),
        dur=np.where(table[:, 3] == 0, table[:, 2], 0),
        uuid=table[:, 0] * 200 + 1,
        name=rng.integers(0, 2**31 - 1, n, dtype=np.int32)
        >> rng.integers(0, 31, n, dtype=np.int32),
        category=rng.integers(0, 24, n, dtype=np.uint8),
        flow_ends=flow_ends,
        flows=ends,
    )
    return rows, perfetto_args.Coded(
        rng.bytes(int(arg_ends[-1]) if n else 0), arg_ends, b"", np.zeros(n, np.uint8)
    )


TRACK = st.lists(
    st.tuples(
        st.integers(0, 12) | st.integers(0, 2**62),
        st.integers(0, 6) | st.integers(0, 2**40),
        st.sampled_from([0, 0, 0, 1]),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=effort(50, 150), deadline=None)
@given(
    st.lists(TRACK, min_size=1, max_size=4),
    st.integers(0, 3),
    st.sampled_from([0, 10, 400]),
    st.integers(0, 2**32),
    st.integers(1, 30),
)
def test_packets_are_assembled_alike(tracks, flows, arg_bytes, seed, block):
    """Any rows, nested or crossing, cut into any blocks, give equal packets."""
    rows, args = rows_of(tracks, flows, arg_bytes, seed)
    opened = [NONE_OPEN, NONE_OPEN]
    for first in range(0, len(rows.kind), block):
        part, theirs = cut(rows, args, slice(first, first + block))
        columns = [np.ascontiguousarray(c) for c in msgspec.structs.astuple(part)]
        native, still_open = _encode.packets(
            b"\x50\x05", *columns, theirs.ends, theirs.data, opened[0]
        )
        python, opened[1] = python_packets(b"\x50\x05", part, theirs, opened[1])
        opened[0] = np.frombuffer(still_open, np.int64)
        assert python == native
        assert sorted(opened[1].tolist()) == sorted(opened[0].tolist())
    assert len(opened[0]) == 0


def cut(rows, args, some):
    """A block of rows, its ends counted from its own beginning."""
    first = some.start
    flow = int(rows.flow_ends[first - 1]) if first else 0
    arg = int(args.ends[first - 1]) if first else 0
    columns = {name: c[some] for name, c in msgspec.structs.asdict(rows).items()}
    columns["flows"] = rows.flows[flow : int(columns["flow_ends"][-1])]
    columns["flow_ends"] = columns["flow_ends"] - flow
    ends = args.ends[some]
    data = args.data[arg : int(ends[-1])]
    return Rows(**columns), msgspec.structs.replace(args, data=data, ends=ends - arg)


def test_the_environment_switches_the_part_off(monkeypatch):
    """TRACECONV_NATIVE=0 leaves Python to do the work."""
    monkeypatch.setenv("TRACECONV_NATIVE", "0")
    assert isinstance(perfetto_args.coder(None), perfetto_args.PythonCoder)
    monkeypatch.delenv("TRACECONV_NATIVE")
    assert isinstance(perfetto_args.coder(None), perfetto_args.NativeCoder)

"""Both tiers, all chunk sizes, files and streams read any JSON to the same trace."""

import importlib.util
import json
import os
from decimal import Decimal
from unittest import mock

import pytest
from effort import effort
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_events import Memory, everything, read, rows

from traceconv.core.errors import MalformedInputError
from traceconv.io import threads
from traceconv.io.sources import FileSource
from traceconv.readers.shared.trace_events import native
from traceconv.readers.shared.trace_events import timeline as _traceevents

BUILT = importlib.util.find_spec("traceconv.native._scan") is not None
COMMON = settings(
    deadline=None,
    max_examples=effort(25, 60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

pieces = st.sampled_from


def quoted(text):
    return f'"{text}"'


SPELLED = (
    r"a|b|aten::mm|q\"uo|back\\|\u00e9|\ud83d\ude00|\/|args|\"args\": {|}, {|\n|ph|"
    r"{\"ph\": \"X\"}|\u0041|[|:,"
)
texts = pieces([*SPELLED.split("|"), "\u00e9", "\U0001f600"]).map(quoted)
ODD_NUMBERS = (
    "0 1.5 2.0005 -3 1e2 1.25E-3 1e999 99999999999999999999 -0 9223372036854775.807 0.1e-400 "
    "18446744073709551616 12345678901234567.8905"
)
numbers = st.one_of(
    pieces(ODD_NUMBERS.split()),
    st.integers(0, 40).map(str),
    st.decimals(0, 30, places=4).map(str),
    st.integers(0, 10**5).map(lambda n: f"17364088837046{n // 1000:02d}.{n % 1000:03d}"),
)
odd_times = pieces(["007", "", "+1", "1.", ".5", "-", " 7 ", "N/A", "1_0", "1,5", "nan"]).map(
    quoted
)
times = st.one_of(numbers, numbers.map(quoted), odd_times, pieces(["null", "true", "{}", "[1]"]))
values = st.recursive(
    st.one_of(texts, numbers.filter(lambda n: n != "1e999"), pieces(["null", "true", '"AI_CORE"'])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda v: f"[{', '.join(v)}]"),
        st.lists(st.tuples(texts, inner), max_size=3).map(lambda kv: members(kv)),
    ),
    max_leaves=6,
)
ARG_KEYS = r"Model Id|model id|Model ID|Task Type|a|value|KB|acc_id|args|ph|Task\u0020Type|name"
arg_keys = pieces([*ARG_KEYS.split("|"), "Read(MB/s)", "\u00e9"]).map(quoted)
arguments = st.one_of(
    st.lists(st.tuples(arg_keys, values), max_size=3).map(lambda kv: members(kv)),
    pieces(["{}", "{ }", "{\n}", "null", "[1]", "5"]),
    pieces(['{"name":"p","rank":1}', '{"labels":"NPU 0"}', '{"sort_index":3}']),
)
ids = pieces(["1", '"1"', "2", '"x"', r'"\u0031"', "null", "1736408883732241565"])
lanes = pieces(
    ["1", "2", '"1"', '"s"', "-1", "1.0", "null", "3170820512", r'"\u0031"', "0.5", "true"]
)
phases = pieces([*"XXXXBEBEiIRCCstffbneSTpFMMZP", "XX", ""]).map(quoted)
names = st.one_of(
    texts, pieces(['"process_name"', '"thread_name"', '"process_labels"', "null", "7"])
)
rare = pieces(
    [
        "tdur",
        "tts",
        "graph",
        "step",
        "cname",
        "s",
        "sf",
        "bind_id",
        "flow_in",
        "flow_out",
        "id2",
        "ts",
        "name",
        "of_one_tool",
    ]
)


def members(pairs, space=""):
    return "{" + f",{space}".join(f"{k}:{space}{v}" for k, v in pairs) + "}"


@st.composite
def records(draw):
    """One event, its members in any order and partly missing, doubled or of another type."""
    found = [("ph", draw(phases))]
    usual = {"name": names, "pid": lanes, "tid": lanes, "ts": times, "dur": times}
    often = {"cat": pieces(['"c"', '"d"', '""', "null"]), "id": ids, "args": arguments}
    for key, of in usual.items():
        if draw(st.integers(0, 9)):
            found.append((key, draw(of)))
    for key, of in often.items():
        if draw(st.booleans()):
            found.append((key, draw(of)))
    if draw(st.booleans()):
        found.append(("bp", '"e"'))
    for _ in range(max(draw(st.integers(-6, 3)), 0)):
        found.append((draw(rare), draw(st.one_of(values, numbers))))
    ordered = draw(st.permutations(found))
    return members(((quoted(k), v) for k, v in ordered), draw(pieces(["", " ", "\n  "])))


@st.composite
def documents(draw):
    """A file in any form, its records separated in any way."""
    others = pieces(["{}", '{"foo":1}', "5", "null", "[]"])
    parts = draw(st.lists(st.one_of(records(), records(), records(), others), max_size=8))
    text = draw(pieces([",", ", ", ",\n", ",,", " , "])).join(parts)
    forms = ["[%s]", "[%s", "[%s,", "[%s]\n[%s]", '{"traceEvents": [%s]}', '{"traceEvents": [%s']
    around = '{"a":{"traceEvents":[1]},"m":[{"x":1}, {"y":2}],"traceEvents":[%s],"b":"}, {"}'
    form = draw(pieces([*forms, around, "\ufeff[%s]", "junk\n[%s]"]))
    lines = draw(st.booleans()) and draw(st.booleans())
    made = "\n".join(p.replace("\n", " ") for p in parts) if lines else form.replace("%s", text)
    return made.encode()


@st.composite
def damaged(draw):
    """A file with bytes missing, doubled, changed or put in."""
    data = draw(documents())
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(data)))
        until = draw(st.integers(at, min(len(data), at + 40)))
        bits = [b"", b'"', b"}", b"{", b"]", b"NaN", b"\\", b"\xff", b",", b"\t", b"-inf"]
        data = data[:at] + draw(pieces(bits)) + data[until:]
    return data


def outcome(data, native, chunk=None, source=None, **options):
    """All of the trace, or the error."""
    environment = mock.patch.dict(os.environ, TRACECONV_NATIVE="1" if native else "0")
    size = mock.patch.object(_traceevents, "CHUNK_BYTES", chunk or _traceevents.CHUNK_BYTES)
    with environment, size:
        try:
            return everything(read(data, source=source, **options))
        except MalformedInputError as e:
            return str(e)


@pytest.mark.skipif(not BUILT, reason="the extension is not built")
@COMMON
@given(data=st.one_of(documents(), damaged()), keep=st.booleans())
def test_tiers_agree(data, keep):
    """The scanner and the Python code give the same rows, issues and accounts."""
    found = [outcome(data, native, keep_fields=keep) for native in (True, False)]
    assert found[0] == found[1]


def test_values_that_each_event_has_for_itself_are_not_kept():
    """More than the scanner holds on to, and the first one again, behind them."""
    graphs = [*range(5000), 0, 4999]
    events = [
        {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 2 * i, "dur": 1, "args": {"Model Id": g}}
        for i, g in enumerate(graphs)
    ]
    found, *_ = outcome(json.dumps(events).encode(), True, chunk=4096)
    assert [row[6] for row in found] == graphs


@pytest.mark.parametrize("native", [True, False])
@COMMON
@given(data=st.one_of(documents(), damaged()), chunk=pieces([1, 2, 7, 64, 300]))
def test_chunks_do_not_matter(native, data, chunk):
    """Chunks of any size, from one byte up, give the same."""
    assert outcome(data, native, chunk) == outcome(data, native)


@pytest.mark.parametrize("native", [True, False])
@COMMON
@given(data=documents(), chunk=pieces([1, 50, None]))
def test_mapped_files_and_streams_agree(tmp_path, native, data, chunk):
    """Whether arguments are copied or stay in a mapped file makes no difference."""
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    source = FileSource(path, "trace.json/trace.json")
    mapped = outcome(b"", native, chunk, source, keep_fields=True)
    assert mapped == outcome(data, native, chunk, Memory(data), keep_fields=True)


@pytest.mark.skipif(not BUILT, reason="the extension is not built")
@COMMON
@given(
    data=st.one_of(documents(), damaged()),
    chunk=pieces([1, 2, 5, 16]),
    count=pieces([2, 3]),
)
def test_threads_do_not_matter(tmp_path, data, chunk, count):
    """Blocks that are scanned ahead, from guessed places, give what one thread reads."""
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    source = FileSource(path, "trace.json/trace.json")
    alone = outcome(b"", True, None, source)
    with threads.using(count):
        assert outcome(b"", True, chunk, source) == alone


COUNTERS = """
{"value": 1, "acc_id": 0}|{"acc_id":3,"value":2.5,"part Id":17}|{"value": 1, "grid": 2}
"""
LEFT_TO_PYTHON = """
{"value": 1, "acc_id": "a"}|{"value":1,"acc_id":-1}|{"acc_id":1}|{"id":1,"a_id":2}|{"v":1,"v":2}
{"value":1,"acc_id":1,"acc_id":2}|{"value":1,"\u00efd":1}|{"value":1,"acc_id":1.0}|{}|{"v":"1"}
"""


@pytest.mark.skipif(not BUILT, reason="the extension is not built")
@pytest.mark.parametrize("args", [*COUNTERS.strip().split("|"), *LEFT_TO_PYTHON.strip().split("|")])
def test_counters_that_members_tell_apart(args):
    """Both tiers read the same; the forms that exports are full of need no Python code."""
    for one in args.split("\n"):
        event = '{"ph":"C","name":"rate","pid":1,"tid":0,"ts":%d,"args":%s}'
        data = f"[{','.join(event % (i, one) for i in range(3))}]".encode()
        assert outcome(data, native=True) == outcome(data, native=False)
        scanner = native.native_scanner(_traceevents.PROBES, True)
        scanner.scan(data, 1, len(data))
        assert bool(scanner.take()["others"]) == (one in LEFT_TO_PYTHON)


@COMMON
@given(data=st.binary(max_size=300), native=st.booleans())
def test_any_bytes_are_read_or_refused(data, native):
    """Nothing but our own error comes out of arbitrary bytes."""
    assert outcome(b'[{"ph":"' + data, native)


plain_times = st.one_of(
    st.integers(-(10**6), 10**15).map(Decimal),
    st.decimals(-1000, 10**12, places=6, allow_nan=False),
    st.integers(10**18, 2 * 10**18).map(lambda n: Decimal(n) / 1000),
)
plain_rows = st.tuples(
    st.text(max_size=8), plain_times, st.decimals(0, 10**6, places=8), st.booleans(), st.booleans()
)


def ns(us):
    scaled = abs(us) * 1000
    whole = int(scaled)
    return (-1 if us < 0 else 1) * (whole + (scaled - whole >= Decimal("0.5")))


@pytest.mark.parametrize("native", [True, False])
@COMMON
@given(made=st.lists(plain_rows, min_size=1, max_size=12))
def test_times_are_those_of_exact_arithmetic(native, made):
    """Names and times are what decimal arithmetic makes of the file, half up, in any notation."""
    made = [(n.encode("utf-8", "replace").decode(), *rest) for n, *rest in made]
    texts = []
    for name, ts, dur, ts_text, dur_text in made:
        first, second = (f'"{v}"' if q else f"{v}" for v, q in ((ts, ts_text), (dur, dur_text)))
        texts.append(f'{{"ph":"X","name":{json.dumps(name)},"ts":{first},"dur":{second}}}')
    with mock.patch.dict(os.environ, TRACECONV_NATIVE="1" if native else "0"):
        found = rows(read(f"[{','.join(texts)}]".encode()))
    assert sorted(found) == sorted((n, ns(ts), ns(dur)) for n, ts, dur, _, _ in made)

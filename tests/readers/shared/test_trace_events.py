"""Trace events become slices, instants, samples and arrows; nothing is lost in silence."""

import gzip
import importlib.util
import json

import pytest
from trace_events import Memory, arrows, e, issues, meta, packed, plain, read, rows, samples, x

from traceconv.core.errors import MalformedInputError
from traceconv.core.model import Layer, OpClass, Track
from traceconv.io.sources import FileSource
from traceconv.readers.shared.trace_events.timeline import Named, Placed, Skipped

BUILT = importlib.util.find_spec("traceconv.native._scan") is not None
NO_SCANNER = pytest.mark.skipif(not BUILT, reason="the extension is not built")


@pytest.fixture(params=[pytest.param("native", marks=NO_SCANNER), "python"], autouse=True)
def tier(request, monkeypatch):
    """Everything here holds for both tiers."""
    monkeypatch.setenv("TRACECONV_NATIVE", "1" if request.param == "native" else "0")


A, B = json.dumps(x("a")).encode(), json.dumps(x("b", 3)).encode()
BOTH = [("a", 1000, 1000), ("b", 3000, 1000)]


@pytest.mark.parametrize(
    "text",
    [
        b"[%b,%b]" % (A, B),
        b'{"traceEvents":[%b,%b]}' % (A, B),
        b'{"x":{"traceEvents":[1]},"traceEvents":[%b,%b],"y":[{"z":1}, {"z":2}]}' % (A, B),
        b"%b\n%b\n" % (A, B),
        b"\xef\xbb\xbf[%b,%b]" % (A, B),
        b"[%b,,\n,%b,]" % (A, B),
        packed(b"[%b,%b]" % (A, B)),
        b"\n [\n%b ,\n %b\n]\n" % (A, B),
        b"[%b,%b,{}]" % (A, B),
    ],
    ids=[
        "array",
        "object",
        "keys-around",
        "lines",
        "bom",
        "commas",
        "gzip",
        "blanks",
        "empty-record",
    ],
)
def test_every_form_of_file(text):
    """Events are found in every way a file may be written."""
    trace = read(text)
    assert (rows(trace), issues(trace) | {"metadata-unused": 0}) == (BOTH, {"metadata-unused": 0})


@pytest.mark.parametrize("length", [*range(65_505, 65_525), 131_060, 131_072, 400_000])
def test_long_keys_in_front_of_the_events(length):
    """Wherever the pieces end in which a file is looked through: in a string, or beside it."""
    told = b'{"a":"%b","b":[{"c":"[\\""}],"traceEvents":[%b,%b],"d":1}' % (b"x" * length, A, B)
    trace = read(told)
    assert (rows(trace), issues(trace)) == (BOTH, {"metadata-unused": 3})


def test_arguments_of_a_mapped_file(tmp_path):
    """Arguments of a plain file are read back as they are written."""
    path = tmp_path / "t.json"
    path.write_text(json.dumps([x(args={"k": [1, "\u00e9"]}), x("b", 5)]))
    trace = read(b"", source=FileSource(path, "t.json"))
    assert trace.args[int(trace.events.args[0])] == {"k": [1, "\u00e9"]}


def test_junk_in_front_is_counted():
    """Text before the list is skipped, and said."""
    trace = read(b"log line\n[%b,%b]" % (A, B))
    assert (rows(trace), issues(trace)) == (BOTH, {"skipped-bytes": 8})


def test_second_list_is_read_too():
    """Lists written one behind the other are one."""
    assert rows(read(b"[%b]\n[%b]" % (A, B))) == BOTH


def test_a_second_copy_may_be_cut_off():
    """Its events are those of the first, wherever the file ends; other lists are read."""
    first = b"[%b,%b]" % (A, B)
    for end in range(2, len(first) - 1):
        trace = read(first + b"," + first[:end])
        assert rows(trace) == BOTH, end
        assert {"repeated-content": 1, "truncated": 1}.items() <= issues(trace).items()
    whole = read(first + b"," + first)
    assert (rows(whole), issues(whole)) == (BOTH, {"repeated-content": 2})
    cut = read(gzip.compress(first + b"," + first, 0)[:-19])
    assert (rows(cut), issues(cut)) == (BOTH, {"repeated-content": 1, "truncated": 1})
    assert rows(read(first + b"," + b"[%b,%b" % (A, B.replace(b"b", b"c")))) == [
        *BOTH[:1], *BOTH[:1], BOTH[1], ("c", *BOTH[1][1:])
    ]  # fmt: skip


def test_open_array_is_a_doubt():
    """An array need not be closed, but the writer may have been stopped."""
    trace = read(b"[%b,%b,\n" % (A, B))
    assert (rows(trace), issues(trace)) == (BOTH, {"unclosed-array": 1})


@pytest.mark.parametrize("form", [b"[%b", b'{"traceEvents":[%b'])
def test_cut_anywhere(form):
    """Cut at any byte of the last event, all before it is there and one issue says so."""
    for cut in range(1, len(B)):
        trace = read(form % (A + b"," + B[:cut]))
        assert (rows(trace), issues(trace)) == (BOTH[:1], {"truncated": 1})


def test_cut_gzip_keeps_what_was_unpacked():
    """A compressed file cut short is a file cut short."""
    events = [x(f"n{i}", i, args={"v": str(hash((i, "salt")))}) for i in range(2000)]
    data = packed(json.dumps(events).encode())
    trace = read(data[: len(data) // 2])
    assert issues(trace) == {"truncated": 1}
    assert 0 < len(trace.events) < 2000


@pytest.mark.parametrize("text", [b"", b"  \n", b"[]", b'{"traceEvents":[]}'])
def test_nothing_in_it_is_no_error(text):
    """An empty export is noted and gives no events."""
    assert issues(read(text)) == {"empty-file": 1}


@pytest.mark.parametrize(
    "text", [b'{"a":[1,2]}', b"hello", b"[1,2]", b"\x00\xff\x00", b'[{"ph":"X']
)
def test_other_files_are_refused(text):
    """What holds no trace events is an error that names the file."""
    with pytest.raises(MalformedInputError, match=r"trace\.json"):
        read(text)


def test_damaged_record_costs_only_itself():
    """A record with a stray bracket is skipped, with its place; the next ones are read."""
    bad = b'{"ph":"X","name":"a","pid":[1,"tid":1,"ts":2,"dur":1}'
    trace = read(b"[%b,%b,%b]" % (A, bad, B))
    assert (rows(trace), issues(trace)) == (BOTH, {"malformed-record": 1})
    assert next(iter(trace.issues)).places == (f"byte {len(A) + 2}",)


@pytest.mark.parametrize(
    "name",
    ['{"device": "cpu"}(0): f', 'a"b', '"', 'f("a", "b")', '"{"', 'a "b" "c"', '}", {"'],
)
def test_quotes_that_are_not_escaped(name):
    """Names and arguments as writers print them that escape nothing (Kineto before 2025)."""
    event = b'{"ph": "X", "name": "%b", "pid": 1, "tid": 1,\n "ts": 2, "dur": 1%b}'
    bare = event % (name.encode(), b"")
    within = event % (name.encode(), b', "args": {"call": "%b", "n": 1}' % name.encode())
    trace = read(b"[%b, %b,\n %b, %b]" % (A, bare, within, B))
    assert rows(trace) == [BOTH[0], (name, 2000, 1000), (name, 2000, 1000), BOTH[1]]
    assert issues(trace) == {"repaired-record": 2}


@pytest.mark.parametrize("args", ['{"a": ["b"c"]}', '{"a" 1}', "{a: 1}"])
def test_arguments_that_make_no_sense_are_a_text(args):
    """The event stays, with what was printed of them."""
    event = b'{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": %b}'
    trace = read(b"[%b,\n%b]" % (event % args.encode(), B))
    assert (rows(trace), issues(trace)) == (BOTH, {"args-not-json": 1})
    assert trace.args[0] == {"args": args}


@pytest.mark.parametrize(
    ("dur", "ns", "code"),
    [("0.-01", -1, "negative-duration"), ("-1.-500", -1500, "negative-duration")],
)
def test_negative_numbers_of_two_signed_halves(dur, ns, code):
    """What C++ prints of whole and rest of a negative number, each with its sign."""
    trace = read(b"[%b,%b,%b]" % (A, B[:-2] + dur.encode() + b"}", B))
    assert (rows(trace), issues(trace)) == (BOTH, {code: 1, "repaired-record": 1})


def test_commas_before_closing_brackets():
    """Of objects and of lists, as some writers put them."""
    odd = b'{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1,"args":{"x":[1,],"y":"a,}",},}'
    trace = read(b"[%b,%b]" % (odd, B))
    assert (rows(trace), issues(trace)) == (BOTH, {"repaired-record": 1})
    assert trace.args[0] == {"x": [1], "y": "a,}"}


def test_a_bracket_too_many_costs_no_event():
    """A list among the events is damage of one bracket: what is in it is read."""
    trace = read(b"[%b, [%b\n]" % (A, B))
    assert (rows(trace), issues(trace)) == (BOTH, {"malformed-record": 1})


def test_record_without_its_brace_costs_only_itself():
    """A record that was not finished does not take the next one with it."""
    trace = read(b"[%b,%b,%b]" % (A, B[:-1], B))
    assert (rows(trace), issues(trace)) == (BOTH, {"malformed-record": 1})


@pytest.mark.parametrize(
    "text", [b'{"a":' * 5000, b'{"a":[' * 5000, b'{"name":"' + b"y" * 100_000, b"[" * 50_000]
)
def test_hostile_text_behind_events(text):
    """Endless nesting or strings do no harm to what stands before."""
    trace = read(b"[%b,%b,%b" % (A, B, text))
    assert rows(trace) == BOTH
    assert set(issues(trace)) <= {"truncated", "malformed-record", "unclosed-array"}


# -- times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ts", "ns"),
    [
        ('"1736408883704643.212"', 1736408883704643212),
        ("1736408883704643.212", 1736408883704643212),
        ("4398046511104.001", 4398046511104001),
        ("1.7e3", 1700000),
        ('"1E-3"', 1),
        ("0.0004999", 0),
        ("0.0005", 1),
        ("-0.0005", -1),
        ("-2.5", -2500),
        ('" 7 "', 7000),
        ("123456789012.123456789", 123456789012123),
    ],
)
def test_stamps_are_exact(ts, ns):
    """Digits are taken from the text and rounded half up, whatever the form of the number."""
    text = b'[{"ph":"i","name":"a","pid":1,"tid":1,"ts":%b}]' % ts.encode()
    assert rows(read(text), "start") == [(ns,)]


@pytest.mark.parametrize(
    "ts",
    ['"N/A"', "null", "1e30", "9223372036854775.808", "-9223372036854775808", "{}", "true"],
)
def test_unusable_stamp_is_a_loss(ts):
    """Without a time an event cannot be kept."""
    text = b'[%b,{"ph":"X","name":"b","pid":1,"tid":1,"dur":1,"ts":%b}]' % (A, ts.encode())
    trace = read(text)
    assert (rows(trace), issues(trace)) == (BOTH[:1], {"bad-time": 1})


def test_end_beyond_int64_is_a_loss():
    """A slice must also end within int64."""
    trace = read([x(), x("b", 9e15, 9e15)])
    assert (rows(trace), issues(trace)) == (BOTH[:1], {"bad-time": 1})


def test_finer_than_a_nanosecond_is_said():
    """Rounding is by design, and counted."""
    trace = read(b'[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1.0001,"dur":53.7410625}]')
    assert rows(trace) == [("a", 1000, 53741)]
    assert issues(trace) == {"duration-rounded": 1, "stamp-rounded": 1}


def test_grid_of_doubles_is_noticed():
    """Epoch stamps that all lie on quarters of a microsecond went through floating point."""
    quarters = [x(f"n{i}", f"17364088837046{i:02d}.{i % 4 * 25:02d}") for i in range(20)]
    assert issues(read(quarters)) == {"time-rounded": 20}
    assert issues(read([*quarters, x("fine", "1736408883704699.123")])) == {}


@pytest.mark.parametrize(
    ("more", "dur", "code"),
    [
        ({"tdur": 4}, 4000, {}),
        ({}, 0, {"missing-duration": 1}),
        ({"dur": "N/A"}, 0, {"missing-duration": 1}),
        ({"dur": 0}, 0, {}),
        ({"dur": "1.5"}, 1500, {}),
    ],
)
def test_durations(more, dur, code):
    """A duration may be text, or stand under another key; a missing one is said."""
    trace = read([e("X", **more)])
    assert (rows(trace, "dur"), issues(trace)) == ([(dur,)], code)


def test_negative_duration_is_a_loss():
    """A slice that ends before it starts is not turned around."""
    trace = read([x(), x("b", 3, -1)])
    assert (rows(trace), issues(trace)) == (BOTH[:1], {"negative-duration": 1})


# -- begins and ends -----------------------------------------------------------------------------


def test_begins_and_ends_nest():
    """An end closes the newest begin; stamps decide, not the order in the file."""
    trace = read([e("B", "in", 2), e("E", "in", 3), e("B", "out", 1), e("E", "out", 9)])
    assert rows(trace) == [("out", 1000, 8000), ("in", 2000, 1000)]


def test_end_looks_for_its_name():
    """An end closes the newest begin of its name, even under others."""
    trace = read([e("B", "a", 1), e("B", "b", 2), e("E", "a", 3), e("E", "b", 5)])
    assert rows(trace) == [("a", 1000, 2000), ("b", 2000, 3000)]


def test_nameless_end_closes_anything():
    """An end need not repeat the name."""
    end = {"ph": "E", "pid": 1, "tid": 1, "ts": 4}
    assert rows(read([e("B", "a", 1), end])) == [("a", 1000, 3000)]


def test_unfinished_slice_ends_with_its_lane():
    """A begin without an end lasts to the last stamp of its thread, and says so."""
    trace = read([e("B", "a", 1, args={"k": 1.10}), x("x", 5, 2), x("y", 50, 1, tid=2)])
    assert rows(trace, "name", "dur", "args")[0] == ("a", 6000, b'{"k":1.1,"unfinished":true}')
    assert issues(trace) == {"unfinished-slice": 1}


def test_end_alone_is_a_loss():
    """An end that no begin agrees with is counted."""
    trace = read([e("B", "a", 1), e("E", "a", 2), e("E", "z", 3)])
    assert (rows(trace), issues(trace)) == ([("a", 1000, 1000)], {"end-without-begin": 1})


def test_arguments_of_both_ends():
    """A slice has the arguments of its begin and of its end, the later ones counting."""
    pairs = [e("B", "a", 1, args={"x": 1, "y": 2}), e("E", "a", 2, args={"x": 3})]
    assert rows(read(pairs), "args") == [(b'{"x":3,"y":2}',)]
    assert rows(read([e("B", "a", 1), e("E", "a", 2, args={"x": 3})]), "args") == [(b'{"x": 3}',)]


def test_async_pairs_by_id():
    """b and e of one id are a slice, n an instant; ids keep overlapping ones apart."""
    events = [
        e("b", "r", 1, cat="net", id="0x1"),
        e("b", "r", 2, cat="net", id="0x2"),
        e("n", "r", 2.5, cat="net", id="0x1"),
        e("e", "r", 4, cat="net", id="0x1"),
        e("e", "r", 5, cat="net", id="0x2"),
    ]
    wanted = [(1000, 3000, "slice"), (2000, 3000, "slice"), (2500, 0, "instant")]
    assert sorted(rows(read(events), "start", "dur", "kind")) == wanted


# -- instants, counters --------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["i", "I", "R"])
def test_instants(phase):
    """All marks of a moment are instants."""
    trace = read([e(phase, "m", 2, s="g", args={"k": 1})])
    assert rows(trace, "name", "kind", "args") == [("m", "instant", b'{"k": 1}')]


@pytest.mark.parametrize(
    ("name", "args", "wanted"),
    [
        ("AI Core Freq", {"MHz": 1800}, [("AI Core Freq", "MHz", 1800)]),
        ("HBM 0/Read", {"Read(MB/s)": 2.5}, [("HBM 0/Read", "MB/s", 2.5)]),
        ("CPU 0", {"Usage(%)": 7}, [("CPU 0 Usage", "%", 7)]),
        ("QoS x", {"value": 1}, [("QoS x", "", 1)]),
        ("mem", {"HBM": 5, "DDR": "6.5"}, [("mem DDR", "", 6.5), ("mem HBM", "", 5)]),
        ("read_ost", {"value": 4, "acc_id": 3}, [("read_ost acc_id 3", "", 4)]),
        ("only", {"id": 7}, [("only id", "", 7)]),
        ("big", {"v": 18446744073709551616}, [("big v", "", 2.0**64)]),
    ],
)
def test_counter_series(name, args, wanted):
    """Each number is a series; the key goes into the name unless it only says the unit."""
    trace = read([e("C", name, 1, args=args)])
    assert samples(trace) == [(n, u, 1000, v) for n, u, v in wanted]


def test_counters_of_one_name_and_different_ids():
    """An id sets counters apart."""
    trace = read([e("C", "q", 1, id=i, args={"value": i}) for i in (1, 2)])
    assert samples(trace) == [("q id 1", "", 1000, 1.0), ("q id 2", "", 1000, 2.0)]


def test_series_seen_apart_are_still_several():
    """Whether a name has several series is decided over the whole file."""
    trace = read([e("C", "m", 1, args={"KB": 1}), e("C", "m", 2, args={"value": 2})])
    assert samples(trace) == [("m KB", "KB", 1000, 1.0), ("m value", "", 2000, 2.0)]


@pytest.mark.parametrize("args", [{"v": "high"}, {"v": None}, {"v": True}, {"v": [1]}, {}, None])
def test_counter_that_is_no_number(args):
    """A value that is no number is a counted loss."""
    trace = read([x(), e("C", "m", 1, args=args)])
    assert (samples(trace), issues(trace)) == ([], {"counter-not-numeric": 1})


# -- arrows --------------------------------------------------------------------------------------


def flow(ph, ts, tid=1, id="1", name="go", cat="k", **more):
    bp = {"bp": "e"} if ph == "f" else {}
    return e(ph, name, ts, tid=tid, id=id, cat=cat, **bp, **more)


LANES = [x("outer", 0, 20), x("inner", 5, 5), x("dst", 30, 5, tid=2), x("late", 40, 5, tid=2)]


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        (5, 30, [("k", "inner", "dst")]),
        (7, 32, [("k", "inner", "dst")]),
        (10, 35, [("k", "inner", "dst")]),
        (12, 30, [("k", "outer", "dst")]),
        (0, 40, [("k", "outer", "late")]),
    ],
)
def test_arrow_binds_to_the_innermost_slice(start, end, wanted):
    """The slice that begins just then, else the innermost around that time, its end included."""
    assert arrows(read([*LANES, flow("s", start), flow("f", end, 2)])) == wanted


def test_arrow_without_enclosing_end_binds_to_the_next():
    """A finish without bp "e" belongs to the slice that comes."""
    finish = e("f", "go", 32, tid=2, id="1", cat="k")
    assert arrows(read([*LANES, flow("s", 5), finish])) == [("k", "inner", "late")]


def test_arrow_binds_to_an_instant_at_its_very_time():
    """As a browser marks tasks that are posted; a slice that begins just then goes before it, and
    asynchronous slices are on no stack."""
    marks = [
        e("i", "posted", 7, s="t"),
        e("b", "startup", 1, id="7"),
        e("e", "startup", 99, id="7"),
    ]
    assert arrows(read([*LANES, *marks, flow("s", 7), flow("f", 30, 2)])) == [
        ("k", "posted", "dst")
    ]
    assert arrows(read([*LANES, *marks, flow("s", 5), flow("f", 30, 2)])) == [("k", "inner", "dst")]
    assert arrows(read([*LANES, *marks, flow("s", 0), flow("f", 30, 2)])) == [("k", "outer", "dst")]
    alone = [x("dst", 30, 4, tid=2), *marks[1:], flow("s", 5), flow("f", 30, 2)]
    trace = read(alone)
    assert (arrows(trace), issues(trace)) == ([], {"flow-without-end": 1})


def test_one_start_many_ends():
    """An API that launches two kernels has two arrows."""
    trace = read([*LANES, flow("s", 5), flow("f", 30, 2), flow("f", 40, 2)])
    assert arrows(trace) == [("k", "inner", "dst"), ("k", "inner", "late")]


def test_chain():
    """Steps pass an arrow on."""
    trace = read([*LANES, flow("s", 5), flow("t", 30, 2), flow("f", 40, 2)])
    assert arrows(trace) == [("k", "dst", "late"), ("k", "inner", "dst")]


def test_id_used_again():
    """An end belongs to the latest start before it."""
    ends = [flow("s", 0), flow("f", 30, 2), flow("s", 12), flow("f", 40, 2)]
    events = [*LANES, x("again", 12, 3), *ends]
    late = [x("again", 35, 3) if v["name"] == "again" else v for v in events]
    late = [{**v, "ts": 35} if v["ph"] == "s" and v["ts"] == 12 else v for v in late]
    assert arrows(read(late)) == [("k", "again", "late"), ("k", "outer", "dst")]


@pytest.mark.parametrize("ids", [(7, "7"), ("0x1f", "0x1f"), ("a b", "a b"), (2**60 + 1,) * 2])
def test_ids_are_text(ids):
    """Ids may be numbers of any size or any text."""
    trace = read([*LANES, flow("s", 5, id=ids[0]), flow("f", 30, 2, id=ids[1])])
    assert len(trace.flows) == 1


@pytest.mark.parametrize("other", [{"name": "x"}, {"cat": "x"}, {"id": 2**60 + 2}])
def test_arrows_match_in_all_of_category_name_and_id(other):
    """What differs in one of them is another arrow, and both ends are counted."""
    start = flow("s", 5, id=2**60 + 1)
    trace = read([*LANES, start, flow("f", 30, 2, **{"id": 2**60 + 1, **other})])
    assert issues(trace) == {"flow-without-end": 2}


def test_arrow_to_a_lane_without_slices():
    """An arrow from a layer that was not recorded makes no track, and nothing is lost."""
    trace = read([*LANES, flow("s", 5, tid=99), flow("f", 30, 2)])
    assert (arrows(trace), issues(trace)) == ([], {"flow-without-end": 1})
    assert trace.ledger["read", "flow"] == 1


def test_slices_may_carry_arrows():
    """bind_id with flow_out and flow_in is an arrow too."""
    events = [x("a", 1, bind_id="0x1", flow_out=True), x("b", 5, bind_id="0x1", flow_in=True)]
    assert arrows(read(events)) == [("flow", "a", "b")]


def test_nameless_category():
    """An arrow without a category is called by its name without its number."""
    events = [*LANES, e("s", "go_12", 5, id=1), {**e("f", "go_12", 30, tid=2, id=1), "bp": "e"}]
    assert arrows(read(events)) == [("go", "inner", "dst")]


# -- names, lanes, arguments ---------------------------------------------------------------------


def test_metadata_names_lanes_wherever_it_stands():
    """Names may come after the events and twice; the last one counts."""
    lanes = []

    def note(lane):
        lanes.append(lane)
        return plain(lane)

    read(
        [
            meta("process_name", name="old"),
            x(cat="c"),
            meta("process_name", name="new", rank=3),
            meta("thread_name", name="main", layer="host", sort=2),
            meta("process_labels", labels="NPU 0"),
            meta("thread_sort_index", sort_index=9),
        ],
        note,
    )
    (lane,) = lanes
    said = lane.process, lane.thread, lane.labels, lane.category, lane.sort, dict(lane.extra)
    extra = {"rank": 3, "layer": "host", "sort": 2}
    assert said == ("new", "main", "NPU 0", "c", 9, extra)
    assert lane.names.threads == {("1", "1"): "main"}


def test_unknown_metadata_is_noted():
    """Metadata nobody needs is counted as such."""
    assert issues(read([x(), meta("trace_buffer_overflowed", n=1)])) == {"metadata-unused": 1}


@pytest.mark.parametrize(
    ("value", "text"), [(7, "7"), ("7", "7"), (7.0, "7"), (-3, "-3"), ("stream 1", "stream 1")]
)
def test_lane_numbers_are_text(value, text):
    """Numbers and text that look alike are one lane."""
    assert [t.name for (t,) in rows(read([x(tid=value)]), "track")] == [text]


def test_events_without_lane_or_name_are_kept():
    """What is missing is empty, and a missing name is said."""
    trace = read([{"ph": "X", "ts": 1, "dur": 1}])
    assert (rows(trace), issues(trace)) == ([("", 1000, 1000)], {"missing-name": 1})


def test_unknown_phases_are_counted():
    """Phases without meaning here, and records without any, are losses of no kind."""
    trace = read([x(), e("N"), e("P"), e("Z"), {"foo": 1}, {}])
    assert (rows(trace), issues(trace)) == (BOTH[:1], {"unknown-phase": 4})


def test_arguments_are_kept_byte_for_byte():
    """Spacing, long numbers and escapes of arguments are not touched."""
    raw = rb'{ "a" : 1.10, "b":[1,{"c" :18446744073709551615}], "\u0064":"\ud83d\ude00" }'
    trace = read(b'[{"ph":"X","name":"a","pid":1,"tid":1,"ts":1,"dur":1,"args":%b}]' % raw)
    assert rows(trace, "args") == [(raw,)]


@pytest.mark.parametrize(
    ("raw", "kept", "code"),
    [
        (b'{"x":NaN,"y":-Infinity}', b'{"x":"NaN","y":"-Infinity"}', "args-not-json"),
        (b'{"x":nan}', b'{"x":"nan"}', "args-not-json"),
        (b'{"x":"a\tb"}', b'{"x":"a\\u0009b"}', "args-not-json"),
        (b'{"x":"C:\\dir"}', b'{"x":"C:\\\\dir"}', "args-not-json"),
        (b'{"x":"\\ud800"}', b'{"x":"\\ufffd"}', "args-not-json"),
        (b'{"x":"\xff"}', '{"x":"\ufffd"}'.encode(), "bad-encoding"),
    ],
)
def test_arguments_that_are_not_json_are_mended(raw, kept, code):
    """An event is not lost for its arguments."""
    trace = read(b'[%b,{"ph":"i","name":"b","pid":1,"tid":1,"ts":9,"args":%b}]' % (A, raw))
    assert (rows(trace, "args")[-1], issues(trace)) == ((kept,), {code: 1})


@pytest.mark.parametrize(
    ("args", "kept"),
    [([1, 2], b'{"args": [1, 2]}'), ("t", b'{"args": "t"}'), (None, b""), ({}, b"")],
)
def test_arguments_that_are_no_object(args, kept):
    """Anything else becomes the only member of an object."""
    assert rows(read([x(args=args)]), "args") == [(kept,)]


@pytest.mark.parametrize("name", ['q"uo\\te', "tab\tline\n", "\u00e9\U0001f600", "}, {", "\ud83d"])
def test_names_of_any_text(name):
    """Names are what the text means; half a surrogate pair is replaced."""
    wanted = name.encode("utf-8", "replace").decode().replace("?", "\ufffd")
    assert rows(read([x(name)]), "name") == [(wanted,)]


# -- what readers say ----------------------------------------------------------------------------


def on(track, **more):
    return lambda lane: Placed(track, **more)


TRACK = Track(Layer.DEVICE, "Stream 1")


@pytest.mark.parametrize(
    ("args", "graph"),
    [
        ({"Model Id": 4}, 4),
        ({"model id": "4"}, 4),
        ({"Model Id": 4294967295}, -1),
        ({"Model Id": "2.0"}, 2),
        ({"Model Id": "N/A"}, -1),
        ({"inner": {"Model Id": 4}}, -1),
        ({"Model Id": None, "Model ID": 5}, 5),
        ({}, -1),
    ],
)
def test_graph_of_the_arguments(args, graph):
    """The graph is found in its spellings; the mark for none is none."""
    assert rows(read([x(args=args)]), "graph") == [(graph,)]


def test_class_by_type_and_name():
    """The name goes before the type, the type before the lane."""
    events = [
        x("n", 1, args={"Task Type": "T"}),
        x("m", 2, args={"Task Type": "T"}),
        x("o", 3, args={"Task Type": "?"}),
    ]
    named = {"n": Named(OpClass.COMM, 7, 8)}.get
    place = on(TRACK, op=OpClass.OTHER, by_type={"T": OpClass.COMPUTE}, by_name=named, graph=3)
    wanted = [("comm", 7, 8), ("compute", 3, -1), ("other", 3, -1)]
    assert rows(read(events, place), "op", "graph", "step") == wanted


def test_graph_and_step_as_keys_of_the_event():
    """Our own files keep them there."""
    assert rows(read([x(graph=2, step=5)]), "graph", "step") == [(2, 5)]


def test_skipped_lane_is_booked():
    """A lane that is left out is accounted for under its code."""
    trace = read([x(), e("i")], lambda lane: Skipped("decoration-skipped"))
    assert (rows(trace), issues(trace)) == ([], {"decoration-skipped": 2})
    assert trace.ledger["lost", "slice"] == trace.ledger["lost", "instant"] == -1


def test_skipped_arrows_are_booked():
    """Arrows of a category that is left out are accounted for under its code."""

    def place(lane):
        return Skipped("decoration-skipped") if lane.category == "k" else plain(lane)

    trace = read([*LANES, flow("s", 5), flow("f", 30, 2), flow("s", 5, id="9")], place)
    assert (arrows(trace), issues(trace)) == ([], {"decoration-skipped": 2})


def test_lanes_of_other_captures_do_not_count():
    """None means: not here. Such events are neither seen nor lost."""
    events = [
        x(),
        x("b", 5, pid=2),
        e("C", "c", 1, pid=2, args={"v": 1}),
        flow("s", 1),
        flow("f", 1),
    ]
    trace = read(
        events, lambda lane: plain(lane) if lane.pid == "1" and lane.phase == "X" else None
    )
    assert (rows(trace), issues(trace)) == (BOTH[:1], {})
    assert trace.ledger == {("read", "slice"): 1}


def test_counter_track_with_a_unit_is_taken_whole():
    """A reader may say all of a counter's track."""
    track = Track(Layer.COUNTER, "n", "g", unit="W")
    assert samples(read([e("C", "x", 1, args={"v": 1})], on(track))) == [("n", "W", 1000, 1.0)]


def test_offset_is_added_to_every_stamp():
    """A base named in the file moves slices, samples and the ends of arrows alike."""
    events = [*LANES, flow("s", 5), flow("f", 30, 2), e("C", "c", 1, args={"value": 1})]
    data = json.dumps({"base": "1000", "traceEvents": events}).encode()
    trace = read(data, offset_ns=lambda keys: int(keys["base"]))
    assert rows(trace)[0] == ("outer", 1000, 20000)
    assert (samples(trace), arrows(trace)) == ([("c", "", 2000, 1.0)], [("k", "inner", "dst")])


def test_keys_behind_the_events_are_known():
    """Keys that stand after the list are known when the offset is asked for."""
    data = b'{"traceEvents":[%b],"x":{"y":[1,2]},"base":5}' % A
    assert rows(read(data, offset_ns=lambda keys: keys["base"])) == [("a", 1005, 1000)]


def test_span_is_that_of_the_slices():
    """Reading returns the earliest start and the latest end."""
    from traceconv.core.builder import TraceBuilder
    from traceconv.core.model import Capture
    from traceconv.readers.shared.trace_events.timeline import read_events

    source = Memory(json.dumps([x("a", 5, 9), x("b", 6, 1), e("i", ts=99)]).encode())
    build = TraceBuilder(Capture("test", source, source.names()))
    assert read_events(source, "trace.json", build, plain) == (5000, 14000)


def test_samples_at_one_time_keep_the_order_of_the_file():
    """Also where one number has more digits than the scanner reads itself."""
    values = [0.5, 0.30000000000000004, 5, 0.1 + 0.2, 7]
    trace = read([e("C", "mem", args={"GB": value}) for value in values])
    assert [value for *_, value in samples(trace)] == values

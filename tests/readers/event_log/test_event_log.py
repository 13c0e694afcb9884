"""Raw event logs: times, tables, kinds, pairs, ranks, and what becomes of broken records."""

import json
from functools import partial

import pytest
from event_logs import booked, lanes, rows, written

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Kind, Layer, OpClass
from traceconv.readers.event_log import reader as event_log
from traceconv.readers.shared import lines as _event_log_lines


@pytest.fixture
def log(tmp_path):
    """Writes a text and reads it back, through a mapping if one is given."""
    return partial(written, tmp_path)


# -- times ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "text", "ns"),
    [
        ("s", "1700000000.123456789", 1700000000123456789),
        ("ms", "1700000000123.456789", 1700000000123456789),
        ("us", "1736408883704643.212", 1736408883704643212),
        ("ns", "4611686018427387902", 4611686018427387902),
        ("us", "1.5e3", 1500000),
        ("us", "-2.5", -2500),
    ],
)
def test_times_are_taken_digit_by_digit(log, unit, text, ns):
    """No stamp passes through floating point, whatever its unit."""
    found = log(f"# unit={unit}\nname,ts,dur\na,{text},0\nb,1,0\n").trace
    assert ns in found.events.start_ns.tolist()


@pytest.mark.parametrize(
    ("text", "ns"), [("0.0004", 0), ("0.0005", 1), ("-0.0005", -1), ("0.00149", 1), ("2.5e-3", 3)]
)
def test_beyond_the_nanosecond_is_half_up(log, text, ns):
    """Finer digits are rounded half up, alone as in a column of their like, and counted."""
    alone = log(f"name,ts\na,{text}\n")
    column = log(f"name,ts\na,{text}\nb,{text}\nc,7\n")
    assert alone.trace.events.start_ns.tolist() == [ns]
    assert column.trace.events.start_ns.tolist()[:2] == [ns, ns]
    assert [i.code for i in alone.trace.issues] == ["stamp-rounded"]


def test_units_of_columns_go_before_that_of_the_log(log):
    """A mapping may give every time a unit of its own."""
    found = log("n,a,b\nx,3,5\n", "name=n,ts=a:ms,dur=b:ns,unit='s'").trace
    assert rows(found) == [("x", 3000000, 5)]


def test_unit_stands_in_the_brackets_of_a_header(log):
    """``(*)`` takes the unit from the header, in any of its spellings."""
    for header, ns in (("Start (ns)", 4), ("Start(usec)", 4000), ("start (ms)", 4000000)):
        found = log(f"Name,{header}\nx,4\n", "name=Name,ts=Start (*)").trace
        assert found.events.start_ns.tolist() == [ns]


@pytest.mark.parametrize(
    ("head", "stamp", "domain"),
    [
        ("# clock=unix\n", 5, "unix"),
        ("# clock=relative\n", 1700000000000000, "relative"),
        ("", 1700000000000000, "unix"),
        ("", 5, "relative"),
    ],
)
def test_clock_is_said_or_seen(log, head, stamp, domain):
    """The head names the clock; without it the size of the stamps does."""
    found = log(f"{head}name,ts\na,{stamp}\n")
    assert str(found.captures[0].clock.domain) == domain


# -- tables ---------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_tables_of_all_fashions(log, delimiter, end, mark):
    """Delimiter, line ends and byte order mark make no difference."""
    table = [["name", "ts", "dur", "stream"], ["a", "1", "2", "7"], ["b", "3", "4", "7"]]
    found = log(mark + end.join(delimiter.join(row) for row in table) + end).trace
    assert rows(found) == [("a", 1000, 2000), ("b", 3000, 4000)]
    assert lanes(found) == [(Layer.DEVICE, "Hardware", "", "Stream 7")]


def test_cells_hold_line_ends_quotes_and_what_looks_like_a_comment(log):
    """RFC 4180 within a cell; comments and blank lines only between rows."""
    text = (
        'name,ts\n"one\n\n# not a comment\n""two"", three",1\n# a comment with one " in it\n\nb,2\n'
    )
    assert rows(log(text).trace) == [
        ('one\n\n# not a comment\n"two", three', 1000, 0),
        ("b", 2000, 0),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_tiny_chunks_give_the_same(log, monkeypatch, size):
    """Wherever the text is cut while it is read, the rows are the same."""
    text = '# unit=ns\nname,ts,dur,args.x\n"a\r\nb",1,2,é\r\nc,3,4,"""q"""\n\n\nd,5,6,\n'
    usual = log(text).trace
    monkeypatch.setattr(_event_log_lines, "CHUNK_BYTES", size)
    tiny = log(text).trace
    assert rows(tiny) == rows(usual)
    assert [tiny.args[i] for i in range(2)] == [{"x": "é"}, {"x": '"q"'}]


def test_an_open_quote_costs_one_row(log):
    """A quote that is never closed does not swallow the rows behind it."""
    found = log('name,ts\n"a,1\nb,2\nc,3\n').trace
    assert rows(found) == [("b", 2000, 0), ("c", 3000, 0)]
    assert booked(found.issues)[0][:2] == ("malformed-record", 1)
    assert booked(found.issues)[0][2][0].startswith("line 2:")


def test_rows_of_another_width_are_rejected(log):
    """Too many or too few cells are said by line; empty cells behind the last are none."""
    found = log("name,ts,dur\na,1,2,,\nb,1\nc,1,2,3\nd,4,5\n").trace
    assert rows(found) == [("a", 1000, 2000), ("d", 4000, 5000)]
    assert booked(found.issues) == [
        (
            "malformed-record",
            2,
            (
                "line 3: 2 cells where the header has 3",
                "line 4: 4 cells where the header has 3",
            ),
        )
    ]


def test_line_too_long_is_rejected_and_the_next_one_read(log, monkeypatch):
    """A line beyond the limit is counted, not kept, and does not shift line numbers."""
    monkeypatch.setattr(_event_log_lines, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(_event_log_lines, "CHUNK_BYTES", 16)
    found = log("name,ts\n" + "x" * 101 + ",1\nb,2\nc,soon\n").trace
    assert rows(found) == [("b", 2000, 0)]
    assert booked(found.issues) == [
        ("malformed-record", 1, ("line 2: longer than 100 bytes",)),
        ("bad-time", 1, ("line 4: ts",)),
    ]


def test_wide_cells_are_read(log):
    """A quoted cell may be as long as a line."""
    wide = "x" * 300_000
    assert rows(log(f'name,ts\n"{wide}",1\n').trace) == [(wide, 1000, 0)]


def test_text_that_is_not_utf8_is_kept(log):
    """Bytes of another encoding are replaced and counted by line."""
    found = log(b"name,ts\ncaf\xe9,1\nb,2\n").trace
    assert rows(found)[0][0] == "caf\ufffd"
    assert booked(found.issues) == [("bad-encoding", 1, ("line 2",))]


def test_same_column_twice(log):
    """Of two columns of one name the first is the field, the second an argument."""
    found = log("name,ts,name\na,1,b\n").trace
    assert (rows(found), found.args[0]) == ([("a", 1000, 0)], {"name (2)": "b"})


# -- what an event is -------------------------------------------------------------------------


def placed(log, **fields):
    """Lane and class of one event of the schema."""
    trace = log(json.dumps({"rawlog": 1}) + "\n" + json.dumps({"ts": 1, "dur": 1, **fields})).trace
    (lane,) = lanes(trace)
    return (*lane, OpClass(int(trace.events.op[0])).name, int(trace.events.step[0]))


DEVICE, COMM, HOST, STEP = Layer.DEVICE, Layer.COMM, Layer.HOST, Layer.STEP
STEPS = ("Step Trace", "", "iterations")


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"name": "gemm", "stream": 7}, (DEVICE, "Hardware", "", "Stream 7", "UNCLASSIFIED", -1)),
        (
            {"name": "k", "kind": "kernel", "stream": 7},
            (DEVICE, "Hardware", "", "Stream 7", "COMPUTE", -1),
        ),
        *(
            (
                {"name": name, "kind": kind, "stream": 9},
                (COMM, "Communication", "", "Stream 9", "COMM", -1),
            )
            for name in ("all_reduce", "MPI_Allgather")
            for kind in ("kernel", "gpu")
        ),
        ({"name": "all_reduce", "stream": 9}, (COMM, "Communication", "", "Stream 9", "COMM", -1)),
        ({"name": "Memcpy HtoD", "stream": "c"}, (DEVICE, "Hardware", "", "c", "COPY", -1)),
        ({"name": "[CUDA memset]", "stream": 1}, (DEVICE, "Hardware", "", "Stream 1", "COPY", -1)),
        ({"name": "ncclKernel_X", "stream": 9}, (COMM, "NCCL", "", "Stream 9", "COMM", -1)),
        ({"name": "hcom_allReduce", "stream": 9}, (COMM, "HCCL", "", "Stream 9", "COMM", -1)),
        ({"name": "x", "plane": 2}, (COMM, "Communication", "", "Group 2", "COMM", -1)),
        ({"name": "x", "kind": "comm"}, (COMM, "Communication", "", "Communication", "COMM", -1)),
        ({"name": "ncclSend", "thread": 4}, (HOST, "Host", "", "Thread 4", "HOST", -1)),
        ({"name": "iter_12", "thread": "main"}, (HOST, "Host", "", "main", "HOST", 12)),
        ({"name": "x", "kind": "host"}, (HOST, "Host", "", "Host", "HOST", -1)),
        ({"name": "x", "kind": "runtime"}, (Layer.RUNTIME, "Runtime", "", "Calls", "HOST", -1)),
        ({"name": "step 3"}, (STEP, *STEPS, "ITERATION", 3)),
        ({"name": "epoch 3 of 9", "kind": "step"}, (STEP, *STEPS, "ITERATION", 9)),
        ({"name": "x", "kind": "step", "step": 8}, (STEP, *STEPS, "ITERATION", 8)),
        ({"name": "forward"}, (STEP, *STEPS, "FP_BP", -1)),
        ({"name": "my bwd pass", "kind": "phase"}, (STEP, *STEPS, "FP_BP", -1)),
        ({"name": "optimizer", "kind": "phase"}, (STEP, *STEPS, "TAIL", -1)),
        ({"name": "x", "kind": "Kernel"}, (DEVICE, "Hardware", "", "No stream", "COMPUTE", -1)),
        ({"name": "x"}, (Layer.OTHER, "Other", "", "Events", "OTHER", -1)),
        ({"name": "x", "kind": "other", "thread": 1}, (HOST, "Host", "", "Thread 1", "OTHER", -1)),
        (
            {"name": "x", "title": "Me", "stream": 1},
            (DEVICE, "Me", "", "Stream 1", "UNCLASSIFIED", -1),
        ),
    ],
)
def test_kind_and_place_decide_lane_and_class(log, fields, where):
    """A kind that is said goes first; else the place and the name decide."""
    assert placed(log, **fields) == where


def test_users_words_for_communication(log):
    """Kernels of libraries nobody knows communicate if the user says so."""
    capture = log("name,ts,dur,stream\nmylib_sum,1,1,3\n").captures[0]
    build = TraceBuilder(capture)
    build.comm_words = ("mylib",)
    event_log.READER.read(capture, build)
    assert build.finish().events.op.tolist() == [OpClass.COMM]


def test_phases_of_records(log):
    """A length makes a range, a value a counter, neither a mark; ``ph`` says otherwise."""
    text = "name,ts,dur,value,ph\na,1,2,,\nb,1,,,\nc,1,,2.5,\nd,1,,3,mark\ne,1,,,range\n"
    trace = log(text).trace
    kinds = {
        trace.strings[n]: Kind(int(k))
        for n, k in zip(trace.events.name, trace.events.kind, strict=True)
    }
    assert kinds == {"a": Kind.SLICE, "b": Kind.INSTANT, "d": Kind.INSTANT, "e": Kind.SLICE}
    assert trace.counters.value.tolist() == [2.5]
    assert booked(trace.issues) == [("missing-duration", 1, ("line 6",))]


def test_several_devices_and_processes_have_lanes_of_their_own(log):
    """Equal streams of two devices are two lanes; of one device none is named."""
    one = log("name,ts,dur,stream,device\na,1,1,7,0\nb,2,1,7,0\n").trace
    two = log("name,ts,dur,stream,device\na,1,1,7,0\nb,2,1,7,1\n").trace
    both = log("name,ts,dur,thread,process\na,1,1,7,10\nb,2,1,7,11\n").trace
    assert [t.group for t in one.tracks] == [""]
    assert [t.group for t in two.tracks] == ["GPU 0", "GPU 1"]
    assert [t.group for t in both.tracks] == ["Process 10", "Process 11"]


def test_everything_else_becomes_arguments(log):
    """Fields nobody knows, ``args`` and ``bytes`` travel as they are written."""
    text = (
        '{"name":"a","ts":1,"big":12345678901234567890.10,"args":{"x":[1,{}]},"bytes":8,"no":null}'
    )
    trace = log(text).trace
    assert trace.args.raw(0) == b'{"bytes":8,"x":[1,{}],"big":12345678901234567890.10,"no":null}'


def test_graph_and_step_columns(log):
    """Graph and step numbers stand in their columns, -1 where there is none."""
    trace = log("name,ts,dur,graph,step\na,1,1,2,30\nb,2,1,,\n").trace
    assert (trace.events.graph.tolist(), trace.events.step.tolist()) == ([2, -1], [30, -1])


def test_a_rank_that_is_no_number_is_explained(tmp_path):
    """The message says how to take the number out of it."""
    path = tmp_path / "own.csv"
    path.write_text("what,at,worker\nload,1,w0\ntrain,2,w1\n")
    with pytest.raises(traceconv.TraceconvError, match=r"line 2: 'w0' is not a rank; .*worker/"):
        traceconv.merge(str(path), mapping="name=what,ts=at:us,rank=worker")


def test_work_of_a_gpu_is_classified_by_its_name(tmp_path):
    """The kind says where it is, not what it does."""
    path = tmp_path / "own.csv"
    path.write_text("name,ts,dur,kind\ngemm,1,5,gpu\nncclAllReduce,6,5,gpu\n")
    (trace,) = traceconv.open(str(path), mapping="name=name,ts=ts:us,dur=dur:us,kind=kind").traces()
    ops = dict(zip(trace.events.name.tolist(), trace.events.op.tolist(), strict=True))
    named = {trace.strings[name]: op for name, op in ops.items()}
    assert named["gemm"] == OpClass.UNCLASSIFIED and named["ncclAllReduce"] == OpClass.COMM

"""Raw event logs: own schema, mappings, presets, and what becomes of broken records."""

import json
from itertools import pairwise

import jsonschema
import numpy as np
import pytest
from conftest import ROOT

from traceconv.build import TraceBuilder
from traceconv.errors import InputError, Issues, MalformedInputError, SourceError
from traceconv.model import Kind, Layer, OpClass
from traceconv.readers import (
    _event_log_lines,
    _event_log_pairs,
    _event_log_presets,
    event_log,
    flight_recorder,
    mllog,
    nccl_inspector,
)
from traceconv.source import sources


class Log:
    """One log file, found and read."""

    def __init__(self, path, reader=event_log.READER):
        self.issues = Issues()
        source = sources([str(path)])[0]
        self.captures = reader.find(source, source.names(), self.issues)
        self.traces = [self._read(capture) for capture in self.captures]

    @staticmethod
    def _read(capture):
        build = TraceBuilder(capture)
        event_log.READER.read(capture, build)
        return build.finish()

    @property
    def trace(self):
        assert len(self.traces) == 1
        return self.traces[0]

    @property
    def ranks(self):
        return [c.rank for c in self.captures]


@pytest.fixture
def log(tmp_path):
    """Writes a text and reads it back through the reader, or through a mapping."""

    def made(text, mapping=None, name="log.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return Log(path, event_log.with_mapping(mapping) if mapping else event_log.READER)

    return made


def rows(trace):
    """Name, start and length of every row, by start."""
    events = trace.events
    names = [trace.strings[i] for i in events.name]
    return sorted(
        zip(names, events.start_ns.tolist(), events.dur_ns.tolist(), strict=True),
        key=lambda row: row[1:],
    )


def lanes(trace):
    """Layer, heading, group and name of every lane that has something on it."""
    return [(t.layer, t.heading, t.group, t.name) for t in trace.tracks]


def booked(issues):
    """Code, count and places of every issue."""
    return [(i.code, i.count, i.places) for i in issues]


# -- times ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "text", "ns"),
    [
        ("s", "1700000000.123456789", 1700000000123456789),
        ("ms", "1700000000123.456789", 1700000000123456789),
        ("us", "1736408883704643.212", 1736408883704643212),
        ("ns", "9223372036854775806", 9223372036854775806),
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
        ({"name": "gemm", "stream": 7}, (DEVICE, "Hardware", "", "Stream 7", "COMPUTE", -1)),
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
        ({"name": "x", "title": "Me", "stream": 1}, (DEVICE, "Me", "", "Stream 1", "COMPUTE", -1)),
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


# -- begins and ends --------------------------------------------------------------------------


def slowly_paired(key, time, opens):
    """What :func:`paired` does, mark by mark."""
    stacks, begins, alone = {}, {}, []
    for i in sorted(range(len(key)), key=lambda i: (key[i], time[i])):
        stack = stacks.setdefault(key[i], [])
        if opens[i]:
            stack.append(i)
            begins[i] = -1
        elif stack:
            begins[stack.pop()] = i
        else:
            alone.append(i)
    return sorted(begins.items()), sorted(alone)


def test_pairs_are_those_of_a_stack():
    """Sorting finds the same pairs as a stack per key does, with ties and strays."""
    random = np.random.default_rng(3)
    for _ in range(300):
        n = int(random.integers(1, 40))
        key, time = random.integers(0, 4, n), random.integers(0, 9, n)
        opens = random.random(n) < 0.5
        begin, end, alone = _event_log_pairs.paired(key.astype(np.int32), time, opens)
        found = list(zip(begin.tolist(), end.tolist(), strict=True)), alone.tolist()
        assert slowly_paired(key.tolist(), time.tolist(), opens.tolist()) == found


@pytest.mark.parametrize(("begin", "end"), [("begin", "end"), ("Enter", "Leave"), ("B", "E")])
def test_begin_and_end_words(log, begin, end):
    """The words of other logs for begin and end are understood."""
    text = f"name,ts,ph,thread\nx,1,{begin},1\nx,4,{end},1\n"
    assert rows(log(text).trace) == [("x", 1000, 3000)]


def test_pairs_reach_over_batches(log, monkeypatch):
    """A begin and its end may be far apart in the file."""
    from traceconv.readers import _event_log_table

    monkeypatch.setattr(_event_log_table, "BATCH_RECORDS", 2)
    middle = "".join(f"m,{i},mark\n" for i in range(2, 9))
    found = log(f"name,ts,ph\nx,1,begin\n{middle}x,9,end\n").trace
    assert rows(found)[0] == ("x", 1000, 8000)


# -- ranks ------------------------------------------------------------------------------------


def test_one_file_of_many_ranks(log):
    """Every rank of a file is a capture; what names none belongs to rank 0, with a doubt."""
    found = log("name,ts,rank\na,1,2\nb,2,0\nc,3,\nd,4,first\ne,5,2\n")
    assert found.ranks == [0, 2]
    assert [[r[0] for r in rows(t)] for t in found.traces] == [["b", "c"], ["a", "e"]]
    assert booked(found.issues) == [
        ("malformed-record", 1, ("line 5: rank 'first'",)),
        ("rank-assumed", 1, ("records that name no rank",)),
    ]


def test_damage_of_a_file_of_many_ranks_is_counted_once(log):
    """A line that cannot be read could be anybody's: it is said once, not once per rank."""
    found = log('{"name":"a","ts":1,"rank":0}\nbroken\n{"name":"b","ts":1,"rank":1}\n')
    assert [i.code for i in found.issues] == ["malformed-record"]
    assert [len(t.issues) for t in found.traces] == [0, 0]


@pytest.mark.parametrize(
    ("text", "name", "rank"),
    [
        ('{"rawlog":1,"rank":5}\n{"name":"a","ts":1}\n', "x.jsonl", 5),
        ("# rank = 6\nname,ts\na,1\n", "x.csv", 6),
        ("name,ts\na,1\n", "rank7.csv", 7),
        ("name,ts\na,1\n", "run_20240131.csv", None),
    ],
)
def test_rank_of_a_whole_log(log, text, name, rank):
    """The head of a log names its rank, or the word rank in its path; a mere number does not."""
    assert log(text, name=name).ranks == [rank]


def test_rank_by_mapping(log):
    """A mapping cuts the rank out of another column, or says it."""
    text = "n,t,node\na,1,worker-3/gpu\nb,2,worker-4/gpu\n"
    assert log(text, r"name=n,ts=t,rank=node/worker-(\d+)/").ranks == [3, 4]
    assert log(text, "name=n,ts=t,rank='9'").ranks == [9]


def test_too_many_ranks_are_a_mistake(log, monkeypatch):
    """A column of stamps taken for ranks is refused before it makes a million captures."""
    monkeypatch.setattr(event_log, "MAX_RANKS", 3)
    with pytest.raises(MalformedInputError, match="more than 3 ranks"):
        log("name,ts,rank\n" + "".join(f"a,1,{i}\n" for i in range(9)))


# -- mappings ---------------------------------------------------------------------------------


def test_mapping_of_a_table(log):
    """Columns, units, constants, parts of columns, and arguments under other names."""
    text = "what,from,to,where,who,more\nk1,1.5,2.25,GPU NAME (3),stream 4,x\n"
    mapping = (
        r"name=what,ts=from:ms,end=to:ms,device=where/\((\d+)\)/,stream=who/(\d+)/,"
        "kind='compute',args.note=more,ignore=nothing"
    )
    trace = log(text, mapping).trace
    assert rows(trace) == [("k1", 1500000, 750000)]
    assert trace.args[0] == {"note": "x"}
    assert lanes(trace) == [(Layer.DEVICE, "Hardware", "", "Stream 4")]


def test_mapping_of_json_lines(log):
    """Keys of JSON lines are mapped as columns are, those that come up late too."""
    text = '{"op":"a","t":1}\n{"op":"b","t":2,"len":3,"q":5}\n{"op":"c","t":9,"len":null}\n'
    trace = log(text, "name=op,ts=t:ns,dur?=len:ns,stream?=q").trace
    assert rows(trace) == [("a", 1, 0), ("b", 2, 3), ("c", 9, 0)]


def test_mapping_from_a_file(log, tmp_path):
    """A map file says the same, with objects where a text would be ambiguous."""
    file = tmp_path / "map.json"
    file.write_text(
        json.dumps(
            {
                "name": {"column": "a,b=c"},
                "ts": "t:ns",
                "stream?": {"column": "x/y", "regex": r"(\d+)"},
                "kind": {"constant": "compute"},
                "ignore": ["z"],
            }
        )
    )
    trace = log('"a,b=c",t,x/y,z\nk,5,s6,7\n', str(file)).trace
    assert (rows(trace), lanes(trace)[0][3], len(trace.args)) == ([("k", 5, 0)], "Stream 6", 0)


@pytest.mark.parametrize("name", list(_event_log_presets.PRESETS))
def test_map_file_can_say_every_preset(tmp_path, name):
    """What a preset does, a user's file could."""
    preset = _event_log_presets.PRESETS[name]
    said = {
        f.target + "?" * f.optional: {"constant": f.constant}
        if f.constant is not None
        else {"column": f.column, "unit": f.unit, "regex": f.regex and f.regex.pattern}
        for f in preset.fields
    }
    file = tmp_path / "map.json"
    file.write_text(json.dumps({**said, **preset.settings, "ignore": preset.ignored}))
    found = _event_log_presets.mapping_of(str(file))
    assert (found.fields, found.settings, found.ignored) == (
        preset.fields,
        preset.settings,
        preset.ignored,
    )


def test_preset_with_changes(log):
    """What follows a preset goes before what it says."""
    text = "Name,Event Type,Timestamp (ns),streamId\nk,Enter,1,5\nk,Leave,4,5\n"
    found = log(text, "enter-leave,rank='3',title='Mine'")
    assert (found.ranks, lanes(found.trace)) == ([3], [(Layer.DEVICE, "Mine", "", "Stream 5")])


def test_file_can_build_on_a_preset(tmp_path):
    """``preset`` in a map file names what it changes."""
    file = tmp_path / "map.json"
    file.write_text('{"preset": "nsys-gpu", "rank": "\'2\'"}')
    fields = {f.target: f for f in _event_log_presets.mapping_of(str(file)).fields}
    assert (fields["rank"].constant, fields["stream"].column) == ("2", "Strm")


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ("name=n", "says nothing of ts"),
        ("name=n,ts=t,color=c", "no field 'color'; there are: name, ts"),
        ("name=n,ts=t:ns,stream=s:ms", "only ts, dur and end have one"),
        ("name=n/([/,ts=t", "not a regular expression"),
        (r"name=n/\d+/,ts=t", "needs one group"),
        ("name=n,ts=t,unit=minutes", "'minutes' is none of s, ms, us, ns"),
        ("nsys", "neither a preset"),
        ("chrome-jsonl", "need no mapping"),
    ],
)
def test_mappings_that_cannot_be_understood(mapping, message):
    """The message says what is wrong and what there is."""
    with pytest.raises(InputError) as caught:
        event_log.with_mapping(mapping)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not an object"),
        ('{"name": 3, "ts": "t"}', "neither a column"),
        ('{"name": {"regex": "(x)"}, "ts": "t"}', "names no column"),
        ('{"preset": "nope"}', "preset one of nsys-gpu"),
    ],
)
def test_map_files_that_cannot_be_understood(tmp_path, content, message):
    """The same for files."""
    file = tmp_path / "map.json"
    file.write_text(content)
    with pytest.raises(InputError, match=r"map\.json") as caught:
        event_log.with_mapping(str(file))
    assert message in str(caught.value)


def test_mapping_leaves_other_files_to_other_readers(log):
    """A lone file that is no table, or one that is known, is not the mapping's to refuse."""
    for text in ('{"traceEvents":[]}', "some text\n", "\x00binary", "name,ts\na,1\n"):
        assert log(text, "name=Op,ts=When").captures == []


def test_map_file_that_is_missing(tmp_path):
    """A file that is not there is said to be missing."""
    with pytest.raises(SourceError, match="cannot read"):
        event_log.with_mapping(str(tmp_path / "none.json"))


def test_mapping_that_does_not_fit_lists_the_columns(log):
    """Of a lone file the message says which column is missing and which there are."""
    with pytest.raises(MalformedInputError, match="no column Nmae; there are: Name, Start, Stop"):
        log("Name,Start,Stop\na,1,2\n", "name=Nmae,ts=Start,end=Stop")


# -- recognising ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "row", "layer"),
    [
        ("Start (ns),Duration (ns),CorrId,Device,Ctx,Strm,Name", "1,2,3,G (0),1,7,k", Layer.DEVICE),
        ("Start (us),Duration (us),Name,Result,CorrID,PID,TID", "1,2,c,0,3,4,5", Layer.RUNTIME),
        ("Start (ns),End (ns),Duration (ns),Name,PID,TID,RangeId", "1,3,2,:n,4,5,1", Layer.HOST),
        ("Start,Duration,Device,Context,Stream,Name\nms,us,,,,", "1,2,G (0),1,7,k", Layer.DEVICE),
        ("Name,Event Type,Timestamp (ns),Thread", "x,Instant,1,2", Layer.HOST),
    ],
)  # fmt: skip
def test_known_tables_are_seen_by_their_header(log, header, row, layer):
    """Tables of other profilers need no mapping."""
    found = log(f"==1== banner\nNOTICE: text\n\n{header}\n{row}\n", name="unknown")
    assert [t.layer for t in found.trace.tracks] == [layer]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# unit=us\n",
        "just text\nof many lines\n",
        "a,b,c\n1,2,3\n",
        "Time (%),Total Time (ns),Instances,Name\n1,2,3,k\n",
        "Start,Duration,Device,Context,Stream,Name\n1,2,G,1,7,k\n",
        '{"traceEvents":[{"name":"a","ph":"X","ts":1,"dur":1}]}',
        '{"name":"a","ph":"X","ts":1,"dur":1}\n',
        '{\n"name": "a"\n}',
        "{broken\n",
        "\x00\x01name,ts\n",
        "[]",
    ],
)
def test_what_is_no_log_is_left_to_others(log, text):
    """Tables of sums, trace events, other text and binary data are not claimed."""
    assert log(text).captures == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"rawlog":1,"unit":"min"}\n', "unit 'min' is none of"),
        ('{"rawlog":2}\n', "version 2"),
        ("# clock=sun\nname,ts\n", "clock 'sun'"),
        ("# rank=a\nname,ts\n", "rank 'a'"),
    ],
)
def test_heads_that_cannot_be(log, text, message):
    """A log that says something impossible of itself is refused, not guessed at."""
    with pytest.raises(MalformedInputError) as caught:
        log(text)
    assert message in str(caught.value)


def test_tables_of_one_report_are_one_capture(tmp_path):
    """What nsys stats makes of one report has one clock and one rank; two reports have two."""
    gpu = "Start (ns),Duration (ns),Strm,Name\n1,2,7,k\n"
    api = "Start (ns),Duration (ns),Name,CorrID,Pid,Tid\n0,1,c,3,4,5\n"
    for name, text in (("a_rank0_cuda_gpu_trace", gpu), ("a_rank0_cuda_api_trace", api),
                       ("a_rank1_cuda_gpu_trace", gpu)):  # fmt: skip
        (tmp_path / f"{name}.csv").write_text(text)
    found = Log(tmp_path)
    assert [(c.rank, len(c.files)) for c in found.captures] == [(0, 2), (1, 1)]
    assert [len(t.events) for t in found.traces] == [2, 1]


# -- accounts ---------------------------------------------------------------------------------


def test_rejected_records_are_booked_by_what_they_were(log):
    """What was lost of every kind is in the ledger, so that nothing goes missing in silence."""
    text = "name,ts,dur,ph,value\na,1,1,,\nb,x,1,,\nc,x,,,\nd,1,,counter,y\ne,1,,end,\n"
    assert log(text).trace.ledger == {
        ("read", "slice"): 2,
        ("lost", "slice"): -1,
        ("read", "instant"): 1,
        ("lost", "instant"): -1,
        ("read", "counter"): 1,
        ("lost", "counter"): -1,
    }


def test_extremes_of_time_do_not_wrap(log):
    """Lengths beyond int64 are refused, not wrapped around."""
    low, high = -(2**63 - 1), 2**63 - 1
    text = (
        f"# unit=ns\nname,ts,end,ph\na,{high},{low},\nb,{low},{high},\nc,5,6,\n"
        f"d,{low},,begin\nd,{high},,end\n"
    )
    found = log(text).trace
    assert rows(found) == [("c", 5, 1)]
    assert found.ledger["lost", "slice"] == -3


def test_schema_says_what_the_reader_does():
    """Sound lines of the golden logs are valid by the JSON schema, rejected ones are not."""
    schema = json.loads((ROOT / "schemas/json/raw_event_log.schema.json").read_text())
    valid = jsonschema.Draft202012Validator(schema).is_valid
    for case in ("schema_jsonl", "begin_end"):
        for file in (ROOT / "golden/event_log" / case / "input").iterdir():
            assert [ln for ln in file.read_text().splitlines() if not valid(json.loads(ln))] == []
    for wrong in ({"ts": 1}, {"name": "a", "ts": 1, "dur": 1, "end": 2}, {"rawlog": 2}):
        assert not valid(wrong)


# -- the small ones ---------------------------------------------------------------------------


def found_by(reader, path):
    source = sources([str(path)])[0]
    issues = Issues()
    return reader.find(source, source.names(), issues), issues


def test_pickled_dump_is_refused_unless_json_lies_beside_it(tmp_path):
    """A pickle is never loaded; where its JSON form is there, that one is read."""
    (tmp_path / "nccl_trace_rank_0").write_bytes(b"\x80\x04\x95}\x94\x8c\x09pg_config\x94.")
    with pytest.raises(MalformedInputError, match="Re-dump as JSON"):
        found_by(flight_recorder.READER, tmp_path)
    (tmp_path / "nccl_trace_rank_0.json").write_text(
        '{"entries":[{"profiling_name":"nccl:all_reduce","time_created_ns":5}]}'
    )
    captures, _ = found_by(flight_recorder.READER, tmp_path)
    assert [(c.files, c.rank) for c in captures] == [(("nccl_trace_rank_0.json",), 0)]


def test_other_json_is_no_flight_recorder_dump(tmp_path):
    """A trace that speaks of process groups is left to its own reader."""
    (tmp_path / "x.json").write_text('{"traceEvents":[],"pg_config":{},"pg_status":{}}')
    assert found_by(flight_recorder.READER, tmp_path)[0] == []


def test_two_processes_in_one_inspector_log(tmp_path):
    """Logs that were put together are taken apart by process."""
    lines = [
        {
            "header": {"id": "0x1", "rank": rank, "n_ranks": 2},
            "metadata": {
                "dump_timestamp_us": 17 * 10**14 + rank,
                "hostname": "h",
                "pid": 100 + rank,
            },
            "coll_perf": {"coll": "AllReduce", "coll_exec_time_us": 5},
        }
        for rank in (0, 1)
    ]
    (tmp_path / "all.log").write_text("broken\n".join(json.dumps(line) + "\n" for line in lines))
    captures, issues = found_by(nccl_inspector.READER, tmp_path)
    builds = [TraceBuilder(capture) for capture in captures]
    for build in builds:
        nccl_inspector.READER.read(build.capture, build)
    assert [(c.rank, c.world_size, c.pid) for c in captures] == [(0, 2, 100), (1, 2, 101)]
    assert [len(build.finish().events) for build in builds] == [1, 1]
    assert booked(issues)[0][:2] == ("malformed-record", 1)


@pytest.mark.parametrize(
    ("before", "rank"),
    [("", None), (" 3: ", 3), ("[4] ", 4), ("job | [5]: ", 5), ("12:30:05 INFO ", None)],
)
def test_task_in_front_of_a_line(tmp_path, before, rank):
    """The task a launcher puts in front is the rank; a time of day is not."""
    line = '{"time_ms": 5, "event_type": "POINT_IN_TIME", "key": "seed", "value": 1}'
    (tmp_path / "out.txt").write_text(f"{before}:::MLLOG {line}\n")
    captures, _ = found_by(mllog.READER, tmp_path)
    assert [c.rank for c in captures] == [rank]


def test_readers_of_logs_are_asked_one_after_the_other():
    """Narrow formats first: each has an order of its own, before the reader of any trace event."""
    readers = (nccl_inspector.READER, flight_recorder.READER, mllog.READER, event_log.READER)
    assert all(a.order < b.order < 900 for a, b in pairwise(readers))
    assert event_log.with_mapping("nsys-gpu").order < 100

"""Event logs with columns of their own: mappings, presets, and recognising what needs none."""

import json
from functools import partial

import pytest
from event_logs import Log, lanes, rows, written

from traceconv.core.errors import MalformedInputError, OptionError, SourceError
from traceconv.core.model import Layer
from traceconv.readers.event_log import find as _event_log_presets
from traceconv.readers.event_log import reader as event_log


@pytest.fixture
def log(tmp_path):
    """Writes a text and reads it back, through a mapping if one is given."""
    return partial(written, tmp_path)


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
        ("name=n", "no ts"),
        ("name=n,ts=t,color=c", "no field 'color'; there are: name, ts"),
        ("name=n,ts=t:ns,stream=s:ms", "only ts, dur and end have one"),
        ("name=n/([/,ts=t", "not a regular expression"),
        (r"name=n/\d+/,ts=t", "needs one group"),
        ("name=n,ts=t,unit=minutes", "'minutes': must be one of s, ms, us, ns"),
        ("nsys", "neither a preset"),
        ("chrome-jsonl", "need no mapping"),
    ],
)
def test_mappings_that_cannot_be_understood(mapping, message):
    """The message says what is wrong and what there is."""
    with pytest.raises(OptionError) as caught:
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
    with pytest.raises(OptionError, match=r"map\.json") as caught:
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
        ('{"rawlog":1,"unit":"min"}\n', "unit 'min': must be one of"),
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

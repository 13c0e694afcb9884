"""Logs that nobody made for us: times of ISO 8601, lines of text, the mapping that is proposed."""

import json
import logging
import shlex
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from event_logs import rows, written

import traceconv
from traceconv.cli import run
from traceconv.core.errors import MalformedInputError, OptionError
from traceconv.readers.event_log.proposal import proposed
from traceconv.readers.shared.numbers import ISO, times


@pytest.fixture
def log(tmp_path):
    """Writes a text and reads it back, through a mapping if one is given."""
    return partial(written, tmp_path)


# -- times ------------------------------------------------------------------------------------

NOON = 1714564800 * 10**9  # 2024-05-01T12:00:00Z


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2024-05-01T12:00:00Z", NOON),
        ("2024-05-01 12:00:00,250", NOON + 250_000_000),
        ("2024-05-01t14:30:00.000000001+02:30", NOON + 1),
        ("2024-05-01T04:00:00.5-0800", NOON + 500_000_000),
        ("2024-05-01 13:00:00 +01", NOON),
        ("2024-05-01 12:00:00 UTC", NOON),
        ("2024-05-01T12:00:00.0000000005Z", NOON + 1),
        ("2024-05-01T12:00:00.9999999999Z", NOON + 10**9),
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.75Z", -250_000_000),
        ("2016-12-31T23:59:60Z", 1483228800 * 10**9),
    ],
)
def test_times_are_exact(text, ns):
    """To the nanosecond, in any zone."""
    found = times([text], ISO)
    assert (found.ns.tolist(), found.bad.tolist()) == ([ns], [False])


def test_times_are_those_of_the_standard_library():
    """Whatever the zone; one stamp in four has none, and is counted."""
    texts, wanted = [], []
    for i in range(400):
        at = datetime(1990, 1, 1, tzinfo=UTC) + timedelta(days=37 * i, seconds=86_399 - i)
        zone = ["", "Z", "+05:45", "-1130"][i % 4]
        shift = timedelta(minutes=[0, 0, 345, -690][i % 4])
        texts.append(f"{at + shift:%Y-%m-%dT%H:%M:%S}.{i:03d}{zone}")
        wanted.append(int(at.timestamp()) * 10**9 + i * 10**6)
    found = times(texts, ISO)
    assert found.ns.tolist() == wanted
    assert found.zoneless == 100


@pytest.mark.parametrize(
    "text",
    ["2024-13-01T00:00:00", "2023-02-29 00:00:00", "2024-05-01T24:00:00", "2024-05-01T12:60:00Z",
     "2024-05-01", "12:00:00", "0000-01-01T00:00:00", "1600-01-01T00:00:00Z",
     "2999-01-01T00:00:00Z", "2024-05-01T12:00:00+24:00", "٢٠٢٤-05-01T12:00:00Z", "x"],
)  # fmt: skip
def test_what_is_no_time_is_bad(text):
    """No such day, hour or zone, beyond int64, or not written so."""
    assert times([text], ISO).bad.tolist() == [True]


def test_own_schema_with_such_times(log):
    """They need no mapping; ends, too. In no zone they are taken as UTC, which is counted."""
    text = (
        '{"name":"a","ts":"2024-05-01T12:00:00Z","end":"2024-05-01T14:00:00.5+02:00"}\n'
        '{"name":"b","ts":"2024-05-01T12:00:01","dur":5}\n{"name":"c","ts":"soon"}\n'
    )
    found = log(text)
    assert rows(found.trace) == [("a", NOON, 500_000_000), ("b", NOON + 10**9, 5000)]
    codes = {issue.code: issue.count for issue in found.trace.issues}
    assert codes == {"clock-assumed": 1, "bad-time": 1}
    assert rows(log("name,ts\nx,2024-05-01 12:00:00Z\n").trace) == [("x", NOON, 0)]


# -- lines of text ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        "%(asctime)s %(levelname)s %(message)s",
        "%(asctime)s - %(name)s - %(levelname)-8s - %(message)s",
        "[%(asctime)s] [%(processName)s %(process)d] (%(filename)s:%(lineno)d) %(message)s",
        "%(created)f|%(threadName)s|%(message)s",
        "%(levelname)s:%(name)s:%(message)s @ %(asctime)s",
        "100%% %(asctime)s {x} %(message)s",
    ],
)
def test_what_logging_writes_is_read_by_its_format(tmp_path, form):
    """By the module itself: name, time and level of every record; tracebacks are counted."""
    path = tmp_path / "rank0.log"
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter(form))
    logger = logging.Logger("train.loop")
    logger.addHandler(handler)
    messages = ["epoch 1 begins", "loss: 0.5, lr=1e-3", "done (%)"]
    wanted = []
    handler.addFilter(lambda record: wanted.append(record) or True)
    for message in messages:
        logger.warning(message)
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("failed")
    handler.close()
    found = traceconv.open(path, mapping=f"line='{form}'")
    (trace,) = found.traces()
    assert [name for name, _, _ in rows(trace)] == [*messages, "failed"]
    shown = 10**6 if "asctime" in form else 1000
    for (_, ts, _), record in zip(rows(trace), wanted, strict=True):
        offset = 0
        if "asctime" in form:  # local time, without its zone
            offset = datetime.fromtimestamp(record.created).astimezone().utcoffset().seconds * 10**9
        assert abs(ts - offset - record.created * 10**9) <= shown
    if "levelname" in form:
        assert trace.args[0]["level"] == "WARNING"
    codes = {issue.code: issue.count for issue in trace.issues}
    lines = len(path.read_text().splitlines())
    assert codes["line-unmatched"] == lines - len(wanted)


def test_milliseconds_behind_the_time(log):
    """They are part of it."""
    form = "line='%(asctime)s.%(msecs)03d %(message)s'"
    assert rows(log("2024-05-01 12:00:00.007 x\n", form).trace) == [("x", NOON + 7_000_000, 0)]


def test_a_pattern_names_its_columns(log):
    """Groups that are called like fields are these; others are arguments, or mapped."""
    text = "r3 2024-05-01T12:00:00Z took 2.5 ms: load data/x\nnoise\nr4 2024-05-01T12:00:00Z -\n"
    pattern = (
        r"line=/^r(?P<rank>\d+) (?P<ts>\S+) took (?P<took>[\d.]+) ms: (?P<name>\w+) "
        r"data\/(?P<file>\w+)/,"
        "dur=took:ms,args.what=file"
    )
    found = log(text, pattern)
    trace = found.trace
    assert rows(trace) == [("load", NOON, 2_500_000)]
    assert (trace.rank, trace.args[0]) == (3, {"what": "x"})
    assert {issue.code: issue.count for issue in found.issues} == {"line-unmatched": 2}


@pytest.mark.parametrize(
    ("mapping", "why"),
    [
        ("line=/(?P<ts>.*)/", "no name"),
        ("line=/no groups/", "named groups"),
        ("line=/(?P<ts>(/", "not a regular expression"),
        ("line='%(nothing)s'", "no name and no ts"),
        ("line=/(?P<name>.*)/,ts=when", "its pattern has no group 'when'"),
    ],
)
def test_patterns_that_are_none(log, mapping, why):
    """The message says what is missing."""
    with pytest.raises(OptionError, match=why):
        log("2024-05-01T12:00:00Z x\n", mapping)


def test_a_pattern_that_matches_nothing(log):
    """The first line is shown, to compare with."""
    with pytest.raises(
        MalformedInputError, match=r"matches none of the first lines.*'hello there'"
    ):
        log("hello there\n", "line='%(asctime)s %(message)s'")


# -- proposals --------------------------------------------------------------------------------

ISO_ROWS = "".join(f"2024-05-01T12:00:0{i}.5Z;{i};job {i}\n" for i in range(5))
UNKNOWN = {
    "units.csv": ("Operation,Begin (ms),Took (ms),Worker Rank,Note\ngemm,1.5,2.25,0,x\n"
                  "copy,4.5,0.25,1,\n", [("gemm", 1_500_000, 2_250_000)]),
    "ends.csv": ("func;start_us;end_us;tid\nf;10;15;3\ng;20;26;4\n",
                 [("f", 10_000, 5_000), ("g", 20_000, 6_000)]),
    "tabs.tsv": (ISO_ROWS.join(["when;number;what\n", ""]).replace(";", "\t"),
                 [("job 0", NOON + 500_000_000, 0)]),
    "epoch.csv": ("event,time,duration_ns\na,1714564800.5,7\nb,1714564801,8\n",
                  [("a", NOON + 500_000_000, 7)]),
    "lines.jsonl": ('{"timestamp":"2024-05-01T12:00:00Z","msg":"load","elapsed_ms":12.5,"pid":77}\n'
                    '{"timestamp":"2024-05-01T12:00:01Z","msg":"step","elapsed_ms":1,"pid":77}\n',
                    [("load", NOON, 12_500_000)]),
    "millis.jsonl": ('{"t":1714564800000,"label":"x","deep":{"a":1}}\n'
                     '{"t":1714564800005,"label":"y"}\n', [("x", NOON, 0)]),
    "nameless.csv": ("time_s,loss\n1.5,0.25\n2.5,0.125\n", [("event", 1_500_000_000, 0)]),
    "plain.log": ("2024-05-01 12:00:00,250 - trainer - epoch 1\nTraceback\n"
                  "2024-05-01 12:00:01,250 - trainer - epoch 2\n",
                  [("trainer - epoch 1", NOON + 250_000_000, 0)]),
    "levels.log": ("[rank0]: 2024-05-01T12:00:00Z INFO begin\n[rank0]: 2024-05-01T12:00:01Z "
                   "WARNING it's \"slow\"\n", [("begin", NOON, 0)]),
    "quotes $(x).csv": ("name,when\n$(touch hacked),5\n`x`,6\n", None),
    "hostile.csv": ("na'me,ti`me\nx,5\ny,6\n", None),
    "sum.csv": ("alpha,beta\n1,2\n", None),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_the_mapping_that_is_printed_works(tmp_path, name, capsys, monkeypatch):
    """As it stands in the message, in a shell's words; the columns are in it, too."""
    monkeypatch.chdir(tmp_path)
    text, wanted = UNKNOWN[name]
    (tmp_path / name).write_text(text)
    assert run(["convert", name, "-o", "x.json"]) == 3
    message = capsys.readouterr().err
    if not name.endswith(".log"):
        header = text.partition("\n")[0]
        columns = json.loads(header) if header[0] == "{" else header.replace("\t", ";").split(",")
        for column in columns if len(columns) > 1 else header.replace("\t", ";").split(";"):
            assert column in message
    if wanted is None:
        assert "--map name=COLUMN,ts=COLUMN:us" in message
        return
    (line,) = (one for one in message.splitlines() if "--map" in one)
    words = shlex.split(line.partition("; ")[0])
    mapping = words[words.index("--map") + 1]
    assert run(["convert", name, "-o", "x.json", "--map", mapping]) == 0
    found = [row for trace in traceconv.open(name, mapping=mapping).traces() for row in rows(trace)]
    assert found[: len(wanted)] == wanted


def test_a_unit_that_nothing_says_is_called_a_guess(tmp_path, capsys):
    """It is not made up in silence."""
    (tmp_path / "a.csv").write_text("name,when_started\na,5\nb,6\n")
    assert run(["inspect", str(tmp_path / "a.csv")]) == 3
    assert "nothing says the unit of when_started, :us is a guess" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "units"),
    [("a,0.0001,0.0072\nb,0.5,0.01\n", "ts=start:s,end=end:s"),
     ("a,1.25,2.0000501\nb,3,4\n", "ts=start:us,end=end:us"),
     ("a,1.0000001,2\nb,3,4\n", "ts=start:s,end=end:s"),
     ("a,1.0001,2\nb,3,4\n", "ts=start:ms,end=end:ms"),
     ("a,1.001,2\nb,3,4\n", "ts=start:us,end=end:us")],
)  # fmt: skip
def test_a_guessed_unit_leaves_nothing_below_a_nanosecond(rows, units):
    """Digits behind the point decide where nothing else does, and times below 1 are seconds."""
    found = proposed(f"name,start,end\n{rows}".encode())
    assert units in found.mapping and "is a guess" in found.assumed


@pytest.mark.parametrize(
    "head",
    [b"", b"hello\nthere\n", b"\0\1a,b\n1,2\n", b'{"a":1}\n', b"1,2\n3,4\n", b"a,,b\n1,2,3\n",
     b"a,b\n", b"[\n1\n]\n"],
)  # fmt: skip
def test_what_is_no_log_of_events(head):
    """Nothing is said of it."""
    assert proposed(head) is None


@pytest.mark.parametrize(
    "text",
    ["API Name,Time(us),Count,Avg(us)\na,5,2,2.5\nb,7,1,7\n",
     "kernel_type,total_time,percent\nMatMul,1.5,60\nAdd,1.0,40\n",
     "computation_time,stage_time\n1.5,2\n1.0,3\n"],
)  # fmt: skip
def test_tables_of_sums_have_no_times(text):
    """A total is no moment: their columns are listed, and nothing is proposed."""
    found = proposed(text.encode())
    assert (found.mapping, len(found.columns)) == ("", text.partition("\n")[0].count(",") + 1)


def test_large_numbers_are_no_unix_times():
    """Nanoseconds since a machine was started are not microseconds since 1970."""
    text = "Kernel,Start_Timestamp\na,1234567000600000\nb,1234567000700000\n"
    found = proposed(text.encode())
    assert found.mapping == "name=Kernel,ts=Start_Timestamp:us"
    assert ":us is a guess" in found.assumed
    found = proposed(text.replace("1234567000", "1714564800000").encode())
    assert found.mapping == "name=Kernel,ts=Start_Timestamp:ns"
    assert "taken for Unix time in ns" in found.assumed


@pytest.mark.parametrize(
    ("heading", "wanted"),
    [
        ("name,ns_since_start,exec_time_ns,thread", "ts=ns_since_start:ns,dur=exec_time_ns:ns"),
        ("Name,BeginNs,EndNs,tid", "ts=BeginNs:ns,end=EndNs:ns"),
        ("Name,BeginNs,DurationNs,EndNs", "ts=BeginNs:ns,dur=DurationNs:ns"),
        ("op,start [ms],stop [ms],x", "ts=start [ms]:ms,end=stop [ms]:ms"),
        (
            "op,startTimeUnixNano,endTimeUnixNano,x",
            "ts=startTimeUnixNano:ns,end=endTimeUnixNano:ns",
        ),
        ("op,start_millis,elapsed_micros,x", "ts=start_millis:ms,dur=elapsed_micros:us"),
        ("op,start,dur_ns,x", "ts=start:ns,dur=dur_ns:ns"),
        ("status,start_s,end_s,x", "ts=start_s:s,end=end_s:s"),
    ],
)
def test_units_are_taken_from_names_of_columns(heading, wanted):
    """Wherever in the name they are; a column without one has that of the times beside it."""
    assert wanted in proposed(f"{heading}\na,1,2,3\nb,2,3,4\n".encode()).mapping


def test_every_column_with_a_known_heading_is_proposed():
    """In other words for rank, start, length, name and stream."""
    text = "Worker,Began (ms),Took (ms),What,Queue\n0,1,2,matmul,7\n0,4,2,all_reduce,8\n"
    wanted = "name=What,ts=Began (*),dur=Took (*),rank=Worker,stream=Queue"
    assert proposed(text.encode()).mapping == wanted


def test_device_work_of_a_log_without_places(tmp_path, capsys):
    """Merge says which columns make it, and a step marker finds ranges of such logs."""
    (tmp_path / "own.csv").write_text("rank,time,duration,name\n0,0,900,step\n0,10,100,matmul\n")
    mapping = "name=name,ts=time:us,dur=duration:us,rank=rank"
    words = ["merge", str(tmp_path / "own.csv"), "-o", str(tmp_path / "out.pftrace"), "-f", "--map"]
    assert run([*words, mapping, "--step-marker", "^step$"]) == 0
    said = capsys.readouterr().err
    assert "steps per rank: 1" in said
    assert "kind=COLUMN" in said
    assert "step-marker-unmatched" not in said
    assert run([*words, f"{mapping},stream=rank", "--step-marker", "^step (.*)"]) == 0
    assert "finds ranges of the host, not device work" in capsys.readouterr().err
    assert run([*words, f"{mapping},kind='compute'"]) == 0
    assert "kind=COLUMN" not in capsys.readouterr().err


def test_a_column_of_kinds_is_proposed():
    """Where every cell has a known word."""
    text = "op,start_us,what\na,1,compute\nb,2,comm\n"
    assert proposed(text.encode()).mapping.endswith("kind=what")
    assert "kind" not in proposed(text.replace("comm\n", "else\n").encode()).mapping


def test_decimal_commas(tmp_path):
    """Where columns are delimited by semicolons, a comma is a decimal point."""
    (tmp_path / "log.csv").write_text("event;start_s;end_s\nload;1,5;2,25\nrun;2,5;3,0\n")
    mapping = proposed((tmp_path / "log.csv").read_bytes()).mapping
    assert mapping == "name=event,ts=start_s:s,end=end_s:s"
    [trace] = traceconv.open(str(tmp_path / "log.csv"), mapping=mapping).traces("detail")
    assert {750_000_000, 500_000_000} <= set(trace.events.dur_ns.tolist())


def test_a_column_of_numbers_may_begin_with_none():
    """A few cells of another sort are no reason to give up, nor to fail."""
    rows = "".join(f"{1714564800 + i},x\n" for i in range(9))
    assert proposed(f"time,name\nsoon,x\n{rows}".encode()).mapping == "name=name,ts=time:s"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("op,start_ms,Worker\na,1,/w/worker-3/\nb,2,/w/worker-4/\n", r"rank=Worker/(\d+)/"),
        ("op,begin_ms,worker\na,1,3\nb,2,4\n", "rank=worker"),
        ("op,begin_ms,device\na,1,0\nb,2,1\n", "rank=device"),
        ("op,begin_ms,process\na,1,4021\nb,2,4022\n", ""),
        ("op,begin_ms,worker\na,1,a3-4\nb,2,a4-4\n", ""),
        ("op,begin_ms,job\na,1,worker 3\nb,2,worker 4\n", ""),
        ("2024-05-01 12:00:00 INFO rank 3: a\n2024-05-01 12:00:01 INFO rank 4: b\n", "(?P<rank>"),
        ("2024-05-01 12:00:00 rank 3: a\n2024-05-01 12:00:01 all ranks: b\n", ""),
    ],
)  # fmt: skip
def test_ranks_are_proposed_where_every_line_names_one(text, wanted):
    """A column or a word that says so, with one number; a guess would mix ranks."""
    mapping = proposed(text.encode()).mapping
    assert mapping
    assert wanted in mapping if wanted else "rank" not in mapping


def test_text_with_commas_is_not_called_a_table(tmp_path, capsys):
    """Unless its name says so."""
    for name, told in (("a.txt", False), ("a.csv", True)):
        (tmp_path / name).write_text("just, a sentence\nwith commas, in it\n")
        assert run(["inspect", str(tmp_path / name)]) == 3
        assert ("a table with unknown columns" in capsys.readouterr().err) == told


def test_a_hostile_head_takes_no_time():
    """Long words, brackets and quotes."""
    for word in (b"-", b"[.", b"a ", b'"', b",", b"2024-05-01T12:00:00,"):
        proposed((word * 65536)[:65536])
        proposed((word * 300 + b"\n") * 100)

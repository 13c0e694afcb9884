"""Tables of a trace as data frames, with words for numbers; and tables in notebooks."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import traceconv
from traceconv.core import frames
from traceconv.core.errors import MissingExtraError
from traceconv.core.model import EventTable, OpClass
from traceconv.core.side_tables import ABSENT, DataTable, SideTable
from traceconv.merging.run_report import Report

METHODS = (("to_pandas", "pandas", "pandas"), ("to_arrow", "pyarrow", "arrow"),
           ("to_polars", "polars", "polars"))  # fmt: skip


@pytest.fixture
def trace():
    """Slices on two tracks, one with arguments and a step, an instant, a counter and an arrow."""
    build = traceconv.TraceBuilder.of_rank(0)
    host = build.track("host", "Thread 1", thread=1)
    stream = build.track("device", "Stream 3", "NPU 0")
    call = build.slice(host, 10, 5, "launch", op=OpClass.HOST, step=7, args={"n": 1, "é": "ü"})
    kernel = build.slice(stream, 20, 30, "MatMul", op=OpClass.COMPUTE, graph=2)
    build.slice(stream, 60, 30, "MatMul", op=OpClass.COMPUTE)
    build.instant(host, 12, "mark")
    build.flow(call, kernel, "HostToDevice")
    build.counter(build.track("counter", "Read", "HBM", unit="MB/s"), 15, 2.5)
    return build.finish()


def _words(column):
    return column.texts().tolist() if isinstance(column, frames.Words) else column.tolist()


def _resolved(table, **options):
    return {name: _words(c) for name, c in table.worded(**options).items()}


EVENTS = {
    "layer": ["host", "host", "device", "device"],
    "group": ["", "", "NPU 0", "NPU 0"],
    "track": ["Thread 1", "Thread 1", "Stream 3", "Stream 3"],
    "kind": ["slice", "instant", "slice", "slice"],
    "op": ["host", "other", "compute", "compute"],
    "start_ns": [10, 12, 20, 60],
    "dur_ns": [5, 0, 30, 30],
    "name": ["launch", "mark", "MatMul", "MatMul"],
    "graph": [ABSENT, ABSENT, 2, ABSENT],
    "step": [7, ABSENT, ABSENT, ABSENT],
    "args": ['{"n":1,"é":"ü"}', None, None, None],
}


def test_events_have_words(trace):
    """Everything that is a number for a word is the word; what is missing is absent."""
    found = _resolved(trace.events)
    found["args"] = [text and text.replace(" ", "") for text in found["args"]]
    assert found == EVENTS


def test_arguments_as_dicts_or_not_at_all(trace):
    """A dict per row, empty where there are none."""
    assert _resolved(trace.events, args="dict")["args"] == [{"n": 1, "é": "ü"}, {}, {}, {}]
    assert "args" not in _resolved(trace.events, args="none")
    with pytest.raises(ValueError, match="it can be json, dict, none"):
        trace.events.to_pandas(args="yaml")


def test_counters_and_flows_have_words_too(trace):
    """Samples with their track and unit; arrows with the rows they connect."""
    assert _resolved(trace.counters) == {
        "layer": ["counter"], "group": ["HBM"], "track": ["Read"], "start_ns": [15],
        "value": [2.5], "unit": ["MB/s"],
    }  # fmt: skip
    assert _resolved(trace.flows) == {"src": [0], "dst": [2], "name": ["HostToDevice"]}


def test_parts_of_a_table_know_their_names(trace):
    """A selection with numpy is still of its trace; a table by itself is of none."""
    part = trace.events.take(trace.events.dur_ns == 30)
    assert _resolved(part)["name"] == ["MatMul", "MatMul"]
    kept = trace.keep("device", trace.rows_of("device"))
    assert _resolved(kept.events)["track"] == ["Stream 3", "Stream 3"]
    with pytest.raises(ValueError, match="belongs to no trace"):
        EventTable.empty().worded()


def test_a_trace_that_changes_its_tracks_gives_the_tables_its_own(trace):
    """The table of the older trace keeps the older names."""
    tracks = tuple(
        type(t)(t.layer, t.name.upper(), t.group, t.title, t.sort, t.unit) for t in trace.tracks
    )
    after = trace.evolve("renamed", tracks=tracks)
    assert _resolved(after.events)["track"][0] == "THREAD 1"
    assert _resolved(trace.events)["track"][0] == "Thread 1"
    assert after.events.start_ns is trace.events.start_ns


def test_an_empty_trace_has_empty_frames():
    """All columns, no rows."""
    trace = traceconv.TraceBuilder.of_rank(0).finish()
    assert _resolved(trace.events) == {key: [] for key in EVENTS}
    assert _resolved(trace.flows) == {"src": [], "dst": [], "name": []}


def test_words_are_kept_once():
    """Ids that share a text share a code; -1 is absent."""
    words = frames.Words.of(np.array([5, -1, 9, 5, 2]), {2: "b", 5: "a", 9: "a"}.get)
    assert (words.values, words.codes.tolist()) == (["b", "a"], [1, -1, 1, 1, 0])
    assert words.texts().tolist() == ["a", None, "a", "a", "b"]


@pytest.mark.parametrize(("method", "module", "extra"), METHODS)
def test_a_missing_library_is_named_with_its_extra(trace, monkeypatch, method, module, extra):
    """How to install it, from every kind of table."""
    monkeypatch.setitem(sys.modules, module, None)
    side = SideTable("x", "x.csv", lambda: {"a": np.arange(2)})
    tables = (trace.events, trace.counters, trace.flows, DataTable("x", {}, {}), side)
    for table in tables:
        with pytest.raises(MissingExtraError, match=rf"{module} .*pip install '\.\[{extra}\]'"):
            getattr(table, method)()


def test_what_pandas_is_given(trace, monkeypatch):
    """Categories, nullable numbers where cells may be missing, plain int64 for times."""
    fake = ModuleType("pandas")
    fake.DataFrame = dict
    fake.Categorical = SimpleNamespace(from_codes=lambda codes, values: (codes.tolist(), values))
    fake.arrays = SimpleNamespace(IntegerArray=lambda v, mask: (v.tolist(), mask.tolist()))
    monkeypatch.setitem(sys.modules, "pandas", fake)
    found = trace.events.to_pandas()
    assert list(found) == list(EVENTS)
    assert found["name"] == ([0, 2, 1, 1], ["launch", "MatMul", "mark"])
    assert found["step"] == ([7, 0, 0, 0], [False, True, True, True])
    assert found["start_ns"].dtype == np.int64


def test_pandas(trace):
    """The same with pandas, where it is installed."""
    pandas = pytest.importorskip("pandas")
    frame = trace.events.to_pandas()
    assert list(frame) == list(EVENTS)
    assert frame["name"].tolist() == EVENTS["name"]
    assert frame["name"].dtype == "category"
    assert frame["step"].isna().tolist() == [False, True, True, True]
    assert (str(frame["step"].dtype), str(frame["start_ns"].dtype)) == ("Int64", "int64")
    assert frame[frame["track"] == "Stream 3"]["dur_ns"].sum() == 60
    assert frame["args"][1] is None or pandas.isna(frame["args"][1])
    assert trace.events.to_pandas(args="dict")["args"][0] == {"n": 1, "é": "ü"}


def test_arrow(trace):
    """The same with pyarrow, where it is installed."""
    pytest.importorskip("pyarrow")
    table = trace.events.to_arrow()
    assert table.column_names == list(EVENTS)
    assert table.column("name").to_pylist() == EVENTS["name"]
    assert table.column("step").to_pylist() == [7, None, None, None]
    assert table.column("args").to_pylist()[1:] == [None] * 3
    assert trace.counters.to_arrow().column("unit").to_pylist() == ["MB/s"]


def test_polars(trace):
    """The same with polars, where it is installed."""
    pytest.importorskip("polars")
    frame = trace.events.to_polars()
    assert frame.columns == list(EVENTS)
    assert frame["name"].to_list() == EVENTS["name"]
    assert frame["step"].to_list() == [7, None, None, None]
    assert frame["args"].to_list()[1:] == [None] * 3
    assert trace.flows.to_polars()["name"].to_list() == ["HostToDevice"]


GAPS = DataTable(
    "x",
    {"Count": np.array([1, ABSENT]), "Ratio(%)": np.array([0.5, np.nan]),
     "Name": np.array(["a", ""], object)},
    {},
)  # fmt: skip


def test_gaps_in_pandas():
    """Absent cells are missing, not huge; text stays text."""
    pytest.importorskip("pandas")
    frame = GAPS.to_pandas()
    assert frame.isna().to_numpy().tolist() == [[False, False, False], [True, True, False]]
    assert frame.iloc[0].tolist() == [1, 0.5, "a"]


@pytest.mark.parametrize(("method", "module"), [m[:2] for m in METHODS[1:]])
def test_gaps_elsewhere_are_null(method, module):
    """In pyarrow and polars."""
    pytest.importorskip(module)
    frame = getattr(GAPS, method)()
    rows = frame.to_pylist() if module == "pyarrow" else frame.to_dicts()
    assert rows == [
        {"Count": 1, "Ratio(%)": 0.5, "Name": "a"}, {"Count": None, "Ratio(%)": None, "Name": ""},
    ]  # fmt: skip


# -- the profiler's own tables ---------------------------------------------------------------------


def test_times_of_a_profilers_table_are_ns_under_a_name_that_says_so():
    """Whatever unit the file has; the heading it had stays known."""
    columns = {
        "Duration(us)": np.array([5]), "start (ms)": np.array([7]), "Size(KB)": np.array([2]),
        "Name": np.array(["x"], object),
    }  # fmt: skip
    table = SideTable("op", "op.csv", lambda: columns)
    assert list(table.columns) == ["Duration(ns)", "start (ns)", "Size(KB)", "Name"]
    assert table.units == {"Duration(ns)": "ns", "start (ns)": "ns", "Size(KB)": "KB", "Name": ""}
    assert table.headings["Duration(ns)"] == "Duration(us)"
    with pytest.raises(KeyError, match=r"'Duration\(ns\)'"):
        table["Duration(us)"]


def test_headings_that_differ_in_their_unit_are_one_column():
    """Parts of a file in ms and in us; rows that have both keep both."""
    apart = {"T(ms)": np.array([1, ABSENT]), "T(us)": np.array([ABSENT, 2])}
    assert SideTable("x", "x", lambda: apart)["T(ns)"].tolist() == [1, 2]
    both = {"T(ms)": np.array([1, 3]), "T(us)": np.array([ABSENT, 2])}
    assert list(SideTable("x", "x", lambda: both).columns) == ["T(ns)", "T(ns) (2)"]


# -- notebooks -----------------------------------------------------------------------------------


HOSTILE = "<script>alert(1)</script>\u202e&\"'"


def _html(shown):
    text = shown._repr_html_()
    assert isinstance(text, str)
    assert "<script" not in text
    assert "\u202e" not in text
    return text


def test_tables_show_their_first_rows():
    """Names and values, escaped; what is absent is a dash."""
    columns = {HOSTILE: np.array([HOSTILE, ""], object), "Count": np.array([3, ABSENT])}
    text = _html(DataTable(HOSTILE, columns, {}))
    assert "&lt;script&gt;" in text
    assert "<td>3</td>" in text
    assert "<td>–</td>" in text
    long = DataTable("long", {"n": np.arange(1000)}, {})._repr_html_()
    assert long.count("<tr>") == frames.HTML_ROWS + 1
    assert "1000 rows, the first 20" in long


def test_tables_of_a_trace_show_words(trace):
    """Names, not numbers; without a trace, numbers."""
    assert "<td>MatMul</td>" in _html(trace.events)
    assert "4 rows" in _html(trace.events)
    _html(EventTable.empty())


def test_results_show_what_is_printed(root, tmp_path):
    """Statistics, reports, inspections, diagnoses, alignments and stragglers."""
    sample = str(root / "golden" / "trace_view" / "demo" / "input")
    assert "Total Time(ns)" in _html(traceconv.stats(sample, by=["type"]))
    report = traceconv.merge(sample, out=str(tmp_path / "a.json"))
    assert "wrote" in _html(report)
    assert "trace_view" in _html(traceconv.inspect(sample))
    for verb in (traceconv.diagnose, traceconv.align, traceconv.stragglers):
        assert "<pre>" in _html(verb(sample))


def test_lines_are_escaped():
    """A rank or a file may be called anything."""
    assert "&lt;script&gt;" in _html(Report(HOSTILE, (0,), HOSTILE))

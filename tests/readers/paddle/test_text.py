"""What Paddle's profiler prints: reports and timer logs as side tables."""

import pytest
from paths import ROOT

import traceconv
from traceconv.core.side_tables import ABSENT

GOLDEN = ROOT / "golden" / "paddle_text"


def _trace(path):
    (trace,) = traceconv.open(str(path)).traces()
    return trace


def _rows(side_table):
    columns = {heading: column.tolist() for heading, column in side_table.columns.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@pytest.fixture
def report():
    """The rows of the golden report, by section and name."""
    rows = _rows(_trace(GOLDEN / "report" / "input").side_tables["paddle_summary"])
    return {(row["Section"], row["Name"]): row for row in rows}


def test_five_numbers_in_a_cell_are_five_columns(report):
    """Exact from the text, in ns, whatever the section's unit."""
    row = report["Model", "ProfileStep"]
    cpu = [row[f"CPU {part}(ns)"] for part in ("Total", "Avg", "Max", "Min")]
    assert (row["Calls"], cpu) == (2, [8_250_000, 4_120_000, 4_500_000, 3_750_000])
    assert row["GPU Ratio(%)"] == 100.0
    row = report["Operator", "matmul dygraph"]
    assert (row["CPU Total(ns)"], row["GPU Total(ns)"], row["FLOPs"]) == (50_250, 20_500, 1024)


def test_a_dash_is_absent(report):
    """Not zero."""
    row = report["Model", "Others"]
    assert (row["Calls"], row["CPU Avg(ns)"], row["CPU Total(ns)"]) == (ABSENT, ABSENT, 5_250_000)


def test_rows_below_rows_have_a_level(report):
    """Two blanks are one level; cut names stay cut."""
    assert report["Operator", "matmul kern..."]["Level"] == 1
    assert report["Operator", "matmul dygraph"]["Level"] == 0


def test_a_second_table_under_one_title(report):
    """The overview's device rows have headings of their own."""
    assert report["Overview", "Operator"]["CPU Time(ns)"] == 2_500_000
    assert report["Overview", "Kernel"]["GPU Time(ns)"] == 5_750_000


def test_threads_divide_a_section(report):
    """Their name stands between rules of its own."""
    assert report["Operator", "matmul dygraph"]["Thread"] == "All threads merged"
    assert report["UserDefined", "user_range"]["Thread"] == "4021"


def test_a_timer_log_and_its_summary():
    """Costs in ns, speeds as written; a line without a reader has no reader cost."""
    side_tables = _trace(GOLDEN / "report" / "input").side_tables
    first, second = _rows(side_tables["paddle_timer_log"])
    assert (first["Reader Cost(ns)"], first["Batch Cost(ns)"]) == (9_000_000, 20_000_000)
    assert (second["Reader Cost(ns)"], second["Speed"]) == (ABSENT, 16000.125)
    rows = _rows(side_tables["paddle_timer"])
    assert [(row["Measure"], row["Avg"]) for row in rows] == [
        ("reader_cost", 0.00125), ("batch_cost", 0.004), ("ips", 16000.125),
    ]  # fmt: skip
    assert rows[0]["Reader Ratio(%)"] == 31.25


def test_a_report_has_no_events_and_says_nothing_was_lost():
    """Nothing in it has a time."""
    trace = _trace(GOLDEN / "report" / "input")
    assert (sum(trace.counts().values()), list(trace.issues)) == (0, [])


def test_a_cut_log_keeps_what_stands_before():
    """The end and the row that does not fit are told."""
    trace = _trace(GOLDEN / "cut_off" / "input")
    told = {issue.code: issue.places for issue in trace.issues}
    assert told == {"truncated": ("line 8",), "malformed-record": ("line 7",)}
    assert trace.side_tables["paddle_summary"]["Name"].tolist() == [
        "sgemm<float>",
        "another<float>",
    ]


def test_a_report_beside_a_timeline_is_not_another_rank(tmp_path):
    """It names no rank, so the timeline goes on without it."""
    timeline = ROOT / "golden" / "paddle" / "device_rows" / "input"
    for path in (*timeline.iterdir(), GOLDEN / "report" / "input" / "train.log"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert [c.reader for c in traceconv.open(str(tmp_path)).found] == ["paddle"]


def test_figures_of_a_log_without_a_summary(tmp_path):
    """Means of its lines; the ratio is that of the sums."""
    lines = [
        f"Iter {n}: reader_cost: 0.0{n} s batch_cost: 0.10 s ips: {n}.0 samples/s" for n in (1, 3)
    ]
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    rows = _rows(traceconv.stats(str(tmp_path), by=["reader"])["reader"])
    assert [(row["Measure"], row["Avg"], row["Max"]) for row in rows] == [
        ("reader_cost", pytest.approx(0.02), 0.03), ("batch_cost", 0.1, 0.1), ("ips", 2.0, 3.0),
    ]  # fmt: skip
    assert rows[0]["Reader Ratio(%)"] == pytest.approx(20.0)

"""Every folder below ``golden`` is a case: what is read of ``input`` is ``expect.txt``.

pytest --update writes the expectations anew; then read what changed.
"""

from pathlib import Path

import pytest

import traceconv

CASES = sorted(Path(__file__).parent.glob("golden/*/input"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.parent.name)
def test_case_gives_what_is_expected(case, tmp_path, request):
    """All events as text, and all issues."""
    report = traceconv.convert(case, out=tmp_path / "out.txt", reader="tictoc")
    issues = "".join(f"{one.code} x{one.count} {list(one.places)}\n" for one in report.issues)
    text = (tmp_path / "out.txt").read_text(encoding="utf-8") + "\n" + issues
    expect = case.parent / "expect.txt"
    if request.config.getoption("--update"):
        expect.write_text(text, encoding="utf-8")
    assert text == expect.read_text(encoding="utf-8")


def test_the_reader_is_found():
    """It is installed, and every file below the cases is recognised."""
    for case in CASES:
        assert [one.reader for one in traceconv.inspect(case).captures] == ["tictoc"]


def test_slices_are_written_as_a_table(tmp_path):
    """A row per slice, times from the first event; what the table cannot hold is said."""
    build = traceconv.TraceBuilder.of_rank(3)
    thread = build.track("host", "Thread 1")
    build.slice(thread, 1_000, 500, 'load "x", y')
    build.counter(build.track("counter", "Queue"), 1_200, 2.0)
    report = traceconv.write(build.finish(), tmp_path / "a.slices.csv")
    assert (tmp_path / "a.slices.csv").read_bytes() == (
        b'rank,lane,start_ns,dur_ns,name\r\n3,Thread 1,0,500,"load ""x"", y"\r\n'
    )
    assert [(one.code, one.count) for one in report.issues] == [("tictoc-left-out", 1)]


def test_a_limit_on_the_table_is_kept(tmp_path):
    """``costs`` is never less than what is written."""
    build = traceconv.TraceBuilder.of_rank(0)
    thread = build.track("host", "Thread 1")
    for number in range(500):
        build.slice(thread, 10 * number, 5, f"slice {number}")
    traceconv.write(build.finish(), tmp_path / "a.slices.csv", limit=4096)
    assert 0 < (tmp_path / "a.slices.csv").stat().st_size <= 4096


def test_an_event_that_takes_most_of_the_time_is_found(tmp_path):
    """The rule measures its share; `stats` shows the events as a table."""
    (tmp_path / "rank0.tictoc").write_text("0 10 short\n10 90 long\n")
    (found,) = traceconv.diagnose(tmp_path, rule="tictoc-long-event").findings
    assert (found.case.rank, found.case.value, found.case.where) == (0, 90.0, "long")
    table = traceconv.stats(tmp_path, by="tictoc")["tictoc"]
    assert dict(zip(table["Name"], table["Time(ns)"], strict=True)) == {"short": 10, "long": 90}

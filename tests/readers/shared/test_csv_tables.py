"""CSV tables as typed columns: what the profilers' tables are like, and what broken ones are."""

import gzip

import numpy as np
import pytest

from traceconv.core.errors import Issues, MalformedInputError, SourceError
from traceconv.core.side_tables import ABSENT, below_each_other
from traceconv.io.sources import sources
from traceconv.readers.shared import csv_tables as _side_tables
from traceconv.readers.shared.csv_tables import csv_columns, csv_parts


def read(tmp_path, *texts):
    """The columns of a table in so many parts, and its issues as (code, count, place)."""
    names = []
    for i, text in enumerate(texts):
        names.append(f"table_slice_{i}.csv")
        (tmp_path / names[-1]).write_bytes(text if isinstance(text, bytes) else text.encode())
    (source,) = sources([str(tmp_path)])
    issues = Issues()
    columns = csv_parts(source, names, issues)
    return columns, [(i.code, i.count, i.places) for i in issues]


def lists(columns):
    return {heading: column.tolist() for heading, column in columns.items()}


def test_a_column_has_the_type_of_its_cells(tmp_path):
    """Whole numbers, other numbers and text; a heading with a unit of time makes nanoseconds."""
    columns, issues = read(tmp_path, "Count,Ratio(%),Name,Avg. time (ms)\n3,1.5,a,2.5\n4,2,b,1\n")
    assert {h: c.dtype.kind for h, c in columns.items()} == {
        "Count": "i", "Ratio(%)": "f", "Name": "O", "Avg. time (ms)": "i",
    }  # fmt: skip
    assert lists(columns) == {
        "Count": [3, 4], "Ratio(%)": [1.5, 2.0], "Name": ["a", "b"],
        "Avg. time (ms)": [2_500_000, 1_000_000],
    }  # fmt: skip
    assert issues == []


def test_times_are_exact_from_the_text(tmp_path):
    """Nineteen digits pass, and what is finer than a nanosecond is rounded half up."""
    text = "Start Time(us)\n1736408883704643.212\n0.0005\n0.00049\n1e-3\n-2.5\n53.7410625\n"
    columns, _ = read(tmp_path, text)
    assert columns["Start Time(us)"].tolist() == [1736408883704643212, 1, 0, 1, -2500, 53741]


def test_marks_of_absence_are_never_zero(tmp_path):
    """Empty cells and ``N/A`` are ABSENT, NaN or empty text, by the type of the column."""
    columns, _ = read(tmp_path, "A,B,C,D(us)\n1,1.5,x,2\nN/A,,N/A,N/A\n,nan,,\n")
    assert columns["A"].tolist() == [1, ABSENT, ABSENT]
    assert np.isnan(columns["B"]).tolist() == [False, True, True]
    assert columns["C"].tolist() == ["x", "", ""]
    assert columns["D(us)"].tolist() == [2000, ABSENT, ABSENT]


def test_marks_and_ends_of_lines_of_every_system(tmp_path):
    """A byte order mark, CRLF, a tabulator behind a number and quotes around it."""
    columns, issues = read(tmp_path, b'\xef\xbb\xbfName,T(us)\r\na,"1.5\t"\r\nb,2.5\t\r\n')
    assert lists(columns) == {"Name": ["a", "b"], "T(us)": [1500, 2500]}
    assert issues == []


def test_a_cell_may_hold_lines_and_quotes(tmp_path):
    """A call stack over three lines is one cell, and quotes within quotes stay."""
    columns, _ = read(tmp_path, 'Stack,Shapes\n"a;\nb\x0b;\r\nc","""8,4"""\n')
    assert lists(columns) == {"Stack": ["a;\nb\x0b;\r\nc"], "Shapes": ['"8,4"']}


def test_repeated_headings_are_told_apart(tmp_path):
    """The second column of a name is numbered, so that none is lost."""
    columns, _ = read(tmp_path, "Reduce Start(us),X,Reduce Start(us)\n1,2,3\n")
    assert list(columns) == ["Reduce Start(us)", "X", "Reduce Start(us) (2)"]
    assert columns["Reduce Start(us) (2)"].tolist() == [3000]


def test_rows_of_another_width_are_booked(tmp_path):
    """Too short or too long is malformed, at the end of the file it is cut off; empty cells
    behind the last column do no harm."""
    columns, issues = read(tmp_path, "A,B\n1,2\n3\n4,5,6\n7,8,,\n\n9")
    assert lists(columns) == {"A": [1, 7], "B": [2, 8]}
    assert issues == [
        ("malformed-record", 2, ("line 3: 1 cells where there are 2 headings",
                                 "line 4: 3 cells where there are 2 headings")),
        ("truncated", 1, ("line 7: 1 cells where there are 2 headings",)),
    ]  # fmt: skip


def test_a_time_that_is_none_is_booked(tmp_path):
    """Its cell is absent, its row stays."""
    columns, issues = read(tmp_path, "A,T(us)\n1,soon\n2,3\n")
    assert lists(columns) == {"A": [1, 2], "T(us)": [ABSENT, 3000]}
    assert issues == [("bad-time", 1, ("column T(us)",))]


def test_a_quote_that_is_never_closed_costs_no_more_than_a_cell_may_hold(tmp_path):
    """Rows behind the limit of a cell are read again."""
    filler = "x" * 140_000
    columns, issues = read(tmp_path, f'A,B\n1,"{filler}\n2,3\n')
    assert [code for code, _, _ in issues] == ["malformed-record"]
    assert lists(columns) == {"A": [2], "B": [3]}


def test_parts_of_a_table_are_one(tmp_path):
    """Each part has its own headings; what one lacks is empty there."""
    columns, _ = read(tmp_path, "A,B\n1,x\n", "A,B\n", "B,A,C\ny,2,5\n")
    assert lists(columns) == {"A": [1, 2], "B": ["x", "y"], "C": [ABSENT, 5]}


@pytest.mark.parametrize("rows", [2, 1000])
def test_numbers_that_turn_into_text_are_text_from_the_start(tmp_path, monkeypatch, rows):
    """A column that fits no type keeps what was written, whatever batch it was met in."""
    monkeypatch.setattr(_side_tables, "_BATCH", rows)
    columns, _ = read(tmp_path, "A,B,C\n007,1,1\n1,2.5,\n2,3,\nhost,4,\n")
    assert columns["A"].tolist() == ["007", "1", "2", "host"]
    assert columns["B"].tolist() == [1.0, 2.5, 3.0, 4.0]
    assert columns["C"].tolist() == [1, ABSENT, ABSENT, ABSENT]


def test_numbers_beyond_int64_are_text(tmp_path):
    """Ids of 20 digits stay as they are written."""
    columns, _ = read(tmp_path, "A\n17148521525495523210\n1\n")
    assert columns["A"].tolist() == ["17148521525495523210", "1"]


def test_an_empty_file_has_no_columns(tmp_path):
    """And one with nothing but headings has no rows."""
    assert read(tmp_path, "") == ({}, [])
    columns, _ = read(tmp_path, "A,T(us)\n")
    assert {h: (len(c), c.dtype.kind) for h, c in columns.items()} == {
        "A": (0, "O"), "T(us)": (0, "i"),
    }  # fmt: skip


def test_bytes_that_are_no_text_are_replaced(tmp_path):
    """A cell of another encoding is kept as far as it can be."""
    columns, _ = read(tmp_path, b"A\n\xff\xfeb\n")
    assert columns["A"].tolist() == ["��b"]


def test_a_packed_table_is_read(tmp_path):
    """Found by its first bytes, like all packed files."""
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"A\n1\n"))
    (source,) = sources([str(tmp_path)])
    assert lists(csv_columns(source, "t.csv.gz", Issues())) == {"A": [1]}


def test_size_and_width_are_bounded(tmp_path, monkeypatch):
    """What is far too large for a table is refused, and the message says which file."""
    (tmp_path / "t.csv").write_text(",".join("ab") + "\n1,2\n")
    (source,) = sources([str(tmp_path)])
    monkeypatch.setattr(_side_tables, "MAX_COLUMNS", 1)
    with pytest.raises(MalformedInputError, match=r"t\.csv: line 1: 2 headings"):
        csv_columns(source, "t.csv", Issues())
    monkeypatch.setattr(_side_tables, "MAX_BYTES", 3)
    with pytest.raises(SourceError, match=r"t\.csv: too large"):
        csv_columns(source, "t.csv", Issues())


def test_tables_that_are_typed_are_put_together():
    """Whole numbers become others where they meet them, and text where they meet text."""
    whole = np.array([1, ABSENT])
    text = np.array(["x"], object)
    joined = below_each_other([{"A": whole, "B": whole}, {"A": np.array([2.5]), "B": text}])
    assert str(joined["A"].tolist()) == "[1.0, nan, 2.5]"
    assert joined["B"].tolist() == ["1", "", "x"]

"""Columns, order and rows of tables, as they are asked for."""

import numpy as np
import pytest
from paths import ROOT

import traceconv
from traceconv.analysis.tables.definition import Column, Result, Table
from traceconv.api.arrangement import Arrangement, arranged
from traceconv.cli import run
from traceconv.core.errors import OptionError
from traceconv.core.side_tables import ABSENT, DataTable
from traceconv.options.values import texts, words

SAMPLE = str(ROOT / "golden" / "trace_view" / "demo" / "input")
COLUMNS = Column.parse("Rank, Kernel:text, Time(ns), Peak(B), Share(%)")
ROWS = [
    (0, "gemm", 5_000, 1024, 10.0),
    (0, "add", ABSENT, 4096, np.nan),
    (1, "gemm", 1_000, ABSENT, 30.0),
    (1, "copy", 9_000, 0, 60.0),
    (ABSENT, "gemm", 6_000, 1024, 20.0),
]


def rows(columns=(), sort=(), filters=(), top=None):
    """Rows of the table above as they come out, as tuples."""
    given = zip(*ROWS, strict=True)
    values = [np.array(one, object if isinstance(one[0], str) else None) for one in given]
    table = Table("type", "Made", "", "", COLUMNS, dict, dict, True)
    data = {column.key: array for column, array in zip(COLUMNS, values, strict=True)}
    made = Result(table, DataTable("type", data, {}), len(ROWS))
    how = Arrangement.of(words(columns, ""), words(sort, ""), texts(filters, ""), top, [])
    found, out = arranged([made], how)
    if not found:
        return out
    assert tuple(found[0].data.columns) == tuple(c.key for c in found[0].table.columns)
    return list(zip(*(c.tolist() for c in found[0].data.columns.values()), strict=True))


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ("Kernel=gemm", [0, 2, 4]),
        ("kernel != gemm", [1, 3]),
        ("Kernel~^(add|copy)$", [1, 3]),
        ("Kernel!~m", [1, 3]),
        ("Time>=5us", [0, 3, 4]),
        ("Time<0.006ms", [0, 2]),
        ("Time!=5us", [2, 3, 4]),
        ("Peak>1K", [1]),
        ("Peak=0", [3]),
        ("Share<30%", [0, 4]),
        ("Rank=all", [4]),
        ("Rank=1", [2, 3]),
        (["Rank<=1", "Kernel=gemm", "Time(us)>1us"], [0]),
    ],
)
def test_filters_keep_rows(filters, kept):
    """Values have the units that people write; what is unknown passes none."""
    assert rows(["Kernel", "Peak"], filters=filters) == [(ROWS[n][1], ROWS[n][3]) for n in kept]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("Time", [3, 4, 0, 2, 1]),
        ("Time:asc", [2, 0, 4, 3, 1]),
        ("Kernel,Time", [1, 3, 4, 0, 2]),
        ("kernel:desc,Share:asc", [0, 4, 2, 3, 1]),
        ("Share", [3, 2, 4, 0, 1]),
        ("Rank:asc", [0, 1, 2, 3, 4]),
    ],
)
def test_rows_are_sorted(sort, order):
    """Equal ones stay as they were; unknown values, and all ranks together, are last."""
    assert rows(["Kernel", "Peak"], sort=sort) == [(ROWS[n][1], ROWS[n][3]) for n in order]


def test_top_counts_after_sorting():
    """Of a sorted table the first rows of all, else the first of every rank."""
    assert [row[1] for row in rows(sort="Time", top=2)] == ["copy", "gemm"]
    assert [row[:2] for row in rows(filters="Kernel~.", top=1)] == [
        (0, "gemm"), (1, "gemm"), (ABSENT, "gemm")
    ]  # fmt: skip


def test_columns_come_in_the_order_they_are_named():
    """Each once."""
    assert rows(["Share", "kernel", "SHARE"])[0] == (10.0, "gemm")


def test_what_leaves_nothing_is_named():
    """The table, and why."""
    assert rows(filters="Rank=9") == (("type", "no row passes the filter"),)
    assert rows(filters="Colour=9") == (("type", "it has no column 'Colour'"),)
    assert rows(["Colour"]) == (("type", "it has none of the columns"),)
    assert rows(["Rank", "Colour"]) == (("type", "it has none of the columns"),)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"sort": "Tota Time"}, "did you mean 'Total Time'?"),
        ({"columns": "Colour"}, "no column 'Colour'"),
        ({"filters": "Count"}, "compares nothing"),
        ({"filters": "Count=x"}, "'x' is not a number"),
        ({"filters": "Total Time>5"}, "not a time with its unit"),
        ({"filters": "OP Type>5"}, "is text"),
        ({"filters": "OP Type~("}, "not a regular expression"),
    ],
)
def test_what_cannot_be_meant_is_refused(monkeypatch, given, part):
    """Before anything is read."""
    monkeypatch.setattr("traceconv.api.reading.found_below", None)
    with pytest.raises(OptionError) as refused:
        traceconv.stats(SAMPLE, by="type", **given)
    assert part in str(refused.value)


def test_on_the_command_line(capsys):
    """The same, and a line for tables that are left out."""
    words = ["stats", SAMPLE, "--by", "kernel", "--format", "json", "--sort", "Max Time"]
    assert run([*words, "--filter", "Kernel~MatMul", "--filter", "Rank=0", "--top", "3"]) == 0
    out, err = capsys.readouterr()
    found = traceconv.stats(
        SAMPLE, by="kernel", sort="Max Time", filters=["Kernel~MatMul", "Rank=0"], top=3
    )
    assert f'"total_rows": {found.results[0].rows}' in out
    assert len(found["kernel"]["Kernel"]) == 3
    longest = found["kernel"]["Max Time(ns)"].tolist()
    assert longest == sorted(longest, reverse=True)
    assert "table copy is left out: it has no column 'Kernel'" in err
    assert run([*words, "--filter", "Kernel=none"]) == 3
    assert run([*words, "--filter", "Kernel"]) == 2
    assert "--filter: 'Kernel' compares nothing" in capsys.readouterr().err

"""SQLite tables as columns: decoded from the file's pages or handed out by SQLite, all the same."""

import math
import random
import shutil
import sqlite3
import zipfile
from contextlib import closing

import numpy as np
import pytest

from traceconv.core.errors import MalformedInputError, TraceconvError
from traceconv.io.sources import sources
from traceconv.readers.shared.sqlite.database import ROWID, opened

INTEGERS = (0, 1, -1, 127, -128, 300, 2**23 - 1, -(2**23), 2**31, 2**47, -(2**47), 2**62, 1 - 2**63)
KINDS = (None, 2.5, -1e300, "1736408883704643212", "12", *INTEGERS)


def made(path, statements, rows=(), page=4096):
    """A database of one table ``t`` with these rows."""
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA page_size = {page}")
        for statement in statements:
            db.execute(statement)
        if rows:
            db.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(rows[0]))})", rows)
    db.close()
    return path


def read(path, wanted, table="t", salvage=False):
    """Columns of a table, whether all came from the pages, and what was damaged."""
    (source,) = sources([str(path)])
    with opened(source, source.names()[0], salvage=salvage) as database:
        direct = database._decoded(table, wanted, database.tables.get(table, ())) is not None
        return database.columns(table, wanted), direct, database.damage


def by_rows(path, wanted, table="t"):
    """The same columns, as SQLite hands them out."""
    (source,) = sources([str(path)])
    with opened(source, source.names()[0]) as database:
        database._pages = None
        return database.columns(table, wanted)


def same(one, other):
    return [
        (name, column.dtype.str, np.nan_to_num(column, nan=-7.5).tolist())
        for name, column in one.items()
    ] == [
        (name, column.dtype.str, np.nan_to_num(column, nan=-7.5).tolist())
        for name, column in other.items()
    ]


WANTED = {"a": -1, "b": 0, "c": math.nan, "d": -5, ROWID: -1, "absent": 9}


@pytest.mark.parametrize("page", [512, 1024, 65536])
@pytest.mark.parametrize("seed", range(4))
def test_pages_say_what_sqlite_says(tmp_path, page, seed):
    """Whatever the numbers, the depth of the tree and the gaps that deleting left."""
    chance = random.Random(seed)
    rows = [
        (chance.choice(INTEGERS), chance.randrange(-(2**50), 2**50), chance.choice(KINDS), None)
        for _ in range(chance.choice((1, 40, 3000)))
    ]
    path = made(tmp_path / "x.db", ["CREATE TABLE t (a INTEGER, b, c, d)"], rows, page)
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM t WHERE abs(b) % 5 = 1")
    db.close()
    found, direct, _ = read(path, WANTED)
    assert direct
    assert same(found, by_rows(path, WANTED))


def test_number_of_the_row_stands_for_the_key(tmp_path):
    """A lone INTEGER key is stored as the number of its row."""
    path = made(
        tmp_path / "x.db",
        ["CREATE TABLE t (a INTEGER, b integer, CONSTRAINT k PRIMARY KEY (b))"],
        [(5, 70000), (6, 3)],
    )
    found, direct, _ = read(path, {"b": -1, "a": -1})
    assert direct
    assert (found["b"].tolist(), found["a"].tolist()) == ([3, 70000], [6, 5])


def test_column_added_later_is_null_in_older_rows(tmp_path):
    """Records that end early have the stand-in there."""
    path = made(tmp_path / "x.db", ["CREATE TABLE t (a INTEGER)"], [(1,)])
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE t ADD COLUMN depth INTEGER")
        db.execute("INSERT INTO t VALUES (2, 7)")
    db.close()
    found, direct, _ = read(path, {"a": -1, "depth": -1})
    assert direct
    assert found["depth"].tolist() == [-1, 7]


@pytest.mark.parametrize(
    ("statement", "row"),
    [
        ("CREATE TABLE t (a INTEGER, b) WITHOUT ROWID", (1, 2)),
        ("CREATE TABLE t (a INTEGER, b DEFAULT 3)", (1, 2)),
        ("CREATE TABLE t (a INTEGER PRIMARY KEY DESC, b)", (1, 2)),
        ("CREATE TABLE t (a INTEGER, b)", (1, " 2 ")),
        ("CREATE TABLE t (a INTEGER, b)", (1, "2.0")),
        ("CREATE TABLE t (a INTEGER, b)", (1, "2e0")),
        ("CREATE TABLE t (b, a, c)", (2, 1, "x" * 9000)),
    ],
)
def test_what_is_not_plain_is_left_to_sqlite(tmp_path, statement, row):
    """Tables of another build and numbers of another spelling read the same, row by row."""
    statement = statement.replace("a INTEGER, b) W", "a INTEGER PRIMARY KEY, b) W")
    path = tmp_path / "x.db"
    made(path, [statement, f"INSERT INTO t VALUES {row}"])
    found, direct, _ = read(path, {"a": -1, "b": -1})
    assert (found["a"].tolist(), found["b"].tolist()) == ([1], [2])
    assert not direct


def test_what_is_no_number_reads_as_the_stand_in(tmp_path):
    """Words, blobs and empty texts; the other rows of the table keep their values."""
    rows = [("soon",), (b"\x01",), ("",), (4,), ("-12",), ("9" * 30,)]
    path = made(tmp_path / "x.db", ["CREATE TABLE t (a)"], rows)
    found, direct, _ = read(path, {"a": -1})
    assert not direct
    assert found["a"].tolist() == [-1, -1, -1, 4, -12, 2**63 - 1]


def test_renamed_column_is_found_under_any_name(tmp_path):
    """The first of several names that is there."""
    path = made(tmp_path / "x.db", ["CREATE TABLE t (block_dim INTEGER)"], [(8,)])
    assert read(path, {"blockNum|block_dim": -1})[0]["blockNum"].tolist() == [8]


def test_missing_table_has_no_rows(tmp_path):
    """Its columns are there, empty."""
    path = made(tmp_path / "x.db", ["CREATE TABLE t (a)"])
    assert read(path, {"a": -1, "b": 0.5}, table="u")[0]["b"].dtype == np.float64


def test_rows_that_lie_in_the_journal_are_read(tmp_path):
    """A writer that was killed leaves its last rows in the -wal file; the input is not touched."""
    writer = sqlite3.connect(tmp_path / "live.db")
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    writer.execute("CREATE TABLE t (a INTEGER)")
    writer.execute("INSERT INTO t VALUES (41)")
    writer.commit()
    folder = tmp_path / "copy"
    folder.mkdir()
    for ending in ("", "-wal"):
        shutil.copy(tmp_path / f"live.db{ending}", folder / f"x.db{ending}")
    writer.close()
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    (source,) = sources([str(folder / "x.db")])
    with opened(source, "x.db") as database:
        assert database.columns("t", {"a": -1})["a"].tolist() == [41]
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_database_in_an_archive(tmp_path):
    """It is unpacked first."""
    path = made(tmp_path / "x.db", ["CREATE TABLE t (a INTEGER)"], [(3,)])
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.write(path, "deep/x.db")
    found, direct, _ = read(tmp_path / "x.zip", {"a": -1})
    assert (found["a"].tolist(), direct) == ([3], True)


def cut(tmp_path, sixteenths):
    """A table of 2000 rows, with the end of the file missing."""
    path = made(tmp_path / "x.db", ["CREATE TABLE t (a INTEGER, b INTEGER)"],
                [(i, 10**17 + i) for i in range(2000)])  # fmt: skip
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * sixteenths // 16])
    return path


def test_cut_database_is_an_error(tmp_path):
    """Unless asked otherwise, half a database is none."""
    with pytest.raises(MalformedInputError, match="copy its -wal file too"):
        read(cut(tmp_path, 12), {"a": -1})


def test_cut_database_gives_the_rows_before_the_cut(tmp_path):
    """Salvaged: the first rows, in order, and the damage named."""
    found, _, damage = read(cut(tmp_path, 12), {"a": -1}, salvage=True)
    rows = found["a"].tolist()
    assert 1000 < len(rows) < 2000
    assert rows == list(range(len(rows)))
    assert damage == ["end of file", "t"]


@pytest.mark.parametrize("sixteenths", range(16))
def test_no_cut_breaks_the_reader(tmp_path, sixteenths):
    """Wherever a file ends: rows, or an error of ours."""
    path = cut(tmp_path, sixteenths)
    try:
        found, _, damage = read(path, {"a": -1}, salvage=True)
    except TraceconvError:
        return
    assert damage[0] == "end of file"
    assert found["a"].tolist() == list(range(len(found["a"])))


@pytest.mark.parametrize("seed", range(30))
def test_scrambled_pages_break_nothing(tmp_path, seed):
    """Bytes turned over at random: columns of equal length, or an error of ours."""
    chance = random.Random(seed)
    path = made(tmp_path / "x.db", ["CREATE TABLE t (a INTEGER, b)"],
                [(i, str(i)) for i in range(700)], 512)  # fmt: skip
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 20))):
        data[chance.randrange(1024, len(data))] = chance.randrange(256)
    path.write_bytes(data)
    try:
        found, _, _ = read(path, {"a": -1, "b": -1}, salvage=True)
    except TraceconvError:
        return
    assert len(found["a"]) == len(found["b"])


def test_a_table_whose_name_is_no_text_is_damage(tmp_path):
    """As flipped bits in the schema leave it: the others are read."""
    path = made(tmp_path / "x.db", ["CREATE TABLE t (x)", "CREATE TABLE b (x)"], [(7,)])
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET name = x'62' WHERE name = 'b'")
    db.close()
    [source] = sources([str(path)])
    with opened(source, source.names()[0], salvage=True) as database:
        assert (list(database.tables), database.count("t")) == (["t"], 1)
        assert database.damage == ["sqlite_master, b'b'"]


def test_columns_that_are_computed_are_never_asked(tmp_path):
    """Their expressions are a stranger's: a few bytes of them may cost gigabytes."""
    path = tmp_path / "d.sqlite"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT AS (hex(zeroblob(30000000))))")
        file.execute("INSERT INTO t VALUES (1), (2)")
        file.commit()
    [source] = sources([str(path)])
    with opened(source, path.name) as database:
        assert database.tables["t"] == ("id",)
        assert database.texts("t", "id", "v") == {}
        assert database.columns("t", {"id": -1, "v": -1})["v"].tolist() == [-1, -1]

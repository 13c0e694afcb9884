"""Mutations that know a format: their results are well-formed, and have another content.

:func:`structured` finds the format by the bytes: SQLite, zip and tar archives, protobuf, and tables
of text. Blind mutations (:mod:`fuzz.mutate`) damage the frame of these formats, and seldom get past
it.
"""

from __future__ import annotations

import io
import sqlite3
import tarfile
import zipfile
from contextlib import closing, suppress
from itertools import pairwise
from random import Random

from traceconv.protobuf.message import BrokenMessage, encoded, walk

_VALUES = (None, "", "x", b"\xff\0", 0, -1, 0.5, 1e300, 2**63 - 1, -(2**63), "1e999", "9" * 40)
_TYPES = ("INTEGER", "TEXT", "BLOB", "REAL", "NUMERIC")
_NAMES = ("../out", "/abs", "a\nb", "..", "x" * 300, "\u202ereversed", "rank0/", "")
_LARGEST = 1 << 20


def structured(rng: Random, data: bytes, other: bytes) -> tuple[str, bytes] | None:
    """``data`` with its structure changed, and how; None if it has none that is known."""
    if len(data) > _LARGEST:
        return None
    if data.startswith(b"SQLite format 3\0"):
        return _sqlite(rng, data)
    if data.startswith(b"PK\x03\x04"):
        return _zip(rng, data)
    if data[257:262] == b"ustar":
        return _tar(rng, data)
    fields = _fields(data)
    if len(data) > 2 and fields and fields[-1][3] == len(data):
        return "protobuf", _message(rng, data)
    head = data[:4096].partition(b"\n")[0]
    if b"," in head and head[:1] not in b"{[<" and b"\0" not in head:
        return _table(rng, data)
    return None


def _sqlite(rng: Random, data: bytes) -> tuple[str, bytes] | None:
    act = rng.choice(
        ("value", "value", "rename", "drop", "retype", "view", "table", "rows", "generated", "wal")
    )
    if act == "wal":  # the header names a write-ahead log, which is absent
        return "sqlite-wal", data[:18] + b"\x02\x02" + data[20:]
    with closing(sqlite3.connect(":memory:")) as database, suppress(sqlite3.Error):
        database.deserialize(data)
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        tables = [name for (name,) in database.execute(query)]
        if not tables:
            return None
        table = _quoted(rng.choice(tables))
        columns = [_quoted(row[1]) for row in database.execute(f"PRAGMA table_info({table})")]
        column = rng.choice(columns)
        if act == "value":
            part = rng.choice((2, 10))
            where = "" if rng.random() < 0.3 else f"WHERE rowid % {part} = {rng.randrange(part)}"
            database.execute(f"UPDATE {table} SET {column} = ? {where}", (rng.choice(_VALUES),))
        elif act == "rename":
            database.execute(f'ALTER TABLE {table} RENAME COLUMN {column} TO "other"')
        elif act == "drop":
            database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        elif act == "retype":
            texts = ", ".join(
                f"CAST({name} AS {rng.choice(_TYPES)}) AS {name}" if name == column else name
                for name in columns
            )
            _replaced(database, table, f"CREATE TABLE {table} AS SELECT {texts} FROM was")
        elif act == "view":
            _replaced(database, table, f"CREATE VIEW {table} AS SELECT * FROM was")
        elif act == "table":
            database.execute(f"DROP TABLE {table}")
        elif act == "rows":
            columns_of = ", ".join(columns)
            _replaced(
                database, table,
                f"CREATE TABLE {table} AS SELECT {columns_of} FROM was UNION ALL "
                f"SELECT {columns_of} FROM was",
            )  # fmt: skip
        else:
            database.execute(f"ALTER TABLE {table} ADD COLUMN made AS ({column} || 'x')")
        database.commit()
        return f"sqlite-{act}", database.serialize()
    return None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _replaced(database: sqlite3.Connection, table: str, statement: str) -> None:
    database.execute(f"ALTER TABLE {table} RENAME TO was")
    database.execute(statement)


def _zip(rng: Random, data: bytes) -> tuple[str, bytes] | None:
    out = io.BytesIO()
    with suppress(zipfile.BadZipFile, NotImplementedError, OSError, RuntimeError, ValueError):
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
            members = [(info.filename, old.read(info)) for info in old.infolist()]
            for name, content in _members(rng, members):
                new.writestr(name or "empty", content)
        return "zip", out.getvalue()
    return None


def _tar(rng: Random, data: bytes) -> tuple[str, bytes] | None:
    out = io.BytesIO()
    with suppress(tarfile.TarError, OSError, ValueError):
        forms = (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
        with (
            tarfile.open(fileobj=io.BytesIO(data)) as old,
            tarfile.open(fileobj=out, mode="w", format=rng.choice(forms)) as new,
        ):
            files = [info for info in old if info.isfile()]
            members = [
                (info.name, file.read()) for info in files if (file := old.extractfile(info))
            ]
            for name, content in _members(rng, members):
                info = tarfile.TarInfo(name)
                if rng.random() < 0.1:
                    info.type = rng.choice((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE))
                    info.linkname = rng.choice((*_NAMES, *(name for name, _ in members)))
                    new.addfile(info)
                else:
                    info.size = len(content)
                    new.addfile(info, io.BytesIO(content))
        return "tar", out.getvalue()
    return None


def _members(rng: Random, members: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """Members with one of them lost, doubled, renamed, nested, moved or changed."""
    if not members:
        return members
    at = rng.randrange(len(members))
    name, content = members[at]
    act = rng.randrange(6)
    if act == 0:
        return members[:at] + members[at + 1 :]
    if act == 1:
        return [*members, (name, content)]
    if act == 2:
        return [*members[:at], (rng.choice(_NAMES), content), *members[at + 1 :]]
    if act == 3:
        return [*members[:at], (f"deep/er/{name}", content), *members[at + 1 :]]
    if act == 4:
        return members[::-1]
    inner = structured(rng, content, b"")
    changed = inner[1] if inner else content[: len(content) // 2]
    return [*members[:at], (name, changed), *members[at + 1 :]]


def _fields(data: bytes) -> list[tuple[int, int, int, int]]:
    """Number, wire type, where the value is, and where the field ends; up to the first damage."""
    fields = []
    with suppress(BrokenMessage):
        for number, wire, value, end in walk(data, 0, len(data)):
            fields.append((number, wire, end - value if wire == 2 else end, end))
    return fields


def _message(rng: Random, data: bytes, depth: int = 0) -> bytes:
    """A message with a field, at any depth, lost, doubled, moved or changed; lengths are right."""
    fields = _fields(data)
    if not fields:
        return data
    bounds = [0, *(field[3] for field in fields)]
    parts = [data[a:b] for a, b in pairwise(bounds)]
    at = rng.randrange(len(parts))
    number, wire, begin, end = fields[at]
    inner = _fields(data[begin:end]) if wire == 2 else []
    if inner and inner[-1][3] == end - begin and depth < 8 and rng.random() < 0.8:
        parts[at] = encoded(number, _message(rng, data[begin:end], depth + 1))
    else:
        act = rng.randrange(5)
        if act == 0:
            del parts[at]
        elif act == 1:
            parts.insert(at, parts[at])
        elif act == 2:
            parts.insert(rng.randrange(len(parts)), parts.pop(at))
        elif act == 3:  # the same number with another wire type
            parts[at] = encoded(number, b"other") if wire != 2 else _integer(rng, number)
        else:
            parts[at] = _integer(rng, number if wire == 0 else rng.randrange(1, 40))
    return b"".join(parts)


def _integer(rng: Random, number: int) -> bytes:
    return encoded(number, rng.choice((0, 1, 127, 2**31, 2**32, 2**63, 2**64 - 1)))


def _table(rng: Random, data: bytes) -> tuple[str, bytes]:
    """A table of text in another dialect, or with columns lost, doubled, renamed or swapped."""
    act = rng.randrange(8)
    if act == 0:
        return "csv-delimiter", data.replace(b",", rng.choice((b";", b"\t", b"|", b", ")))
    if act == 1:
        return "csv-lines", data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n")))
    if act == 2:
        return "csv-mark", b"\xef\xbb\xbf" + data
    if act == 3:
        return "csv-encoding", data.decode("utf-8", "replace").encode("utf-16")
    rows = [line.split(b",") for line in data.split(b"\n")]
    at, to = (rng.randrange(len(rows[0])) for _ in range(2))
    for i, row in enumerate(rows):
        if len(row) <= max(at, to):
            continue
        if act == 4:
            del row[at]
        elif act == 5:
            row.insert(to, row[at])
        elif act == 6:
            row[at], row[to] = row[to], row[at]
        elif i == 0 or rng.random() < 0.2:
            row[at] = rng.choice(
                (b'"a\nb"', b'"a""b"', b"", b"NaN", b"1,5", b"-1", b"1e400", b"N/A")
            )
    return "csv-columns", b"\n".join(b",".join(row) for row in rows)

"""Write a capture over and over, one copy after the other: what was recorded, as large as needed.

    python -m bench.repeated IN OUT --events 1000000

``IN`` is a file of trace events (JSON, also ``.gz``) or an Nsight Systems export (``.sqlite``).
Every copy is later by what the capture lasts; numbers that join events (arrows, launches) are made
its own, all else is as it was. So names, arguments, nesting and their order in the file are those
of a profiler, not those of a generator.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

JOINING = frozenset(
    ("correlation", "correlation_id", "connection_id", "External id", "external id", "Ev Idx")
)
"""Arguments that say which events belong together."""

GAP_US = 1000
"""Between two copies."""

FIRST_COPY = 1 << 24
"""Numbers of a copy begin so much later than those of the one before."""


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.repeated", description="Write a capture repeated.")
    parser.add_argument("source", type=Path, metavar="IN")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--events", type=int, default=1_000_000, help="at least")
    given = parser.parse_args(argv)
    write = sqlite if given.source.suffix == ".sqlite" else trace_events
    events = write(given.source, given.out, given.events)
    print(f"{given.out}: {events} events, {given.out.stat().st_size} bytes")
    return 0


def trace_events(source: Path, out: Path, events: int) -> int:
    """Repeat a file of trace events; how many there are in ``out``.

    Times keep their digits: they are added as decimals, strings as strings.
    """
    with (gzip.open if source.suffix == ".gz" else open)(source, "rb") as file:
        document = json.loads(file.read(), parse_float=Decimal)
    records = document if isinstance(document, list) else document["traceEvents"]
    stamps = [Decimal(one["ts"]) for one in records if "ts" in one]
    span = max(stamps) - min(stamps) + GAP_US
    written = 0
    with out.open("w", encoding="utf-8") as file:
        file.write("[" if isinstance(document, list) else _head(document))
        for number in count():
            file.write(",\n" if number else "")
            copy = [_text(one) for one in _copied(records, number, span * number)]
            file.write(",\n".join(copy))
            written += len(copy)
            if written >= events:
                break
        file.write("]" if isinstance(document, list) else "]}")
    return written


def _head(document: dict[str, Any]) -> str:
    others = {key: value for key, value in document.items() if key != "traceEvents"}
    inside = ", ".join(f"{json.dumps(key)}: {_text(value)}" for key, value in others.items())
    return "{" + (inside + ", " if inside else "") + '"traceEvents": ['


def _text(value: Any) -> str:
    """JSON, decimals with the digits they had."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)}: {_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return json.dumps(value)


def _copied(records: list[dict[str, Any]], number: int, later: Decimal) -> Iterator[dict[str, Any]]:
    """The events of a copy; names of threads and processes are in the first one."""
    first = FIRST_COPY * number
    for one in records:
        if number and one.get("ph") == "M":
            continue
        copy = dict(one)
        if "ts" in one:
            copy["ts"] = _later(one["ts"], later)
        if "id" in one:
            copy["id"] = one["id"] + first if isinstance(one["id"], int) else f"{one['id']}{number}"
        args = one.get("args")
        if isinstance(args, dict) and not JOINING.isdisjoint(args):
            copy["args"] = {
                key: value + first if key in JOINING and isinstance(value, int) else value
                for key, value in args.items()
            }
        yield copy


def _later(stamp: Any, by: Decimal) -> Any:
    """A stamp as what wrote it would write a later one: doubles have 17 digits at most."""
    moved = Decimal(stamp) + by
    if isinstance(stamp, str):
        return str(moved)
    return moved if len(moved.as_tuple().digits) <= 17 else Decimal(repr(float(moved)))


def sqlite(source: Path, out: Path, events: int) -> int:
    """Repeat the rows with a start and an end of a database; how many there are in ``out``."""
    shutil.copyfile(source, out)
    base = sqlite3.connect(out)
    timed = [
        (name, columns)
        for (name,) in base.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall()
        if {"start", "end"} <= set(columns := _columns(base, name))
    ]
    ranges = [
        base.execute(f'SELECT min(start), max("end"), count(*) FROM "{n}"').fetchone()
        for n, _ in timed
    ]
    ranges = [one for one in ranges if one[2]]
    span = max(one[1] or one[0] for one in ranges) - min(one[0] for one in ranges) + GAP_US * 1000
    rows: int = sum(one[2] for one in ranges)
    copies = max(1, -(-events // rows))
    with base:
        for name, columns in timed:
            base.execute(f'CREATE TEMP TABLE original AS SELECT * FROM "{name}"')
            into = ", ".join(f'"{column}"' for column in columns)
            moved = ", ".join(map(_moved, columns))
            for number in range(1, copies):
                how = {"later": span * number, "first": FIRST_COPY * number}
                base.execute(f'INSERT INTO "{name}" ({into}) SELECT {moved} FROM original', how)
            base.execute("DROP TABLE original")
    base.close()
    return rows * copies


def _columns(base: sqlite3.Connection, table: str) -> list[str]:
    """Names of the columns that are not counted by the database itself."""
    described = base.execute(f'PRAGMA table_info("{table}")').fetchall()
    return [name for _, name, kind, _, _, key in described if not (key and kind == "INTEGER")]


def _moved(column: str) -> str:
    if column in ("start", "end", "timestamp"):
        return f'"{column}" + :later'
    return f'"{column}" + :first' if column == "correlationId" else f'"{column}"'


if __name__ == "__main__":
    raise SystemExit(main())

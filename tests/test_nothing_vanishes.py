"""What no reader knows is counted by its name, or in the output: tables, columns, keys, planes."""

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from golden_cases import outcome, usual_outcome

import traceconv

NAME = "zz_unheard_of"
_SQLITE = b"SQLite format 3\0"


def _database(path):
    """A further table with a stamp, of one row."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"CREATE TABLE {NAME} (startNs INTEGER, endNs INTEGER, name TEXT)")
        database.execute(f"INSERT INTO {NAME} VALUES (1, 2, 'x')")


def _json(path, text):
    """A further key of the outermost object, in front of the others."""
    path.write_text(text.replace("{", f'{{"{NAME}": [{{"a": 1}}], ', 1))


def _csv(path, text):
    """A further column; notices without columns may precede the header."""
    lines = text.splitlines()
    header = next((i for i, line in enumerate(lines) if line.count(",") > 1), 0)
    rows = [f"{lines[header]},{NAME}", *(f"{line},7" for line in lines[header + 1 :])]
    path.write_text("\n".join([*lines[:header], *rows]) + "\n")


def _field(number, payload):
    """A protobuf field that holds bytes."""
    key, size = number << 3 | 2, len(payload)
    head = []
    for value in (key, size):
        while value > 127:
            head.append(value & 127 | 128)
            value >>= 7
        head.append(value)
    return bytes(head) + payload


def _changed(path):
    """Whether something unknown was put into a file."""
    head = path.read_bytes()[:4096]
    if head.startswith(_SQLITE):
        _database(path)
        return NAME
    if path.suffix == ".pb" and "xplane" in path.name:
        event = b"\x08\x01\x10\x01\x18\x0a"
        line = _field(2, NAME.encode()) + _field(4, event)
        kind = _field(2, b"x")
        kinds = b"\x08\x01" + _field(2, b"\x08\x01" + kind)
        plane = _field(2, NAME.encode()) + _field(3, line) + _field(4, kinds)
        path.write_bytes(path.read_bytes() + _field(1, plane))
        return NAME
    if path.suffix in (".pftrace", ".perfetto-trace"):
        packet = _field(2047, b"\x08\x01")
        path.write_bytes(path.read_bytes() + _field(1, packet))
        return "2047"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""
    if path.suffix == ".csv" and not re.search(r'\n\s*"?#', text):
        _csv(path, text)
        return NAME
    if path.suffix in (".json", ".chrome_trace") and text.lstrip().startswith("{"):
        try:
            json.loads(text)
        except ValueError:
            return ""
        _json(path, text)
        return NAME
    return ""


_CHOSEN = {
    "event_log/decimal_commas": "commas are no separators there",
    "event_log/damaged": "its lines are damaged, the first too",
    "mindspore/display_and_tables": "its further columns are collectives",
    "mindspore/step_table": "its further columns are collectives",
    "perfetto/own_parts": "an output of ours has no packets of others",
}
"""Cases without what can be unknown, and why."""


@pytest.mark.sample(2)
def test_what_is_unknown_is_named(good, tmp_path, monkeypatch):
    """Put into each file that is read of a case, one by one."""
    if why := _CHOSEN.get(f"{good.reader}/{good.folder.name}"):
        pytest.skip(why)
    if "truncated" in usual_outcome(good):
        pytest.skip("what is put into a broken file may be in the part that is lost")
    found = traceconv.open("input", **good.reading).found
    places = sorted({one.source.path(name) for one in found for name in one.files})
    tried = 0
    for number, place in enumerate(map(Path, places)):
        copy = tmp_path / str(number)
        shutil.copytree("input", copy / "input")
        name = _changed(copy / place) if (copy / place).is_file() else ""
        with monkeypatch.context() as inside:
            inside.chdir(copy)
            assert not name or name in outcome(good, copy), place
        tried += bool(name)
    if not tried:
        pytest.skip("no file that a name can be put into")

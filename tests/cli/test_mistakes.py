"""The fifteen mistakes that everybody makes, and what each is told: one line what it is, and what
to do. No traceback, and no output that was not there before. The page "When a run says no" quotes
these lines.

``pytest -n0 -s tests/cli/test_mistakes.py -k table`` prints the table.
"""

import errno
import io
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from paths import ROOT

from traceconv.cli import run

ALL = ("merge", "run", "-o", "new.pftrace")


def locked():
    """A zip archive whose member says that it is encrypted."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("trace_view.json", "[]")
    data = bytearray(file.getvalue())
    data[data.find(b"PK\3\4") + 6] |= 1
    data[data.find(b"PK\1\2") + 8] |= 1
    return bytes(data)


@pytest.fixture
def place(root, tmp_path, monkeypatch):
    """The current folder: a capture of two ranks, an output of it, and files of other sorts."""
    shutil.copytree(root / "golden" / "trace_view" / "demo" / "input", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert run(["merge", "run", "-q", "-o", "old.pftrace"]) == 0
    (tmp_path / "empty").mkdir()
    (tmp_path / "locked.zip").write_bytes(locked())
    (tmp_path / "notes.txt").write_text("hello\nworld\n")
    (tmp_path / "rank0.nsys-rep").write_bytes(b"NSYS")
    shutil.copytree(tmp_path / "run", tmp_path / "both")
    event = {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 10, "dur": 5}
    record = {"schemaVersion": 1, "traceEvents": [event], "distributedInfo": {"rank": 0}}
    (tmp_path / "both" / "worker.1.pt.trace.json").write_text(json.dumps(record))
    return tmp_path


def full(monkeypatch):
    """Every write to an output meets a disk that is full."""

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("traceconv.io.atomic.os.fsync", refuse)


def forbidden(monkeypatch):
    """No file of the capture may be opened."""
    given = os.open

    def refuse(path, *rest, **options):
        if "run" in Path(os.fsdecode(path)).parts:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return given(path, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)


def without(monkeypatch):
    """The package of an extra is not installed."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)


# what, the words, the exit code, what is said, what is done before
MISTAKES = [
    ("wrong path", ("merge", "rum", "-o", "new.pftrace"), 3,
     ("rum: no such file or folder (did you mean 'run'?)",)),
    ("wrong rank", (*ALL, "--ranks", "0,9"), 3,
     ("rank 9 does not exist; ranks found: 0-1", "Leave --ranks out")),
    ("output exists", ("merge", "run", "-o", "old.pftrace"), 2,
     ("old.pftrace: exists; pass -f to overwrite it",)),
    ("unknown ending", ("merge", "run", "-o", "new.pftrase"), 2,
     ("no output format ends in '.pftrase' (did you mean '.pftrace'?)", "or pass --to")),
    ("no ending", ("merge", "run", "-o", "new"), 2,
     ("new: no extension that names a format; there are: .json", "or pass --to")),
    ("typo in a value", (*ALL, "-m", "sumary"), 2,
     ("no choice 'sumary' (did you mean 'summary'?); there are: summary, detail, source",)),
    ("empty folder", ("merge", "empty", "-o", "new.pftrace"), 3,
     ("empty: holds no files", "name the folder that the profiler wrote")),
    ("own output as input", ("merge", "run", "old.pftrace", "-o", "new.pftrace"), 3,
     ("rank 0 is claimed twice", "by old.pftrace (its metadata)", "name one of them only")),
    ("password", ("merge", "locked.zip", "-o", "new.pftrace"), 3,
     ("a zip archive with a password", "unzip -d FOLDER locked.zip")),
    ("no permission", ALL, 3, ("cannot open: Permission denied",), forbidden),
    ("disk full", ALL, 3, ("new.pftrace", "No space left on device"), full),
    ("missing extra", ("stats", "run", "-o", "new.parquet"), 2,
     ("in a checkout: pip install '.[arrow]'",), without),
    ("unreadable format", ("merge", "notes.txt", "-o", "new.pftrace"), 3,
     ("notes.txt: no known profile here", "`traceconv formats` lists what is read")),
    ("closed format", ("merge", "rank0.nsys-rep", "-o", "new.pftrace"), 3,
     ("a report in Nvidia's own format", "nsys export --type sqlite -o rank0.sqlite")),
    ("wrong reader", (*ALL, "--from", "kineto"), 3,
     ("no known profile here", "kineto was looked for", "leave --from out")),
    ("empty result", (*ALL, "--steps", "777"), 3,
     ("step 777 is in none of the ranks; steps found: 1-3",)),
    ("both readers", ("merge", "both", "-o", "new.pftrace"), 3,
     ("rank 0 is claimed twice", "--from trace_view or --from kineto")),
    ("ranks missing", (*ALL, "--ranks", "0-3"), 3,
     ("ranks 2-3 do not exist; ranks found: 0-1", "--allow-missing-ranks")),
]  # fmt: skip


@pytest.mark.parametrize("one", MISTAKES, ids=[one[0] for one in MISTAKES])
def test_a_mistake_is_told(one, place, monkeypatch, capsys):
    """What is wrong and what to do, in few lines; nothing is left behind."""
    what, words, code, said, *before = one
    for prepare in before:
        prepare(monkeypatch)
    there = sorted(place.iterdir())
    old = place / "old.pftrace"
    content = old.read_bytes(), old.stat().st_mtime_ns
    assert run([*words]) == code
    monkeypatch.undo()
    message = capsys.readouterr().err
    print(f"{what}: traceconv {' '.join(words)}\n{message}")
    told = (ROOT / "docs" / "guide" / "mistakes.md").read_text(encoding="utf-8")
    for text in said:
        assert text in message
        assert text.strip() in told
    assert "Traceback" not in message
    assert len(message.splitlines()) <= 4
    assert sorted(place.iterdir()) == there
    assert (old.read_bytes(), old.stat().st_mtime_ns) == content

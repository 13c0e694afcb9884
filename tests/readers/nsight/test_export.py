"""Reports exported by nsys of this machine; a stand-in for it, as CI has none."""

import gc
import os
import pickle
import shutil
import sqlite3
import time
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from paths import ROOT

import traceconv
from traceconv.cli import run
from traceconv.core.errors import OptionError, UnknownFormatError
from traceconv.readers.nsight import export


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where temporary files are made; the path holds no nsys."""
    below = tmp_path / "tmp"
    below.mkdir()
    monkeypatch.setenv("TRACECONV_TMPDIR", str(below))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return below


@pytest.fixture
def nsys(tmp_path, folder):
    """A stand-in: what it is asked for is written down, then ``does`` is done (bash)."""
    script = ROOT / "golden/nsight/two_processes/input/report.sqlite.sql"
    with closing(sqlite3.connect(tmp_path / "made.sqlite")) as database:
        database.executescript(script.read_text())
    program = tmp_path / "bin" / export.PROGRAM
    program.parent.mkdir()

    def make(does=f"cp {tmp_path}/made.sqlite $out"):
        program.write_text(
            f'#!/bin/bash\necho "$*" >> {tmp_path}/asked\n'
            'while [ $# -gt 1 ]; do [ "$1" = --output ] && out=$2; shift; done; report=$1\n'
            f"{does}\n"
        )
        program.chmod(0o755)
        return program

    return make


@pytest.fixture
def report(tmp_path):
    """A report beside nothing."""
    below = tmp_path / "prof"
    below.mkdir()
    (below / "run.nsys-rep").write_bytes(b"closed")
    return below / "run.nsys-rep"


def test_a_report_is_read_as_its_export(tmp_path, nsys, report, folder):
    """The events are those of the database; nothing stays."""
    nsys()
    wanted = traceconv.merge(tmp_path / "made.sqlite", out=tmp_path / "wanted.txt", mode="detail")
    for name, path in (("lone", report), ("folder", report.parent)):
        found = traceconv.merge(path, out=tmp_path / f"{name}.txt", mode="detail", jobs=2)
        assert (tmp_path / f"{name}.txt").read_bytes() == (tmp_path / "wanted.txt").read_bytes()
        assert found.ranks == wanted.ranks == (0, 1)
        assert not found.issues.count("unread-file")
    gc.collect()
    assert list(folder.iterdir()) == []
    assert [one.name for one in report.parent.iterdir()] == ["run.nsys-rep"]


def test_nsys_is_asked_once_and_in_private(tmp_path, nsys, report, folder):
    """Who looks twice gets the same database, in a folder that is closed to others."""
    nsys(f"ls -ld $(dirname $out) | cut -c1-10 > {tmp_path}/mode; cp {tmp_path}/made.sqlite $out")
    first = traceconv.open(report)
    second = traceconv.open(report)
    assert len(first.found) == len(second.found) == 2
    assert (tmp_path / "mode").read_text() == "drwx------\n"
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert asked.startswith("export --type sqlite ")
    assert asked.endswith(str(report))
    copy = pickle.loads(pickle.dumps(first.found[0].source))
    del first, copy
    gc.collect()
    assert len(list(folder.iterdir())) == 1
    del second
    gc.collect()
    assert list(folder.iterdir()) == []


def test_a_report_in_an_archive(tmp_path, nsys, report):
    """It is unpacked first."""
    nsys(f'[ "$(cat "$report")" = closed ] && cp {tmp_path}/made.sqlite $out')
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(report, "below/-run.nsys-rep")
    assert [one.rank for one in traceconv.open(tmp_path / "a.zip").found] == [0, 1]


def test_a_named_nsys_comes_before_that_on_the_path(tmp_path, nsys, report, capsys):
    """By path or name; a name that is not a program is an error of usage."""
    other = tmp_path / "other"
    shutil.copy(nsys(), other)
    nsys("exit 1")
    assert run(["inspect", str(report), "--nsys", str(other)]) == 0
    assert "nsight" in capsys.readouterr().out
    with pytest.raises(OptionError, match="`nsys`: 'nowhere' is not an executable program"):
        traceconv.open(report, nsys="nowhere")
    assert run(["merge", str(report), "--nsys", "nowhere", "-o", str(tmp_path / "x.json")]) == 2


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("echo checking; echo 'report is newer' >&2; exit 3", r"code 3; .*checking \| report is n"),
        ("exit 0", "wrote no database; its output: nothing"),
        ("echo x > $out", "wrote no SQLite database"),
        ("kill -9 $$", "ended by signal 9"),
        (
            "for i in {1..9999}; do echo line $i; done; exit 1",
            r"its output: line 9995 \| .*line 9999",
        ),
        (r"printf '\xff\x1b[31m\n'; exit 1", "code 1"),
    ],
)
def test_what_nsys_says_is_in_the_message(nsys, report, folder, does, why):
    """And nothing stays behind."""
    nsys(does)
    with pytest.raises(UnknownFormatError, match=why):
        traceconv.open(report)
    assert list(folder.iterdir()) == []


def test_a_report_that_cannot_be_exported_does_not_stop_the_others(tmp_path, nsys, report):
    """It is counted once, with the reason."""
    nsys(f'[ "$(cat "$report")" = closed ] || exit 7; cp {tmp_path}/made.sqlite $out')
    (report.parent / "bad.nsys-rep").write_bytes(b"?")
    (told,) = (one for one in traceconv.open(report.parent).issues if one.code == "unread-file")
    assert (told.count, told.file) == (1, str(report.parent / "bad.nsys-rep"))
    assert "code 7" in told.places[0]


def test_a_report_without_work_of_a_gpu(tmp_path, nsys, report):
    """It is not said that it has to be exported."""
    with closing(sqlite3.connect(tmp_path / "none.sqlite")) as database:
        database.execute("CREATE TABLE t (a)")
    nsys(f"cp {tmp_path}/none.sqlite $out")
    with pytest.raises(UnknownFormatError, match="no process with work of a GPU"):
        traceconv.open(report)


def is_running(pid):
    """Whether Linux has this process, and not only its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_an_export_that_does_not_end_is_ended(tmp_path, nsys, report, folder, monkeypatch):
    """With all that it has started."""
    monkeypatch.setattr(export, "LIMIT_S", 0.5)
    nsys(f"sleep 77.25 & echo $! > {tmp_path}/child; sleep 77.25")
    began = time.monotonic()
    with pytest.raises(UnknownFormatError, match=r"longer than 0\.5 s"):
        traceconv.open(report)
    assert time.monotonic() - began < 20
    child = int((tmp_path / "child").read_text())
    while time.monotonic() - began < 30 and is_running(child):
        time.sleep(0.1)
    assert not is_running(child)
    assert list(folder.iterdir()) == []


def test_no_room(nsys, report, monkeypatch):
    """The reason, and how another folder is named."""
    nsys()
    monkeypatch.setenv("TRACECONV_TMPDIR", os.devnull)
    with pytest.raises(UnknownFormatError, match="TRACECONV_TMPDIR"):
        traceconv.open(report)

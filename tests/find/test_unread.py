"""Files that are not read: what they are is said, and what to do, in place of a list of formats."""

import bz2
import gzip
import io
import lzma
import pickle
import shutil
import sqlite3
import struct
import zipfile
from contextlib import closing

import pytest
from paths import ROOT

import traceconv
from traceconv.cli import run
from traceconv.core.errors import CODES, InputError, StrictError
from traceconv.find.unread import LISTED, recognised
from traceconv.io.sources import FolderSource, sources

PROFILE = "unread-file"
TWO = ROOT / "golden" / "kineto" / "two_ranks" / "input"


def zipped(**members):
    """An archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/"), content)
    return file.getvalue()


def tarred():
    """The first block of a tar archive."""
    return b"a.json".ljust(257, b"\0") + b"ustar".ljust(255, b"\0")


def with_password(content, every=True):
    """An archive whose members, or the first only, say that they are encrypted."""
    data = bytearray(content)
    for sign, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        place = data.find(sign)
        while place >= 0:
            data[place + at] |= 1
            place = data.find(sign, place + 1) if every else -1
    return bytes(data)


def cut_database():
    """A report of Nsight Systems whose copy stopped before the kernels."""
    database = sqlite3.connect(":memory:")
    with closing(database):
        database.executescript(
            "CREATE TABLE StringIds (id, value);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, globalPid);"
        )
        rows = [(n, n + 1, 1 << 24) for n in range(2000)]
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?)", rows)
        database.commit()
        return database.serialize()[: 2 * 4096]


# name, content, what it is, what to do, the issue beside others
KINDS = [
    ("a.nsys-rep", b"?", "Nvidia's own format", "--type sqlite -o a.sqlite a.nsys-rep", PROFILE),
    ("A.QDREP", b"?", "Nvidia's own format", "--type sqlite -o A.sqlite A.QDREP", PROFILE),
    ("a.qdstrm", b"?", "Nsight Systems", "QdstrmImporter -i a.qdstrm", PROFILE),
    ("a", b"NVR\0\x20\0\0\0", "a report of Nsight Compute", "nsys profile", PROFILE),
    ("perf.data", b"PERFILE2....", "Linux perf", "perf report", PROFILE),
    ("a.json", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS", "lfs pull", PROFILE),
    ("a.json.xz", lzma.compress(b"[]"), "packed with xz", "unxz a.json.xz", PROFILE),
    ("a.json.bz2", bz2.compress(b"[]"), "packed with bzip2", "bunzip2 a.json.bz2", PROFILE),
    ("a.zip", zipped(a="[]"), "a zip archive in a folder", "name the archive", PROFILE),
    ("a.zip", zipped(a='{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1}]}'),
     "a zip archive in a folder", "name the archive", PROFILE),
    ("a.zip", zipped(a=":::MLLOG {}"), "a zip archive in a folder", "name the archive", PROFILE),
    ("a", tarred(), "a tar archive", "call it .tar", PROFILE),
    ("a.json.gz", gzip.compress(b"[" * 99)[:5], "not readable (cannot", "copy it again", PROFILE),
    ("a.json", b"", "empty", "record or copy it again", "empty-file"),
    ("a.json.gz", gzip.compress(b""), "empty", "record or copy it again", "empty-file"),
    ("a.sqlite", cut_database(), "SQLite database (end of file", "copy it again", PROFILE),
    ("a.pt", zipped(**{"a__data.pkl": "x"}), "torch.save", "other files", ""),
    ("a.bin", pickle.dumps({"weights": [1]}), "a Python pickle", "never loaded", ""),
    ("a.bin", pickle.dumps([], protocol=2), "a Python pickle", "never loaded", ""),
    ("a.json", b"\n<!DOCTYPE html>\n<html>", "a web page", "in a browser", ""),
    ("a.parquet", b"PAR1....", "arrays or tables", "CSV", ""),
    (
        "events.out.tfevents.1",
        struct.pack("<QI", 24, 7) + b"\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2",
        "TensorBoard", "plugins/profile", "",
    ),
]  # fmt: skip
NAMES = [f"{i} {what}" for i, (_, _, what, _, _) in enumerate(KINDS)]


@pytest.fixture
def refusal(tmp_path):
    """What is said of files in a folder of which none is read."""

    def refused(**files):
        folder = tmp_path / "in"
        folder.mkdir(exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        with pytest.raises(InputError) as caught:
            traceconv.merge(folder, out=tmp_path / "out.json")
        assert not (tmp_path / "out.json").exists()
        return str(caught.value).replace(f"{folder}/", "")

    return refused


@pytest.mark.parametrize(("name", "content", "what", "advice", "code"), KINDS, ids=NAMES)
def test_what_it_is_and_what_to_do(refusal, name, content, what, advice, code):
    """Two lines, with the name of the file; no list of formats."""
    first, second = refusal(**{name: content}).splitlines()
    assert first.startswith(f"{name}: ")
    assert what in first
    assert advice in second


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "content", "what", "advice", "code"), KINDS, ids=NAMES)
def test_beside_others_it_is_an_issue(tmp_path, name, content, what, advice, code):
    """What may hold a profile is told of; what has its place beside profiles is not."""
    (tmp_path / name).write_bytes(content)
    for file in TWO.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    issues = traceconv.merge(tmp_path, out=tmp_path / "out.json").issues
    told = [one for one in issues if one.code in (PROFILE, "empty-file")]
    assert [(one.code, one.file) for one in told] == [(code, str(tmp_path / name))][: bool(code)]
    if code == "unread-file":
        assert what in told[0].places[0]
        with pytest.raises(StrictError):
            traceconv.merge(tmp_path, out=tmp_path / "strict.json", strict=True)


def test_its_name_is_in_the_last_lines(tmp_path, monkeypatch, capsys):
    """A rank may be missing: the line says which file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rank7.nsys-rep").write_bytes(b"?")
    assert run(["merge", str(TWO), ".", "-o", "out.json"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("unread-file") == 1
    assert f"rank7.nsys-rep: {CODES['unread-file'].advice[:30]}" in told


def test_many_files(refusal):
    """Those that may hold a profile come first; the rest is counted."""
    files = {f"a{i}.json": b"" for i in range(9)} | {"z.ncu-rep": b"NVR\0", "readme.md": b"text"}
    lines = refusal(**files).splitlines()
    assert lines[0].startswith("z.ncu-rep: ")
    assert len(lines) == 2 * LISTED + 1
    assert lines[-1] == f"... and {len(files) - LISTED} more that are not read"


def test_of_what_nobody_knows_nothing_is_said(refusal):
    """One line that it is not known, one what to do: no list of all formats."""
    first, second = refusal(**{"a.txt": b"hello"}).splitlines()
    assert first.endswith("no known profile here (seen: a.txt)")
    assert "`traceconv formats` lists what is read" in second


def test_a_database_is_told_by_its_tables(tmp_path, refusal):
    """Of nvprof with the way out; of others what is in them; a damaged one is damaged."""
    contents = {}
    for name, tables in {
        "nvprof": ["CUPTI_ACTIVITY_KIND_KERNEL", "StringTable"],
        "other": [f"t{i}" for i in range(9)],
    }.items():
        with closing(sqlite3.connect(tmp_path / name)) as database:
            database.executescript("".join(f"CREATE TABLE {one} (a);" for one in tables))
        contents[name] = (tmp_path / name).read_bytes()
    lines = refusal(**contents).splitlines()
    assert lines[0] == "nvprof: a database of nvprof"
    assert "nvprof -i nvprof --csv" in lines[1]
    assert lines[2].endswith("known here (tables: t0, t1, t2, t3, t4, t5 ...)")
    refused = refusal(nvprof=contents["nvprof"][:50], other=b"x")
    assert refused.splitlines()[0].startswith("nvprof: a damaged SQLite database (")


def test_a_database_that_was_cut_off_is_an_issue_beside_others(tmp_path):
    """Its tables are there, their rows are not: whatever profiler wrote it."""
    with closing(sqlite3.connect(tmp_path / "report.sqlite")) as database:
        database.execute("CREATE TABLE StringIds (id, value)")
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end)")
        rows = ((n, n + 1) for n in range(2000))
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?)", rows)
        database.commit()
    content = (tmp_path / "report.sqlite").read_bytes()
    (tmp_path / "report.sqlite").write_bytes(content[: 3 * 4096])
    (tmp_path / "a.jsonl").write_text('{"name": "a", "ts": 1, "dur": 1}\n')
    [issue] = [one for one in traceconv.open(tmp_path).issues if one.code == "unread-file"]
    assert issue.places[0].startswith("a damaged SQLite database (end of file; tables: CUPTI_")


def test_a_log_with_columns_of_its_own_is_named(tmp_path):
    """Beside a capture that is read; figures by epoch are not events."""
    shutil.copy(next(TWO.iterdir()), tmp_path / "a.json")
    rows = "".join(f"{1_700_000_000_000_000 + n},{n + 1},read\n" for n in range(4))
    (tmp_path / "loader.csv").write_text("Begin (us),Length (us),What\n" + rows)
    (tmp_path / "loss.csv").write_text("epoch,loss\n1,0.5\n2,0.25\n")
    found = [one for one in traceconv.open(tmp_path).issues if one.code == "log-unmapped"]
    assert [one.file.rpartition("/")[2] for one in found] == ["loader.csv"]


def test_an_archive_with_a_password(tmp_path):
    """It is refused for that; if only some members are closed, the others are read."""
    trace = next(TWO.iterdir())
    content = zipped(**{"a.json": trace.read_bytes(), "b.json": "[]"})
    (tmp_path / "a.zip").write_bytes(with_password(content))
    with pytest.raises(InputError, match=r"with a password\n.*unzip -d FOLDER a\.zip"):
        traceconv.open(tmp_path / "a.zip")
    first = zipped(**{"0.json": "[]", trace.name: trace.read_bytes()})
    (tmp_path / "b.zip").write_bytes(with_password(first, every=False))
    issues = traceconv.merge(tmp_path / "b.zip", out=tmp_path / "out.json").issues
    (told,) = (one for one in issues if one.code == PROFILE)
    assert told.file.endswith("b.zip/0.json")
    assert "password" in told.places[0]


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    """The reason stands where the file is told of."""
    for file in TWO.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "secret.json").write_bytes(b"[]")
    plain = FolderSource._open

    def guarded(self, name):
        if name == "secret.json":  # whoever runs the tests may be allowed to read everything
            raise PermissionError(13, "Permission denied")
        return plain(self, name)

    monkeypatch.setattr(FolderSource, "_open", guarded)
    issues = traceconv.merge(tmp_path, out=tmp_path / "out.json", jobs=1).issues
    (told,) = (one for one in issues if one.code == PROFILE)
    assert "Permission denied" in told.places[0]


def test_the_only_reader_that_is_asked_tells_nothing_of_others(tmp_path):
    """Who names a format wants that alone."""
    (tmp_path / "a.nsys-rep").write_bytes(b"?")
    for file in TWO.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    report = traceconv.merge(tmp_path, out=tmp_path / "out.json", reader="kineto")
    assert not report.issues.count(PROFILE)


def test_looking_moves_no_bar(tmp_path):
    """Bytes that are looked at are no progress."""
    (tmp_path / "a.json").write_bytes(b"")
    [source] = sources([str(tmp_path)])
    seen = []
    source.progress = seen.append
    assert recognised(source, "a.json").what == "empty"
    assert seen == []

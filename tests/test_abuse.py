"""What hostile input tries, and what it gets: a named error or an issue, in bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest
from paths import ROOT

import traceconv
from traceconv import TraceconvError
from traceconv.cli import run
from traceconv.core.errors import SourceError
from traceconv.io.sources import FileSource, sources
from traceconv.io.streams import Bounded
from traceconv.readers.shared import lines as _event_log_lines
from traceconv.readers.shared.sqlite import database as _sqlite
from traceconv.run.executor import run_folder

EVENT = {"ph": "X", "name": "kernel", "pid": 1, "tid": 1, "ts": 1, "dur": 2}


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder as the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(name, content):
    """A file here; a list of events as JSON."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(content).encode() if isinstance(content, list) else content
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def refusal(*paths, **options):
    """The message with which an input is refused."""
    with pytest.raises(TraceconvError) as caught:
        traceconv.merge(*map(str, paths), out="out.json", mode=None, **options)
    assert not Path("out.json").exists()
    return str(caught.value)


def converted(path, out="out.json"):
    """Issue codes with their counts, after writing what can be read."""
    report = traceconv.merge(str(path), out=out, mode="detail", force=True)
    return {issue.code: issue.count for issue in report.issues}


# -- containers ----------------------------------------------------------------------------------


def archive(kind, name, data):
    path = Path(f"a.{kind}")
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr(name, data)
    else:
        with tarfile.open(path, "w") as file:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("name", ["../../etc/cron.d/x.json", "/etc/x.json", "a/../../x.json"])
def test_members_that_lead_out_of_the_archive(here, kind, name):
    """Refused by name; nothing is unpacked anywhere."""
    message = refusal(archive(kind, name, b"[]"))
    assert f"member {name!r} points outside the archive; refused" in message


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret.json"])
def test_links_in_archives_are_no_files(here, target):
    """A link in a tar archive points to nothing: it is not followed."""
    with tarfile.open("a.tar", "w") as file:
        link = tarfile.TarInfo("trace.json")
        link.type, link.linkname = tarfile.SYMTYPE, target
        file.addfile(link)
    assert "holds no files" in refusal("a.tar")


def test_decompression_bomb_in_gzip(here, monkeypatch):
    """More than so many times its size is refused while it is unpacked, not after."""
    monkeypatch.setattr("traceconv.io.streams.RATIO_FREE_BYTES", 1 << 20)
    events = b"[" + json.dumps(EVENT).encode() + b"," * (8 << 20)
    written("bomb.json.gz", gzip.compress(events))
    assert "refused as a decompression bomb" in refusal("bomb.json.gz")


def test_file_of_holes(here):
    """Zeros that take no room on the disk are a bomb, too."""
    path = written("trace.json", [EVENT])
    os.truncate(path, 2 << 30)
    assert "of its 2048 MiB, all but" in (told := refusal(path)) and "holes; refused" in told


def test_decompression_bomb_in_zip(here, monkeypatch):
    """The same for a member of an archive."""
    monkeypatch.setattr("traceconv.io.archives.RATIO_FREE_BYTES", 1 << 20)
    path = archive("zip", "bomb.json", b"[" + json.dumps(EVENT).encode() + b"," * (8 << 20))
    assert "refused as a decompression bomb" in refusal(path)


def test_bound_is_on_what_comes_out():
    """A bounded stream gives up with the block that goes over, whatever sizes claim."""
    stream = Bounded(io.BytesIO(b"x" * 100), 50, "file")
    assert stream.read(50) == b"x" * 50
    with pytest.raises(SourceError, match="refused as a decompression bomb"):
        stream.read(1)


def test_link_loops(here):
    """A folder reached twice is read once."""
    written("run/trace.json", [EVENT])
    Path("run/again").symlink_to("..", target_is_directory=True)
    Path("run/self").symlink_to("self")
    assert converted("run")["rank-assumed"] == 1


def test_folder_in_place_of_a_file(here):
    """A folder called like a trace is looked into, not opened."""
    Path("prof/trace_view.json").mkdir(parents=True)
    written("prof/trace_view.json/trace.json", [EVENT])
    assert converted("prof")["rank-assumed"] == 1


def test_pipe_in_a_folder_is_not_waited_for(here):
    """Only files are files."""
    written("run/trace.json", [EVENT])
    os.mkfifo("run/trace_rank1.json")
    assert converted("run")["rank-assumed"] == 1


@pytest.mark.parametrize(
    "name", ["trace.json", "trace.json.gz", "a.zip", "a.tar", "a.sqlite", "a.tcz"]
)
def test_pipe_in_place_of_a_file_is_not_waited_for(here, name):
    """A pipe that took the place of a file since it was found is an error with its name."""
    data = json.dumps([EVENT]).encode()
    if name == "a.sqlite":
        sqlite3.connect(name).execute("create table slice (name)").connection.close()
    elif name == "a.tcz":
        traceconv.pack(written("trace.json", data), out=name)
    elif name in ("a.zip", "a.tar"):
        archive(name[2:], "trace.json", data)
    else:
        written(name, gzip.compress(data) if name.endswith(".gz") else data)
    (source,) = sources([name])
    Path(name).unlink()
    os.mkfifo(name)
    with pytest.raises(SourceError, match=name):
        sources([name], pipes=False)
    if name[-4:] not in (".zip", ".tar"):  # which are open
        with pytest.raises(SourceError, match=f"{name}: cannot open: not a regular file"):
            source.open(name)


def test_pipe_that_was_named_is_read(here):
    """To its end, from whatever writes to it."""
    os.mkfifo("trace.json")
    threading.Thread(target=written, args=("trace.json", [EVENT])).start()
    assert "rank-assumed" in converted("trace.json")


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"\n\n", b"[", b"{}"])
def test_nothing_in_a_file(here, data):
    """An empty file is an empty trace or no profile, and said to be."""
    written("empty.json", data)
    try:
        assert "empty-file" in converted("empty.json") or data == b"["
    except TraceconvError as e:
        assert "empty.json" in str(e)


def test_unreadable_file(here):
    """What the system refuses is passed on, with the name."""
    written("run/trace.json", [EVENT])
    link = Path("gone.json")
    link.symlink_to("nowhere.json")
    assert "gone.json: no such file or folder" in refusal(link)


def test_file_that_is_written_meanwhile_is_not_mapped(here):
    """Cut short under a mapping, it would end the process; as a stream, it just ends."""
    path = written("trace.json", b"x" * 100_000)
    with path.open("r+b") as writer, FileSource(path, "trace.json").open("trace.json") as stream:
        assert stream.mapped is None
        assert stream.read(10) == b"x" * 10
        writer.truncate(5)
        assert len(stream.read(100_000)) < 100_000


def test_file_that_shrinks_before_it_is_read_again(here):
    """What lies elsewhere when it is read again is an error with its name, or an issue."""
    path = written("run/trace.json", [EVENT] * 50)
    captures = traceconv.open("run")
    path.write_bytes(path.read_bytes()[:200])
    (trace,) = captures.traces()
    assert trace.issues.count("truncated") == 1


# -- names ---------------------------------------------------------------------------------------


def test_names_that_are_no_utf8(here, capsys):
    """They are shown with escapes, in messages and documents."""
    Path(os.fsdecode(b"bad\xff.json")).write_text(json.dumps([EVENT]))
    assert run(["convert", ".", "-o", "out.pftrace", "--report", "report.json"]) == 0
    assert json.loads(Path("report.json").read_text())["captures"][0]["files"] == [
        "bad\\udcff.json"
    ]
    assert run(["inspect", "--json", "."]) == 0
    assert "bad\\\\udcff.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["inspect"],
        ["diagnose"],
        ["stats"],
        ["merge", "-o", "out.pftrace"],
        ["watch", "--once"],
        ["explore"],
        ["validate"],
    ],
)
def test_documents_name_files_that_are_no_utf8(here, capsys, words):
    """Every document of the command line is JSON, whatever folders and files are called."""
    name = os.fsdecode(b"bad\xff")
    shutil.copytree(ROOT / "golden/kineto/gloo_on_cpus/input", name)
    below = str(next(Path(name).iterdir())) if words[0] in ("validate", "diagnose") else name
    run([words[0], below, *words[1:], "--json"])
    assert json.loads(capsys.readouterr().out)


def test_names_do_not_command_the_terminal(here, capsys):
    """Escape sequences from inputs are shown, not sent."""
    written("\x1b[2Jtrace.json", [{**EVENT, "dur": -1}, EVENT])
    assert run(["convert", ".", "-o", "out.txt"]) == 0
    told = capsys.readouterr().err
    assert "\\u001b[2Jtrace.json" in told
    assert "\x1b[2J" not in told


@pytest.mark.parametrize("out", ["out.json", "out.pftrace", "out.txt"])
def test_names_of_events_stay_data(here, out):
    """Quotes, markup, line ends and halves of surrogate pairs end up within strings."""
    names = ['"}],"x":[{"', "</script><script>alert(1)</script>", "a\nrank 7\n", "\ud800", "\0"]
    written("trace.json", [{**EVENT, "name": name, "ts": i * 9} for i, name in enumerate(names)])
    converted("trace.json", out)
    if out != "out.txt":
        assert traceconv.validate(out).ok
    else:
        assert "\nrank 7\n" not in Path(out).read_text()


# -- sizes ---------------------------------------------------------------------------------------


def test_string_that_is_never_closed(here):
    """The record it stands in is lost, and nothing before it."""
    long = json.dumps({**EVENT, "name": "x" * (1 << 20)})[:-200]
    written("trace.json", f"[{json.dumps(EVENT)},{long}")
    assert converted("trace.json")["truncated"] == 1


def test_line_without_end(here, monkeypatch):
    """A line of a log that is longer than the limit is left out, and said to be."""
    monkeypatch.setattr(_event_log_lines, "MAX_LINE_BYTES", 1 << 12)
    monkeypatch.setattr(_event_log_lines, "CHUNK_BYTES", 1 << 10)
    long = json.dumps({"name": "x" * (1 << 14), "ts": 5})
    written("log.jsonl", f'{{"rawlog":1,"unit":"ns"}}\n{long}\n{{"name":"a","ts":1,"dur":2}}\n')
    report = traceconv.merge("log.jsonl", out="out.txt", mode=None)
    (issue,) = [i for i in report.issues if i.code == "malformed-record"]
    assert issue.places == ("line 2: longer than 4096 bytes",)
    assert report.written[0].counts["slice"] == 1


def test_long_strings_take_memory_in_proportion(here):
    """A string of 40 MB in a file is no reason for a gigabyte."""
    long = json.dumps({**EVENT, "args": {"text": "x" * (40 << 20)}})
    written("trace.json", f"[{json.dumps(EVENT)},{long}]")
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "import traceconv; print(traceconv.merge('trace.json', out='o.pftrace').written[0].counts)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"ph":"X","args":'])
def test_deep_nesting(here, opening):
    """Thousands of levels cost their event; the others are kept."""
    written("trace.json", f"[{json.dumps(EVENT)},{opening * 20_000},{json.dumps(EVENT)}]")
    assert set(converted("trace.json")) & {"malformed-record", "truncated"}


def test_huge_numbers(here):
    """Thousands of digits are no time, and cost no time."""
    digits = "9" * 100_000
    absurd = f'{{"ph":"X","name":"a","pid":{digits},"tid":1,"ts":{digits},"dur":1}}'
    written("trace.json", f"[{json.dumps(EVENT)},{absurd}]")
    assert converted("trace.json")["bad-time"] == 1


# -- databases and protobuf ------------------------------------------------------------------------


def database(statements):
    connection = sqlite3.connect("ascend_pytorch_profiler_0.db")
    connection.executescript(statements)
    connection.close()
    return Path("ascend_pytorch_profiler_0.db")


def test_views_of_a_database_are_not_asked(here):
    """What has the name of a table and is a query that never ends is not looked at."""
    path = database(
        "CREATE TABLE STRING_IDS(id INTEGER PRIMARY KEY, value TEXT);"
        "CREATE VIEW TASK AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT i AS startNs, i AS endNs, i AS deviceId FROM n;"
    )
    assert "holds no events" in refusal(str(path))


def test_databases_are_not_written_to(here):
    """Nor is anything left beside them."""
    path = database("CREATE TABLE STRING_IDS(id INTEGER PRIMARY KEY, value TEXT);")
    before = path.read_bytes()
    refusal(path)
    assert (path.read_bytes(), [p.name for p in here.iterdir()]) == (before, [path.name])


def test_query_that_does_not_end_is_stopped(here, monkeypatch):
    """After so many steps of SQLite's machine."""
    monkeypatch.setattr(_sqlite, "STEPS_PER_CHECK", 10)
    monkeypatch.setattr(_sqlite, "FREE_STEPS", 30)
    monkeypatch.setattr(_sqlite, "STEPS_PER_BYTE", 0)
    rows = ",".join(f"({i},'x')" for i in range(1000))
    path = database(
        f"CREATE TABLE T(id TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID;INSERT INTO T VALUES {rows};"
    )
    (source,) = sources([str(path)])
    with (
        pytest.raises(TraceconvError, match="interrupted"),
        _sqlite.opened(source, path.name) as found,
    ):
        found.columns("T", {"id": 0})


def test_a_text_of_a_database_has_a_largest_size(here, monkeypatch):
    """A cell that says that it holds more is an error that names the file."""
    monkeypatch.setattr(_sqlite, "MAX_TEXT", 1000)
    path = database(
        "CREATE TABLE STRING_IDS(id INTEGER PRIMARY KEY, value TEXT);"
        "INSERT INTO STRING_IDS VALUES (1, hex(zeroblob(600)));"
    )
    (source,) = sources([str(path)])
    with (
        pytest.raises(TraceconvError, match=path.name),
        _sqlite.opened(source, path.name) as found,
    ):
        list(found.rows("STRING_IDS", "id", "value"))


def test_schema_that_is_no_utf8(here):
    """SQLite's own message quotes it; ours names the file."""
    path = database("CREATE TABLE STRING_IDS(id INTEGER, value TEXT);")
    data = path.read_bytes()
    path.write_bytes(
        data.replace(b"CREATE TABLE STRING_IDS", b"CREATE \xff\xfe\xc2\xc2E STRING_IDS")
    )
    assert "ascend_pytorch_profiler_0.db" in refusal(path)


def test_protobuf_that_nests_without_end(here):
    """A message in a message in a message holds no event."""
    message = b""
    for _ in range(20_000):
        message = b"\x0a" + _varint(len(message)) + message
    written("rank0_time_2025_02_19_21_20_00_000137.paddle_trace.pb", message)
    assert "holds no events" in refusal(".")


def test_protobuf_field_longer_than_the_file(here):
    """A length of 2**60 allocates nothing."""
    written("rank0_time_2025_02_19_21_20_00_000137.paddle_trace.pb", b"\x0a" + _varint(1 << 60))
    assert "paddle_trace.pb" in refusal(".")


def _varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


# -- what we leave ---------------------------------------------------------------------------------


def test_temporary_folders_are_private(here, monkeypatch):
    """Only their owner can look into them."""
    monkeypatch.setenv("TRACECONV_TMPDIR", str(here))
    with run_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700

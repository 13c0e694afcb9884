"""Remote storage: read in ranges, written whole or not at all, and no secret told."""

import contextlib
import gzip
import http.server
import io
import json
import socket
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("fsspec")

from paths import ROOT
from remote_places import memory, put, s3_server
from small_jobs import job
from trace_bytes import content

import traceconv
from traceconv.core.errors import MissingExtraError, OutputError, SourceError, StrictError
from traceconv.io.remote import Ranged
from traceconv.io.sources import sources
from traceconv.io.storage import BLOCK_BYTES, Storage, is_url, original_url, redact_url, redacted
from traceconv.writers import output

TRACE = json.dumps(
    {"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}
).encode()

SECRET = "s3cr/et+key"
LOGIN_URL = f"ftp://someone:{SECRET}@127.0.0.1:1/a.json"
SIGNED_URL = "http://127.0.0.1:1/a.json?X-Signature=abcdef0123&part=77777"


@pytest.fixture
def fs():
    """The files behind memory://, none to begin with."""
    return memory()


def _one(url):
    [source] = sources([url])
    return source


# -- reading -----------------------------------------------------------------------------------


@pytest.mark.sample(2)
def test_a_golden_case_reads_the_same_from_afar(sampled, fs):
    """Every reader gets along with files that are not on this machine."""
    if {"align", "mapping"} & sampled.options.keys():
        pytest.skip("has files beside its input, which stay on this machine")
    here = sampled.usual_text("detail")
    put(fs, Path("input"), "/input")
    options = {"scope": True, **sampled.options, "mode": "detail"}
    traceconv.merge("memory://input", out="memory://out.txt", **options)
    assert fs.cat_file("/out.txt").decode() == here


def test_a_folder_lists_files_relative_and_sorted(fs):
    """Names are paths below the URL."""
    fs.pipe({"/d/b/x.json": b"1", "/d/a.json": b"22", "/dd/c.json": b"3"})
    source = _one("memory://d")
    assert [(n, source.size(n)) for n in source.names()] == [("a.json", 2), ("b/x.json", 1)]


def test_a_pattern_names_files_in_order(fs):
    """A glob works as it does here."""
    fs.pipe({"/r1.json": b"", "/r0.json": b"", "/x.txt": b""})
    assert [s.label for s in sources(["memory://r*.json"])] == [
        "memory:///r0.json",
        "memory:///r1.json",
    ]


def test_compressed_files_are_read_as_what_they_hold(fs):
    """The ending does not matter."""
    fs.pipe_file("/x.json", gzip.compress(b"[1]" * 100_000))
    assert _one("memory://x.json").read("x.json") == b"[1]" * 100_000


def _zipped(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


def _tarred(files, mode="w:"):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("name", "pack"),
    [("a.zip", _zipped), ("a.tar", _tarred), ("a.tgz", lambda files: _tarred(files, "w:gz"))],
)
def test_archives_are_folders(fs, name, pack):
    """Members are read where they lie."""
    fs.pipe_file(f"/{name}", pack({"d/t.json": b"[3]" * 50_000, "u.json": b"[4]"}))
    source = _one(f"memory://{name}")
    assert (source.names(), source.read("d/t.json")) == (("d/t.json", "u.json"), b"[3]" * 50_000)


def test_members_outside_an_archive_are_refused(fs):
    """No path leads out."""
    fs.pipe_file("/a.tar", _tarred({"../evil.json": b"[]"}))
    with pytest.raises(SourceError, match="points outside"):
        sources(["memory://a.tar"])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("memory://nowhere", r"memory://nowhere: no such file or folder"),
        ("memory://*.none", r"no file matches"),
        ("nothing://a/b", r"nothing://a/b: .*rotocol"),
    ],
)
def test_what_is_not_there_is_named(fs, url, message):
    """A typo gets a clear answer."""
    with pytest.raises(SourceError, match=message):
        sources([url])


def _fetched(place, monkeypatch):
    """The ranges that are fetched from now on."""
    ranges, fetch = [], place.fs.cat_file

    def cat_file(path, start=None, end=None):
        ranges.append((start, end))
        return fetch(path, start=start, end=end)

    monkeypatch.setattr(place.fs, "cat_file", cat_file)
    return ranges


def test_the_head_of_a_file_costs_one_small_range(fs, monkeypatch):
    """Recognising a large file does not load it."""
    fs.pipe_file("/big", bytes(4 << 20))
    source = _one("memory://big")
    ranges = _fetched(Storage("memory://big"), monkeypatch)
    source.head("big", 1000)
    source.head("big", 2000)
    assert sum(end - start for start, end in ranges) <= BLOCK_BYTES


def test_what_is_read_in_order_is_fetched_once_in_growing_ranges(fs, monkeypatch):
    """Few requests, and no byte twice."""
    size = (40 << 20) + 5
    fs.pipe_file("/big", bytes(size))
    place = Storage("memory://big")
    ranges = _fetched(place, monkeypatch)
    file = io.BufferedReader(Ranged(place, place.path, size), BLOCK_BYTES)
    total = 0
    while part := file.read(256 << 10):
        total += len(part)
    assert (total, [start for start, _ in ranges[1:]]) == (size, [end for _, end in ranges[:-1]])
    assert len(ranges) < 12


def test_memory_for_blocks_is_bounded(fs, monkeypatch):
    """However large the files are."""
    monkeypatch.setattr("traceconv.io.storage.CACHE_BYTES", 4 * BLOCK_BYTES)
    fs.pipe_file("/big", bytes(2 << 20))
    place = Storage("memory://big")
    io.BufferedReader(Ranged(place, place.path, 2 << 20)).read()
    assert len(place.blocks) == 4


def test_a_file_that_shrank_is_an_error(fs):
    """What was listed and is not there any more is not made up."""
    fs.pipe_file("/d/x.json", bytes(100_000))
    source = _one("memory://d")
    source.names()
    fs.pipe_file("/d/x.json", bytes(50))
    with pytest.raises(SourceError, match="changed while it was being read"):
        source.read("x.json")


def test_more_files_than_anyone_has_are_a_mistake(fs, monkeypatch):
    """A bucket that holds everything is not read by accident."""
    monkeypatch.setattr("traceconv.io.remote.MAX_FILES", 3)
    fs.pipe({f"/d/{i}": b"" for i in range(6)})
    with pytest.raises(SourceError, match="name a folder further down"):
        _one("memory://d").names()


def test_without_the_extra_the_message_says_what_to_install(monkeypatch):
    """fsspec is not among what is always installed."""
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[s3\]'"):
        sources(["s3://bucket/x"])


class _Links(http.server.SimpleHTTPRequestHandler):
    """Serves a folder; answers ranges, as web servers do and Python's own does not."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        said, path = self.headers.get("Range"), self.translate_path(self.path)
        if said is None or path.endswith("/"):
            super().do_GET()
            return
        first, last = said.removeprefix("bytes=").split("-")
        part = Path(path).read_bytes()[int(first) : int(last) + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)


class _Endless(_Links):
    """Sends without end, whatever was requested."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(206 if self.headers.get("Range") else 200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")


@contextlib.contextmanager
def serving(folder, kind=http.server.ThreadingHTTPServer, host="127.0.0.1", answers=_Links):
    """The port of a web server of a folder."""
    pytest.importorskip("aiohttp")

    def handler(*args):
        return answers(*args, directory=str(folder))

    with kind((host, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def web(tmp_path):
    """The address of a web server, and the folder it serves."""
    with serving(tmp_path) as port:
        yield f"http://127.0.0.1:{port}", tmp_path


@pytest.mark.parametrize(
    ("path", "told"),
    [("x.json", f"{len(TRACE) + 1} bytes came instead of {len(TRACE)}"), ("d/", "more than 1 MiB")],
)
def test_a_server_cannot_send_more_than_was_requested(tmp_path, monkeypatch, path, told):
    """Neither for a range of a file nor as the page of a folder."""
    monkeypatch.setattr("traceconv.io.storage.PAGE_BYTES", 1 << 20)
    (tmp_path / "x.json").write_bytes(TRACE)
    with serving(tmp_path, answers=_Endless) as port, pytest.raises(SourceError, match=told):
        _one(f"http://127.0.0.1:{port}/{path}").names()


class _Six(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


def test_an_address_in_brackets_is_no_pattern(tmp_path):
    """IPv6: its colons and brackets mean nothing else."""
    (tmp_path / "x.json").write_bytes(TRACE)
    try:
        with serving(tmp_path, _Six, "::1") as port:
            assert _one(f"http://[::1]:{port}/x.json").read("x.json") == TRACE
    except OSError:
        pytest.skip("no IPv6 here")


@pytest.mark.parametrize(
    "url",
    ["reference://x", "github://x", "http://[::1/x.json", "http://a[b]/x", "tar://x",
     "simplecache::http://[::1]:9/x", "http://"],
)  # fmt: skip
def test_a_url_that_makes_no_sense_is_no_fault(url, tmp_path):
    """Neither as an input nor as an output."""
    trace = traceconv.open(str(ROOT / "golden" / "trace_view" / "demo" / "input"))
    for call in (
        lambda: sources([url]),
        lambda: traceconv.write(trace.traces(), f"{url}.json"),
    ):
        with pytest.raises((SourceError, MissingExtraError, OutputError)):
            call()


def test_a_web_server_is_walked_by_its_links(web):
    """A folder of a web server is a page."""
    address, folder = web
    (folder / "d" / "e").mkdir(parents=True)
    (folder / "d" / "e" / "x.json").write_bytes(TRACE)
    (folder / "y.json").write_bytes(b"outside")
    source = _one(f"{address}/d/")
    assert (source.names(), source.read("e/x.json")) == (("e/x.json",), TRACE)


ELSEWHERE = (
    "http://127.0.0.1:1/other.json",
    "//127.0.0.1:1/d/other.json",
    "http://someone@127.0.0.1:1/d/other.json",
    "file:///etc/hostname",
    "FILE:/etc/hostname",
    "../y.json",
    "/y.json",
    "%2e%2e/y.json",
    "..%2fy.json",
    "e/../../y.json",
    "javascript:alert(1)",
    "memory://x.json",
    "x.json?then=elsewhere",
)
"""Links that lead out of the folder they stand in, or to no file of it."""


@pytest.mark.parametrize("link", ELSEWHERE)
def test_links_of_a_page_lead_nowhere_else(web, link):
    """Not to another host, not to files of this machine, not above the folder."""
    address, folder = web
    (folder / "d").mkdir()
    (folder / "d" / "x.json").write_bytes(TRACE)
    (folder / "y.json").write_bytes(b"outside")
    page = f'<a href="{link}">other</a> <a href="x.json">x.json</a>'
    (folder / "d" / "index.html").write_text(f"<html><body>{page}</body></html>")
    source = _one(f"{address}/d/")
    assert (source.names(), source.read("x.json")) == (("x.json",), TRACE)


def test_a_signature_opens_a_file_and_is_not_told(web):
    """What stands behind the question mark is used, and nobody sees it."""
    address, folder = web
    (folder / "x.json").write_bytes(TRACE)
    source = _one(f"{address}/x.json?sig=abcdef")
    assert (source.read("x.json"), source.label) == (TRACE, f"{address}/x.json?sig=***")


# -- writing -----------------------------------------------------------------------------------


def test_an_upload_has_no_name_before_it_is_complete(fs, tmp_path):
    """Who looks too early sees nothing under the final name."""
    names = []
    capture = job(tmp_path / "in", 1)
    traceconv.merge(
        str(capture),
        out="memory://out/x.pftrace",
        mode="detail",
        progress=lambda *_: names.append(fs.exists("/out/x.pftrace")),
    )
    assert (any(names), fs.find("/out")) == (False, ["/out/x.pftrace"])


def test_a_failed_run_leaves_nothing(fs, tmp_path):
    """Neither a part nor a name."""

    def refuse(done):
        raise OutputError("no")

    with pytest.raises(OutputError, match="no"):
        output.write([], _Nothing, "memory://out/x.txt", accept=refuse)
    capture = job(tmp_path / "in", 1)
    limit = traceconv.SizeLimit(max_events=200)
    with pytest.raises(StrictError):
        traceconv.merge(
            str(capture), out="memory://out/y.txt", mode="detail", strict=True, limit=limit
        )
    assert fs.find("/out") == []


class _Nothing:
    suffixes = (".txt",)


def test_what_is_there_is_not_overwritten(fs):
    """As with files here."""
    fs.pipe_file("/x.txt", b"old")
    with pytest.raises(OutputError, match=r"memory://x\.txt: exists; pass `force=True`"):
        output.check("memory://x.txt")


def test_parts_are_uploaded_under_their_numbers(fs, tmp_path):
    """A split output is several files, there too."""
    capture = job(tmp_path / "in", 1)
    limit = traceconv.SizeLimit(max_events=200, policy="split")
    traceconv.merge(str(capture), out="memory://x.pftrace", mode="detail", limit=limit)
    assert fs.find("/")[:2] == ["/x-001.pftrace", "/x-002.pftrace"]


def test_an_output_far_away_is_judged_like_any(fs, tmp_path):
    """``validate`` takes URLs."""
    capture = job(tmp_path / "in", 1)
    traceconv.merge(str(capture), out="memory://x.pftrace")
    verdict = traceconv.validate("memory://x.pftrace")
    assert (verdict.ok, verdict.path, verdict.counts["bytes"]) == (
        True,
        "memory://x.pftrace",
        fs.size("/x.pftrace"),
    )


def test_a_shard_is_no_url(fs, tmp_path):
    """Its files are mapped."""
    capture = job(tmp_path / "in", 2)
    with pytest.raises(OutputError, match="name one on disk"):
        traceconv.merge(str(capture), out="memory://x.shard", shard=(0, 2))


# -- secrets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (LOGIN_URL, "ftp://***@127.0.0.1:1/a.json"),
        (SIGNED_URL, "http://127.0.0.1:1/a.json?X-Signature=***&part=***"),
        ("https://token@host/x", "https://***@host/x"),
        ("https://host/x?token", "https://host/x?***"),
        ("s3://bucket/a@b/r?.json", "s3://bucket/a@b/r?.json"),
        ("abfs://c@account/x?sv=1&sig=abc#f", "abfs://***@account/x?sv=***&sig=***#f"),
    ],
)
def test_urls_are_told_without_secrets(url, told):
    """A place is told, what opens it is not."""
    assert redacted(url) == told


@pytest.mark.parametrize("url", [LOGIN_URL, SIGNED_URL])
def test_no_message_holds_a_secret(url):
    """Not even what the storage itself says."""
    pytest.importorskip("aiohttp")
    with pytest.raises(SourceError) as caught:
        _one(url).read("a.json")
    said = f"{caught.value} {caught.value.__cause__}"
    assert [s for s in (SECRET, "someone", "abcdef0123", "77777") if s in said] == []


def test_what_a_storage_says_is_cleared_of_secrets():
    """Also where it spells them another way."""
    place = Storage("memory://x?key=a%2Fb-secret")
    with pytest.raises(SourceError) as caught, place.guarded("x"):
        raise OSError("GET https://u:p@h/x?key=a%2Fb-secret failed; a/b-secret is wrong")
    assert str(caught.value) == (
        "x: the storage reports: GET https://***@h/x?key=*** failed; *** is wrong"
    )


@pytest.mark.parametrize("url", ["reference://x", "dir://x", "ftp://", "s3://"])
def test_file_systems_that_need_more_than_an_address(url):
    """The advice, and not the words of Python."""
    with pytest.raises(SourceError, match=r"needs more than an address; name the files") as caught:
        Storage(url)
    assert "__init__" not in str(caught.value)


def test_an_output_is_known_by_its_place_and_opened_by_its_url():
    """So is a part of it."""
    label = redact_url("sftp://me:pass/word@host/d/x.pftrace")
    assert (label, original_url("sftp://***@host/d/x-001.pftrace")) == (
        "sftp://***@host/d/x.pftrace",
        "sftp://me:pass/word@host/d/x-001.pftrace",
    )


@pytest.mark.parametrize("path", ["a/b.json", "/a://b", "C:\\x", "-", "x@y?z=1"])
def test_paths_are_no_urls(path):
    """They are shown as they are."""
    assert (is_url(path), redact_url(path)) == (False, path)


# -- a real server -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server():
    """An S3 server on this machine."""
    pytest.importorskip("s3fs")
    pytest.importorskip("moto")
    with s3_server() as address:
        yield address


@pytest.fixture
def s3(server, monkeypatch):
    """Its file system, with an empty bucket called ``bucket``."""
    import fsspec

    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fs = fsspec.filesystem("s3")
    fs.mkdir("bucket")
    yield fs
    fs.rm("bucket", recursive=True)


def test_s3_to_s3_gives_the_bytes_of_a_merge_here(s3, tmp_path):
    """Inputs and output in a bucket, ranks read by workers."""
    capture = job(tmp_path / "in", 2, 2000)
    put(s3, capture, "bucket/in")
    traceconv.merge("s3://bucket/in", out="s3://bucket/x.pftrace.gz", mode="detail", jobs=2)
    traceconv.merge(str(capture), out=str(tmp_path / "x.pftrace.gz"), mode="detail", jobs=1)
    assert gzip.decompress(s3.cat_file("bucket/x.pftrace.gz")) == content(tmp_path / "x.pftrace.gz")


def test_s3_heads_of_many_ranks_are_fetched_together(s3, tmp_path, monkeypatch):
    """Finding ranks takes a few journeys, not a few per rank."""
    put(s3, job(tmp_path / "in", 40, 60), "bucket/in")
    journeys = []
    for name in ("_fetch", "fetch_heads"):
        real = getattr(Storage, name)
        counted = lambda *args, real=real: (journeys.append(1), real(*args))[1]  # noqa: E731
        monkeypatch.setattr(Storage, name, counted)
    assert len(traceconv.open("s3://bucket/in").found) == 40
    assert len(journeys) == 4


def test_s3_uploads_of_many_parts_are_completed(s3, tmp_path, monkeypatch):
    """What is larger than one part of an upload arrives whole."""
    from traceconv.io.atomic import opened

    monkeypatch.setattr(type(s3), "default_block_size", 5 << 20)
    data = bytes(range(256)) * (12 << 12)
    with opened("s3://bucket/big") as file:
        for start in range(0, len(data), 1 << 20):
            file.write(data[start : start + (1 << 20)])
        file.finish()
        there = s3.exists("bucket/big")
        file.settle(force=False)
    s3.invalidate_cache()
    assert (there, s3.cat_file("bucket/big") == data) == (False, True)


def test_s3_keeps_nothing_of_an_upload_that_is_given_up(s3):
    """Neither an object nor parts that cost money."""
    from traceconv.io.atomic import opened

    with pytest.raises(OutputError), opened("s3://bucket/half") as file:
        file.write(bytes(60 << 20))
        raise OutputError("no")
    s3.invalidate_cache()
    assert (s3.find("bucket"), s3.list_multipart_uploads("bucket")) == ([], [])


def test_s3_without_the_bucket_is_an_error(s3, tmp_path):
    """Said with the name of the place."""
    capture = job(tmp_path / "in", 1)
    with pytest.raises(OutputError, match=r"s3://nowhere/x\.pftrace: cannot be written"):
        traceconv.merge(str(capture), out="s3://nowhere/x.pftrace")

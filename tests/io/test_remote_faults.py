"""An S3 server on this machine that fails: parts, answers that never come, other bytes later."""

import threading
import time

import pytest

pytest.importorskip("s3fs")
pytest.importorskip("moto")

import fsspec
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from traceconv.core.errors import OutputError, SourceError
from traceconv.io.atomic import opened
from traceconv.io.sources import sources

PART = 5 << 20
"""The least a part of an upload may have."""

DATA = bytes(range(256)) * (12 << 12)


class Faulty:
    """A server in front of which ``fault`` may act: it gets a request and may answer it."""

    def __init__(self):
        self._app = DomainDispatcherApplication(create_backend_app)
        self.fault, self.seen = None, []

    def __call__(self, environ, start_response):
        method, query = environ["REQUEST_METHOD"], environ["QUERY_STRING"]
        kind = f"{method} {'part' if 'partNumber' in query else ''}".strip()
        if method == "POST" and "uploadId" in query:
            kind = "complete"
        self.seen.append(kind)
        if self.fault is not None:
            answer = self.fault(kind, self.seen.count(kind))
            if answer == 500:
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                start_response("500 Internal Server Error", [("Content-Length", "0")])
                return [b""]
        return self._app(environ, start_response)


@pytest.fixture(scope="module")
def running():
    """The server, and its address."""
    app = Faulty()
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield app, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.fixture
def s3(running, monkeypatch):
    """The server and its file system, with an empty bucket called ``bucket``; one try, a second."""
    app, address = running
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "test")
    config = {"retries": {"max_attempts": 0}, "read_timeout": 0.5, "connect_timeout": 0.5}
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    options = {"endpoint_url": address, "config_kwargs": config}
    monkeypatch.setitem(fsspec.config.conf, "s3", options)
    fs = fsspec.filesystem("s3")
    monkeypatch.setattr(type(fs), "retries", 1)
    monkeypatch.setattr(type(fs), "default_block_size", PART)
    app.fault, app.seen = None, []
    fs.mkdir("bucket")
    yield app, fs
    app.fault = None
    fs.rm("bucket", recursive=True)


def _upload(data=DATA):
    with opened("s3://bucket/x") as file:
        for start in range(0, len(data), 1 << 20):
            file.write(data[start : start + (1 << 20)])
        file.finish()
        file.settle(force=False)


def _left(fs):
    fs.invalidate_cache()
    return fs.find("bucket"), fs.list_multipart_uploads("bucket")


def fails(what, first=1, last=1000):
    """A request of a kind fails, from the ``first`` to the ``last`` of them."""
    return lambda kind, number: 500 if kind == what and first <= number <= last else None


def hangs(what, seconds=1):
    """Requests of a kind are answered too late."""
    return lambda kind, number: time.sleep(seconds) if kind == what else None


@pytest.mark.parametrize(
    "fault",
    [fails("PUT part"), fails("PUT part", 2), hangs("PUT part"), fails("complete")],
    ids=["first part", "later part", "no answer", "completion"],
)
def test_an_upload_that_fails_leaves_nothing(s3, fault):
    """No object, and no parts that cost money; said with the name of the place."""
    app, fs = s3
    app.fault = fault
    with pytest.raises(OutputError, match=r"s3://bucket/x: cannot be written"):
        _upload()
    app.fault = None
    assert _left(fs) == ([], [])


def test_an_upload_after_a_failed_one_is_whole(s3):
    """What went wrong before is gone."""
    app, fs = s3
    app.fault = fails("PUT part", 2, 2)
    with pytest.raises(OutputError):
        _upload()
    _upload()
    assert fs.cat_file("bucket/x") == DATA


@pytest.mark.parametrize("fault", [fails("GET", 2), hangs("GET")], ids=["error", "no answer"])
def test_reading_that_fails_is_an_error_with_a_name(s3, fault):
    """In the middle of a file, too."""
    app, fs = s3
    fs.pipe_file("bucket/x.json", DATA)
    (source,) = sources(["s3://bucket/x.json"])
    app.fault, app.seen = fault, []
    with pytest.raises(SourceError, match=r"s3://bucket/x\.json: the storage reports"):
        source.read("x.json")


@pytest.mark.parametrize("size", [len(DATA), len(DATA) // 2], ids=["as long", "shorter"])
def test_other_bytes_later_are_an_error(s3, size):
    """Half a file of one run and half of another is no file, however long it is."""
    _, fs = s3
    fs.pipe_file("bucket/x.json", DATA)
    (source,) = sources(["s3://bucket/x.json"])
    with source.open("x.json") as stream:
        assert stream.read(1000) == DATA[:1000]
        fs.pipe_file("bucket/x.json", DATA[::-1][:size])
        with pytest.raises(SourceError, match=r"s3://bucket/x\.json: .*chang"):
            while stream.read(1 << 20):
                pass

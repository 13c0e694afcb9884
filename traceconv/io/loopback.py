"""One file for one page: given on the loopback interface until somebody has all of it.

The server knows one path, and one that leads to the viewer or has a report about the file. It
answers the page that it is for and nobody who comes by another name of this machine (a name of a
foreign site that was made to point here), and reads the file it opened, whatever happens to its
name.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from traceconv.core.errors import OutputError, SourceError

HOST = "127.0.0.1"
REPORT = "/"
"""Where the report is, or the way to the viewer; a file has a name."""

_CHUNK = 1 << 20


@contextmanager
def offered(path: Path, origin: str, port: int, report: bytes = b"") -> Iterator[Offer]:
    """``path``, to be had by pages of ``origin``.

    Args:
        port: of this machine; 0 for any that is free.
        report: a page about it, for people to look at.

    Raises:
        SourceError: it is no file that can be read.
        OutputError: the port is taken.
    """
    file = _opened(path)
    try:
        with _listening(file, path.name, origin, port, report) as server:
            yield server
    finally:
        os.close(file)


class Offer(ThreadingHTTPServer):
    """Gives one file to one origin, until it was taken.

    Attributes:
        taken: whether somebody got all of it.
        target: where the root leads to if there is no report; "" for nowhere.
        files: open on it, one for each connection, so that none outlives its own.
        sending: connections on which it is on its way.
    """

    daemon_threads = True
    allow_reuse_address = os.name == "posix"

    def __init__(self, file: int, name: str, origin: str, port: int, report: bytes) -> None:
        self.file, self.origin, self.report = file, origin, report
        self.path = "/" + quote(name, safe="")
        self.size = os.fstat(file).st_size
        self.taken, self.target = False, ""
        self.files: dict[Any, int] = {}
        self.sending: set[Any] = set()
        super().__init__((HOST, port), _Answer)

    @property
    def address(self) -> str:
        """Of the file."""
        return f"http://{HOST}:{self.server_address[1]}{self.path}"

    @property
    def report_address(self) -> str:
        """Of the report, or of what leads to the target."""
        return f"http://{HOST}:{self.server_address[1]}{REPORT}"

    def until_taken(self, wait_ns: int) -> None:
        """Answer until the file was taken.

        Args:
            wait_ns: how long nobody may ask for it.

        Raises:
            OutputError: nobody did.
        """
        self.timeout = 0.2
        last = time.monotonic_ns()
        while not self.taken:
            self.handle_request()
            now = time.monotonic_ns()
            if self.sending:
                last = now
            elif now - last > wait_ns and not self.taken:
                raise OutputError(
                    f"nobody asked for the trace within {wait_ns / 1e9:g} s; give the viewer "
                    "more time, or drag the file into it"
                )

    def process_request(self, request: Any, client_address: Any) -> None:
        self.files[request] = os.dup(self.file)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """The end of a connection, whatever became of it."""
        self.sending.discard(request)
        if (file := self.files.pop(request, None)) is not None:
            os.close(file)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who went away while being answered is no error of ours."""


class _Answer(BaseHTTPRequestHandler):
    """One request."""

    server: Offer
    server_version = "traceconv"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        if self._refused():
            return
        if self._is_report():
            self._head(HTTPStatus.OK, len(self.server.report))
            self.wfile.write(self.server.report)
        elif self._leads_on():
            self._head(HTTPStatus.FOUND, 0)
        elif self._head(HTTPStatus.OK, self.server.size):
            self.server.sending.add(self.request)
            self._send(self.server.files[self.request])

    def do_HEAD(self) -> None:
        if not self._refused():
            size = len(self.server.report) if self._is_report() else self.server.size
            leads_on = self._leads_on()
            self._head(HTTPStatus.FOUND if leads_on else HTTPStatus.OK, 0 if leads_on else size)

    def do_OPTIONS(self) -> None:
        """Browsers ask before a public page fetches from this machine."""
        if not self._refused():
            self._head(HTTPStatus.NO_CONTENT, 0)

    def _refused(self) -> bool:
        """Whether it is another file, another site, or a name that somebody made point here."""
        origin = self.headers.get("Origin", self.server.origin)
        hosts = {f"{host}:{self.server.server_address[1]}" for host in (HOST, "localhost")}
        if origin != self.server.origin or self.headers.get("Host") not in hosts:
            self._head(HTTPStatus.FORBIDDEN, 0)
        elif self.path != self.server.path and not (self._is_report() or self._leads_on()):
            self._head(HTTPStatus.NOT_FOUND, 0)
        else:
            return False
        return True

    def _is_report(self) -> bool:
        """What follows a question mark is for the script of the page."""
        return bool(self.server.report) and self.path.partition("?")[0] == REPORT

    def _leads_on(self) -> bool:
        """Short, where the link of the viewer has thousands of characters."""
        return bool(self.server.target) and self.path == REPORT

    def _head(self, status: HTTPStatus, length: int) -> bool:
        self.send_response(status)
        self.send_header("Access-Control-Allow-Origin", self.server.origin)
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD")
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.send_header("Vary", "Origin")
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if status is HTTPStatus.FOUND:
            self.send_header("Location", self.server.target)
        if status is not HTTPStatus.NO_CONTENT:
            kind = "text/html; charset=utf-8" if self._is_report() else "application/octet-stream"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(length))
        self.end_headers()
        return True

    def _send(self, file: int) -> None:
        place = 0
        while place < self.server.size:
            data = os.pread(file, min(_CHUNK, self.server.size - place), place)
            if not data:
                return  # the file became shorter; the reader sees that as well
            self.wfile.write(data)
            place += len(data)
        self.wfile.flush()
        self.server.taken = True

    def log_message(self, *_: object) -> None:
        """Nothing is said of requests."""


def _opened(path: Path) -> int:
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror}") from e
    kind = os.fstat(file)
    if stat.S_ISREG(kind.st_mode) and kind.st_size:
        return file
    os.close(file)
    if stat.S_ISDIR(kind.st_mode):
        raise SourceError(f"{path}: a folder, no trace")
    raise SourceError(f"{path}: empty" if stat.S_ISREG(kind.st_mode) else f"{path}: no file")


def _listening(file: int, name: str, origin: str, port: int, report: bytes) -> Offer:
    try:
        return Offer(file, name, origin, port, report)
    except OSError as e:
        raise OutputError(
            f"port {port} of this machine cannot be used ({e.strerror}), and the viewer asks no "
            "other: is another `traceconv open`, or trace_processor, running?"
        ) from e

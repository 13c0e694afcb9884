"""One file for one web page, served on the loopback interface until the page has all of it.

The server knows two addresses, both below a random path that only the link names: the file, and an
entry page for people, which redirects to the viewer or is a report about the file. Everybody else
gets nothing:

* other programs and other users do not know the path, and a connection from another user of this
  machine is refused where the system says whose it is (Linux);
* other sites are refused by ``Origin`` and ``Sec-Fetch-Site``, which browsers set and pages cannot;
* a foreign name that points to this machine is refused by ``Host``.

The file is read through the descriptor that was opened, whatever happens to its name.
"""

from __future__ import annotations

import os
import secrets
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

_CHUNK = 1 << 20
_CONNECTIONS = Path("/proc/net/tcp")


@contextmanager
def offered(path: Path, origin: str, port: int, report: bytes = b"") -> Iterator[Offer]:
    """Offer ``path`` to pages of ``origin``.

    Args:
        port: of this machine; 0 for any free port.
        report: an HTML page about the file, shown as the entry page.

    Raises:
        SourceError: ``path`` is not a readable file.
        OutputError: the port is taken.
    """
    file = _opened(path)
    try:
        try:
            server = Offer(file, path.name, origin, port, report)
        except OSError as e:
            raise OutputError(
                f"port {port} of this machine cannot be used ({e.strerror}), and the viewer "
                "accepts no other port; end the other `traceconv open` or trace_processor first"
            ) from e
        with server:
            yield server
    finally:
        os.close(file)


class Offer(ThreadingHTTPServer):
    """Serves one file to one origin until it was taken.

    Attributes:
        taken: whether the viewer's page received the whole file.
        target: where the entry page redirects to if there is no report; "" for nowhere.
        files: a descriptor per connection, so that none outlives its connection.
        sending: connections that are receiving the file.
    """

    daemon_threads = True
    allow_reuse_address = os.name == "posix"

    def __init__(self, file: int, name: str, origin: str, port: int, report: bytes) -> None:
        self.file, self.origin, self.report = file, origin, report
        self.entry = f"/{secrets.token_urlsafe(16)}/"
        self.path = self.entry + quote(name, safe="")
        self.size = os.fstat(file).st_size
        self.taken, self.target = False, ""
        self.files: dict[Any, int] = {}
        self.sending: set[Any] = set()
        super().__init__((HOST, port), _Answer)

    @property
    def address(self) -> str:
        """URL of the file."""
        return f"http://{HOST}:{self.server_address[1]}{self.path}"

    @property
    def entry_address(self) -> str:
        """URL of the entry page."""
        return f"http://{HOST}:{self.server_address[1]}{self.entry}"

    def until_taken(self, wait_ns: int) -> None:
        """Answer requests until the file was taken.

        Args:
            wait_ns: how long to wait without a request for it.

        Raises:
            OutputError: no page asked for it in this time.
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
                    f"the viewer did not ask for the trace within {wait_ns / 1e9:g} s; "
                    "give it more time, or drag the file into it"
                )

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether the connection is of this user, or the system does not say whose it is."""
        own = os.getuid() if hasattr(os, "getuid") else 0
        return peer_user(client_address[1], self.server_address[1]) in (None, 0, own)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.files[request] = os.dup(self.file)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Release what a connection holds, however it ended."""
        self.sending.discard(request)
        if (file := self.files.pop(request, None)) is not None:
            os.close(file)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away during an answer is not an error."""


def peer_user(client: int, server: int) -> int | None:
    """The user id of the other end of a loopback connection, None if the system does not say.

    Args:
        client, server: the two port numbers.
    """
    try:
        lines = _CONNECTIONS.read_text("ascii").splitlines()[1:]
    except (OSError, ValueError):
        return None
    # "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid ..."
    for line in lines:
        fields = line.split()
        ports = [int(address.rpartition(":")[2], 16) for address in fields[1:3]]
        if ports == [client, server]:
            return int(fields[7])
    return None


class _Answer(BaseHTTPRequestHandler):
    """One request."""

    server: Offer
    server_version = "traceconv"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        if self._refused():
            return
        if self._is_file():
            self._head(HTTPStatus.OK, self.server.size)
            self.server.sending.add(self.request)
            self._send(self.server.files[self.request])
        elif self.server.report:
            self._head(HTTPStatus.OK, len(self.server.report))
            self.wfile.write(self.server.report)
        else:
            self._head(HTTPStatus.FOUND, 0)

    def do_HEAD(self) -> None:
        if self._refused():
            return
        if self._is_file():
            self._head(HTTPStatus.OK, self.server.size)
        elif self.server.report:
            self._head(HTTPStatus.OK, len(self.server.report))
        else:
            self._head(HTTPStatus.FOUND, 0)

    def do_OPTIONS(self) -> None:
        """Browsers ask before a public page fetches from this machine."""
        if not self._refused():
            self._head(HTTPStatus.NO_CONTENT, 0)

    def _refused(self) -> bool:
        """Whether the request was answered with an error."""
        port = self.server.server_address[1]
        known = self.server.report or self.server.target
        path = self.path.partition("?")[0] if self.server.report else self.path  # for its script
        is_entry = known and secrets.compare_digest(path.encode(), self.server.entry.encode())
        origin, site = self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site", "none")
        if self.headers.get("Host") not in (f"{HOST}:{port}", f"localhost:{port}"):
            status = HTTPStatus.FORBIDDEN
        elif self._is_file():  # a page fetches it, and says where the page is from
            status = HTTPStatus.OK if origin == self.server.origin else HTTPStatus.FORBIDDEN
        elif is_entry:  # a person opens it
            opened = origin is None and site in ("none", "same-origin")
            status = HTTPStatus.OK if opened else HTTPStatus.FORBIDDEN
        else:
            status = HTTPStatus.NOT_FOUND
        if status is not HTTPStatus.OK:
            self._head(status, 0)
        return status is not HTTPStatus.OK

    def _is_file(self) -> bool:
        return secrets.compare_digest(self.path.encode(), self.server.path.encode())

    def _head(self, status: HTTPStatus, length: int) -> None:
        self.send_response(status)
        self.send_header("Access-Control-Allow-Origin", self.server.origin)
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD")
        self.send_header("Access-Control-Allow-Private-Network", "true")
        self.send_header("Vary", "Origin")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        if status is HTTPStatus.FOUND:
            self.send_header("Location", self.server.target)
        if status is not HTTPStatus.NO_CONTENT:
            page = not self._is_file()
            kind = "text/html; charset=utf-8" if page else "application/octet-stream"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(length))
        self.end_headers()

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
        """Requests are not logged."""


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
        raise SourceError(f"{path} is a folder, not a trace")
    if stat.S_ISREG(kind.st_mode):
        raise SourceError(f"{path}: empty")
    raise SourceError(f"{path} is not a regular file")

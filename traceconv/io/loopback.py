"""Servers on the loopback interface, for the browser of the same user only.

* Addresses lie below a random path that only the link names, so other programs and users do not
  know them. A connection from another user of this machine is refused where the system says whose
  it is (Linux).
* No more than :data:`CONNECTIONS` are open. One more closes the oldest without a request.
* Other sites are refused by ``Origin`` and ``Sec-Fetch-Site``, which browsers set and pages cannot.
* A foreign name that points to this machine is refused by ``Host``.

:class:`Server` and :class:`Request` do this for every server. :class:`Offer` is the one behind
``traceconv open``: one file for one web page, until the page has all of it, and an entry page for
people, which redirects to the viewer or is a report about the file. The file is read through the
descriptor that was opened, whatever happens to its name.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from traceconv.core.errors import OutputError, SourceError
from traceconv.io.streams import open_regular

HOST = "127.0.0.1"

CONNECTIONS = 64
"""Open at a time. Browsers open six."""

CHUNK = 1 << 20
"""Bytes of a file that are sent at a time."""

_ALWAYS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""The connections of this machine. Those of sockets for both versions of IP are in the second."""

_MAPPED = "0000000000000000FFFF0000"
"""The beginning of an IPv4 address in the second table."""


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
    try:
        file = open_regular(path)
    except OSError as e:
        raise SourceError(f"{path}: {e.strerror}") from e
    with file:
        if not os.fstat(file.fileno()).st_size:
            raise SourceError(f"{path}: empty")
        try:
            server = Offer(file.fileno(), path.name, origin, port, report)
        except OSError as e:
            raise OutputError(
                f"port {port} of this machine cannot be used ({e.strerror}), and the viewer "
                "accepts no other port; end the other `traceconv open` or trace_processor first"
            ) from e
        with server:
            yield server


def secret() -> str:
    """A part of a path that cannot be guessed."""
    return secrets.token_urlsafe(16)


def same(text: str, other: str) -> bool:
    """Whether two texts are equal, in a time that does not tell where they differ."""
    return secrets.compare_digest(text.encode(), other.encode())


class _Threaded(ThreadingHTTPServer):
    """Answers each request in a thread, which does not outlive the program.

    Attributes:
        waiting: open connections without a request so far, the oldest first.
        served:  open connections.
    """

    daemon_threads = True
    allow_reuse_address = os.name == "posix"

    def __init__(self, address: tuple[str, int], answers: type[Request]) -> None:
        self.waiting: dict[Any, None] = {}
        self.served: set[Any] = set()
        super().__init__(address, answers)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self.served) >= CONNECTIONS:
            oldest = next(iter(list(self.waiting)), request)
            self.waiting.pop(oldest, None)
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)  # its thread closes it
        self.served.add(request)
        self.waiting[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.waiting.pop(request, None)
        self.served.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away during an answer is not an error."""


class Server(_Threaded):
    """Answers the user who started it.

    Attributes:
        entry: the random path below which its addresses lie.
    """

    def __init__(self, port: int, answers: type[Request], host: str = HOST) -> None:
        self.entry = f"/{secret()}/"
        super().__init__((host, port), answers)

    @property
    def entry_address(self) -> str:
        """URL of the entry page."""
        return f"http://{HOST}:{self.server_address[1]}{self.entry}"

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether the connection is of this user, or the system does not say whose it is."""
        user = os.getuid() if hasattr(os, "getuid") else 0
        return peer_user(client_address, request.getsockname()) in (None, 0, user)


class Request(BaseHTTPRequestHandler):
    """One request to a :class:`Server`."""

    server: Server
    server_version = "traceconv"
    sys_version = ""
    timeout = 60

    @property
    def to_this_machine(self) -> bool:
        """Whether the request names this machine, not a foreign name that points to it."""
        port = self.server.server_address[1]
        return self.headers.get("Host") in (f"{HOST}:{port}", f"localhost:{port}")

    @property
    def by_a_person(self) -> bool:
        """Whether a person opened the address, not a page of another site."""
        site = self.headers.get("Sec-Fetch-Site", "none")
        return self.headers.get("Origin") is None and site in ("none", "same-origin")

    def parse_request(self) -> bool:
        is_whole = super().parse_request()  # with its headers: a client may never end them
        self.server.waiting.pop(self.request, None)
        return is_whole

    @property
    def is_gone(self) -> bool:
        """Whether the client has closed the connection."""
        self.connection.setblocking(False)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.connection.settimeout(self.timeout)

    def is_path(self, path: str) -> bool:
        """Whether the request is for this address."""
        return same(self.path, path)

    def head(
        self, status: HTTPStatus, length: int, kind: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """The status and the headers of an answer.

        Args:
            length: of the content, bytes.
            kind:   its media type.
            headers:   other headers.
        """
        self.send_response(status)
        for name, value in (*_ALWAYS.items(), *(headers or {}).items()):
            self.send_header(name, value)
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""


class Offer(Server):
    """Serves one file to one origin until it was taken.

    Attributes:
        taken: whether the viewer's page received the whole file.
        target: where the entry page redirects to if there is no report; "" for nowhere.
        files: a descriptor per connection, so that none outlives its connection.
        sending: connections that are receiving the file.
    """

    def __init__(self, file: int, name: str, origin: str, port: int, report: bytes) -> None:
        self.file, self.origin, self.report = file, origin, report
        self.size = os.fstat(file).st_size
        self.taken, self.target = False, ""
        self.files: dict[Any, int] = {}
        self.sending: set[Any] = set()
        super().__init__(port, _Answer)
        self.path = self.entry + quote(name, safe="")

    @property
    def address(self) -> str:
        """URL of the file."""
        return f"http://{HOST}:{self.server_address[1]}{self.path}"

    def until_taken(self, wait_ns: int) -> None:
        """Answer requests until the file was taken.

        Args:
            wait_ns: how long to wait without a request for it.

        Raises:
            OutputError: no page asked for it in this time.
        """
        self.timeout = 0.2
        last_ns = time.monotonic_ns()
        while not self.taken:
            self.handle_request()
            now = time.monotonic_ns()
            if self.sending:
                last_ns = now
            elif now - last_ns > wait_ns and not self.taken:
                raise OutputError(
                    f"the viewer did not ask for the trace within {wait_ns / 1e9:g} s; "
                    "give it more time, or drag the file into it"
                )

    def process_request(self, request: Any, client_address: Any) -> None:
        self.files[request] = os.dup(self.file)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Release what a connection holds, however it ended."""
        self.sending.discard(request)
        if (file := self.files.pop(request, None)) is not None:
            os.close(file)
        super().shutdown_request(request)


class Page(_Threaded):
    """Serves one public page to every program that reaches its address; on the loopback interface
    not under a foreign name.

    Attributes:
        content: called for the content whenever the page is asked for.
    """

    def __init__(
        self, host: str, port: int, path: str, kind: str, content: Callable[[], bytes]
    ) -> None:
        self.path, self.kind, self.content = path, kind, content
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.local = _is_loopback(host)
        super().__init__((host, port), _PageRequest)

    @property
    def address(self) -> str:
        """URL of the page."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{self.path}"


class _PageRequest(Request):
    """One request for a public page."""

    server: Page  # type: ignore[assignment]

    def do_GET(self) -> None:
        host = self.headers.get("Host", "").rpartition(":")[0].strip("[]")
        if self.server.local and not _is_loopback(host):
            self.head(HTTPStatus.FORBIDDEN, 0, self.server.kind)
        elif self.path.partition("?")[0] != self.server.path:
            self.head(HTTPStatus.NOT_FOUND, 0, self.server.kind)
        else:
            content = self.server.content()
            self.head(HTTPStatus.OK, len(content), self.server.kind)
            self.wfile.write(content)


def for_viewer(origin: str) -> dict[str, str]:
    """The headers by which a browser lets pages of ``origin``, and no others, fetch an answer."""
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": "GET, HEAD",
        "Access-Control-Allow-Private-Network": "true",
        "Vary": "Origin",
    }


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def peer_user(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The user id of the other end of an IPv4 connection within this machine.

    Args:
        client, server: the addresses of its ends.

    Returns:
        -1 if the system lists this end alone; None if it lists none.
    """
    ends = [  # as the tables of connections write them
        f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
        for host, port in (client, server)
    ]
    listed = False
    for table in _TABLES:
        try:
            lines = table.read_text("ascii").splitlines()[1:]
        except (OSError, ValueError):
            continue
        # "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid ..."
        for fields in map(str.split, lines):
            row = [address.removeprefix(_MAPPED) for address in fields[1:3]]
            if row == ends:
                return int(fields[7])
            listed = listed or row == ends[::-1]
    return -1 if listed else None


class _Answer(Request):
    """One request for the file or the entry page."""

    server: Offer

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
        entry_exists = self.server.report or self.server.target
        path = self.path.partition("?")[0] if self.server.report else self.path  # for its script
        is_entry = entry_exists and same(path, self.server.entry)
        if not self.to_this_machine:
            status = HTTPStatus.FORBIDDEN
        elif self._is_file():  # a page fetches it, and says where the page is from
            is_own_page = self.headers.get("Origin") == self.server.origin
            status = HTTPStatus.OK if is_own_page else HTTPStatus.FORBIDDEN
        elif is_entry:
            status = HTTPStatus.OK if self.by_a_person else HTTPStatus.FORBIDDEN
        else:
            status = HTTPStatus.NOT_FOUND
        if status is not HTTPStatus.OK:
            self._head(status, 0)
        return status is not HTTPStatus.OK

    def _is_file(self) -> bool:
        return self.is_path(self.server.path)

    def _head(self, status: HTTPStatus, length: int) -> None:
        kind = "application/octet-stream" if self._is_file() else "text/html; charset=utf-8"
        target = {"Location": self.server.target} if status is HTTPStatus.FOUND else {}
        self.head(status, length, kind, {**for_viewer(self.server.origin), **target})

    def _send(self, file: int) -> None:
        offset = 0
        while offset < self.server.size:
            data = _read_at(file, min(CHUNK, self.server.size - offset), offset)
            if not data:
                return  # the file became shorter; the reader sees that as well
            self.wfile.write(data)
            offset += len(data)
        self.wfile.flush()
        self.server.taken = True


def _read_at(file: int, size: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(file, size, offset)
    os.lseek(file, offset, os.SEEK_SET)  # Windows
    return os.read(file, size)

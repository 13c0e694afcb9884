"""``traceconv explore``: a page about a run, served to the browser of this user.

The page is in ``explorer/`` and shows the JSON documents of the command line. A window of the trace
is merged on demand, and the viewer fetches it from this machine.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from http import HTTPStatus
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlsplit

import click

from traceconv.cli import completion, options, say
from traceconv.cli import open as opening
from traceconv.core.codes import Severity
from traceconv.core.errors import OptionError, OutputError, TraceconvError
from traceconv.io import loopback
from traceconv.scratch.temporary import TemporaryFolder

if TYPE_CHECKING:
    from traceconv import Exploration
    from traceconv.options.values import Progress

PAGE = Path(__file__).with_name("explorer")

_JSON = "application/json"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FILES = {
    "": "index.html",
    **{n: n for n in ("app.js", "map.js", "htm-preact.mjs", "style.css", "icon.svg")},
}
"""The files of the page by their address."""

_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_REPORT_POLICY = "frame-ancestors 'self'"
"""Reports bring their policy, which allows the one script in them."""

MOST_FIELDS = 100
"""Fields in the query of an address; the page sends one per change of a what-if."""

WINDOWS_KEPT = 8
"""Traces of windows that are on the disk at a time."""


class Explorer(loopback.Server):
    """Serves the page of one run, or of two side by side.

    Attributes:
        viewer: the address of the viewer that windows are opened in.
        traces: by address, the traces of windows; below a path of their own, for the viewer learns
            their addresses.
        documents: of the runs that can be shown, by their path.
        reading: how far reading the runs is: bytes, bytes in total, and what is done.
        was_read: set once all runs are read.
        no_windows: why the viewer cannot fetch windows from here; "" if it can.
    """

    def __init__(
        self, runs: Sequence[Exploration], compared: Callable[[], Any], viewer: str, port: int
    ) -> None:
        self.runs, self.compared, self.viewer = runs, cache(compared), viewer
        address = urlsplit(viewer)
        self.viewer_origin = f"{address.scheme}://{address.netloc}"
        self.traces: dict[str, Path] = {}
        self.busy = Lock()
        self.folder = TemporaryFolder()
        self._count = 0
        super().__init__(port, _Answer)
        self.trace_entry = f"/{loopback.secret()}/"
        self.documents: dict[str, bytes] = {}
        self.reading = (0, 0, "")
        self.was_read = Event()
        self.no_windows = ""

    @property
    def origin(self) -> str:
        return f"http://{loopback.HOST}:{self.server_address[1]}"

    def read(self, progress: Progress) -> None:
        """Read the runs, while the page is served. Of files that were explored before it shows at
        once what is kept.

        Raises:
            TraceconvError: see :func:`traceconv.explore`.
        """

        def heard(done: int, total: int, label: str) -> None:
            before = self.reading[0] if label == self.reading[2] else 0
            self.reading = before + done, total, label
            progress(done, total, label)

        for run in self.runs:
            if kept := run.kept():
                self.documents[run.path] = _json(kept)
        for run in self.runs:
            run.read(heard)
            self.documents.setdefault(run.path, _json(run.as_dict()))
        self.was_read.set()

    def about(self) -> dict[str, Any]:
        """How many runs there are, whether all can be shown, and how far reading them is."""
        done, total, label = self.reading
        return {
            "runs": len(self.runs),
            "is_shown": all(run.path in self.documents for run in self.runs),
            "is_read": self.was_read.is_set(),
            "reading": {"done": done, "total": total, "what": label},
        }

    def window(self, run: Exploration, ranks: str, steps: str) -> dict[str, Any]:
        """Make the trace of some steps of some ranks; where the viewer shows it, and what is
        missing in it or in doubt.

        Raises:
            TraceconvError: see :func:`traceconv.merge`; the viewer cannot fetch it.
        """
        if self.no_windows:
            raise OutputError(self.no_windows)
        self._count += 1
        name = f"ranks{ranks}-steps{steps}-{self._count}.pftrace"
        path = Path(self.folder.name) / f"{self._count}.pftrace"
        report = run.window(ranks, steps, str(path))
        address = self.trace_entry + quote(name, safe="")
        self.traces[address] = path
        for old in list(self.traces)[:-WINDOWS_KEPT]:
            with suppress(OSError):
                self.traces.pop(old).unlink()
        view = opening.view_of(report, by_rank=True)
        link = opening.link(self.viewer, f"{self.origin}{address}", view)
        found = say.issue_lines(report.issues, say.ISSUE_LINES)
        lost = [line for line, severity in found if severity is not Severity.INFO]
        return {"link": link, "bytes": path.stat().st_size, "lost": lost}

    @contextmanager
    def serving(self) -> Iterator[Thread]:
        """Answer requests in a thread for as long as the context lasts."""
        thread = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield thread
        finally:
            self.shutdown()
            thread.join()

    def server_close(self) -> None:
        super().server_close()
        self.folder.cleanup()


class _Answer(loopback.Request):
    """One request for the page, a document of it, or a trace."""

    server: Explorer

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if not self.to_this_machine:
            self._say(HTTPStatus.FORBIDDEN)
        elif path in self.server.traces:
            self._trace(self.server.traces[path])
        elif not loopback.same(path[: len(self.server.entry)], self.server.entry):
            self._say(HTTPStatus.NOT_FOUND)
        elif not (self.by_a_person or self._by_the_page()):
            self._say(HTTPStatus.FORBIDDEN)
        else:
            try:
                fields = parse_qs(query, max_num_fields=MOST_FIELDS)
            except ValueError:  # too many
                return self._say(HTTPStatus.BAD_REQUEST)
            self._page(path[len(self.server.entry) :], fields)
        return None

    do_HEAD = do_GET

    def do_OPTIONS(self) -> None:
        """Browsers ask before a public page fetches from this machine."""
        is_known = self.to_this_machine and self.path in self.server.traces
        status = HTTPStatus.NO_CONTENT if is_known else HTTPStatus.NOT_FOUND
        self.head(status, 0, _JSON, loopback.for_viewer(self.server.viewer_origin))

    def _by_the_page(self) -> bool:
        site = self.headers.get("Sec-Fetch-Site", "same-origin")
        return self.headers.get("Origin") == self.server.origin and site == "same-origin"

    def _trace(self, path: Path) -> None:
        if self.headers.get("Origin") != self.server.viewer_origin:
            return self._say(HTTPStatus.FORBIDDEN)
        try:
            file = path.open("rb")
        except OSError:
            return self._say(HTTPStatus.NOT_FOUND)
        with file:
            allowed = loopback.for_viewer(self.server.viewer_origin)
            size = os.fstat(file.fileno()).st_size
            self.head(HTTPStatus.OK, size, "application/octet-stream", allowed)
            if self.command == "GET":  # in pieces: the time limit is that of a piece
                shutil.copyfileobj(file, self.wfile, loopback.CHUNK)
        return None

    def _page(self, name: str, query: Mapping[str, list[str]]) -> None:
        if name in _FILES:
            file = PAGE / _FILES[name]
            policy = {"Content-Security-Policy": _PAGE_POLICY}
            return self._say(HTTPStatus.OK, file.read_bytes(), _KINDS[file.suffix], policy)
        kind, _, number = name.partition("/")
        make = _DOCUMENTS.get(kind)
        run = {str(i): exploration for i, exploration in enumerate(self.server.runs)}.get(number)
        if make is None or run is None:
            return self._say(HTTPStatus.NOT_FOUND)
        first_values = {key: values[0] for key, values in query.items()}
        fields = {"ranks": "all", "steps": "all", **first_values, "change": query.get("change", [])}
        if kind not in _AT_ONCE or (kind == "window" and run.given.get("mem_limit")):
            while not self.server.was_read.wait(1):  # memory is limited once in a process
                if self.is_gone:
                    return None
        try:
            with nullcontext() if kind in ("about", "run") else self.server.busy:
                answer = make(self.server, run, fields)
        except TraceconvError as e:
            message = _json({"error": say.with_flags(str(e))})
            return self._say(HTTPStatus.UNPROCESSABLE_ENTITY, message, _JSON)
        if isinstance(answer, str):
            policy = {"Content-Security-Policy": _REPORT_POLICY}
            return self._say(HTTPStatus.OK, answer.encode(), _KINDS[".html"], policy)
        content = answer if isinstance(answer, bytes) else _json(answer)
        return self._say(HTTPStatus.OK, content, _JSON)

    def _say(
        self,
        status: HTTPStatus,
        content: bytes = b"",
        kind: str = "text/plain",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.head(status, len(content), kind, {"X-Frame-Options": "SAMEORIGIN", **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(content)


def _json(document: Mapping[str, Any]) -> bytes:
    from traceconv.core.json_text import encoded

    return encoded(say.flagged(document))


_AT_ONCE = ("about", "run", "window")
"""Documents that do not wait until the runs are read."""

_DOCUMENTS: Mapping[str, Callable[[Explorer, Exploration, Mapping[str, Any]], Any]] = {
    "about": lambda server, run, asked: server.about(),
    "run": lambda server, run, asked: server.documents.get(run.path, b"null"),
    "diagnosis": lambda server, run, asked: run.diagnosis.as_dict(),
    "what-if": lambda server, run, asked: run.what_if(asked["change"]),
    "window": lambda server, run, asked: server.window(run, asked["ranks"], asked["steps"]),
    "report": lambda server, run, asked: run.report(asked["ranks"], asked["steps"]),
    "diff": lambda server, run, asked: server.compared().as_dict(),
    "diff-report": lambda server, run, asked: server.compared().html_text(),
}
"""JSON documents and pages of HTML, by the first part of their address; the second is the number of
the run."""


@click.command(cls=options.Command, short_help="Explore a run in the browser.")
@click.argument("paths", nargs=-1, metavar="[RUN] [OTHER]", shell_complete=completion.files)
@options.of("explore")
@options.option(
    "--no-browser", is_flag=True, section="Viewer",
    help="Print the link instead of opening a browser.",
)  # fmt: skip
@options.option(
    "--ui", "viewer", metavar="URL", default=opening.VIEWER, section="Viewer",
    callback=options.parsed(opening.viewer_of),
    help=f"The viewer, if you host one yourself.  [default: {opening.VIEWER}]",
)  # fmt: skip
@options.as_json
@options.chatter
def explore(
    paths: tuple[str, ...],
    no_browser: bool,
    viewer: str,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **arguments: Any,
) -> None:
    """Explore the run in RUN (default: here) on a local page, or two runs side by side.

    The page has a map of ranks and steps, the findings, sliders for what-if, and opens any window
    in ui.perfetto.dev. It is served to this user of this machine until Ctrl-C. Nothing is uploaded.

    \b
    traceconv explore ./prof
    traceconv explore ./monday ./tuesday --no-browser
    """
    from traceconv import diff
    from traceconv.api.explore import found_run

    if len(paths) > 2:
        raise OptionError("at most two runs can be explored side by side", "paths")
    chosen = options.given(arguments)
    runs = [found_run(path, chosen) for path in paths or (".",)]
    if as_json:
        with say.bar(quiet=quiet) as progress:
            for run in runs:
                if run.kept() is None:
                    run.read(progress)
        for run in runs:
            say.document(run.as_dict())
        return

    def compared() -> Any:
        if len(runs) < 2:
            raise OptionError("there is one run only", "paths")
        return diff(*(run.path for run in runs), jobs=1, force_compare=True)

    try:
        server = Explorer(runs, compared, viewer, opening.PORT)
    except OSError as e:  # another user of this machine may have the port
        server = Explorer(runs, compared, viewer, 0)
        server.no_windows = (
            f"windows cannot be opened in Perfetto: that needs port {opening.PORT} of this machine "
            f"({e.strerror}); all else works, and `traceconv merge` writes a window to a file"
        )
        if not quiet:
            say.message(server.no_windows)
    with server, server.serving() as thread:
        if no_browser or not opening.browse(server.entry_address):
            say.data(server.entry_address)
            sys.stdout.flush()
            opening.advise(server.server_port, quiet, stays=True)
        with say.bar(quiet=quiet) as progress:
            server.read(progress)
        for run in runs:
            say.show_issues(run.diagnosis.issues, quiet, verbose)
        with suppress(KeyboardInterrupt):
            while thread.is_alive():
                thread.join(0.2)  # Ctrl-C is handled between

"""``traceconv open``: a trace in the viewer, with one command.

ui.perfetto.dev may fetch from ``http://127.0.0.1:9001`` and from no other port of this machine (its
Content-Security-Policy). The link has the address of the trace, commands that the viewer runs once
it has loaded it - of the set that it keeps stable for automation -, and the part of the time line
to show. https://perfetto.dev/docs/visualization/commands-automation-reference and
https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui describe them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import click

from traceconv.cli import completion, options, say
from traceconv.core.errors import OptionError, OutputError, SourceError, TraceconvError
from traceconv.options import values

if TYPE_CHECKING:
    from traceconv import Report

PORT = 9001
VIEWER = "https://ui.perfetto.dev"

LOOKED_AT = 2 << 20
"""Of larger files only the ranks are looked up: where steps are takes a second a MB."""

FEW = 4
"""Most ranks whose streams and communication are opened as well."""

PINNED = 12
"""More ranks than this would leave no room for what is not pinned."""

ORDERED = 64
"""More ranks than this would make the link longer than some programs pass on."""

_EXPANDED = (
    r"^(Rank \d+|Timeline$|All ranks$|Findings|Step Trace|Overlap Analysis|[CGNT]PU \d+$"
    r"|Computing$|Communication|Free$)"
)
"""Rows that are opened; the last ones are groups where each lane of all ranks is one."""

_OF_FEW = r"|Hardware|[A-Z]+CCL\b"
"""More rows, where there is room for them."""

_STEPS = (
    "SELECT ts, dur, name, rank FROM"
    " (SELECT ts, dur, s.name, CAST(SUBSTR(p.name, 6) AS INT) AS rank,"
    " MAX(ts + dur) OVER (PARTITION BY upid ORDER BY ts, dur DESC"
    " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until FROM slice s JOIN"
    " (SELECT id, upid, name FROM process_track UNION ALL SELECT t.id, upid, h.name"
    " FROM thread_track t JOIN thread h USING (utid)) l ON l.id = track_id"
    " JOIN process p USING (upid) WHERE s.depth = 0 AND p.name GLOB 'Rank [0-9]*'"
    " AND s.name != 'Whole range' AND"
    " (l.name GLOB 'Step Trace*' OR l.name GLOB 'iterations*' OR l.name GLOB 'Model [0-9]*'))"
    " WHERE until IS NULL OR ts + dur > until"
)
"""The steps of all ranks, without what is inside one: of rows of processes, as Perfetto traces have
them, and of threads, as Chrome JSON has."""

# -- the link -----------------------------------------------------------------------------


class View(NamedTuple):
    """What of a trace is shown, and where.

    Attributes:
        ranks:  those whose rows are to stand in order; none where they do anyway.
        pinned: whether there are steps of the ranks, and room to pin them.
        window: from the first to the last step, ns of the trace; None where no steps are marked.
        few:    whether there is room for the streams of all ranks.
    """

    ranks: Sequence[int] = ()
    pinned: bool = False
    window: tuple[int, int] | None = None
    few: bool = False


def link(viewer: str, address: str, view: View) -> str:
    """The address at which ``viewer`` fetches the trace and shows its steps.

    Args:
        viewer:  its own address, without a path of the trace.
        address: of the trace.
    """
    import json

    # Viewers that do not read the order of processes in the trace have the one with most slices
    # first; a workspace keeps ranks in the order in which commands add them.
    commands = [
        ("CopyTracksToWorkspaceByRegex", [rf"^Rank {rank}\b", "Ranks"]) for rank in view.ranks
    ]
    if commands:
        commands.append(("SwitchWorkspace", ["Ranks"]))
    commands.append(("ExpandTracksByRegex", [_EXPANDED + _OF_FEW * view.few]))
    if view.pinned:
        # Pinned tracks do not name their rank; tracks made from a query do.
        commands.append(("AddDebugSliceTrackWithPivot", [_STEPS, "rank", "Steps"]))
    query = {
        "url": address,
        "startupCommands": json.dumps(
            [{"id": f"dev.perfetto.{name}", "args": args} for name, args in commands],
            separators=(",", ":"),
        ),
    }
    if view.window:
        query["visStart"], query["visEnd"] = map(str, view.window)
    return f"{viewer}/#!/?{urlencode(query, safe=':/', quote_via=quote)}"


def _view(
    ranks: Sequence[int], with_steps: int, first_ns: int | None = None, last_ns: int | None = None
) -> View:
    """The view of a trace with these ranks, some with steps, from the first to the last instant."""
    window = (
        (first_ns, last_ns)
        if first_ns is not None and last_ns is not None and first_ns < last_ns
        else None
    )
    ordered = sorted(ranks) if 1 < len(ranks) <= ORDERED else ()
    return View(ordered, 0 < with_steps <= PINNED, window, 1 < len(ranks) <= FEW)


def view_of(report: Report, by_rank: bool) -> View:
    """The view of the output of a merge.

    Args:
        by_rank: ranks are groups; in the other layout the steps of all ranks are on top anyway.
    """
    bundled = any(str(output_file.path).endswith(".tar") for output_file in report.written)
    ranks = list(report.found) if by_rank and not bundled else []
    accounts = [account for account in report.found.values() if account.span]
    steps = [account.steps for account in accounts if account.steps.marked.any()]
    if not steps:
        return _view(ranks, 0)
    base_ns = min(account.span[0] for account in accounts if account.span)
    last_ns = max(account.span[1] for account in accounts if account.span)
    first_ns = max(min(int(table.start_ns.min()) for table in steps), base_ns)
    end_ns = min(max(int(table.end_ns.max()) for table in steps), last_ns)
    return _view(ranks, len(steps) if by_rank else 0, first_ns - base_ns, end_ns - base_ns)


def view_in(path: Path) -> View:
    """The view of a file: of a large one the ranks only; an empty one if it cannot be read as a
    trace."""
    import numpy as np

    import traceconv
    from traceconv.core.model import Layer
    from traceconv.writers.perfetto.tracks import ALL_RANKS

    large = path.stat().st_size > LOOKED_AT
    try:
        captures = traceconv.open(path)
        by_rank = not any(
            ALL_RANKS.encode() in capture.source.head(capture.files[0])
            for capture in captures.found
        )
        if large:
            known_ranks = [capture.rank for capture in captures.found if capture.rank is not None]
            return _view(known_ranks, len(known_ranks)) if by_rank else View()
        traces = list(captures.traces())
    except TraceconvError:
        return View()
    spans = []
    for trace in traces:
        rows = np.flatnonzero(trace.rows_of(Layer.STEP))
        if len(rows) and trace.hints.made_steps != "whole":
            # files of traceconv count from the first event of their run
            start = trace.events.start_ns[rows] - getattr(trace.capture.detail, "base_ns", 0)
            spans.append((int(start.min()), int((start + trace.events.dur_ns[rows]).max())))
    ranks = [trace.rank for trace in traces] if by_rank else []
    if not spans:
        return _view(ranks, 0)
    pinned = len(spans) if by_rank else 0
    return _view(ranks, pinned, min(a for a, _ in spans), max(b for _, b in spans))


# -- the command --------------------------------------------------------------------------


def show(
    path: Path,
    viewer: str,
    browser: bool,
    wait_ns: int,
    quiet: bool,
    view: View | None = None,
    report: Path | None = None,
) -> None:
    """Serve ``path`` until the viewer has it; with a report, until Ctrl-C.

    Args:
        viewer:  address of the viewer.
        browser: whether to open one; the link is on stdout else.
        wait_ns: how long nobody may ask for it.
        view:    of the trace; None to look into it.
        report:  a page about the trace; it is opened, and its places lead into the viewer.

    Raises:
        SourceError: it is no file that can be read.
        OutputError: the port is taken, or nobody came.
    """
    from traceconv.io import loopback

    address = urlsplit(viewer)
    page = _page(report) if report else b""
    with loopback.offered(path, f"{address.scheme}://{address.netloc}", PORT, page) as offer:
        if report:
            query = {"trace": offer.address, "viewer": viewer}
            target = f"{offer.entry_address}?{urlencode(query, safe=':/', quote_via=quote)}"
        else:
            offer.target = link(viewer, offer.address, view_in(path) if view is None else view)
            target = offer.entry_address
        if not browser or not browse(target):
            say.data(target)
            sys.stdout.flush()
            advise(offer.server_port, quiet, bool(report))
        try:
            if report:
                offer.serve_forever(poll_interval=0.2)
            offer.until_taken(wait_ns)
        except KeyboardInterrupt:
            if report:
                return
            say.message(f"interrupted; the viewer did not fetch {path}, which is unchanged")
            click.get_current_context().exit(130)
    if not quiet:
        say.message(f"{path}: the viewer has it; it stays in the memory of the browser")


def browse(target: str) -> bool:
    """Whether a browser with a window was started on ``target``."""
    import webbrowser

    if sys.platform.startswith("linux") and not (
        {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & set(os.environ)
    ):
        return False
    try:
        return webbrowser.open_new_tab(target)
    except webbrowser.Error:
        return False


def _page(report: Path) -> bytes:
    """A page that this program made.

    Raises:
        SourceError: it is none, or cannot be read: the places of another page lead nowhere.
    """
    try:
        content = report.read_bytes()
    except OSError as e:
        raise SourceError(f"{report}: {e.strerror}") from e
    if b'<meta name="generator" content="traceconv ' not in content[:4096]:
        raise SourceError(
            f"{report}: not a report of traceconv; `traceconv merge --report FILE.html` makes one"
        )
    return content


def advise(port: int, quiet: bool, stays: bool) -> None:
    """Say what the link is for, unless ``quiet``."""
    if quiet:
        return
    until = "it is there until Ctrl-C" if stays else "waiting for it. Ctrl-C ends"
    say.message(f"Open this link in a browser on this machine; {until}.")
    if "SSH_CONNECTION" in os.environ:
        say.message(f"From where you sit: ssh -L {port}:127.0.0.1:{port} and this machine.")


def viewer_of(value: str, option: str) -> str:
    """The address of a viewer, as a browser would call its origin and path.

    Raises:
        OptionError: it is none.
    """
    address = urlsplit(value)
    if (
        address.scheme not in ("http", "https")
        or not address.hostname
        or address.query
        or address.fragment
    ):
        raise OptionError(f"{value!r} is not an address like {VIEWER}", option)
    if "@" in address.netloc:
        raise OptionError("browsers store addresses; use one without a password", option)
    return f"{address.scheme}://{address.netloc.lower()}{address.path.rstrip('/')}"


def viewing(command: options.Function) -> options.Function:
    """The options of where a trace is shown."""
    for add in (
        options.option(
            "--wait", metavar="5m", default="300s", section="Viewer",
            callback=options.parsed(values.length),
            help="How long to wait for the viewer to ask for the trace.  [default: 300s]",
        ),
        options.option(
            "--no-browser", is_flag=True, section="Viewer",
            help="Print the link instead of opening a browser.",
        ),
        options.option(
            "--ui", "viewer", metavar="URL", default=VIEWER, section="Viewer",
            callback=options.parsed(viewer_of),
            help=f"The viewer, if you host one yourself.  [default: {VIEWER}]",
        ),
    ):  # fmt: skip
        command = add(command)
    return command


@click.command("open", cls=options.Command, short_help="Open a trace in the viewer.")
@click.argument("path", metavar="TRACE", shell_complete=completion.files)
@viewing
@options.option(
    "--report",
    metavar="PAGE.html",
    section="Viewer",
    shell_complete=completion.files,
    help="Open this report instead; its findings lead to their places in the trace.",
)
@options.option("-q", "--quiet", is_flag=True, section="Messages", help="Print only the link.")
def open(
    path: str, viewer: str, no_browser: bool, wait: int, report: str | None, quiet: bool
) -> None:
    """Open TRACE in ui.perfetto.dev, with the ranks expanded and the steps in view.

    The viewer fetches the file from this machine, and this command ends then. The file is given to
    the viewer only and is not uploaded. With --report, trace and report are served until Ctrl-C.

    \b
    traceconv open trace_summary_ranks0-7.pftrace
    traceconv open trace.json --no-browser
    traceconv open trace.pftrace --report trace.html
    """
    if Path(path).is_dir():
        import shlex

        call = f"traceconv merge {shlex.quote(path)} --open"
        raise SourceError(f"{path}: a folder, not a trace; `{call}` merges its captures into one")
    page = Path(report) if report else None
    show(Path(path), viewer, not no_browser, wait, quiet, report=page)


def of_written(paths: Sequence[str]) -> Path:
    """The first of the files that a run wrote; the others are named.

    Raises:
        OutputError: it is not on this machine.
    """
    if "://" in paths[0]:
        raise OutputError(f"{paths[0]} is not on this machine; copy it, and use `traceconv open`")
    for other_path in paths[1:]:
        say.message(f"`traceconv open {other_path}` opens that part")
    return Path(paths[0])

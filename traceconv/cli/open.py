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
from traceconv.core.errors import OutputError, SourceError, TraceconvError

if TYPE_CHECKING:
    from traceconv import Report

PORT = 9001
VIEWER = "https://ui.perfetto.dev"

LOOKED_AT = 2 << 20
"""Larger files are opened without a look at where their steps are, which takes a second a MB."""

PINNED = 12
"""More ranks than this would leave no room for what is not pinned."""

_EXPANDED = (
    r"^(Rank \d+|Timeline$|All ranks$|Step Trace|Overlap Analysis$|Computing$|Communication|Free$)"
)
"""Rows that are opened; the last ones are groups where each lane of all ranks is one."""

_STEPS = (
    "SELECT ts, dur, name, rank FROM"
    " (SELECT ts, dur, s.name, CAST(SUBSTR(p.name, 6) AS INT) AS rank,"
    " MAX(ts + dur) OVER (PARTITION BY upid ORDER BY ts, dur DESC"
    " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until FROM slice s JOIN"
    " (SELECT id, upid, name FROM process_track UNION ALL SELECT t.id, upid, h.name"
    " FROM thread_track t JOIN thread h USING (utid)) l ON l.id = track_id"
    " JOIN process p USING (upid) WHERE s.depth = 0 AND p.name GLOB 'Rank [0-9]*'"
    " AND (l.name GLOB 'Step Trace*' OR l.name GLOB 'iterations*' OR l.name GLOB 'Model [0-9]*'))"
    " WHERE until IS NULL OR ts + dur > until"
)
"""The steps of all ranks, without what is inside one: of rows of processes, as Perfetto traces have
them, and of threads, as Chrome JSON has."""

# -- the link -----------------------------------------------------------------------------


class Steps(NamedTuple):
    """Where a trace has its steps.

    Attributes:
        pinned: whether there is room to pin those of every rank.
        window: from the first to the last of them, ns of the trace; None where there are none.
    """

    pinned: bool
    window: tuple[int, int] | None


NO_STEPS = Steps(False, None)


def link(viewer: str, address: str, steps: Steps) -> str:
    """The address at which ``viewer`` fetches the trace and shows its steps.

    Args:
        viewer:  its own address, without a path of the trace.
        address: of the trace.
    """
    import json

    commands = [("ExpandTracksByRegex", [_EXPANDED])]
    if steps.pinned:
        # Rows that are pinned as they are do not say of which rank; those made of a query do.
        commands.append(("AddDebugSliceTrackWithPivot", [_STEPS, "rank", "Steps"]))
    given = {
        "url": address,
        "startupCommands": json.dumps(
            [{"id": f"dev.perfetto.{name}", "args": args} for name, args in commands],
            separators=(",", ":"),
        ),
    }
    if steps.window:
        given["visStart"], given["visEnd"] = map(str, steps.window)
    return f"{viewer}/#!/?{urlencode(given, safe=':/', quote_via=quote)}"


def steps_of(report: Report, by_rank: bool) -> Steps:
    """What a merge knows of the steps that it wrote.

    Args:
        by_rank: ranks are groups; in the other layout the steps of all ranks are on top anyway.
    """
    ranks = [one for one in report.found.values() if one.span]
    starts = [int(one.steps.start_ns.min()) for one in ranks if len(one.steps)]
    ends = [int(one.steps.end_ns.max()) for one in ranks if len(one.steps)]
    if not starts:
        return NO_STEPS
    base_ns = min(one.span[0] for one in ranks if one.span)
    last_ns = max(one.span[1] for one in ranks if one.span)
    window = max(min(starts), base_ns) - base_ns, min(max(ends), last_ns) - base_ns
    pinned = by_rank and len(starts) <= PINNED
    return Steps(pinned, window if window[0] < window[1] else None)


def steps_in(path: Path) -> Steps:
    """Those in a file; none in what is large, or no trace that can be checked."""
    if path.stat().st_size > LOOKED_AT:
        return NO_STEPS
    import numpy as np

    from traceconv.validation import decode

    try:
        slices = decode(path).slices
    except TraceconvError:
        return NO_STEPS
    lanes = {n: p for n, p in enumerate(slices.paths) if any("Step Trace" in name for name in p)}
    on_them = np.isin(slices.track_id, list(lanes))
    if not on_them.any():
        return NO_STEPS
    of_ranks = {p[0] for p in lanes.values()} - {"All ranks"}  # which is the layout by lanes
    start = slices.ts[on_them]
    window = int(start.min()), int((start + np.maximum(slices.dur[on_them], 0)).max())
    return Steps(0 < len(of_ranks) <= PINNED, window if window[0] < window[1] else None)


# -- the command --------------------------------------------------------------------------


def show(
    path: Path,
    viewer: str,
    browser: bool,
    wait_ns: int,
    quiet: bool,
    steps: Steps | None = None,
    report: Path | None = None,
) -> None:
    """Serve ``path`` until the viewer has it; with a report, until somebody ends it.

    Args:
        viewer:  address of the viewer.
        browser: whether to open one; the link is on stdout else.
        wait_ns: how long nobody may ask for it.
        steps:   of the trace; None to look for them.
        report:  a page about the trace; it is opened, and its places lead into the viewer.

    Raises:
        SourceError: it is no file that can be read.
        OutputError: the port is taken, or nobody came.
    """
    from traceconv.io import loopback

    parts = urlsplit(viewer)
    page = _page(report) if report else b""
    with loopback.offered(path, f"{parts.scheme}://{parts.netloc}", PORT, page) as offer:
        if report:
            given = {"trace": offer.address, "viewer": viewer}
            target = f"{offer.report_address}?{urlencode(given, safe=':/', quote_via=quote)}"
        else:
            target = link(viewer, offer.address, steps_in(path) if steps is None else steps)
        if not browser or not _browse(target):
            say.data(target)
            sys.stdout.flush()
            _advise(offer.server_port, quiet, bool(report))
        try:
            if report:
                offer.serve_forever(poll_interval=0.2)
            offer.until_taken(wait_ns)
        except KeyboardInterrupt:
            if report:
                return
            say.message(f"interrupted; nobody took {path}, which stays where it is")
            click.get_current_context().exit(130)
    if not quiet:
        say.message(f"{path}: the viewer has it; it stays in the memory of the browser")


def _browse(target: str) -> bool:
    """Whether a browser with a window was told to open ``target``."""
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
            f"{report}: no report of ours; `traceconv merge --report FILE.html` makes one"
        )
    return content


def _advise(port: int, quiet: bool, stays: bool) -> None:
    if quiet:
        return
    until = "it is there until Ctrl-C" if stays else "waiting for it. Ctrl-C ends"
    say.message(f"Open this link in a browser on this machine; {until}.")
    if "SSH_CONNECTION" in os.environ:
        say.message(f"From where you sit: ssh -L {port}:127.0.0.1:{port} and this machine.")


def viewer_of(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The address of a viewer, as a browser would call its origin and path.

    Raises:
        click.BadParameter: it is none.
    """
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise click.BadParameter(f"{value!r} is no address like {VIEWER}", ctx, param)
    if "@" in parts.netloc:
        raise click.BadParameter("browsers write an address down, with its password", ctx, param)
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


viewing = options.together(
    click.option(
        "--ui",
        "viewer",
        metavar="URL",
        default=VIEWER,
        show_default=True,
        callback=viewer_of,
        help="The viewer, if you host one yourself.",
    ),
    click.option("--no-browser", is_flag=True, help="Print the link, and open nothing."),
    click.option(
        "--wait",
        metavar="5m",
        default="300s",
        show_default=True,
        callback=options.parsed("length"),
        help="How long the viewer may take to ask for the trace.",
    ),
)
"""Where a trace is shown."""


@click.command("open", cls=options.Sectioned, short_help="Open a trace in the viewer.")
@click.argument("path", metavar="TRACE", shell_complete=completion.files)
@viewing
@click.option(
    "--report",
    metavar="PAGE.html",
    shell_complete=completion.files,
    help="Open this report on the trace instead; its findings lead to their places in the viewer.",
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors and the link.")
def open_(
    path: str, viewer: str, no_browser: bool, wait: int, report: str | None, quiet: bool
) -> None:
    """Open TRACE, of whatever program, in ui.perfetto.dev: ranks expanded, steps in view.

    The page fetches the file from this machine, which gives it to that page only, and ends when
    it has been given. Nothing else is sent; the link has the name of the file. With --report both
    stay there until Ctrl-C.

    \b
    traceconv open trace_summary_ranks0-7.pftrace
    traceconv open trace.json --no-browser
    traceconv open trace.pftrace --report trace.html
    """
    if Path(path).is_dir():
        import shlex

        call = f"traceconv merge {shlex.quote(path)} --open"
        raise SourceError(f"{path}: a folder, no trace; `{call}` makes one of it")
    page = Path(report) if report else None
    show(Path(path), viewer, not no_browser, wait, quiet, report=page)


def of_written(paths: Sequence[str]) -> Path:
    """The first of the files that a run wrote; the others are named.

    Raises:
        OutputError: it is not on this machine.
    """
    if "://" in paths[0]:
        raise OutputError(f"{paths[0]} is not on this machine; copy it, and use `traceconv open`")
    for other in paths[1:]:
        say.message(f"`traceconv open {other}` opens that part")
    return Path(paths[0])

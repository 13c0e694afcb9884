"""``traceconv watch``: a verdict on every window of a running job."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from traceconv.cli import options, say
from traceconv.core.errors import OptionError, OutputError

if TYPE_CHECKING:
    from traceconv import WatchedWindow


LOOPBACK = "127.0.0.1"


@click.command(cls=options.Command, short_help="Judge the windows of a running job.")
@click.argument("folder", metavar="[DIR]", default=".")
@options.of("watch")
@options.option(
    "--openmetrics",
    metavar="[ADDRESS:]PORT",
    section="Output",
    usual=True,
    callback=options.parsed(lambda value, name: address(value, name)),
    help="Serve the figures of the last window for Prometheus at http://ADDRESS:PORT/metrics. "
    "The address is 127.0.0.1 unless given.",
)
@options.option(
    "--json", "as_json", is_flag=True, section="Messages", help="One JSON document per line."
)
@options.chatter
def watch(
    folder: str,
    openmetrics: tuple[str, int] | None,
    as_json: bool,
    quiet: bool,
    verbose: bool,
    **arguments: Any,
) -> None:
    """Judge the windows of the job that writes its captures into DIR (default: here).

    A window is what all ranks recorded between two starts of their profilers. A line says what it
    loses, and to what, as soon as all ranks have written it. Ctrl-C ends.

    \b
    traceconv watch ./prof
    traceconv watch ./prof --openmetrics 9464 --json
    traceconv watch ./prof --once
    """
    from traceconv import watch
    from traceconv.core.json_text import encoded

    count = 0
    with _served(openmetrics, quiet) as show:
        try:
            for window in watch(folder, **options.given(arguments)):
                count += 1
                show(window)
                if as_json:
                    say.raw(encoded(say.flagged(window.as_dict())).decode())
                else:
                    say.data(say.with_flags(window.line()))
                sys.stdout.flush()
                if window.diagnosis is not None:
                    say.show_issues(window.diagnosis.issues, quiet or not verbose, verbose)
        except KeyboardInterrupt:
            pass
    if not quiet:
        say.message(f"{count} window{'s' * (count != 1)} judged")


def address(value: str, option: str) -> tuple[str, int]:
    """``9464``, ``127.0.0.1:9464`` or ``0.0.0.0:9464`` as address and port.

    Raises:
        OptionError: it is none.
    """
    host, _, port = value.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not is_port or any(map(str.isspace, host)):
        raise OptionError(f"{value!r} is not a port like 9464 or {LOOPBACK}:9464", option)
    return host.strip("[]") or LOOPBACK, int(port)


@contextmanager
def _served(
    where: tuple[str, int] | None, quiet: bool
) -> Iterator[Callable[[WatchedWindow], None]]:
    """A function that publishes a window as metrics, while the context lasts."""
    if where is None:
        yield lambda window: None
        return
    from threading import Thread

    from traceconv.io import loopback
    from traceconv.report import openmetrics

    host, port = where
    shown = [openmetrics.text(None, 0, 0).encode()]
    count = {True: 0, False: 0}

    def show(window: WatchedWindow) -> None:
        count[window.diagnosis is None] += 1
        metrics = openmetrics.text(window.as_dict(), sum(count.values()), count[True])
        shown[0] = metrics.encode()

    try:
        server = loopback.Page(host, port, "/metrics", openmetrics.CONTENT_TYPE, lambda: shown[0])
    except OSError as e:
        raise OutputError(f"{host}:{port} cannot be used ({e.strerror or e})") from e
    with server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
        thread.start()
        if not quiet:
            say.message(f"metrics: {server.address}")
        try:
            yield show
        finally:
            server.shutdown()

"""What the commands share: how values are read, and the options several of them have.

Nothing here imports the library proper, so that ``--help`` stays quick.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from traceconv.core.clock import to_ns
from traceconv.core.errors import ClockError

Command = TypeVar("Command", bound=Callable[..., Any])

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\Z", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_TIME = re.compile(r"([+-]?\d[\d.]*(?:[eE][+-]?\d+)?)\s*(s|ms|us|µs|ns)\Z")
_RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d+))?\Z")

MAX_RANGE = 1_000_000
"""More numbers than this in one range are taken for a slip."""


def numbers(ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    """``0-7,12`` as a sorted list; ``all``, like nothing, as None."""
    if value is None or value.strip().lower() == "all":
        return None
    found: set[int] = set()
    for part in value.split(","):
        match = _RANGE.match(part.strip())
        if match is None:
            raise click.BadParameter(f"{value!r} is not a list like 0-7,12, nor all")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 0 <= last - first <= MAX_RANGE:
            raise click.BadParameter(f"{part.strip()!r} is not a range from low to high")
        found.update(range(first, last + 1))
    return sorted(found)


def _scaled(value: str, unit: int) -> int:
    match = _SIZE.match(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is not a size like 800K, 200M or 2G")
    whole, _, decimals = match[1].partition(".")
    scale: int = unit ** _POWERS[match[2].upper()]
    number = int(whole + decimals) * scale // int("1" + "0" * len(decimals))
    if number < 1:
        raise click.BadParameter(f"{value!r} is less than 1")
    return number


def size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """``200M`` as bytes, in units of 1024."""
    return None if value is None else _scaled(value, 1024)


def count(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """``1M`` as a number of things, in units of 1000."""
    return None if value is None else _scaled(value, 1000)


def form_of(output: str | None, forms: Sequence[str]) -> str:
    """The one of ``forms`` that the ending of ``output`` names, else "text"."""
    ending = (output or "").rpartition(".")[2]
    return ending if ending in forms else "text"


def window(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[int | None, int | None] | None:
    """``1.2s:1.5s`` as (start, end) in ns; an end that is left out as None."""
    if value is None:
        return None
    first, colon, last = value.partition(":")
    if not colon or not (first.strip() or last.strip()):
        raise click.BadParameter(f"{value!r} is not a window like 1.2s:1.5s, 300ms: or :2s")
    start, end = _time(first.strip()), _time(last.strip())
    if start is not None and end is not None and start >= end:
        raise click.BadParameter(f"{value!r} ends before it starts")
    return start, end


def _time(text: str) -> int | None:
    if not text:
        return None
    match = _TIME.match(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a time with its unit (s, ms, us, ns)")
    try:
        return to_ns(match[1], "us" if match[2] == "µs" else match[2])
    except ClockError as e:
        raise click.BadParameter(str(e)) from e


def words(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str] | None:
    """``a,b`` as a list of words, as written."""
    return None if value is None else [word for w in value.split(",") if (word := w.strip())]


def pattern(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A regular expression, tried here so that the message names the option."""
    if value is not None:
        try:
            re.compile(value)
        except re.error as e:
            raise click.BadParameter(f"{value!r} is not a regular expression: {e}") from e
    return value


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """One decorator that adds ``options``, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


reading = together(
    click.option(
        "--from", "reader", metavar="FORMAT", help="Ask this reader only (see `formats`)."
    ),
    click.option(
        "--rank-from",
        metavar="meta|name|REGEX",
        default="meta",
        show_default=True,
        help="Where ranks come from: the files' own marks, their names, or the first group of a "
        "pattern searched in the path.",
    ),
    click.option(
        "--map",
        "mapping",
        metavar="COLUMNS|PRESET|FILE",
        help="Event logs with columns of their own: 'name=Name,ts=Start (ns):ns,dur=Time:us', a "
        "preset (nsys-gpu, nsys-api, nsys-nvtx, nvprof-gpu, enter-leave), or a JSON file.",
    ),
)
"""How inputs are recognised and numbered."""

classing = click.option(
    "--comm-pattern",
    "comm_patterns",
    callback=lambda ctx, param, value: words(ctx, param, value) or [],
    metavar="WORD,...",
    help="GPU kernels whose name contains one of these communicate, besides NCCL's and its kin.",
)
"""What counts as communication."""

selecting = together(
    click.option(
        "--ranks", callback=numbers, metavar="0-7,12|all", help="Which ranks; default all."
    ),
    click.option("--graphs", callback=numbers, metavar="1,2|all", help="Which graphs (model ids)."),
    click.option("--steps", callback=numbers, metavar="10-12|all", help="Which steps."),
    click.option(
        "--time",
        callback=window,
        metavar="1.2s:1.5s",
        help="A window, counted from the first event; s, ms, us or ns; one end may be left out.",
    ),
    click.option(
        "--layers",
        callback=words,
        metavar="step,overlap,...",
        help="Which layers: step, overlap, host, runtime, scope, device, comm, counter, other.",
    ),
    click.option(
        "--exclude",
        callback=pattern,
        metavar="REGEX",
        help="Leave out events whose name this finds.",
    ),
    click.option(
        "--merge-graphs/--split-graphs",
        default=True,
        show_default=True,
        help="One lane of steps per rank, or one per graph.",
    ),
    click.option("--scope", is_flag=True, help="Add the lanes of module scopes."),
)
"""What is kept. Filters are combined with AND."""


def _length(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """``50us`` as ns."""
    length = None if value is None else _time(value.strip())
    if length is not None and length < 0:
        raise click.BadParameter(f"{value!r} is less than nothing")
    return length


aligning = together(
    click.option(
        "--align",
        metavar="auto|collective|meta|wall|none|FILE",
        default="auto",
        show_default=True,
        help="How clocks are brought together: by the ends of collectives, by what profilers "
        "recorded, as stamped; FILE is JSON as `align` writes it, or {rank: offset in ns}.",
    ),
    click.option(
        "--align-max-error",
        "align_max_error_ns",
        callback=_length,
        metavar="50us",
        help="Refuse (exit code 5) if the clock of a rank may be off by more, or by who knows "
        "how much.",
    ),
)
"""How clocks are brought together."""

limiting = together(
    click.option(
        "--max-size",
        callback=size,
        metavar="200M",
        help="Largest output file, before compression; units of 1024.",
    ),
    click.option(
        "--max-events",
        callback=count,
        metavar="1M",
        help="Most events (slices, instants, samples, arrows) in an output file; units of 1000.",
    ),
    click.option(
        "--target",
        type=click.Choice(["perfetto", "chrome", "none"]),
        default="none",
        show_default=True,
        help="Limits that suit a viewer (perfetto: 1G and 10M events, chrome: 256M and 2M); "
        "--max-size and --max-events go before.",
    ),
    click.option(
        "--over-limit",
        type=click.Choice(["reduce", "split", "fail"]),
        default="reduce",
        show_default=True,
        help="At the limit: leave out what matters least, go on in another file, or give up.",
    ),
)
"""How large the output may be."""

finishing = together(
    click.option("--to", "writer", metavar="FORMAT", help="Output format, whatever the ending."),
    click.option(
        "--report",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Write the full account: .html, .md or .json.",
    ),
    click.option(
        "--strict", is_flag=True, help="Any loss or doubt ends in exit code 4, without output."
    ),
    click.option("-f", "--force", is_flag=True, help="Overwrite."),
)
"""How a run ends."""

writing = together(
    click.option(
        "--args",
        callback=words,
        metavar="all|none|KEY,...",
        default="all",
        show_default=True,
        help="Which arguments of events travel.",
    ),
    click.option("-n", "--dry-run", is_flag=True, help="Say what would be done; read no events."),
    finishing,
)
"""What is written, and where."""


def _share(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """``2/8`` as (2, 8)."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", value)
    if match is None or int(match[1]) >= int(match[2]):
        raise click.BadParameter(f"{value!r} is not a share like 0/8 ... 7/8")
    return int(match[1]), int(match[2])


working = together(
    click.option(
        "-j",
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="Worker processes; default TRACECONV_JOBS, else what suits the machine and the input. "
        "The bytes do not depend on it.",
    ),
    click.option(
        "--mem-limit",
        callback=size,
        metavar="SIZE",
        help="Memory for all of it, at least 192M a process; what does not fit lies in temporary "
        "files. The bytes do not depend on it.",
    ),
    click.option(
        "--engine",
        type=click.Choice(["local", "dask", "ray"]),
        default="local",
        show_default=True,
        help="Who runs the workers; dask and ray are extras. All must see TRACECONV_TMPDIR.",
    ),
    click.option(
        "--engine-address",
        metavar="ADDRESS",
        help="Of a running Dask scheduler or Ray cluster; default: a cluster of our own, here.",
    ),
)
"""Who does the work."""

sharding = click.option(
    "--shard",
    callback=_share,
    metavar="I/N",
    help="Read only share I (from 0) of N, into a folder that `join` makes the trace of.",
)

chatter = together(
    click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors."),
    click.option(
        "-v", "--verbose", is_flag=True, help="Say more; show the traceback of internal errors."
    ),
)
"""How much is said."""

as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")

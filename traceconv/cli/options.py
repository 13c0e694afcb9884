"""What the commands share: how values are read, and the options several of them have.

Values are read by :mod:`traceconv.api.options`, which is imported when there is one, so that
``--help`` stays quick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import click

from traceconv.cli import completion, say
from traceconv.core.choices import unknown
from traceconv.core.errors import OptionError

if TYPE_CHECKING:
    _Words = click.Choice[str]
else:
    _Words = click.Choice  # which is not generic in click 8.1

Command = TypeVar("Command", bound=Callable[..., Any])


def parsed(parser: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A callback that reads a value as the library does; what it refuses is an error of usage.

    Args:
        parser: name of a function of :mod:`traceconv.api.options`.
    """

    def read(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        if value is None or value == () or ctx.resilient_parsing:
            return value
        from traceconv.api import options

        try:
            return getattr(options, parser)(value, str(param.name))
        except OptionError as e:
            raise click.BadParameter(say.with_flags(e.why)) from e

    return read


def top(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """``20`` as a number of rows, ``all`` as None."""
    if value.strip().lower() == "all":
        return None
    try:
        found: int = parsed("count")(ctx, param, value)
    except click.BadParameter as e:
        raise click.BadParameter(f"{value!r} is neither a number of rows nor all") from e
    return found


def form_of(output: str | None, form: str | None, forms: Sequence[str]) -> str:
    """How a result is written: as the ending of ``output`` says, else in ``form``.

    Args:
        output: name of a file; None or "-" for standard output.
        form:   what --format says, if anything.
        forms:  those there are; the first goes where nothing is said.

    Raises:
        click.BadParameter: the ending names none of ``forms``, or another one than ``form``.
    """
    ending = "" if output in (None, "-") else PurePath(str(output)).suffix
    known = {".txt" if one == "text" else f".{one}": one for one in forms}
    if ending and ending not in known:
        raise click.BadParameter(unknown("format ends in", ending, known), param_hint="'-o'")
    if ending and form not in (None, known[ending]):
        why = f"{output}: the ending says {known[ending]}, and --format says {form}"
        raise click.BadParameter(why, param_hint="'-o'")
    return known[ending] if ending else form or forms[0]


def refuse_binary(form: str) -> None:
    """Raise for a form that is no text, where nothing but standard output is named.

    Raises:
        click.UsageError: it is Parquet or a workbook.
    """
    if form in BINARY:
        raise click.UsageError(f"{form} goes into a file: name one with -o FILE.{form}")


def on_stdout(as_json: bool, form: str | None, output: str | None) -> str | None:
    """What --format says where --json may ask for one document on stdout instead.

    Raises:
        click.UsageError: both want stdout.
    """
    if not as_json or output not in (None, "-"):
        return form
    if form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} both want stdout; name a file with -o")
    return "json"


BINARY = ("parquet", "xlsx")
"""Forms of tables that a terminal cannot show."""

SECTIONS = {
    "Where to": "output writer form force dry_run",
    "What is kept": "by rule ranks graphs steps time layers exclude merge_graphs scope args",
    "What it becomes": "mode annotate layout threshold tolerance force_compare group_by columns "
    "sort filters top explain counts",
    "In the viewer": "opened viewer no_browser wait",
    "How large": "max_size max_events target over_limit",
    "Clocks": "align align_max_error_ns",
    "Input": "reader rank_from mapping nsys comm_patterns step_marker allow_missing_ranks salvage",
    "Who does the work": "jobs mem_limit engine engine_address shard",
    "What is said": "report strict fail_on as_json quiet verbose help",
}
"""What options are for: headings of --help, and the parameters below each."""


class Sectioned(click.Command):
    """A command with so many options that --help groups them by their purpose."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, a section for each purpose."""
        records = {
            "help" if "--help" in param.opts else str(param.name): record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
            and (record := param.get_help_record(ctx)) is not None
        }
        for title, names in SECTIONS.items():
            found = [records.pop(name) for name in names.split() if name in records]
            if found:
                with formatter.section(title):
                    formatter.write_dl(found, col_max=26)
        if records:
            with formatter.section("Options"):
                formatter.write_dl(list(records.values()))


class Computing(Sectioned):
    """A command that reads events, and so needs arrays whatever it finds."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it.

        numpy is loaded here, not where the library first needs it: loading it is deep in calls of
        its own, and CPython's stack of frames grows in pieces of 16 kB, each taken from the system
        and given back wherever a loop calls across its end. From deep inside the library that
        happened 3 600 times: a tenth of a small merge.
        """
        import numpy

        numpy.ndarray  # noqa: B018 – loads it, where it is put off
        return super().invoke(ctx)


class Choice(_Words):
    """One of some words; what is none of them is answered with the nearest."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word.

        Raises:
            click.BadParameter: it is none of the choices.
        """
        if value not in self.choices:
            self.fail(unknown("choice", value, self.choices), param, ctx)
        return str(super().convert(value, param, ctx))


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """One decorator that adds ``options``, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


paths = click.argument(
    "paths",
    nargs=-1,
    metavar="[PATH]...",
    callback=lambda ctx, param, value: value or (".",),
    shell_complete=completion.files,
)
"""Files and folders; the current folder if none is named."""

force = click.option("-f", "--force", is_flag=True, help="Overwrite.")
explain = click.option("--explain", is_flag=True, help="Show the formula of every table.")


def output(text: str, required: bool = False) -> Callable[[Command], Command]:
    """``-o``: where to."""
    return click.option(
        "-o",
        "--output",
        metavar="FILE",
        shell_complete=completion.files,
        required=required,
        help=text,
    )


def form(forms: Sequence[str], text: str) -> Callable[[Command], Command]:
    """``--format``: one of ``forms``."""
    return click.option("--format", "form", type=Choice(forms), help=text)


reading = together(
    click.option(
        "--from",
        "reader",
        metavar="FORMAT",
        shell_complete=completion.one_of(completion.readers),
        help="Ask this reader only (see `formats`).",
    ),
    click.option(
        "--rank-from",
        metavar="meta|name|REGEX",
        shell_complete=completion.one_of(completion.these("meta", "name")),
        default="meta",
        show_default=True,
        help="Where ranks come from: the files' own marks (names, where those say nothing and "
        "names leave no doubt), names, or a pattern searched in the path: its first group, or its "
        "named groups as coordinates, 'pp(?P<pp>\\d+)_tp(?P<tp>\\d+)'.",
    ),
    click.option(
        "--map",
        "mapping",
        metavar="COLUMNS|PRESET|FILE",
        shell_complete=completion.one_of(completion.presets, else_files=True),
        help="Event logs with columns of their own: 'name=Name,ts=Start (ns):ns,dur=Time:us'; "
        "lines of text: 'line=/(?P<ts>\\S+) (?P<name>.*)/' or \"line='%(asctime)s %(message)s'\"; "
        "a preset (nsys-gpu, nsys-api, nsys-nvtx, nvprof-gpu, enter-leave), or a JSON file.",
    ),
    click.option(
        "--nsys",
        metavar="PROGRAM",
        shell_complete=completion.files,
        help="Nsight Systems' nsys, to export .nsys-rep files with; default: the one on the path.",
    ),
)
"""How inputs are recognised and numbered."""

classing = click.option(
    "--comm-pattern",
    "comm_patterns",
    callback=parsed("words"),
    default="",
    metavar="WORD,...",
    help="GPU kernels whose name contains one of these communicate, besides NCCL's and similar.",
)
"""What counts as communication."""

marking = click.option(
    "--step-marker",
    callback=parsed("pattern"),
    metavar="REGEX",
    help="Ranges of the host (NVTX, rocTX, annotations) whose name this finds are the steps; its "
    "first group is their number, else they are numbered by time.",
)
"""What counts as a step."""

ranks = click.option(
    "--ranks",
    callback=parsed("ranks"),
    metavar="0-7,12|tp=0,pp=1|all",
    help="Which ranks, by number or by coordinates; default all.",
)
graphs = click.option(
    "--graphs", callback=parsed("numbers"), metavar="1,2|all", help="Which graphs (model ids)."
)
steps = click.option(
    "--steps", callback=parsed("numbers"), metavar="10-12|all", help="Which steps."
)

selecting = together(
    ranks,
    graphs,
    steps,
    click.option(
        "--time",
        callback=parsed("window"),
        metavar="1.2s:1.5s",
        help="A window, counted from the first event; s, ms, us or ns; one end may be left out.",
    ),
    click.option(
        "--layers",
        callback=parsed("layers"),
        metavar="step,overlap,...",
        shell_complete=completion.some_of(completion.layers),
        help="Which layers: step, overlap, host, runtime, scope, device, comm, counter, other.",
    ),
    click.option(
        "--exclude",
        callback=parsed("pattern"),
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


aligning = together(
    click.option(
        "--align",
        callback=parsed("align"),
        metavar="auto|collective|meta|wall|none|FILE",
        shell_complete=completion.clocks,
        default="auto",
        show_default=True,
        help="How clocks are brought together: by the ends of collectives, by what profilers "
        "recorded, as stamped; FILE is JSON as `align` writes it, or {rank: offset in ns}.",
    ),
    click.option(
        "--align-max-error",
        "align_max_error_ns",
        callback=parsed("length"),
        metavar="50us",
        help="Refuse (exit code 5) if the clock of a rank may be off by more, or by an unknown "
        "amount.",
    ),
)
"""How clocks are brought together."""

limiting = together(
    click.option(
        "--max-size",
        callback=parsed("size"),
        metavar="200M",
        help="Largest output file, before compression; units of 1024.",
    ),
    click.option(
        "--max-events",
        callback=parsed("count"),
        metavar="1M",
        help="Most events (slices, instants, samples, arrows) in an output file; units of 1000.",
    ),
    click.option(
        "--target",
        type=Choice(["perfetto", "chrome", "none"]),
        default="none",
        show_default=True,
        help="Limits that suit a viewer (perfetto: 1G and 10M events, chrome: 256M and 2M); "
        "--max-size and --max-events go before.",
    ),
    click.option(
        "--over-limit",
        type=Choice(["reduce", "split", "fail"]),
        default="reduce",
        show_default=True,
        help="At the limit: leave out what matters least, go on in another file, or give up.",
    ),
)
"""How large the output may be."""

finishing = together(
    click.option(
        "--to",
        "writer",
        metavar="FORMAT",
        shell_complete=completion.one_of(completion.writers),
        help="Output format, whatever the ending.",
    ),
    click.option(
        "--report",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Write the full account: .html, .md or .json.",
    ),
    click.option(
        "--strict", is_flag=True, help="Any loss or doubt ends in exit code 4, without output."
    ),
    force,
)
"""How a run ends."""

writing = together(
    click.option(
        "--args",
        callback=parsed("kept_args"),
        metavar="all|none|KEY,...",
        shell_complete=completion.one_of(completion.these("all", "none")),
        default="all",
        show_default=True,
        help="Which arguments of events are kept.",
    ),
    click.option("-n", "--dry-run", is_flag=True, help="Say what would be done; read no events."),
    finishing,
)
"""What is written, and where."""


missing = click.option(
    "--allow-missing-ranks",
    is_flag=True,
    help="Go on without ranks of --ranks that are not there, and those that cannot be read.",
)
"""What becomes of ranks that fail."""

working = together(
    click.option(
        "-j",
        "--jobs",
        type=click.IntRange(min=1),
        metavar="N",
        help="Worker processes, one per rank at most, and threads where ranks are fewer; default "
        "TRACECONV_JOBS, else what suits the machine and the input. The result does not depend on "
        "it.",
    ),
    click.option(
        "--mem-limit",
        callback=parsed("size"),
        metavar="SIZE",
        help="Memory for all of it, at least 192M a process; what does not fit is kept in "
        "temporary files. The result does not depend on it.",
    ),
    click.option(
        "--engine",
        type=Choice(["local", "dask", "ray"]),
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
    callback=parsed("shard"),
    metavar="I/N",
    help="Read only share I (from 0) of N, into a folder that `join` makes the trace of.",
)

chatter = together(
    click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors."),
    click.option(
        "-v", "--verbose", is_flag=True, help="Say more; show the traceback of internal errors."
    ),
)
"""How much is printed."""

as_json = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")

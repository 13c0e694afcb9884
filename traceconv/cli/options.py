"""Options of commands: those that :mod:`traceconv.options` declares, and those that only the
command line has.

Values go to the library as they are typed; it reads them, and what it refuses is an error of usage.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeVar

import click

from traceconv.cli import completion, say
from traceconv.core.choices import unknown
from traceconv.core.errors import OptionError
from traceconv.options import values
from traceconv.options.declaration import Declared, declared
from traceconv.options.verbs import VERBS

Function = TypeVar("Function", bound=Callable[..., Any])

BINARY = ("parquet", "xlsx")
"""Forms of tables that a terminal cannot show."""

SECTIONS = (
    *(
        "Output",
        "Selection",
        "Comparison",
        "Tables",
        "Verdict",
        "Changes",
        "Rules",
        "View",
        "Viewer",
    ),
    *("Size limit", "Clocks", "Input", "Resources", "Messages"),
)
"""Headings of options, in order."""


class Option(click.Option):
    """An option below a heading of the help.

    Attributes:
        section: the heading, one of :data:`SECTIONS`.
        usual:   whether the short help explains it.
    """

    def __init__(self, *flags: Any, section: str, usual: bool = False, **more: Any) -> None:
        super().__init__(*flags, **more)
        self.section, self.usual = section, usual


def option(*flags: str, section: str, **more: Any) -> Callable[[Function], Function]:
    """An option that only the command line has."""
    return click.option(*flags, cls=Option, section=section, **more)


def of(
    verb: str, without: Collection[str] = (), help: Mapping[str, str] | None = None
) -> Callable[[Function], Function]:
    """The options of a verb of the library.

    Args:
        without: those that this command does not have.
        help:    what some of them do here, if that is not what is declared.
    """

    def add(function: Function) -> Function:
        for one in reversed([*declared(VERBS[verb])]):
            if one.option.flags and one.name not in without:
                function = _click_option(one, (help or {}).get(one.name))(function)
        return function

    return add


def _click_option(one: Declared, text: str | None) -> Callable[[Function], Function]:
    found = one.option
    shown = say.with_flags(text or found.help)
    if one.default not in (None, False, True, ()):
        default = ",".join(one.default) if isinstance(one.default, tuple) else one.default
        shown += f"  [default: {default}]"
    return option(
        *found.flags,
        one.name,
        section=one.section,
        usual=found.usual,
        default=None,
        is_flag=not found.metavar,
        multiple=found.repeated,
        metavar=found.metavar or None,
        help=shown,
        shell_complete=completion.of_option(found),
    )


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: one for name, one in arguments.items() if one not in (None, ())}


# -- commands -----------------------------------------------------------------------------


class Command(click.Command):
    """A command with a short help (-h) and a long one (--help), both grouped by purpose."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.params.append(
            Option(
                ["-h", "short_help"], section="Messages", is_flag=True, is_eager=True,
                expose_value=False, callback=_show_short, help="Show a short help and exit.",
            )
        )  # fmt: skip

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """``--help``."""
        return Option(
            ["--help"], section="Messages", is_flag=True, is_eager=True, expose_value=False,
            callback=_show_long, help="Show all options and exit.",
        )  # fmt: skip

    def sections(self, ctx: click.Context) -> dict[str, list[Option]]:
        """The options by heading."""
        found: dict[str, list[Option]] = {title: [] for title in SECTIONS}
        for one in self.get_params(ctx):
            if isinstance(one, Option) and not one.hidden:
                found[one.section].append(one)
        return {title: some for title, some in found.items() if some}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all options, a section for each heading."""
        for title, some in self.sections(ctx).items():
            records = [record for one in some if (record := one.get_help_record(ctx))]
            with formatter.section(title):
                formatter.write_dl(records, col_max=26)

    def short(self, ctx: click.Context) -> str:
        """The help that fits on a screen: the usual options explained, the others named."""
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        text, _, calls = inspect.cleandoc(self.help or "").partition("\n\n\b\n")
        formatter.write_text(" ".join(text.split()).partition(". ")[0].rstrip(".") + ".")
        formatter.write("\n")
        for call in calls.split("\n\n")[0].splitlines()[:2]:
            formatter.write(f"  {call}\n")
        others = []
        usual = []
        for title, some in self.sections(ctx).items():
            usual += [record for one in some if one.usual and (record := one.get_help_record(ctx))]
            names = [max(one.opts, key=len) for one in some if not one.usual]
            others += [(title, "  ".join(names))] if names else []
        if usual:
            formatter.write("\nUsual options:\n")
            formatter.indent()
            first = [(flags, text.partition(". ")[0].rstrip(".")) for flags, text in usual]
            formatter.write_dl(first, col_max=34)
            formatter.dedent()
        formatter.write(f"\nOther options (`{ctx.command_path} --help` explains all):\n")
        formatter.indent()
        formatter.write_dl(others)
        return formatter.getvalue().rstrip("\n")


def _show_short(ctx: click.Context, _: click.Parameter, shown: bool) -> None:
    if shown and not ctx.resilient_parsing:
        assert isinstance(ctx.command, Command)
        click.echo(ctx.command.short(ctx))
        ctx.exit()


def _show_long(ctx: click.Context, _: click.Parameter, shown: bool) -> None:
    if shown and not ctx.resilient_parsing:
        click.echo(ctx.get_help())
        ctx.exit()


# -- what only the command line has -------------------------------------------------------


paths = click.argument(
    "paths",
    nargs=-1,
    metavar="[PATH]...",
    callback=lambda ctx, param, value: value or (".",),
    shell_complete=completion.files,
)
"""Files and folders; the current folder if none is named."""

force = option("-f", "--force", is_flag=True, section="Output", help="Overwrite existing files.")
explain = option(
    "--explain", is_flag=True, section="Tables", help="Show the formula of every table."
)
as_json = option(
    "--json", "as_json", is_flag=True, section="Messages", help="One JSON document on stdout."
)
report = option(
    "--report",
    metavar="FILE",
    section="Output",
    usual=True,
    shell_complete=completion.files,
    help="Also write a report: .html, .md or .json.",
)


def parsed(parse: Callable[[Any, str], Any]) -> Callable[[Any, click.Parameter, Any], Any]:
    """A callback that reads the value of an option that the library does not have."""

    def read(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        try:
            return None if value is None else parse(value, str(param.name))
        except OptionError as e:
            raise click.UsageError(f"{param.opts[0]}: {e.why}") from e

    return read


def output(text: str) -> Callable[[Function], Function]:
    """``-o``, for what only the command line writes."""
    return option(
        "-o",
        "--output",
        metavar="FILE",
        section="Output",
        usual=True,
        shell_complete=completion.files,
        help=text,
    )


def form(forms: Sequence[str], text: str) -> Callable[[Function], Function]:
    """``--format``: one of ``forms``."""
    return option(
        "--format",
        "form",
        metavar="|".join(forms),
        section="Output",
        help=text,
        shell_complete=completion.one_of(completion.these(*forms)),
        callback=parsed(values.one_of(*forms)),
    )


def chatter(function: Function) -> Function:
    """``-q`` and ``-v``."""
    function = option(
        "-v", "--verbose", is_flag=True, section="Messages",
        help="Say more; show the traceback of internal errors.",
    )(function)  # fmt: skip
    return option(
        "-q", "--quiet", is_flag=True, section="Messages", help="Say nothing but errors."
    )(function)


def form_of(output: str | None, form: str | None, forms: Sequence[str]) -> str:
    """How a result is written: as the extension of ``output`` says, else in ``form``.

    Args:
        output: name of a file; None or "-" for standard output.
        form:   what --format says, if anything.
        forms:  those there are; the first goes where nothing is said.

    Raises:
        click.UsageError: the extension names none of ``forms``, or another one than ``form``.
    """
    ending = "" if output in (None, "-") else PurePath(str(output)).suffix
    known = {".txt" if one == "text" else f".{one}": one for one in forms}
    if ending and ending not in known:
        raise click.UsageError(f"-o {output}: {unknown('format ends in', ending, known)}")
    if ending and form not in (None, known[ending]):
        why = f"the extension says {known[ending]}, and --format says {form}"
        raise click.UsageError(f"-o {output}: {why}")
    return known[ending] if ending else form or forms[0]


def refuse_binary(form: str) -> None:
    """Raise for a form that is no text, where nothing but standard output is named.

    Raises:
        click.UsageError: it is Parquet or a workbook.
    """
    if form in BINARY:
        raise click.UsageError(f"{form} needs a file; name one with -o FILE.{form}")


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

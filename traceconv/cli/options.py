"""Options of commands: those that :mod:`traceconv.options` declares, and those that only the
command line has.

Values go to the library as they are typed; it reads them, and what it refuses is an error of usage.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from traceconv.cli import completion, say
from traceconv.core.errors import OptionError
from traceconv.options import values
from traceconv.options.declaration import declared
from traceconv.options.verbs import VERBS

Function = TypeVar("Function", bound=Callable[..., Any])

SECTIONS = (
    "Query", "Output", "Selection", "Comparison", "Tables", "Verdict", "Windows", "Changes",
    "Rules", "View", "Viewer", "Size limit", "Clocks", "Input", "Resources", "Messages",
)  # fmt: skip
"""Headings of options, in order."""


class Option(click.Option):
    """An option below a heading of the help.

    Attributes:
        section: the heading, one of :data:`SECTIONS`.
        usual:   whether the short help explains it.
    """

    def __init__(self, *flags: Any, section: str, usual: bool = False, **settings: Any) -> None:
        super().__init__(*flags, **settings)
        self.section, self.usual = section, usual


def option(*flags: str, section: str, **settings: Any) -> Callable[[Function], Function]:
    """An option that only the command line has."""
    return click.option(*flags, cls=Option, section=section, **settings)


def of(
    verb: str, without: Collection[str] = (), help: Mapping[str, str] | None = None
) -> Callable[[Function], Function]:
    """The options of a verb of the library.

    Args:
        without: those that this command does not have.
        help:    what some of them do here, if that is not what is declared.
    """

    def add(function: Function) -> Function:
        for name, declaration, default, section, _ in reversed([*declared(VERBS[verb])]):
            if not declaration.flags or name in without:
                continue
            shown = say.with_flags((help or {}).get(name, declaration.help))
            if default not in (None, False, True, ()):
                words = ",".join(default) if isinstance(default, tuple) else default
                words = f"{default / 1e9:g}s" if name.endswith("_ns") else words
                shown += f"  [default: {words}]"
            function = option(
                *declaration.flags, name, section=section, usual=declaration.usual, default=None,
                is_flag=not declaration.metavar, multiple=declaration.repeated,
                metavar=declaration.metavar or None,
                help=shown, shell_complete=completion.of_option(declaration),
            )(function)  # fmt: skip
        return function

    return add


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in arguments.items() if value not in (None, ())}


# -- commands -----------------------------------------------------------------------------


class Command(click.Command):
    """A command with a short help (-h) and a long one (--help), both grouped by purpose."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.append(_help_option(["-h", "short_help"], "Show a short help and exit."))

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """``--help``."""
        return _help_option(["--help"], "Show all options and exit.")

    def sections(self, ctx: click.Context) -> dict[str, list[Option]]:
        """The options by heading."""
        by_heading: dict[str, list[Option]] = {title: [] for title in SECTIONS}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, Option) and not parameter.hidden:
                by_heading[parameter.section].append(parameter)
        return {title: options for title, options in by_heading.items() if options}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write all options, a section for each heading."""
        for title, options in self.sections(ctx).items():
            records = [record for item in options if (record := item.get_help_record(ctx))]
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
        other_names = []
        usual = []
        for title, options in self.sections(ctx).items():
            usual += [
                record for item in options if item.usual and (record := item.get_help_record(ctx))
            ]
            names = [max(item.opts, key=len) for item in options if not item.usual]
            other_names += [(title, "  ".join(names))] if names else []
        if usual:
            formatter.write("\nUsual options:\n")
            formatter.indent()
            explained = [(flags, text.partition(". ")[0].rstrip(".")) for flags, text in usual]
            formatter.write_dl(explained, col_max=34)
            formatter.dedent()
        formatter.write(f"\nOther options (`{ctx.command_path} --help` explains all):\n")
        formatter.indent()
        formatter.write_dl(other_names)
        return formatter.getvalue().rstrip("\n")


class Analysis(Command):
    """A command that only prints, and whose answer is kept (:mod:`traceconv.cli.answers`)."""

    def invoke(self, ctx: click.Context) -> None:
        """Run the command, or print the answer that is kept."""
        from traceconv.cli import answers

        answers.answered(ctx, partial(super().invoke, ctx))


def _help_option(flags: list[str], text: str) -> Option:
    def show(ctx: click.Context, _: click.Parameter, shown: bool) -> None:
        if shown and not ctx.resilient_parsing:
            assert isinstance(ctx.command, Command)
            click.echo(ctx.command.short(ctx) if flags[0] == "-h" else ctx.get_help())
            ctx.exit()

    return Option(
        flags, section="Messages", is_flag=True, is_eager=True, expose_value=False, callback=show,
        help=text,
    )  # fmt: skip


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


def _once(ctx: click.Context, param: click.Parameter, reports: tuple[str, ...]) -> str | None:
    """The only value; click would take the last of several without a word."""
    if len(reports) > 1:
        message = f"given {len(reports)} times; write one report per call"
        raise click.BadParameter(message, ctx, param)
    return reports[0] if reports else None


report = option(
    "--report",
    multiple=True,
    callback=_once,
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
        "-q", "--quiet", is_flag=True, section="Messages", help="Print results and errors only."
    )(function)

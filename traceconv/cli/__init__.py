"""The command line: the only place that prints, exits or shows a bar.

A command is loaded when it is called, and loads the library when it runs: ``--help`` and
``--version`` need neither numpy nor protobuf.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from types import ModuleType, TracebackType
from typing import Any, NoReturn

import click

from traceconv.cli import completion, say
from traceconv.core.choices import unknown
from traceconv.core.errors import OutputError, ResourceError, TraceconvError
from traceconv.core.patterns import lazy_regex
from traceconv.io.run_files import one_run

_PERFETTO_MODE = lazy_regex(
    "binary|bundle|ctrace|deobfuscate|decompress_packets|firefox|hprof|java_heap_profile|json|"
    "profile|symbolize|systrace|text|util"
)
"""First words by which Perfetto's helper of the same name was called."""

NOT_PERFETTO = (
    "This is not the helper program `traceconv` of the Perfetto project (now a part of its "
    "trace_processor); they only share a name. `rank-traceconv` calls this one, too."
)


TASKS = {
    "Write traces": "merge convert join align",
    "Analyse captures": "inspect diagnose stragglers stats critical-path what-if diff query",
    "Show and serve": "open explore watch mcp",
    "Keep and check": "pack cache validate",
    "Look up": "formats explain new-reader",
}
"""Commands by task."""

COMMANDS = sorted(name for names in TASKS.values() for name in names.split())
"""Each is a function of the module that has its name."""


class Commands(click.Group):
    """The group of commands, with pointed answers to what people type by habit."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in order."""
        return COMMANDS

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by task."""
        for title, names in TASKS.items():
            formatter.write(f"\n{title}:\n")
            for name in names.split():
                command = self.get_command(ctx, name)
                assert command is not None
                formatter.write(f"  {name:<15}{command.get_short_help_str(60)}\n")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, or None. It is loaded here: loading the options of all
        commands takes longer than a small merge."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"traceconv.cli.{name}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command named by the first word.

        Raises:
            click.UsageError: it is none; says so in the terms of what was meant.
        """
        word = args[0]
        if word == "help":
            if len(args) == 1:
                click.echo(ctx.get_help())
                ctx.exit()
            return self.resolve_command(ctx, [args[1], "--help"])
        if word not in COMMANDS:
            if _PERFETTO_MODE.fullmatch(word):
                names = [word_given for word_given in args[1:] if not word_given.startswith("-")]
                source, target = (*names, *("IN", "OUT.json")[len(names) :])[:2]
                raise click.UsageError(
                    f"`traceconv {word} ...` calls another program. {NOT_PERFETTO} "
                    f"To convert a file here: traceconv convert {source} -o {target}",
                    ctx,
                )
            if Path(word).exists():
                call = " ".join(["traceconv merge", *args])
                raise click.UsageError(f"no command given; did you mean: {call}", ctx)
            if not ctx.resilient_parsing:  # a shell asks what could follow
                if word in _MEANT:
                    raise click.UsageError(f"no command {word!r}: {_MEANT[word]}", ctx)
                raise click.UsageError(unknown("command", word, COMMANDS), ctx)
        return super().resolve_command(ctx, args)


def _show_version(ctx: click.Context, _: click.Parameter, shown: bool) -> None:
    if not shown or ctx.resilient_parsing:
        return
    from traceconv import native
    from traceconv.core import version

    click.echo(
        f"traceconv {version.__version__}: merges the profiles of many ranks into one trace."
    )
    used, parts = native.in_use(), native.TIERS
    lacking = ", ".join(part.removeprefix("_") for part in parts if part not in used)
    built = f"all but {lacking}" if lacking else "all"
    click.echo(f"parts in C: {built if used else 'none (three to four times slower, same output)'}")
    click.echo(
        f"formats: raw event log {version.RAW_EVENT_LOG}, report {version.REPORT}, "
        f"shard {version.SHARD}, store {version.STORE}, rank file {version.RANK_FILE}"
    )
    click.echo(NOT_PERFETTO)
    ctx.exit()


EPILOG = """Exit codes: 0 done, 1 internal error, 2 usage (a wrong option, an output that exists, a
missing package), 3 input unreadable or nothing matched, 4 losses or warnings under --strict, 5
alignment refused, 10 findings or a proven regression under --fail-on, 11 diff: no verdict
on a gate, or runs that cannot be compared."""


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog=EPILOG,
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version, the tier and the versions of formats, and exit.",
)
def cli() -> None:
    """Merge the profiles of many ranks, from any vendor, into one exact trace.

    `traceconv COMMAND -h` shows a short help, `traceconv help COMMAND` all options.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code. Errors are on standard error by then."""
    try:
        with one_run(), cli.make_context("traceconv", list(arguments)) as ctx:
            cli.invoke(ctx)
    except click.exceptions.Exit as e:
        return e.exit_code
    except click.ClickException as e:
        if type(e).__name__ == "NoArgsIsHelpError":  # click 8.2
            e.show()
        else:
            say.error(_usage_error(e))
        return e.exit_code
    except (KeyboardInterrupt, click.Abort):
        say.message("interrupted; nothing was written")
        return 130
    except TraceconvError as e:
        if isinstance(e.__cause__, BrokenPipeError):
            return READER_GONE
        say.error(say.with_flags(str(e)))
        return e.exit_code
    except BrokenPipeError:
        return READER_GONE
    except OSError as e:  # of the system, not of this program
        say.error(f"{f'{e.filename}: ' * bool(e.filename)}{e.strerror or e}")
        return OutputError.exit_code
    except MemoryError:
        say.error("not enough memory; --mem-limit keeps a run within a limit")
        return ResourceError.exit_code
    return 0


READER_GONE = 141
"""Exit code of a command whose output is not read any more."""


_MEANT = {
    "report": "`traceconv diagnose ./prof -o report.html` writes the findings, `traceconv merge "
    "./prof --report report.html` a report with the trace, and `traceconv explore ./prof` shows "
    "a run",
    "--report": "-o FILE.html writes the report",
}
"""Commands and options that people try, and what does the same here."""


def _meant(option: str, context: click.Context) -> str:
    """What to use in place of an option that a command lacks, and others have; "" if none has."""
    if option in _MEANT and any("--output" in param.opts for param in context.command.params):
        return _MEANT[option]
    group, root = context.find_root().command, context.find_root()
    commands = (
        [(name, group.get_command(root, name)) for name in COMMANDS]
        if isinstance(group, click.Group)
        else []
    )
    having = [
        name
        for name, command in commands
        if command and any(option in param.opts for param in command.params)
    ]
    return f"{', '.join(having)} {'has' if len(having) == 1 else 'have'} it" if having else ""


def _usage_error(error: click.ClickException) -> str:
    """What click found wrong with the command line, in the form of all errors."""
    text = error.format_message()
    text = text.rstrip(".") if text[1:2].isupper() else f"{text[:1].lower()}{text[1:]}".rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.NoSuchOption) and context is not None:
        name, near = error.option_name, sorted(error.possibilities or (), key=lambda o: (len(o), o))
        if meant := _meant(name, context):
            return f"no option {name}: {meant}"
        near = [option for option in near if option.startswith(name)] or near
        hint = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
        return f"no option {name}{hint}; `{context.command_path} -h` lists all"
    if context is not None and text.startswith("got unexpected extra argument"):
        writes = any("-o" in parameter.opts for parameter in context.command.params)
        return text + "; the output is given by -o FILE" * writes
    return text


def _internal_error(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    say.message(f"internal error: {kind.__name__}: {error}", fg="red")
    if {"-v", "--verbose"} & set(sys.argv[1:]):
        from traceback import print_exception

        print_exception(kind, error, trace)
    else:
        say.message("This is a fault of traceconv. Add -v for the traceback, and report it.")


_LOADING = RLock()


class _PutOff(ModuleType):
    """A package that is loaded when something of it is first used. Finding captures does not use
    numpy, whose loading takes as long as that."""

    def __getattr__(self, name: str) -> Any:
        with _LOADING:
            if type(self) is _PutOff:  # else another thread has loaded it meanwhile
                spec = self.__spec__
                if spec is None or spec.loader is None:
                    raise AttributeError(name)
                self.__class__ = ModuleType  # type: ignore[assignment]
                self.__path__ = spec.submodule_search_locations or []
                spec.loader.exec_module(self)
                gc.freeze()  # modules stay, and need no search for cycles
        return getattr(self, name)


def _load_later(package: str) -> None:
    """Have a package loaded late, if it can be loaded and is not; see :class:`_PutOff`."""
    spec = find_spec(package)
    if spec is not None and package not in sys.modules:
        sys.modules[package] = module = _PutOff(package)
        module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin


def main() -> NoReturn:
    """Run the command line of this process, and end it."""
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        pass  # a file must not get the number of a standard stream that is closed
    os.close(number)
    _load_later("numpy")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's own threads have nothing to do
    gc.set_threshold(100_000, 20, 100)  # a small merge makes half as many objects and few cycles
    sys.excepthook = _internal_error
    for name in ("SIGTERM", "SIGHUP"):  # and clean up
        ending = getattr(signal, name, None)  # Windows has no SIGHUP
        if ending is not None and signal.getsignal(ending) is signal.SIG_DFL:  # not under nohup
            signal.signal(ending, lambda number, _: sys.exit(128 + number))
    completed = completion.answer(cli)
    code = run(sys.argv[1:]) if completed is None else completed
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:  # reported where it was written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = code or OutputError.exit_code
    sys.exit(code)

"""Shell completion of commands, options and values.

click makes the scripts for the shells and asks every option what may follow; here are the answers:
names of formats, tables, rules, layers and issue codes, and files where one is to be named. They
come from the library's own lists, which are imported when a shell asks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from traceconv.cli import say
from traceconv.core.choices import unknown

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from traceconv.options.declaration import Option

Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]
Source = Callable[[], Iterable[tuple[str, str]]]
"""Gives (word, what it means) pairs."""

PROGRAMS = ("traceconv", "rank-traceconv")


def answer(cli: click.Command) -> int | None:
    """Answer a shell; None if none asks, which is by a variable of the environment.

    Returns:
        the exit code: 2 if the shell is none of those that click knows.
    """
    for program in PROGRAMS:
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        if request := os.environ.get(variable):
            from click.shell_completion import get_completion_class, shell_complete

            shell = request.partition("_")[0]
            if get_completion_class(shell) is None:
                words = [f"{shell_name}_source" for shell_name in ("bash", "zsh", "fish")]
                say.message(f"error: {variable}: {unknown('script', request, words)}", fg="red")
                return 2
            return shell_complete(cli, {}, program, variable, request)
    return None


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files and folders, as the shell lists them."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def one_of(source: Source, else_files: bool = False) -> Complete:
    """One word of ``source``; a file where none begins so and ``else_files``."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        matching = _items((w, meaning) for w, meaning in source() if w.startswith(incomplete))
        return matching if matching or not else_files else files(ctx, param, incomplete)

    return complete


def some_of(source: Source) -> Complete:
    """Words of ``source`` with commas between them, each once."""

    def complete(
        ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        before, comma, word_begun = incomplete.rpartition(",")
        had = before.split(",")
        return _items(
            (before + comma + word, meaning)
            for word, meaning in source()
            if word.startswith(word_begun) and word not in had
        )

    return complete


def _items(words: Iterable[tuple[str, str]]) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(word, help=meaning or None) for word, meaning in words]


def these(*words: str) -> Source:
    """A source of words that are known beforehand."""
    return lambda: [(word, "") for word in words]


def readers() -> list[tuple[str, str]]:
    """Values of --from."""
    from traceconv.find import registry

    return [(reader.name, reader.title) for reader in registry.readers().found.values()]


def writers() -> list[tuple[str, str]]:
    """Values of --to."""
    from traceconv.find import registry

    return [(writer.name, writer.title) for writer in registry.writers().found.values()]


def layers() -> list[tuple[str, str]]:
    """Values of --layers."""
    from traceconv.core.model import Layer

    return [(layer.value, "") for layer in Layer]


def tables() -> list[tuple[str, str]]:
    """Values of --by: what answers one question, and single tables."""
    from traceconv.analysis.tables.catalog import BY, FILES, TABLES

    groups = [(name, "tables: " + ", ".join(BY[name])) for name in BY if name != "files"]
    single = [(name, table.title) for name, table in {**TABLES, **FILES}.items() if name not in BY]
    return [*groups, ("files", "tables of profilers, as they are"), ("all", ""), *single]


def of_columns(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of columns of the tables of --by, with commas between them."""
    from traceconv.analysis.tables.catalog import FILES, TABLES, chosen

    by = str(ctx.params.get("by") or "step,overlap").split(",")
    columns = [column for name in chosen(by) for column in {**TABLES, **FILES}[name].columns]
    names = dict.fromkeys(column.name for column in columns)
    return some_of(these(*names))(ctx, param, incomplete)


def rules() -> list[tuple[str, str]]:
    """Values of --rule."""
    from traceconv.analysis.rules.catalog import RULES

    return [(rule.id, rule.title) for rule in RULES.values()]


def presets() -> list[tuple[str, str]]:
    """Named values of --map."""
    from traceconv.readers.event_log.find import PRESETS

    return [(name, "") for name in PRESETS]


OF_OPTIONS: dict[str, Complete] = {
    "args": one_of(these("all", "none")),
    "clocks": one_of(these("auto", "collective", "meta", "wall", "none"), else_files=True),
    "files": files,
    "layers": some_of(layers),
    "of_columns": of_columns,
    "presets": one_of(presets, else_files=True),
    "rank_sources": one_of(these("meta", "name", "order")),
    "readers": one_of(readers),
    "rules": some_of(rules),
    "tables": some_of(tables),
    "writers": one_of(writers),
}
"""Completions of options, by the name in their declaration."""


def of_option(one: Option) -> Complete | None:
    """The completion of a declared option; the words of its metavar if it lists words."""
    if one.complete:
        return OF_OPTIONS[one.complete]
    words = one.metavar.split("|")
    return one_of(these(*words)) if len(words) > 1 and one.metavar.islower() else None

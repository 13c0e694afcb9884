"""``traceconv formats``: the readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from traceconv.cli import options, say
from traceconv.core.markup import aligned

if TYPE_CHECKING:
    from traceconv.core.plugins import Plugins
    from traceconv.readers import Reader
    from traceconv.writers import Writer


@click.command(cls=options.Command, short_help="List the formats that are read and written.")
@options.as_json
@options.option(
    "--markdown", is_flag=True, section="Output", help="The tables of the documentation."
)
@options.option(
    "--files", is_flag=True, section="Output", help="Where each kind of file is shown, as Markdown."
)
def formats(as_json: bool, markdown: bool, files: bool) -> None:
    """List the readers, in the order they are tried, and the writers, with those of plugins."""
    from traceconv.analysis.rules import catalog as rules
    from traceconv.analysis.tables import catalog as tables
    from traceconv.find import registry

    if files:
        from traceconv.cli.file_kinds import markdown_table

        say.data(markdown_table(registry.readers()))
        return
    readers, writers = registry.readers(), registry.writers()
    reads, writes = format_rows(readers, writers)
    brought = (readers, writers, rules.PLUGINS, tables.PLUGINS)
    broken = [plugin for plugins in brought for plugin in plugins.broken]
    if as_json:
        say.document(
            {
                "schema_version": 1,
                "readers": [
                    {**dict(zip(("name", "title", "files"), r, strict=True)), "unverified": u}
                    for r, u in zip(reads, unverified(readers), strict=True)
                ],
                "writers": [
                    dict(zip(("name", "title", "suffixes"), w, strict=True)) for w in writes
                ],
                "broken": [{"name": name, "reason": reason} for name, reason in broken],
            }
        )
    elif markdown:
        say.data(markdown_tables(reads, writes))
    else:
        _show("reads (--from)", reads)
        for row, kinds in zip(reads, unverified(readers), strict=True):
            if kinds:
                say.data(f"    {row[0]}, not tried on recordings: {kinds}")
        _show("writes (--to, or by the extension)", writes)
    for name, reason in broken:
        say.message(f"plugin {name} does not load and is left out: {reason}", fg="yellow")


Row = tuple[str, str, str]


def format_rows(
    readers: Plugins[Reader], writers: Plugins[type[Writer]]
) -> tuple[list[Row], list[Row]]:
    """(name, title, files or endings) of every reader and every writer."""
    reads = [(r.name, r.title, r.files) for r in readers.found.values()]
    writes = [(w.name, w.title, " ".join(w.suffixes)) for w in writers.found.values()]
    return reads, writes


def unverified(readers: Plugins[Reader]) -> list[str]:
    """What each reader takes from a published layout only; "" where all was tried."""
    return [getattr(r, "unverified", "") for r in readers.found.values()]


def _show(title: str, rows: list[Row]) -> None:
    say.data(title)
    for line in aligned(rows, range(3)):
        say.data(f"  {line}")


def markdown_tables(reads: list[Row], writes: list[Row]) -> str:
    """The two tables as Markdown."""
    lines = ["| Read | `--from` | Files |", "|---|---|---|"]
    lines += [f"| {title} | `{name}` | `{files}` |" for name, title, files in reads]
    lines += ["", "| Written | `--to` | Endings |", "|---|---|---|"]
    lines += [f"| {title} | `{name}` | `{files}` |" for name, title, files in writes]
    return "\n".join(lines)

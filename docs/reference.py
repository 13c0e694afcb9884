"""Writes what pages of the reference have from the code: commands, formats, rules, tables, issues.

It is between ``<!-- generated NAME -->`` and ``<!-- end -->``, of a function of :data:`GENERATED`.
MkDocs calls the functions ``on_...`` (``hooks`` in ``mkdocs.yml``).

    python docs/reference.py              after a change of an option, a rule, a table or an issue
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from traceconv.api.explain import meanings
from traceconv.cli import cli, file_kinds, say
from traceconv.cli.formats import format_rows, markdown_tables, unverified
from traceconv.cli.options import Command
from traceconv.core.codes import CODES
from traceconv.core.rank_tables import TABLES
from traceconv.find import registry

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):<code>~?([\w.]+)</code>")
"""A cross reference of a docstring, as Markdown makes it."""

MARK = re.compile(r"(?s)<!-- generated ([a-z ]+) -->(?:.*?<!-- end -->)?")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, with its special characters escaped."""
    lines = [head, ["---"] * len(head), *([_cell(text) for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    parts = " ".join(text.split()).split("`")
    for outside in range(0, len(parts), 2):
        parts[outside] = re.sub(r"([<*|])", r"\\\1", parts[outside])
    return "`".join(parts) or "–"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def commands() -> str:
    """Every command: how it is called, what it does, its options by their purpose."""
    around = click.Context(cli, info_name="traceconv")
    return "\n\n".join(_command(name, around) for name in cli.list_commands(around))


def _command(name: str, around: click.Context) -> str:
    command = cli.get_command(around, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=around)
    usage = " ".join(["traceconv", name, *command.collect_usage_pieces(context)])
    texts = [f"## traceconv {name}", f"```text\n{usage}\n```", _prose(command.help or "")]
    assert isinstance(command, Command)
    for title, found in command.sections(context).items():
        texts.append(f"**{title}**\n\n{_options(found, context)}")
    return "\n\n".join(texts)


def _prose(text: str) -> str:
    r"""A help text: paragraphs after ``\b`` are calls."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        "```sh\n" + one.removeprefix("\b").strip("\n") + "\n```" if one.startswith("\b") else one
        for one in paragraphs
    )


def _options(found: Iterable[click.Option], context: click.Context) -> str:
    rows = []
    for option in found:
        record = option.get_help_record(context)
        if record is not None:  # else it is hidden
            rows.append((_code(record[0]), record[1]))
    return table(("Option", "Meaning"), rows)


def rules() -> str:
    """The rules of diagnose, with advice."""
    rows = [
        (
            _code(one.code),
            one.kind.rpartition("about ")[2],
            one.says,
            *(dict(one.more)[key] for key in ("speaks if", "needs", "advice")),
        )
        for one in _meant("rule of diagnose")
    ]
    return table(("Rule", "About", "Says", "Speaks if", "Needs", "Advice"), rows)


def issues() -> str:
    """The closed table of issue codes."""
    rows = [
        (_code(name), str(code.severity), say.with_flags(code.advice))
        for name, code in CODES.items()
    ]
    return table(("Code", "Severity", "Meaning, and what to do"), rows)


def faults() -> str:
    """What ``traceconv validate`` finds."""
    rows = [
        (_code(one.code), one.kind.rpartition(", ")[2], one.says)
        for one in _meant("rule of validate")
    ]
    return table(("Code", "Severity", "Meaning"), rows)


def tables() -> str:
    """The tables of stats, with formulas."""
    rows = [
        (_code(one.code), one.says, dict(one.more)["formula"], dict(one.more)["needs"])
        for one in _meant("table of stats")
    ]
    return table(("Table", "Title", "Formula", "Needs"), rows)


def _meant(kind: str) -> list[Any]:
    return [one for one in meanings() if one.kind.split(",")[0] == kind]


def formats() -> str:
    """Formats that are read and written, and kinds of them that no recording was at hand for."""
    readers, writers = registry.readers(), registry.writers()
    reads, writes = format_rows(readers, writers)
    untried = [
        f"- `{row[0]}`: {kinds}"
        for row, kinds in zip(reads, unverified(readers), strict=True)
        if kinds
    ]
    head = "Read as their layout is described, without a recording of them to try it on:"
    return "\n\n".join([markdown_tables(reads, writes), head, "\n".join(untried)])


def files() -> str:
    """Every kind of file, and where it is shown."""
    return file_kinds.markdown_table(registry.readers())


def parquet() -> str:
    """The columns of every table of the Parquet output."""
    found = []
    for name, columns in TABLES.items():
        rows = [(_code(column), kind, text) for column, (kind, text) in columns.items()]
        found += [f"## {name}", table(("Column", "Type", "Meaning"), rows)]
    return "\n\n".join(found)


GENERATED: dict[str, Callable[[], str]] = {
    "commands": commands,
    "faults": faults,
    "files": files,
    "formats": formats,
    "issues": issues,
    "parquet": parquet,
    "rules": rules,
    "tables": tables,
}
"""By the name that a page gives."""


def filled(page: str) -> str:
    """A page with what is generated for it.

    Raises:
        KeyError: it asks for something that nothing here makes.
    """
    return MARK.sub(
        lambda mark: f"<!-- generated {mark[1]} -->\n\n{GENERATED[mark[1]]()}\n\n<!-- end -->", page
    )


def on_page_content(html: str, **_: Any) -> str:
    """The page with the names that docstrings refer to, without their role and their module."""
    return _ROLE.sub(lambda role: f"<code>{role[1].rpartition('.')[2]}</code>", html)


if __name__ == "__main__":
    for page in sorted(Path(__file__).parent.rglob("*.md")):
        text = page.read_text()
        if filled(text) != text:
            page.write_text(filled(text))
            say.data(f"wrote {page}")

"""Writes what pages of the reference have from the code: commands, formats, rules, tables, issues,
and the API from its signatures and docstrings.

It is between ``<!-- generated NAME -->`` and ``<!-- end -->``, of a function of :data:`GENERATED`.
    python docs/reference.py              after a change of an option, a rule, a table or an issue
"""

from __future__ import annotations

import enum
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

import traceconv
from traceconv import plugin
from traceconv.api.explain import meanings
from traceconv.cli import cli, file_kinds, say
from traceconv.cli.formats import format_rows, markdown_tables, unverified
from traceconv.cli.options import Command
from traceconv.core.codes import CODES
from traceconv.core.rank_tables import TABLES
from traceconv.find import registry

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`~?(?:[\w.]+\.)?(\w+)`")
"""A cross reference of a docstring."""

_SECTION = re.compile(r"(?m)^(Args|Attributes|Keyword Args|Raises|Returns|Yields):$")

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


# -- the API ------------------------------------------------------------------------------


def _public(chosen: Callable[[Any], bool], names: Iterable[str] = traceconv._HOMES) -> str:
    """The chosen names of the package: how each is called, and its docstring."""
    homes = {name: getattr(plugin, name, None) or getattr(traceconv, name) for name in names}
    return "\n\n".join(_entry(name, value) for name, value in homes.items() if chosen(value))


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _entry(name: str, value: Any) -> str:
    texts = [f"### {name}"]
    described = inspect.isclass(value) and (
        getattr(value, "_is_protocol", False) or issubclass(value, (Exception, enum.Enum))
    )
    if not described:
        texts.append(f"```python\n{_signature(name, value)}\n```")
    text, keywords, _ = _docstring(value).partition("**Keyword Args**")
    texts.append(text.strip())
    texts += ["Keywords: see [below](#keywords)."] * bool(keywords)
    if inspect.isclass(value) and not _is_error(value):
        texts.append(_members(value))
    return "\n\n".join(filter(None, texts))


class _Default:
    """A default as it is written, whatever it is on this machine."""

    def __init__(self, value: Any) -> None:
        self.text = re.sub(r"<(\w+[.:]? ?)+.*>", "...", getattr(value, "__name__", repr(value)))

    def __repr__(self) -> str:
        return self.text


def _signature(name: str, value: Any) -> str:
    """A call as it is written, without the modules of types."""
    shown = inspect.signature(value)
    parameters = [
        one.replace(default=_Default(one.default)) if one.default is not one.empty else one
        for one in shown.parameters.values()
        if one.name not in ("self", "cls") and not one.name.startswith("_")
    ]
    shown = shown.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    text = re.sub(r"(?<=: )(['\"])(.*?)\1(?=[,)=]| =)", r"\2", f"{name}{shown}")
    text = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", text)
    whole = re.sub(r"(?<!,) |(?<=\]) |(?<=\[)[^\[\]]*", _unbroken, text)
    return textwrap.fill(whole, 100, subsequent_indent="    ").replace(_HARD, " ")


_HARD = "\N{NO-BREAK SPACE}"


def _unbroken(found: re.Match[str]) -> str:
    return found[0].replace(" ", _HARD)


def _docstring(value: Any) -> str:
    """A docstring as Markdown: its sections are lists."""
    text = _ROLE.sub(r"`\1`", inspect.getdoc(value) or "").replace("``", "`")
    plain, *sections = _SECTION.split(text)
    texts = [plain.strip()]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        texts.append(f"**{title}**")
        body, _, rest = body.strip("\n").partition("\n\n" if title != "Returns" else "\0")
        rows = re.split(r"\n(?=\S)", textwrap.dedent(body))
        if title in ("Returns", "Yields"):
            texts.append(" ".join(body.split()))
        else:
            texts.append("\n".join(f"- {_bullet(row)}" for row in rows))
        texts.append(inspect.cleandoc(rest))
    return "\n\n".join(filter(None, texts))


def _bullet(row: str) -> str:
    names, colon, meaning = " ".join(row.split()).partition(": ")
    return f"`{names}`: {meaning.strip()}" if colon and "`" not in names else " ".join(row.split())


def _members(value: Any) -> str:
    """The public methods and properties that a class defines, each with its first line."""
    lines = []
    for name, member in vars(value).items():
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if name.startswith("_") or not inspect.getdoc(function):
            continue
        if inspect.isfunction(function):
            called = " ".join(_signature(name, function).split())
        elif isinstance(function, (property, functools.cached_property)):
            called = name
        else:
            continue
        first = " ".join(_docstring(function).split("\n\n")[0].split())
        lines.append(f"- `{called}`: {first}")
    return "\n".join(lines)


def keywords() -> str:
    """Every keyword of the functions, and what it means; the same in all of them."""
    rows: dict[tuple[str, str], list[str]] = {}
    for verb in traceconv._HOMES:
        value = getattr(traceconv, verb)
        _, _, text = _docstring(value).partition("**Keyword Args**")
        for row in re.findall(r"(?m)^- `(\w+)`: (.*)$", text if inspect.isfunction(value) else ""):
            rows.setdefault(row, []).append(verb)
    every = max(map(len, rows.values()))
    return table(
        ("Keyword", "Of", "Meaning"),
        [
            (_code(name), "most" if len(of) > every / 2 else ", ".join(map(_code, of)), meaning)
            for (name, meaning), of in sorted(rows.items())
        ],
    )


GENERATED: dict[str, Callable[[], str]] = {
    "classes": functools.partial(_public, lambda one: inspect.isclass(one) and not _is_error(one)),
    "commands": commands,
    "errors": functools.partial(_public, _is_error),
    "faults": faults,
    "files": files,
    "formats": formats,
    "functions": functools.partial(_public, inspect.isfunction),
    "issues": issues,
    "keywords": keywords,
    "parquet": parquet,
    "plugins": functools.partial(
        _public,
        lambda one: inspect.isclass(one) or inspect.isfunction(one),
        [name for name in plugin.__all__ if name not in traceconv.__all__],
    ),
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


if __name__ == "__main__":
    for page in sorted(Path(__file__).parent.rglob("*.md")):
        text = page.read_text()
        if filled(text) != text:
            page.write_text(filled(text))
            say.data(f"wrote {page}")

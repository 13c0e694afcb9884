"""``traceconv explain``: what a code means."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import click

from traceconv.cli import completion, options, say
from traceconv.core.choices import nearest

SCHEMA_VERSION = 1

_ISSUE = {
    "info": "only said; nothing is lost or in doubt",
    "doubt": "kept or repaired, and maybe not right; an error under --strict",
    "loss": "not in the output; an error under --strict",
}
_FAULT = {
    "error": "viewers count an error, or refuse the file",
    "loss": "viewers count a loss",
    "silent": "viewers say nothing, and drop something or show it wrong",
    "notice": "nothing is lost",
}


@dataclass(frozen=True)
class Meaning:
    """What one code means.

    Attributes:
        code: as it is printed.
        kind: what it is the code of: an issue, a rule of ``diagnose`` or ``validate``, a table.
        says: one line.
        more: (heading, text) pairs; texts may name keyword arguments.
    """

    code: str
    kind: str
    says: str
    more: tuple[tuple[str, str], ...] = ()


def meanings() -> list[Meaning]:
    """Every code of issues (those of plugins, too), rules and tables."""
    return [*_issues(), *_rules(), *_faults(), *_tables()]


def _issues() -> Iterator[Meaning]:
    from traceconv.core.errors import codes
    from traceconv.find import registry

    registry.readers()  # a plugin announces its codes as it is imported
    for name, code in codes().items():
        severity = str(code.severity)
        yield Meaning(name, f"issue, {severity}", code.advice, (("that is", _ISSUE[severity]),))


def _rules() -> Iterator[Meaning]:
    from traceconv.analysis.rules.catalog import RULES, rows

    for rule, row in zip(RULES.values(), rows(), strict=True):
        more = (
            ("speaks if", f"{row['measure']} {row['threshold']} (from: {row['source']})"),
            ("needs", rule.needs),
            ("advice", rule.advice),
            ("change it by", f"--threshold {rule.id}=NUMBER"),
        )
        yield Meaning(rule.id, f"rule of diagnose, about {rule.theme}", rule.title, more)


def _faults() -> Iterator[Meaning]:
    from traceconv.validation.rules import RULES

    for name, rule in RULES.items():
        severity = str(rule.severity)
        more = (("that is", _FAULT[severity]),)
        yield Meaning(name, f"rule of validate, {severity}", rule.sentence, more)


def _tables() -> Iterator[Meaning]:
    from traceconv.analysis.tables.catalog import FILES, TABLES

    for table in (*TABLES.values(), *FILES.values()):
        more = (("formula", table.formula), ("needs", table.needs))
        yield Meaning(table.name, "table of stats", table.title, more)


def _offered() -> list[tuple[str, str]]:
    return [(one.code, one.kind) for one in meanings()]


@click.command(cls=options.Command, short_help="Explain an issue, a rule or a table.")
@click.argument("words", metavar="[CODE]...", nargs=-1, shell_complete=completion.one_of(_offered))
@options.as_json
def explain(words: Sequence[str], as_json: bool) -> None:
    """Explain each CODE: an issue, a rule of `diagnose` or `validate`, or a table of `stats`.
    Without CODE, list all of them.

    \b
    traceconv explain truncated
    traceconv explain long-tail P05-redefined
    """
    every = meanings()
    found = [one for word in words for one in _called(word, every)] if words else every
    if as_json:
        entries = [{**asdict(one), "more": dict(one.more)} for one in found]
        say.document({"schema_version": SCHEMA_VERSION, "codes": say.flagged(entries, True)})
        return
    for line in _lines(found) if words else _listed(found):
        say.data(line)


def _called(word: str, every: Sequence[Meaning]) -> list[Meaning]:
    found = [one for one in every if one.code.lower() == word.lower()]
    if not found:
        near = nearest(word, [one.code for one in every])
        raise click.UsageError(f"no code {word!r}{near}; `traceconv explain` lists all")
    return found


def _lines(found: Sequence[Meaning]) -> Iterator[str]:
    for one in found:
        yield f"{one.code} ({one.kind})"
        yield textwrap.indent(_filled(one.says), "  ")
        for heading, text in one.more:
            if text:
                yield textwrap.indent(_filled(f"{heading}: {text}"), "  ")


def _listed(found: Sequence[Meaning]) -> Iterator[str]:
    widths = [
        max(len(text) for text in column)
        for column in zip(*((m.code, m.kind) for m in found), strict=True)
    ]
    for one in found:
        yield f"{one.code:{widths[0]}}  {one.kind:{widths[1]}}  {say.with_flags(one.says)}"


def _filled(text: str) -> str:
    return textwrap.fill(
        say.with_flags(text), say.width() - 2, break_long_words=False, break_on_hyphens=False
    )

"""``traceconv explain``: the meaning of codes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from traceconv.cli import completion, options, say
from traceconv.core.choices import nearest

if TYPE_CHECKING:
    from traceconv.api.explain import Meaning

SCHEMA_VERSION = 1


def _all_meanings() -> list[Meaning]:
    from traceconv.api.explain import meanings

    return list(meanings())


@click.command(cls=options.Command, short_help="Explain an issue, a rule or a table.")
@click.argument(
    "words",
    metavar="[CODE]...",
    nargs=-1,
    shell_complete=completion.one_of(lambda: [(one.code, one.kind) for one in _all_meanings()]),
)
@options.as_json
def explain(words: Sequence[str], as_json: bool) -> None:
    """Explain each CODE: an issue, a rule of `diagnose` or `validate`, or a table of `stats`.
    Without CODE, list all of them.

    \b
    traceconv explain truncated
    traceconv explain long-tail P05-redefined
    """
    chosen = meanings = _all_meanings()
    if words:
        by_code = {meaning.code.lower(): meaning for meaning in meanings}
        for word in words:
            if word.lower() not in by_code:
                codes = [meaning.code for meaning in meanings]
                holding = [code for code in codes if word.lower() in code.lower()][:5]
                near = (
                    f"; with this word: {', '.join(holding)}" if holding else nearest(word, codes)
                )
                raise click.UsageError(
                    f"no code {word!r}{near}; `traceconv explain` lists all, and the glossary in "
                    "docs/glossary.md has the terms"
                )
        chosen = [by_code[word.lower()] for word in words]
    if as_json:
        entries = [{**asdict(meaning), "more": dict(meaning.more)} for meaning in chosen]
        say.document({"schema_version": SCHEMA_VERSION, "codes": say.flagged(entries, True)})
    elif words:
        for meaning in chosen:
            say.data(f"{meaning.code} ({meaning.kind})")
            for text in (
                meaning.says,
                *(f"{heading}: {text}" for heading, text in meaning.more if text),
            ):
                say.page(
                    textwrap.fill(
                        say.with_flags(text), say.width(), initial_indent="  ",
                        subsequent_indent="  ", break_long_words=False, break_on_hyphens=False,
                    )
                )  # fmt: skip
    else:
        code, kind = (
            max(len(getattr(meaning, field)) for meaning in chosen) for field in ("code", "kind")
        )
        for meaning in chosen:
            line = f"{meaning.code:{code}}  {meaning.kind:{kind}}  {say.with_flags(meaning.says)}"
            say.data(say.short(line))

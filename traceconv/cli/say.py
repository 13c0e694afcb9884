"""How the command line speaks: data on stdout, messages on stderr, a bar on terminals only."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from traceconv.core.codes import Severity
from traceconv.core.errors import Issue
from traceconv.core.patterns import lazy_regex
from traceconv.options.declaration import declared
from traceconv.options.verbs import VERBS

ISSUE_LINES = 4
"""At most this many lines of issues end a run; ``-v`` and ``--report`` have them all."""

ALL_LINES = 1000
"""The same under ``-v``."""

FILES_LISTED = 5

_LISTED = ("own-output", "steps-uncovered", "unread-file")
"""Codes whose files or places are named, as they say what a result does not hold."""

_GRAVEST_FIRST = (Severity.LOSS, Severity.DOUBT, Severity.INFO)
_CONTROL = lazy_regex(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_COLOURS = {Severity.LOSS: "red", Severity.DOUBT: "yellow", Severity.INFO: "blue"}


FLAGS = {
    one.name: one.option.flags[0].partition("/")[0]
    for verb in VERBS.values()
    for one in declared(verb)
    if one.option.flags
} | {"after": "AFTER", "limit": "--max-size", "paths": "PATH"}
"""The flag for every keyword argument that messages of the library name in backticks."""

API_ONLY = {"analyse", "merge_options", "selection"}
"""Keywords that messages name and the command line has no flag for, as it never needs them."""

_KEYWORD = lazy_regex(r"`([a-z_]+)(?:=([^`]+))?`")
_PLAIN = lazy_regex(r"[\w./:-]+")
_LONG = {"step_items"}
"""Members of documents that are columns of numbers for programs."""

_ADVISING = ("advice", "needs", "remarks")
"""Members of documents whose text names keywords."""


def with_flags(text: str) -> str:
    """A text of the library with its keyword arguments as flags: `force=True` becomes -f."""
    return _KEYWORD.sub(_flag, text)


def _flag(match: re.Match[str]) -> str:
    flag, value = FLAGS.get(match[1]), match[2]
    if flag is None:
        return match[0]
    if value is None or value == "True":
        return flag
    return f"{flag} {_word(value)}"


def _word(value: str) -> str:
    """A Python value as a word of a command line."""
    if value == "None":
        return "all"
    if value.startswith("{"):
        return re.sub(r"\"([^\"]+)\":\s*", r"\1=", value.strip("{}"))
    paired = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    bare = value[1:-1] if paired else value
    if value.startswith("'"):  # as it is meant to be typed
        return bare if _PLAIN.fullmatch(bare) else value
    return shlex.quote(bare)


_NO_TEXT = frozenset((int, float, bool, type(None)))


def flagged(content: Any, advising: bool = False) -> Any:
    """A document whose advice names flags; everything else in it stays as it is."""
    if content is None or isinstance(content, (int, float)):  # nearly all there is
        return content
    if isinstance(content, Mapping):
        return {key: flagged(value, advising or key in _ADVISING) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        if _NO_TEXT.issuperset(map(type, content)):  # columns of figures
            return list(content)
        return [flagged(one, advising) for one in content]
    return with_flags(content) if advising and isinstance(content, str) else content


def data(text: str) -> None:
    """A line of the result."""
    click.echo(_harmless(text) if sys.stdout.isatty() else text)


def document(content: Mapping[str, Any]) -> None:
    """The result as one JSON document."""
    click.echo(json_text(content))


def json_text(content: Mapping[str, Any]) -> str:
    """A document as JSON text, its advice with flags; long columns on a line of their own."""
    import orjson

    plain = flagged(content)
    for key in _LONG & plain.keys():
        plain[key] = orjson.Fragment(orjson.dumps(plain[key]))
    return orjson.dumps(plain, option=orjson.OPT_INDENT_2).decode()


def message(text: str, **style: Any) -> None:
    """A line for people. Control characters of inputs do not reach the terminal."""
    text = _harmless(text)
    styled = click.style(text, **style) if style else text
    click.echo(styled, err=True, color=False if os.environ.get("NO_COLOR") else None)


def _harmless(text: str) -> str:
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def width() -> int:
    """Columns of the terminal, by the variable COLUMNS or itself; 80 where there is none."""
    return max(shutil.get_terminal_size().columns, 40)


def fits() -> bool:
    """Whether results are to keep to :func:`width`: on a terminal, or where COLUMNS is set."""
    return sys.stdout.isatty() or "COLUMNS" in os.environ


def short(text: str) -> str:
    """A text in one line of the terminal."""
    if not fits():
        return text
    indent = text[: len(text) - len(text.lstrip())]
    return indent + textwrap.shorten(text, width() - len(indent), placeholder=" ...")


def number(count: int, noun: str) -> str:
    """``1 finding``, ``2 findings``."""
    return f"{count} {noun}{'s' * (count != 1)}"


def size(n_bytes: int) -> str:
    """Bytes for people, in units of 1024: ``1.5M``."""
    value = float(n_bytes)
    for unit in ("B", "K", "M", "G"):
        if value < 1024:
            return f"{value:.1f}{unit}" if unit != "B" else f"{n_bytes}B"
        value /= 1024
    return f"{value:.1f}T"


def issue_lines(issues: Iterable[Issue], limit: int) -> list[tuple[str, Severity]]:
    """One line per issue code, the gravest first, with counts summed over files and ranks.

    What is only for information shares one line, unless there is room for everything.

    Returns:
        (line, severity) pairs, at most ``limit`` of them.
    """
    groups: dict[str, list[Issue]] = {}
    for issue in issues:
        groups.setdefault(issue.code, []).append(issue)
    ordered = sorted(groups.values(), key=lambda g: _GRAVEST_FIRST.index(g[0].severity))
    if limit == ALL_LINES:
        return [(_issue_line(group) + _places(group), group[0].severity) for group in ordered]
    grave = [group for group in ordered if group[0].severity is not Severity.INFO]
    lines = [(_issue_line(group), group[0].severity) for group in grave]
    if len(lines) > limit - 1:
        rest = len(lines) - limit + 2
        lines = [
            *lines[: limit - 2],
            (f"... and {rest} more kinds (-v shows them)", Severity.DOUBT),
        ]
    own, notes = _parted(ordered[len(grave) :])
    lines += [(_issue_line(group), group[0].severity) for group in own]
    if notes:
        codes = ", ".join(f"{group[0].code} x{_count(group)}" for group in notes)
        lines.append((f"info: {codes} (-v explains)", Severity.INFO))
    return lines


def _parted(groups: list[list[Issue]]) -> tuple[list[list[Issue]], list[list[Issue]]]:
    """Groups that say something of what is in the result, and those that may share a line."""
    shown = [group for group in groups if group[0].code in _LISTED]
    return shown, [group for group in groups if group not in shown]


def _count(group: list[Issue]) -> int:
    return sum(issue.count for issue in group)


def _issue_line(group: list[Issue]) -> str:
    first, count = group[0], _count(group)
    files = list(dict.fromkeys(issue.file for issue in group if issue.file))
    where = f" in {len(files)} files" if len(files) > 1 else f" in {files[0]}" if files else ""
    if first.code in _LISTED:
        named = files or list(dict.fromkeys(place for one in group for place in one.places))
        where = f": {', '.join(named[:FILES_LISTED])}{' ...' * (len(named) > FILES_LISTED)}"
    return f"{first.severity}: {first.code} x{count}{where}: {with_flags(first.advice)}"


def _places(group: list[Issue]) -> str:
    """Where to look, for those who want to know all of it."""
    if group[0].code in _LISTED:
        return ""
    places = list(dict.fromkeys(place for one in group for place in one.places))
    more = " ..." if len(places) > FILES_LISTED or _count(group) > len(places) else ""
    return f" [{'; '.join(places[:FILES_LISTED])}{more}]" if places else ""


def show_issues(issues: Iterable[Issue], quiet: bool, verbose: bool, pointer: bool = False) -> None:
    """The closing lines on stderr, none if ``quiet``.

    Args:
        pointer: whether to say how all of them can be had.
    """
    lines = [] if quiet else issue_lines(issues, ALL_LINES if verbose else ISSUE_LINES)
    for line, severity in lines:
        message(line if verbose else short(line), fg=_COLOURS[severity])
    if pointer and any(severity is not Severity.INFO for _, severity in lines):
        message(
            "All issues with their places: --report report.md; what a code means: "
            "traceconv explain CODE"
        )


@contextmanager
def bar(quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """A callable for ``progress=`` that draws bars on a terminal and does nothing elsewhere."""
    bars = _Bars(shown=not quiet and sys.stderr.isatty())
    try:
        yield bars.advance
    finally:
        bars.close()


_BYTES = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
"""What is counted, in units of 1024, with how many per second."""


class _Bars:
    """One bar at a time: a new label begins a new one."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._bar: Any = None
        self._label = ""

    def advance(self, done: int, total: int, label: str) -> None:
        """Take in that ``done`` more bytes of ``total`` (0 = unknown) of the stage ``label`` are
        done; a stage that counts none is named when it begins."""
        if not self._shown:
            return
        if self._bar is None or label != self._label:
            from tqdm import tqdm  # type: ignore[import-untyped]

            self.close()
            self._label = label
            self._bar = tqdm(
                total=total or None,
                desc=label,
                bar_format=None if total or done else "{desc} ...",
                leave=False,
                **_BYTES,
            )
        self._bar.update(done)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

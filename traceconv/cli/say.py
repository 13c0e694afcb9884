"""How the command line speaks: data on stdout, messages on stderr, a bar on terminals only."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import click

from traceconv.core.codes import Severity
from traceconv.core.errors import Issue, OutputError
from traceconv.core.markup import one_line
from traceconv.core.patterns import lazy_regex
from traceconv.options.declaration import declared
from traceconv.options.verbs import VERBS

ISSUE_LINES = 4
"""Lines of issues at the end of a run; ``-v`` and ``--report`` have all of them."""

ALL_LINES = 1000
"""The same under ``-v``."""

FILES_LISTED = 5

_WHOLE: Any = {"break_long_words": False, "break_on_hyphens": False}
"""What :func:`textwrap.wrap` leaves whole: paths and options are copied."""

_LISTED = ("empty-file", "own-output", "steps-uncovered", "unread-file")
"""Codes whose files or places are named: they say what is missing in a result."""

_WORST_FIRST = (Severity.LOSS, Severity.DOUBT, Severity.INFO)
_COLOURS = {Severity.LOSS: "red", Severity.DOUBT: "yellow", Severity.INFO: "blue"}


FLAGS = {
    one.name: one.option.flags[0].partition("/")[0]
    for verb in VERBS.values()
    for one in declared(verb)
    if one.option.flags
} | {"after": "AFTER", "limit": "--max-size", "paths": "PATH"}
"""The flag for every keyword argument that messages of the library name in backticks."""

API_ONLY = {"analyse", "merge_options", "selection", "sql"}
"""Keywords in messages for which the command line needs no flag."""

_FIGURE = lazy_regex(r"(\d) (%|[mµn]?s\b)")
_KEYWORD = lazy_regex(r"`([a-z_]+)(?:=([^`]+))?`")
_PLAIN = lazy_regex(r"[\w./:-]+")
_LONG = {"step_items"}
"""Members of documents that are long columns of numbers."""

_ADVISING = ("advice", "needs", "remarks")
"""Members of documents whose text names keywords."""


def with_flags(text: str) -> str:
    """A text of the library with its keyword arguments as flags: `force=True` becomes -f."""

    def flag(match: re.Match[str]) -> str:
        option, value = FLAGS.get(match[1]), match[2]
        if not option:
            return match[0]
        return option if value in (None, "True") else f"{option} {_word(value)}"

    return _KEYWORD.sub(flag, text)


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
        return [flagged(item, advising) for item in content]
    return with_flags(content) if advising and isinstance(content, str) else content


def data(line: str) -> None:
    """A line of the result for people. Names in it cannot act on the terminal or begin a line."""
    raw(one_line(line))


def page(text: str) -> None:
    """Lines of the result for people."""
    for line in text.rstrip("\n").split("\n"):
        data(line)


def raw(text: str) -> None:
    """A result for programs, as it is.

    Raises:
        OutputError: standard output is closed, or cannot be written.
    """
    if sys.stdout is None:
        raise OutputError("standard output is closed")
    if sys.stdout.isatty():
        text = "\n".join(map(one_line, text.split("\n")))
    try:
        again(text, err=False)
    except BrokenPipeError:
        raise
    except OSError as e:
        raise OutputError(f"standard output cannot be written: {e.strerror or e}") from e


def document(content: Mapping[str, Any]) -> None:
    """The result as one JSON document."""
    raw(json_text(content))


def json_text(content: Mapping[str, Any]) -> str:
    """A document as JSON text. Its advice names flags, and its long columns take one line each."""
    import orjson

    from traceconv.core.json_text import encoded

    plain = flagged(content)
    for key in _LONG & plain.keys():
        plain[key] = orjson.Fragment(encoded(plain[key]))
    return encoded(plain, indented=True).decode()


def message(text: str, **style: Any) -> None:
    """Lines for people on standard error; nothing where that is closed or full."""
    text = "\n".join(map(one_line, text.split("\n")))
    styled = click.style(text, **style) if style else text
    with suppress(OSError):
        again(styled, err=True)


_RECORDS: list[list[tuple[bool, str]]] = []
"""Messages and results are recorded here, too."""


def again(text: str, err: bool) -> None:
    """Print what :func:`recorded` has: a text, and whether it goes to standard error."""
    for record in _RECORDS:
        record.append((err, text))
    colour = False if err and os.environ.get("NO_COLOR") else None
    click.echo(text, err=err, color=colour)


@contextmanager
def recorded() -> Iterator[list[tuple[bool, str]]]:
    """The messages and results within the context, as :func:`again` takes them."""
    record: list[tuple[bool, str]] = []
    _RECORDS.append(record)
    try:
        yield record
    finally:
        _RECORDS.remove(record)


def width() -> int:
    """Columns of the terminal, or of the variable COLUMNS; 80 by default."""
    return max(shutil.get_terminal_size().columns, 40)


def fits() -> bool:
    """Whether results are to keep to :func:`width`: on a terminal, or where COLUMNS is set."""
    return "COLUMNS" in os.environ or (sys.stdout is not None and sys.stdout.isatty())


def short(text: str, end: str = " ...") -> str:
    """A text in one line of the terminal, with ``end`` if that is not all of it. What follows the
    dots of ``end`` follows a whole text, too."""
    if not fits():
        return text + end.removeprefix(" ...")
    full = text + end.removeprefix(" ...")
    if len(full) <= width():
        return full
    indent = text[: len(text) - len(text.lstrip())]
    return indent + textwrap.shorten(text, width() - len(indent + end), placeholder="") + end


def error(text: str) -> None:
    """An error, on standard error; wrapped on terminals."""
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    for line in f"error: {text}".split("\n"):
        message("\n".join(wrapped(line)) if on_terminal else line, fg="red")


def wrapped(line: str) -> list[str]:
    """A line in several that fit the terminal. Paths, options, and figures with their units are
    not broken."""
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    unbroken = _FIGURE.sub("\\1\N{NO-BREAK SPACE}\\2", line)
    lines = textwrap.wrap(unbroken, width(), subsequent_indent=indent, **_WHOLE) or [""]
    return [wrapped_line.replace("\N{NO-BREAK SPACE}", " ") for wrapped_line in lines]


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
    """One line per issue code, the worst first, with counts summed over files and ranks.

    Notes are left out unless all lines are wanted, or the note says what is missing.

    Returns:
        (line, severity) pairs, at most ``limit`` of them.
    """
    groups: dict[str, list[Issue]] = {}
    for issue in issues:
        groups.setdefault(issue.code, []).append(issue)
    ordered = sorted(groups.values(), key=lambda g: _WORST_FIRST.index(g[0].severity))
    if limit == ALL_LINES:
        return [(_issue_line(group, True), group[0].severity) for group in ordered]
    lines: list[tuple[str, Severity]] = [
        (_issue_line(group), group[0].severity)
        for group in ordered
        if group[0].severity is not Severity.INFO
    ]
    notes = ordered[len(lines) :]
    if len(lines) > limit:
        remainder = f"... and {len(lines) - limit + 1} more kinds (-v shows them)"
        lines = [*lines[: limit - 1], (remainder, Severity.DOUBT)]
    return lines + [
        (_issue_line(group), Severity.INFO) for group in notes if group[0].code in _LISTED
    ]


def _issue_line(group: list[Issue], with_places: bool = False) -> str:
    example, count = group[0], sum(issue.count for issue in group)
    files = list(dict.fromkeys(issue.file for issue in group if issue.file))
    places = list(dict.fromkeys(place for issue in group for place in issue.places))
    # a screen has no room for the folder
    names = files if with_places else [file.rstrip("/").rpartition("/")[2] for file in files]
    where = f" in {len(files)} files" if len(files) > 1 else f" in {names[0]}" if files else ""
    if example.code in _LISTED:
        listed = files or places
        where = f": {', '.join(listed[:FILES_LISTED])}{' ...' * (len(listed) > FILES_LISTED)}"
    line = f"{example.severity}: {example.code} x{count}{where}: {with_flags(example.advice)}"
    if not with_places or not places or example.code in _LISTED:
        return line
    ellipsis = " ..." if len(places) > FILES_LISTED or count > len(places) else ""
    return f"{line} [{'; '.join(places[:FILES_LISTED])}{ellipsis}]"


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
            "All issues with their places: --report report.md. Meaning of a code: "
            "traceconv explain CODE"
        )


@contextmanager
def bar(quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """A callable for ``progress=`` that draws bars on a terminal and does nothing elsewhere."""
    bars = _Bars(shown=not quiet and sys.stderr is not None and sys.stderr.isatty())
    try:
        yield bars.advance
    finally:
        bars.close()


class _Bars:
    """One bar at a time: a new label begins a new one."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._bar: Any = None
        self._label = ""

    def advance(self, done: int, total: int, label: str) -> None:
        """Count ``done`` more bytes of ``total`` (0 = unknown) of the stage ``label``. A stage
        without bytes is named when it begins."""
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
                unit="B",
                unit_scale=True,
                unit_divisor=1024,
            )
        self._bar.update(done)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

"""How the command line speaks: data on stdout, messages on stderr, a bar on terminals only."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from traceconv.core.errors import Issue, Severity

ISSUE_LINES = 8
"""At most this many lines of issues end a run; ``--report`` has them all."""

ALL_LINES = 1000
"""The same under ``-v``."""

_GRAVEST_FIRST = (Severity.LOSS, Severity.DOUBT, Severity.INFO)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_COLOURS = {Severity.LOSS: "red", Severity.DOUBT: "yellow", Severity.INFO: "blue"}


def data(text: str) -> None:
    """A line of the result."""
    click.echo(_harmless(text) if sys.stdout.isatty() else text)


def document(content: Mapping[str, Any]) -> None:
    """The result as one JSON document."""
    import orjson

    click.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2).decode())


def message(text: str, **style: Any) -> None:
    """A line for people. What inputs put into it cannot command the terminal."""
    text = _harmless(text)
    styled = click.style(text, **style) if style else text
    click.echo(styled, err=True, color=False if os.environ.get("NO_COLOR") else None)


def _harmless(text: str) -> str:
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


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
        return [(_issue_line(group), group[0].severity) for group in ordered]
    grave = [group for group in ordered if group[0].severity is not Severity.INFO]
    lines = [(_issue_line(group), group[0].severity) for group in grave]
    if len(lines) > limit - 1:
        rest = len(lines) - limit + 2
        lines = [
            *lines[: limit - 2],
            (f"... and {rest} more kinds (-v shows them)", Severity.DOUBT),
        ]
    if notes := ordered[len(grave) :]:
        told = ", ".join(f"{group[0].code} x{_count(group)}" for group in notes)
        lines.append((f"info: {told} (-v explains)", Severity.INFO))
    return lines


def _count(group: list[Issue]) -> int:
    return sum(issue.count for issue in group)


def _issue_line(group: list[Issue]) -> str:
    first, count = group[0], _count(group)
    files = {issue.file for issue in group if issue.file}
    where = f" in {len(files)} files" if len(files) > 1 else f" in {files.pop()}" if files else ""
    return f"{first.severity}: {first.code} x{count}{where}: {first.advice}"


def show_issues(issues: Iterable[Issue], limit: int, pointer: bool = False) -> None:
    """The closing lines on stderr.

    Args:
        limit:   most lines.
        pointer: whether to say how all of them can be had.
    """
    lines = issue_lines(issues, limit)
    for line, severity in lines:
        message(line, fg=_COLOURS[severity])
    if pointer and any(severity is not Severity.INFO for _, severity in lines):
        message("Every issue with its places: add --report report.md (or .json).")


@contextmanager
def bar(quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """A callable for ``progress=`` that draws bars on a terminal and does nothing elsewhere."""
    bars = _Bars(wanted=not quiet and sys.stderr.isatty())
    try:
        yield bars.advance
    finally:
        bars.close()


class _Bars:
    """One bar at a time: a new label begins a new one."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._bar: Any = None
        self._label = ""

    def advance(self, done: int, total: int, label: str) -> None:
        """Take in that ``done`` more of ``total`` (0 = unknown) of the stage ``label`` are done."""
        if not self._wanted:
            return
        if self._bar is None or label != self._label:
            from tqdm import tqdm  # type: ignore[import-untyped]

            self.close()
            self._label = label
            self._bar = tqdm(total=total or None, desc=label, unit_scale=True, leave=False)
        self._bar.update(done)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

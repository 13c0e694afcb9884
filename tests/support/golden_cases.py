"""The golden cases: reading ``case.toml``, and what a run over its input comes to as text."""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import tempfile
import tomllib
from contextlib import chdir, closing
from functools import cache
from pathlib import Path

import traceconv
from tests.support.paths import ROOT
from traceconv.core.errors import Issues, TraceconvError


class Case:
    """One folder below ``golden/<reader>/``.

    Attributes:
        options: keyword arguments for ``traceconv.merge``, from ``[options]``.
        error:   text the expected error contains, or "".
        broken:  whether the input is at fault for it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reader = folder.parent.name
        about = tomllib.loads((folder / "case.toml").read_text(encoding="utf-8"))
        self.shows, self.written_by, self.cut_down = (
            about[key] for key in ("shows", "written_by", "cut_down")
        )
        self.options = about.get("options", {})
        error = about.get("error", {})
        self.error = error.get("contains", "")
        self.broken = bool(self.error) and error.get("broken", "tables without" not in self.error)

    @property
    def reading(self) -> dict:
        """Those of ``options`` that say how to read: what every command takes."""
        taken = ("reader", "mapping", "rank_from")
        return {key: self.options[key] for key in taken if key in self.options}

    def merge(self, out: Path, mode: str, **more) -> traceconv.Report:
        """Merge ``input``, which is looked for in the current folder."""
        options = {"scope": True, **self.options, "mode": mode, **more}
        return traceconv.merge("input", out=str(out), force=True, **options)

    def merged(self, ending: str, mode: str) -> tuple[Path, traceconv.Report]:
        """The output of :meth:`merge` in a file that is made once per session: only read it.

        Args:
            ending: of the output: "pftrace", "json", "txt", ...
        """
        return _merged(self.folder, ending, mode)

    def text(self, tmp_path: Path, mode: str, **more) -> str:
        """The text dump of one view."""
        self.merge(tmp_path / "out.txt", mode, **more)
        return (tmp_path / "out.txt").read_text(encoding="utf-8")

    def usual_text(self, mode: str) -> str:
        """:meth:`text` without further options, made once per session."""
        return self.merged("txt", mode)[0].read_text(encoding="utf-8")


CASES = [Case(about.parent) for about in sorted(ROOT.glob("golden/*/*/case.toml"))]
"""All of them."""


@cache
def _merged(folder: Path, ending: str, mode: str) -> tuple[Path, traceconv.Report]:
    out = _session_folder() / f"{folder.parent.name}-{folder.name}-{mode}.{ending}"
    with chdir(case_folder(folder)):
        return out, Case(folder).merge(out, mode)


@cache
def _session_folder() -> Path:
    """Where this process keeps what its tests share; it is removed when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="golden-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def case_folder(folder: Path) -> Path:
    """The folder to run a case in: its own, or a copy in which ``x.sqlite.sql`` is a database.

    Databases are kept as text, so that a change of one can be read. They are built once per
    session: who writes below ``input`` has to copy it first.
    """
    scripts = sorted(folder.glob("input/**/*.sql"))
    if not scripts:
        return folder
    place = _session_folder() / folder.parent.name / folder.name
    shutil.copytree(folder / "input", place / "input")
    for script in scripts:
        copy = place / script.relative_to(folder)
        _build(copy.with_suffix(""), copy.read_text(encoding="utf-8"))
        copy.unlink()
    return place


def _build(path: Path, script: str) -> None:
    """A database of a script, in one transaction: each statement would be synced otherwise."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(f"PRAGMA synchronous=OFF;\nBEGIN;\n{script}\nCOMMIT;")


def issue_lines(issues: Issues) -> str:
    """Issues as lines, in the order in which they were found."""
    return "".join(
        f"{i.severity} {i.code} x{i.count} rank={i.rank} {i.file or '-'}"
        f"{''.join(f' [{place}]' for place in i.places)}\n"
        for i in issues
    )


def outcome(case: Case, tmp_path: Path) -> str:
    """The text of the detail view with its issues, or the error instead."""
    try:
        report = case.merge(tmp_path / "out.txt", "detail")
    except TraceconvError as e:
        return f"error {type(e).__name__}: {e}"
    return (tmp_path / "out.txt").read_text(encoding="utf-8") + issue_lines(report.issues)


def usual_outcome(case: Case) -> str:
    """:func:`outcome` of a case, made once per session."""
    try:
        _, report = case.merged("txt", "detail")
    except TraceconvError as e:
        return f"error {type(e).__name__}: {e}"
    return case.usual_text("detail") + issue_lines(report.issues)

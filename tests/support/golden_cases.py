"""The golden cases: reading ``case.toml``, and what a run over its input comes to as text."""

from __future__ import annotations

import shutil
import sqlite3
import tomllib
from pathlib import Path

import traceconv
from traceconv.core.errors import Issues, TraceconvError


class Case:
    """One folder below ``golden/<reader>/``.

    Attributes:
        options: keyword arguments for ``traceconv.merge``, from ``[options]``.
        error:   text the expected error contains, or "".
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reader = folder.parent.name
        said = tomllib.loads((folder / "case.toml").read_text(encoding="utf-8"))
        self.shows, self.written_by, self.cut_down = (
            said[key] for key in ("shows", "written_by", "cut_down")
        )
        self.options = said.get("options", {})
        self.error = said.get("error", {}).get("contains", "")

    def merge(self, out: Path, mode: str, **more) -> traceconv.Report:
        """Merge ``input``, which is looked for in the current folder."""
        options = {"scope": True, **self.options, "mode": mode, **more}
        return traceconv.merge("input", out=str(out), force=True, **options)

    def text(self, tmp_path: Path, mode: str, **more) -> str:
        """The text dump of one view."""
        self.merge(tmp_path / "out.txt", mode, **more)
        return (tmp_path / "out.txt").read_text(encoding="utf-8")


def case_folder(folder: Path, tmp_path: Path) -> Path:
    """The folder to run a case in: its own, or a copy in which ``x.sqlite.sql`` is a database.

    Databases are kept as text, so that a change of one can be read.
    """
    scripts = sorted(folder.glob("input/**/*.sql"))
    if not scripts:
        return folder
    place = tmp_path / "built"
    shutil.copytree(folder / "input", place / "input")
    for script in scripts:
        copy = place / script.relative_to(folder)
        database = sqlite3.connect(copy.with_suffix(""))
        database.executescript(copy.read_text(encoding="utf-8"))
        database.close()
        copy.unlink()
    return place


def issue_lines(issues: Issues) -> str:
    """Issues as lines, in the order they were met."""
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

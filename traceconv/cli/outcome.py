"""From options to a call of the library, and from its report to words."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceconv.cli import files, options, say, screen
from traceconv.core.errors import OutputPathError, StrictError

if TYPE_CHECKING:
    from traceconv import Report


def write(document: Mapping[str, Any], path: Path) -> None:
    """Write ``document`` (of ``Report.as_dict``) in the format of the file's ending.

    Raises:
        OutputError: the file cannot be written.
    """
    if path.suffix == ".json":
        text = say.json_text(document) + "\n"
    elif path.suffix == ".html":
        from traceconv.report import html

        text = html.page(document)
    else:
        text = markdown(document)
    files.write(path, text)


def markdown(document: Mapping[str, Any]) -> str:
    """The account for people: files, ranks, clock, steps, issues, drops, ledger."""
    from traceconv.report.markdown import lines as analysis_lines

    sections = [
        [f"# traceconv {document['traceconv']}: {document['mode']}"],
        analysis_lines(document.get("overview")),
        _table("Written", document["written"], leave_out=("issues",)),
        _table("Ranks", document["captures"], leave_out=("files",)),
        _clock(document["clock"]),
        _table("Issues", _issues(document["issues"])),
        _table("Dropped to keep the limit", document["dropped"]),
        _table("Rows by stage", _ledger(document["ledger"])),
    ]
    for rank, notes in document["notes"].items():
        steps = notes.get("steps")
        if isinstance(steps, Sequence) and steps and isinstance(steps[0], Mapping):
            sections.append(_table(f"Steps of rank {rank}", steps))
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _table(
    title: str, rows: Iterable[Mapping[str, Any]], leave_out: Sequence[str] = ()
) -> list[str]:
    """A section with a table; its columns are the keys of all rows, in order of appearance."""
    rows = list(rows)
    if not rows:
        return []
    names = [n for n in dict.fromkeys(k for row in rows for k in row) if n not in leave_out]
    lines = [f"## {title}", "", _line(names), _line(["---"] * len(names))]
    return lines + [_line([_cell(row.get(name)) for name in names]) for row in rows]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any) -> str:
    from traceconv.report.figures import UNKNOWN

    if isinstance(value, Mapping):
        value = [f"{key} {one}" for key, one in value.items()]
    if isinstance(value, (list, tuple)):
        value = ", ".join(str(v) for v in value)
    if value is None or value == "":
        return UNKNOWN
    return str(value).replace("|", "\\|").replace("\n", " ")


def _clock(clock: Mapping[str, Any]) -> list[str]:
    plain = [f"{key}: {value}" for key, value in clock.items() if isinstance(value, (str, int))]
    lines = ["## Clock", "", *[f"- {line}" for line in plain]]
    for key, value in clock.items():
        if isinstance(value, Mapping) and value:
            lines += ["", *_nested(key, value)]
    return lines


def _nested(key: str, value: Mapping[str, Any]) -> list[str]:
    rows = [{key: k, **(v if isinstance(v, Mapping) else {"value": v})} for k, v in value.items()]
    return _table(key, rows)[2:]


def _issues(issues: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    order = {"loss": 0, "doubt": 1, "info": 2}
    ranked = sorted(issues, key=lambda issue: order[issue["severity"]])
    return [{**i, "rank": "" if i["rank"] < 0 else i["rank"]} for i in ranked]


def _ledger(ledger: Mapping[str, Mapping[str, Mapping[str, int]]]) -> list[dict[str, Any]]:
    there = {kind for stages in ledger.values() for kinds in stages.values() for kind in kinds}
    named = [kind for kind in ("slice", "instant", "counter", "flow") if kind in there]
    return [
        {"rank": rank, "stage": stage, **dict.fromkeys(named, 0), **kinds}
        for rank, stages in ledger.items()
        for stage, kinds in stages.items()
    ]


VIEWER = "https://ui.perfetto.dev"


@dataclass(frozen=True)
class Task:
    """One call of the library, and how its outcome is reported.

    Attributes:
        options: keyword arguments for :func:`traceconv.merge` or :func:`traceconv.convert`.
        report:  file for the full account, "" for none.
    """

    options: dict[str, Any]
    report: str
    as_json: bool
    quiet: bool
    verbose: bool

    @classmethod
    def of(cls, given: dict[str, Any]) -> Task:
        """The task the command line asks for.

        Raises:
            click.UsageError: two options contradict each other.
            OutputError: the report would overwrite a file.
        """
        report = given.pop("report") or ""
        as_json, quiet, verbose = (given.pop(flag) for flag in ("as_json", "quiet", "verbose"))
        task = cls(options.given(given), report, as_json, quiet, verbose)
        if given["out"] == "-":
            if task.as_json:
                raise click.UsageError("--json and -o - both want stdout; use --report FILE.json")
            task.options.setdefault("writer", "perfetto")
        _check_report(task.report, task.options.get("force", False))
        return task

    def show(self, report: Report) -> None:
        """Show what was done: lines on stderr, JSON on stdout, the account in its file."""
        self._account(report)
        if self.as_json:
            say.document(report.as_dict())
        if self.quiet:
            return
        lines = list(report.lines())
        for line in lines if self.verbose else screen.folded(lines, 12):
            say.message(line)
        if self.options.get("dry_run"):
            say.message(f"would write {report.output}; nothing was read or written (--dry-run)")
        elif self.options.get("shard"):
            of = self.options["shard"].partition("/")[2]
            say.message(f"wrote {report.output}; `traceconv join` joins all {of} shards")
        wrote = [f"wrote {part.path} ({say.size(part.bytes)})" for part in report.written]
        for line in wrote if self.verbose else screen.folded(wrote, 4):
            say.message(line)
        if self.report and not self.options.get("dry_run"):
            say.message(f"wrote {self.report}{self._with_trace(report)}")
        first = str(report.written[0].path) if report.written else ""
        if first.endswith((".pftrace", ".pftrace.gz", ".tar")):
            say.message(f"to look at it: traceconv open {shlex.quote(first)}, or {VIEWER}")
        say.show_issues(report.issues, False, self.verbose, pointer=not self.report)

    def _with_trace(self, report: Report) -> str:
        """How the report is opened beside its trace."""
        if not self.report.endswith(".html") or not report.written:
            return ""
        trace = shlex.quote(str(report.written[0].path))
        return f"; with its trace: traceconv open {trace} --report {shlex.quote(self.report)}"

    @contextmanager
    def accounted(self) -> Iterator[None]:
        """Around the call of the library: the account is written even if --strict refuses."""
        try:
            yield
        except StrictError as e:
            if e.report is not None:
                self._account(e.report)
            raise

    def _account(self, report: Report) -> None:
        if self.report:
            write(say.flagged(report.as_dict()), Path(self.report))


def _check_report(report: str, force: bool) -> None:
    if not report:
        return
    if not report.endswith((".html", ".md", ".json")):
        raise click.UsageError(f"--report {report}: the ending must be .html, .md or .json")
    files.refuse_existing(Path(report), force)
    if not Path(report).parent.is_dir():
        raise OutputPathError(f"{report}: its folder does not exist")

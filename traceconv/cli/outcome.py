"""Commands that write traces: their call of the library, and how its report is shown."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from traceconv.cli import files, options, say, screen
from traceconv.core.codes import Severity
from traceconv.core.errors import StrictError
from traceconv.io.atomic import check
from traceconv.io.run_files import planned

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
    files.write({path: text})


def markdown(document: Mapping[str, Any]) -> str:
    """The report as Markdown: the analysis, the account of the run, rows by stage, steps."""
    from traceconv.report import markdown as pages
    from traceconv.report.blocks import Section
    from traceconv.report.report_page import account, plain_table

    ledger = [
        {"rank": rank, "stage": stage, **kinds}
        for rank, of_rank in document["ledger"].items()
        for stage, kinds in of_rank.items()
    ]
    sections = [*account(document)]
    sections += [Section("ledger", "Rows by stage", [plain_table(ledger)])] * bool(ledger)
    for rank, notes in document["notes"].items():
        steps = notes.get("steps")
        if isinstance(steps, Sequence) and steps and isinstance(steps[0], Mapping):
            table = plain_table(steps, leave_out=("start_ns", "device_start_ns"))  # instants
            sections.append(Section("steps", f"Steps of rank {rank}", [table]))
    lines = [f"# traceconv {document['traceconv']}: {document['mode']}", ""]
    lines += pages.lines(document.get("overview"))
    lines += [line for section in sections for line in pages.section(section)]
    return "\n".join(lines)


VIEWER = "https://ui.perfetto.dev"


@dataclass(frozen=True)
class Task:
    """One call of the library, and how its report is shown.

    Attributes:
        options: keyword arguments for :func:`traceconv.merge` or :func:`traceconv.convert`.
        report:  file for the full report, "" for none.
    """

    options: dict[str, Any]
    report: str
    as_json: bool
    quiet: bool
    verbose: bool

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> Task:
        """The task the command line asks for.

        Raises:
            click.UsageError: two options contradict each other.
            OutputError: the report would overwrite a file.
        """
        report = arguments.pop("report") or ""
        as_json, quiet, verbose = (arguments.pop(flag) for flag in ("as_json", "quiet", "verbose"))
        task = cls(options.given(arguments), report, as_json, quiet, verbose)
        if arguments["out"] == "-":
            if task.as_json:
                raise click.UsageError("--json and -o - both want stdout; use --report FILE.json")
            task.options.setdefault("writer", "perfetto")
        if arguments["out"]:
            planned(arguments["out"], "the output")
        if report and not report.endswith((".html", ".md", ".json")):
            raise click.UsageError(f"--report {report}: the extension must be .html, .md or .json")
        if report:
            check(report, task.options.get("force", False), "the report")
        return task

    def show(self, report: Report) -> None:
        """Show what was done: lines on stderr, JSON on stdout, the report in its file."""
        self._account(report)
        if self.as_json:
            say.document(report.as_dict())
        if self.quiet:
            return
        is_aligned = not self.options.get("dry_run")
        reported = [x for x in report.lines() if is_aligned or not x.startswith("clock: ")]
        lines = [say.with_flags(line) for line in reported]
        for line in lines if self.verbose else screen.folded(lines, 12):
            say.message(line)
        if self.options.get("dry_run"):
            say.message(f"would write {report.output}; nothing was read or written (--dry-run)")
        elif self.options.get("shard"):
            total = self.options["shard"].partition("/")[2]
            say.message(f"wrote {report.output}; `traceconv join` joins all {total} shards")
        wrote = [
            f"wrote {output_file.path} ({say.size(output_file.bytes)})"
            for output_file in report.written
        ]
        is_complete = all(issue.severity is Severity.INFO for issue in report.issues)
        if is_complete and wrote:
            wrote[-1] += "; nothing was lost"
        for line in wrote if self.verbose else screen.folded(wrote, 4):
            say.message(line)
        first_file = str(report.written[0].path) if report.written else ""
        if self.report and not self.options.get("dry_run"):
            beside = f"; with its trace: traceconv open {shlex.quote(first_file)} --report "
            beside = beside + shlex.quote(self.report) if self.report.endswith(".html") else ""
            say.message(f"wrote {self.report}{beside * bool(first_file)}")
        say.show_issues(report.issues, False, self.verbose, pointer=not self.report)
        if first_file.endswith((".pftrace", ".pftrace.gz", ".tar")):
            say.message(f"to look at it: traceconv open {shlex.quote(first_file)}, or {VIEWER}")

    @contextmanager
    def accounted(self) -> Iterator[None]:
        """Around the call of the library: the report is written even if --strict refuses."""
        try:
            yield
        except StrictError as e:
            if e.report is not None:
                self._account(e.report)
            raise

    def _account(self, report: Report) -> None:
        if self.report:
            write(say.flagged(report.as_dict()), Path(self.report))

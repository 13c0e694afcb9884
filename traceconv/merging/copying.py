"""Merges ranks of trace-event JSON into one such file by copying their bytes.

It patches each file with :mod:`.patch`, and has the same file names, progress and report as any
other merge, at the speed of the disk and in the memory of a block. It is used for
``mode="source"`` into JSON, if every rank is one file of trace events, nothing is selected, limited
or moved in time, and no file is unusual. Otherwise the ranks are merged through the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from traceconv.core.errors import Issues
from traceconv.core.model import Capture, Trace
from traceconv.merging.merge_ranks import Target, refuse_losses
from traceconv.merging.patch import Copier, Keeper, Unusual
from traceconv.merging.run_report import Report, known_issues, trace_metadata
from traceconv.options.groups import MergeOptions, RunOptions
from traceconv.run.emptiness import nothing_read
from traceconv.run.rank_loop import stored
from traceconv.writers import Document, Part, output
from traceconv.writers.chrome import ChromeJsonWriter
from traceconv.writers.output import Progress

if TYPE_CHECKING:
    from traceconv.alignment.plan import Plan
    from traceconv.merging.job_summary import JobSummary

READERS = ("trace_view", "msprof", "kineto", "chrome_json")
"""Readers whose files are arrays of trace events."""

SUFFIXES = (".json", ".json.gz")

CHECKED_BYTES = 4 << 20
"""Larger copies are not checked: that takes ten times as long as the copy."""

BASE = "baseTimeNanoseconds"
"""A member of the JSON object that shifts all events in time."""


def copyable(
    captures: Sequence[Capture], options: MergeOptions, target: Target, moved: bool
) -> bool:
    """Whether a merge asks for nothing but the events as they are.

    Args:
        moved: whether clocks are corrected.
    """
    plain = options.of_any_rank == MergeOptions(
        mode="source",
        align=options.align,
        comm_patterns=options.comm_patterns,
        analyse=options.analyse,
    )
    json_out = target.path.endswith(SUFFIXES) and target.writer().name == "chrome_json"
    files = all(c.reader in READERS and len(c.files) == 1 and not c.parts for c in captures)
    files &= not any(
        getattr(c.detail, "shift_ns", 0) or c.traits.get("shift_ns") for c in captures
    )  # a manifest moves them
    apart = len({(c.source.label, *c.files) for c in captures}) == len(captures)
    return plain and json_out and not moved and files and apart


def copied(
    captures: Sequence[Capture],
    target: Target,
    issues: Issues,
    options: MergeOptions,
    run: RunOptions,
    clock: Plan,
) -> Report:
    """Write the ranks of ``captures``; an analysis that is requested reads them apart.

    Args:
        issues: what finding the captures noted.
        clock:  of the ranks, as they are copied: nothing is moved.

    Raises:
        Unusual: a file has to go through the model; nothing is written.
        TraceconvError: see :mod:`traceconv.core.errors`. No file is left behind.
    """
    job = _job_summary(captures, options, run, clock) if options.analyse else None
    all_issues = known_issues(issues, clock, {})
    # our own files state the base of their times
    bases = {getattr(capture.detail, "base_ns", 0) for capture in captures}
    if len(bases) > 1:
        raise Unusual("base_ns differs between files")
    metadata = trace_metadata(options.mode, captures, clock, all_issues, bases.pop(), {})
    facts = {**metadata, "copied": True}
    plain = partial(Report.of, options.mode, target.path, captures, clock, all_issues)

    def accept(done: Sequence[output.Written]) -> None:
        for copy in done:
            all_issues.extend(copy.issues)
            _check(copy, all_issues)
        if target.strict:
            refuse_losses(plain(written=done))

    written = _copy(captures, target, facts, accept, run.progress)
    if not job:
        return plain(written=written)
    overview = job.overview(options, clock, all_issues, None)
    headline, lost, verdict = job.account()
    return plain(written=written, overview=overview, headline=headline, lost=lost, verdict=verdict)


_KEPT_FAULTS = frozenset(
    ("P11-zero", "P20-unbound", "J16-id", "J16-number", "J16-overlap", "J16-ts-grid")
)
"""What viewers make of numbers and of flows; reading and writing such files loses more."""


def kept(
    capture: Capture, target: Target, issues: Issues, options: MergeOptions, run: RunOptions,
    clock: Plan,
) -> Report:  # fmt: skip
    """Write a file of trace events unchanged: every member of every event and of the JSON object.

    Raises:
        Unusual: the file is damaged, or viewers would not show all of it; nothing is written.
        TraceconvError: see :mod:`traceconv.core.errors`. No file is left behind.
    """
    from traceconv.validation import BAD, validate

    all_issues = known_issues(issues, clock, {})

    def accept(done: Sequence[output.Written]) -> None:
        if not any(sum(output_file.counts.values()) for output_file in done):
            raise Unusual("no events")
        for output_file in done:
            if output_file.unnamed is None or output_file.content > CHECKED_BYTES:
                continue
            for finding in validate(output_file.unnamed).findings:
                if finding.severity in BAD and finding.rule not in _KEPT_FAULTS:
                    raise Unusual(f"viewers: {finding.sentence}")

    capture.source.progress = partial(_advance, run.progress, stored(capture))
    ranks = () if capture.rank is None else (capture.rank,)
    part = Part(Document(0, ranks, {}), [_Kept(capture, 0)])
    writer = partial(_Keeping, _Members())
    written = output.write([part], writer, target.path, force=target.force, accept=accept)
    return Report.of(options.mode, target.path, [capture], clock, all_issues, written=written)


def _job_summary(
    captures: Sequence[Capture], options: MergeOptions, run: RunOptions, clock: Plan
) -> JobSummary:
    from traceconv.merging.job_summary import JobSummary
    from traceconv.report import run_summary
    from traceconv.run.summaries import Summarizing, analysed

    work = Summarizing(run_summary.request(), options.of_analysis)
    with analysed(captures, Issues(), run) as ranks:
        read, summaries = ranks.summaries(work)
    return JobSummary(summaries, run_summary.judge(summaries, clock, read), clock)


def _copy(
    captures: Sequence[Capture],
    target: Target,
    facts: Mapping[str, Any],
    accept: Callable[[Sequence[output.Written]], None],
    progress: Progress,
) -> Sequence[output.Written]:
    members = _Members()
    total = sum(stored(c) for c in captures)
    for capture in captures:
        capture.source.progress = partial(_advance, progress, total)
    ranks = tuple(c.rank for c in captures if c.rank is not None)
    document = Document(0, ranks, facts)
    parts = [Part(document, [_Rank(c, i) for i, c in enumerate(captures)])]

    def accept_copies(done: Sequence[output.Written]) -> None:
        members.base()
        if not any(sum(copy.counts.values()) for copy in done):
            raise nothing_read(captures)
        accept(done)

    writer = partial(_Writer, members)
    return output.write(parts, writer, target.path, force=target.force, accept=accept_copies)


def _check(copy: output.Written, issues: Issues) -> None:
    """Add an issue if viewers do not show all of a copy, or if that was not looked at."""
    if copy.unnamed is None or copy.content > CHECKED_BYTES:
        issues.add("copy-unchecked", copy.path)
        return
    from traceconv.validation import BAD, validate

    faults = [finding for finding in validate(copy.unnamed).findings if finding.severity in BAD]
    for finding in faults:
        issues.add("copy-faulty", copy.path, finding.rule, finding.count)


def _advance(progress: Progress, total: int, n: int) -> None:
    progress(n, total, "copying")


@dataclass
class _Members:
    """The members of the JSON object besides the events, by rank."""

    of: dict[int, dict[str, bytes]] = field(default_factory=dict)

    def base(self) -> bytes | None:
        """The base time of all ranks.

        Raises:
            Unusual: the ranks have different base times.
        """
        bases = {members.get(BASE) for members in self.of.values()}
        if len(bases) > 1:
            raise Unusual(f"{BASE} differs between ranks")
        return bases.pop() if bases else None


@dataclass(frozen=True)
class _Rank:
    """A :class:`~traceconv.writers.SpilledRank` whose trace is copied from its file."""

    capture: Capture
    index: int

    @property
    def rank(self) -> int:
        assert self.capture.rank is not None
        return self.capture.rank

    def load(self) -> Trace:
        return _Copy(
            self.capture, copier=Copier(self.index, self.capture.name or f"Rank {self.rank}")
        )

    def release_pages(self) -> None:
        """Nothing is kept in memory."""


@dataclass(frozen=True)
class _Copy(Trace):
    """A trace without columns: its events are copied as bytes, and counted by that."""

    copier: Copier = field(kw_only=True)

    def counts(self) -> dict[str, int]:
        """Records by kind; pairs of begin and end are one."""
        n = self.copier.phases
        return {
            "slice": n["X"] + n["B"] + n["b"],
            "instant": n["i"] + n["I"] + n["R"] + n["n"],
            "counter": n["C"],
            "flow": n["f"],
        }


@dataclass(frozen=True)
class _Kept(_Rank):
    """A rank whose file is copied as it is."""

    def load(self) -> Trace:
        return _Copy(self.capture, copier=Keeper())


class _Copying(ChromeJsonWriter):
    """A frame around copied events; the other members follow, when they are known."""

    between: ClassVar[bytes] = b",\n"

    def __init__(self, members: _Members) -> None:
        super().__init__()
        self._known = members

    def trace(self, trace: Trace) -> Iterator[bytes]:
        assert isinstance(trace, _Copy)
        yield from trace.copier.blocks(trace.capture.source, trace.capture.files[0])
        self._known.of[trace.rank] = trace.copier.members


class _Keeping(_Copying):
    """The frame around unchanged events, with the other members of the JSON object."""

    def begin(self, document: Document) -> bytes:
        return b'{"traceEvents":[\n'

    def end(self) -> bytes:
        pairs = [pair for members in self._known.of.values() for pair in members.items()]
        members = [_member(key, value) for key, value in pairs]
        return b",\n".join([b"\n]", *members]) + b"}\n"


class _Writer(_Copying):
    """The frame of a merge: the base of time and the other members of each rank follow."""

    def end(self) -> bytes:
        base = self._known.base()
        lead = b"" if base is None else b'"%s":%s,' % (BASE.encode(), base)
        ranks = b",".join(
            b'"%d":{%s}' % (rank, b",".join(_member(k, v) for k, v in members.items()))
            for rank, members in self._known.of.items()
        )
        return b'\n],%s"beside the events":{%s}}\n' % (lead, ranks)


def _member(key: str, value: bytes) -> bytes:
    return json.dumps(key, ensure_ascii=False).encode() + b":" + value

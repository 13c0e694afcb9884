"""One input through the whole pipeline, and what must hold of whatever comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product, repeat
from pathlib import Path

import numpy as np

from traceconv import validation as checks
from traceconv.core.errors import Issue, Issues, RankError, TraceconvError
from traceconv.core.model import Trace
from traceconv.find import discovery, registry
from traceconv.find.capture_ranks import resolve
from traceconv.io.sources import sources
from traceconv.passes import compose
from traceconv.run.spill import InMemoryRank
from traceconv.run.stages import events, passed
from traceconv.writers import Document, Part, output

Row = tuple[str, str, int, int, int]
"""An event: the first file of its capture, name, kind, start and duration in ns."""

DOUBTS = frozenset(
    {
        *("repaired-record", "bad-encoding", "missing-duration", "missing-name", "name-unknown"),
        *(
            "unended-line",
            "slice-trimmed",
            "unfinished-slice",
            "time-estimated",
            "args-not-json",
            "clock-assumed",
            "steps-from-operators",
        ),
    }
)
"""Codes that announce events which do not stand so in the file."""


GRID_NS = 1000
"""What stamps in whole microseconds leave open."""


class Wrong(AssertionError):
    """Something came out that must not: what the fuzzers look for."""


@dataclass
class Outcome:
    """What came of an input.

    Attributes:
        error:  the message, if nothing could be read.
        rows:   events as read, over all ranks.
        issues: of reading.
        clocks: of the captures that were read, by first file; "" if not known.
    """

    error: str = ""
    rows: Counter[Row] = field(default_factory=Counter)
    issues: Issues = field(default_factory=Issues)
    clocks: dict[str, str] = field(default_factory=dict)


def examined(
    path: Path,
    scratch: Path,
    *,
    mode: str | None = "summary",
    suffix: str = "",
    only: str | None = None,
) -> Outcome:
    """Find, read, pass and write what lies at ``path``.

    Args:
        scratch: folder for the output.
        mode:    the view to make.
        suffix:  of the output, which is then checked; "" writes none.
        only:    the one reader to ask; nothing is passed or written then.

    Raises:
        Wrong: an invariant is broken. Whatever else is raised is a finding, too.
    """
    outcome = Outcome()
    for trace in _traces(path, outcome, only):
        sound(trace)
        outcome.rows.update(rows(trace))
        outcome.issues.extend(trace.issues)
        clock = trace.capture.clock
        outcome.clocks[_place(trace)] = str(clock.domain) if clock else ""
        for side_table in trace.side_tables.values():
            _look_at(side_table)
        if only:
            continue
        try:
            view = passed(trace, compose(mode))
        except TraceconvError as e:
            outcome.error = outcome.error or str(e)
            continue
        sound(view)
        if suffix:
            written(view, scratch / f"out{suffix}", outcome)
    return outcome


def _traces(path: Path, outcome: Outcome, only: str | None = None) -> Iterator[Trace]:
    try:
        found = discovery.discover(sources([str(path)]), only)
        outcome.issues.extend(found.issues)
        captures = _ranked(found.captures, outcome)
    except TraceconvError as e:
        outcome.error = str(e)
        return
    for capture in captures:
        try:
            trace = events(capture, lambda n: None)
        except TraceconvError as e:
            outcome.error = outcome.error or str(e)
        else:
            yield trace


def _ranked(captures, outcome):
    try:
        return resolve(captures, "meta", outcome.issues)
    except RankError as e:
        outcome.error = str(e)
        return [c for c in captures if c.rank is not None][:4]


def _look_at(side_table) -> None:
    try:
        side_table.read()
    except TraceconvError:
        return


def rows(trace: Trace) -> Iterator[Row]:
    """The events of a trace, readable in any order."""
    table = trace.events
    names = (trace.strings[name] for name in table.name.tolist())
    columns = (table.kind.tolist(), table.start_ns.tolist(), table.dur_ns.tolist())
    return zip(repeat(_place(trace)), names, *columns)


def _place(trace: Trace) -> str:
    """What tells captures apart, whatever became of their files."""
    return next(iter((*trace.capture.files, *trace.capture.known)), "")


def sound(trace: Trace) -> None:
    """Raise :class:`Wrong` unless columns fit together and the accounts are closed."""
    table = trace.events
    booked = dict.fromkeys(trace.counts(), 0)
    for (_, kind), count in trace.ledger.items():
        booked[kind] += count
    claims = {
        "accounts": booked == trace.counts(),
        "durations": not len(table) or int(table.dur_ns.min()) >= 0,
        "ends": bool((table.end_ns >= table.start_ns).all()),
        "tracks": _within(table.track, len(trace.tracks)),
        "names": _within(table.name, len(trace.strings)),
        "arguments": not len(table) or int(table.args.max()) < len(trace.args),
        "order": bool((np.diff(table.track) >= 0).all()),
        "samples": _within(trace.counters.track, len(trace.tracks)),
        "arrows": _within(trace.flows.src, len(table)) and _within(trace.flows.dst, len(table)),
    }
    broken = [name for name, holds in claims.items() if not holds]
    if broken:
        raise Wrong(f"{', '.join(broken)} of {trace.capture.reader}")


def _within(column, count: int) -> bool:
    return not len(column) or (int(column.min()) >= 0 and int(column.max()) < count)


def written(trace: Trace, path: Path, outcome: Outcome) -> None:
    """Write ``trace``, read it back with the validator.

    Raises:
        Wrong: the output is not valid.
    """
    span = trace.span()
    document = Document(span[0] if span else 0, (trace.rank,))
    part = Part(document, (InMemoryRank(trace),))
    try:
        done = output.write((part,), registry.writer_for(str(path)), str(path), force=True)
    except TraceconvError as e:
        outcome.error = outcome.error or str(e)
        return
    verdict = checks.validate(str(path))
    told = {"J16-ts-grid", "J16-overlap"} if done[0].issues.count("viewer-rounds") else set()
    if broken := [f for f in verdict.findings if f.rule not in told]:
        raise Wrong(f"invalid {path.suffix}: {broken[:3]}")


def invented(before: Outcome, after: Outcome) -> list[Row]:
    """Events of ``after`` that the undamaged input does not hold, less what issues announce.

    A file that lost the base its stamps count from is of another clock, and keeps the distances
    between stamps; where digits are recovered from all of a file, starts may differ by less than
    :data:`GRID_NS`.
    """
    if any(_shakes_clocks(issue) for issue in after.issues):
        return []  # all times are in doubt, and it is said
    if any("end of file" in issue.places for issue in after.issues):
        before, after = (
            _nameless(before),
            _nameless(after),
        )  # of a database: a table of names may be short
    announced = sum(2 * issue.count for issue in after.issues if _doubtful(issue))
    moved = {file: _shift(before, after, file) for file in after.clocks}
    left = before.rows.copy()
    extra = [
        row
        for row in after.rows.elements()
        if row[0] in before.clocks and not _taken(left, row, moved[row[0]])
    ]
    return extra if len(extra) > announced else []


def _shakes_clocks(issue: Issue) -> bool:
    return issue.code == "clock-assumed" or (
        issue.code == "unended-line" and "_start.log" in issue.file
    )


def _doubtful(issue: Issue) -> bool:
    """Whether events may be otherwise because of it."""
    return issue.code in DOUBTS


def _nameless(outcome: Outcome) -> Outcome:
    rows: Counter[Row] = Counter()
    for (file, _, *rest), count in outcome.rows.items():
        rows[file, "", *rest] += count
    return replace(outcome, rows=rows)


def _shift(before: Outcome, after: Outcome, file: str) -> int:
    """What the stamps of a file that is now of another clock were moved by."""
    if before.clocks.get(file) == after.clocks[file]:
        return 0
    now, then = _first_starts(after, file), _first_starts(before, file)
    moved = Counter(then[name] - start for name, start in now.items() if name in then)
    return moved.most_common(1)[0][0] if moved else 0


def _first_starts(outcome: Outcome, file: str) -> dict[str, int]:
    mine = sorted((row[3], row[1]) for row in outcome.rows if row[0] == file)
    return {name: start for start, name in reversed(mine)}


def _taken(left: Counter[Row], row: Row, shift: int) -> bool:
    """Take ``row`` out of ``left``, if it is there."""
    *which, start, dur = row
    for off, longer in product((0, 1, -1), repeat=2):
        near = (*which, start + shift + off, dur + longer)
        if left[near] > 0:
            left[near] -= 1
            return True
    for near in (r for r, n in left.items() if n and [*r[:3], r[4]] == [*which, dur]):
        if abs(near[3] - start - shift) < GRID_NS:
            left[near] -= 1
            return True
    return False

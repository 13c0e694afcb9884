"""Both runs of a comparison in one trace: every rank before and after, with aligned steps.

Each step that is compared gets a slot of time, as long as it takes in the run in which it takes
longest; it begins at the same instant on every rank of both runs. Within a slot nothing is moved
or stretched. What changed is drawn on a lane of its own, and is an argument of the slices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from traceconv.alignment.collective_records import collective_records
from traceconv.analysis.diff.comparison import Items, RunComparison
from traceconv.analysis.diff.items import placed
from traceconv.analysis.diff.runs import Run
from traceconv.analysis.diff.significance import DifferenceVerdict
from traceconv.analysis.rank_facts import KEY, Sort
from traceconv.analysis.rank_summary import NO_COLLECTIVES
from traceconv.core.columns import I64, EventTable
from traceconv.core.errors import Issues
from traceconv.core.intervals import holding
from traceconv.core.model import Capture, Layer, Trace, Track, no_windows
from traceconv.core.source import Progress
from traceconv.merging.merge_ranks import Ranks, Target, finish
from traceconv.merging.run_report import Report
from traceconv.options.groups import MergeOptions, RunOptions, View
from traceconv.passes.lanes import lanes
from traceconv.report.diff_document import changes, signed
from traceconv.run.executor import started
from traceconv.run.rank_loop import map_ranks, stored
from traceconv.run.spill import SpilledRank, rank_path, spill
from traceconv.run.stages import events, passed

TITLE, LANE = "Difference", "Changed"
"""Group and name of the track with the changes."""

ARGUMENT = "difference"
"""Key of the argument of a changed slice."""

WORDS = ("before", "after")

Key = tuple[str, ...]


@dataclass(frozen=True)
class Side:
    """How the ranks of one run are laid out.

    Attributes:
        folder: for the ranks' files.
        word:   one of :data:`WORDS`.
        number: by rank, that which it has in the trace.
        starts: by rank, where its steps begin, on its own clock; and where the last one ends.
        kept:   by rank, which of the steps are compared.
        slots:  where each of these begins in the trace.
        marks:  what changed, by item: words for the slices.
        view:   what is made of the events.
    """

    folder: Path
    word: str
    number: Mapping[int, int]
    starts: Mapping[int, I64]
    slots: I64
    marks: Mapping[Key, str]
    view: View

    def __call__(self, capture: Capture, advance: Progress) -> SpilledRank:
        """The rank, laid out and spilled.

        Raises:
            TraceconvError: it cannot be read, or not be spilled.
        """
        trace = passed(events(capture, advance, self.view.comm_patterns), self.view.passes())
        rank = trace.rank
        trace = laid_out(marked(trace, self.marks), self.starts[rank], self.slots)
        name = f"Rank {rank} {self.word}"
        numbered = replace(trace.capture, rank=self.number[rank], name=name, pid=-1)
        trace = lanes(replace(trace, capture=numbered))
        return spill(trace, NO_COLLECTIVES, rank_path(self.folder, trace.rank))


def marked(trace: Trace, marks: Mapping[Key, str]) -> Trace:
    """``trace`` with the changes as arguments of slices and on a separate track.

    Added rows are counted under "difference".
    """
    where = placed(trace, collective_records(trace))
    texts = [marks.get(key, "") for key in where.keys]
    is_marked = (
        np.array([bool(text) for text in texts], bool)[where.item] if texts else where.item > 0
    )
    item, row, spans = where.item[is_marked], where.row[is_marked], where.spans[is_marked]
    if not len(item):
        return trace
    trace = _with_argument(trace, row, [texts[i] for i in item.tolist()])
    names = [f"{texts[i]}: {where.keys[i][1]}" for i in item.tolist()]
    number = list(map(trace.strings.intern, names))
    rows = EventTable.filled(spans[:, 0], spans[:, 1] - spans[:, 0], track=0, name=number)
    return trace.add_events("difference", [Track(Layer.STEP, LANE, title=TITLE)], rows)


def _with_argument(trace: Trace, rows: I64, texts: Sequence[str]) -> Trace:
    """The trace with one more argument of some events whose arguments are an object."""
    text_of = {row: text for row, text in zip(rows.tolist(), texts, strict=True) if row >= 0}
    changed = np.array(sorted(text_of), np.int64)
    values = []
    for row in changed.tolist():
        decoded = trace.args[int(trace.events.args[row])]
        members = decoded if isinstance(decoded, Mapping) else {}
        values.append(
            json.dumps({**members, ARGUMENT: text_of[row]}, ensure_ascii=False).encode(
                "utf-8", "replace"
            )
        )
    if not values:
        return trace
    args, first_id = trace.args.extended(values)
    column = trace.events.args.copy()
    column[changed] = np.arange(first_id, first_id + len(changed), dtype=np.int32)
    return replace(trace, args=args, events=trace.events.with_columns(args=column))


def laid_out(trace: Trace, starts: I64, slots: I64) -> Trace:
    """Only what begins in steps that have a slot, moved to it.

    Args:
        starts: (n, 2): from where each step begins to where the next one does.
        slots:  where they begin in the trace.
    """
    row, sample = (holding(starts, t) for t in (trace.events.start_ns, trace.counters.start_ns))
    trace = trace.keep("steps compared", row >= 0, sample >= 0)
    moved = (slots[: len(starts)] - starts[:, 0]).astype(np.int64)
    row, sample = row[row >= 0], sample[sample >= 0]
    steps = trace.steps
    step_index = holding(starts, steps.start_ns)
    steps, step_index = steps.take(step_index >= 0), step_index[step_index >= 0]
    lengths = ("start_ns", "device_start_ns", "work_start_ns")
    return replace(
        trace,
        events=trace.events.with_columns(start_ns=trace.events.start_ns + moved[row]),
        counters=trace.counters.with_columns(start_ns=trace.counters.start_ns + moved[sample]),
        steps=steps.with_columns(
            **{name: getattr(steps, name) + moved[step_index] for name in lengths}
        ),
        windows=no_windows(),
    )


def spans_of(whole: Run, compared: Run, rank: int) -> I64:
    """(n, 2): from where each step that is compared begins to where the next one does, or where
    the last one ends.

    Args:
        whole: the run with all of its steps.
    """
    all_steps, compared_steps = whole.ranks[rank], compared.ranks[rank]
    start = all_steps.steps["start_ns"]
    after = np.append(start[1:], all_steps.steps["end_ns"][-1:])
    is_compared = np.isin(start, compared_steps.steps["start_ns"])
    return np.stack((start, after), axis=1)[is_compared]


def marks_of(items: Items) -> tuple[dict[Key, str], dict[Key, str]]:
    """What to say of the items that changed, before and after: verdict, difference, and how."""
    texts: tuple[dict[Key, str], dict[Key, str]] = ({}, {})
    for row in range(len(items)):
        proven = items.verdicts[row] in (DifferenceVerdict.SLOWER, DifferenceVerdict.FASTER)
        changed = bool(items.changed[row]) and items.keys["sort"][row] != Sort.WAIT
        if not (proven or changed):
            continue
        words = [items.verdicts[row] if proven else "", *changes(items, row)]
        if proven:
            words[0] = f"{words[0]} by {signed(int(items.delta_ns[row]))} a step"
        now = tuple(str(items.keys[name][row]) for name in KEY)
        was = tuple(str(items.was[name][row]) or key for name, key in zip(KEY, now, strict=True))
        text = ", ".join(filter(None, words))
        texts[0][was], texts[1][now] = text, text
    return texts


@dataclass(frozen=True)
class Sources:
    """What both runs are read from.

    Attributes:
        runs:     with all of their steps.
        captures: of the ranks that are compared.
        issues:   what finding them noted.
        view:     as of :class:`Side`.
    """

    runs: tuple[Run, Run]
    captures: tuple[Sequence[Capture], Sequence[Capture]]
    view: View


def write(comparison: RunComparison, sources: Sources, target: Target, run: RunOptions) -> Report:
    """Write both runs as one trace.

    Raises:
        TraceconvError: a rank cannot be read; the file exists or cannot be written.
    """
    pairs, items = comparison.pairs, comparison.items
    assert items is not None, "there is something to compare"
    compared = (comparison.before, comparison.after)
    starts = [
        {pair[side]: spans_of(sources.runs[side], compared[side], pair[side]) for pair in pairs}
        for side in (0, 1)
    ]
    spans = [spans for side in starts for spans in side.values()]
    longest = np.zeros(max(map(len, spans)), np.int64)  # duration of each step
    for step_spans in spans:
        longest[: len(step_spans)] = np.maximum(
            longest[: len(step_spans)], step_spans[:, 1] - step_spans[:, 0]
        )
    slots = np.concatenate((np.zeros(1, np.int64), np.cumsum(longest)[:-1]))
    marks = marks_of(items)
    captures = [[c for c in sources.captures[side] if c.rank in starts[side]] for side in (0, 1)]
    issues = Issues()
    sizes = [stored(capture) for side in captures for capture in side]
    shared = all(capture.source.shared for side in captures for capture in side)
    with started(run, sizes, shared) as executor:
        spilled_ranks: list[SpilledRank] = []
        for side in (0, 1):
            number = {pair[side]: 2 * i + side for i, pair in enumerate(pairs)}
            work = Side(executor.folder, WORDS[side], number, starts[side], slots, marks[side],
                        sources.view)  # fmt: skip
            done = map_ranks(
                work, captures[side], executor, run, issues, what=f"laying out {WORDS[side]}"
            )
            spilled_ranks += [spilled for _, spilled in done]
        spilled_ranks.sort(key=lambda spilled: spilled.rank)
        ranks = Ranks(
            tuple(spilled.account.capture for spilled in spilled_ranks),
            tuple(spilled_ranks),
            issues,
        )
        options = MergeOptions(mode="detail", align="none")
        return finish(ranks, options, target, executor, run.progress)

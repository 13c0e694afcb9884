"""Several traces of one archive as one: all on one timeline, each with its own tracks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from traceconv.validation.container import Member
from traceconv.validation.perfetto.decoded import (
    I32,
    I64,
    Argument,
    Counters,
    Decoded,
    Flows,
    Mask,
    Rows,
)
from traceconv.validation.tally import Tally


def merged(parts: Sequence[Decoded], members: Sequence[Member], tally: Tally) -> Decoded:
    """``parts`` shifted as their members say and sorted into each other by time."""
    if len(parts) == 1 and not members[0].shift_ns:
        return replace(parts[0], stats=tally.stats)
    shifts = [member.shift_ns for member in members]
    firsts = np.cumsum([0, *(len(part.tracks) for part in parts)])
    tracks = [
        replace(row, machine=member.machine or row.machine)
        for part, member in zip(parts, members, strict=True)
        for row in part.tracks
    ]
    for part, member in zip(parts, members, strict=True):
        early = int(np.count_nonzero(part.rows.ts < -member.shift_ns))
        rule = "P07-sorter" if part.format == "perfetto" else "J16-negative-ts"
        tally.add(rule, f"{member.name}, shifted by {member.shift_ns} ns", early)
    formats = {part.format for part in parts}
    rows, instant, number = _rows(parts, shifts, firsts)
    return Decoded(
        formats.pop() if len(formats) == 1 else "archive",
        rows,
        instant,
        _counters(parts, shifts, firsts),
        _flows(parts, number),
        tracks,
        tally.stats,
        {key: value for part in parts for key, value in part.metadata.items()},
    )


def _rows(
    parts: Sequence[Decoded], shifts: Sequence[int], firsts: I64
) -> tuple[Rows, Mask, list[I64]]:
    """All rows by time, which are instants, and each part's row numbers among them."""
    sizes = [len(part.rows) for part in parts]
    starts = np.cumsum([0, *sizes])
    ts = np.concatenate([p.rows.ts + shift for p, shift in zip(parts, shifts, strict=True)])
    order = np.argsort(ts, kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    rows = [part.rows for part in parts]
    labels = np.cumsum([0, *(len(r.labels) for r in rows)])
    whole = Rows(
        ts=ts,
        dur=np.concatenate([r.dur for r in rows]),
        depth=np.concatenate([r.depth for r in rows]),
        track_id=_numbered([r.track_id for r in rows], firsts),
        index=np.arange(len(ts), dtype=np.int64),
        label=_numbered([r.label for r in rows], labels),
        labels=[label for r in rows for label in r.labels],
        paths=[path for r in rows for path in r.paths],
        _arguments=_Arguments(parts, starts, order),
    )
    whole = whole.reordered(order, _Arguments(parts, starts, order))
    instant = np.concatenate([part.instant for part in parts])[order]
    return whole, instant, [number[a:b] for a, b in pairwise(starts.tolist())]


class _Arguments:
    """Finds the part a merged row is from."""

    def __init__(self, parts: Sequence[Decoded], starts: I64, order: I64) -> None:
        self._parts, self._starts, self._order = parts, starts, order

    def __call__(self, row: int, renamed: bool) -> list[Argument]:
        old = int(self._order[row])
        part = int(np.searchsorted(self._starts, old, side="right")) - 1
        return self._parts[part].rows.read_arguments(old - int(self._starts[part]), renamed)


def _counters(parts: Sequence[Decoded], shifts: Sequence[int], firsts: I64) -> Counters:
    samples = [part.counters for part in parts]
    ts = np.concatenate([c.ts + shift for c, shift in zip(samples, shifts, strict=True)])
    order = np.argsort(ts, kind="stable")
    return Counters(
        ts[order],
        np.concatenate([c.value for c in samples])[order],
        _numbered([c.track_id for c in samples], firsts)[order],
        [path for c in samples for path in c.paths],
    )


def _numbered(columns: Sequence[I32], firsts: I64) -> I32:
    """Columns of part numbers joined, each counted from its part's first."""
    return np.concatenate([c + np.int32(n) for c, n in zip(columns, firsts[:-1], strict=True)])


def _flows(parts: Sequence[Decoded], number: Sequence[I64]) -> Flows:
    """Arrows of all parts, with the merged row numbers."""
    return Flows(
        np.concatenate([n[part.flows.source] for part, n in zip(parts, number, strict=True)]),
        np.concatenate([n[part.flows.target] for part, n in zip(parts, number, strict=True)]),
    )

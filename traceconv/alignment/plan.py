"""Which correction puts each rank on the shared clock, and the one function that applies it.

An offset is never guessed: where nothing is known, times stay as recorded and an issue is
reported. The shared clock is Unix time where captures state how theirs relates to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from traceconv.alignment.collective_records import CollectiveRecords
from traceconv.alignment.jobs import of_several_sizes, of_several_times
from traceconv.alignment.offsets import (
    GATHERED,
    Offset,
    anchored,
    from_file,
    gathered,
    neighbours,
    one_file,
    one_host_clock,
    rank_of,
    stamped,
    unchecked_ns,
)
from traceconv.core.clock import HOST_CLOCK, INT64_MAX, Correction, Domain, time_text
from traceconv.core.columns import I64
from traceconv.core.errors import ClockError, Issues
from traceconv.core.model import Capture, Trace
from traceconv.core.rank_ranges import format_ranges

if TYPE_CHECKING:  # matching is loaded only by runs that align by collectives
    from traceconv.alignment.chains import Found as Fitted
    from traceconv.alignment.collective_matching import Each, Matched

METHOD_TEXT = {
    "collective": "aligned by collectives",
    "meta": "Unix time as recorded",
    "wall": "stamps taken as Unix time",
    "host": "one clock for all, as stamped",
    "none": "as stamped, not aligned",
    "start": "moved to the start of the others",
}
"""How clocks were aligned, in words, by method."""


class Plan(msgspec.Struct, frozen=True):
    """The offsets of all ranks.

    Attributes:
        method:  of the ranks, joined by " + " if they differ.
        offsets: per rank.
        issues:  unaligned, clock-assumed, clock-unchecked, jobs-mixed.
        remark:  why a better method was not used, or "".
        several_jobs: what shows that the ranks are of several jobs; "" if nothing does.
    """

    method: str
    offsets: Mapping[int, Offset]
    issues: Issues = msgspec.field(default_factory=Issues)
    remark: str = ""
    several_jobs: str = ""

    def offset_ns(self, rank: int) -> int:
        """What must be added to the times of ``rank`` (at ``at_ns``, where its clock drifts)."""
        return self.offsets[rank].offset_ns

    def corrected(self, rank: int, ns: I64) -> I64:
        """Stamps of ``rank`` on the shared clock: int64 ns, any shape, exact, order kept."""
        return self.offsets[rank].correction.of(ns)

    def aligned_spans(
        self, spans: Mapping[int, tuple[int, int] | None]
    ) -> dict[int, tuple[int, int] | None]:
        """Spans of ranks, ns on their own clocks, on the shared clock."""
        moved = {rank: offset.correction.of for rank, offset in self.offsets.items()}
        return {r: span and (moved[r](span[0]), moved[r](span[1])) for r, span in spans.items()}

    def error_ns(self, rank: int) -> int | None:
        """Largest error of the offset of ``rank`` against the others, ns; None if unknown.

        For collectives the error is measured; ranks on one clock have none; for anchors it is
        known only where one clock has several, as the spread between them.
        """
        offset = self.offsets[rank]
        shares_clock = offset.method == "host" and offset.evidence != GATHERED
        if offset.error_ns is not None or shares_clock or len(self.offsets) == 1:
            return offset.error_ns or 0
        return offset.spread_ns

    def checked(self, rank: int, span: tuple[int, int]) -> tuple[int, int] | None:
        """Between which instants of the shared clock one that was set would have shown on ``rank``,
        each side beyond its capture where nothing worth a word is outside; None if on both.

        Args:
            span: the first and the last instant of the capture, on the rank's own clock.
        """
        checked_ns = self.offsets[rank].checked_ns
        if checked_ns is None or not any(outside := unchecked_ns(checked_ns, *span)):
            return None
        first, last = self.corrected(rank, np.array(checked_ns, np.int64)).tolist()
        return first if outside[0] else -INT64_MAX, last if outside[1] else INT64_MAX

    def as_dict(self) -> dict[str, Any]:
        """JSON values; offsets are decimal strings because they exceed a double's precision."""
        return {
            "method": self.method,
            "text": self._text(),
            **({"remark": self.remark} if self.remark else {}),
            "ranks": {str(rank): offset.as_dict() for rank, offset in self.offsets.items()},
        }

    def _text(self) -> str:
        offsets = self.offsets.values()
        spreads = [
            o.spread_ns for o in offsets if o.spread_ns is not None and o.method != "collective"
        ]
        accuracy = f", anchors agree within {time_text(max(spreads))}" if spreads else ""
        errors = [o.error_ns for o in offsets if o.error_ns is not None]
        is_checked = any(o.checked_ns is not None for o in offsets)
        if errors and is_checked and not any(o.method == "collective" for o in offsets):
            accuracy += f", which matched collectives confirm within {time_text(max(errors))}"
        elif errors:
            accuracy += f", error at most {time_text(max(errors))}"
            accuracy += " between matched collectives" * is_checked
        unknown = [rank for rank, o in self.offsets.items() if o.error_ns is None]
        if errors and unknown:
            one_or_more = "ranks" if len(unknown) > 1 else "rank"
            accuracy += f", unknown for {one_or_more} {format_ranges(unknown)}"
        lost = self.issues.count("unaligned")
        by_method: dict[str, list[int]] = {}
        for rank, offset in self.offsets.items():
            by_method.setdefault(offset.method, []).append(rank)
        methods = [METHOD_TEXT.get(method, method) for method in self.method.split(" + ")]
        if len(by_method) > 1:
            methods = [
                f"{METHOD_TEXT.get(method, method)} for "
                f"rank{'s' * (len(ranks) > 1)} {format_ranges(ranks)}"
                for method, ranks in sorted(by_method.items())
            ]
        return (
            "; ".join(methods)
            + accuracy
            + (f"; {lost} ranks not aligned" if lost else "")
            + (f"; {self.remark}" if self.remark else "")
        )


def plan(
    captures: Sequence[Capture],
    mode: str = "auto",
    records: Sequence[CollectiveRecords] | None = None,
    max_error_ns: int | None = None,
    groups: Sequence[Matched] | None = None,
    spans: Mapping[int, tuple[int, int] | None] | None = None,
    each: Each = map,
) -> Plan:
    """The offset of every capture.

    Args:
        captures: with ranks.
        mode: "auto" - collectives where they suffice, else what the captures' own anchors allow,
            an issue where they allow nothing; "collective" - the ends of collectives that ranks
            took part in together; "meta" - anchors, refused where one is missing; "wall" - stamps
            are Unix time already; "none" - no offsets; anything else - a JSON file of offsets.
        records: the collectives of every rank; None while the ranks have not been read.
        max_error_ns: the largest acceptable error, ns; None = any.
        groups: the matched collectives, as :func:`.collective_matching.matched` returns them for
            ``records``, where the caller has them already.
        spans: earliest start and latest end of every rank, ns on its own clock, None without any;
            with them, ranks that are not aligned and far from the others are moved to the start of
            those, and ranks without times are not called unaligned.
        each: makes the fits of a few ranks per job.

    Raises:
        ClockError: the mode contradicts the captures, the file holds no such offsets, or the
            error of a rank is larger than allowed or unknown.
        SourceError: there is no such mode, and no such file.
    """
    issues = Issues()
    method = METHODS.get(mode)
    if method:
        offsets, remark = method(captures, issues, records, groups, spans, each)
    else:
        offsets, remark = from_file(mode, [rank_of(c) for c in captures], METHODS), ""
    offsets = dict(sorted(offsets.items()))
    if spans:
        issues = _without_irrelevant(issues, spans)
        offsets, issues = _brought_near(offsets, issues, spans)
    name = " + ".join(sorted({o.method for o in offsets.values()})) or "none"
    made_plan = Plan(name, offsets, issues, remark, of_several_sizes(captures))
    if spans:
        aligned = made_plan.aligned_spans(spans)
        if apart := of_several_times((aligned.get(rank_of(c)), c) for c in captures):
            issues.add("jobs-mixed", where=apart)
            made_plan = msgspec.structs.replace(made_plan, several_jobs=apart)
    if max_error_ns is not None and records is not None:
        _refuse_error(made_plan, max_error_ns)
    return made_plan


def _without_irrelevant(issues: Issues, spans: Mapping[int, tuple[int, int] | None]) -> Issues:
    """The issues without doubts about clocks that do not matter: those of ranks with tables only,
    and of a single rank with times, which is compared with no other."""
    timeless = {rank for rank, span in spans.items() if span is None}
    if len(timeless) == len(spans) - 1:
        timeless = set(spans)
    relevant = Issues()
    relevant.extend(
        issue for issue in issues if issue.code != "unaligned" or issue.rank not in timeless
    )
    return relevant


def _brought_near(
    offsets: dict[int, Offset], issues: Issues, spans: Mapping[int, tuple[int, int] | None]
) -> tuple[dict[int, Offset], Issues]:
    """Offsets and issues with unaligned ranks at the start of the others, where their own stamps
    would leave most of the timeline empty.

    Stamps since boot beside Unix time would make it half a century long.
    """
    lost = {issue.rank for issue in issues if issue.code == "unaligned"}
    free = [
        r for r, offset in offsets.items() if r in lost and offset.method == "none" and spans.get(r)
    ]
    placed = [r for r in offsets if r not in free and spans.get(r)] or free[:1]
    if not free:
        return offsets, issues
    moved_spans = {
        r: tuple(offsets[r].correction.of(t) for t in span) for r, span in spans.items() if span
    }
    start, end = min(moved_spans[r][0] for r in placed), max(moved_spans[r][1] for r in placed)
    far = {
        r: Offset(start - moved_spans[r][0], "start", "moved to the start of the other ranks")
        for r in free
        if max(moved_spans[r][0] - end, start - moved_spans[r][1])
        > end - start + moved_spans[r][1] - moved_spans[r][0]
    }
    changed_issues = Issues()
    for issue in issues:
        moved = issue.code == "unaligned" and issue.rank in far
        places = (far[issue.rank].evidence,) if moved else issue.places
        changed_issues.extend([replace(issue, places=places)])
    return {**offsets, **far}, changed_issues


def _refuse_error(made_plan: Plan, max_error_ns: int) -> None:
    for rank in made_plan.offsets:
        error = made_plan.error_ns(rank)
        if error is None or error > max_error_ns:
            size = "unknown" if error is None else f"{error / 1e3:.1f} µs"
            raise ClockError(
                f"alignment refused: the error of rank {rank} is {size} "
                f"({made_plan.offsets[rank].method}), the limit is {max_error_ns / 1e3:.1f} µs"
                + (f"; {made_plan.remark}" if made_plan.remark else "")
            )


def aligned(trace: Trace, plan: Plan) -> Trace:
    """``trace`` on the shared clock of ``plan``."""
    return shift(trace, plan.offsets[trace.rank].correction)


def shift(trace: Trace, by: Correction | int) -> Trace:
    """Move everything of ``trace`` in time: the one place where an offset is added.

    Args:
        by: a correction, or plain nanoseconds; positive moves events later.

    Starts and ends are corrected, so a drift changes durations, too; lengths in the table of steps
    stay as the rank's own clock measured them. Same rows, same order; columns that do not change
    are shared, not copied.

    Raises:
        ClockError: a time would leave int64.
    """
    by = Correction(by) if isinstance(by, int) else by
    if not by:
        return trace
    events, counters, windows = trace.events, trace.counters, trace.windows
    steps = trace.steps
    stamps = [events.start_ns, events.end_ns, counters.start_ns, windows.ravel()]
    stamps += [steps.start_ns, steps.device_start_ns, steps.work_start_ns]
    for extreme in (f(s) for s in stamps if len(s) for f in (np.min, np.max)):
        if max(abs(by.of(int(extreme))), abs(int(extreme) - by.at_ns)) > INT64_MAX:
            raise ClockError(
                f"rank {trace.capture.rank}: an offset of {by.offset_ns} ns takes stamp "
                f"{int(extreme)} out of int64 nanoseconds"
            )
    moved = events.with_columns(start_ns=by.of(events.start_ns))
    if by.drift_ppt:
        moved = moved.with_columns(dur_ns=by.of(events.end_ns) - moved.start_ns)
    return replace(
        trace,
        events=moved,
        counters=counters.with_columns(start_ns=by.of(counters.start_ns)),
        windows=by.of(windows),
        steps=steps.with_columns(
            start_ns=by.of(steps.start_ns),
            device_start_ns=by.of(steps.device_start_ns),
            work_start_ns=by.of(steps.work_start_ns),
        ),
        coverage=msgspec.structs.replace(
            trace.coverage,
            layers={
                layer: tuple((by.of(start), by.of(end)) for start, end in spans)
                for layer, spans in trace.coverage.layers.items()
            },
        ),
    )


# -- methods ------------------------------------------------------------------------------

Found = tuple[dict[int, Offset], str]
"""Offsets per rank, and a remark."""

Groups: TypeAlias = "Iterable[Matched] | None"
"""The collectives of all ranks, if these are matched already."""

Spans: TypeAlias = Mapping[int, tuple[int, int] | None] | None
"""Earliest start and latest end of every rank, ns on its own clock, where that is known."""

Method = Callable[
    [Sequence[Capture], Issues, Sequence[CollectiveRecords] | None, Groups, Spans, "Each"], Found
]


ENOUGH = 8
"""Operations a rank must share with others for "auto" to prefer them to stamps that agree."""

_COARSE_NS = 1_000_000  # nor does it if their error is that of clocks kept over a network
_FAR_NS = 3600 * 10**9  # such clocks are not wrong by an hour
_AGREED_NS = 20_000  # stamps that differ by less than that, besides the error, agree


def _auto(
    captures: Sequence[Capture],
    issues: Issues,
    records: Sequence[CollectiveRecords] | None,
    groups: Groups,
    spans: Spans,
    each: Each,
) -> Found:
    if records is None or len(captures) == 1 or one_file(captures) or one_host_clock(captures):
        return _by_anchor(captures, issues, {}, {}), ""
    fits = _fitted(captures, records, groups, spans, each)
    anchors = anchored(captures)
    by_stamps = _with_preferred_stamps(fits, anchors, spans or {})
    used = {rank: offset for rank, offset in fits.offsets.items() if rank not in by_stamps}
    if len(used) < 2:
        used = {}
    reasons = {**fits.alone, **by_stamps}
    stamps = _agreeing(fits, anchors, by_stamps, spans or {})
    offsets = _by_anchor(captures, issues, {**stamps, **used}, reasons)
    _report_unchecked(captures, issues, fits, used)
    _doubt_stamps(captures, records, offsets, issues, spans or {})
    if not any(len(rank_records) for rank_records in records):
        return offsets, "no collectives of devices to align by"
    if not reasons:
        return offsets, ""
    remark = _unused(offsets, used, reasons)
    shares_host = not used and len({c.host for c in captures}) == 1 and captures[0].host
    host = "all ranks ran on one host, so on one clock; " if shares_host else ""
    return offsets, host + remark


def _report_unchecked(
    captures: Sequence[Capture], issues: Issues, fits: Fitted, used: Mapping[int, Offset]
) -> None:
    """Report where a clock that was set would not show: outside of the matched operations."""
    for capture in captures:
        rank = rank_of(capture)
        if rank in used and rank in fits.unchecked:
            issues.add("clock-unchecked", capture.label, fits.unchecked[rank], rank=rank)


def _unused(
    offsets: Mapping[int, Offset], used: Mapping[int, Offset], reasons: Mapping[int, str]
) -> str:
    """Why collectives were not used for some ranks, or ""."""
    rank = max((r for r, why in reasons.items() if why), default=None)
    if rank is None:  # the first may be alone for the others
        return ""
    share = "" if not used else " for the others"
    return f"collectives not used{share}: rank {rank}: {reasons[rank]}"


def _fitted(
    captures: Sequence[Capture],
    records: Sequence[CollectiveRecords],
    groups: Groups,
    spans: Spans,
    each: Each,
) -> Fitted:
    from traceconv.alignment.chains import by_collectives
    from traceconv.alignment.collective_matching import matched

    groups = matched(records, stamped(captures), each) if groups is None else groups
    return by_collectives(records, anchored(captures), groups, spans, each)


def _with_preferred_stamps(
    fits: Fitted, anchors: Mapping[int, Offset], spans: Spans
) -> dict[int, str]:
    """The ranks whose stamps are preferred to what collectives say, and why."""
    reasons = {}
    for rank, offset in fits.offsets.items():
        stamp, error = anchors.get(rank), offset.error_ns or 0
        if stamp is None or not offset.matches:
            continue
        apart = _distance_ns(offset, stamp, (spans or {}).get(rank))
        if apart > _FAR_NS:
            none = dict.fromkeys(fits.offsets, "")
            return {**none, rank: "it would move by more than an hour: another run?"}
        if apart > error + _AGREED_NS:
            continue
        if rank in fits.loose:
            reasons[rank] = fits.loose[rank]
        elif offset.matches < ENOUGH:
            reasons[rank] = f"only {offset.matches} operations match; {ENOUGH} needed"
        elif error > _COARSE_NS:
            reasons[rank] = f"they confirm its recorded time, within {error / 1e6:.1f} ms"
    return reasons


def _agreeing(
    fits: Fitted, anchors: Mapping[int, Offset], by_stamps: Mapping[int, str], spans: Spans
) -> dict[int, Offset]:
    """Stamps that are kept because the few collectives there are agree with them, with the error
    that these leave."""
    agreed = {}
    for rank, offset in fits.offsets.items():
        stamp = anchors.get(rank)
        if stamp is None or rank in fits.loose or (offset.matches and not by_stamps.get(rank)):
            continue
        error = _distance_ns(offset, stamp, (spans or {}).get(rank)) + (offset.error_ns or 0)
        agreed[rank] = msgspec.structs.replace(stamp, error_ns=error, checked_ns=offset.checked_ns)
    return agreed if len(agreed) > 1 else {}


def _distance_ns(offset: Offset, stamp: Offset, span: tuple[int, int] | None) -> int:
    """How far two corrections of a rank differ, ns."""
    ends = span or (offset.at_ns, offset.at_ns)
    return max(abs(offset.correction.of(ns) - stamp.correction.of(ns)) for ns in ends)


def _doubt_stamps(
    captures: Sequence[Capture],
    records: Sequence[CollectiveRecords],
    offsets: dict[int, Offset],
    issues: Issues,
    spans: Mapping[int, tuple[int, int] | None],
) -> None:
    """Call ranks unaligned whose stamps are kept and refuted, by their own collectives or, as far
    as these say nothing, by those of others: where the stamps of ranks that were fitted are wrong,
    those of the rest are in doubt, except on hosts whose stamps are right."""
    from traceconv.alignment.stamps import refuted

    by_stamps = {rank for rank, offset in offsets.items() if offset.method == "meta"}
    if not by_stamps:
        return
    corrections = {r: offset.correction for r, offset in offsets.items() if offset.method != "none"}
    refutations = refuted(records, corrections)
    stamps = anchored(captures)
    wrong: dict[int, int] = {}
    right = set()
    for capture in captures:
        rank = rank_of(capture)
        offset, stamp = offsets[rank], stamps.get(rank)
        if offset.method == "collective" and offset.matches and stamp:
            apart = _distance_ns(offset, stamp, spans.get(rank))
            if apart > (offset.error_ns or 0) + _AGREED_NS:
                wrong[rank] = apart
            elif capture.host:
                right.add(capture.host)
    right -= {capture.host for capture in captures if rank_of(capture) in wrong}
    worst = max(wrong, key=lambda rank: wrong[rank], default=-1)
    disputed = [rank_of(c) for c in captures if rank_of(c) in refutations and c.host in right]
    for capture in captures:
        rank = rank_of(capture)
        if rank not in by_stamps:
            continue
        if rank in refutations:
            issues.add("unaligned", capture.label, refutations[rank], rank=rank)
        elif wrong and capture.host not in right:
            why = (
                f"only stamps say how its clock relates to others, and those of rank {worst} are "
                f"wrong by {wrong[worst] / 1e6:.3f} ms"
            )
            issues.add("unaligned", capture.label, why, rank=rank)
        elif disputed and capture.host not in right:
            why = (
                f"stamps of others and of rank {disputed[0]} contradict each other, and those of "
                "its host are right for others"
            )
            issues.add("unaligned", capture.label, why, rank=rank)


def _by_anchor(
    captures: Sequence[Capture],
    issues: Issues,
    fitted: Mapping[int, Offset],
    reasons: Mapping[int, str],
) -> dict[int, Offset]:
    """The offsets of all captures: those that are known already, else what the files say."""
    offsets = {**anchored(captures), **fitted}
    unfitted = [c for c in captures if rank_of(c) not in offsets]
    if not unfitted:
        return offsets
    if len(captures) == 1:
        return {rank_of(unfitted[0]): Offset(evidence="the only rank")}
    if not offsets and one_file(captures):
        evidence = GATHERED if gathered(captures) else "stamps of one file"
        return {rank_of(c): Offset(0, "host", evidence) for c in captures}
    if not offsets and one_host_clock(captures):
        return {rank_of(c): Offset(0, "host", f"{HOST_CLOCK}{c.host}") for c in captures}
    for capture in unfitted:
        why = reasons.get(rank_of(capture), "")
        offsets[rank_of(capture)] = neighbours(capture, captures, offsets, issues, why)
    return offsets


def _collective(
    captures: Sequence[Capture],
    issues: Issues,
    records: Sequence[CollectiveRecords] | None,
    groups: Groups,
    spans: Spans,
    each: Each,
) -> Found:
    if records is None:
        settled = Offset(0, "collective", "settled when the ranks have been read")
        return {rank_of(c): settled for c in captures}, ""
    fits = _fitted(captures, records, groups, spans, each)
    anchors = anchored(captures)
    offsets = {}
    for capture in captures:
        rank = rank_of(capture)
        offsets[rank] = fits.offsets.get(rank) or anchors.get(rank, Offset())
        if rank in fits.alone:
            issues.add("unaligned", capture.label, fits.alone[rank], rank=rank)
    used = {rank: offset for rank, offset in fits.offsets.items() if rank not in fits.alone}
    _report_unchecked(captures, issues, fits, used)
    return offsets, _unused(offsets, used, fits.alone)


def _meta(captures: Sequence[Capture], issues: Issues, *_: object) -> Found:
    offsets = anchored(captures)
    missing = [str(c.rank) for c in captures if rank_of(c) not in offsets]
    if missing:
        raise ClockError(
            f"no file says how the clock of rank {', '.join(missing)} relates to Unix time; "
            'pass `align="auto"`, `align="collective"`, `align="none"` or a JSON file of offsets'
        )
    return offsets, ""


def _wall(captures: Sequence[Capture], issues: Issues, *_: object) -> Found:
    for capture in captures:
        if capture.clock and capture.clock.domain is not Domain.UNIX:
            raise ClockError(
                f"rank {capture.rank} is not stamped in Unix time but by a "
                f"{capture.clock.domain} clock ({capture.clock.evidence or capture.label}); "
                'pass `align="meta"`'
            )
    return {rank_of(c): Offset(0, "wall", "stamps taken as Unix time") for c in captures}, ""


METHODS: Mapping[str, Method] = {
    "auto": _auto,
    "collective": _collective,
    "meta": _meta,
    "wall": _wall,
    "none": lambda captures, *_: ({rank_of(one): Offset() for one in captures}, ""),
}
"""How offsets are found, by the name of the ``align`` option."""

FROM_EVENTS = ("auto", "collective")
"""Methods that need the collectives of the ranks."""

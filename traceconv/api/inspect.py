"""The captures below some paths."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from traceconv.core.errors import Issues, RankError, TraceconvError
from traceconv.core.job_shape import NODE, JobShape
from traceconv.core.markup import aligned
from traceconv.core.model import Capture, Trace
from traceconv.core.rank_ranges import format_ranges
from traceconv.core.side_tables import SideTable
from traceconv.core.version import REPORT
from traceconv.find import discovery
from traceconv.find.capture_ranks import labelled, shape_of_captures
from traceconv.find.identity import MOST_BYTES, bytes_of
from traceconv.io.sources import sources
from traceconv.merging.run_report import described
from traceconv.options import values
from traceconv.options.declaration import takes
from traceconv.options.verbs import InspectOptions
from traceconv.readers.shared.table_kinds import NOT_NEEDED
from traceconv.report.figures import UNKNOWN
from traceconv.store import is_store

if TYPE_CHECKING:
    from traceconv.merging.size_prediction import Prediction
    from traceconv.options.arguments import InspectArguments
    from traceconv.options.groups import RunOptions
    from traceconv.run.engines import Advance

LINES = 14
"""More captures than this share lines, unless ``every`` is set."""

SHOWN = 60
"""Characters of a list of ranks in a line for many captures."""

NAMED = 5
"""Files of a kind that are named."""

_WIDTH = 100
"""Columns of a list of names; longer ones are wrapped."""

_LONG = 24  # characters of a folder; longer ones have a separate line
_TITLES = ("rank", "format", "host", "device", "graphs", "clock", "size", "where")


@dataclass(repr=False)
class Inspection:
    """The captures below some paths, and their problems.

    Attributes:
        captures: as found; ranks may be None.
        unknown:  files no reader knows.
        problem:  why ranks cannot be identified, or "".
        issues:   issues that were found.
        counts:   per rank, if events were read: rows by kind and by layer, steps, graphs,
            predicted bytes by mode (Perfetto), and by format and mode.
        predicted: the same for all ranks in one file: bytes by format and mode.
        compared: whether the collection windows of ranks were read, as a run does.
    """

    captures: list[Capture] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    problem: str = ""
    issues: Issues = field(default_factory=Issues)
    counts: dict[int, dict[str, Any]] = field(default_factory=dict)
    predicted: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    compared: bool = True

    def __repr__(self) -> str:
        ranks = format_ranges([c.rank for c in self.captures if c.rank is not None])
        return f"<Inspection: {len(self.captures)} captures, ranks {ranks or UNKNOWN}>"

    @property
    def world_size(self) -> int:
        """Ranks of the job, as the captures say; -1 if none does."""
        return max((c.world_size for c in self.captures), default=-1)

    @property
    def missing(self) -> str:
        """Ranks of the job that are not here, as ``512,4000-4095``: gaps between those that are,
        and, where the captures tell the size of the job, what is left of it.
        """
        present = sorted({c.rank for c in self.captures if c.rank is not None})
        if not present or (len(present) == 1 and self.world_size < 1):
            return ""
        borders = [-1, *present, max(self.world_size, present[-1] + 1)]
        gaps = [(a + 1, b - 1) for a, b in pairwise(borders) if b - a > 1]
        return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in gaps)

    def take(self, ranked: Sequence[Capture]) -> None:
        """Take in the captures that have a rank; those a run leaves out stay, too."""
        unranked = [c for c in self.captures if c.rank is None and c.optional]
        windows = sum(max(len(capture.parts), 1) for capture in ranked)
        is_whole = windows + len(unranked) == len(self.captures)
        self.captures = [*ranked, *(unranked if is_whole else ())]

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "schema_version": REPORT,
            "captures": [
                {
                    **described(c),
                    "source": c.source.label,
                    "windows": [described(window) for window in c.parts],
                    "known": list(c.known),
                    "uses": {name: c.uses.get(name, NOT_NEEDED) for name in c.known},
                    "tables": {name: list(files) for name, files in c.tables.items()},
                    "counts": self.counts.get(_rank(c)),
                }
                for c in self.captures
            ],
            "world_size": self.world_size if self.world_size > 0 else None,
            "missing_ranks": self.missing,
            "shape": self.shape.as_dict(),
            "unknown": self.unknown,
            "problem": self.problem,
            **({"predicted": self.predicted} if self.predicted else {}),
            "issues": [issue.as_dict() for issue in self.issues],
        }

    def _repr_html_(self) -> str:
        """The printed lines, for notebooks."""
        from traceconv.core.markup import lines_html

        return lines_html("traceconv inspection", self.lines())

    def lines(self, every: bool = False) -> list[str]:
        """A table for people.

        Args:
            every: a line per capture, however many they are.
        """
        one_file = len(self.captures) > 1 == len({c.title for c in self.captures})
        short = (one_file or len(self.captures) > LINES) and not every
        rows = [*(_alike(self.captures) if short else self._rows())]
        lines = _table(rows) if rows else ["no captures found"]
        lines += self._window_lines()
        contents = dict.fromkeys(c.content for c in self.captures if c.content)
        lines += [f"merged trace: {text}" for text in contents]
        if self.missing:
            present = len({c.rank for c in self.captures} - {None})
            total = f" of {self.world_size}" if self.world_size > 0 else ""
            lines.append(f"{present}{total} ranks are here; missing: {self.missing}")
        if self.shape.names != (NODE,) and (shape := self.shape.line()):
            lines += _wrapped(f"shape: {shape}")
        lines += self._sum_lines() if short else self._count_lines()
        lines += self._table_lines(short)
        lines += self._left_out_lines()
        if self.unknown:
            shown = ", ".join(self.unknown[:5]) + (" ..." if len(self.unknown) > 5 else "")
            count = len(self.unknown)
            files = "1 file" if count == 1 else f"{count} files"
            lines += _wrapped(f"{files} no reader knows: {shown}")
        problem = f"problem: {self.problem}".split("\n") if self.problem else []
        return [*problem, *lines]

    def _rows(self) -> Iterable[tuple[str, ...]]:
        for capture in self.captures:
            rank = str(capture.rank) if capture.rank is not None else UNKNOWN
            graphs = self.counts.get(_rank(capture), {}).get("graphs", capture.graphs)
            for window in capture.parts or (capture,):
                d = described(window)
                device = str(window.device) if window.device >= 0 else UNKNOWN
                shown = format_ranges(window.graphs if capture.parts else graphs) or UNKNOWN
                host, size = window.host or UNKNOWN, _size(d["bytes"])
                yield rank, window.reader, host, device, shown, d["clock"], size, d["label"]

    def _window_lines(self) -> list[str]:
        """Which ranks have several captures."""
        several = [
            capture.rank for capture in self.captures if capture.rank is not None and capture.parts
        ]
        count = sum(len(capture.parts) for capture in self.captures)
        shown = _cut(format_ranges(several))
        line = f"rank {shown}: {count} captures, each a collection window of its rank"
        if not self.compared:
            line += " (whether they overlap was not compared; `counts=True` reads them)"
        return [line] if several else []

    @property
    def shape(self) -> JobShape:
        """The coordinates of the ranks, as far as the captures state them."""
        return shape_of_captures(self.captures)

    def _count_lines(self) -> list[str]:
        lines = [
            f"rank {number}: {_counts_text(counts)}; as .pftrace about "
            f"{_sizes(counts['predicted']['perfetto'])}, "
            f"as .json {_sizes(counts['predicted']['chrome_json'])}"
            for number, counts in self.counts.items()
        ]
        return lines + (self._whole_line() if len(self.counts) > 1 else [])

    def _sum_lines(self) -> list[str]:
        if not self.counts:
            return []
        total: Counter[str] = Counter()
        layers: Counter[str] = Counter()
        for counts in self.counts.values():
            total.update({kind: counts[kind] for kind in ("slice", "instant", "counter", "flow")})
            layers.update(counts["layers"])
        return [f"all ranks: {_counts_text({**total, 'layers': layers})}", *self._whole_line()]

    def _whole_line(self) -> list[str]:
        if not self.predicted:
            return []
        native, chrome = self.predicted["perfetto"], self.predicted["chrome_json"]
        return [f"in one file: as .pftrace about {_sizes(native)}, as .json {_sizes(chrome)}"]

    def _left_out_lines(self) -> list[str]:
        """Files that hold the same run once more."""
        names = [
            issue.file.replace("\\", "/").rpartition("/")[2]
            for issue in self.issues
            if issue.code == "export-unused"
        ]
        if not names:
            return []
        shown = ", ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else "")
        is_plural = len(names) != 1
        return _wrapped(
            f"{len(names)} file{'s' * is_plural} left out, as another export of the same run is "
            f"read: {shown}"
        )

    def _table_lines(self, short: bool) -> list[str]:
        """The tables next to the timelines; captures with the same tables share a line."""
        alike: dict[str, list[Capture]] = {}
        for capture in self.captures:
            rows = {} if short else self.counts.get(_rank(capture), {}).get("tables", {})
            names = [f"{t} {rows[t]}" if rows.get(t) is not None else t for t in capture.tables]
            alike.setdefault(", ".join(names), []).append(capture)
        return [
            line
            for tables, captures in alike.items()
            if tables
            for line in _wrapped(f"tables of {self._whose(captures, short)}: {tables}")
        ]

    def _whose(self, captures: Sequence[Capture], short: bool) -> str:
        """Captures by their ranks; those without, or whose rank others claim too, by their path
        below the folder all of them are in.
        """
        if short:
            return f"ranks {_cut(format_ranges([c.rank for c in captures if c.rank is not None]))}"
        claimed = Counter(c.rank for c in self.captures)
        labels = [described(c)["label"] for c in self.captures]
        above = os.path.commonprefix(labels).rpartition("/")[0]  # noqa: RUF071 - may be URLs
        return ", ".join(
            f"rank {c.rank}"
            if c.rank is not None and claimed[c.rank] == 1
            else described(c)["label"].removeprefix(above).lstrip("/")
            for c in captures
        )


def _wrapped(text: str) -> list[str]:
    """Lines of a list of names, which stay whole."""
    return wrap(
        text, _WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _alike(captures: Sequence[Capture]) -> Iterable[tuple[str, ...]]:
    """A row for all captures of one format, clock and list of graphs; one for each without rank."""
    groups: dict[tuple[Any, ...], list[Capture]] = {}
    for capture in captures:
        clock = str(capture.clock.domain) if capture.clock else "unknown"
        alone = id(capture) if capture.rank is None else 0
        groups.setdefault((capture.reader, clock, format_ranges(capture.graphs), alone), []).append(
            capture
        )
    for (reader, clock, graphs, _), group in groups.items():
        documents = [described(capture) for capture in group]
        ranks = (
            format_ranges([capture.rank for capture in group if capture.rank is not None])
            or UNKNOWN
        )
        hosts = {capture.host for capture in group if capture.host}
        host = f"{len(hosts)} hosts" if len(hosts) > 1 else "".join(hosts) or UNKNOWN
        devices = (
            format_ranges([capture.device for capture in group if capture.device >= 0]) or UNKNOWN
        )
        graphs = graphs or UNKNOWN
        sizes = {d["label"]: d["bytes"] for d in documents}  # ranks may share a file
        size = _size(sum(sizes.values()))
        where = _common_place([*sizes])
        yield _cut(ranks), reader, host, devices, graphs, clock, size, where


def _common_place(labels: Sequence[str]) -> str:
    """Many places in few words."""
    if len(labels) == 1:
        return labels[0]
    above = os.path.commonprefix(labels).rpartition("/")[0]  # noqa: RUF071 - may be URLs
    return f"{len(labels)} below {above or '.'}: {labels[0].removeprefix(above).lstrip('/')} ..."


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 4]} ..."


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The columns with data, the first and the last one in any case; places are shown below the
    folder that holds all of them."""
    ends = (0, len(_TITLES) - 1)
    shown = [n for n in range(len(_TITLES)) if n in ends or {r[n] for r in rows} - {UNKNOWN}]
    places = [row[-1] for row in rows]
    above = os.path.commonprefix(places).rpartition("/")[0]  # noqa: RUF071 - may be URLs
    titles, first = [*_TITLES], []
    if len(rows) > 1 and above:
        rows = [[*row[:-1], row[-1].removeprefix(above).lstrip("/")] for row in rows]
        if len(above) > _LONG:
            first = [f"below {above}:"]
        else:
            titles[-1] = f"where (below {above})"
    cells = [[row[n] for n in shown] for row in rows]
    return [*first, *aligned([[titles[n] for n in shown], *cells], range(len(shown)))]


def _counts_text(counts: Mapping[str, Any]) -> str:
    layers = ", ".join(f"{layer} {n}" for layer, n in sorted(counts["layers"].items()) if n)
    steps = f", {len(numbers)} steps" if (numbers := counts.get("steps")) else ""
    return (
        f"{counts['slice']} slices, {counts['instant']} instants, "
        f"{counts['counter']} counter samples, {counts['flow']} flows ({layers}){steps}"
    )


def _rows(side_table: SideTable, issues: Issues) -> int | None:
    """Rows of a table, what is lost of it in ``issues``; None if it cannot be read."""
    try:
        rows = len(next(iter(side_table.read().values()), ()))
    except TraceconvError as e:
        issues.add("malformed-record", side_table.file, str(e)[:200])
        return None
    side_table.account(issues)
    return rows


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.1f}M" if n_bytes >= 1 << 20 else f"{n_bytes / 2**10:.1f}K"


def _sizes(predicted: Mapping[str, int]) -> str:
    return ", ".join(f"{n / 2**20:.2f}M in {mode}" for mode, n in predicted.items())


def _rank(capture: Capture) -> int:
    return -1 if capture.rank is None else capture.rank


@takes(InspectOptions)
def inspect(*paths: values.Paths, **keywords: Unpack[InspectArguments]) -> Inspection:
    """The captures below ``paths``: format, rank, device, graphs, clock and files of every capture.

    Unlike :func:`traceconv.open`, it shows captures whose rank is unknown or doubled, and reports
    the problem. Predicted sizes are upper bounds, a few percent above.

    Raises:
        OptionError: an argument is not understood.
        TraceconvError: see :mod:`traceconv.core.errors`.
    """
    options = InspectOptions.of(keywords)
    source = options.input
    below = sources(values.paths(paths))
    if any(map(is_store, below)):
        from traceconv.api.open import found_in

        packed = found_in(below, source)
        inspection = Inspection([*packed.found], [*packed.unknown], issues=packed.issues)
        return _with_counts(inspection, options)
    discovered = discovery.discover(below, source.reader, source.mapping, source.nsys)
    inspection = Inspection(
        captures=list(discovered.captures),
        unknown=[unknown_source.title(name) for unknown_source, name in discovered.unknown],
        issues=discovered.issues,
    )
    try:
        ranked = discovery.ranked(discovered, below, source.rank_from, source.reader)
        inspection.take(labelled(ranked))
    except RankError as e:
        inspection.problem = str(e)
        return inspection
    if not options.counts:
        _compare_windows(inspection)
    return _with_counts(inspection, options)


def _with_counts(inspection: Inspection, options: InspectOptions) -> Inspection:
    if options.counts:
        try:
            _count(inspection, options.run)
        except RankError as e:
            inspection.problem = str(e)
    return inspection


def _compare_windows(inspection: Inspection) -> None:
    """Read the ranks with several captures, as a run does, unless these are large."""
    several = [capture for capture in inspection.captures if capture.parts]
    inspection.compared = bytes_of(several) <= MOST_BYTES
    if not several:
        return
    from traceconv.run.stages import events

    for capture in several if inspection.compared else ():
        try:
            issues = events(capture, lambda _: None).issues
            of_runs = [one for one in issues if one.code in ("jobs-mixed", "steps-repeated")]
            inspection.issues.extend(of_runs, rank=capture.rank)
        except RankError as e:
            inspection.problem = str(e)
        except TraceconvError:  # said by a run
            continue


def _count(inspection: Inspection, run: RunOptions) -> None:
    """Read the events of every capture that has a rank."""
    from traceconv.merging.size_prediction import together
    from traceconv.run.rank_loop import map_ranks
    from traceconv.run.summaries import analysed

    captures = [capture for capture in inspection.captures if capture.rank is not None]
    predictions: dict[int, Prediction] = {}
    with analysed(captures, inspection.issues, run) as ranks:
        for capture, result in map_ranks(_counts, captures, ranks.executor, run, inspection.issues):
            counts, issues, prediction = result
            inspection.counts[_rank(capture)] = counts
            inspection.issues.extend(issues)
            predictions[_rank(capture)] = prediction
    inspection.predicted = together(predictions)


def _step_numbers(trace: Trace) -> list[int]:
    """The numbers of the steps, of one collection window after the other."""
    marked = trace.events.step >= 0
    window = np.searchsorted(trace.windows[:, 0], trace.events.start_ns[marked], "right")
    steps = np.unique(np.stack((window, trace.events.step[marked])), axis=1)
    return [int(step) for step in steps[1]]


def _counts(capture: Capture, advance: Advance) -> tuple[dict[str, Any], Issues, Prediction]:
    """The rows of a rank, its issues, and its predicted size."""
    from traceconv.merging.size_prediction import Prediction
    from traceconv.run.stages import events

    trace = events(capture, advance)
    prediction, issues = Prediction.of(trace), Issues()
    counts = {
        **trace.counts(),
        "layers": {
            str(layer): int(trace.rows_of(layer).sum())
            for layer in sorted({track.layer for track in trace.tracks})
        },
        "graphs": sorted(set(trace.events.graph.tolist()) - {-1}),
        "steps": _step_numbers(trace),
        "predicted_bytes": dict(prediction.alone["perfetto"]),
        "predicted": prediction.alone,
        "tables": {name: _rows(table, issues) for name, table in trace.side_tables.items()},
    }
    issues.extend(trace.issues, rank=trace.rank)
    return counts, issues, prediction

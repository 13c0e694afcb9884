"""The sections of a report, from its document: the verdict's reasons first, the account last.

Ranks are sorted by what they cost the job, most first; of more than :data:`RANKS_DRAWN` the middle
is drawn as its mean. Tables have all ranks. Sections without data are named in one list at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce
from statistics import median
from typing import Any

from traceconv.analysis.rules.findings import MINOR
from traceconv.core.clock import stamp_text
from traceconv.report import figures as say
from traceconv.report import fitting
from traceconv.report.blocks import (
    Bar,
    Bars,
    Block,
    Card,
    Cards,
    Cell,
    Figures,
    Folded,
    HeatCell,
    HeatMap,
    Legend,
    Line,
    Lines,
    Place,
    Section,
    Styled,
    Table,
    Text,
    time,
)

Data = Mapping[str, Any]
"""A section of the document, or a row of it."""

RANKS_DRAWN = 16
_FIRST, _LAST = 12, 4
"""The ranks that are drawn if there are more than :data:`RANKS_DRAWN`."""

_BARS = 8
"""Of kernels and collectives, those that are drawn."""

_LINES_DRAWN = 6
"""With more ranks, step times are a band with its median, and the slowest and fastest rank."""

_FEWEST_STEPS = 3
_TIPS = 400  # places of a line that can be pointed at
_NUMBERED_CELLS = 80  # maps with fewer cells say their figures
_ALSO = 6  # further places named beside a finding
_FILES = 20  # of an issue
_COLOURS = 8
_NAME = 64  # characters of a kernel or a collective beside its bar
_TEXT = 96  # characters of a text in a table
_BINS = 64  # rows and columns of a matrix

UNCLASSIFIED_WORK = "unclassified work"

CLASSES = (
    ("pure_compute_ns", "k-compute", "computing"),
    ("overlapped_ns", "k-overlapped", "computing and communicating"),
    ("exposed_ns", "k-exposed", "communication not overlapped"),
    ("copy_ns", "k-copy", "memory copies not overlapped"),
    ("unclassified_ns", "k-unclassified", UNCLASSIFIED_WORK),
    ("idle_ns", "k-idle", "idle, waiting for input included"),
)
"""The classes that add up to what is known of a step: key, colour, words. Waiting for other ranks
is part of communication here; what steps lose by it is in the verdict."""

_MOMENTS = {
    "c": ("k-compute", "computing"),
    "o": ("k-overlapped", "computing and communicating"),
    "t": ("k-exposed", "communicating"),
    "w": ("k-waiting", "waiting for other ranks"),
    ".": ("k-idle", "idle"),
}
"""Activities of a rank at a moment of the timeline: colour, words."""

_COMMUNICATION = (
    ("transit_ns", "k-compute", "transfer"),
    ("wait_ns", "k-exposed", "waiting"),
    ("idle_ns", "k-idle", "idle"),
)
_STAGE = (
    ("forward_ns", "k-compute", "forward"),
    ("backward_ns", "k-overlapped", "backward"),
    ("pass_unknown_ns", "k-compute", "pass unknown"),
    ("bubble_ns", "k-exposed", "bubble"),
    ("rest_ns", "k-idle", "rest"),
)
_LEAST = 0.001
"""Smaller figures would be shown as 0.00."""

_HEAT = {
    "lateness": "Own time of a rank beyond that of its peers. Dark rows are the ranks "
    "that others wait for, not those that wait.",
    "computing": "No collectives are shared, so computing is compared: by how much a rank computed "
    "longer than the median of all.",
}


def sections(document: Data) -> list[Section]:
    """The sections of a report below its head.

    Args:
        document: of :meth:`traceconv.Report.as_dict`, with its "overview" if there is one.
    """
    drawn: list[Section] = []
    if overview := document.get("overview"):
        drawn += analysis(overview)
    else:
        text = "not analysed: this run made no views"
        drawn.append(Section("findings", "Findings", [Text(text, "note")]))
    return [*drawn, *account(document)]


def account(document: Data) -> Iterator[Section]:
    """The sections on the run: clocks, issues, input and output."""
    issues = [_issues(document["issues"])] if document["issues"] else [Text("Nothing was lost.")]
    yield Section("clock", "Clocks", _clocks(document["clock"]), True)
    yield Section("issues", "Issues", issues, True)
    yield Section("ranks", "What was read", [_captures(document["captures"])], True)
    if document["dropped"]:
        yield Section("dropped", "Left out", [plain_table(document["dropped"])])
    if document["written"]:
        written = plain_table(document["written"], leave_out=("issues",))
        yield Section("written", "What was written", [written], True)


def analysis(overview: Data) -> Iterator[Section]:
    """The sections of the analysis of all ranks."""
    kinds: tuple[tuple[str, str, Callable[[Data], list[Block]], bool], ...] = (
        ("overlap", "Where time goes", _overlap, False),
        ("timeline", "One step", _timeline, False),
        ("findings", "Findings", _findings, False),
        ("operators", "Top kernels and operators", _operators, False),
        ("idle_causes", "What idle devices wait for", partial(_listed, "idle_causes"), True),
        ("efficiency", "Operators against the peak", partial(_listed, "efficiency"), True),
        ("graphs", "Replayed graphs", partial(_listed, "graphs"), True),
        ("communication", "Communication", _communication, False),
        ("steps", "Step times", _steps, False),
        ("heat", "Which rank is behind, step by step", _heat, True),
        ("links", "Traffic between ranks", _links, True),
        ("critical_path", "What bounds a step", _critical_path, True),
        ("stages", "Pipeline stages", _stages, True),
        ("shape", "Ranks at their coordinates", _shape, True),
        ("curves", "Queues and memory", _curves, True),
        ("memory_at_peak", "Memory at its peak", partial(_listed, "memory_at_peak"), True),
    )  # fmt: skip
    lacking = []
    for key, title, blocks, folded in kinds:
        missing = overview[key].get("missing", "") if isinstance(overview.get(key), dict) else ""
        if missing:
            lacking.append((title, missing.removeprefix("no data: ")))
        elif key in overview:  # documents of older runs have fewer
            yield Section(key, title, blocks(overview), folded)
    lacking += [
        (f"rule {check['rule']}", f"needs {check['needs']}"
         + (f" ({say.ranks(check['ranks'])})" if check["ranks"] else ""))
        for check in overview["not_checked"]
    ]  # fmt: skip
    if lacking:
        title = "Not shown and not checked"
        yield Section("missing", title, [Table(("what", "why"), lacking)], True)


# -- ranks ----------------------------------------------------------------------------------------


def _culprits(overview: Data) -> set[int]:
    """The ranks that others wait for: stragglers, else those of a stage with more work."""
    verdict = overview["straggler"]
    numbers = {
        late_rank["rank"] for late_rank in (verdict["culprit"], *verdict["others"]) if late_rank
    }
    return numbers or set((verdict["stage"] or {}).get("ranks", ()))


def _by_loss(overview: Data, rows: Sequence[Data]) -> list[Data]:
    """Rows of ranks by what each costs: those that others wait for first, then by how late they
    are and by computing."""
    late, culprits = overview.get("late_ns", {}), _culprits(overview)

    def order(row: Data) -> tuple[bool, int, int, int]:
        rank = row["rank"]
        busy = (row["pure_compute_ns"] or 0) + (row["overlapped_ns"] or 0)
        return rank not in culprits, -late.get(str(rank), 0), -busy, rank

    return sorted(rows, key=order)


def _overlap(overview: Data) -> list[Block]:
    section = overview["overlap"]
    rows = _by_loss(overview, section["rows"])
    shown = [shown_class for shown_class in CLASSES if any(row.get(shown_class[0]) for row in rows)]
    culprits, late = _culprits(overview), overview.get("late_ns", {})
    drawn = rows
    if len(rows) > RANKS_DRAWN:
        middle = rows[_FIRST:-_LAST]
        keys = [*(key for key, _, _ in shown), "known_ns"]
        mean = {key: sum(row.get(key) or 0 for row in middle) // len(middle) for key in keys}
        mean_row = {"name": f"{len(middle)} others (mean)", **mean}
        drawn = [*rows[:_FIRST], mean_row, *rows[-_LAST:]]
    longest = max(row["known_ns"] for row in rows) or 1
    bars = [
        Bar(
            row.get("name") or f"rank {row['rank']}",
            [
                (kind, ns / longest,
                 f"{words}: {say.exact(ns)} ({say.percent(ns, row['known_ns'])})")
                for key, kind, words in shown
                if (ns := row.get(key, 0)) is not None
            ],
            say.time(row["known_ns"]),
            marked=row.get("rank") in culprits,
        )
        for row in drawn
    ]  # fmt: skip
    head = ["rank", "steps", "known", *(words for _, _, words in shown), "of it waiting for input"]
    table = [
        [row["rank"], row["steps"], time(row["known_ns"]),
         *("unknown" if ns is None else
           Styled(f"{say.time(ns)} ({say.percent(ns, row['known_ns'])})", exact=say.exact(ns))
           for ns in (row.get(key, 0) for key, _, _ in shown)), Styled(say.waiting(row))]
        for row in rows
    ]  # fmt: skip
    if any(late.values()):
        head.append("longer than peers")
        for cells, row in zip(table, rows, strict=True):
            cells.append(time(late.get(str(row["rank"]))))
    return [
        Text(overview["sentences"][0]),
        Legend([(kind, words) for _, kind, words in shown]),
        Bars(bars),
        Folded("figures of all ranks" if len(rows) > 1 else "figures", [Table(head, table)]),
    ]


def _timeline(overview: Data) -> list[Block]:
    section, culprits = overview["timeline"], _culprits(overview)
    activities = _MOMENTS
    if section["unclassified"]:
        activities = activities | {
            "c": ("k-unclassified", UNCLASSIFIED_WORK),
            "o": ("k-overlapped", f"{UNCLASSIFIED_WORK} and communicating"),
        }
    bins = len(section["rows"][0]["moments"])
    bars = []
    for row in section["rows"]:
        segments: list[tuple[str, float, str]] = []
        start, moments = 0, row["moments"]
        for position in range(1, bins + 1):
            if position == bins or moments[position] != moments[start]:
                kind, words = activities[moments[start]]
                length = say.time(section["dur_ns"] * (position - start) / bins)
                segments.append((kind, (position - start) / bins, f"{words}, about {length}"))
                start = position
        name = f"rank {row['rank']}"
        bars.append(Bar(name, segments, "", marked=row["rank"] in culprits))
    present = {moment for row in section["rows"] for moment in row["moments"]}
    whose = " of all ranks" if len(section["rows"]) + section["others"] > 1 else ""
    words = f"Device work in step {section['step']}{whose}: {say.time(section['dur_ns'])} wide"
    if section["step_ns"] > section["dur_ns"]:  # clocks may be off by more than the gap
        words += f", of {say.time(section['step_ns'])} with the gap before it"
    if section["others"]:
        words += f"; {section['others']} further ranks are not drawn"
    legend = Legend([entry for moment, entry in activities.items() if moment in present])
    return [Text(f"{words}."), legend, Bars(bars)]


# -- findings -------------------------------------------------------------------------------------


def _findings(overview: Data) -> list[Block]:
    cards = [
        Card(
            finding["severity"], finding["title"], finding["text"],
            [*finding["evidence"], *_also(finding["also"])], finding["advice"],
            [_place(location) for location in finding["places"]],
        )
        for finding in overview["findings"]
    ]  # fmt: skip
    blocks: list[Block] = [Cards(cards) if cards else Text("No rule reports anything.", "note")]
    if places := overview["places"]:
        head = ("what", "rank", "at", "length", "track", "find it")
        rows = [
            (p["what"], p["rank"], Styled(stamp_text(p["start_ns"])), time(p["dur_ns"]), p["lane"],
             Styled(p["query"], "query", span=_span(p)))
            for p in places
        ]  # fmt: skip
        blocks.append(Folded(f"The {len(places)} longest idle intervals", [Table(head, rows)]))
    if overview["minor"]:
        blocks.append(Text(f"{MINOR}: {', '.join(overview['minor'])}", "note"))
    if places or any(card.places for card in cards):
        blocks.append(
            Text(
                "To find one in ui.perfetto.dev, open the merged trace, type a colon into the "
                "search box and paste the query behind it. Times count from the start of the "
                "trace.",
                "note",
            )
        )
    return blocks


def _also(places: Sequence[str]) -> list[str]:
    if not places:
        return []
    ellipsis = f" and {len(places) - _ALSO} more" if len(places) > _ALSO else ""
    return [f"also: {', '.join(places[:_ALSO])}{ellipsis}"]


def _span(location: Data) -> tuple[int, int]:
    return location["start_ns"], location["start_ns"] + location["dur_ns"]


def _place(location: Data) -> Place:
    where = f" on {location['lane']}" if location["lane"] else ""
    long = f", {say.time(location['dur_ns'])} long" if location["query"] else ""
    time_text = stamp_text(location["start_ns"])
    words = (
        f"{location['name'] or '(no name)'} of rank {location['rank']}{where}, at {time_text}{long}"
    )
    return Place(words, location["query"], _span(location))


# -- operators and communication ------------------------------------------------------------------


def _operators(overview: Data) -> list[Block]:
    section = overview["operators"]
    rows = section["rows"]
    longest = max(row["total_ns"] for row in rows) or 1
    names = fitting.shortened([row["name"] or say.UNKNOWN for row in rows[:_BARS]], _NAME)
    bars = [
        Bar(
            name,
            [("k-compute", row["total_ns"] / longest,
              f"{row['name'] or say.UNKNOWN}: {say.exact(row['total_ns'])} in {row['count']}; most "
              f"on rank {row['most_on_rank']}: {say.exact(row['most_ns'])}")],
            say.share(row["percent"]) if row["percent"] is not None else say.time(row["total_ns"]),
            f"{row['core'] or say.UNKNOWN} · {row['count']} × {say.time(row['avg_ns'])}",
        )
        for name, row in zip(names, rows, strict=False)
    ]  # fmt: skip
    hidden = len(rows) - len(bars) + section["others"]
    hidden_ns = sum(row["total_ns"] for row in rows[_BARS:]) + section["others_ns"]
    blocks: list[Block] = [Text(f"{section['by']}, all ranks together."), Bars(bars, wide=True)]
    if hidden:
        blocks.append(Text(f"and {hidden} more, {say.time(hidden_ns)} together", "note"))
    return [*blocks, Folded("figures", [plain_table(rows)])]


def _communication(overview: Data) -> list[Block]:
    rows = overview["communication"]["rows"]
    longest = max(row["total_ns"] for row in rows) or 1
    has_elapsed = any(row.get("transit_ns") is None for row in rows)
    bars = []
    names = fitting.shortened([row["operation"] or say.UNKNOWN for row in rows[:_BARS]], _NAME)
    for name, row in zip(names, rows, strict=False):
        segments = [("k-overlapped", row["total_ns"] / longest, say.exact(row["total_ns"]))]
        if row.get("transit_ns") is not None:
            segments = [
                (kind, row[key] / longest, f"{words}: {say.exact(row[key])}")
                for key, kind, words in _COMMUNICATION
                if row.get(key) is not None
            ]
        note = f"{row['group'] or 'all'} · {row['count']} × {say.time(row['avg_ns'])}"
        bars.append(Bar(name, segments, say.time(row["total_ns"]), note))
    legend = [
        (kind, words)
        for key, kind, words in _COMMUNICATION
        if any((row.get(key) or 0) > _LEAST * longest for row in rows)
    ]
    legend += [("k-overlapped", "elapsed: waiting and transfer")] * has_elapsed
    words = "Elapsed time of whole operations, summed over ranks, by kind and group of ranks."
    hidden = len(rows) - len(bars) + overview["communication"]["others"]
    blocks: list[Block] = [Text(words), Legend(legend), Bars(bars, wide=True)]
    if hidden:
        blocks.append(Text(f"and {hidden} more kinds", "note"))
    blocks.append(Folded("figures", [plain_table(rows)]))
    if sized := overview.get("collectives", {}).get("rows"):
        blocks += [Text("Bandwidth by size; the best is of the shortest operation."),
                   plain_table(sized)]  # fmt: skip
    return blocks


def _listed(key: str, overview: Data) -> list[Block]:
    section = overview[key]
    more = [Text(f"and {section['others']} more rows", "note")] if section["others"] else []
    rows = [{key: value[:_TEXT] if isinstance(value, str) else value for key, value in row.items()}
            for row in section["rows"]]  # fmt: skip
    return [plain_table(rows), *more]


def _links(overview: Data) -> list[Block]:
    words = (
        "Bytes from the rank of the row to the rank of the column, numbered within the group; "
        "the diagonal stays on the chip."
    )
    groups = overview["links"]["groups"]
    rows = [
        (group["group"] or say.UNKNOWN, cell["source"], cell["destination"],
         Styled(say.size_or_unknown(cell["bytes"])), time(cell["time_ns"]),
         Styled(_speed(cell["bytes"], cell["time_ns"])), ", ".join(cell["transport"]))
        for group in groups
        for cell in group["cells"]
    ]  # fmt: skip
    head = ("group", "from", "to", "bytes", "time", "bandwidth", "transport")
    maps = [block for group in groups for block in _matrix(group)]
    return [Text(words), *maps, Folded("figures", [Table(head, rows)])]


def _speed(n_bytes: int | None, ns: int | None) -> str:
    return f"{n_bytes / ns:.2f} GB/s" if n_bytes is not None and ns else say.UNKNOWN


def _matrix(group: Data) -> list[Block]:
    ranks = sorted({c[end] for c in group["cells"] for end in ("source", "destination")})
    per_bin = -(-len(ranks) // _BINS)
    bins = [ranks[i : i + per_bin] for i in range(0, len(ranks), per_bin)]
    bin_of = {rank: i for i, members in enumerate(bins) for rank in members}
    sums: dict[tuple[int, int], list[Data]] = {}
    for cell in group["cells"]:
        sums.setdefault((bin_of[cell["source"]], bin_of[cell["destination"]]), []).append(cell)
    totals = {pair: _sum(cells, "bytes") for pair, cells in sums.items()}
    low, highest, share = _scaled(totals.values())
    names = [_short(members) for members in bins]
    numbered = len(bins) <= RANKS_DRAWN // 2

    def link(pair: tuple[int, int]) -> HeatCell:
        if pair not in sums:
            return HeatCell(None, "")
        n_bytes, ns = totals[pair], _sum(sums[pair], "time_ns")
        over = ", ".join(
            sorted({name for cell_row in sums[pair] for name in cell_row["transport"]})
        )
        size = say.size_or_unknown(n_bytes)
        length = say.UNKNOWN if ns is None else say.time(ns)
        words = f"{names[pair[0]]} to {names[pair[1]]}: {size} in {length}"
        words += f", {_speed(n_bytes, ns)} ({over})"
        return HeatCell(share(n_bytes), words, size if numbered else "")

    grid = [[link((i, j)) for j in range(len(bins))] for i in range(len(bins))]
    name = group["group"] or "of all ranks"
    title = name if name.startswith("Group") else f"Group {name}"
    scale = (say.size(low), say.size(highest))
    return [Text(title), HeatMap(grid, names, names, "to", scale, 96 if numbered else 32)]


def _sum(cells: Sequence[Data], key: str) -> int | None:
    """The sum; None if a part of it is not known."""
    values = [cell[key] for cell in cells]
    return None if None in values else sum(values)


def _scaled(values: Any) -> tuple[int, int, Callable[[int | None], float | None]]:
    """The smallest and the largest of the values, and the place of one between them."""
    present = [value for value in values if value is not None] or [0]
    low, highest = min(present), max(present)
    wide = highest - low

    def share(value: int | None) -> float | None:
        return None if value is None else (value - low) / wide if wide else float(value > 0)

    return low, highest, share


def _short(members: Sequence[int]) -> str:
    return str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}"


# -- steps ----------------------------------------------------------------------------------------


def _steps(overview: Data) -> list[Block]:
    """A line per rank, or a band over many; bars where steps are too few for lines."""
    rows = [row for row in overview["steps"]["rows"] if row["step"]]
    pairs = [list(zip(row["step"], row["dur_ns"], strict=True)) for row in rows]
    lengths = [(dur, row["rank"], step)
               for row, pairs_of_rank in zip(rows, pairs, strict=True)
               for step, dur in pairs_of_rank]  # fmt: skip
    table = Table(
        ("rank", "step", "duration"), [(rank, step, time(dur)) for dur, rank, step in lengths]
    )
    words = Text("From the start to the end of every step, as marked.")
    figures = Folded("figures", [table])
    if max(map(len, pairs)) < _FEWEST_STEPS:
        order = sorted(lengths, reverse=True)
        shown = order if len(order) <= RANKS_DRAWN else [*order[:_FIRST], *order[-_LAST:]]
        longest = order[0][0] or 1
        bars = [
            Bar(f"rank {rank}, step {step}", [("k-compute", dur / longest, say.exact(dur))],
                say.time(dur))
            for dur, rank, step in (shown if len(order) > len(shown) else lengths)
        ]  # fmt: skip
        hidden = len(lengths) - len(shown)
        note = [Text(f"and {hidden} steps between the longest and the shortest", "note")]
        return [words, Bars(bars), *note * bool(hidden), figures]
    by_step: dict[int, list[tuple[int, int]]] = {}
    for dur, rank, step in sorted(lengths, key=lambda length: length[2]):
        by_step.setdefault(step, []).append((dur, rank))
    steps = list(by_step)
    if len(rows) <= _LINES_DRAWN:
        drawn = [Line(f"c{i}", row["step"], row["dur_ns"]) for i, row in enumerate(rows)]
        entries = [(f"c{i}", f"rank {row['rank']}") for i, row in enumerate(rows)]
    else:
        by_mean = sorted(rows, key=lambda row: sum(row["dur_ns"]) / len(row["dur_ns"]))
        fast, slow = by_mean[0], by_mean[-1]
        least, longest_by_step = ([pick(by_step[s])[0] for s in steps] for pick in (min, max))
        drawn = [
            Line("c7", steps, least, longest_by_step),
            Line("c0", steps, [median(dur for dur, _ in by_step[s]) for s in steps]),
            Line("c2", fast["step"], fast["dur_ns"]),
            Line("c1", slow["step"], slow["dur_ns"]),
        ]
        entries = [
            ("c1", f"rank {slow['rank']} (slowest)"), ("c0", f"median of {len(rows)} ranks"),
            ("c2", f"rank {fast['rank']} (fastest)"), ("band c7", "all ranks"),
        ]  # fmt: skip
    tips = [(step, f"step {step}\n{_step_words(by_step[step])}") for step in steps[:_TIPS]]
    unit = say.unit_for(max(lengths)[0])
    chart = Lines(drawn, (steps, list(map(str, steps))), unit, tips, "step", from_zero=False)
    return [words, Legend(entries), chart, figures]


def _step_words(lengths: Sequence[tuple[int, int]]) -> str:
    if len(lengths) <= _LINES_DRAWN:
        order = sorted(lengths, key=lambda length: length[1])
        return "\n".join(f"rank {rank}: {say.time(dur)}" for dur, rank in order)
    (low, fast), (high, slow) = min(lengths), max(lengths)
    usual = say.time(median(dur for dur, _ in lengths))
    return (
        f"median {usual}\nlongest {say.time(high)} (rank {slow})\n"
        f"shortest {say.time(low)} (rank {fast})"
    )


def _heat(overview: Data) -> list[Block]:
    section, culprits = overview["heat"], _culprits(overview)
    rows, numbers = section["rows"], section["steps"]
    low, highest, share = _scaled([late for row in rows for late in row["late_ns"]])
    per_column = section["steps_per_column"]
    word = "step" if per_column == 1 else f"{per_column} steps from"
    numbered = len(rows) * len(numbers) <= _NUMBERED_CELLS and len(numbers) <= _FIRST
    names = [say.ranks(row["ranks"]) for row in rows]
    grid = [
        [
            HeatCell(share(late), f"{name}, {word} {step}: "
                     + ("not recorded" if late is None else say.time(late)),
                     say.time(late) if numbered and late is not None else "")
            for step, late in zip(numbers, row["late_ns"], strict=True)
        ]
        for name, row in zip(names, rows, strict=True)
    ]  # fmt: skip
    marked = [n for n, row in zip(names, rows, strict=True) if culprits & set(row["ranks"])]
    table = Table(
        ("behind by", *(f"step {step}" for step in numbers)),
        [(n, *map(time, row["late_ns"])) for n, row in zip(names, rows, strict=True)],
    )
    steps = list(map(str, numbers))
    return [
        Text(_HEAT.get(section["what"], "")),
        HeatMap(grid, names, steps, word, (say.time(low), say.time(highest)),
                96 if numbered else 64, marked),
        Folded("figures", [table]),
    ]  # fmt: skip


# -- the shape of the job -------------------------------------------------------------------------


def _shape(overview: Data) -> list[Block]:
    """Stages as columns, other axes as rows; ranks with an unknown coordinate in one line."""
    section = overview["shape"]
    known_axes = [axis for axis in section["axes"] if axis["source"] != "unknown"]
    axes = [axis["name"] for axis in known_axes if axis["name"] != "node" and axis["size"] != 1]
    across = "pp" if "pp" in axes else axes[-1] if axes else ""
    down = [name for name in axes if name != across]
    placed = [row for row in section["rows"] if None not in [row[name] for name in axes]]
    while down and len({tuple(row[name] for name in down) for row in placed}) > _BINS:
        down.pop()  # the fastest: ranks of several coordinates share a cell
    by_cell: dict[tuple[tuple[int, ...], int], list[Data]] = {}
    for row in placed if across else ():
        by_cell.setdefault((tuple(row[name] for name in down), row[across]), []).append(row)
    row_keys, below = sorted({key for key, _ in by_cell}), sorted({column for _, column in by_cell})
    low, highest, share = _scaled([row["computing_ns"] for row in placed])

    def cell(rows: Sequence[Data]) -> HeatCell:
        if not rows:
            return HeatCell(None, "no capture")
        computing_ns = [row["computing_ns"] for row in rows if row["computing_ns"] is not None]
        longest = max(computing_ns, default=None)
        numbers = [row["rank"] for row in rows]
        places = " ".join(f"{name}{rows[0][name]}" for name in axes) if len(rows) == 1 else ""
        length = say.UNKNOWN if longest is None else say.time(longest)
        words = f"{say.ranks(numbers)} {places}".rstrip() + f": computing {length}"
        return HeatCell(share(longest), words, _short(numbers))

    blocks: list[Block] = [
        Text(f"Computing time of each rank per step, at its place in the job. {section['text']}")
    ]
    if by_cell:
        grid = [[cell(by_cell.get((key, n), ())) for n in below] for key in row_keys]
        names = [" ".join(f"{a}{n}" for a, n in zip(down, key, strict=True)) for key in row_keys]
        columns = [f"{across}{n}" for n in below]
        scale = (say.time(low), say.time(highest))
        blocks.append(HeatMap(grid, names, columns, across, scale, 96))
    present = {row["rank"] for row in placed}
    if missing := [row["rank"] for row in section["rows"] if row["rank"] not in present]:
        why = [f"{axis['name']}: {axis['lacking']}" for axis in section["axes"] if axis["lacking"]]
        blocks.append(Text(f"unknown of {say.ranks(missing)}: {'; '.join(why)}", "note"))
    columns = ["rank", *(axis["name"] for axis in section["axes"]), "computing_ns"]
    return [*blocks, Folded("figures", [plain_table(section["rows"], keep=columns)])]


def _stages(overview: Data) -> list[Block]:
    rows = overview["stages"]["rows"]
    longest = max(row["step_ns"] for row in rows) or 1
    bars = [
        Bar(
            f"stage {row['stage']}",
            [
                (kind, row[key] / longest,
                 f"{words}: {say.exact(row[key])} ({say.percent(row[key], row['step_ns'])})")
                for key, kind, words in _STAGE
                if row[key] is not None
            ],
            "bubble " + ("–" if row["bubble_ns"] is None
                         else say.percent(row["bubble_ns"], row["step_ns"])),
            row["ranks"],
        )
        for row in rows
    ]  # fmt: skip
    words = (
        "A step of each stage, the mean over its ranks: its passes, from their first task to the "
        "last, and bubbles, in which it does nothing but send or receive."
    )
    legend = Legend([(kind, name) for key, kind, name in _STAGE if any(row[key] for row in rows)])
    return [Text(words), legend, Bars(bars), Folded("figures", [plain_table(rows)])]


def _critical_path(overview: Data) -> list[Block]:
    section = overview["critical_path"]
    return [Text(section["text"]), plain_table(section["rows"])]


def _curves(overview: Data) -> list[Block]:
    section = overview["curves"]
    drawings: list[tuple[str, list[Block]]] = []
    rows = []
    for drawing in section["drawings"]:
        drawn, entries = [], []
        for i, line in enumerate(drawing["lines"]):
            kind, amounts = f"c{i % _COLOURS}", (max(line["y"]), min(line["y"]), line["y"][-1])
            amounts_text = [say.amount(value, drawing["unit"]) for value in amounts]
            drawn.append(Line(kind, line["x"], line["y"]))
            entries.append((kind, f"rank {line['rank']}, highest {amounts_text[0]}"))
            rows.append((drawing["title"], line["rank"], *map(Styled, amounts_text)))
        top = max(max(line["y"]) for line in drawing["lines"]) or 1
        unit = say.size_unit(top) if drawing["unit"] == "B" else ("", 1)
        ends = sorted(
            {end for line in drawing["lines"] for end in (min(line["x"]), max(line["x"]))}
        )
        ends = [ends[0], ends[-1]] if len(ends) > 1 else ends
        timed = drawing["axis"] == "time"
        labels = (ends, [say.time(x) if timed else f"{drawing['axis']} {x}" for x in ends])
        blocks: list[Block] = [Legend(entries), Lines(drawn, labels, unit)]
        if hidden := drawing["ranks"] - len(drawing["lines"]):
            blocks.append(Text(f"and {hidden} more ranks between these", "note"))
        drawings.append((drawing["title"], blocks))
    tables: list[Block] = [Table(("measure", "rank", "highest", "lowest", "last"), rows)]
    if section.get("queues"):
        tables.append(plain_table(section["queues"]))
    words = Text("Per measure the ranks that go highest, and the one that stays lowest.")
    return [words, Figures(drawings), Folded("figures", tables)]


# -- the account ----------------------------------------------------------------------------------


def _clocks(section: Data) -> list[Block]:
    """Offset and error of every rank; errors as :meth:`~..plan.Plan.error_ns` counts them."""
    by_rank = section.get("ranks", {})
    rows: list[list[Cell]] = []
    for rank, offset in by_rank.items():
        error = offset.get("error_ns")
        if error is None:
            error = (
                0 if offset["method"] == "host" or len(by_rank) == 1 else offset.get("spread_ns")
            )
        shown = "unknown" if error is None else f"± {say.time(error)}" if error else "none"
        drift = f"{offset['drift_ppt'] / 1e6:.3f} ppm" if offset.get("drift_ppt") else say.UNKNOWN
        rows.append(
            [int(rank), offset["method"], Styled(say.exact(int(offset["offset_ns"]))),
             Styled(shown), Styled(drift), offset.get("matches") or Styled(say.UNKNOWN),
             offset["evidence"]]
        )  # fmt: skip
    head = ("rank", "method", "offset", "error", "drift", "matches", "from")
    return [Text(section["text"]), *[Table(head, rows)] * bool(rows)]


def _captures(captures: Sequence[Data]) -> Table:
    head = ("rank", "format", "capture", "host", "device", "rank from", "size")
    rows = [
        (say.UNKNOWN if c["rank"] is None else c["rank"], c["reader"], c["label"],
         c["host"] or say.UNKNOWN, say.UNKNOWN if c["device"] is None else c["device"],
         c["rank_from"] or say.UNKNOWN, Styled(say.size(c["bytes"])))
        for c in captures
    ]  # fmt: skip
    return Table(head, rows)


_SEVERITY = {"loss": "bad", "doubt": "doubt", "info": "plain"}
"""Severities of issues, most severe first, and their colours."""


def _issues(issues: Sequence[Data]) -> Table:
    """One row per code, with its files folded."""
    groups: dict[str, list[Data]] = {}
    for issue in sorted(issues, key=lambda issue: list(_SEVERITY).index(issue["severity"])):
        groups.setdefault(issue["code"], []).append(issue)
    rows = []
    for code, group in groups.items():
        lines = [
            f"{'' if issue['rank'] < 0 else 'rank ' + str(issue['rank']) + ': '}"
            f"{issue['file'] or 'the run'} ×{issue['count']}"
            f"{': ' if issue['places'] else ''}{'; '.join(issue['places'])}"
            for issue in group[:_FILES]
        ]
        if len(group) > _FILES:
            lines.append(f"and {len(group) - _FILES} more (all in the JSON report)")
        severity = group[0]["severity"]
        rows.append(
            (Styled(severity, _SEVERITY[severity]), Styled(code, "code"),
             sum(issue["count"] for issue in group),
             Styled(group[0]["advice"], "words", more=lines))
        )  # fmt: skip
    return Table(("severity", "code", "count", "meaning and places"), rows)


def plain_table(
    rows: Sequence[Data], leave_out: Sequence[str] = (), keep: Sequence[str] = ()
) -> Table:
    """Rows as they are, a column per key that has values; keys that end in ``_ns`` are times.

    Args:
        keep: the keys, whether they have values or not.
    """
    filled = dict.fromkeys(key for row in rows for key, value in row.items() if value is not None)
    names = keep or [key for key in filled if key not in leave_out]
    units = {"_ns": "", "_gbs": ", GB/s", "_tflops": ", TFLOP/s", "_": " "}
    heads = [reduce(lambda head, unit: head.replace(*unit), units.items(), name) for name in names]
    return Table(heads, [[_cell(row.get(name), name) for name in names] for row in rows])


def _cell(value: Any, name: str) -> Cell:
    if value in (None, ""):
        return Styled(say.UNKNOWN)
    if name.endswith("_ns") and isinstance(value, int):
        return time(value)
    if name.endswith("_bytes"):
        return Styled(say.size(value), exact=f"{value} B")
    if isinstance(value, float):
        return Styled(say.digits(value) if not 0 < value < _LEAST else f"< {_LEAST}")
    if isinstance(value, int):
        return value
    if isinstance(value, Mapping):
        value = [f"{key} {item}" for key, item in value.items()]
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)

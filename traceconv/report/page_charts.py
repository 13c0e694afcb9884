"""The drawings of a page, from the sections of :mod:`traceconv.report.sections`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from traceconv.core.markup import Markup, el, join
from traceconv.report import figures as say
from traceconv.report.charts import LINES, Bar, Cell, Line, bars, cells, legend, lines

Section = Mapping[str, Any]

CLASSES = (
    ("pure_compute_ns", "k-compute", "computing"),
    ("overlapped_ns", "k-overlapped", "computing and communicating"),
    ("exposed_ns", "k-exposed", "exposed communication"),
    ("copy_ns", "k-copy", "memory copies (GPUs)"),
    ("idle_ns", "k-idle", "idle"),
)
"""The classes that add up to what is known of a step: key, colour, words."""

_UNCLASSIFIED = ("unclassified_ns", "k-unclassified", "tasks of unknown types")
"""A further class, of the ranks that have such tasks."""

INPUT_WAIT = "of it waiting for input"
"""Heading of the part of the idle time that waits for input."""

RANKS_DRAWN = 64
"""Beyond, the ranks that compute longest and shortest are drawn, and the mean of the rest."""

LINES_DRAWN = 6
"""With more ranks, step times are a band with its median, and the slowest and fastest rank."""

_FEWEST_STEPS = 3
_PARTS = (
    ("transit_ns", "k-compute", "transit"),
    ("wait_ns", "k-exposed", "wait"),
    ("idle_ns", "k-idle", "idle"),
)
_STAGE_PARTS = (
    ("forward_ns", "k-compute", "forward"),
    ("backward_ns", "k-overlapped", "backward"),
    ("pass_unknown_ns", "k-compute", "pass unknown"),
    ("bubble_ns", "k-exposed", "bubble"),
    ("rest_ns", "k-idle", "rest"),
)
_NUMBERED_CELLS = 80  # maps with fewer cells say their figures


def overlap(section: Section) -> Markup:
    """One bar per rank: how a step divides."""
    rows = section["rows"]
    shown = _condensed(rows)
    longest = max(row["known_ns"] for row in rows) or 1
    shown_classes = classes(rows)
    drawn = [
        Bar(
            row.get("name") or f"rank {row['rank']}",
            [
                (kind, row[key] / longest, f"{words}: {say.exact(row[key])} ({_of(row, key)})")
                for key, kind, words in shown_classes
            ],
            say.time(row["known_ns"]),
        )
        for row in shown
    ]
    return join([legend(*((kind, words) for _, kind, words in shown_classes)), bars(drawn)])


def classes(rows: Sequence[Section]) -> Sequence[tuple[str, str, str]]:
    """:data:`CLASSES`, with that of unclassified tasks where there are some."""
    some = any(_UNCLASSIFIED[0] in row for row in rows)
    return (*CLASSES[:-1], _UNCLASSIFIED, CLASSES[-1]) if some else CLASSES


def _of(row: Section, key: str) -> str:
    return say.percent(row[key], row["known_ns"])


def _condensed(rows: Sequence[Section]) -> Sequence[Section]:
    """At most :data:`RANKS_DRAWN` bars: both ends by computing, and those in between as one."""
    if len(rows) <= RANKS_DRAWN:
        return rows
    order = sorted(rows, key=lambda row: -(row["pure_compute_ns"] + row["overlapped_ns"]))
    end = RANKS_DRAWN // 4
    rest = order[end:-end]
    keys = [key for key, _, _ in classes(rows)] + ["known_ns"]
    mean = {key: sum(row[key] for row in rest) // len(rest) for key in keys}
    return [*order[:end], {"name": f"{len(rest)} others (mean)", **mean}, *order[-end:]]


def overlap_table(section: Section) -> Markup:
    """The same as figures."""
    shown = classes(section["rows"])
    head = ("rank", "steps", "known", *(words for _, _, words in shown), INPUT_WAIT)
    rows = [
        (row["rank"], row["steps"], say.exact(row["known_ns"]),
         *(f"{say.exact(row[key])} ({_of(row, key)})" for key, _, _ in shown),
         say.waiting(row))
        for row in section["rows"]
    ]  # fmt: skip
    return table(head, rows, right=range(1, len(head)))


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], right: Any = ()) -> Markup:
    """A table that scrolls sideways where it is too wide; ``right``: columns of figures."""
    sides = ["r" if i in right else None for i in range(len(head))]
    top = el("tr", [el("th", h, class_=s, scope="col") for h, s in zip(head, sides, strict=True)])
    body = [
        el("tr", [el("td", cell, class_=s) for cell, s in zip(row, sides, strict=True)])
        for row in rows
    ]
    return el("div", el("table", el("thead", top), el("tbody", body)), class_="scroll")


# -- steps --------------------------------------------------------------------------------


def steps(section: Section) -> Markup:
    """Step times: a line per rank, or a band over many; bars where steps are too few for lines."""
    rows = [row for row in section["rows"] if row["step"]]
    if max(len(row["step"]) for row in rows) < _FEWEST_STEPS:
        return _step_bars(rows)
    unit, scale = say.unit_for(max(max(row["dur_ns"]) for row in rows))
    numbers = sorted({step for row in rows for step in row["step"]})
    by_step: dict[int, list[tuple[int, int]]] = {step: [] for step in numbers}
    for row in rows:
        for step, dur in zip(row["step"], row["dur_ns"], strict=True):
            by_step[step].append((dur, row["rank"]))
    drawn, named = _each(rows) if len(rows) <= LINES_DRAWN else _band(rows, by_step)
    tips = [(step, _step_words(step, by_step[step])) for step in numbers[:400]]
    labels = (numbers, [str(step) for step in numbers])
    chart = lines(drawn, labels, (unit, scale), tips, "step", from_zero=False)
    return join([legend(*named), chart])


def _step_bars(rows: Sequence[Section]) -> Markup:
    every = [
        (dur, row["rank"], step)
        for row in rows
        for step, dur in zip(row["step"], row["dur_ns"], strict=True)
    ]
    kept = every
    if len(every) > RANKS_DRAWN:
        order = sorted(every, reverse=True)
        kept = [*order[: RANKS_DRAWN // 2], *order[-RANKS_DRAWN // 2 :]]
    longest = max(every)[0] or 1
    left = len(every) - len(kept)
    drawn = [
        Bar(
            f"rank {rank}, step {step}",
            [("k-compute", dur / longest, say.exact(dur))],
            say.time(dur),
        )
        for dur, rank, step in kept
    ]
    more = el("p", f"and {left} steps between the longest and the shortest", class_="note")
    return join([bars(drawn), more if left else None])


def _step_words(step: int, taken: Sequence[tuple[int, int]]) -> str:
    if len(taken) <= LINES_DRAWN:
        each = [f"rank {rank}: {say.time(dur)}" for dur, rank in sorted(taken, key=lambda t: t[1])]
        return f"step {step}\n" + "\n".join(each)
    (low, fast), (high, slow) = min(taken), max(taken)
    usual = say.time(median(dur for dur, _ in taken))
    return (
        f"step {step}\nmedian {usual}\nlongest {say.time(high)} (rank {slow})\n"
        f"shortest {say.time(low)} (rank {fast})"
    )


def _each(rows: Sequence[Section]) -> tuple[list[Line], list[tuple[str, str]]]:
    drawn = [Line(f"c{i % LINES}", row["step"], row["dur_ns"]) for i, row in enumerate(rows)]
    return drawn, [(f"c{i % LINES}", f"rank {row['rank']}") for i, row in enumerate(rows)]


def _band(
    rows: Sequence[Section], by_step: Mapping[int, Sequence[tuple[int, int]]]
) -> tuple[list[Line], list[tuple[str, str]]]:
    numbers = list(by_step)
    low = [min(by_step[s])[0] for s in numbers]
    high = [max(by_step[s])[0] for s in numbers]
    usual = [median(dur for dur, _ in by_step[s]) for s in numbers]
    order = sorted(rows, key=lambda row: sum(row["dur_ns"]) / len(row["dur_ns"]))
    slow, fast = order[-1], order[0]
    drawn = [
        Line("c7", numbers, low, high),
        Line("c0", numbers, usual),
        Line("c2", fast["step"], fast["dur_ns"]),
        Line("c1", slow["step"], slow["dur_ns"]),
    ]
    return drawn, [
        ("c1", f"rank {slow['rank']} (slowest)"), ("c0", f"median of {len(rows)} ranks"),
        ("c2", f"rank {fast['rank']} (fastest)"), ("band c7", "all ranks"),
    ]  # fmt: skip


# -- maps ---------------------------------------------------------------------------------


def heat(section: Section) -> Markup:
    """Rank by step: how far behind."""
    rows, numbers = section["rows"], section["steps"]
    most = max((v for row in rows for v in row["late_ns"] if v is not None), default=0) or 1
    each = section["steps_per_column"]
    word = "step" if each == 1 else f"{each} steps from"
    numbered = len(rows) * len(numbers) <= _NUMBERED_CELLS and len(numbers) <= 12
    grid = [
        [
            Cell(None, f"{say.ranks(row['ranks'])}, {word} {step}: not seen")
            if late is None
            else Cell(late / most, f"{say.ranks(row['ranks'])}, {word} {step}: {say.time(late)}",
                      say.time(late) if numbered else "")
            for step, late in zip(numbers, row["late_ns"], strict=True)
        ]
        for row in rows
    ]  # fmt: skip
    left = [say.ranks(row["ranks"]) for row in rows]
    chart = cells(grid, left, [str(step) for step in numbers], word, 96 if numbered else 64)
    return join([_scale(say.time(most)), chart])


def shape(section: Section) -> Markup:
    """Ranks at their coordinates, darker where they compute longer: stages as columns, other axes
    as rows; ranks with an unknown coordinate in one line.
    """
    known = [one for one in section["axes"] if one["source"] != "unknown"]
    axes = [one["name"] for one in known if one["name"] != "node" and one["size"] != 1]
    across = "pp" if "pp" in axes else axes[-1] if axes else ""
    down = [name for name in axes if name != across]
    placed = [row for row in section["rows"] if None not in [row[name] for name in axes]]
    while down and len({tuple(row[name] for name in down) for row in placed}) > RANKS_DRAWN:
        down.pop()  # the fastest: ranks of several coordinates share a cell
    at: dict[tuple[tuple[int, ...], int], list[Section]] = {}
    for row in placed if across else ():
        at.setdefault((tuple(row[name] for name in down), row[across]), []).append(row)
    left = sorted({place for place, _ in at})
    below = sorted({column for _, column in at})
    most = max((row["computing_ns"] or 0 for row in placed), default=0) or 1
    grid = [[_rank_cell(at.get((place, n), ()), axes, most) for n in below] for place in left]
    names = [" ".join(f"{a}{n}" for a, n in zip(down, place, strict=True)) for place in left]
    chart = cells(grid, names, [f"{across}{n}" for n in below], across, 96) if at else None
    parts = [el("p", section["text"], class_="words")]
    parts += [_scale(say.time(most)), chart] if chart is not None else []
    there = {row["rank"] for row in placed}
    if rest := [row["rank"] for row in section["rows"] if row["rank"] not in there]:
        why = [f"{one['name']}: {one['lacking']}" for one in section["axes"] if one["lacking"]]
        parts.append(el("p", f"unknown of {say.ranks(rest)}: {'; '.join(why)}", class_="missing"))
    return join(parts)


def stages(section: Section) -> Markup:
    """One bar per stage of the pipeline: what its step consists of."""
    rows = section["rows"]
    longest = max(row["step_ns"] for row in rows) or 1
    drawn = [
        Bar(
            f"stage {row['stage']}",
            [
                (kind, row[key] / longest, f"{words}: {say.exact(row[key])} ({_share(row, key)})")
                for key, kind, words in _STAGE_PARTS
                if row[key] is not None
            ],
            f"bubble {_share(row, 'bubble_ns')}",
            row["ranks"],
        )
        for row in rows
    ]
    there = [(kind, words) for key, kind, words in _STAGE_PARTS if any(row[key] for row in rows)]
    return join([legend(*there), bars(drawn)])


def _share(row: Section, key: str) -> str:
    return say.UNKNOWN if row[key] is None else say.percent(row[key], row["step_ns"])


def _rank_cell(rows: Sequence[Section], axes: Sequence[str], most: int) -> Cell:
    """One cell: the rank that computes longest decides its colour."""
    if not rows:
        return Cell(None, "no capture")
    known = [row["computing_ns"] for row in rows if row["computing_ns"] is not None]
    numbers = [row["rank"] for row in rows]
    places = " ".join(f"{name}{rows[0][name]}" for name in axes) if len(rows) == 1 else ""
    length = say.time(max(known)) if known else say.UNKNOWN
    words = f"{say.ranks(numbers)} {places}".rstrip() + f": computing {length}"
    return Cell(max(known) / most if known else None, words, _short(numbers))


def _scale(most: str) -> Markup:
    ramp = [el("i", class_=f"h{i}") for i in range(9)]
    return el("p", "0 ", el("span", ramp, class_="ramp"), f" {most}", class_="legend")


def links(section: Section) -> Markup:
    """A matrix per group: bytes from row to column."""
    return join([_matrix(group) for group in section["groups"]])


def _matrix(group: Section) -> Markup:
    known = {(c["source"], c["destination"]): c for c in group["cells"]}
    ranks = sorted({rank for pair in known for rank in pair})
    each = -(-len(ranks) // RANKS_DRAWN)
    bins = [ranks[i : i + each] for i in range(0, len(ranks), each)]
    sums: dict[tuple[int, int], list[Section]] = {}
    place = {rank: i for i, members in enumerate(bins) for rank in members}
    for (source, target), cell in known.items():
        sums.setdefault((place[source], place[target]), []).append(cell)
    most = max(_sum(each, "bytes") or 0 for each in sums.values()) or 1
    names = [_short(members) for members in bins]
    numbered = len(bins) <= 8
    grid = [
        [
            _link(sums.get((i, j)), f"{names[i]} to {names[j]}", most, numbered)
            for j in range(len(bins))
        ]
        for i in range(len(bins))
    ]
    name = group["group"] or "of all"
    title = el("h3", name if name.startswith("Group") else f"group {name}")
    chart = cells(grid, names, names, "to", 96 if numbered else 32)
    return join([title, _scale(say.size(most)), chart])


def _short(members: Sequence[int]) -> str:
    return str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}"


def _sum(each: Sequence[Section], key: str) -> int | None:
    """The sum; None if a part of it is not known."""
    known = [one[key] for one in each]
    return None if None in known else sum(known)


def _link(each: Sequence[Section] | None, pair: str, most: int, numbered: bool) -> Cell:
    if each is None:
        return Cell(None, "")
    n_bytes, ns = _sum(each, "bytes"), _sum(each, "time_ns")
    speed = f", {n_bytes / ns:.2f} GB/s" if n_bytes is not None and ns else ""
    over = ", ".join(sorted({name for one in each for name in one["transport"]}))
    size = say.UNKNOWN if n_bytes is None else say.size(n_bytes)
    length = say.UNKNOWN if ns is None else say.time(ns)
    words = f"{pair}: {size} in {length}{speed} ({over})"
    return Cell((n_bytes or 0) / most, words, size if numbered else "")


# -- bars ---------------------------------------------------------------------------------


def operators(section: Section) -> Markup:
    """The operators that take most, of all ranks."""
    longest = max(row["total_ns"] for row in section["rows"]) or 1
    drawn = [
        Bar(
            row["name"] or say.UNKNOWN,
            [("k-compute", row["total_ns"] / longest, _operator_words(row))],
            say.share(row["percent"]),
            f"{row['core'] or say.UNKNOWN} · {row['count']} × {say.time(row['avg_ns'])}",
        )
        for row in section["rows"]
    ]
    rest = section["others"]
    more = el("p", f"and {rest} more, {say.time(section['others_ns'])} together", class_="note")
    return join([bars(drawn, wide=True), more if rest else None])


def _operator_words(row: Section) -> str:
    return (
        f"{row['name'] or say.UNKNOWN}: {say.exact(row['total_ns'])} in {row['count']}; "
        f"most on rank {row['most_on_rank']}: {say.exact(row['most_ns'])}"
    )


def communication(section: Section) -> Markup:
    """Kinds of collectives, and how their time was spent where the profiler recorded it."""
    rows = section["rows"]
    longest = max(row["total_ns"] for row in rows) or 1
    known = {row.get("transit_ns") is not None for row in rows}
    drawn = [
        Bar(
            row["operation"] or say.UNKNOWN,
            _parts(row, longest),
            say.time(row["total_ns"]),
            f"{row['group'] or 'all'} · {row['count']} × {say.time(row['avg_ns'])}",
        )
        for row in rows
    ]
    named = [(kind, words) for _, kind, words in _PARTS] if True in known else []
    named += [("k-overlapped", "elapsed, not told apart")] if False in known else []
    return join([legend(*named), bars(drawn, wide=True)])


def _parts(row: Section, longest: int) -> list[tuple[str, float, str]]:
    if row.get("transit_ns") is None:
        return [("k-overlapped", row["total_ns"] / longest, say.exact(row["total_ns"]))]
    return [
        (kind, row[key] / longest, f"{words}: {say.exact(row[key])}")
        for key, kind, words in _PARTS
        if row.get(key) is not None
    ]


# -- curves -------------------------------------------------------------------------------


def curves(section: Section) -> Markup:
    """One drawing per measure of memory or queues."""
    return el("div", [_curve(one) for one in section["drawings"]], class_="multiples")


def _curve(one: Section) -> Markup:
    top = max(max(line["y"]) for line in one["lines"]) or 1
    drawn = [Line(f"c{i % LINES}", line["x"], line["y"]) for i, line in enumerate(one["lines"])]
    named = [
        (f"c{i % LINES}", f"rank {line['rank']}, highest {say.amount(max(line['y']), one['unit'])}")
        for i, line in enumerate(one["lines"])
    ]
    unit, scale = _size_unit(top) if one["unit"] == "B" else ("", 1)
    low = min(min(line["x"]) for line in one["lines"])
    high = max(max(line["x"]) for line in one["lines"])
    timed = one["axis"] == "time"
    ends = [low, high] if high > low else [low]
    labels = (ends, [say.time(x) if timed else f"{one['axis']} {x}" for x in ends])
    left = one["ranks"] - len(one["lines"])
    more = el("p", f"and {left} more ranks between these", class_="note") if left else None
    chart = lines(drawn, labels, (unit, scale))
    return el("figure", el("h3", one["title"]), legend(*named), chart, more)


def _size_unit(n_bytes: float) -> tuple[str, int]:
    units = (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10))
    return next(((name, n) for name, n in units if n_bytes >= n), ("B", 1))

"""Steps, their device windows, and what of them the overlap lanes cover."""

import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import floor, sqrt

from . import waiting
from .figures import JOB, UNKNOWN, mean, percent
from .intervals import Length, minus, total, union
from .stated import with_preparing

_TORCH_RECEIVES = re.compile(r"hcom_receive")
_MINDSPORE_TRANSFERS = re.compile(
    r"hcom_\w+SendRecv__\d+|hcom_send__\d+|hcom_receive__\d+|Receive-op|Send-op"
)
_LAUNCH = re.compile(r"launch|memcpy|memset", re.IGNORECASE)
"""Runtime calls that give the device work to do."""

_PASS = re.compile(
    r"execute_\w*context_|execute_new_|execute_diffusion_|step\[[A-Z]|(?:prefill|decode)\[bs="
)
"""How iterations of servers of models are called."""

LANES = (
    "computing", "communication", "not_overlapped", "free", "copying", "copy_not_overlapped",
    "unclassified",
)  # fmt: skip
"""The classes of the overlap lanes."""

KERNELS = ("compute", "unclassified")
"""The classes of tasks that an NPU's log of operators has."""

FIGURES = (*LANES, "known", "input_wait")
"""Those, how much was recorded, and the part of "free" that waits for input."""


@dataclass
class Step:
    """A step: as marked; its device rows and window; whether these were recorded.

    Attributes:
        period: number of the recording window it is in: numbers of steps may start over.
        window: start and end of the time its figures are measured in.
        work_start: where its device work begins.
        covered: whether its device work was recorded.
        stated: figures of the profiler's own table, where they are taken; else None.
        input_wait, pause: idle time within it that waits for input, and before it; None if unknown.
    """

    graph: int
    number: int
    name: str
    start: int
    end: int
    period: int = 1
    rows: list = field(default_factory=list)
    window: tuple = (0, 0)
    work_start: int = 0
    covered: bool = False
    stated: dict | None = None
    input_wait: int | None = None
    pause: int | None = None

    @property
    def source(self):
        """What its figures are from."""
        return "elsewhere" if self.stated or not self.covered else "timeline"

    @property
    def dur(self):
        return self.end - self.start

    @property
    def whole_range(self):
        """Whether nothing marks steps, and this is all there is."""
        return self.name == "Whole range"

    @property
    def key(self):
        """What names it in tables: graph, number, recording window."""
        return (self.graph if self.graph >= 0 else UNKNOWN, self.number, self.period)


class Steps:
    """The steps of a rank, and its overlap lanes."""

    def __init__(self, rank, fact):
        self.rank, self.fact = rank, fact
        marks = [r for r in rank.on("step") if r.cls == "iteration" and r.step >= 0]
        self.steps = [
            Step(row.graph, row.step, row.name, row.start, row.end)
            for row in sorted(marks, key=lambda row: row.start)
        ]
        self.work = [row for row in rank.rows if row.lane.layer in ("device", "comm")]
        self._set_periods()
        self._set_rows()
        self._set_windows()
        self._set_covered()
        self._set_lanes()
        self._set_stated()
        waiting.measure(self)
        waiting.pauses(self)

    def _set_periods(self):
        before = {}
        for step in self.steps:
            window = max(sum(start <= step.start for start, _ in self.rank.windows), 1)
            last, restarts = before.get(step.graph, (None, 0))
            restarts += last is not None and (window, step.number) <= last
            before[step.graph] = ((window, step.number), restarts)
            step.period = window + restarts

    def _set_rows(self):
        """Rows carry the number of their step; of several alike it is the last that had begun."""
        graphs = {step.graph for step in self.steps}
        by_number = defaultdict(list)
        for step in self.steps:
            by_number[step.graph, step.number].append(step)
        for row in self.work:
            at = (row.graph, row.step)
            if at not in by_number:
                at = (next(iter(graphs)) if len(graphs) == 1 else -1, row.step)
            alike = by_number.get(at, ())
            begun = [step for step in alike if step.start <= row.start]
            for step in (begun or alike)[-1:] if begun else alike[:1]:
                step.rows.append(row)

    def _set_windows(self):
        """Iterations of a graph are device time themselves; those of the host's steps tile time."""
        for step in self.steps:
            step.window, step.work_start = (step.start, step.end), step.start
        before = working = period = None
        for step in (step for step in self.steps if step.graph < 0):
            first = min((row.start for row in step.rows), default=step.start)
            start, end = step.start, max([step.end, *(row.end for row in step.rows)])
            if step.whole_range and step.rows:
                start, end = first, max(row.end for row in step.rows)
            own = first if step.rows else start
            if before is not None:
                start, end, first = max(start, before), max(end, before), max(first, working)
            if _PASS.match(step.name) and step.period != period:
                start = max(start, own)  # what the device did before is unknown
            step.window, step.work_start = (start, end), first
            before, working, period = end, first, step.period

    def _set_covered(self):
        """A step without device rows is covered if the device had nothing to do in it; none is
        whose computing was not recorded, or in part only."""
        calls = [r.start for r in self.rank.rows
                 if r.lane.layer == "runtime" and _LAUNCH.search(r.name)]  # fmt: skip
        first = min((row.start for row in self.work), default=None)
        last = max((row.end for row in self.work), default=None)
        spans = [(step.start, step.end) for step in self.steps]
        launched = {_holding(spans, at) for at in calls}
        computing = self._computing()
        for i, step in enumerate(self.steps):
            within = first is not None and step.window[1] > first and step.window[0] < last
            quiet = step.graph < 0 and within and i not in launched
            recorded = any(step.window[1] > a and step.window[0] < b for a, b in computing)
            step.covered = (bool(step.rows) or quiet) and recorded and not self.fact.partial
        for graph in {step.graph for step in self.steps}:
            self._set_cut([step for step in self.steps if step.graph == graph])

    def _computing(self):
        """Where computing would have been seen: of NPUs from the first operator to the last, in
        every window; of GPUs wherever there are kernels at all."""
        rows = [r for r in self.work if r.lane.layer == "device" and r.cls in KERNELS]
        if not self.fact.ascend:
            return [(-(2**62), 2**62)] if rows else []
        windows = defaultdict(list)
        for row in rows:
            windows[sum(start <= row.start for start, _ in self.rank.windows)].append(row)
        return [(min(r.start for r in w), max(r.end for r in w)) for w in windows.values()]

    @staticmethod
    def _set_cut(steps):
        """Steps beside one without device work in which the recording began or ended: they have
        fewer kernels than all others, or than half of the only other one."""
        count = [
            sum(r.lane.layer == "device" and r.cls in KERNELS for r in one.rows) * one.covered
            for one in steps
        ]
        covered = [True, *(one.covered for one in steps), True]
        for i, one in enumerate(steps):
            others = [n for j, n in enumerate(count) if n and j != i]
            least = min(others, default=0) / (2 if len(others) == 1 else 1)
            if 0 < count[i] < least and not (covered[i] and covered[i + 2]):
                one.covered = False

    def _set_stated(self):
        """Figures of the profiler's table, where device work was not recorded, or only as one."""
        for step in self.steps:
            if self.fact.tables_only or not step.covered:
                step.stated = self.fact.stated.figures(step.number)
        told = {step.number: step for step in self.steps if step.stated}
        ends = {n: step.start + step.stated["known"] for n, step in told.items()}
        for number, step in told.items():
            follows = number - 1 in told
            if follows and self.fact.tables_only:  # not where another collection window began
                gap = step.start - ends[number - 1]
                follows = gap <= max(step.stated["input_wait"] or 0, 0) + 1000
            step.stated = with_preparing(step.stated, follows)
            step.input_wait = step.stated["input_wait"]

    def _set_lanes(self):
        self.lanes = defaultdict(lambda: defaultdict(list))  # by device, by class
        for row in self.rank.on("overlap"):
            self.lanes[row.lane.group][row.cls.removesuffix("_alone")].append(row)
        self.sets = {
            device: {cls: union(_cover(rows)) for cls, rows in lanes.items()}
            for device, lanes in self.lanes.items()
        }
        self.recorded = self._known = {
            device: self._known_of(sets) for device, sets in self.sets.items()
        }
        self._recorded = {device: Length(known) for device, known in self.recorded.items()}
        self._lengths = {
            device: {cls: Length(cover) for cls, cover in sets.items()}
            for device, sets in self.sets.items()
        }

    def _known_of(self, sets):
        """What was recorded of a device: where Free was looked for, and covered steps; not where
        steps were marked whose device work was not recorded."""
        busy = ("computing", "communication", "unclassified")
        busy += () if self.fact.ascend else ("copying",)
        active = union(pair for cls in busy for pair in sets.get(cls, ()))
        inside = union(step.window for step in self.steps if step.covered)
        if self.rank.windows:
            inside = minus(inside, minus(inside, union(self.rank.windows)))
        known = union([*active, *sets.get("free", ()), *inside])
        return minus(known, self.unknown)

    @property
    def unknown(self):
        """Whatever is beside covered steps, where steps are that are not."""
        covered = union(step.window for step in self.steps if step.covered)
        dark = [s.window for s in self.steps if not s.covered and s.window[1] > s.window[0]]
        around = minus([(-(2**62), 2**62)], covered)
        beside = [gap for gap in around if any(a < gap[1] and b > gap[0] for a, b in dark)]
        return union([*beside, *self._paused()])

    def _paused(self):
        """Where CANN's profiler was off: nothing runs after a wait for a value."""
        rows = [
            row for row in self.rank.rows
            if row.slice and row.lane.layer in ("device", "comm")
            and row.name not in ("MEM_WRITE_VALUE", "CAPTURE_RECORD")
        ]  # fmt: skip
        rows.sort(key=lambda row: row.start)
        reach = -(2**62)
        for row, after in pairwise(rows):
            reach = max(reach, row.end)
            if row.name in ("MEM_WAIT_VALUE", "CAPTURE_WAIT") and after.start > reach:
                yield reach, after.start

    @cached_property
    def launch_windows(self):
        """Where the PyTorch profiler counts each step, by its start and key: from the first task of
        the first call within it that launches any, to the end of the last such call's tasks, if
        that is after the step. Where launches are unknown it is the device window."""
        windows = {(s.start, s.key): (s.work_start, s.window[1]) for s in self.steps}
        if not self.fact.ascend or self.fact.reader == "ascend_db":  # there of all tasks
            return windows
        arrows = [
            (call, task) for call, task, _ in self.rank.arrows
            if task.lane.layer in ("device", "comm")
        ]  # fmt: skip
        by_layer = (
            [(call, task) for call, task in arrows if call.lane.layer == layer]
            for layer in ("host", "runtime")
        )
        launches = next(filter(None, by_layer), [])
        launched = {id(task) for _, task in launches}
        unknown = {
            row.step for row in self.work
            if row.slice and row.cls in ("compute", "comm") and id(row) not in launched
        }  # fmt: skip
        for step in self.steps:
            inside = [
                (call.start, task) for call, task in launches
                if step.start <= call.start <= step.end
            ]  # fmt: skip
            if step.graph < 0 and not step.whole_range and step.number not in unknown and inside:
                first, last = min(at for at, _ in inside), max(at for at, _ in inside)
                start = min(task.start for at, task in inside if at == first)
                end = max(task.end for at, task in inside if at == last)
                windows[step.start, step.key] = (start, max(end, step.end))
        return windows

    @property
    def only_stated(self):
        """Whether the profiler's table, if there is one, is all that is shown of the steps."""
        unknown = all(self.figures(step)["known"] is None for step in self.steps)
        return (self.fact.tables_only or unknown) and bool(self.fact.stated.steps())

    @property
    def busy_classes(self):
        """Disjoint classes in which the device is not idle: on NPUs copies are idle time."""
        return (*LANES[0:3:2], LANES[6], *(() if self.fact.ascend else LANES[5:6]))

    def lengths(self, device, start, end):
        """Length by class of a device within a span, with "known"; "free" is what is left."""
        one = self._lengths[device]
        found = {cls: one[cls].within(start, end) if cls in one else 0 for cls in LANES}
        found["known"] = self._recorded[device].within(start, end)
        found["free"] = found["known"] - sum(found[cls] for cls in self.busy_classes)
        return found

    def figures(self, step):
        """Length by class within the window of a step, summed over devices; unknown where
        its device work was not recorded."""
        if step.stated:
            return step.stated
        if not step.covered or not self.sets:
            return dict.fromkeys(FIGURES, UNKNOWN)
        every = [self.lengths(device, *step.window) for device in self.sets]
        found = {cls: sum(one[cls] for one in every) for cls in FIGURES[:-1]}
        waits = step.input_wait
        return found | {"input_wait": None if waits is None else min(waits, found["free"])}

    def sums(self):
        """Of the whole rank: length by class, with "known"; "free" is what is left, "free lane" the
        length of that lane."""
        found = {
            cls: sum(total(minus(s.get(cls, []), self.unknown)) for s in self.sets.values())
            for cls in LANES
        }
        found |= {"known": sum(map(total, self.recorded.values())), "free lane": found["free"]}
        return found | {
            "free": found["known"] - sum(found[cls] for cls in self.busy_classes),
            "input_wait": self._waits(),
        }

    @property
    def devices(self):
        """How many these are sums of."""
        return max(len(self.sets), 1)

    def _waits(self):
        """Of the whole rank, if it is known of every step, and steps do not contain each other."""
        waits = [self.figures(step)["input_wait"] for step in self.steps]
        whole = waits and None not in waits and len({step.graph for step in self.steps}) == 1
        return sum(waits) if whole else None

    def measured(self):
        """Steps with known time, of the graph that takes most of the time."""
        known = [step for step in self.steps if (self.figures(step)["known"] or 0) > 0]
        return of_main_graph(known, lambda step: step.dur)


def _holding(spans, instant):
    """The last span that had begun at an instant, if it holds it; else None."""
    begun = [i for i, (start, _) in enumerate(spans) if start <= instant]
    return begun[-1] if begun and instant < spans[begun[-1]][1] else None


def of_main_graph(steps, length):
    """Of several graphs the one that takes most of the time, the first of equal ones."""
    took = defaultdict(int)
    for step in steps:
        took[step.graph] += length(step)
    if not took:
        return []
    most = max(took, key=lambda graph: took[graph])
    return [step for step in steps if step.graph == most]


def _cover(rows):
    return [(row.start, row.end) for row in rows]


# -- tables -------------------------------------------------------------------------------


def step(every):
    """Steps as marked, their device windows, and their parts as the source marks them."""
    found = []
    for rank, known in every.items():
        parts = {cls: _parts(known, cls) for cls in ("fp_bp", "tail", "interval")}
        bounds = _data_bounds(known, parts["interval"])
        for one in known.steps:
            if known.fact.partial:
                continue  # of the profiler's own table, if there is one
            at, (start, end) = id(one), one.window
            row = {
                "Start Time(ns)": one.start, "Duration(ns)": one.dur,
                "Device Time(ns)": end - start if one.source == "timeline" else UNKNOWN,
                "Device Start Time(ns)": start if one.source == "timeline" else UNKNOWN,
                "FP_BP Time(ns)": parts["fp_bp"].get(at),
                "Iteration Refresh(ns)": parts["tail"].get(at),
                "Data Aug Bound(ns)": bounds.get(at),
            }  # fmt: skip
            found.append(((rank, *one.key), row))
        beside = known.fact.stated.beside(known.steps)
        for number, figures in known.fact.stated.known():
            if number in beside:
                row = dict.fromkeys(found[-1][1]) | {"Device Time(ns)": figures["known"]}
                found.append(((rank, UNKNOWN, number, UNKNOWN), row))
    return found


def _data_bounds(known, pauses):
    """By graph and step: from the last end of an iteration, of whatever graph, to the forward pass,
    as the profiler counts it; else the pause that the source marks."""
    marks = [row for row in known.rank.on("step") if row.step >= 0]
    ends = sorted(row.end for row in marks if row.cls == "iteration")
    found = dict(pauses)
    for row in marks:
        if row.cls == "fp_bp" and (before := bisect_right(ends, row.start)):
            found[id(_step_of(known, row, row.start))] = row.start - ends[before - 1]
    return found


def _parts(known, cls):
    sums = defaultdict(int)
    for row in known.rank.rows:
        if row.cls == cls:
            time = row.end if cls == "interval" else row.start
            sums[id(_step_of(known, row, time))] += row.dur
    return sums


def _step_of(known, row, time):
    """The step whose number a row has; where numbers start over, the last that had begun."""
    alike = [s for s in known.steps if (s.graph, s.number) == (row.graph, row.step)]
    begun = [step for step in alike if step.start <= time]
    return (begun or alike[:1] or [None])[-1]


def step_summary(every):
    found, job = {}, defaultdict(list)
    for rank, known in every.items():
        graphs = defaultdict(list)
        for one in () if known.fact.partial else known.steps:
            graphs[one.key[0]].append(one.dur)
        for graph, lengths in graphs.items():
            found[rank, graph] = _spread(lengths)
            job[graph] += lengths
    if len({rank for rank, _ in found}) > 1:
        found |= {(JOB, graph): _spread(lengths) for graph, lengths in job.items()}
    return found


def _spread(lengths):
    n, whole = len(lengths), sum(lengths)
    if n == 1:
        figures = {"Count": 1} | dict.fromkeys(("Mean(ns)", "Min(ns)", "Max(ns)"), whole)
        return figures | {"Standard Deviation(ns)": None, "Spread(%)": None}
    deviation = sqrt(n * sum(one * one for one in lengths) - whole * whole) / n
    usual = mean(whole, n)
    return {
        "Count": n, "Mean(ns)": usual, "Standard Deviation(ns)": floor(deviation + 0.5),
        "Min(ns)": min(lengths), "Max(ns)": max(lengths), "Spread(%)": percent(deviation, usual),
    }  # fmt: skip


def overlap(every):
    """Per step and whole rank; then the means of the ranks that have figures of the step."""
    found = []
    for rank, known in every.items():
        if known.only_stated:
            found += [
                ((rank, UNKNOWN, number, UNKNOWN), "elsewhere", figures)
                for number, figures in known.fact.stated.known()
            ]
            continue
        rows = [((rank, *one.key), one.source, known.figures(one)) for one in known.steps]
        if not any(figures["known"] is not None for _, _, figures in rows):
            continue
        found += rows
        if known.sets:
            found.append(((rank, UNKNOWN, UNKNOWN, UNKNOWN), "timeline", known.sums()))
        beside = known.fact.stated.beside(known.steps)
        found += [
            ((rank, UNKNOWN, number, UNKNOWN), "elsewhere", figures)
            for number, figures in known.fact.stated.known() if number in beside
        ]  # fmt: skip
    job = []
    if len({key[0] for key, _, _ in found}) > 1:
        alike = defaultdict(list)
        for (_, *key), _, figures in found:
            if figures["known"] is not None:
                alike[tuple(key)].append(figures)
        job = [((JOB, *key), "elsewhere", _means(group)) for key, group in alike.items()]
    return [(key, _legends(figures, source)) for key, source, figures in [*found, *job]]


def _means(group):
    """Column by column, over the ranks of which it is known."""
    group = [_known(one) for one in group]
    known = {cls: [one[cls] for one in group if one[cls] is not None] for cls in FIGURES}
    return {cls: mean(sum(ns), len(ns)) if ns else UNKNOWN for cls, ns in known.items()}


def _known(figures):
    """Without what unclassified tasks leave open where nothing is known to compute."""
    if figures["unclassified"] and not figures["computing"]:
        return figures | dict.fromkeys(("computing", "communication", "not_overlapped"))
    return figures


def _legends(figures, source):
    compute, comm, alone, idle, copies, copies_alone, unclassified, known, waits = (
        _known(figures)[cls] for cls in FIGURES
    )
    source = {"Source": source}
    if known is None:
        return dict.fromkeys((*_LEGENDS, *_UNCLASSIFIED)) | source
    if unclassified is not None:
        shares = (unclassified, percent(unclassified, known))
        source |= dict(zip(_UNCLASSIFIED, shares, strict=True))
    hidden = pure = None
    shares = (UNKNOWN, UNKNOWN)
    if compute is not None:
        hidden, pure = comm - alone, compute - (comm - alone)
        shares = percent(compute, known), percent(alone, known)
    values = (
        compute, pure, hidden, alone, idle, known, copies, copies_alone,
        *shares, percent(idle, known),
        percent(known - idle, known), waits, UNKNOWN if waits is None else percent(waits, known),
    )  # fmt: skip
    return dict(zip(_LEGENDS, values, strict=True)) | source


_LEGENDS = (
    "Total Compute(ns)", "Pure Compute(ns)", "Communication Overlapped(ns)",
    "Communication Not Overlapped(ns)", "Idle(ns)", "Known(ns)", "Memory Copy(ns)",
    "Memory Copy Not Overlapped(ns)", "Compute(%)", "Exposed Communication(%)", "Idle(%)",
    "Utilization(%)", "Input Wait(ns)", "Input Wait(%)",
)  # fmt: skip
_UNCLASSIFIED = ("Unclassified(ns)", "Unclassified(%)")


# -- step_trace_time ----------------------------------------------------------------------


def step_trace_time(every):
    found = []
    for rank, known in every.items():
        if known.only_stated:
            found += [
                ((rank, UNKNOWN, number, UNKNOWN), row | {"Source": "elsewhere"})
                for number, rows in known.fact.stated.steps().items()
                for row in rows
            ]
            continue
        figures = [known.figures(one)["known"] for one in known.steps]
        if not known.fact.ascend or all(ns is None for ns in figures):
            continue
        for one in known.steps:
            count = _mindspore if known.fact.mindspore else _torch
            graph, number, period = one.key
            key = (rank, graph, UNKNOWN if one.whole_range else number, period)
            for device in sorted(known.lanes) or [""]:
                columns = count(known, one, device)
                if one.source != "timeline":
                    (columns,) = known.fact.stated.steps()[number] if one.stated else ({},)
                columns |= {"Device": _number(known, device), "Source": one.source}
                found.append((key, columns))
        for number in known.fact.stated.beside(known.steps):
            for row in known.fact.stated.steps()[number]:
                key = (rank, UNKNOWN, number, UNKNOWN)
                found.append((key, row | {"Source": "elsewhere"}))
    if len({key[0] for key, _ in found}) > 1:
        alike = defaultdict(list)
        for (_, *key), figures in found:
            alike[tuple(key)].append(figures)
        found += [
            (
                (JOB, *key),
                {name: _most(one.get(name) for one in group) for name in group[0]}
                | {"Device": UNKNOWN, "Source": "elsewhere"},
            )
            for key, group in alike.items()
        ]
    return found


def _number(known, device):
    """That of a device by the name on its lanes; of one that has none, as the rank is labelled."""
    match = re.search(r"\d+\Z", device)
    return int(match[0]) if match else known.rank.device if known.rank.device >= 0 else UNKNOWN


def _most(values):
    known = [value for value in values if value is not None and not isinstance(value, str)]
    return max(known, default=None)


def _begun(rows, start, end):
    return [row for row in rows if start <= row.start < end]


def _torch(known, step, device):
    start, end = known.launch_windows[step.start, step.key]
    at = list(known.launch_windows).index((step.start, step.key))
    before = [w for w in list(known.launch_windows.values())[:at] if w[1] > start]

    def begun(rows):
        return [
            row for row in _begun(rows, start, end)
            if not any(low <= row.start < high for low, high in before)
        ]  # fmt: skip

    lanes = {cls: begun(known.lanes[device][cls]) for cls in LANES[:4]}
    calls = [row for row in _exchanges(known, device) if row.cls == "comm"]
    bubble = [row for row in begun(calls) if _TORCH_RECEIVES.match(row.name)]
    every = [row for rows in lanes.values() for row in rows] + bubble
    sums = {cls: sum(row.dur for row in rows) for cls, rows in lanes.items()}
    waited = sum(row.dur for row in bubble)
    span = max(r.end for r in every) - min(r.start for r in every) if every else waited
    return _columns(known, step, lanes, sums, waited, span - waited if every else 0) | {
        "Communication(Not Overlapped and Exclude Receive)(ns)": max(
            sums["not_overlapped"] - waited, 0
        )
    }


def _mindspore(known, step, device):
    start, end = step.start, step.end + 1
    lanes = {cls: _begun(known.lanes[device][cls], start, end) for cls in LANES[:4]}
    calls = _begun(_exchanges(known, device), start, end)
    bubble = [row for row in calls if _MINDSPORE_TRANSFERS.match(row.name)]
    sums = {cls: sum(row.dur for row in rows) for cls, rows in lanes.items()}
    free = Length(known.sets.get(device, {}).get("free", []))
    sums["free"] = free.within(step.start, step.end)
    waited = sum(row.dur for row in bubble)
    stage = 0
    if calls:
        latest = max(row.start for row in calls)
        # of several that begin last, the first in the order of the trace
        stage = next(r.end for r in calls if r.start == latest) - min(r.start for r in calls)
        stage -= waited
    return _columns(known, step, lanes, sums, waited, stage) | {
        "Communication(Not Overlapped and Exclude Receive)(ns)": sums["not_overlapped"] - waited
    }


def _exchanges(known, device):
    """Communication rows of a device; those that name none are of each."""
    return [r for r in known.rank.rows if r.lane.layer == "comm" and _on(r, device)]


def _columns(known, step, lanes, sums, waited, stage):
    work = [row.start for cls in ("computing", "communication") for row in lanes[cls]]
    host = any(row.lane.layer in ("host", "runtime") for row in known.rank.rows)
    prepared = min(work) - step.start if work and host and not step.whole_range else UNKNOWN
    return {
        "Computing(ns)": sums["computing"],
        "Communication(Not Overlapped)(ns)": sums["not_overlapped"],
        "Overlapped(ns)": sums["communication"] - sums["not_overlapped"],
        "Communication(ns)": sums["communication"], "Free(ns)": sums["free"],
        "Stage(ns)": stage, "Bubble(ns)": waited, "Preparing(ns)": prepared,
    }  # fmt: skip


# -- the lanes themselves -------------------------------------------------------------------

_OUTSIDE_SPAN = {
    "KERNEL_AICORE", "KERNEL_AIVEC", "FFTS_PLUS", "KERNEL_MIX_AIC", "KERNEL_MIX_AIV",
    "PROFILING_ENABLE", "PROFILING_DISABLE",
}  # fmt: skip


def lanes_drawn(known):
    """The overlap lanes that device and communication rows make: {device: {class: set}}.

    K = compute tasks, M = whole communication operations, C = copies and fills. Free = what is none
    of these (on NPUs: neither of the first two), where the profiler was collecting: from the first
    to the last activity of each collection window, on GPUs also in all of each covered step; and
    not where steps were recorded whose device work was not. Of rows that are not all that ran the
    first two. Devices of a rank may have different rules of Free; the account does not say which
    device has which, so it has to be that of one of them.
    """
    rank, fact, found = known.rank, known.fact, {}
    drawn = (lane for lane in rank.lanes if lane.layer in ("device", "comm", "overlap"))
    devices = {lane.device for lane in drawn} - {""}
    for device in sorted(devices) if len(devices) > 1 else [""]:
        rows = [row for row in rank.rows if _on(row, device)]
        device_rows = [row for row in rows if row.lane.layer == "device"]
        sets = {
            "computing": union(_cover(r for r in device_rows if r.cls == "compute")),
            "communication": union(_cover(calls_of(rows))),
            "copying": union(_cover(r for r in device_rows if r.cls == "copy")),
        }
        work = ("computing", "communication") + (() if fact.ascend else ("copying",))
        classified = union(pair for cls in work for pair in sets[cls])
        rest = union(_cover(r for r in device_rows if r.cls == "unclassified"))
        sets["unclassified"] = minus(minus(rest, classified), known.unknown)
        active = classified if fact.ascend and classified else union([*classified, *rest])
        if active:
            alone = union([*sets["computing"], *sets["communication"]])
            if fact.partial:
                found[device] = sets
                continue
            free = [
                minus(_looked_in(known, active, device_rows, rule), active)
                for rule in fact.free_rule.split(" + ")
            ]
            shown = known.sets.get(device, {}).get("free", [])
            found[device] = {
                **sets,
                "not_overlapped": minus(
                    minus(sets["communication"], sets["computing"]), known.unknown
                ),
                "copy_not_overlapped": minus(minus(sets["copying"], alone), known.unknown),
                "free": shown if shown in free else free[0],
            }
    return found


def calls_of(rows):
    """Communication operations; where there are none, the collectives that the steps mark."""
    calls = [row for row in rows if row.cls == "comm"]
    return calls or [row for row in rows if row.cls == "reduce"]


def _on(row, device):
    return row.slice and (not device or row.lane.device in (device, ""))


def _looked_in(known, active, device_rows, rule):
    """Where idle time was looked for."""
    fact, windows = known.fact, known.rank.windows
    reach = active
    if rule == "device":
        others = [
            r for r in device_rows
            if r.cls != "compute" and r.name not in _OUTSIDE_SPAN
            and (fact.ascend or r.cls != "wait")
        ]  # fmt: skip
        reach = union([*active, *_cover(others)])
    spans = _hulls(reach, windows)
    covered = union(step.window for step in known.steps if step.covered)
    if not fact.ascend:
        inside = covered
        if windows:
            collected = union([*windows, *reach])
            inside = minus(covered, minus(covered, collected))
        spans = union([*spans, *inside])
    return minus(spans, known.unknown)


def _hulls(reach, windows):
    """From the first to the last activity of each window; what is in none is one of its own."""
    if not windows:
        return [(reach[0][0], reach[-1][1])]
    found = []
    for start, end in union([*windows, *reach]):
        inside = [pair for pair in reach if start <= pair[0] < end]
        if inside:
            found.append((inside[0][0], inside[-1][1]))
    return found

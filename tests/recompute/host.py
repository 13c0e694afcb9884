"""Tables of the host, and of what it launched: operators, calls, modules, phases, shapes."""

import heapq
import re
from bisect import bisect_right
from collections import defaultdict

from .device import kernels
from .figures import JOB, UNKNOWN, Timed, added, percent, variance_us2

NO_OPERATOR = re.compile(
    r"nn\.Module: |.*\(\d+\): |<built-in |<frozen |PyTorch Profiler|(?:En|De)queue(?:@|\Z)",
    re.DOTALL,
)
"""Host rows that are Python's own calls, or queues."""

_MODULE = "nn.Module: "
_PROJECTED = " (device projection)"
_PADDLE = {"Operator": "operator", "Forward": "module"}
_SHAPES = ("Input Dims", "input_shapes")
_CORE = ("Accelerator Core", "Task Type")
"""What names the core a task ran on; timelines alone name the type of its queue entry."""

UNNAMED = ""
KNOWN_BY = "operator known by"
"""An argument of kernels of a replayed graph whose operator or module is known."""


class Host:
    """The host rows of a rank, and its launches."""

    def __init__(self, rank, fact):
        self.rank, self.fact = rank, fact
        self._threads = {id(lane): lane.thread or id(lane) for lane in rank.lanes}
        self.calls = [row for row in rank.on("host") if row.step < 0]
        self._types = self._paddle_types() if fact.reader == "paddle" else None
        self.operators = self._named("operator", lambda name: not NO_OPERATOR.match(name))
        self.launched = self._launches()

    def _paddle_types(self):
        """The type that Paddle gives to the rows of one lane and name."""
        types = {}
        for row in self.rank.on("host"):
            said = text_of(row.args.get("type", ""))
            types.setdefault((row.lane.place, row.name), _PADDLE.get(said, said))
        return types

    def thread_of(self, row):
        """The thread of a row of the host."""
        return self._threads[id(row.lane)]

    def type_of(self, row):
        """What Paddle says a row is."""
        return self._types[row.lane.place, row.name]

    def _named(self, kind, fits):
        if self._types is not None:
            return [row for row in self.calls if self.type_of(row) == kind]
        return [row for row in self.calls if fits(row.name)]

    def modules(self):
        """Module calls of the host, and scope lanes of NPUs; projected ranges are no calls."""
        rows = self._named("module", lambda name: name.startswith(_MODULE))
        scopes = self.rank.on("scope") if not self.fact.gpu_ranges else ()
        return rows + [row for row in scopes if not row.lane.heading.endswith(_PROJECTED)]

    def _launches(self):
        """Device rows by the host row each was launched by; operators go before runtime calls."""
        source = {}
        for layer in ("runtime", "host"):
            for begin, end, _ in self.rank.arrows:
                target = end.lane.layer in ("device", "comm") and end.slice
                if target and begin.lane.layer == layer:
                    source[id(end)] = (end, begin)
        return [(end, self._threads[id(begin.lane)], begin) for end, begin in source.values()]

    def nested(self, rows):
        """The rows as a nest of calls, thread by thread."""
        threads = defaultdict(list)
        for row in rows:
            if row.dur > 0:
                threads[self._threads[id(row.lane)]].append(row)
        return Nest(threads, self.launched)


class Nest:
    """Slices of threads, each within the next larger one, and the device time they launched."""

    def __init__(self, threads, launched):
        self.rows, self.parent, self._by_thread = [], {}, {}
        self.own = defaultdict(int)
        self.spent = defaultdict(int if launched else lambda: UNKNOWN)
        for thread, rows in threads.items():
            self._by_thread[thread] = self._stacked(sorted(rows, key=lambda r: (r.start, -r.end)))
        for row, thread, call in launched:
            holder = self.innermost(thread, call.start)
            while holder is not None:
                self.spent[id(holder)] += row.dur
                holder = self.parent[id(holder)]

    def _stacked(self, rows):
        stack = []
        for row in rows:
            while stack and stack[-1].end <= row.start:
                stack.pop()
            outer = stack[-1] if stack else None
            self.parent[id(row)] = outer
            stack.append(row)
        self._innermost(rows)
        self.rows += rows
        return [row.start for row in rows], rows

    def _innermost(self, rows):
        """Give each moment of the thread to the slice that was opened last and is still open."""
        began, ends, moment = [], sorted(row.end for row in rows), None
        for instant, row in heapq.merge(
            ((end, None) for end in ends), ((r.start, r) for r in rows), key=lambda pair: pair[0]
        ):
            while began and began[-1].end <= (moment or 0):
                began.pop()
            if began and moment is not None:
                self.own[id(began[-1])] += instant - moment
            moment = instant
            if row is not None:
                began.append(row)

    def innermost(self, thread, instant):
        """The innermost slice of a thread that is open at an instant, or None."""
        starts, rows = self._by_thread.get(thread, ((), ()))
        at = bisect_right(starts, instant) - 1
        row = rows[at] if at >= 0 else None
        while row is not None and row.end <= instant:
            row = self.parent[id(row)]
        return row

    def self_ns(self, row):
        """How long a slice is the innermost one that is open."""
        return self.own[id(row)]


def text_of(value):
    """An argument as text; lists as JSON without white space."""
    if isinstance(value, (list, dict)):
        import json

        return json.dumps(value, separators=(",", ":"), default=float, ensure_ascii=False)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)


# -- operators ----------------------------------------------------------------------------


def types(ranks, hosts):
    """Compute tasks by the type of their operator, and the core type."""
    timed = Timed()
    for rank in ranks.values():
        kinds = typed(rank, hosts[rank.number])
        for row in kernels(rank, "compute"):
            timed.add(rank.number, kinds[id(row)], row.dur)
    return timed.figures(("OP Type", "Core Type"))


def typed(rank, host):
    """(operator type, core type) of every compute row, by id."""
    rows = kernels(rank, "compute")
    if host.fact.ascend:
        stated = host.fact.stated.types()
        return {id(row): (_ascend_type(row, stated), _said(row, *_CORE)) for row in rows}
    nest, found = host.nested(host.operators), {}
    for row, thread, call in host.launched:
        holder = nest.innermost(thread, call.start)
        if holder is not None and holder.name:
            found[id(row)] = holder.name
    replayed = {id(row): _said(row, "operator") for row in rows if KNOWN_BY in row.args}
    return {
        id(row): (
            replayed.get(id(row)) or found.get(id(row)) or _said(row, "hlo_category"),
            row.lane.device_kind,
        )
        for row in rows
    }


def _ascend_type(row, stated):
    """Its argument; of MindSpore before 2.4, "type", or by full name that of a table."""
    name = text_of(row.args.get("fullname", ""))
    if not name or row.args.get("Op Type"):
        return _said(row, "Op Type")
    said = text_of(row.args.get("type", ""))
    return said or stated.get(name) or stated.get(name.rpartition("/")[2]) or UNNAMED


def _said(row, *keys):
    """The first of some arguments that a row has."""
    return next((text for key in keys if (text := text_of(row.args.get(key, "")))), UNNAMED)


def ops(ranks, hosts):
    """Operators of the device of an Ascend rank, and the framework's own on the host."""
    timed = Timed()
    for rank in ranks.values():
        host = hosts[rank.number]
        if host.fact.ascend:
            for row in kernels(rank, "compute"):
                key = (row.name, _said(row, *_CORE))
                timed.add(rank.number, key, row.dur, own=row.dur, spent=row.dur)
        nest = host.nested(host.operators)
        for row in nest.rows:
            own, spent = nest.self_ns(row), nest.spent[id(row)]
            timed.add(rank.number, (row.name, "Host CPU"), row.dur, own=own, spent=spent)
    return timed.figures(
        ("Operator", "Core Type"), lambda key: key[1],
        own="Self Time(ns)", spent="Device Time(ns)",
    )  # fmt: skip


def modules(ranks, hosts):
    timed = Timed()
    for rank in ranks.values():
        host = hosts[rank.number]
        nest = host.nested(host.modules())
        for row in nest.rows:
            key = (row.name.removeprefix(_MODULE),)
            timed.add(rank.number, key, row.dur, spent=nest.spent[id(row)])
    return timed.figures(("Module",), spent="Device Time(ns)")


def api(ranks):
    timed = Timed()
    for rank in ranks.values():
        for row in rank.on("runtime"):
            level = text_of(row.args.get("level", "")) or row.lane.heading
            timed.add(rank.number, (level, row.name.rpartition("@")[2]), row.dur)
    found = timed.figures(("Level", "API Name"))
    pooled = defaultdict(list)
    for keys in timed.durations.values():
        for key, durations in keys.items():
            pooled[key] += durations
    for (rank, *key), row in found.items():
        durations = pooled if rank is JOB else timed.durations[rank]
        row["Variance"] = variance_us2(durations[tuple(key)])
        for ours in ("Total Time", "Avg Time", "Min Time", "Max Time"):
            row[ours.removeprefix("Total ").removesuffix(" Time") + "(ns)"] = row.pop(f"{ours}(ns)")
    return found


_FLOPS = {
    "FLOPs": ("FLOPs",), "FLOPS": ("FLOPS",),
    "Utilization(%)": ("FLOPS utilization", "FLOPS_Utilization"),
    "Cube FLOPs": ("MFLOPs(10^6 cube)",), "Cube FLOPS": ("GFLOPS(10^9 cube)",),
    "Cube Utilization(%)": ("FLOPS utilization(cube)",),
    "Vector FLOPs": ("MFLOPs(10^6 vector)",), "Vector FLOPS": ("GFLOPS(10^9 vector)",),
    "Vector Utilization(%)": ("FLOPS utilization(vec)",),
}  # fmt: skip


def flops(facts):
    """As the profiler wrote them."""
    return [
        ((rank, operator), {
            heading: next((float(row[name]) for name in names if name in row), None)
            for heading, names in _FLOPS.items()
        })
        for rank, fact in facts.items() for operator, row in fact.stated.operators()
    ]  # fmt: skip


# -- phases -------------------------------------------------------------------------------

_PHASES = {
    "Dataloader": r"enumerate\(DataLoader\).*|.*DataLoader.*__next__|dataloader",
    "Forward": r"(?:\S*\.)?(?:forward|fwd)|## forward ##",
    "Backward": r"(?:\S*\.)?(?:backward|bwd)|## backward ##|Gradient Backward"
    r"|autograd::engine::evaluate_function: .*",
    "Optimization": r"Optimizer\.step#.*|optimizer|Optimization Step",
}


def phases(ranks, hosts):
    """Steps, the outermost ranges of each phase, and what these leave of the steps."""
    timed, rest = Timed(), defaultdict(int)
    for rank in ranks.values():
        host = hosts[rank.number]
        steps = [row for row in rank.on("step") if row.cls == "iteration"]
        phase = {id(row): _phase(host, row) for row in host.calls}
        nest = host.nested([row for row in host.calls if phase[id(row)]])
        marked = [row for row in host.calls if phase[id(row)]]
        if not marked or not steps:
            continue
        spent = _spent(rank, nest, phase)
        parts = {"Step": steps, **_outermost(nest, phase)}
        for name, rows in parts.items():
            for i, row in enumerate(rows):
                timed.add(rank.number, (name,), row.dur, spent=0 if i else spent[name])
        for part in ("host", "device"):
            values = {
                name: sum(row.dur for row in rows) if part == "host" else spent[name]
                for name, rows in parts.items()
            }
            known = UNKNOWN not in values.values()
            left = max(2 * values["Step"] - sum(values.values()), 0) if known else UNKNOWN
            rest[rank.number, part] = left
        timed.add(rank.number, ("Others",), rest[rank.number, "host"],
                  spent=rest[rank.number, "device"])  # fmt: skip
    return _of_step(timed.figures(("Phase",), spent="Device Time(ns)"))


def _phase(host, row):
    if host.fact.reader == "paddle":
        kind = host.type_of(row)
        kind = "Forward" if kind == "module" else kind
        return kind if kind in _PHASES else ""
    fits = (
        name
        for name, pattern in _PHASES.items()
        if re.fullmatch(pattern, row.name, re.IGNORECASE | re.DOTALL)
    )
    return next(fits, "")


def _spent(rank, nest, phase):
    """Device time by phase, and of the steps."""
    spent = defaultdict(int)
    for row in nest.rows:
        if nest.parent[id(row)] is None:
            kind = phase[id(row)]
            spent[kind] = added(spent[kind], nest.spent[id(row)])
    work = [row for row in rank.rows if row.lane.layer in ("device", "comm")]
    of_steps = (row.dur for row in work if row.step >= 0 and row.cls in ("compute", "comm", "copy"))
    spent["Step"] = sum(of_steps) if work else UNKNOWN
    return spent


def _outermost(nest, phase):
    """Rows of each phase that no other range of its phase holds, on whatever thread."""
    outer = [row for row in nest.rows if nest.parent[id(row)] is None]
    found = {name: _alone(r for r in outer if phase[id(r)] == name) for name in _PHASES}
    return {name: rows for name, rows in found.items() if rows}


def outermost_phases(host):
    """The same of every slice of the host, within whatever range of another phase."""
    called = defaultdict(list)
    for row in host.rank.on("host"):
        called[_phase(host, row)].append(row)
    return {name: _alone(called[name]) for name in _PHASES if called[name]}


def _alone(rows):
    reached, kept = None, []
    for row in sorted(rows, key=lambda row: (row.start, -row.end)):
        if reached is None or row.end > reached:
            kept.append(row)
            reached = row.end
    return kept


def _of_step(found):
    for (rank, name), row in found.items():
        step = found[rank, "Step"]
        row["Ratio(%)"] = percent(row["Total Time(ns)"], step["Total Time(ns)"])
        row["Device Ratio(%)"] = percent(row["Device Time(ns)"], step["Device Time(ns)"])
        if name == "Others":
            row |= dict.fromkeys(("Count", "Min Time(ns)", "Avg Time(ns)", "Max Time(ns)"), None)
    return found


# -- shapes -------------------------------------------------------------------------------


def shapes(ranks, hosts, every):
    """By step, type and the text of the input shapes."""
    timed = Timed()
    for rank in ranks.values():
        host, steps = hosts[rank.number], every[rank.number].steps
        for row, kind, shape in _shaped(rank, host):
            number = row.step if row.step >= 0 else _step_at(steps, row.start)
            timed.add(rank.number, (number, kind, shape), row.dur)
    found = timed.figures(("Step", "OP Type", "Input Shapes"))
    for row in found.values():
        del row["Ratio(%)"]
    return found


def _shaped(rank, host):
    rows, kinds = kernels(rank, "compute"), {}
    if host.fact.ascend and rows:
        kinds = typed(rank, host)
        keys = ("Input Shapes",)
    else:
        rows, keys = host.operators, _SHAPES
    for row in rows:
        said = (text_of(row.args[key]) for key in keys if key in row.args)
        shape = next((one for one in said if one), "")
        if shape:
            yield row, kinds[id(row)][0] if kinds else row.name, shape


def _step_at(steps, instant):
    """The step that begins last before an instant, if it lasts until then; None if none."""
    begun = [step for step in steps if step.start <= instant]
    return begun[-1].number if begun and instant < begun[-1].end else None

"""Idle intervals of devices with their causes, and the queues of streams."""

import re
from bisect import bisect_left
from collections import defaultdict
from itertools import chain

from . import waiting
from .figures import UNKNOWN, Timed
from .intervals import Length, common, minus, union
from .steps import calls_of

_KEPT, _FULL = 1000, 1024
_SYNCHRONISES = re.compile(
    r"((cuda|hip|cu|rt)(Device|Stream|Event|Ctx)Synchronize(WithTimeout)?"
    r"|(AscendCL@)?aclrtSynchronize(Device|Stream|Event)(WithTimeout)?"
    r"|(cuda|hip)Memcpy(2D|3D|ToSymbol|FromSymbol)?)(_v\d+|_ptsz|_ptds)*(\[.*)?",
    re.DOTALL,
)
_COLLECTS = re.compile(r"(python )?gc( .*)?|gc\.collect|<built-in function collect>", re.IGNORECASE)


def _gaps(known, host):
    """(step, device, start, end, cause, row that ends it) of every device."""
    steps = [step for step in known.measured() if step.source == "timeline"]
    if not steps or known.fact.partial:
        return
    inside = union(step.window for step in steps)
    calls = {id(row): call.start for row, _, call in host.launched}
    filled = _filled(known)
    for (group, recorded), busy in zip(
        known.recorded.items(), waiting.busy_sets(known), strict=True
    ):
        rows = _work(known, group)
        starts = [row.start for row in rows]
        copying = Length(known.sets[group].get("copying", []) if known.fact.ascend else [])
        number = re.search(r"\d+", rows[0].lane.device) if rows else None
        for start, end in common(minus(recorded, busy), inside):
            at = bisect_left(starts, end - 1)  # the profiler's own lanes may be 1 ns before it
            row = rows[at] if at < len(rows) else None
            step = next((s for s in reversed(steps) if s.window[0] <= start), steps[0])
            cause = _cause(start, end, calls.get(id(row)), filled, copying)
            yield step.number, number and int(number[0]), start, end, cause, row


def _work(known, device):
    """Work of a device by start; at equal starts kernels first, then collectives and copies."""
    rows = [
        r for r in known.rank.rows if r.slice and r.lane.device in (device or r.lane.device, "")
    ]
    tasks = {
        cls: [row for row in rows if row.cls == cls and row.lane.layer == "device"]
        for cls in ("compute", "copy", "unclassified")
    }
    ordered = (tasks["compute"], calls_of(rows), tasks["copy"], tasks["unclassified"])
    return sorted(chain.from_iterable(ordered), key=lambda row: row.start)


def _filled(known):
    """When threads that launch work synchronise, collect garbage, and wait for input."""
    rank = known.rank
    threads = waiting.leading(rank)
    rows = [
        row for row in rank.on("host", "runtime") if waiting.thread(row.lane) in threads
    ] if threads else rank.on("host", "runtime")  # fmt: skip
    layers = ("runtime",), ("host", "runtime")
    spans = (
        union((r.start, r.end) for r in rows if r.lane.layer in on and called.fullmatch(r.name))
        for on, called in zip(layers, (_SYNCHRONISES, _COLLECTS), strict=True)
    )
    return [Length(one) for one in (*spans, waiting.spans(known))]


def _cause(start, end, launched, filled, copying):
    synchronising, collecting, fetching = filled
    if 2 * fetching.within(start, end) > end - start:
        return "input"
    if 2 * collecting.within(start, end) > end - start:
        return "garbage collection"
    if launched is None:
        return "unknown"
    if launched >= start:
        return "synchronisation" if synchronising.within(start, start + 1) else "late launch"
    return "copy" if 2 * copying.within(start, end) > end - start else "dependency"


def tables(every, hosts):
    """The tables idle, idle_step and idle_gap."""
    by_cause, by_step, listed = Timed(), Timed(), []
    for rank, known in every.items():
        gaps = list(_gaps(known, hosts[rank]))
        for step, _, start, end, cause, _ in gaps:
            number = step if step >= 0 else UNKNOWN
            by_cause.add(rank, (cause,), end - start)
            by_step.add(rank, (number, cause), end - start)
        gaps.sort(key=lambda gap: gap[2] - gap[3])
        for step, device, start, end, cause, row in gaps[:_KEPT]:
            key = (rank, step if step >= 0 else UNKNOWN, device, start)
            figures = {"Length(ns)": end - start, "Cause": cause, "Before": row.name if row else ""}
            listed.append((key, figures))
    causes = by_cause.figures(("Cause",))
    return causes, by_step.figures(("Step", "Cause"), lambda key: key[:1]), listed


def queues(ranks):
    """How many tasks of each stream were launched and have not started, over time."""
    found = {}
    for rank in ranks.values():
        launched = {}
        for call, task, _ in rank.arrows:
            if (
                call.lane.layer == "runtime"
                and task.lane.layer in ("device", "comm")
                and task.slice
            ):
                launched.setdefault(id(task), (task, call))
        streams, names = defaultdict(list), {}
        for lane in rank.lanes:
            names.setdefault(_stream(lane), lane)
        for task, call in launched.values():
            streams[_stream(task.lane)].append((min(call.start, task.start), task.start))
        for key, tasks in streams.items():
            lane = names[key]
            changes = sorted([(at, 0, 1) for at, _ in tasks] + [(at, 1, -1) for _, at in tasks])
            length, most, area, full, before = 0, 0, 0, 0, changes[0][0]
            for at, _, change in changes:
                if at > before:
                    most = max(most, length)
                    area += length * (at - before)
                    full += (at - before) * (length >= _FULL)
                length, before = length + change, at
            number = re.search(r"\d+", lane.device)
            found.setdefault((rank.number, number and int(number[0]), lane.name), []).append({
                "Launches": len(tasks), "Max Length": most,
                "Mean Length": area / max(changes[-1][0] - changes[0][0], 1), "Full Time(ns)": full,
            })  # fmt: skip
    return [(key, row) for key, rows in found.items() for row in rows]


def _stream(lane):
    return (lane.device, lane.stream) if lane.stream >= 0 else (id(lane),)

"""Figures of the rules about the host and about gaps between kernels, from rows."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict

from . import waiting
from .device import kernels
from .figures import percent
from .intervals import Length, common, minus, total, union
from .losses import length as time_text

_CUDA = ("cuda", "hip", "cu", "rt")
_WAITING = {
    *(f"{of}{what}Synchronize{end}" for of in _CUDA for what in ("Device", "Stream", "Event", "Ctx")
      for end in ("", "WithTimeout")),
    *(f"{of}Memcpy{how}" for of in ("cuda", "hip") for how in ("", "2D", "3D", "ToSymbol",
                                                             "FromSymbol")),
    *(f"aclrtSynchronize{what}{end}" for what in ("Device", "Stream", "Event")
      for end in ("", "WithTimeout")),
}  # fmt: skip
_MEMORY = ("Malloc", "Free", "HostAlloc", "HostMalloc", "HostFree", "HostRegister",
           "HostUnregister")  # fmt: skip
_DRIVER = ("Alloc", "Free", "Create", "Release", "Map", "Unmap", "AddressReserve", "AddressFree",
           "SetAccess")  # fmt: skip
_ALLOCATING = tuple(
    [f"{of}{what}" for of in ("cuda", "hip") for what in _MEMORY]
    + [f"cuMem{what}" for what in _DRIVER]
    + [f"{of}{what}" for of in ("aclrt", "acl", "rt") for what in ("Malloc", "Free")]
)
_SHORT, _CLOSE, _PAUSE = 10_000, 100_000, 1_000_000
_LONGEST, _OFTEN = 8, 10


def _plain(name):
    """A call without its layer, the version of its symbol, and what follows in brackets."""
    name = name.partition("[")[0].removeprefix("AscendCL@")
    return re.sub(r"(_v\d+|_ptsz|_ptds)+$", "", name)


def waits_for_device(name):
    return _plain(name) in _WAITING


def allocates(name):
    head = name.partition("[")[0].removeprefix("AscendCL@")
    return any(head.startswith(one) and re.fullmatch(r"\w*", head) for one in _ALLOCATING)


def collects(name):
    low = name.lower().removeprefix("python ")
    return low == "gc" or low.startswith("gc ") or name.lower() in (
        "gc.collect", "<built-in function collect>",
    )  # fmt: skip


def compiles(name):
    name = name.removeprefix("AscendCL@")
    if name.startswith("aclopCompile") and re.fullmatch(r"\w+", name):
        return True
    if name.removesuffix(" (dynamo_timed)").endswith("_compile.compile_inner"):
        return True
    match = re.fullmatch(r"(?:.*/)?torch/(\w+/\w+)\.py\(\d+\): (\w+)", name)
    return bool(match) and match.groups() in (
        ("_dynamo/convert_frame", "_compile"), ("_dynamo/convert_frame", "compile_inner"),
        ("_inductor/compile_fx", "compile_fx"), ("_inductor/compile_fx", "compile_fx_inner"),
    )  # fmt: skip


def rules(rank, host, known):
    """(rule, where, figures) of one rank."""
    steps = known.measured()
    if not steps:
        return
    launching = _launching(rank)
    for rule, fits, layers in (
        ("allocation", allocates, ("runtime",)),
        ("garbage-collection", collects, ("host", "runtime")),
        ("compilation", compiles, ("runtime", "host")),
        ("host-sync", waits_for_device, ("runtime",)),
    ):
        rows = [row for row in rank.on(*layers) if fits(row.name) and launching(row.lane)]
        if not any(row.lane.layer == layers[0] for row in rank.rows):
            continue
        if rule == "garbage-collection" and not rows:
            continue
        if rule in ("allocation", "compilation") and any(step.whole_range for step in steps):
            continue
        figures = _calls(rows, steps)
        if rule != "host-sync":
            value = percent(figures["saves"] * len(steps), _known_ns(known, steps))
            yield rule, "", figures | {"value": value}
        elif not known.fact.partial and len(known.sets) == 1 and figures["calls_per_step"]:
            yield rule, "", figures | _behind(rows, known, steps, len(host.launched))
    if not known.fact.partial and len(known.sets) == 1:
        yield from _late(rank, host, known, steps)
        yield from _pauses(rank, host, known, steps)
        yield from _off_cpu(rank, known, steps, launching)
        yield from _sequence(rank, known, steps)


def _launching(rank):
    """Whether a lane is of a thread that gives the device work, or marks steps."""
    threads = {
        (begin.lane.group, begin.lane.name) for begin, end, _ in rank.arrows
        if begin.lane.layer in ("host", "runtime") and end.lane.layer in ("device", "comm")
    }  # fmt: skip
    if not threads:
        return lambda lane: True
    threads |= {(r.lane.group, r.lane.name) for r in rank.rows if r.lane.layer == "host"
                and r.step >= 0}  # fmt: skip
    return lambda lane: (lane.group, lane.name) in threads


def _longest(rows):
    return sorted((row.dur for row in rows), reverse=True)[:3]


def _calls(rows, steps):
    taken = Length(union((row.start, row.end) for row in rows))
    ns = [taken.within(step.start, step.end) for step in steps]
    begun = sorted(row.start for row in rows)
    count = sum(bisect_left(begun, step.end) - bisect_left(begun, step.start) for step in steps)
    marks = union((step.start, step.end) for step in steps)
    within = [row for row in rows if any(a <= row.start <= b for a, b in marks)]
    return {
        "calls_per_step": count / len(steps), "per_step_ns": round(sum(ns) / len(ns)),
        "longest_ns": max((row.dur for row in within), default=0), "steps": len(steps),
        "saves": sum(ns) / len(ns), "slices": _longest(within),
    }  # fmt: skip


def idle(known, steps):
    """When the only device of a rank is idle within steps and nobody waits for input."""
    spans = union(step.window for step in steps)
    [busy], [recorded] = waiting.busy_sets(known), known.recorded.values()
    return minus(minus(common(recorded, spans), busy), waiting.spans(known))


def _known_ns(known, steps):
    return sum(known.figures(step)["known"] for step in steps)


def _behind(rows, known, steps, launches):
    calls = union((row.start, row.end) for row in rows)
    starts = [start for start, _ in calls]

    def in_call(instant):
        at = bisect_right(starts, instant) - 1
        return at >= 0 and instant <= calls[at][1]

    behind = total([gap for gap in idle(known, steps) if in_call(gap[0])])
    found = {"idle_behind_them_ns": round(behind / len(steps))}
    value = percent(behind, _known_ns(known, steps))
    if launches:
        marks = union((step.start, step.end) for step in steps)
        only = [row for row in rows if "Memcpy" not in row.name]
        only = [row for row in only if any(a <= row.start <= b for a, b in marks)]
        ratio = 100 * len(only) / launches
        found["per_launch_percent"] = ratio
        value = ratio if ratio > 50 else value
    return found | {"value": value}


# -- gaps ---------------------------------------------------------------------------------


def _late(rank, host, known, steps):
    """Exposed communication before the start of a kernel that was called for only meanwhile, though
    the collective goes on, so that the kernel does not need it."""
    collectives = sorted(kernels(rank, "comm"), key=lambda row: row.start)
    if not collectives or not host.launched:
        return
    spans = union(step.window for step in steps)
    [sets], [recorded] = known.sets.values(), known.recorded.values()
    exposed = minus(sets.get("communication", []), sets.get("computing", []))
    exposed = common(common(exposed, recorded), spans)
    copies = [row for row in kernels(rank, "copy") if row.lane.layer == "device"]
    ended = sorted(row.end for row in [*collectives, *copies])
    called = defaultdict(list)
    for row, _, call in host.launched:
        if row.cls == "compute" and row.lane.layer == "device":
            called[row.start].append(call.start)
    waits = []
    for start, end in exposed:
        if end not in called or not any(row.start < end < row.end for row in collectives):
            continue
        at = bisect_right(ended, end) - 1
        begin = max(start, ended[at]) if at >= 0 else start
        if begin < min(called[end]) < end:
            waits.append((begin, end))
    yield "late-overlap", "", {
        "value": percent(total(waits), _known_ns(known, steps)), "waits": len(waits),
        "longest_ns": max((end - start for start, end in waits), default=0),
        "per_step_ns": round(total(waits) / len(steps)), "steps": len(steps),
        "saves": total(waits) / len(steps),
    }  # fmt: skip


def _pauses(rank, host, known, steps):
    """Idle time while no recorded call of the host runs for a millisecond and more."""
    work = kernels(rank, "compute")
    nest = host.nested(host.operators)
    within = {
        id(row) for row, thread, call in host.launched
        if nest.innermost(thread, call.start) is not None
    }  # fmt: skip
    marks = any(lane.heading.startswith("rocTX") for lane in rank.lanes)
    ranges = marks or host.fact.reader == "nsight"
    if not work or ranges or any(step.whole_range for step in steps):
        return
    if sum(id(row) in within for row in work) < 0.9 * len(work):
        return
    rows = [r for r in rank.on("host", "runtime") if r.lane.layer == "runtime" or r.step < 0]
    nest = host.nested(rows)
    outer = {id(parent) for parent in nest.parent.values() if parent is not None}
    calls = union((row.start, row.end) for row in nest.rows if id(row) not in outer)
    edges, starts = {}, [start for start, _ in rank.windows]
    for row in rank.rows:
        if row.lane.layer == "host":
            at = bisect_right(starts, row.start)
            first, last = edges.get(at, (row.start, row.end))
            edges[at] = (min(first, row.start), max(last, row.end))
    pauses = [one for one in minus(union(edges.values()), calls) if one[1] - one[0] >= _PAUSE]
    lost = [common(idle(known, steps), [pause]) for pause in pauses]
    ns = sum(map(total, lost))
    if nest.rows and 50 * len(pauses) <= len(work):
        yield "host-pause", "", {
            "value": percent(ns, _known_ns(known, steps)), "pauses": sum(map(bool, lost)),
            "longest_ns": max((end - start for start, end in pauses), default=0),
            "per_step_ns": round(ns / len(steps)), "steps": len(steps), "saves": ns / len(steps),
        }  # fmt: skip


def _off_cpu(rank, known, steps, launching):
    """Idle time while a launching thread is off the CPU and in no recorded call that may block."""
    mine = [row for row in rank.rows if row.slice and launching(row.lane)]
    off = [row for row in mine if row.lane.heading == "CPU Scheduling"]
    if not off or not any(lane.heading == "OS Runtime" and launching(lane) for lane in rank.lanes):
        return
    calls = [
        row for row in mine
        if row.lane.layer == "runtime" or row.lane.heading in ("OS Runtime", "MPI", "NVTX MPI")
    ]  # fmt: skip
    away = minus(
        union((row.start, row.end) for row in off), union((row.start, row.end) for row in calls)
    )
    free = common(idle(known, steps), away)
    lost, whole, ran, said = total(free), _whole(off), _in_its_place(rank, off, free), {}
    taken = total(union(piece for _, pieces in ran or () for piece in pieces))
    if whole or taken:
        said["while_another_process_ran_there_percent"] = percent(taken, lost)
    if not whole:
        said["other_processes"] = "not recorded" if ran is None else "not all recorded"
    marks = union((step.start, step.end) for step in steps)
    within = [row for row in off if any(a <= row.start <= b for a, b in marks)]
    moved = [row for row in within if row.args["from CPU"] != row.args["to CPU"]]
    yield "off-cpu", "", {
        "value": percent(lost, _known_ns(known, steps)), "saves": lost / len(steps),
        "switches_per_step": len(within) / len(steps), "steps": len(steps),
        "moved_to_another_cpu_per_step": len(moved) / len(steps),
        "per_step_ns": round(lost / len(steps)), **said,
    }  # fmt: skip
    if ran is not None and (whole or taken):
        yield "foreign-process", "", _foreign(known, steps, ran, taken)


def _in_its_place(rank, off, free):
    """(run, the idle time that is its) of processes on a CPU that a thread lost or came back to;
    None where no other process was recorded."""
    lanes = {lane for lane in rank.lanes if lane.heading == "Other Processes"}
    if not lanes and not _whole(off):
        return None
    found = []
    for run in rank.rows:
        if run.lane in lanes and run.slice:
            ends = ("from CPU", "to CPU")
            here = [row for row in off if run.lane.name in {f"CPU {row.args[end]}" for end in ends}]
            away = common(free, union((row.start, row.end) for row in here))
            if taken := common(away, union([(run.start, run.end)])):
                found.append((run, taken))
    return found


def _whole(off):
    """Whether all processes of the machine were recorded: slices then say how long others ran."""
    return all("other processes on from CPU (ns)" in row.args for row in off)


def _foreign(known, steps, ran, taken):
    of = defaultdict(int)
    for run, pieces in ran:
        of[run.name] += total(pieces)
    most = sorted(of.items(), key=lambda one: (-one[1], one[0]))[:5]
    return {
        "value": percent(taken, _known_ns(known, steps)), "saves": taken / len(steps),
        "processes": len(of), "runs_per_step": len(ran) / len(steps), "steps": len(steps),
        "most_per_step": [f"{name} {time_text(ns / len(steps))}" for name, ns in most],
        "per_step_ns": round(taken / len(steps)), "slices": _longest([run for run, _ in ran]),
    }  # fmt: skip


def _sequence(rank, known, steps):
    """Every sequence of up to eight short kernels of a stream, tried one by one."""
    if known.fact.tables_only:
        return
    spans = union(step.window for step in steps)
    gaps = {end: start for start, end in idle(known, steps)}
    streams = defaultdict(list)
    for row in sorted(kernels(rank, "compute"), key=lambda row: row.start):
        if any(start <= row.start <= end for start, end in spans):
            streams[id(row.lane)].append(row)
    best = (0, "", 0)
    for rows in streams.values():
        follows, gap = [False] * len(rows), [0] * len(rows)
        for at in range(1, len(rows)):
            last, row = rows[at - 1], rows[at]
            close = 0 <= row.start - last.end <= _CLOSE
            follows[at] = close and max(last.dur, row.dur) < _SHORT
            if follows[at] and gaps.get(row.start) == last.end:
                gap[at] = row.start - last.end
        for length in range(2, _LONGEST + 1):
            places = defaultdict(list)
            for at in range(len(rows) - length + 1):
                if all(follows[at + 1 : at + length]):
                    names = tuple(row.name for row in rows[at : at + length])
                    if not places[names] or at - places[names][-1] >= length:
                        places[names].append(at)
            for at in places.values():
                lost = sum(sum(gap[one + 1 : one + length]) for one in at)
                if len(at) >= _OFTEN and lost > best[0]:
                    best = (lost, rows[at[0]].lane.name, len(at))
    lost, where, count = best
    if streams:
        yield "kernel-sequence", where, {
            "value": percent(lost, _known_ns(known, steps)), "count": count, "steps": len(steps),
            "per_step_ns": round(lost / len(steps)), "saves": lost / len(steps),
            **({"between_ns": round(lost / count)} if count else {}),
        }  # fmt: skip

"""Tables of the device: kernels, copies, how busy; and of memory."""

import re
from collections import defaultdict
from math import floor

from .figures import JOB, UNKNOWN, Timed, mean, percent
from .intervals import Length, total, union
from .steps import LANES

_NUMBERED = re.compile(r"__\d+(?:_\d+)*\Z")
_DEVICE = re.compile(r"(?:NPU|GPU|TPU|CPU) (\d+)")
_BYTES = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
_STAGES = {
    "iteration": "Step", "interval": "Data Preparation", "fp_bp": "Forward and Backward",
    "reduce": "Reduce", "tail": "Tail",
}  # fmt: skip


def kind_of(name):
    """A communication operation without HCCL's running numbers."""
    return _NUMBERED.sub("", name)


def kernels(rank, *classes):
    """Slices on the device of these classes; whole communication operations wherever they are."""
    return [
        row for row in rank.rows
        if row.slice and row.cls in classes and (row.lane.layer == "device" or row.cls == "comm")
    ]  # fmt: skip


def kernel(ranks, facts):
    timed = Timed()
    for rank in ranks.values():
        for row in kernels(rank, "compute"):
            timed.add(rank.number, (row.name, "compute"), row.dur)
        for row in kernels(rank, "comm"):
            timed.add(rank.number, (kind_of(row.name), "communication"), row.dur)
        for row in kernels(rank, "unclassified"):
            timed.add(rank.number, (row.name, "unclassified"), row.dur)
    return timed.figures(("Kernel", "Kind"))


def copy(ranks, facts):
    timed = Timed()
    for rank in ranks.values():
        for row in kernels(rank, "copy"):
            sizes = (number(row.args.get(key)) for key in ("bytes", "size", "size(Byte)"))
            timed.add(rank.number, (row.name,), row.dur, size=max(0, *sizes))
    found = timed.figures(("Copy",), size="Bytes")
    for row in found.values():
        sized = row["Bytes"] > 0
        speed = row["Bytes"] / row["Total Time(ns)"] if row["Total Time(ns)"] else None
        row |= {"Bytes": row["Bytes"] if sized else None,
                "Bandwidth(GB/s)": speed if sized else None}  # fmt: skip
    return found


def number(value):
    """A whole number of an argument, 0 where it is none."""
    text = str(value) if isinstance(value, str) or type(value) is int else ""
    plain = text.removeprefix("-")
    return int(text) if plain.isascii() and plain.isdigit() and len(text) < 19 else 0


def launch(ranks):
    """Kernels by name with the runtime call that an arrow comes from, the first of several."""
    timed = Timed()
    for rank in ranks.values():
        launched = {id(row) for row in kernels(rank, "compute", "unclassified")}
        for call, row, _ in rank.arrows:
            if call.slice and call.lane.layer == "runtime" and id(row) in launched:
                launched.remove(id(row))
                timed.add(
                    rank.number, (row.name,), row.dur, call=call.dur,
                    queue=max(row.start - call.end, 0), short=int(call.dur > row.dur),
                )  # fmt: skip
    found = timed.figures(("Kernel",), call="call", queue="queue", short="short")
    for row in found.values():
        n = row["Count"]
        row |= {"API Avg Time(ns)": mean(row["call"], n), "Queue Avg Time(ns)":
                mean(row["queue"], n), "Launch Bound(%)": percent(row["short"], n)}  # fmt: skip
    return found


def device(every):
    """How busy each device is, in the windows of the measured steps; from its overlap lanes."""
    found = {}
    for rank, known in every.items():
        steps = known.measured()
        elapsed = total(union((step.start, step.end) for step in steps))
        spans = union(step.window for step in steps if step.source == "timeline")
        told = [step.stated for step in steps if step.stated] if len(known.sets) == 1 else []
        for group in known.sets if steps else ():
            match = _DEVICE.search(group)
            stated = known.rank.device if known.rank.device >= 0 else UNKNOWN
            at = int(match[1]) if match else stated
            parts = [_lengths(known, group, span) for span in spans]
            sums = {cls: sum(one[cls] for one in parts) for cls in (*LANES, "known")}
            for cls in sums:
                sums[cls] += sum(one[cls] or 0 for one in told)
            busy = sum(sums[cls] for cls in known.busy_classes)
            found[rank, at] = {
                "Steps Time(ns)": elapsed,
                "Kernel Time(ns)": sums["computing"] + sums["not_overlapped"],
                "Communication Time(ns)": sums["communication"],
                "Copy Time(ns)": sums["copying"],
                "Unclassified Time(ns)": sums["unclassified"], "Idle(ns)": sums["known"] - busy,
                "Known(ns)": sums["known"], "Utilization(%)": percent(busy, sums["known"]),
            }  # fmt: skip
    if not any(row["Unclassified Time(ns)"] for row in found.values()):
        for row in found.values():
            del row["Unclassified Time(ns)"]
    return found


def _lengths(known, device, span):
    """As of a step; where collection windows are known, what they and the lanes cover is."""
    found = known.lengths(device, *span)
    lanes = union(pair for cover in known.sets[device].values() for pair in cover)
    recorded = union([*known.rank.windows, *lanes]) if known.rank.windows else [span]
    return found | {"known": Length(recorded).within(*span)}


def stage(ranks, facts):
    timed = Timed()
    for rank in ranks.values():
        for row in () if facts[rank.number].partial else rank.on("step"):
            if row.cls in _STAGES:
                timed.add(rank.number, (_STAGES[row.cls],), row.dur)
    found = timed.figures(("Stage",))
    for (rank, _), row in found.items():
        whole = found.get((rank, "Step"), {}).get("Total Time(ns)", 0)
        if row["Stage"] == "Data Preparation" and whole:  # is before the step, no part of it
            whole += row["Total Time(ns)"]
        row["Ratio(%)"] = percent(row["Total Time(ns)"], whole)
    return found


# -- memory -------------------------------------------------------------------------------


def curves(rank):
    """Samples of bytes by lane: component, measure and (instant, bytes)."""
    found = defaultdict(list)
    for lane, at, value in rank.samples:
        if lane.unit in _BYTES:
            found[lane].append((at, value * _BYTES[lane.unit]))
    return [(lane.group or lane.heading, lane.name, rows) for lane, rows in found.items()]


def memory(ranks, facts):
    """Peaks; the capacity of a device is not written."""
    found, most = [], {}
    for rank in ranks.values():
        for component, measure, samples in curves(rank):
            sizes = [size for _, size in samples]
            peak = max(sizes)
            row = {
                "Component": component, "Measure": measure, "Count": len(sizes),
                "Min(B)": whole(min(sizes)), "Mean(B)": whole(sum(sizes) / len(sizes)),
                "Peak(B)": whole(peak), "Last(B)": whole(sizes[-1]),
                "Peak Timestamp(ns)": next(at for at, size in samples if size == peak),
            }  # fmt: skip
            found.append(((rank.number, component, measure), row))
            best = most.get((component, measure))
            if best is None or row["Peak(B)"] > best["Peak(B)"]:
                most[component, measure] = row
    several = len({key[0] for key, _ in found}) > 1
    return found + [((JOB, *key), row) for key, row in most.items() if several]


def whole(value):
    """Rounded half up."""
    return floor(value + 0.5)


def memory_curve(ranks, facts):
    return [
        ((rank.number, component, measure, at), {"Size(B)": whole(size)})
        for rank in ranks.values()
        for component, measure, samples in curves(rank)
        for at, size in samples
    ]

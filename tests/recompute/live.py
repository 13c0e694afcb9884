"""What memory holds at its peak, from records of allocations and releases; memory by step."""

import csv
from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal

from .device import curves, whole
from .figures import UNKNOWN, mean, percent
from .host import outermost_phases
from .stack import call_paths

_BEFORE, _UNUSED = "(before the recording)", "(reserved, not allocated)"
_TYPES = {0: "CPU", 1: "GPU", 6: "GPU", 12: "XPU", 15: "HPU", 19: "MTIA", 20: "NPU"}
_FOREVER = float("inf")


def _kineto(row, size):
    args = row.args
    kind, number = _TYPES.get(args["Device Type"], args["Device Type"]), args["Device Id"]
    device = f"{kind} {number}" if number >= 0 and kind != "CPU" else kind
    return (device, args.get("Addr"), size, args.get("Total Allocated"),
            args.get("Total Reserved"))  # fmt: skip


def _paddle(row, size):
    args = row.args
    return (args["place"], args.get("addr"), size, args.get("current_allocated"),
            args.get("current_reserved"))  # fmt: skip


def _snapshot(row, size):
    size = size if row.name == "alloc" else -size
    return row.lane.group or "GPU 0", row.args.get("addr"), size, None, None


_KINDS = (
    (("[memory]",), "Bytes", _kineto), (("Allocate", "Free"), "increase_bytes", _paddle),
    (("alloc", "free_requested"), "size", _snapshot),
)  # fmt: skip


def _recorded(host, by_path=False):
    """(device, operator, module, size, begin, end, allocated, reserved) of every block; the call
    path in place of the operator."""
    rows = sorted((r for r in host.rank.rows if not r.slice and r.lane.layer == "host"),
                  key=lambda row: row.start)  # fmt: skip
    called = _path_at(host) if by_path else _innermost_at(host)
    for names, key, read in _KINDS:
        open_, found = {}, []
        for row in rows:
            size = row.args.get(key) if row.name in names else None
            if type(size) is not int:
                continue
            device, address, size, *totals = read(row, size)
            if address is None:
                continue
            if size <= 0:
                begun = open_.pop((device, address), None)
                if begun is None:
                    found.append([device, "", "", -size, -_FOREVER, row.start, None, None])
                else:
                    begun[5] = row.start
                continue
            if read is _snapshot:
                frames = row.args.get("frames") or [""]
                path = ";".join(frame.replace(";", ":") for frame in reversed(frames))
                named = (path if by_path else frames[0], "")
            else:
                named = called(host.thread_of(row), row.start)
            block = [device, *named, size, row.start, _FOREVER, *totals]
            lost = open_.get((device, address))
            if lost is not None:
                lost[5] = row.start
            open_[device, address] = block
            found.append(block)
        if found:
            return found
    return []


def _innermost_at(host):
    nests = host.nested(host.operators), host.nested(host.modules())

    def called(thread, instant):
        around = [nest.innermost(thread, instant) for nest in nests]
        return [one.name.removeprefix("nn.Module: ") if one else "" for one in around]

    return called


def _path_at(host):
    nest, of = call_paths(host)

    def called(thread, instant):
        holder = nest.innermost(thread, instant)
        stack, names, _ = of(holder) if holder else ((), (), "")
        return ";".join((*stack, *names)), ""

    return called


def _stated(stated):
    """The same from the table of Ascend's adapter."""
    for text in stated.table("operator_memory"):
        for row in csv.DictReader(text.splitlines()):
            row = {name: value.strip() for name, value in row.items() if value}
            allocator = "GE" if row["Name"].startswith("cann::") else "PTA"
            times = [row.get(f"{when} Time(us)") for when in ("Allocation", "Release")]
            totals = [row.get(f"Allocation Total {of}(MB)") for of in ("Allocated", "Reserved")]
            yield [
                f"{row['Device Type'].replace(':', ' ')} {allocator}", row["Name"], "",
                _whole(row["Size(KB)"], 1024),
                _whole(times[0], 1000) if times[0] else -_FOREVER,
                _whole(times[1], 1000) if times[1] else _FOREVER,
                *(one and _whole(one, 1 << 20) for one in totals),
            ]  # fmt: skip


def _whole(text, scale):
    return int((Decimal(text) * scale).quantize(1, ROUND_HALF_UP))


def live(hosts):
    """Blocks at the peak of each device, by operator and module."""
    found = {}
    for rank, host in hosts.items():
        if host.fact.stated.in_databases("operator_memory"):
            continue
        blocks = list(_stated(host.fact.stated)) or _recorded(host)
        for device, own in _by_device(blocks, host).items():
            for (operator, module), row in _alive(own, _peak(own)):
                found[rank, device, operator, module] = row
    return found


def paths(hosts):
    """The same by the path of the calls; of records alone."""
    found = {}
    for rank, host in hosts.items():
        for device, own in _by_device(_recorded(host, by_path=True), host).items():
            for (path, _), row in _alive(own, _peak(own)):
                found[rank, device, path] = row
    return found


def failed(hosts):
    """Blocks at each record of an allocation that found no memory."""
    found = {}
    for rank, host in hosts.items():
        records = [r for r in host.rank.rows if not r.slice and r.name in ("oom", "[OutOfMemory]")]
        own = _by_device(_recorded(host), host) if records else {}
        for record in records:
            args, totals = record.args, None
            device, requested = record.lane.group or "GPU 0", args.get("size")
            if record.name != "oom":
                requested = args["Bytes"]
                device, *_, allocated, reserved = _kineto(record, requested)
                totals = allocated, reserved
            for (operator, module), row in _alive(own.get(device, []), record.start, totals):
                found[rank, row.pop("Peak Timestamp(ns)"), device, operator, module] = row | {
                    "Requested(B)": requested, "Device Free(B)": args.get("device free"),
                }  # fmt: skip
    return found


def _by_device(blocks, host):
    by_device = defaultdict(list)
    for device, *block in blocks:
        by_device[device].append(_bounded(block, host.rank.windows))
    return by_device


def _bounded(block, windows):
    """A block whose begin or end is not recorded does not live in another window; and whether its
    begin is."""
    operator, module, size, begin, end, *totals = block
    recorded = begin > -_FOREVER
    at = sum(start <= (begin if recorded else end) for start, _ in windows) - 1
    if not recorded and at > 0:
        begin = windows[at - 1][1]
    if end == _FOREVER and 0 <= at < len(windows) - 1:
        end = windows[at + 1][0]
    return [operator, module, size, begin, end, *totals, recorded]


def _peak(blocks):
    edges = defaultdict(lambda: [0, 0])
    for _, _, size, begin, end, *_ in blocks:
        edges[begin][1] += size
        edges[end][0] += size
    held, most, peak = 0, None, None
    for at in sorted(edges):
        less, more = edges[at]
        held += more - less
        if most is None or held > most:
            most, peak = held, at
    return peak


def _alive(blocks, peak, totals=None):
    """Blocks that live at an instant, and the ``totals`` that the record states."""
    alive = [b for b in blocks if b[3] <= peak < b[4]]
    begun = [b for b in alive if b[-1]]
    rows = defaultdict(list)
    for operator, module, size, *_ in begun:
        rows[operator, module].append(size)
    last = [b for b in blocks if b[3] == peak and b[-1]]
    allocated, reserved = totals or (last[-1][5:7] if last else (None, None))
    known = sum(b[2] for b in begun)
    before = sum(b[2] for b in alive) - known if allocated is None else allocated - known
    unused = 0 if None in (allocated, reserved) else reserved - allocated
    whole_ = known + max(before, 0)
    when = {"Peak Timestamp(ns)": peak if peak > -_FOREVER else UNKNOWN}
    for key, sizes in rows.items():
        total = sum(sizes)
        yield key, {"Blocks": len(sizes), "Bytes": total, "Ratio(%)": percent(total, whole_),
                    "Largest(B)": max(sizes), **when}  # fmt: skip
    for name, total in ((_BEFORE, before), (_UNUSED, unused)):
        if total > 0:
            yield (name, ""), {"Blocks": UNKNOWN, "Bytes": total,
                               "Ratio(%)": percent(total, whole_), "Largest(B)": UNKNOWN,
                               **when}  # fmt: skip


def by_step(ranks, every):
    """Of each series: before a step, at most during it, and at its end."""
    for rank in ranks.values():
        for component, measure, samples in curves(rank):
            for step in every[rank.number].measured():
                row = _within(samples, step.start, step.end)
                if row:
                    number = step.number if step.number >= 0 else UNKNOWN
                    yield (rank.number, number, component, measure), row


def _within(samples, start, end):
    before = [size for at, size in samples if at <= start]
    inside = [size for at, size in samples if start < at < end]
    if not inside:
        return {}
    first = whole(before[-1]) if before else None
    last = whole(inside[-1])
    return {
        "First(B)": first, "Peak(B)": whole(max([*before[-1:], *inside])), "Last(B)": last,
        "Growth(B)": None if first is None else last - first,
    }  # fmt: skip


def by_phase(hosts):
    """Of each series and phase, over outermost ranges that begin with a known value."""
    for rank, host in hosts.items():
        for phase, ranges in outermost_phases(host).items():
            sums = defaultdict(list)
            for component, measure, samples in curves(host.rank):
                for row in ranges:
                    figures = _within(samples, row.start, row.end)
                    if figures and figures["First(B)"] is not None:
                        sums[component, measure].append(figures)
            for series, rows in sums.items():
                yield (
                    (rank, phase, *series),
                    {
                        "Count": len(rows),
                        "First(B)": mean(sum(row["First(B)"] for row in rows), len(rows)),
                        "Peak(B)": max(row["Peak(B)"] for row in rows),
                        "Growth(B)": mean(sum(row["Growth(B)"] for row in rows), len(rows)),
                    },
                )

"""Tables of communication: operations, their parts, traffic between ranks."""

import re
from bisect import bisect_right
from collections import defaultdict

from .device import kernels, kind_of, number
from .figures import JOB, PARTS, Timed, percent
from .host import text_of

_WAITS = re.compile(r"Notify[_ ]Wait")
_TRANSITS = re.compile(r"Memcpy|Reduce_Inline|Reduce_TBE|RDMA_?Send|SDMA")
_NOBODY = 0xFFFFFFFF


class Operation:
    """A whole communication operation, and its tasks on planes."""

    def __init__(self, row):
        self.row, self.tasks = row, []
        self.group = row.lane.group or row.lane.name

    def parts(self):
        """Transit, wait, synchronization and idle, ns, on the first plane on which it waits."""
        waiting = [task for task in self.tasks if _WAITS.fullmatch(task.name)]
        if not waiting:
            return dict.fromkeys(PARTS)
        plane = min(task.lane.place for task in waiting)
        mine = [task for task in self.tasks if task.lane.place == plane]
        waits = [task for task in mine if _WAITS.fullmatch(task.name)]
        moves = [task for task in mine if _TRANSITS.fullmatch(task.name)]
        first = min((task.start for task in moves), default=None)
        early = [task for task in waits if first is None or task.start < first]
        sums = [sum(task.dur for task in rows) for rows in (moves, waits, early)]
        return dict(zip(PARTS, (*sums, self.row.dur - sums[0] - sums[1]), strict=True))


def stated(found, rank, fact):
    """The operations of the profiler's table, if it has any and the timeline holds no tasks."""
    tasks = any(row.cls == "comm_task" and row.slice for row in rank.rows)
    return (not tasks and fact.stated.operations()) or found


def operations(rank):
    """Those of a rank, each with the tasks of its group that begin within it."""
    groups = defaultdict(list)
    for row in kernels(rank, "comm"):
        groups[row.lane.group].append(Operation(row))
    for group in groups.values():
        group.sort(key=lambda one: one.row.start)
    starts = {key: [one.row.start for one in group] for key, group in groups.items()}
    for task in rank.rows:
        group = task.lane.group
        if task.cls == "comm_task" and task.slice and group in groups:
            at = bisect_right(starts[group], task.start) - 1
            if at >= 0 and task.start < groups[group][at].row.end:
                groups[group][at].tasks.append(task)
    return [one for group in groups.values() for one in group]


def comm_op(every):
    found = []
    for rank, ones in every.items():
        for one in ones:
            row, parts = one.row, one.parts()
            transit, wait, early = (parts[name] or 0 for name in PARTS[:3])
            found.append((
                (rank, row.step if row.step >= 0 else None, one.group, row.name, row.start),
                {
                    "Elapse Time(ns)": row.dur, **parts,
                    "Wait Time Ratio(%)": percent(wait, wait + transit),
                    "Synchronization Time Ratio(%)": percent(early, early + transit),
                },
            ))  # fmt: skip
    return found


def comm(every):
    timed, parts = Timed(), defaultdict(list)
    for rank, ones in every.items():
        for one in ones:
            key = (one.group, kind_of(one.row.name))
            timed.add(rank, key, one.row.dur)
            for at in (rank, JOB):
                parts[at, key].append(one.parts())
    found = timed.figures(("Group", "Operation"))
    for (rank, *key), row in found.items():
        each = parts[rank, tuple(key)]
        known = all(one[PARTS[0]] is not None for one in each)
        row |= {name: sum(one[name] for one in each) if known else None for name in PARTS}
    return found


def link(every, facts):
    """Copies and reductions on planes, by who, whom and over what; of ranks whose timeline holds
    none, what the profiler's matrix says."""
    timed, counted = Timed(), {}
    for rank, ones in every.items():
        if not any(_TRANSITS.fullmatch(task.name) for one in ones for task in one.tasks):
            for key, time, size, single in facts[rank].stated.links():
                timed.add(rank, key, time, size=size)
                counted[rank, *key] = single
            continue
        for one in ones:
            for task in one.tasks:
                if not _TRANSITS.fullmatch(task.name):
                    continue
                said = task.args
                source, target = number(said.get("src rank")), number(said.get("dst rank"))
                target = source if target == _NOBODY else target
                over = text_of(said.get("link type", ""))
                over = "LOCAL" if over == "ON_CHIP" else over
                key = (one.group, kind_of(one.row.name), source, target, over)
                timed.add(rank, key, task.dur, size=number(said.get("size(Byte)")))
    names = ("Group", "Operation", "Source", "Destination", "Transport")
    found = timed.figures(names, size="Bytes")
    for key, row in found.items():
        if not counted.get(key, True):
            row["Count"] = None
        time = row.pop("Total Time(ns)")
        row["Transit Time(ns)"] = time
        row["Bandwidth(GB/s)"] = row["Bytes"] / time if time else None
        for name in ("Min Time(ns)", "Avg Time(ns)", "Max Time(ns)", "Ratio(%)"):
            del row[name]
    return found


_KIND = re.compile(
    "allreduce|allgather|reducescatter|alltoall|broadcast|barrier|send|recv|receive|reduce|gather"
    "|scatter"
)
_ROUNDS = {"allreduce": 2, "allgather": 1, "reducescatter": 1, "alltoall": 1}
_WIDTHS = {
    "Byte": 1, "Char": 1, "Bool": 1, "Half": 2, "BFloat16": 2, "Short": 2, "Int": 4, "Float": 4,
    "Long": 8, "Double": 8, "ComplexFloat": 8, "ComplexDouble": 16,
}  # fmt: skip

_HCCL = {
    "INT8": 1, "UINT8": 1, "HIF8": 1, "FP8E4M3": 1, "FP8E5M2": 1, "FP8E8M0": 1, "INT16": 2,
    "UINT16": 2, "FP16": 2, "BFP16": 2, "INT32": 4, "UINT32": 4, "FP32": 4, "INT64": 8,
    "UINT64": 8, "FP64": 8, "INT128": 16,
}  # fmt: skip
_SAME_ON_ALL = ("allreduce", "broadcast", "reduce", "p2p")
"""Operations whose count is that of the whole message."""


def _sized(row):
    """What an operation does, and how many bytes its larger buffer has; None if not stated."""
    name = row.args.get("Collective name") or row.name
    does = _KIND.search(re.sub("[^a-z]", "", name.lower()))
    does = does[0] if does else ""
    does = "p2p" if does in ("send", "recv", "receive") else does
    sizes = [row.args[key] for key in ("In msg nelems", "Out msg nelems") if key in row.args]
    width = _WIDTHS.get(row.args.get("dtype"))
    if not sizes and "count" in row.args and does in _SAME_ON_ALL:
        sizes, width = [row.args["count"]], _HCCL.get(row.args.get("data_type"))
    return does, max(map(int, sizes)) * width if width and sizes else None


def collective(ranks):
    """Operations with sizes, by what they do and how many bytes the larger buffer has."""
    timed = Timed()
    for rank in ranks.values():
        for row in kernels(rank, "comm"):
            does, n_bytes = _sized(row)
            if n_bytes is not None:
                group = row.lane.group or row.lane.name
                ranks_of = int(row.args["Group size"]) if "Group size" in row.args else None
                timed.add(rank.number, (group, does, ranks_of, n_bytes), row.dur)
    found = timed.figures(("Group", "Operation", "Group Size", "Message(B)"))
    for row in found.values():
        n, size = row["Group Size"], row["Message(B)"]
        usual, best = (
            size / row[time] if size and row[time] else None
            for time in ("Avg Time(ns)", "Min Time(ns)")
        )
        times = 1
        if row["Operation"] in _ROUNDS:
            times = _ROUNDS[row["Operation"]] * (n - 1) / n if n else None
        row["Algorithm Bandwidth(GB/s)"] = usual
        for name, speed in (("Bus", usual), ("Best Bus", best)):
            row[f"{name} Bandwidth(GB/s)"] = None if None in (speed, times) else speed * times
    return found


_FEWEST = 8
"""Calls of a group that are matched without doubt."""


def collective_wait(ranks):
    """Waiting and moving data, of groups with names whose ranks did the same in the same order."""
    groups = defaultdict(lambda: defaultdict(list))
    for rank in ranks.values():
        for row in kernels(rank, "comm"):
            hccl = re.match("hcom_[A-Za-z]+_*__([0-9]+)_", row.name)
            name = row.args.get("Process Group Name") or row.args.get("process_group")
            listed = str(row.args.get("Process Group Ranks"))
            key = f"{name} {listed}" if name else hccl[1] if hccl else None
            groups[key][rank.number].append((*_sized(row), row))
    timed, known = Timed(), False
    for key, calls in groups.items():
        calls = {r: sorted(rows, key=lambda call: call[2].end) for r, rows in calls.items()}
        order = {r: [(does, size) for does, size, _ in rows] for r, rows in calls.items()}
        alike = len(calls) > 1 and all(one == order[min(order)] for one in order.values())
        alike = alike and key is not None and len(calls[min(calls)]) >= _FEWEST
        known = known or alike
        for own, rows in calls.items():
            for place, (does, size, row) in enumerate(rows):
                if does in (*_ROUNDS, "barrier"):
                    listed = re.findall(r"\d+", str(row.args.get("Process Group Ranks", "")))
                    n, least = row.args.get("Group size") or len(listed), None
                    if alike:
                        least = min(rows[place][2].dur for rows in calls.values())
                    timed.add(
                        own, (row.lane.group or row.lane.name, does, int(n) or None, size),
                        row.dur, transfer=least, matched=alike or None,
                    )  # fmt: skip
    found = timed.figures(
        ("Group", "Operation", "Group Size", "Message(B)"),
        matched="Matched", transfer="Transfer Time(ns)",
    )  # fmt: skip
    for row in found.values():
        transfer, moved = row["Transfer Time(ns)"], row["Message(B)"]
        wait = None if transfer is None else row["Total Time(ns)"] - transfer
        row["Wait Time(ns)"] = wait
        row["Wait(%)"] = percent(wait or 0, wait + transfer) if transfer is not None else None
        row["Transfer Bandwidth(GB/s)"] = (
            moved * row["Matched"] / transfer if moved and transfer else None
        )
    return found if known else {}

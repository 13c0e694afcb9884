"""Ranges of the host, and the device work that calls within them launched."""

from .figures import UNKNOWN, Timed
from .intervals import total, union

_MODULE = "nn.Module: "


def instances(hosts, notes):
    """(rank, row, figures) of every range: on lanes of ranges, named by the capture, or modules."""
    for rank, host in hosts.items():
        named = {*notes[rank].get("range_names", ()), *notes[rank].get("phase_names", ())}
        rows = [
            row for row in host.rank.on("host")
            if row.lane.kind == "ranges" or row.name in named or row.name.startswith(_MODULE)
        ]  # fmt: skip
        nest = host.nested(rows)
        launched = [one for one in host.launched if one[0].cls != "wait"]
        for row in rows:
            thread = host.thread_of(row)
            ran = [
                task for task, of, call in launched
                if of == thread and row.start <= call.start <= row.end and call.end <= row.end
            ]  # fmt: skip
            first = min((task.start for task in ran), default=0)
            depth, around = 0, nest.parent.get(id(row))
            while around is not None:
                depth, around = depth + 1, nest.parent[id(around)]
            figures = {
                "Depth": depth,
                "Self Time(ns)": nest.self_ns(row),
                "Projected Start Time(ns)": first if ran else UNKNOWN,
                "Projected Time(ns)": max((task.end for task in ran), default=0) - first,
                "Busy Time(ns)": total(union((task.start, task.end) for task in ran)),
                "Tasks": len(ran),
            }
            if not launched:
                figures |= dict.fromkeys([*figures][2:], UNKNOWN)
            yield rank, row, figures


def _named(row):
    return row.name.removeprefix(_MODULE), "module" if row.name.startswith(_MODULE) else "range"


def ranges(hosts, notes):
    """Sums by name."""
    timed = Timed()
    sums = ("Self Time(ns)", "Projected Time(ns)", "Busy Time(ns)", "Tasks")
    for rank, row, figures in instances(hosts, notes):
        timed.add(rank, _named(row), row.dur, **{name: figures[name] for name in sums})
    return timed.figures(("Range", "Kind"), **{name: name for name in sums})


def every(hosts, notes):
    """A row for each."""
    return [
        (
            (rank, *_named(row), row.lane.name, row.start),
            {"Step": row.step if row.step >= 0 else UNKNOWN, "Host Time(ns)": row.dur, **figures},
        )
        for rank, row, figures in instances(hosts, notes)
    ]

"""Figures by table, key and column, and what is done with durations in every table of times."""

import re
from collections import defaultdict
from dataclasses import dataclass

JOB = None
"""The rank of rows that are about all ranks together."""

PARTS = ("Transit Time(ns)", "Wait Time(ns)", "Synchronization Time(ns)", "Idle Time(ns)")
"""Of a communication operation."""

UNKNOWN = None
"""A figure that nobody can know."""


@dataclass(frozen=True)
class Facts:
    """What the account of a merge says of the source of a rank. No figure is taken from it.

    Attributes:
        reader: which read it.
        ascend: whether device rows are tasks that carry out operators.
        gpu_ranges: whether scope lanes are ranges of the host as a GPU saw them.
        free_rule: what bounds the span idle time is looked for in: "busy" or "device".
        mindspore: whether MindSpore's way of counting ``step_trace_time`` applies.
        partial: whether device rows are known not to be all that ran, so that no figure of a step
            can be made from them.
        tables_only: whether rows were made of tables of operators, without a timeline.
        stated: the profiler's tables beside the timeline, :class:`.stated.Stated`.
    """

    reader: str
    ascend: bool
    gpu_ranges: bool
    free_rule: str
    mindspore: bool
    partial: bool
    tables_only: bool
    stated: object

    @classmethod
    def of(cls, document, rank, stated):
        """Those of a rank, from the document of a merge (``Report.as_dict``)."""
        notes = document["notes"][str(rank)]
        (capture,) = (c for c in document["captures"] if c["rank"] == rank)
        places = (capture["label"], *capture["files"])
        return cls(
            capture["reader"],
            notes.get("vendor") == "ascend",
            notes.get("free_rule") == "device",
            notes.get("overlap", {}).get("free_rule", ""),
            "mindspore" in capture["reader"] or any(_OF_MINDSPORE.search(p) for p in places),
            notes.get("partial_device", False),
            capture["reader"] == "ascend_tables",
            stated,
        )


_OF_MINDSPORE = re.compile(r"_ascend_ms(/|$)|ascend_mindspore_profiler[^/]*\.db")


def mean(total, count):
    """Rounded half up."""
    return (2 * total + count) // (2 * count)


def percent(part, whole):
    """100 = all; unknown where there is nothing to be a part of."""
    return 100 * part / whole if whole and part is not UNKNOWN else UNKNOWN


def added(*values):
    """The sum; unknown if one of them is."""
    return UNKNOWN if UNKNOWN in values else sum(values)


class Timed:
    """Durations by rank and key, and further sums: what tables of times are made of."""

    def __init__(self):
        self.durations = defaultdict(lambda: defaultdict(list))
        self.sums = defaultdict(lambda: defaultdict(int))

    def add(self, rank, key, dur, **more):
        """One row."""
        self.durations[rank][key].append(dur)
        for name, value in more.items():
            self.sums[rank, key][name] = added(self.sums[rank, key][name], value)

    def _with_job(self):
        """Rows of the ranks with data, then, if these are several, of all together."""
        yield from ((rank, keys, (rank,)) for rank, keys in self.durations.items())
        if len(self.durations) > 1:
            job = defaultdict(list)
            for keys in self.durations.values():
                for key, durations in keys.items():
                    job[key] += durations
            yield JOB, job, tuple(self.durations)

    def figures(self, names, within=lambda key: (), **more):
        """Count, total, minimum, mean, maximum and share by rank and key.

        Args:
            names:  columns of the key.
            within: of a key: the rows in which shares add up to 100.
            more:   columns of further sums, by name.
        """
        found = {}
        for rank, keys, ranks in self._with_job():
            whole = defaultdict(int)
            for key, durations in keys.items():
                whole[within(key)] += sum(durations)
            for key, durations in keys.items():
                total = sum(durations)
                found[(rank, *key)] = {
                    **dict(zip(names, key, strict=True)),
                    "Count": len(durations),
                    "Total Time(ns)": total,
                    "Min Time(ns)": min(durations),
                    "Avg Time(ns)": mean(total, len(durations)),
                    "Max Time(ns)": max(durations),
                    "Ratio(%)": percent(total, whole[within(key)]),
                    **{
                        column: added(*(self.sums[one, key][name] for one in ranks))
                        for name, column in more.items()
                    },
                }
        return found


def variance_us2(durations):
    """Mean squared distance from the mean, in us^2, by whole numbers."""
    n, total = len(durations), sum(durations)
    squares = n * sum(one * one for one in durations) - total * total
    return squares / (n * n) / 1e6

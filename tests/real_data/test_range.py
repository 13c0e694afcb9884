"""The tables of ranges, against plain SQL over Nsight's database and Kineto's own projections."""

import gzip
import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from decimal import Decimal

import pytest
from paths import GPU

import traceconv
from traceconv.core.side_tables import ABSENT

COLUMNS = (
    "Range", "Start Time(ns)", "Host Time(ns)", "Tasks", "Projected Start Time(ns)",
    "Projected Time(ns)",
)  # fmt: skip
OPS = " union all ".join(
    f"select start, end, correlationId, globalPid from CUPTI_ACTIVITY_KIND_{kind}"
    for kind in ("KERNEL", "MEMCPY", "MEMSET")
)
PROJECTED = """
    select coalesce(text, (select value from StringIds where id = textId)), n.start,
        n.end - n.start,
        count(l.os), min(l.os), max(l.oe) - min(l.os)
    from NVTX_EVENTS n left join launched l
        on l.tid = n.globalTid and l.ls between n.start and n.end and l.le <= n.end
    where n.eventType in (59, 60) and n.end is not null group by n.rowid
"""


def rows(path):
    """Ours, of all ranks."""
    table = traceconv.stats(str(path), by="range_instance", align="none")["range_instance"].columns
    return list(zip(*(table[name].tolist() for name in COLUMNS), strict=True))


def test_projections_are_those_of_the_launches_in_the_database():
    """17,113 NVTX ranges of two processes: what nvtx_gpu_proj_trace is made of."""
    path = GPU / "nsys/mfu_2gpu_after.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"create temp table op as {OPS}")
        db.execute("create index temp.by_id on op (correlationId)")
        db.execute(
            "create temp table launched as select r.globalTid tid, r.start ls, r.end le, o.start "
            "os, o.end oe from CUPTI_ACTIVITY_KIND_RUNTIME r join op o using (correlationId) "
            "where r.eventClass in (0, 1) and o.globalPid >> 24 = r.globalTid >> 24"
        )
        db.execute("create index temp.by_time on launched (tid, ls)")
        theirs = list(db.execute(PROJECTED))
    base = min(start for _, start, *_ in theirs)
    theirs = Counter(
        (
            re.sub(r", (?:seq|op_id) = .*", "", name),
            at - base,
            dur,
            n,
            n and first - base,
            n and length,
        )
        for name, at, dur, n, first, length in theirs
    )
    found = rows(path)
    base = min(at for _, at, *_ in found)
    ours = Counter(
        (name, at - base, dur, n, first - base if first != ABSENT else 0, length)
        for name, at, dur, n, first, length in found
    )
    assert len(found) == 17113
    assert ours == theirs


@pytest.mark.parametrize("name, margin_ns", [
    ("hta_ns_rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 2),
    ("hta_nccl_data_rank0of2.json.gz", 1500),
])  # fmt: skip
def test_projections_are_those_of_the_profiler(name, margin_ns):
    """Kineto draws each annotation per stream, longer than its kernels by a margin."""
    path = GPU / "kineto" / name
    with gzip.open(path) as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]
    spans = {}
    for one in events:
        if one.get("cat") == "gpu_user_annotation":
            key, start = (one["name"], one["args"]["External id"]), one["ts"] * 1000
            low, high = spans.get(key, (start, start))
            spans[key] = min(low, start), max(high, start + one["dur"] * 1000)
    ours = {(range_, length) for range_, _, _, tasks, _, length in rows(path) if tasks > 0}
    near = [
        any(of == range_ and abs(high - low - margin_ns - length) <= 1 for of, length in ours)
        for (range_, _), (low, high) in spans.items()
    ]
    assert sum(near) == len(near) > 10

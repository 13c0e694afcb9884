"""Comparisons of real captures, against sums over their own files read with plain code."""

import csv
import gzip
import json
import sqlite3
from collections import Counter
from contextlib import closing
from itertools import pairwise

import pytest
from paths import DATA

import traceconv
from traceconv.analysis.diff.labels import END, lasting

NSYS = DATA / "gpu" / "nsys"
HTA = DATA / "gpu" / "kineto" / "hta_trace_compare_base.json.gz"
INSIGHT = DATA / "ascend" / "msinsight" / "test" / "data" / "pytorch" / "text"
SORTS = ("compute", "communication", "copy")


def attributed(rows, low, high):
    """What the time from ``low`` to ``high`` belongs to: {(sort, name, cause): ns}.

    One border after the other, by the rule itself: of what runs the first sort, of that what began
    first; gaps by what begins next, and by the host if its call begins after the gap does.

    Args:
        rows: (sort, name, start, end, start of the call that launched it or None).
    """
    found = Counter()
    rows = sorted((SORTS.index(sort), start, name, end, call) for sort, name, start, end, call in
                  rows if end > start)  # fmt: skip
    borders = {low, high}
    borders |= {t for row in rows for t in (row[1], row[3]) if low < t < high}
    borders, gap = sorted(borders), low
    by_start = sorted(rows, key=lambda row: (row[1], row[0]))
    running, todo = [], 0
    for begin, end in pairwise(borders):
        while todo < len(by_start) and by_start[todo][1] <= begin:
            running.append(by_start[todo])
            todo += 1
        running = [row for row in running if row[3] > begin]
        if running:
            first = min(running)
            found[SORTS[first[0]], first[2], ""] += end - begin
            gap = end
            continue
        after = by_start[todo] if todo < len(by_start) else None
        late = after is not None and after[4] is not None and after[4] >= gap
        name = after[2] if after and after[1] < high else END
        found["wait", name, "host" if late else "unknown"] += end - begin
    return found


def of_items(found, side):
    """The same of a comparison: names are those of the run."""
    column = f"{side}(ns)"
    sums = Counter()
    was = found.comparison.items.was["name"]
    for i, (sort, name, kind, ns) in enumerate(
        zip(*(found.items[k] for k in ("Sort", "Name", "Type", column)), strict=True)
    ):
        name = was[i] or name if side == "Before" else name
        sums[sort, name, kind if sort == "wait" else ""] += int(ns)
    return +sums


COPIES = {1: "Memcpy Host-to-Device", 2: "Memcpy Device-to-Host", 8: "Memcpy Device-to-Device"}
ROWS = {
    "KERNEL k join StringIds s on s.id = k.demangledName": "s.value",
    "MEMCPY k": "k.copyKind",
    "MEMSET k": "'Memset'",
}


def nsight(path):
    """The device rows of the first process of a report, as of :func:`attributed`."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as base:
        query = "select min(globalPid) from CUPTI_ACTIVITY_KIND_KERNEL"
        [[pid]] = base.execute(query)
        query = "select correlationId, start from CUPTI_ACTIVITY_KIND_RUNTIME where globalTid >> 24"
        calls = dict(base.execute(f"{query} = {pid >> 24}"))
        found = []
        for source, name in ROWS.items():
            query = f"select {name}, k.start, k.end, k.correlationId from CUPTI_ACTIVITY_KIND_"
            found += base.execute(f"{query}{source} where k.globalPid = {pid}").fetchall()
    rows = []
    for what, start, end, call in found:
        sort, name = "compute", lasting(str(what))
        if what == "Memset" or what in COPIES:
            sort, name = "copy", COPIES.get(what, what)
        elif name.startswith("nccl"):
            sort, name = "communication", "p2p"
        rows.append((sort, name, start, end, calls.get(call)))
    return rows


def test_the_mfu_pair_before_and_after():
    """Every item of both windows of 300 ms is what the tables of kernels, copies and calls say."""
    paths = [NSYS / f"mfu_2gpu_{word}.sqlite" for word in ("before", "after")]
    found = traceconv.diff(*paths)
    for side, path in zip(("Before", "After"), paths, strict=True):
        rows = nsight(path)
        low, high = min(row[2] for row in rows), max(row[3] for row in rows)
        assert of_items(found, side) == +attributed(rows, low, high)
    classes = dict(zip(found.classes["Name"], found.classes["Change(ns)"], strict=True))
    assert classes == {
        "step": -597_597, "computing": -26_206_480, "exposed_comm": -7_183_636,
        "copies": -318_922, "waiting": 33_111_441, "input_wait": 0, "host_wait": 34_398_455,
        "unrecorded": 0, "critical rank": 0,
    }  # fmt: skip
    assert (found.verdict, found.reasons) == ("no verdict", ())
    assert "without marked steps" in found.document["headline"]
    assert sum("`step_marker`" in one for one in found.document["remarks"]) == 1
    assert found.text().count("no verdict") == 1


def test_two_steps_of_hta_trace_compare():
    """Step 1009 against 1010: names, lengths and gaps of the events of the file, in the device
    windows that the table of steps gives."""
    events = json.loads(gzip.decompress(HTA.read_bytes()))["traceEvents"]
    sorts = {"kernel": "compute", "gpu_memcpy": "copy", "gpu_memset": "copy"}
    rows = [(sorts[e["cat"]], e["name"], round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000),
             None) for e in events if e.get("cat") in sorts]  # fmt: skip
    table = traceconv.stats(HTA, by="step")["step"]
    windows = zip(table["Device Start Time(ns)"], table["Device Time(ns)"], strict=True)
    found = traceconv.diff(HTA, steps="1009:1010")
    for side, (start, length) in zip(("Before", "After"), windows, strict=True):
        own, plain = Counter(), Counter()
        for sums, into in ((of_items(found, side), own),
                           (attributed(rows, int(start), int(start + length)), plain)):  # fmt: skip
            for (sort, name, _), ns in sums.items():
                into[sort, name] += ns  # few launches are in the file, so causes are left out
        assert own == plain
    assert found.verdict == "no verdict"


@pytest.mark.parametrize("level", [0, 1])
def test_levels_of_msinsight_are_refused(level):
    """Level 0 recorded no calls of CANN, level 1 did; a rank is comparable with itself."""
    paths = [INSIGHT / f"level{one}" / "rank0_ascend_pt" for one in (level, 1)]
    if level == 1:
        assert traceconv.diff(*paths).verdict == "no change"
        return
    with pytest.raises(traceconv.ComparisonError, match="recorded were host, device, comm before"):
        traceconv.diff(*paths)


def test_levels_of_msinsight_if_forced():
    """The figures of the profiler's own tables of steps and kernels, without a verdict."""
    folders = [INSIGHT / f"level{one}" / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
               for one in (0, 1)]  # fmt: skip
    found = traceconv.diff(*(one.parent for one in folders), force_compare=True)
    columns = (found.classes[k].tolist() for k in ("Name", "Before(ns)", "After(ns)"))
    rows = {name: figures for name, *figures in zip(*columns, strict=True)}
    for side, folder in enumerate(folders):
        [stated] = table(folder / "step_trace_time.csv")
        assert rows["computing"][side] == round(1000 * float(stated["Computing"]))
        assert rows["exposed_comm"][side] == round(
            1000 * float(stated["Communication(Not Overlapped)"])
        )
        kernels = Counter()
        for row in table(folder / "kernel_details.csv"):
            if not row["Name"].startswith("hcom_"):
                kernels[row["Name"]] += round(1000 * float(row["Duration(us)"]))
        own = Counter()
        for (sort, name, _), ns in of_items(found, ("Before", "After")[side]).items():
            own[name] += ns * (sort == "compute")
        # the table cuts off what is below a nanosecond, 187 times
        assert {n: pytest.approx(ns, abs=20) for n, ns in kernels.items()} == dict(+own)
    assert rows["input_wait"] == [3_751_830, 3_481_130]
    assert rows["step"] == [136_897_820, 155_985_800]
    assert found.verdict == "" and set(found.items["Verdict"]) == {""}


def table(path):
    """The rows of a table of the profiler."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


FIELD = DATA / "field" / "insight"


def test_a_longer_first_step_does_not_hide_a_difference():
    """Products are a tenth slower; the first step of both runs takes a millisecond longer."""
    found = traceconv.diff(FIELD / "diff_first_step", FIELD / "diff_first_step_b")
    assert found.verdict == "slower"
    step = {name: column[0] for name, column in found.classes.columns.items()}
    assert step["Change(%)"] == pytest.approx(5.6, abs=0.2)
    low, high = (100 * step[end] / step["Before(ns)"] for end in ("Low(ns)", "High(ns)"))
    assert (low, high) == (pytest.approx(4.8, abs=0.1), pytest.approx(6.2, abs=0.1))
    assert sum("is left out" in one for one in found.document["remarks"]) == 2


def test_gaps_before_renamed_kernels_are_the_same_gaps():
    """Tile sizes in the names of kernels differ, nothing else."""
    names = "diff_renamed_kernels_wait", "diff_renamed_kernels_wait_b"
    found = traceconv.diff(*(FIELD / name for name in names))
    assert set(found.items["Verdict"].tolist()) <= {"no verdict", "no change"}
    new = ["added" in one or "removed" in one for one in found.items["Changed"]]
    assert abs(found.items["Change(ns)"][new]).sum() < 1000  # a gap that occurs once


def test_a_gate_on_pauses_passes_where_there_are_none():
    """0 before, 0 after."""
    names = "diff_pause_gate", "diff_pause_gate_b"
    found = traceconv.diff(*(FIELD / name for name in names), fail_on="pause>1%")
    assert str(found.outcome) == "passed"

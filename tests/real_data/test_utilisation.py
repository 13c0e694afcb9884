"""One device utilisation of a capture: tables, rules and report, against the raw file."""

import gzip
import json

import numpy as np
import pytest
from paths import ASCEND, DATA

import traceconv
from traceconv.core.model import OpClass
from traceconv.core.side_tables import ABSENT

KINETO = DATA / "gpu" / "kineto"
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def _plain(name):
    """Busy time and length of the device windows by a loop over the raw events, us."""
    with gzip.open(KINETO / name) as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
    rows = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") in DEVICE)
    marks = {
        e["ts"]: e["ts"] + e["dur"]
        for e in events
        if e["name"].startswith("ProfilerStep#") and e["cat"] != "gpu_user_annotation"
    }
    last = max(end for _, end in rows)
    spans = [(start, end) for start, end in sorted(marks.items()) if start < last]
    begin, stop = spans[0][0], max(spans[-1][1], last)
    busy, seen = 0.0, begin
    for start, end in rows:
        busy += max(end - max(start, seen), 0)
        seen = max(seen, end)
    return busy, stop - begin


@pytest.mark.parametrize(
    "name",
    [
        "hta_mi250_minitoy_train.json.gz",
        "hta_trace_compare_base.json.gz",
        "tracelens_h100_bert_small.json.gz",
    ],
)
def test_one_number_everywhere(name):
    """The table of devices, that of overlap, the rule and the tile of a report agree."""
    path = str(KINETO / name)
    tables = traceconv.stats(path, by=["device", "overlap"])
    (device,) = tables["device"]["Utilization(%)"].tolist()
    busy, window = _plain(name)
    assert device == pytest.approx(100 * busy / window, abs=1e-3)
    overlap = tables["overlap"]
    steps = (overlap["Step"] >= 0) & (overlap["Known(ns)"] > 0)
    idle, known = (int(overlap[key][steps].sum()) for key in ("Idle(ns)", "Known(ns)"))
    assert 100 * (1 - idle / known) == pytest.approx(device)
    found = traceconv.diagnose(path, threshold={"device-idle": 100}, analyse=True)
    (finding,) = [one for one in found.findings.findings if one.rule.id == "device-idle"]
    assert finding.case.value == pytest.approx(device)
    assert finding.case.figures["window_ns"] == known
    tiles = {tile["name"]: tile["value"] for tile in found.document["overview"]["tiles"]}
    assert tiles["Device utilisation"] == f"{device:.1f} %"


def test_idle_time_of_hta_is_the_lane_between_first_and_last_kernel():
    """HTA: first start to last end of all that runs on a stream, less its union; in ns."""
    path = KINETO / "tracelens_h100_bert_small.json.gz"
    with gzip.open(path) as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("cat") in DEVICE]
    rows = sorted((e["ts"], e["ts"] + e["dur"]) for e in events)
    idle, seen = 0.0, rows[0][1]
    for start, end in rows:
        idle += max(start - seen, 0)
        seen = max(seen, end)
    (trace,) = traceconv.open(str(path)).traces("summary")
    free = trace.events.take(trace.events.op == OpClass.FREE)
    busy = trace.events.take((trace.events.op == OpClass.COMPUTING) | _copies(trace))
    first, last = int(busy.start_ns.min()), int(busy.end_ns.max())
    inside = np.minimum(free.end_ns, last) - np.maximum(free.start_ns, first)
    assert int(np.maximum(inside, 0).sum()) == pytest.approx(1000 * idle, abs=len(rows))


def _copies(trace):
    return trace.events.op == OpClass.COPYING


def test_a_step_without_device_data_has_no_figures():
    """MI250: the second step begins when the device has nothing more to do; it was 0 of 0 %."""
    path = str(KINETO / "hta_mi250_minitoy_train.json.gz")
    overlap = traceconv.stats(path, by=["overlap"])["overlap"]
    (row,) = (overlap["Step"] == 2).nonzero()[0]
    for name in ("Total Compute(ns)", "Idle(ns)", "Known(ns)", "Memory Copy(ns)"):
        assert overlap[name][row] == ABSENT
    assert overlap["Utilization(%)"][row] != overlap["Utilization(%)"][row]
    assert overlap["Source"][row] == ""


@pytest.mark.parametrize("job", ["run_1", "JOB3"])
def test_operators_of_14_of_322_iterations(job):
    """Operators were recorded until the 15th iteration, collectives or the AI CPU in all: the
    others were said to be idle, and the host to be to blame for half of the time."""
    path = str(ASCEND / "mindinsight" / job)
    overlap = traceconv.stats(path, by=["overlap"])["overlap"]
    steps = overlap["Step"] != ABSENT
    known = steps & (overlap["Known(ns)"] != ABSENT)
    assert overlap["Step"][known].tolist() == list(range(1, 15))
    assert (overlap["Total Compute(ns)"][known] > 126 * 10**6).all()
    assert np.count_nonzero(steps) == 322
    (whole,) = np.flatnonzero(~steps)
    for name in ("Total Compute(ns)", "Idle(ns)", "Known(ns)"):
        before = overlap[name][whole] - overlap[name][known].sum()  # the first step begins later
        assert 0 <= before < 100_000
    assert overlap["Compute(%)"][whole] == pytest.approx(59.9155, abs=1e-3)
    known = traceconv.stats(path, by=["overlap"]).step_lines
    assert [line.partition(": ")[2] for line in known] == ["device data for 14 of 322 iterations"]
    found = traceconv.diagnose(path)
    assert "211 ms per step" in found.headline
    (one,) = [issue for issue in found.issues if issue.code == "steps-uncovered"]
    assert (one.count, one.places) == (308, ("device data for 14 of 322 iterations",))
    # one run: there collectives are in a table, here they are marks of the step trace
    assert overlap["Communication Not Overlapped(ns)"][whole] == 1_163_175_420
    # of JOB3 299 tasks of AI cores without an operator run alone, for 478 us: no idle time
    busy = 99.304 if job == "JOB3" else 99.287
    assert overlap["Utilization(%)"][whole] == pytest.approx(busy, abs=1e-3)
    assert "device-idle" not in {one.rule.id for one in found.findings.findings}

"""Odd trace-event files of other tools' test suites: every slice, arrow and loss of each.

Expected slices were worked out by hand from the files, which are a few lines each, by the rules of
the format: an end closes the newest open begin of its name, a begin without an end lasts to the
last stamp of its lane. They are looked for in what is written, in both formats.
"""

import json
from collections import Counter

import pytest
from decoded import decode
from paths import GPU

import traceconv
from traceconv import validation as checks
from traceconv.core.errors import EmptyResultError
from traceconv.core.model import Kind

CHROME_EDGE = GPU / "chrome_edge"

SIMPLE = [("alpha", 0, 14), ("beta", 1, 12), ("gamma", 2, 5), ("epsilon", 7, 4)]
STARTED = 11550183666
SLICES = {
    "bex-interaction": [
        ("A", 0, 2), ("B", 0, 2), ("C", 10, 2), ("D", 10, 2), ("E", 20, 1), ("F", 20, 2),
        ("G", 30, 2), ("H", 30, 1), ("I", 41, 1), ("J", 40, 2), ("K", 50, 2), ("L", 51, 1),
    ],
    "end-event-with-empty-stack": [("alpha", 0, 1)],
    "event-reordering-name-match": [("alpha", 0, 10), ("beta", 1, 1), ("gamma", 1, 1)],
    "flow_events_json_v1": [
        ("SenderA", 3002, 10), ("SenderB", 0, 10), ("Blergh", 1002, 100),
        ("OtherSlice", 3200, 500), ("SomeSlice", 3331, 400),
    ],
    "hermes-multiple-frames": [
        ("[root]", 0, 14), ("beta", 1, 1), ("gamma", 4, 9), ("beta", 4, 6),
    ],
    "matching-x": [
        ("alpha", 0, 10), ("beta", 1, 1), ("gamma", 1, 1), ("gamma", 5, 1), ("beta", 5, 1),
    ],
    "mismatched-args": [("A", 0, 10)],
    "multi-thread-with-samples": [("mqt_js", STARTED, 0), ("mqt_js", STARTED, 0)],
    "multiprocess": [
        (name, 0, 1)
        for name in ("alpha", "beta", "gamma", "delta", "epsilon", "phi", "zeta", "eta")
    ],
    "not-enough-end-events": [("A", 0, 11), ("A", 1, 10), ("A", 10, 1)],
    "only-begin-events": [("A", 0, 2), ("B", 1, 1), ("C", 2, 0)],
    "out-of-order": [("B", 1, 8), ("A", 0, 10), ("C", 2, 6)],
    "simple-hermes": [("[root]", 0, 14), ("beta", 1, 12)],
    "simple-partial-trailing-comma": SIMPLE,
    "simple-partial-whitespace": SIMPLE,
    "simple": SIMPLE,
    "too-many-end-events": [("alpha", 0, 14), ("beta", 1, 12)],
    "unbalanced-args": [("A", 0, 10), ("A", 1, 8)],
    "x-events-matching-end": [
        ("alpha", 0, 20), ("beta", 1, 2), ("gamma", 2, 1), ("gamma", 5, 2), ("beta", 6, 1),
        ("gamma", 10, 1), ("beta", 9, 2), ("beta", 15, 1), ("gamma", 14, 2),
    ],
    "x-events-matching-start": [
        ("alpha", 0, 20), ("beta", 1, 2), ("gamma", 1, 1), ("gamma", 5, 2), ("beta", 5, 1),
        ("beta", 9, 1), ("gamma", 9, 2), ("gamma", 13, 1), ("beta", 13, 2),
    ],
}  # fmt: skip
"""(name, start, length) in us."""

ISSUES = {
    "flow_events_json_v1": {"event-field-unread": 3},  # stack frames of arrows
    "end-event-with-empty-stack": {"end-without-begin": 1},
    "multi-thread-with-samples": {"kind-not-read": 8},
    "not-enough-end-events": {"unfinished-slice": 2},
    "only-begin-events": {"unfinished-slice": 3},
    "simple-partial-trailing-comma": {"unclosed-array": 1},
    "simple-partial-whitespace": {"unclosed-array": 1},
    "too-many-end-events": {"end-without-begin": 2},
}
CUT = ("simple-partial-trailing-comma", "simple-partial-whitespace")


@pytest.fixture(params=SLICES)
def sample(request):
    """Name of a file."""
    return request.param


def plain(name):
    """A file by the standard library; what was cut off is put back."""
    text = (CHROME_EDGE / f"{name}.json").read_text()
    loaded = json.loads(text.rstrip().rstrip(",") + "]" if name in CUT else text)
    return loaded if isinstance(loaded, dict) else {"traceEvents": loaded}


def test_every_file_is_looked_at():
    """None lies there that is not in the table."""
    assert {p.stem for p in CHROME_EDGE.glob("*.json")} == {*SLICES, "simple-with-samples"}


def test_a_file_of_samples_is_refused(tmp_path):
    """Without events nothing is written; what was not read is counted."""
    with pytest.raises(EmptyResultError, match=r"no events that can be read: kind-not-read x7$"):
        traceconv.convert(str(CHROME_EDGE / "simple-with-samples.json"), str(tmp_path / "o.json"))


def test_slices_in_what_is_written(sample, tmp_path):
    """Name, start and length of each, in a Perfetto file that keeps every rule."""
    out = tmp_path / "out.pftrace"
    traceconv.convert(str(CHROME_EDGE / f"{sample}.json"), str(out))
    assert checks.validate(out).ok
    seen = decode(out)
    zero, rows = seen.metadata["traceconv.base_ns"], seen.slices
    found = zip(rows.name, rows.ts.tolist(), rows.dur.tolist(), strict=True)
    assert Counter((name, at + zero, dur) for name, at, dur in found) == Counter(
        (name, at * 1000, dur * 1000) for name, at, dur in SLICES[sample]
    )


def test_slices_in_chrome_json(sample, tmp_path):
    """The same, in trace-event JSON that is read again."""
    out = tmp_path / "out.json"
    traceconv.convert(str(CHROME_EDGE / f"{sample}.json"), str(out))
    found = Counter()
    for trace in traceconv.open(str(out)).traces():
        rows = trace.events.take(trace.events.kind == Kind.SLICE)
        names = [trace.strings[n] for n in rows.name.tolist()]
        found.update(zip(names, rows.start_ns.tolist(), rows.dur_ns.tolist(), strict=True))
    assert found == Counter((name, at * 1000, dur * 1000) for name, at, dur in SLICES[sample])


def test_what_goes_in_comes_out_or_is_reported(sample, tmp_path):
    """Complete events and begins are slices, heads are arrows, lone ends and samples issues."""
    report = traceconv.convert(str(CHROME_EDGE / f"{sample}.json"), str(tmp_path / "out.pftrace"))
    phases = Counter(e["ph"] for e in plain(sample)["traceEvents"])
    counts = decode(tmp_path / "out.pftrace").counts()
    assert counts["slices"] == phases["X"] + phases["B"] == len(SLICES[sample])
    assert counts["flows"] == phases["f"] + phases["t"]
    lone = report.issues.count("end-without-begin")
    assert phases["E"] - lone == phases["B"] - report.issues.count("unfinished-slice")
    assert report.issues.count("kind-not-read") == len(plain(sample).get("samples", ()))


def test_issues(sample, tmp_path):
    """Each defect under its code, and nothing else but that no file names a rank."""
    report = traceconv.convert(str(CHROME_EDGE / f"{sample}.json"), str(tmp_path / "out.pftrace"))
    found = {issue.code: issue.count for issue in report.issues}
    beside = plain(sample).keys() - {"traceEvents", "samples", "displayTimeUnit"}
    unused = {"metadata-unused": len(beside)} if beside else {}
    assert found == {"rank-assumed": 1, **unused, **ISSUES.get(sample, {})}


def test_lanes_of_many_processes(tmp_path):
    """Processes and threads of one number stay apart, named or not."""
    traceconv.convert(str(CHROME_EDGE / "multiprocess.json"), str(tmp_path / "out.pftrace"))
    rows = decode(tmp_path / "out.pftrace").slices
    paths = zip(rows.name, rows.track, strict=True)
    assert {name: path[-2:] for name, path in paths} == {
        "alpha": ("p0", "p0t0"), "beta": ("p0", "p0t1"),
        "gamma": ("p1", "p1t0"), "delta": ("p1", "p1t1"),
        "epsilon": ("Process 2", "p2t0"), "phi": ("Process 2", "p2t1"),
        "zeta": ("p3", "Thread 0"), "eta": ("p3", "Thread 1"),
    }  # fmt: skip

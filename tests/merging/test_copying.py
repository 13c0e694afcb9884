"""Merges of trace-event JSON by their bytes: when they are made, and what they hold."""

import json
from collections import Counter
from decimal import Decimal

import pytest
from paths import ROOT

import traceconv
from traceconv.core.errors import StrictError
from traceconv.merging import copying

PAIR = ROOT / "golden/trace_view/demo/input"


def merged(tmp_path, *paths, name="out.json", **options):
    out = tmp_path / name
    given = {"mode": None, "align": "none", "force": True, **options}
    report = traceconv.merge(*map(str, paths), out=str(out), **given)
    return out, report


def document(path):
    return json.loads(path.read_bytes())


def test_all_events_of_all_ranks_are_there(tmp_path):
    """Each with its phase, name, time and arguments, as the files have them."""
    out, report = merged(tmp_path, PAIR)

    def content(events):
        return Counter(
            (e["ph"], e.get("name"), str(e.get("ts")), json.dumps(e.get("args")))
            for e in events
            if e["ph"] != "M"
        )

    files = sorted(PAIR.rglob("trace_view.json"))
    told = [json.loads(p.read_bytes()) for p in files]
    events = [e for t in told for e in (t if isinstance(t, list) else t["traceEvents"])]
    assert content(document(out)["traceEvents"]) == content(events)
    assert document(out)["metadata"]["traceconv"]["copied"] is True
    assert report.written[0].counts["slice"] == sum(e["ph"] == "X" for e in events)


def test_a_copied_file_is_read_again_by_rank(tmp_path):
    """Ranks come back with the events they had, on the same lanes."""
    out, _ = merged(tmp_path, PAIR)
    for first, again in zip(
        traceconv.open(str(PAIR)).traces(), traceconv.open(str(out)).traces(), strict=True
    ):
        assert again.rank == first.rank
        assert again.counts() == first.counts()
        assert {t.heading for t in again.tracks} == {t.heading for t in first.tracks}


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "detail"},
        {"exclude": "x"},
        {"args": []},
        {"name": "out.pftrace"},
        {"limit": traceconv.SizeLimit(max_bytes=10_000_000)},
    ],
    ids=lambda o: next(iter(o)),
)
def test_whatever_else_is_asked_for_goes_through_the_model(tmp_path, options):
    """Bytes are copied only where nothing is chosen, limited or made."""
    out, _ = merged(tmp_path, PAIR, **options)
    assert b'"copied"' not in out.read_bytes()


def test_different_bases_of_time_are_not_mixed(tmp_path):
    """Stamps that count from different instants go through the model, and the report says so."""
    event = {"ph": "X", "pid": 1, "tid": 1, "ts": 5, "dur": 1, "name": "x"}
    for rank, base in enumerate((1718000000000000000, 1718000000000000001)):
        body = {"baseTimeNanoseconds": base, "traceEvents": [event]}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(body))
    files = [tmp_path / f"rank{r}.json" for r in (0, 1)]
    out, report = merged(tmp_path, *files, rank_from=r"rank(\d+)")
    assert b'"copied"' not in out.read_bytes()
    assert [i.code for i in report.issues if i.code == "not-copied"] == ["not-copied"]


def test_copies_of_our_files_count_from_the_same_time(tmp_path):
    """Their metadata state it."""

    def spans(path):
        return {one.rank: one.span() for one in traceconv.open(str(path)).traces(align="none")}

    ours = ROOT / "golden/chrome_json/own_whole_range/input"
    out, report = merged(tmp_path, ours, mode="source")
    assert "copied" in document(out)["metadata"]["traceconv"]
    assert spans(out) == spans(ours)
    assert report.issues.count("not-copied") == 0


def test_what_stands_beside_the_events_is_kept(tmp_path):
    """Members of each file under its rank, and the common base of time where viewers look."""
    event = {"ph": "X", "pid": 1, "tid": 1, "ts": 5, "dur": 1, "name": "x", "cat": "cpu_op"}
    for rank in (0, 1):
        body = {"deviceProperties": [rank], "traceEvents": [event], "baseTimeNanoseconds": 7}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(body))
    files = [tmp_path / f"rank{r}.json" for r in (0, 1)]
    out, _ = merged(tmp_path, *files, rank_from=r"rank(\d+)")
    told = document(out)
    assert told["baseTimeNanoseconds"] == 7
    assert [told["beside the events"][r]["deviceProperties"] for r in "01"] == [[0], [1]]


def test_gzip_in_and_out(tmp_path):
    """Compressed files are copied like others, and equal input gives equal bytes."""
    import gzip

    source = next(iter(sorted(PAIR.rglob("trace_view.json"))))
    packed = tmp_path / "trace_view.json.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    plain, _ = merged(tmp_path, source)
    out, _ = merged(tmp_path, packed, name="out.json.gz")
    events = json.loads(gzip.decompress(out.read_bytes()))["traceEvents"]
    assert len(events) == len(document(plain)["traceEvents"])


def _overlapping(tmp_path, second=5):
    """A capture in which two slices of one lane cross: viewers misplace the second."""
    path = tmp_path / "cross.json"
    events = [
        {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 10}
        for name, ts in (("a", 0), ("b", second))
    ]
    path.write_text(json.dumps(events))
    return path


def test_a_report_changes_no_byte_of_a_copy(tmp_path):
    """The analysis reads the ranks apart; its times count from the first event of the copy."""
    plain, _ = merged(tmp_path, PAIR)
    out, report = merged(tmp_path, PAIR, name="analysed.json", analyse=True)
    assert out.read_bytes() == plain.read_bytes()
    earliest = min(Decimal(e["ts"]) for e in document(out)["traceEvents"] if "ts" in e)
    assert int(report.overview["zero_ns"]) == int(earliest * 1000)
    assert report.overview["findings"]
    assert not [text for text in report.overview["remarks"] if "steps and overlap only" in text]


def test_a_copy_that_viewers_misread_is_in_doubt(tmp_path):
    """With the rules that it breaks; a sound one is not."""
    _, report = merged(tmp_path, _overlapping(tmp_path))
    assert not traceconv.validate(str(tmp_path / "out.json")).ok
    faulty = [one for one in report.issues if one.code == "copy-faulty"]
    assert [(one.count, one.places) for one in faulty] == [(1, ("J16-overlap",))]
    _, report = merged(tmp_path, _overlapping(tmp_path, second=10))
    assert traceconv.validate(str(tmp_path / "out.json")).ok
    assert report.issues.count("copy-faulty") == 0


def test_strict_refuses_a_copy_in_doubt(tmp_path):
    """Before it has its name."""
    with pytest.raises(StrictError, match="copy-faulty x1"):
        merged(tmp_path, _overlapping(tmp_path), strict=True)
    assert [one.name for one in tmp_path.iterdir()] == ["cross.json"]


def test_a_large_copy_says_that_it_was_not_checked(tmp_path, monkeypatch):
    """Checking takes longer than copying."""
    monkeypatch.setattr(copying, "CHECKED_BYTES", 100)
    _, report = merged(tmp_path, _overlapping(tmp_path))
    assert (report.issues.count("copy-faulty"), report.issues.count("copy-unchecked")) == (0, 1)


def test_convert_writes_a_sound_file_as_it_is(tmp_path):
    """Every member of every event, and those beside them; a damaged one is repaired."""
    events = [
        {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}},
        {"ph": "X", "name": "a", "cat": "cpu_op", "pid": 7, "tid": -1, "ts": 1, "dur": 9, "tts": 4},
        {"ph": "i", "name": "b", "s": "g", "pid": "", "tid": 2, "ts": 2.5, "cname": "good"},
    ]
    whole = {"schemaVersion": 1, "traceEvents": events, "traceName": "x.json"}
    path, out = tmp_path / "in.json", tmp_path / "out.json"
    path.write_text(json.dumps(whole))
    report = traceconv.convert(str(path), str(out))
    # a thread below 0 is none that viewers know, and nothing is better about it elsewhere
    assert json.loads(out.read_text()) == whole
    assert report.written[0].counts == {"slice": 1, "instant": 1, "counter": 0, "flow": 0}
    path.write_text(json.dumps(whole)[:-40])
    report = traceconv.convert(str(path), str(out), force=True)
    assert "not-copied" in {issue.code for issue in report.issues}


def test_files_that_a_manifest_moves_are_not_copied(tmp_path):
    """Their bytes have other times than the run."""
    case = str(ROOT / "golden/kineto/manifest_beside/input")
    starts = []
    for copy in (True, False):
        out = str(tmp_path / f"{copy}.json")
        traceconv.merge(case, out=out, mode="source", copy=copy)
        (trace, *_) = traceconv.open(out).traces("source")
        starts.append(int(trace.events.start_ns.min()))
    assert starts[0] == starts[1]

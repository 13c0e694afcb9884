"""Real captures, from the files profilers left to the outputs people open.

The captures are not ours and do not lie in this repository; where they are absent, all of this is
skipped. Expected figures come from their README or from plain loops over their JSON here.
"""

import json
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from itertools import count
from pathlib import Path

import pytest
from decoded import decode
from effort import effort
from paths import ASCEND

import traceconv
from traceconv import SizeLimit
from traceconv.core.errors import EmptyResultError, SizeLimitError, TraceconvError
from traceconv.core.model import Layer, OpClass
from traceconv.passes.select import without_zero_counters
from traceconv.validation import validate

PAIR = ASCEND / "mindinsight" / "profiler"
TORCH = ASCEND / "msinsight" / "test" / "data" / "pytorch" / "text"
VIEWS = {
    "level0": TORCH / "level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json",
    "level1-rank0": TORCH / "level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json",
    "level1-rank1": TORCH / "level1/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json",
    "advice": ASCEND / "msprof-analyze/ut/advisor/timeline_advice/trace_view.json",
    "heatmap": ASCEND / "msinsight/server/src/test/test_data/heatMap/trace_view.json",
}
NAMES_ONLY = ASCEND / "msinsight/server/src/test/fuzz/test_data/trace_view_tiny.json"
FORMATS = (".pftrace", ".json")
OVERLAP = [
    "Computing", "Communication", "Communication(Not Overlapped)", "Free", "Memory Copy",
    "Memory Copy(Not Overlapped)",
]  # fmt: skip
DERIVED = ("Overlap Analysis", "Step Trace", "(device projection)")


def merged(tmp_path, source, name="out.pftrace", **options):
    """Merge to a file; the report, and what a viewer makes of the file."""
    out = tmp_path / name
    report = traceconv.merge(str(source), out=str(out), force=True, **options)
    assert [f for f in validate(out).findings if f.severity in ("error", "loss", "silent")] == []
    return report, decode(out)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Merges in detail with scopes, once; the file, the report, and what a viewer makes of it."""
    folder = tmp_path_factory.mktemp("whole")
    numbers = count()

    @cache
    def merge(source, ending):
        name = f"{next(numbers)}{ending}"
        report, seen = merged(folder, source, name, mode="detail", scope=True, align="none")
        return folder / name, report, seen

    return merge


def lanes(decoded, *, of):
    """Lane names below the tracks whose path holds ``of``."""
    return {path[-1] for path in decoded.slices.track if any(of in part for part in path)}


def half_up(number):
    """Nanoseconds of microseconds in a JSON text, by decimal arithmetic."""
    return int((Decimal(str(number)) * 1000).quantize(Decimal(1), ROUND_HALF_UP))


def loaded(path):
    """The events of a trace file with exact numbers."""
    return json.loads(path.read_bytes(), parse_float=Decimal)


# -- two ranks, 2023 export -----------------------------------------------------------------


@pytest.mark.parametrize("ending", FORMATS)
def test_the_summary_of_two_ranks(tmp_path, ending):
    """Step trace and overlap of both ranks and nothing else, ten iterations each."""
    _, seen = merged(tmp_path, PAIR, f"s{ending}", ranks=[0, 1])
    layers = {p for path in seen.slices.track for p in path if "Rank" not in p and p != "Timeline"}
    if ending == ".pftrace":
        assert layers == {"Step Trace \u00b7 iterations", "Overlap Analysis", *OVERLAP}
    for rank, model, first in ((0, 2, 47_587_810), (1, 0, 57_532_960)):
        rows = [
            (name, dur)
            for name, dur, path in zip(
                seen.slices.name, seen.slices.dur.tolist(), seen.slices.track, strict=True
            )
            if any(f"Rank {rank}" in part for part in path)
        ]
        iterations = {name: dur for name, dur in rows if f"Model {model} Iteration " in name}
        assert len(iterations) == 10
        assert iterations[f"Model {model} Iteration 1"] == first
        assert {name for name, _ in rows} >= set(OVERLAP)


def test_overlap_of_the_first_iteration(tmp_path):
    """The sums of the data's README, to the nanosecond, from the written file."""
    expected = {
        0: [5_914_580, 41_534_300, 41_534_300, 113_630],
        1: [5_927_580, 51_464_470, 51_464_470, 115_110],
    }
    _, seen = merged(tmp_path, PAIR, ranks=[0, 1])
    rows = seen.slices
    for rank, sums in expected.items():
        mine = [i for i, p in enumerate(rows.track) if p[0].startswith(f"Rank {rank}")]
        first = next(i for i in mine if rows.name[i].endswith("Iteration 1"))
        start, end = rows.ts[first], rows.ts[first] + rows.dur[first]
        found = Counter()
        for i in mine:
            if start <= rows.ts[i] < end and rows.name[i] in OVERLAP:
                found[rows.name[i]] += int(rows.dur[i])
        assert [found[name] for name in OVERLAP[:4]] == sums


def test_detail_adds_streams_planes_and_operators(tmp_path):
    """Hardware streams of rank 0, planes and communication operators of both ranks."""
    _, seen = merged(tmp_path, PAIR, ranks=[0, 1], mode="detail")
    paths = set(seen.slices.track)
    of = {r: {p[1:] for p in paths if p[0].startswith(f"Rank {r}")} for r in (0, 1)}
    streams = {p[-1] for p in of[0] if "Ascend Hardware" in p}
    assert streams == {f"Stream {n}" for n in (2, 3, 4, 10, 12, 13)}
    for rank in (0, 1):
        hccl = {p[-1] for p in of[rank] if "HCCL" in p}
        assert hccl == {"Communication Kernel", "Plane 0", "Plane 1", "Plane 2", "Plane 3"}


def test_one_graph_keeps_planes_names_and_summary(tmp_path):
    """Both spellings of the graph key count: HCCL lanes of graph 2 stay, with their names."""
    _, seen = merged(tmp_path, PAIR, ranks=[0, 1], graphs=[2], mode="detail")
    assert lanes(seen, of="HCCL") == {"Communication Kernel", *(f"Plane {n}" for n in range(4))}
    assert {p[0].split()[1] for p in seen.slices.track} == {"0"}
    assert {f"Model 2 Iteration {n}" for n in range(1, 11)} <= set(seen.slices.name)
    assert set(OVERLAP) <= set(seen.slices.name)


def test_a_graph_that_is_nowhere_is_named(tmp_path):
    """The message lists the graphs there are."""
    with pytest.raises(TraceconvError, match="graph 7 is in none of the ranks; graphs found: 0,2"):
        merged(tmp_path, PAIR, graphs=[7])


# -- every trace_view -----------------------------------------------------------------------


def expected_counts(events):
    """Slices, instants, samples and arrow heads of a file, counted by a plain loop."""
    phases = Counter(e["ph"] for e in events)
    series = sum(
        len([k for k in e["args"] if k not in ("acc_id",)]) for e in events if e["ph"] == "C"
    )
    starts = {(e["cat"], e["name"], str(e["id"])) for e in events if e["ph"] == "s"}
    heads = [(e["cat"], e["name"], str(e["id"])) for e in events if e["ph"] in "ft"]
    lonely = len(starts - set(heads))
    instants = phases["i"] + phases["I"]
    return {
        "slice": phases["X"], "instant": instants, "counter": series, "flow": len(heads) + lonely
    }  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_what_goes_in_comes_out_or_is_reported(whole, name):
    """Read and lost rows of the ledger are the file's events; kept rows are in both outputs."""
    _, report, seen = whole(VIEWS[name], ".pftrace")
    ledger = report.ledger[report.ranks[0]]
    expected = expected_counts(loaded(VIEWS[name]))
    assert {kind: ledger.get("read", {}).get(kind, 0) for kind in expected} == expected
    left = {k: sum(stage.get(k, 0) for stage in ledger.values()) for k in expected}
    assert dict(report.written[0].counts) == left
    _, _, also = whole(VIEWS[name], ".json")
    for decoded in (seen, also):
        counts = decoded.counts()
        assert counts["slices"] + counts["instants"] == left["slice"] + left["instant"]
        assert (counts["counters"], counts["flows"]) == (left["counter"], left["flow"])


def test_names_of_lanes_without_events_are_refused(tmp_path):
    """Nothing is written of a file that holds no event."""
    assert {event["ph"] for event in loaded(NAMES_ONLY)} == {"M"}
    for ending in FORMATS:
        out = tmp_path / f"out{ending}"
        with pytest.raises(EmptyResultError, match=r"holds no events$"):
            traceconv.merge(str(NAMES_ONLY), out=str(out), mode="detail")
        assert not out.exists()


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("name", VIEWS)
def test_no_time_changes_by_a_nanosecond(whole, name, ending):
    """Starts and durations in the output are those of the text, by decimal arithmetic."""
    events = loaded(VIEWS[name])
    threads = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in events
        if e["ph"] == "M" and e["name"] == "thread_name"
    }
    expected = Counter(
        (e["name"], half_up(e["ts"]), half_up(e["dur"]))
        for e in events
        if e["ph"] == "X" and threads.get((e["pid"], e["tid"])) not in OVERLAP
    )
    out, _, seen = whole(VIEWS[name], ending)
    base = int(_base_ns(out))
    found = Counter(
        (n, base + t, d)
        for n, t, d, path in zip(
            seen.slices.name, seen.slices.ts.tolist(), seen.slices.dur.tolist(), seen.slices.track,
            strict=True,
        )
        if not any(w in part for part in path for w in DERIVED)
    )  # fmt: skip
    assert found == expected


def _base_ns(path):
    if path.suffix == ".json":
        return json.loads(path.read_bytes())["metadata"]["traceconv"]["base_ns"]
    proto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = proto.Trace.FromString(path.read_bytes())
    return next(
        a.string_value or a.long_value
        for p in trace.packet
        for a in p.trace_attributes.attribute
        if a.key == "traceconv.base_ns"
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("source", [PAIR, TORCH / "level1", *VIEWS.values()], ids=lambda p: p.name)
def test_our_own_json_reads_back_the_same(tmp_path, source):
    """Events, samples and arrows of a merged file are those that went into it, but for counters
    that are zero throughout, which a merge leaves out."""
    first, again = tmp_path / "a.json", tmp_path / "b.json"
    traceconv.merge(str(source), out=str(first), mode="detail", scope=True)
    for trace, back in zip(
        traceconv.open(str(source)).traces("detail", align="auto", scope=True),
        traceconv.open(str(first)).traces(),
        strict=True,
    ):
        assert _content(back) == _content(without_zero_counters(trace))
    traceconv.merge(str(first), out=str(again), mode="detail", scope=True, align="none")
    assert _events(again) == _events(first)


def _events(path):
    """All records but labels (host and device, which are not read back)."""
    records = json.loads(path.read_bytes())["traceEvents"]
    return [r for r in records if r["name"] != "process_labels"]


def _content(trace):
    events = trace.events
    rows = Counter(
        (trace.tracks[t], trace.strings[n], k, o, s, d, g, st, json.dumps(trace.args[a]))
        for t, k, o, s, d, n, g, st, a in zip(
            *(c.tolist() for c in events.columns().values()), strict=True
        )
    )
    samples = Counter(
        (trace.tracks[t], s, v)
        for t, s, v in zip(*(c.tolist() for c in trace.counters.columns().values()), strict=True)
    )
    arrows = Counter(
        (int(events.start_ns[a]), int(events.start_ns[b]), trace.strings[n])
        for a, b, n in zip(*(c.tolist() for c in trace.flows.columns().values()), strict=True)
    )
    return rows, samples, arrows


# -- size limits ----------------------------------------------------------------------------

LIMITS = [20_000, 200_000, 5_000_000, 60_000, 800_000][: effort(2, 5)]
SAMPLE = TORCH / "level1" / "rank0_ascend_pt"


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_is_never_exceeded(tmp_path, limit, ending):
    """All three policies keep it or refuse; refusing leaves nothing behind."""
    for policy in ("reduce", "split", "fail"):
        folder = tmp_path / policy
        folder.mkdir()
        try:
            traceconv.merge(
                str(SAMPLE), out=str(folder / f"o{ending}"), mode="detail",
                limit=SizeLimit(max_bytes=limit, policy=policy),
            )  # fmt: skip
        except SizeLimitError:
            assert list(folder.iterdir()) == []
        for file in folder.iterdir():
            assert file.stat().st_size <= limit
            assert validate(file).ok


def test_parts_are_complete_together(tmp_path):
    """Every slice and sample of the whole is in exactly one part."""
    _, whole = merged(tmp_path, SAMPLE, mode="detail")
    base = int(_base_ns(tmp_path / "out.pftrace"))
    expected = Counter(zip(whole.slices.name, (whole.slices.ts + base).tolist(), strict=True))
    found = Counter()
    report = traceconv.merge(
        str(SAMPLE), out=str(tmp_path / "part.pftrace"), mode="detail",
        limit=SizeLimit(max_bytes=200_000, policy="split"),
    )  # fmt: skip
    assert len(report.written) > 3
    for one in report.written:
        seen, start = decode(one.path), int(_base_ns(Path(one.path)))
        found.update(zip(seen.slices.name, (seen.slices.ts + start).tolist(), strict=True))
    assert found == expected


def test_reducing_keeps_what_matters(tmp_path):
    """Step trace and overlap whole, every lane's busy time accounted for, losses listed."""
    _, everything = merged(tmp_path, SAMPLE, mode="detail")
    report, reduced = merged(
        tmp_path, SAMPLE, "r.pftrace", mode="detail", limit=SizeLimit(max_bytes=250_000)
    )
    assert report.dropped
    assert report.issues.count("size-limit") + report.issues.count("size-coalesced") > 0
    for layer in ("Step Trace", "Overlap Analysis"):
        assert _rows(reduced, layer) == _rows(everything, layer)


def _rows(decoded, layer):
    rows = decoded.slices
    return Counter(
        (n, t, d)
        for n, t, d, path in zip(
            rows.name, rows.ts.tolist(), rows.dur.tolist(), rows.track, strict=True
        )
        if layer in path
    )


# -- damage ---------------------------------------------------------------------------------

FILES = [*VIEWS.values(), *sorted(PAIR.glob("PROF*/device_*/timeline/msprof_*_1.json"))]


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{p.parents[1].name}-{p.name}")
def test_a_cut_file_gives_its_complete_events(tmp_path, path):
    """Cut at each sixteenth: every complete event is there, and the cut is an issue."""
    text = path.read_bytes()
    for part in range(1, 16):
        cut = tmp_path / f"cut{part}.json"
        cut.write_bytes(text[: len(text) * part // 16])
        try:
            [trace] = traceconv.open(str(cut)).traces()
        except TraceconvError:
            assert _complete(cut.read_text("utf-8", "ignore")) == 0
            continue
        read = sum(
            n for (stage, kind), n in trace.ledger.items() if stage == "read" and kind == "slice"
        )
        assert read == _complete(cut.read_text("utf-8", "ignore"))
        told = ("truncated", "unclosed-array", "skipped-bytes")
        assert sum(trace.issues.count(code) for code in told) > 0


def _complete(text):
    """Complete slices before the end of a cut array, by the standard decoder."""
    decoder, at, found = json.JSONDecoder(), text.find("{"), 0
    while at >= 0:
        try:
            event, end = decoder.raw_decode(text, at)
        except ValueError:
            return found
        found += event.get("ph") == "X"
        at = text.find("{", end)
    return found


def test_the_compute_tasks_and_operators_of_level1(tmp_path):
    """187 compute tasks and 4 communication operators, as the data's README counts."""
    [trace] = traceconv.open(str(SAMPLE)).traces()
    device = trace.rows_of(Layer.DEVICE)
    assert int((trace.events.op[device] == OpClass.COMPUTE).sum()) == 187
    assert int((trace.events.op == OpClass.COMM).sum()) == 4

"""Perfetto and trace-event files of the field: what ``data/field/README.md`` says is right."""

import gzip
import json

import numpy as np
import pytest
from paths import DATA

import traceconv
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import Kind

HUB, HARD = DATA / "field/hub", DATA / "field/hard"


def lone(path):
    """The only rank of a capture, as it is in the source."""
    [trace] = traceconv.open(str(path)).traces()
    return trace


def slices(trace):
    """(name, start, duration) of all slices."""
    rows = trace.events.take(trace.events.kind == Kind.SLICE)
    columns = (rows.name, rows.start_ns, rows.dur_ns)
    return [
        (trace.strings[n], start, dur)
        for n, start, dur in zip(*(c.tolist() for c in columns), strict=True)
    ]


def test_flows_of_the_older_format_are_arrows():
    trace = lone(HUB / "legacy_flow/legacy_flow.pftrace")
    names = [trace.strings[n] for n in trace.events.name.tolist()]
    ends = zip(trace.flows.src.tolist(), trace.flows.dst.tolist(), strict=True)
    assert [(names[a], names[b]) for a, b in ends] == [("src", "dst")]


def test_states_of_threads_last():
    assert slices(lone(HUB / "thread_states/ts.json")) == [
        ("Running", 1_000_000, 5_000_000),
        ("S", 6_000_000, 10_000_000),
    ]


def test_a_manifest_moves_the_times_of_a_file():
    first, second = traceconv.open(str(HUB / "foreign_manifest/job.zip")).traces()
    assert slices(first) == [("step", 1_000_000, 100_000)]
    assert slices(second) == [("step", 500_000, 100_000)]
    assert [one.capture.host for one in (first, second)] == ["rank 0", "rank 1"]


def test_the_whole_range_is_no_step():
    table = traceconv.stats(str(HUB / "own_json_read_back/orig.json"), by="overlap")["overlap"]
    assert round(float(table["Idle(ns)"][0]) / 1e9, 3) == 2.780
    assert round(float(table["Known(ns)"][0]) / 1e9, 3) == 2.964


def test_every_event_is_read_despite_commas_at_the_end():
    trace = lone(HUB / "trailing_comma_in_object/1e9ee452cc07.json")
    assert len(trace.events) == 2


def test_a_file_without_events_says_what_is_in_it():
    with pytest.raises(MalformedInputError, match="only ftrace_events"):
        list(traceconv.open(str(HUB / "ftrace_only/2a19f72d3adb.pftrace")).traces())


def test_a_tar_of_zstd_is_an_archive():
    pytest.importorskip("zstandard")
    ranks = [traceconv.open(str(HUB / f"tar_zst/r.tar.{e}")).traces() for e in ("gz", "zst")]
    assert [[slices(t) for t in one] for one in ranks] == [
        [[("rank0 work", 1_000_000, 100_000)], [("rank1 work", 1_001_000, 100_000)]]
    ] * 2


def test_a_clock_beyond_32_bits_is_counted():
    trace = lone(HARD / "perfetto_clock_id_overflow/clock_sync_gpu.pftrace")
    assert trace.issues.count("malformed-record") == 1
    assert len(trace.counters)


def test_convert_keeps_what_the_target_can_hold(tmp_path):
    """Categories, processes, threads, thread times, scopes and colours."""
    path = HUB / "chrome_fields/named.json"
    report = traceconv.convert(str(path), str(tmp_path / "out.json"))
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(path.read_text())
    assert [issue.code for issue in report.issues] == ["rank-assumed"]


def test_fields_without_a_column_are_kept_as_arguments(tmp_path):
    """Through the model, into a Perfetto trace and out of it again."""
    path, out = HUB / "chrome_fields/named.json", tmp_path / "out.pftrace"
    traceconv.convert(str(path), str(out))
    trace = lone(out)
    found = [json.loads(trace.args.raw(i) or b"{}") for i in trace.events.args.tolist()]
    kept = {"cat": "net,io", "tdur": 7, "tts": 3, "cname": "good"}
    assert found == [
        {"a": 1, "trace_event": kept},
        {"trace_event": {"cat": "cpu"}},
        {"trace_event": {"cat": "cpu", "s": "g"}},
        {"trace_event": {"cat": "cpu", "s": "p"}},
    ]
    assert [(t.process, t.thread) for t in trace.tracks] == [(4711, 4712), (4800, 4801)]
    assert b"Thread 4801 of process 4800." in out.read_bytes()


@pytest.mark.parametrize("name", ["hta_alexnet_cuda_sync", "hta_ns_rank-0", "hta_mi250"])
def test_a_kineto_file_stays_one(name, tmp_path):
    """What other tools read of it: every event, and what is beside the events."""
    [path] = sorted((DATA / "gpu/kineto").glob(f"{name}*.json.gz"))[:1]
    traceconv.convert(str(path), str(tmp_path / "out.json"))
    found = json.loads((tmp_path / "out.json").read_text())
    assert found == json.loads(gzip.decompress(path.read_bytes()))


def test_what_viewers_of_json_drop_is_counted(tmp_path):
    zero = str(HARD / "json_zero_slices_512/zero.json")
    report = traceconv.convert(zero, str(tmp_path / "out.json"))
    assert report.issues.count("viewer-drops") == 88
    (deep,) = (f for f in traceconv.validate(tmp_path / "out.json").findings if "P16" in f.rule)
    assert deep.count == 88
    assert traceconv.convert(zero, str(tmp_path / "o.pftrace")).issues.count("viewer-drops") == 0


@pytest.mark.parametrize("name", ["min", "minE", "unbalanced-name"])
def test_both_tiers_read_the_same(name, monkeypatch):
    path = HARD / f"source_tier_difference/{name}.json"
    found = []
    for native in ("1", "0"):
        monkeypatch.setenv("TRACECONV_NATIVE", native)
        trace = lone(path)
        issues = sorted((issue.code, issue.count) for issue in trace.issues)
        found.append((slices(trace), issues, np.asarray(trace.events.track).tolist()))
    assert found[0] == found[1]

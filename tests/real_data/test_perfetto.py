"""The checks against Perfetto's own importer, over the small traces it was run on."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from paths import DATA

from traceconv.core.errors import MalformedInputError, TraceconvError
from traceconv.validation import RULES, Decoded, Severity, decode, validate

PERFETTO = DATA / "perfetto"
LISTED = 40
"""The expectations list this many slices, arrows and arguments at most."""

CASES = sorted(p.name.removesuffix(".expect.json") for p in PERFETTO.glob("*.expect.json"))
ZSTD = {"2_zst_frames", "zst_whole", "zstd_compressed_packets_133"}
"""Compressed with zstd, which the standard library cannot unpack before Python 3.14."""

HAS_ZSTD = any(
    importlib.util.find_spec(name)
    for name in ("zstandard", "backports.zstd", "compression.zstd")
    if importlib.util.find_spec(name.split(".")[0])
)


def trace_of(case: str) -> Path:
    if case in ZSTD and not HAS_ZSTD:
        pytest.skip("zstd needs the package zstandard, which is not installed")
    (path,) = (
        p
        for p in PERFETTO.iterdir()
        if p.name.startswith(f"{case}.") and not p.name.endswith(".expect.json")
    )
    return path


def expected(case: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((PERFETTO / f"{case}.expect.json").read_text())
    return document


REFUSED = [case for case in CASES if "error" in expected(case)]
LOADED = [case for case in CASES if case not in REFUSED]


@pytest.mark.parametrize("case", LOADED)
def test_slices_equal_the_importers(case: str) -> None:
    """Name, category, time, duration, depth and track of every listed slice are the importer's."""
    rows = decode(trace_of(case)).rows
    wanted = expected(case).get("slices", [])
    want = Counter(
        (s.get("name", ""), s.get("category", ""), s["ts"], s["dur"], s["depth"]) for s in wanted
    )
    names = [re.sub("[\udc80-\udcff]", "", name) for name in rows.name]  # the listing dropped them
    columns = (rows.ts.tolist(), rows.dur.tolist(), rows.depth.tolist())
    got = Counter(zip(names, rows.category, *columns, strict=True))
    assert len(rows) == expected(case)["n_slices"]
    assert want <= got if len(wanted) == LISTED else want == got


@pytest.mark.parametrize("case", LOADED)
def test_tracks_equal_the_importers(case: str) -> None:
    """Slices share a track exactly where they do in the importer; type, name, pid and tid agree."""
    trace = decode(trace_of(case))
    rows, wanted = trace.rows, expected(case).get("slices", [])
    ours: dict[tuple[Any, ...], list[int]] = {}
    for i in range(len(rows)):
        key = (
            re.sub("[\udc80-\udcff]", "", rows.name[i]),
            int(rows.ts[i]),
            int(rows.dur[i]),
            int(rows.depth[i]),
        )
        ours.setdefault(key, []).append(int(rows.track_id[i]))
    pairs: dict[int, set[int]] = {}
    for s in wanted:
        found = ours[s.get("name", ""), s["ts"], s["dur"], s["depth"]]
        same = [t for t in found if described(trace, t) == described_by(case, s)]
        assert same, s
        pairs.setdefault(s["track_id"], set(same)).intersection_update(same)
    chosen = one_each(pairs)
    assert len(set(chosen.values())) == len(pairs)


def described(trace: Decoded, track: int) -> tuple[Any, ...]:
    row = trace.tracks[track]
    return (row.name, row.type, row.pid, row.tid)


def described_by(case: str, s: dict[str, Any]) -> tuple[Any, ...]:
    name = s.get("track", "") if s["track_type"] != "thread_execution" else ""
    if case == "json_pid_tid_strings_negative_float_huge" and s["pid"] == 53998:
        return (name, s["track_type"], "Rank 0", "Stream 1")  # the importer's numbers are arbitrary
    return (name, s["track_type"], s.get("pid"), s.get("tid"))


def one_each(options: dict[int, set[int]]) -> dict[int, int]:
    """A different choice for every key, if there is one (the sets are tiny)."""
    chosen: dict[int, int] = {}
    for key in sorted(options, key=lambda k: len(options[k])):
        free = options[key] - set(chosen.values())
        if free:
            chosen[key] = min(free)
    return chosen


@pytest.mark.parametrize("case", LOADED)
def test_counters_equal_the_importers(case: str) -> None:
    """Track, unit, time and value of every counter sample are the importer's."""
    trace = decode(trace_of(case))
    c = trace.counters
    rows = [trace.tracks[t] for t in c.track_id]
    got = Counter(
        (row.name, row.unit, int(ts), float(v))
        for row, ts, v in zip(rows, c.ts, c.value, strict=True)
    )
    want = Counter(
        (s["track"], s.get("unit", ""), s["ts"], s["value"])
        for s in expected(case).get("counters", [])
    )
    assert want == got


@pytest.mark.parametrize("case", LOADED)
def test_flows_equal_the_importers(case: str) -> None:
    """Every arrow leads from and to the slices the importer connects."""
    trace = decode(trace_of(case))
    names = trace.rows.name
    ends = zip(trace.flows.source, trace.flows.target, strict=True)
    got = Counter((names[a], names[b]) for a, b in ends)
    wanted = expected(case).get("flows", [])
    want = Counter((f["src"], f["dst"]) for f in wanted)
    assert want <= got if len(wanted) == LISTED else want == got


@pytest.mark.parametrize("case", LOADED)
def test_statistics_equal_the_importers(case: str) -> None:
    """The importer's statistics, of every severity it reports, are counted the same."""
    want = {s["name"]: s["value"] for s in expected(case).get("stats", [])}
    assert want == {name: n for name, n in decode(trace_of(case)).stats.items() if n}


@pytest.mark.parametrize("case", LOADED)
def test_arguments_equal_the_importers(case: str) -> None:
    """Keys, types and values of every listed argument are the importer's."""
    trace = decode(trace_of(case))
    wanted = [a for a in expected(case).get("args", []) if a["flat_key"] != "upid"]
    got: Counter[tuple[Any, ...]] = Counter()
    for i in range(len(trace.rows)):
        for a in trace.rows.arguments(i):
            flat = re.sub(r"\[\d+\]", "", a.key)
            value = str(a.value).lower() if a.kind == "bool" else str(a.value)
            got[trace.rows.name[i], flat, a.kind, value] += 1
    want = Counter((a["slice"], a["flat_key"], a["value_type"], a.get("value", "")) for a in wanted)
    assert want <= got if len(expected(case).get("args", [])) == LISTED else want == got


@pytest.mark.parametrize("case", LOADED)
def test_bad_statistics_are_findings(case: str) -> None:
    """Each error or data loss of the importer is a finding of that severity, so not ok."""
    severities = {"error": Severity.ERROR, "data_loss": Severity.LOSS}
    verdict = validate(trace_of(case))
    found = {f.rule: f.count for f in verdict.findings}
    for stat in expected(case).get("stats", []):
        if stat["severity"] not in severities:
            continue
        (rule,) = (
            rule
            for rule, row in RULES.items()
            if stat["name"] in row.stats and row.severity == severities[stat["severity"]]
        )
        assert stat["value"] <= found[rule], stat["name"]
        assert not verdict.ok


@pytest.mark.parametrize("case", REFUSED)
def test_refused_files(case: str) -> None:
    """What the importer refuses as a whole is refused here, with the reason as a finding."""
    verdict = validate(trace_of(case))
    assert verdict.refused
    assert [f.severity for f in verdict.findings if f.severity == "error"] == [Severity.ERROR]
    with pytest.raises(MalformedInputError):
        decode(trace_of(case))


GOOD = {
    "64_bit_flow_id",
    "annotations",
    "arrow_direction_follows_time",
    "fan_out_with_distinct_ids",
    "flow_a_b_c_term_reuse_d_e",
    "gpu",
    "gz_member_split_mid_packet",
    "gz_whole",
    "incremental_clock_64_expect_a_1005_10_b_1016_2",
    "instants",
    "json_flow_s_f_bp_e_at_slice_start",
    "json_zero_dur_identical",
    "multi_rank_layout",
    "no_clock_snapshot_at_all_epoch_ns",
    "same_tid_in_two_pids",
    "snapshot_realtime_boottime_at_t",
    "state",
    "uuid_2_63",
    "zip_json_proto",
    "zip_manifest_offset_500us_machines",
}


@pytest.mark.parametrize("case", sorted(GOOD & set(CASES)))
def test_good_traces_are_ok(case: str) -> None:
    """A trace without a fault gets no finding that matters."""
    verdict = validate(trace_of(case))
    assert tuple(f for f in verdict.findings if f.severity not in ("info", "notice")) == ()
    assert verdict.ok


SILENT = {
    "overlap_same_thread_track_end_named": {"P16-end", "P17-crossing", "P17-misplaced"},
    "unmatched_end_unclosed_begin": {"P16-end", "P16-open"},
    "missing_parent_uuid_undeclared_track_uuid": {"P14-parent", "P15-track"},
    "unknown_name_iid": {"P04-id"},
    "pid_0_process": {"P11-zero"},
    "two_uuids_for_the_same_tid": {"P13-twice"},
    "flow_pair_single_ended_term_only": {"P20-unbound"},
    "incremental_with_negative_delta_two_complement": {"P07-delta", "P16-end", "P16-open"},
    "json_nan_in_args": {"J16-args"},
    "json_surrogate_in_args_only": {"J16-args"},
    "json_args_big_int_2_63_1e400": {"J16-args"},
    "json_lone_surrogate_less_invalid_utf8": {"P22-value"},
    "json_flow_f_without_bp_e": {"P20-unbound"},
    "json_ts_precision_at_epoch_us_expect_000123_001999": {"J16-ts-grid"},
}


@pytest.mark.parametrize("case", sorted(SILENT.keys() & set(CASES)))
def test_silent_faults_are_found(case: str) -> None:
    """Faults that the importer accepts without a word are findings all the same."""
    verdict = validate(trace_of(case))
    bad = {f.rule for f in verdict.findings if f.severity in ("error", "loss", "silent")}
    assert SILENT[case] == bad
    assert not verdict.ok


@pytest.mark.parametrize("case", CASES)
def test_cut_traces_end_in_a_verdict_or_a_named_error(case: str, tmp_path: Path) -> None:
    """Every trace cut at each sixteenth gives a verdict or one of our errors, nothing else."""
    path = trace_of(case)
    whole = path.read_bytes()
    for i in range(1, 16):
        cut = tmp_path / path.name
        cut.write_bytes(whole[: len(whole) * i // 16])
        try:
            validate(cut)
        except TraceconvError:
            continue

"""The checks against Perfetto's own importer, over the small traces it was run on."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from paths import DATA

from traceconv.core.errors import TraceconvError
from traceconv.validation import RULES, Severity, validate

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
def test_counts_equal_the_importers(case: str) -> None:
    """As many slices, counter samples and arrows as the importer has."""
    counts, want = validate(trace_of(case)).counts, expected(case)
    assert counts["slices"] + counts["instants"] == want["n_slices"]
    assert counts["counters"] == len(want.get("counters", []))
    assert min(counts["flows"], LISTED) == len(want.get("flows", []))


STATISTICS = {
    "clock_sync_failure_undeferrable_packet_loss": "P08-lost",
    "clock_sync_failure_unknown_source_clock": "P08-clock",
    "clock_sync_unrelatable_clock_domains": "P08-domains",
    "flow_invalid_id": "J16-flow",
    "json_parser_failure": "J16-event",
    "json_tokenizer_failure": "J16-event",
    "misplaced_end_event": "P17-misplaced",
    "slice_negative_duration": "J16-event",
    "slice_spill_overlapping_complete_event": "J16-overlap",
    "trace_sorter_negative_timestamp_dropped": "P07-negative",
    "track_event_counter_invalid_track_uuid": "P18-counter",
    "track_event_counter_missing_value": "P18-counter",
    "track_event_missing_sequence_id": "P02-event",
    "track_event_missing_timestamp": "P06-timestamp",
}
"""The importer's statistics, and the rule whose findings count them."""


@pytest.mark.parametrize("case", LOADED)
def test_bad_statistics_are_findings(case: str) -> None:
    """Each error or data loss of the importer is a finding of that severity, so not ok."""
    severities = {"error": Severity.ERROR, "data_loss": Severity.LOSS}
    verdict = validate(trace_of(case))
    found = {f.rule: f.count for f in verdict.findings}
    for stat in expected(case).get("stats", []):
        if stat["severity"] not in severities:
            continue
        rule = STATISTICS[stat["name"]]
        assert RULES[rule].severity == severities[stat["severity"]]
        assert stat["value"] <= found[rule], stat["name"]
        assert not verdict.ok


@pytest.mark.parametrize("case", REFUSED)
def test_refused_files(case: str) -> None:
    """What the importer refuses as a whole is refused here, with the reason as a finding."""
    verdict = validate(trace_of(case))
    assert verdict.refused
    assert [f.severity for f in verdict.findings if f.severity == "error"] == [Severity.ERROR]


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
    "json_args_big_int_2_63_1e400": {"J16-args", "J16-number"},
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


@pytest.mark.sample(3)
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

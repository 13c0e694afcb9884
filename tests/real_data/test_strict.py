"""``--strict`` on every capture: only those that lack something, or were broken, end in 4."""

import pytest
from effort import THOROUGH, effort
from paths import DATA

import traceconv
from tests.recompute.__main__ import captures

LACKING = {
    # 77 tasks without an end, and the files of the device's clock
    # and tasks of AI cores without an operator
    "ascend/mindinsight/JOB3": {
        "missing-duration", "unfinished-slice", "clock-assumed", "unclassified-tasks",
    },
    "ascend/mindinsight/JOB_AICPU": {"clock-assumed"},
    # two devices, each with a counter of its own
    "ascend/mindinsight/cluster_propose": {"unaligned"},
    # a task of a collective without times; tasks whose type is the name of an operator
    "ascend/msinsight/server/src/test/test_data/full_db": {"bad-time", "unclassified-tasks"},
    "ascend/msinsight/server/src/test/test_data/heatMap": {"unclassified-tasks"},
    # a row that lacks a cell; its operators take less time than the vendor's steps compute
    "ascend/msinsight/server/src/test/test_data/test_kernel_parse": {
        "malformed-record", "operators-missing",
    },
    "ascend/msinsight/server/src/test/test_data/test_rank_0": {
        "malformed-record", "operators-missing",
    },
    # a name with quotes, which make the file invalid
    "gpu/paddle/host_vmpid_32098": {"repaired-record"},
    # broken on purpose
    "gpu/chrome_edge/end-event-with-empty-stack": {"end-without-begin"},
    "gpu/chrome_edge/not-enough-end-events": {"unfinished-slice"},
    "gpu/chrome_edge/only-begin-events": {"unfinished-slice"},
    "gpu/chrome_edge/simple-partial": {"unclosed-array"},
    "gpu/chrome_edge/too-many-end-events": {"end-without-begin"},
    # two kinds of mark under one id
    "hub/perfetto/legacy_async": {"track-conflict"},
    # parts of a split output; an arrow of which a part has one end
    "hub/perfetto_own": {"details-lost", "flow-split"},
    # ranks by the order of processes
    "hub/rocpd/convert": {"rank-derived"},
    "hub/perfetto_producers/rocpd_convert_2proc": {"rank-derived"},
    # made to hold what a profiler dropped, and events without a name; the folder above holds
    # captures of several jobs
    "hub/xplane/made": {"name-unknown", "source-dropped", "unclassified-tasks"},
    "hub/xplane": {
        "jobs-mixed", "name-unknown", "source-dropped", "unaligned", "rank-derived",
        "unclassified-tasks",
    },
    "perfetto/json_bad": {"bad-time", "missing-duration", "unknown-phase"},
    "perfetto/json_lone_surrogate": {"bad-encoding"},
    "perfetto/json_nan_in_args": {"args-not-json"},
    "perfetto/json_negative_ts": {"negative-duration"},
    "perfetto/json_raw_control_char": {"args-not-json"},
    # made of stamps near zero and of today
    "perfetto/json_ts_precision_at_epoch": {"far-stamp"},
    "perfetto/json_truncated_array": {"unclosed-array"},
    "perfetto/json_truncated_object": {"truncated"},
    "perfetto/counters": {"counter-not-numeric", "track-unknown"},
    "perfetto/incremental_with_negative_delta": {"end-without-begin", "unfinished-slice"},
    "perfetto/interned_data_without_cleared": {"interned-unknown", "missing-name", "state-lost"},
    "perfetto/missing_parent_uuid": {"track-unknown"},
    "perfetto/overlap_same_global_custom_track_end_named": {"end-without-begin"},
    "perfetto/overlap_same_thread_track_end_named": {"end-without-begin"},
    "perfetto/unknown_name_iid": {"interned-unknown", "missing-name"},
    "perfetto/unmatched_end_unclosed_begin": {"end-without-begin", "unfinished-slice"},
}  # fmt: skip
"""Losses and doubts by how the paths of captures begin."""


@pytest.mark.parametrize("family", ["ascend", "gpu", "hub", "perfetto"])
def test_only_captures_that_lack_something_are_refused(tmp_path, family):
    """By their codes; captures without a single event are another matter. The usual run takes every
    twelfth file and folder.
    """
    refused = {}
    for path in captures(sorted((DATA / family).rglob("*"))[:: effort(12, 1)]):
        try:
            traceconv.merge(str(path), out=str(tmp_path / "x.pftrace"), mode="detail", force=True,
                            strict=True, jobs=1)  # fmt: skip
        except traceconv.EmptyResultError:
            continue
        except traceconv.StrictError as error:
            codes = {one.code for one in error.report.issues if one.severity != "info"}
            place = path.relative_to(DATA).as_posix()
            begins = next((one for one in LACKING if place.startswith(one)), place)
            refused.setdefault(begins, set()).update(codes)
    lacking = {p: codes for p, codes in LACKING.items() if p.startswith(family)}
    if THOROUGH:
        assert refused == lacking
    assert [p for p, codes in refused.items() if not codes <= lacking.get(p, set())] == []

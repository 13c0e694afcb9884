"""Which of the files in a PROF folder are read, for what, and by which clock."""

import pytest
from ascend_files import (
    MONOTONIC_US,
    OUTPUT,
    PROF,
    PROF_LATER,
    UNIX_US,
    Folder,
    events,
    op_counts,
    read,
    steps,
)

import traceconv
from traceconv.core.clock import Domain
from traceconv.core.model import Layer, OpClass


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def export(folder, name, content=None, prof=PROF):
    return folder.add(f"{prof}/mindstudio_profiler_output/{name}", content or events())


def timeline(folder, name, content, device=0):
    return folder.add(f"{PROF}/device_{device}/timeline/{name}", content)


def test_only_the_newest_export_is_read(folder):
    """The user exported twice; the older one is known and booked."""
    export(folder, "msprof_20250301080103.json")
    export(folder, "msprof_20250302080103.json")
    export(folder, "msprof_tx_20250303080103.json")
    (found,) = folder.find("msprof")
    assert [n.rpartition("/")[2] for n in found.files] == ["msprof_20250302080103.json"]
    assert (len(found.known), folder.codes()) == (2, ["superseded-export"])


def test_slices_of_one_run_may_carry_different_times(folder):
    """Slices are one export as long as their numbers rise with their times."""
    for name in ("0_20250301080103", "1_20250301080109", "2_20250301080109"):
        export(folder, f"msprof_slice_{name}.json")
    for name in ("0_20250302080103", "1_20250302080104"):
        export(folder, f"msprof_slice_{name}.json")
    (found,) = folder.find("msprof")
    assert [n.rpartition("/")[2] for n in found.files] == [
        "msprof_slice_0_20250302080103.json",
        "msprof_slice_1_20250302080104.json",
    ]
    assert folder.issues.count("superseded-export") == 3


def test_zero_byte_exports_are_booked(folder):
    """Names without content make an empty trace with an issue."""
    folder.add(f"{PROF}/mindstudio_profiler_output/msprof_20250301080103.json", "")
    (found,) = folder.find("msprof")
    assert [i.code for i in read(found).issues] == ["empty-file"]


def test_single_export_reads_nothing_twice(folder):
    """One file per iteration; side files and repeated step traces are left."""
    for i in (1, 2):
        timeline(folder, f"msprof_0_2_{i}.json", events(MONOTONIC_US + 100 * i))
        timeline(folder, f"hccl_0_2_{i}.json", events(MONOTONIC_US + 100 * i))
        timeline(folder, f"step_trace_0_2_{i}.json", steps(1, 2, ts=MONOTONIC_US))
    timeline(folder, "task_time_0_2_3.json", events(MONOTONIC_US + 300))
    (found,) = folder.find("msprof")
    trace = read(found)
    assert [n.rpartition("/")[2] for n in found.files] == [
        "step_trace_0_2_1.json",
        "msprof_0_2_1.json",
        "msprof_0_2_2.json",
        "task_time_0_2_3.json",
    ]
    assert op_counts(trace) == {OpClass.ITERATION: 2, OpClass.COMPUTE: 3}
    assert (set(trace.events.graph.tolist()), len(trace.windows)) == ({2}, 3)
    assert (found.graphs, folder.issues.count("repeated-content")) == ((2,), 3)


def test_single_export_without_a_graph(folder):
    """4294967295 in a file name is no graph."""
    timeline(folder, "msprof_0_4294967295_1.json", events(MONOTONIC_US))
    (found,) = folder.find("msprof")
    assert (found.graphs, read(found).events.graph.tolist()) == ((), [-1])


def test_step_traces_that_go_on_are_all_read(folder):
    """Files that begin with different iterations are parts, not copies."""
    timeline(folder, "msprof_0_2_1.json", events(MONOTONIC_US))
    for i in (1, 2):
        timeline(folder, f"step_trace_0_2_{i}.json", steps(i, ts=MONOTONIC_US))
    (found,) = folder.find("msprof")
    assert op_counts(read(found))[OpClass.ITERATION] == 2


def test_devices_of_a_single_export_are_captures_of_their_own(folder):
    """Each device folder has its own rank."""
    for device in (0, 1):
        timeline(folder, f"msprof_{device}_2_1.json", events(MONOTONIC_US), device)
        folder.add(f"{PROF}/device_{device}/info.json.{device}", {"rank_id": 4 + device})
    found = folder.find("msprof")
    assert [(c.rank, c.device) for c in found] == [(4, 0), (5, 1)]
    assert [c.known for c in found] == [(f"{PROF}/device_{d}/info.json.{d}",) for d in (0, 1)]


def test_minus_one_is_no_rank(folder):
    """Without ranks, device and host are what tells captures apart."""
    for device, prof in enumerate((PROF, PROF_LATER)):
        export(folder, "msprof_20250301080103.json", prof=prof)
        info = {"rank_id": -1, "hostname": "node", "devices": str(device), "pid": "12"}
        folder.add(f"{prof}/device_{device}/info.json.{device}", info)
    found = [(c.rank, c.host, c.device, c.pid) for c in folder.find("msprof")]
    assert found == [(None, "node", 0, 12), (None, "node", 1, 12)]


def test_profiler_info_speaks_for_a_folder_only_if_there_is_one(folder):
    """One file beside two PROF folders cannot say which of them it means."""
    for prof in (PROF, PROF_LATER):
        export(folder, "msprof_20250301080103.json", prof=prof)
    folder.add("profiler_info_5.json", {"rank_size": 8})
    assert [c.rank for c in folder.find("msprof")] == [None, None]


def test_prof_folders_of_one_process_are_windows(folder):
    """A process that profiled twice filled two folders."""
    for k, prof in enumerate((PROF, PROF_LATER)):
        export(folder, "msprof_20250301080103.json", events(UNIX_US + k * 100), prof=prof)
        folder.add(f"{prof}/device_0/info.json.0", {"rank_id": 0, "pid": "12"})
    (trace,) = traceconv.open(str(folder.root)).traces()
    assert (len(trace.capture.files), len(trace.windows)) == (2, 2)


def test_monotonic_stamps_are_tied_to_unix_time_by_start_info(folder):
    """The anchor pairs the raw clock with the wall clock of the same moment."""
    timeline(folder, "msprof_0_2_1.json", events(MONOTONIC_US))
    start = {"collectionTimeBegin": "1692340024324979", "clockMonotonicRaw": "56579931060630"}
    folder.add(f"{PROF}/device_0/start_info.0", start)
    (found,) = folder.find("msprof")
    assert found.clock.domain == Domain.MONOTONIC
    assert found.clock.evidence == "start_info.0"
    assert found.clock.offset_ns == 1692340024324979000 - 56579931060630


def test_diff_time_is_subtracted(folder):
    """Where nothing else ties the clock, the merger's own difference does, with its sign."""
    timeline(folder, "msprof_0_2_1.json", events(MONOTONIC_US))
    folder.add("profiler_info_0.json", {"diff_time": 12.5})
    (found,) = folder.find("msprof")
    assert (found.rank, found.clock.offset_ns) == (0, -12500)


def test_unix_stamps_need_no_anchor(folder):
    """start_info is of no use to stamps that already count from 1970."""
    export(folder, "msprof_20250301080103.json")
    start = {"collectionTimeBegin": "1692340024324979", "clockMonotonicRaw": "56579931060630"}
    folder.add(f"{PROF}/device_0/start_info.0", start)
    (found,) = folder.find("msprof")
    assert (found.clock.domain, found.clock.offset_ns) == (Domain.UNIX, 0)


def test_what_mindspore_derived_belongs_to_the_prof_folder(folder):
    """Files beside it with its rank show the same run; those of other ranks do not."""
    export(folder, "msprof_20250301080103.json")
    folder.add(f"{PROF}/device_0/info.json.0", {"rank_id": 1})
    folder.add("ascend_timeline_display_1.json", [])
    folder.add("step_trace_raw_1_detail_time.csv", "x")
    folder.add("ascend_timeline_display_2.json", [])
    folder.add("host_info/timeline_1.json", [])
    (found,) = folder.find("msprof")
    assert found.files[-1] == "host_info/timeline_1.json"
    assert set(found.known) == {
        f"{PROF}/device_0/info.json.0",
        "ascend_timeline_display_1.json",
        "step_trace_raw_1_detail_time.csv",
    }
    assert folder.codes() == ["repeated-content"]


def test_host_timeline_is_moved_to_the_clock_of_the_device(folder):
    """The host writes Unix time; the anchor of the 2023 export puts it beside the kernels."""
    timeline(folder, "msprof_0_2_1.json", events(MONOTONIC_US))
    folder.add(f"{PROF}/device_0/info.json.0", {"rank_id": 0})
    start = {"collectionTimeBegin": str(UNIX_US), "clockMonotonicRaw": str(MONOTONIC_US * 1000)}
    folder.add(f"{PROF}/device_0/start_info.0", start)
    host = [{"name": "a::b", "ph": "X", "ts": UNIX_US + 7, "dur": 1, "pid": "5", "tid": "6"}]
    folder.add("host_info/timeline_0.json", host)
    trace = read(folder.find("msprof")[0])
    mine = trace.events.take(trace.rows_of(Layer.HOST))
    assert mine.start_ns.tolist() == [(MONOTONIC_US + 7) * 1000]


def test_records_of_the_host_go_before_the_timeline_made_of_them(folder):
    """They hold all of it, and memory; an empty file of them does not."""
    export(folder, "msprof_20250301080103.json")
    folder.add(f"{PROF}/device_0/info.json.0", {"rank_id": 0})
    host = [{"name": "a::b", "ph": "X", "ts": UNIX_US + 7, "dur": 1, "pid": "5", "tid": "6"}]
    folder.add("host_info/timeline_0.json", host).add("host_info/host_info_0.csv", "")
    assert folder.find("msprof")[0].files[-1] == "host_info/timeline_0.json"
    heading = "tid,pid,parent_pid,module_name,event,stage,level,start_end,custom_info,"
    text = f"{heading}memory_usage(kB),time_stamp(us)\n6,5,1,m,a,b,1,2,,64,{UNIX_US + 7}\n"
    folder.add("host_info/host_info_0.csv", text)
    (found,) = folder.find("msprof")
    assert found.files[-1] == "host_info/host_info_0.csv"
    trace = read(found)
    mine = trace.events.take(trace.rows_of(Layer.HOST))
    assert (mine.start_ns.tolist(), len(trace.counters)) == ([(UNIX_US + 7) * 1000], 1)


def test_a_framework_database_stands_for_its_prof_folder(folder):
    """It holds the device's events and the framework's."""
    export(folder, "msprof_20250301080103.json", prof=f"h_ascend_pt/{PROF}")
    folder.add(f"h_ascend_pt/{OUTPUT}/ascend_pytorch_profiler_0.db", "SQLite")
    assert folder.find("msprof") == []


def test_prof_folder_of_a_capture_without_timeline(folder):
    """If the framework never exported, CANN's own export is read, with the capture's rank."""
    export(folder, "msprof_20250301080103.json", prof=f"h_ascend_pt/{PROF}")
    folder.add("h_ascend_pt/profiler_info_5.json", {"rank_id": 5})
    folder.add("h_ascend_pt/FRAMEWORK/torch.op_range", "raw")
    (found,) = folder.find("msprof")
    assert (found.rank, folder.codes()) == (5, ["unused-file"])
    assert found.known == (
        "h_ascend_pt/FRAMEWORK/torch.op_range",
        "h_ascend_pt/profiler_info_5.json",
    )


def test_lone_files_are_known_by_their_first_bytes(folder):
    """A renamed timeline is recognised; JSON of others, and our own, is left alone."""
    folder.add("renamed.json", events()).add("other.json", [{"ph": "X", "name": "CANN"}])
    folder.add("ours.json", {"metadata": {"traceconv": {}}, "traceEvents": events()})
    assert [c.files for c in folder.find("msprof")] == [("renamed.json",)]


def test_files_merged_by_older_viewers_hold_a_capture_per_rank(folder):
    """Processes are called "Ascend Hardware Rank1"; lanes without a rank go to the first."""
    merged = []
    for pid, name in ((40, "Ascend Hardware Rank0"), (41, "Ascend Hardware Rank1"), (1, "CANN")):
        merged.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
        merged.append({"ph": "X", "name": "op", "pid": pid, "tid": 1, "ts": UNIX_US, "dur": pid})
    folder.add("merged.json", merged)
    found = folder.find("msprof")
    assert [(c.rank, c.rank_from) for c in found] == [(0, "process names"), (1, "process names")]
    assert [sorted(read(c).events.dur_ns.tolist()) for c in found] == [[1000, 40000], [41000]]


def test_step_tables_name_the_graphs(folder):
    """Graphs are listed without reading events; text of a float is fine, no graph is not one."""
    export(folder, "msprof_20250301080103.json")
    rows = "Iteration ID,Model ID\n1,2.0\n1,4294967295\n2,11\n"
    export(folder, "step_trace_20250301080103.csv", rows)
    (found,) = folder.find("msprof")
    assert found.graphs == (2, 11)


def test_absurd_rows_of_a_step_table_are_booked(folder):
    """Step numbers and times that no column can hold cost their row only."""
    export(folder, "msprof_20250301080103.json")
    head = "Iteration ID,FP Start(us),BP End(us),Iteration End(us),Iteration Time(us),Model ID"
    huge = "9223372036854775"
    rows = (
        f"99999999999,N/A,N/A,{UNIX_US},3,3\n{'9' * 5000},N/A,N/A,{UNIX_US},3,3\n"
        f"1,N/A,N/A,-{huge},{huge},3\n2,N/A,N/A,5,{huge},3\n"
        f"3,-{huge},{huge},{UNIX_US},3,3\n4,N/A,N/A,{UNIX_US},3,3\n"
    )
    export(folder, "step_trace_20250301080103.csv", f"{head}\n{rows}")
    trace = read(folder.find("msprof")[0])
    names = {trace.strings[n] for n in trace.events.name.tolist()}
    assert {"Iteration 3", "Iteration 4"} <= names
    assert "Iteration 2" not in names  # 292 years long
    lost = [(i.code, i.count) for i in trace.issues if i.file.endswith(".csv")]
    assert lost == [("malformed-record", 2), ("bad-time", 3), ("negative-duration", 1)]


def test_step_tables_are_read_where_no_file_brings_a_step_trace(folder):
    """Columns that are called alike are read by position; N/A is absent."""
    export(folder, "msprof_20250301080103.json")
    head = "Iteration ID,FP Start(us),BP End(us),Iteration End(us),Iteration Time(us),Model ID"
    reduces = ",Reduce Start(us),Reduce Duration(us),Reduce Start(us),Reduce Duration(us)"
    first = f"1,{UNIX_US}.001\t,{UNIX_US}.5,{UNIX_US + 2},2.001,3"
    second = f"2,N/A,N/A,{UNIX_US + 5},3,3"
    rows = f"{head}{reduces}\n{first},{UNIX_US}.25,0.5,{UNIX_US + 1},0.125\n{second},N/A,N/A,,\n"
    export(folder, "step_trace_20250301080103.csv", rows)
    trace = read(folder.find("msprof")[0])
    steps_only = trace.events.take(trace.rows_of(Layer.STEP))
    base = UNIX_US * 1000
    assert [
        (trace.strings[n], s - base, d)
        for n, s, d in zip(
            steps_only.name.tolist(),
            steps_only.start_ns.tolist(),
            steps_only.dur_ns.tolist(),
            strict=True,
        )
    ] == [
        ("Iteration 1", -1, 2001),
        ("FP_BP Time 1", 1, 499),
        ("Reduce_1_0", 250, 500),
        ("Iteration Refresh 1", 500, 1500),
        ("Reduce_1_1", 1000, 125),
        ("Iteration 2", 2000, 3000),
    ]
    assert steps_only.graph.tolist() == [3] * 6


def test_one_broken_file_of_many_is_booked(folder):
    """The other files are read all the same."""
    timeline(folder, "msprof_0_2_1.json", events(MONOTONIC_US))
    timeline(folder, "msprof_0_2_2.json", "no JSON at all")
    (found,) = folder.find("msprof")
    trace = read(found)
    assert (len(trace.events), trace.issues.count("malformed-record")) == (1, 1)


def test_cores_and_clock_of_a_device_are_known(tmp_path):
    """Of the device that a capture is of."""
    folder = Folder(tmp_path)
    devices = [{"id": n, "ai_core_num": 20 + n, "aic_frequency": str(1000 + n)} for n in (0, 1)]
    info = {"rank_id": 0, "platform_version": "5", "DeviceInfo": devices}
    folder.add(f"{PROF}/device_1/info.json.1", info)
    folder.add(f"{PROF}/mindstudio_profiler_output/msprof_20240101000000.json", events())
    (capture,) = folder.find("msprof")
    names = read(capture).hints.device_names
    assert names == {1: "Ascend chip 5: 21 cores at 1001 MHz"}

"""Folders of old MindSpore: what is read for events, how clocks are tied, nothing shown twice."""

import numpy as np
import pytest
from ascend_files import Folder, read

import traceconv
from traceconv.core.clock import Domain
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import Kind, Layer, OpClass

RECORDS = (
    "tid,pid,parent_pid,module_name,event,stage,level,start_end,custom_info,"
    "memory_usage(kB),time_stamp(us)\n"
)
UNIX_US = 1_700_000_000_000_000
STEPS = (
    "step_num,start_point,end_point,total,fp_point,bp_point,iteration_interval,fp_and_bp,tail,"
    "stream_8_0_AllReduce-op1_start_point,stream_8_0_AllReduce-op1_end_point,"
    "stream_8_0_AllReduce-op1\n"
)
OPERATORS = "op_name, stream_id, start_time(ms), duration(ms)\n"


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def step(number, start, end, reduce=None):
    """A line of the step table: everything starts at ``start``, backward ends in the middle."""
    fp, bp = start, (start + end) // 2
    a, b = reduce or (bp, bp + 1)
    cells = [number, start, end, end - start, fp, bp, 0, bp - fp, end - bp, a, b, b - a]
    return ",".join(map(str, cells)) + "\n"


def record(mark, at, event="Task", tid=7, memory=0, **more):
    cells = {"pid": 5, "parent": 1, "module": "M", "stage": "Run", "level": 1, "custom": ""}
    cells |= more
    return (
        f"{tid},{cells['pid']},{cells['parent']},{cells['module']},{event},{cells['stage']},"
        f"{cells['level']},{mark},{cells['custom']},{memory},{UNIX_US + at if at else 0}\n"
    )


def one(folder):
    (found,) = folder.find("mindspore")
    return read(found)


def rows(trace, *layers):
    """(name, start, end) of the rows on some layers, in ns."""
    events = trace.events
    chosen = np.flatnonzero(trace.rows_of(*layers)).tolist()
    return [
        (trace.strings[events.name[i]], int(events.start_ns[i]), int(events.end_ns[i]))
        for i in chosen
    ]


def issues(trace):
    return {issue.code: issue.count for issue in trace.issues}


# -- the host's records -------------------------------------------------------------------


def host(trace):
    """Rows of the host, ns after the first stamp."""
    return [(n, a - UNIX_US * 1000, b - UNIX_US * 1000) for n, a, b in rows(trace, Layer.HOST)]


def test_a_start_and_the_next_end_are_a_slice(folder):
    """Threads of one process do not mix; the worked example of the format's description."""
    text = RECORDS + record(0, 100, tid=77) + record(1, 160, tid=77) + record(0, 150, tid=78)
    trace = one(folder.add("host_info/host_info_3.csv", text))
    assert host(trace) == [("Task::Run", 100_000, 160_000), ("Task::Run", 150_000, 160_000)]
    assert issues(trace) == {"unfinished-slice": 1}
    assert [trace.args[i].get("unfinished") for i in trace.events.args.tolist()] == [None, True]


def test_a_start_that_comes_again_ends_the_first(folder):
    """The profiler's own timeline loses the first."""
    text = RECORDS + record(0, 10) + record(0, 20) + record(1, 30) + record(1, 40)
    trace = one(folder.add("host_info/host_info_0.csv", text))
    assert host(trace) == [("Task::Run", 10_000, 20_000), ("Task::Run", 20_000, 30_000)]
    assert issues(trace) == {"end-without-begin": 1, "unfinished-slice": 1}


def test_records_carry_what_they_say(folder):
    """Module, level, notes; the parent as the timeline has it."""
    text = RECORDS + record(2, 10, custom='"{{a:1},{b:2}}"', module="Dataset", level=0)
    trace = one(folder.add("host_info/host_info_0.csv", text))
    assert trace.events.kind.tolist() == [Kind.INSTANT]
    assert trace.args[int(trace.events.args[0])] == {
        "parent_pid": "1",
        "module": "Dataset",
        "level": "0",
        "custom_info": "{{a:1},{b:2}}",
    }


def test_memory_is_a_counter_per_process(folder):
    """Samples without a time are booked."""
    text = RECORDS + record(2, 10, memory=64) + record(2, 20, memory=32, pid=6)
    trace = one(folder.add("host_info/host_info_0.csv", text + record(2, 0, memory=1)))
    lanes = [(t.group, t.name, t.unit) for t in trace.tracks if t.is_counter]
    assert lanes == [(f"Process {p}", "Resident Memory", "KB") for p in (5, 6)]
    assert (trace.counters.value.tolist(), issues(trace)) == ([64.0, 32.0], {"bad-time": 1})


def test_a_clock_set_back_is_booked(folder):
    """An end before its start is no slice."""
    text = RECORDS + record(0, 30) + record(1, 20) + record(2, 40)
    trace = one(folder.add("host_info/host_info_0.csv", text))
    assert host(trace) == [("Task::Run", 40_000, 40_000)]
    assert issues(trace) == {"negative-duration": 1}


def test_the_timeline_made_of_the_records_is_read_without_them(folder):
    """Both show the same; the records hold more."""
    made = [{"name": "a::b", "ph": "X", "ts": UNIX_US, "dur": 1, "pid": "5", "tid": "7",
             "args": {"parent_pid": "1"}}]  # fmt: skip
    folder.add("host_info/timeline_0.json", made)
    assert [name for name, *_ in rows(one(folder), Layer.HOST)] == ["a::b"]
    folder.add("host_info/host_info_0.csv", RECORDS + record(2, 5))
    (found,) = folder.find("mindspore")
    assert (found.files, found.known) == (
        ("host_info/host_info_0.csv",),
        ("host_info/timeline_0.json",),
    )


def test_memory_alone(folder):
    """``host_memory`` is the part of the records with memory; it is read if they are gone."""
    folder.add("host_info/host_memory_0.csv", RECORDS + record(2, 5, memory=9))
    trace = one(folder)
    assert (trace.counts()["counter"], trace.counts()["instant"]) == (1, 0)


def test_records_given_by_their_folder(folder):
    """The folder of the host's files may be given itself."""
    folder.add("host_info/host_info_2.csv", RECORDS + record(2, 5))
    (found,) = folder.find("mindspore", "host_info")
    assert (found.rank, found.clock.domain) == (2, Domain.UNIX)


@pytest.mark.parametrize("below", ["", "host_info", "host_info/timeline_*.json"])
def test_ranks_of_the_host_do_not_depend_on_what_is_named(folder, monkeypatch, below):
    """The folder above, the folder itself, or a pattern; also from within."""
    made = {"name": "Run", "ph": "X", "ts": UNIX_US, "dur": 3, "pid": "5", "tid": "7"}
    for rank in (0, 3):
        folder.add(f"profiler/host_info/timeline_{rank}.json", [made])  # nothing else names it
    place = folder.root / "profiler" / below
    names = [str(place)]
    if place.is_dir():
        monkeypatch.chdir(place)
        names.append(".")
    for name in names:
        found = traceconv.open(name).found
        assert [(c.rank, c.reader) for c in found] == [(0, "mindspore"), (3, "mindspore")]


def test_records_beside_a_device_are_left(folder):
    """Nothing ties Unix time to the counter of the device."""
    folder.add("host_info/host_info_0.csv", RECORDS + record(2, 5))
    folder.add("step_trace_raw_0_detail_time.csv", STEPS + step(1, 100, 200))
    (found,) = folder.find("mindspore")
    assert found.files == ("step_trace_raw_0_detail_time.csv",)
    assert folder.codes() == ["unused-file"]


# -- steps and operators ------------------------------------------------------------------


def test_a_row_of_the_step_table_is_a_step(folder):
    """Ticks are 10 ns; the row numbered "-" is the average of the others."""
    text = STEPS + step(1, 100, 200) + step(2, 200, 320) + step("-", 200, 320)
    trace = one(folder.add("step_trace_raw_4_detail_time.csv", text))
    assert rows(trace, Layer.STEP) == [
        ("Iteration 1", 1000, 2000),
        ("FP_BP Time 1", 1000, 1500),
        ("Iteration Refresh 1", 1500, 2000),
        ("Iteration 2", 2000, 3200),
        ("FP_BP Time 2", 2000, 2600),
        ("Iteration Refresh 2", 2600, 3200),
    ]
    assert rows(trace, Layer.COMM) == [
        ("stream_8_0_AllReduce-op1", 1500, 1510),
        ("stream_8_0_AllReduce-op1", 2600, 2610),
    ]
    assert (trace.rank, issues(trace)) == (4, {"metadata-unused": 1})


def test_the_first_step_may_be_numbered_nought_only_at_the_end(folder):
    """An average is called "0" by some versions; it is the last row."""
    trace = one(
        folder.add("step_trace_raw_0_detail_time.csv", STEPS + step(0, 5, 9) + step(1, 9, 20))
    )
    assert trace.events.step[trace.events.op == OpClass.ITERATION].tolist() == [0, 1]


def test_inference_has_no_backward(folder):
    """Then there is an interval before the forward pass, and no tail."""
    text = (
        "step_num,start_point,end_point,total,fp_point,iteration_interval,fp\n1,10,30,20,14,4,16\n"
    )
    trace = one(folder.add("step_trace_raw_0_detail_time.csv", text))
    assert rows(trace, Layer.STEP) == [
        ("Iteration 1", 100, 300),
        ("Iteration Interval 1", 100, 140),
    ]


@pytest.mark.parametrize("bad", ["x,10,30,", "2,,30,", "3,10,99999999999999999999,"])
def test_rows_without_a_number_or_times_are_booked(folder, bad):
    """The others are read."""
    text = STEPS + bad + "," * 8 + "\n" + step(7, 40, 50)
    trace = one(folder.add("step_trace_raw_0_detail_time.csv", text))
    assert [name for name, *_ in rows(trace, Layer.STEP)][:1] == ["Iteration 7"]
    assert issues(trace)["malformed-record"] == 1


def test_a_step_that_ends_before_it_starts_is_booked(folder):
    """Part by part."""
    trace = one(folder.add("step_trace_raw_0_detail_time.csv", STEPS + step(1, 50, 40, (45, 44))))
    assert (len(trace.events), issues(trace)) == (0, {"negative-duration": 4})


def test_costs_of_collectives_are_their_arguments(folder):
    """By step and operator; what cannot be read is booked."""
    cell = '"{""stream_8_0_AllReduce-op1"": [""1"", 0.25, 1e-05, {}]}"'
    costs = "step_num,communication_cost,wait_cost,link_info,communication_operator_cost\n"
    folder.add("hccl_raw_0.csv", costs + f'1,0.25,1e-05,{{}},{cell}\n2,0,0,{{}},"{{broken"\n')
    folder.add("step_trace_raw_0_detail_time.csv", STEPS + step(1, 10, 20) + step(2, 20, 30))
    trace = one(folder)
    args = [trace.args[i] for i in trace.events.args[trace.rows_of(Layer.COMM)].tolist()]
    assert args == [{"communication_cost(ms)": 0.25, "wait_cost(ms)": 1e-05}, {}]
    assert issues(trace) == {"malformed-record": 1}


def test_operators_keep_every_digit(folder):
    """Milliseconds with five decimals are ticks."""
    text = OPERATORS + "Default/a/Add-op1,519,438068.41592,0.00266\nMEMCPY_ASYNC,7,1.5,0.1\n"
    trace = one(folder.add("output_timeline_data_1.txt", text))
    assert rows(trace, Layer.DEVICE) == [
        ("MEMCPY_ASYNC", 1_500_000, 1_600_000),
        ("Add-op1", 438_068_415_920, 438_068_418_580),
    ]
    assert trace.events.op.tolist() == [OpClass.COPY, OpClass.COMPUTE]
    assert trace.args[int(trace.events.args[1])] == {"fullname": "Default/a/Add-op1"}


def test_operators_without_a_time_are_booked(folder):
    """And those of negative length."""
    text = OPERATORS + "a,1,N/A,1\nb,1,2,-1\nc,1,3,1\n"
    trace = one(folder.add("output_timeline_data_1.txt", text))
    assert [name for name, *_ in rows(trace, Layer.DEVICE)] == ["c"]
    assert issues(trace) == {"bad-time": 1, "negative-duration": 1}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("output_timeline_data_1.txt", "a,b\n1,2\n"),
        ("output_data_preprocess_aicpu_1.txt", "no table\n"),
        ("host_info/host_info_1.csv", "tid,pid,parent_pid,x\n1,2,3,4\n"),
        ("step_trace_raw_1_detail_time.csv", "a,b\n1,2\n"),
    ],
)
def test_a_file_without_its_headings_is_refused(folder, name, text):
    """Nothing in it can be read."""
    (found,) = folder.add(name, text).find("mindspore")
    with pytest.raises(MalformedInputError, match=r"missing|no column"):
        read(found)


def test_a_broken_file_leaves_the_others(folder):
    """It is booked."""
    folder.add("output_timeline_data_1.txt", "a,b\n1,2\n")
    trace = one(folder.add("step_trace_raw_1_detail_time.csv", STEPS + step(1, 10, 20)))
    assert (len(trace.events), issues(trace)) == (4, {"malformed-record": 1})


def test_operators_of_the_ai_cpu(folder):
    """Those that wait for data do not compute; sums below the table are none."""
    rule = "-" * 3 + "  " + "-" * 14 + "  " + "-" * 9 + "  " + "-" * 8
    text = f"""num  node_type_name  run_start  run_end
{rule}
1    InitData        2298200409  2298200538
2    TopK            2298200600  2298200601
AI CPU Total Time(ms):  4.122000
"""
    trace = one(folder.add("output_data_preprocess_aicpu_0.txt", text))
    assert rows(trace, Layer.DEVICE) == [
        ("InitData", 2298200409000, 2298200538000),
        ("TopK", 2298200600000, 2298200601000),
    ]
    assert trace.events.op.tolist() == [OpClass.WAIT, OpClass.COMPUTE]
    assert issues(trace) == {}


@pytest.mark.parametrize(
    "rule", ["", "--- --------- --------- -------\n", "----  ----  ----  ----\n"]
)
def test_an_ai_cpu_table_separated_by_single_blanks(folder, rule):
    """Headings are where words are, not where a rule says; the last line needs no end."""
    text = f"num node_type_name run_start run_end\n{rule}1 TopK 2298200600 2298200601\n"
    text += "AI CPU Total Time(ms): 4.122000"
    trace = one(folder.add("output_data_preprocess_aicpu_0.txt", text))
    assert rows(trace, Layer.DEVICE) == [("TopK", 2298200600000, 2298200601000)]
    assert issues(trace) == {}


def test_operators_of_the_host(folder):
    """Starts in ns, durations in ms: the worked example of the format's description."""
    text = "Default/Add-op1;Add;1000000,0.5,77 2000000,0.25,77\nx;y;1,2\n"
    trace = one(folder.add("cpu_op_execute_timestamp_0.txt", text))
    assert rows(trace, Layer.HOST) == [
        ("Default/Add-op1", 1_000_000, 1_500_000),
        ("Default/Add-op1", 2_000_000, 2_250_000),
    ]
    assert [t.name for t in trace.tracks] == ["Thread 77"]
    assert issues(trace) == {"malformed-record": 1}


# -- display file and tables --------------------------------------------------------------


def display(*slices):
    """Operators of AI Core: (name, us, us)."""
    return [
        {"name": name, "ph": "X", "tid": 3, "ts": ts, "dur": dur, "pid": 0,
         "args": {"fullname": f"Default/{name}"}}
        for name, ts, dur in slices
    ]  # fmt: skip


def test_what_the_display_file_shows_is_not_shown_again(folder):
    """Its first operator ties the clocks; what it lacks comes from the table."""
    folder.add("ascend_timeline_display_0.json", display(("a", 0.0, 2.5), ("b", 2.77000002, 0.1)))
    table = OPERATORS + "Default/a,3,7.0,0.0025\nDefault/b,3,7.00277,0.0001\nDefault/c,3,9,1\n"
    trace = one(folder.add("output_timeline_data_0.txt", table))
    assert rows(trace, Layer.DEVICE) == [
        ("a", 7_000_000, 7_002_500),
        ("b", 7_002_770, 7_002_870),
        ("c", 9_000_000, 10_000_000),
    ]
    assert issues(trace)["repeated-content"] == 2


def test_the_first_stamp_may_be_named_by_a_file(folder):
    """``min_cycle_counter`` holds ticks."""
    folder.add("timeline_display_0.json", display(("a", 0.0, 2.5)))
    folder.add("min_cycle_counter_0.txt", "700.5")
    trace = one(folder.add("step_trace_raw_0_detail_time.csv", STEPS + step(1, 700, 900)))
    assert rows(trace, Layer.DEVICE) == [("a", 7005, 9505)]
    assert rows(trace, Layer.STEP)[0] == ("Iteration 1", 7000, 9000)


def test_steps_of_the_display_file_give_way(folder):
    """The step table knows forward, backward and tail."""
    steps = [{"name": "1", "ph": "X", "tid": 100000, "ts": 0.0, "dur": 2.0, "pid": 0}]
    folder.add("timeline_display_0.json", steps + display(("a", 0.0, 2.5)))
    folder.add("min_cycle_counter_0.txt", "700")
    trace = one(folder.add("step_trace_raw_0_detail_time.csv", STEPS + step(1, 700, 900)))
    names = [name for name, *_ in rows(trace, Layer.STEP)]
    assert names == ["Iteration 1", "FP_BP Time 1", "Iteration Refresh 1"]


def test_without_a_tie_the_display_file_stands_alone(folder):
    """Its clock begins with its first event."""
    folder.add("timeline_display_0.json", display(("a", 0.0, 2.5)))
    folder.add("step_trace_raw_0_detail_time.csv", STEPS + step(1, 700, 900))
    (found,) = folder.find("mindspore")
    assert (found.files, folder.codes()) == (("timeline_display_0.json",), ["unused-file"])
    assert read(found).events.start_ns.tolist() == [0]


# -- what makes a capture -----------------------------------------------------------------


def test_tables_alone_are_a_capture_without_events(folder):
    """One per rank in their names; analyses read them."""
    folder.add("flops_2.txt", "full_kernel_name, FLOPs\na, 5\n")
    folder.add("ascend_cluster_analyse_model-parallel_1_2_3.csv", "computation\n1.5\n")
    found = {c.rank: c for c in folder.find("mindspore")}
    assert {rank: (c.files, tuple(c.tables)) for rank, c in found.items()} == {
        2: ((), ("flops",)),
        3: ((), ("cluster_analyse",)),
    }
    trace = read(found[2])
    assert (trace.counts()["slice"], trace.side_tables["flops"]["FLOPs"].tolist()) == (0, [5])


def test_profiler_info_of_old_mindspore_is_a_capture(folder):
    """It says who ran, and how many; that of newer tools belongs to their own files."""
    folder.add("a/profiler_info_0.json", {"context_mode": "graph", "rank_id": "0", "rank_size": 4})
    folder.add("b/profiler_info_0.json", {"config": {}, "rank_id": 0})
    (found,) = folder.find("mindspore")
    assert (found.known, found.world_size) == (("a/profiler_info_0.json",), 4)


def test_tables_beside_raw_data_are_left_to_its_reader(folder):
    """So that a rank is not claimed twice."""
    folder.add("flops_0.txt", "full_kernel_name, FLOPs\na, 5\n")
    folder.add("JOBABC/data/hwts.log.data.45.dev.profiler_default_tag.slice_0", "raw")
    assert folder.find("mindspore") == []


def test_tables_of_newer_exports_are_not_taken(folder):
    """They lie in the folder of a capture of their own."""
    text = "op_id,op_type\n0,Batch\n"
    folder.add("h_ascend_ms/ASCEND_PROFILER_OUTPUT/minddata_pipeline_raw_0.csv", text)
    assert folder.find("mindspore") == []


def test_the_queue_is_a_timeline_where_nothing_else_is(folder):
    """Its stamps are ms of the host; lines that are too short are booked."""
    text = "0 2 1 10 90010\n0 0 1 6 90010\n0 1 1 4 90010\n1 64 1 3 90010\n1 64\n"
    trace = one(folder.add("device_queue_profiling_0.txt", text))
    assert trace.capture.clock.domain is Domain.MONOTONIC
    assert sorted(rows(trace, Layer.HOST)) == [
        ("Batch 1", 90_000_000_000, 90_010_000_000),
        ("Get from Pipeline 1", 90_004_000_000, 90_010_000_000),
        ("Push to Device 1", 90_006_000_000, 90_010_000_000),
    ]
    assert (trace.counters.value.tolist(), issues(trace)) == ([3.0], {"malformed-record": 1})


def test_the_queue_beside_a_device_is_a_table(folder):
    """Its clock is not the device's."""
    folder.add("device_queue_profiling_0.txt", "1 64 1 3 90010\n")
    folder.add("step_trace_raw_0_detail_time.csv", STEPS + step(1, 700, 900))
    trace = one(folder)
    assert (len(trace.counters), len(trace.side_tables["device_queue_profiling"])) == (0, 1)

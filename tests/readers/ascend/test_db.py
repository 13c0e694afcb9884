"""Ascend databases: small ones, written for one test, that show one thing each."""

import json
import sqlite3

import numpy as np
import pytest

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Domain
from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.model import Layer, OpClass
from traceconv.io.sources import sources
from traceconv.readers.ascend.db.reader import READER

NOW = 1_740_816_000_000_000_000
NONE = 4294967295
OUTPUT = "ASCEND_PROFILER_OUTPUT"
PROF = "PROF_000001_20250301080000123_ABCDEFGH"
WORDS = (
    "AI_CORE", "MatMul", "hcom_allReduce__1_0_1", "world", "SDMA", "launch", "aten::mm", "Memcpy",
    "KERNEL_AIVEC", "PROFILING_ENABLE", "HCCL", "read", "Enqueue", "Dequeue@mm",
    "reduceAicpuKernel", "MsTx",
)  # fmt: skip
ID = {word: i for i, word in enumerate(WORDS)}


class Tables(dict):
    """Rows of a database, by table; each row by column."""

    def add(self, table, **row):
        self.setdefault(table, []).append(row)
        return self

    def task(self, start, end, kind="AI_CORE", **row):
        """One task on stream 2 of device 0, at ns after NOW."""
        number = len(self.get("TASK", ()))
        common = {
            "startNs": NOW + start, "endNs": NOW + end, "deviceId": 0, "connectionId": number,
            "globalTaskId": 100 + number, "globalPid": 7, "taskType": ID[kind], "contextId": NONE,
            "streamId": 2, "taskId": number, "modelId": NONE,
        }  # fmt: skip
        return self.add("TASK", **{**common, **row})

    def kernel(self, start, end, name="MatMul", kind="AI_CORE", **row):
        """A task with an operator."""
        self.task(start, end, "KERNEL_AIVEC", **row)
        return self.add(
            "COMPUTE_TASK_INFO", globalTaskId=self["TASK"][-1]["globalTaskId"], name=ID[name],
            taskType=ID[kind], opType=ID[name],
        )  # fmt: skip

    def call(self, start, end, connection, name="launch", kind=10000):
        """A call of CANN on thread 9 of process 7."""
        return self.add(
            "CANN_API", startNs=NOW + start, endNs=NOW + end, type=kind,
            globalTid=(7 << 32) + 9, connectionId=connection, name=ID[name],
        )  # fmt: skip

    def operation(self, start, end, connection=NONE, **row):
        """A whole communication operation."""
        common = {"opName": ID["hcom_allReduce__1_0_1"], "groupName": ID["world"]}
        times = {"startNs": NOW + start, "endNs": NOW + end, "connectionId": connection}
        return self.add("COMMUNICATION_OP", **{**common, **times, **row})

    def write(self, path, strings=True):
        """The database; columns are those of each table's first row."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with sqlite3.connect(path) as db:
            if strings:
                db.execute("CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT)")
                db.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", enumerate(WORDS))
            for table, rows in self.items():
                db.execute(f"CREATE TABLE {table} ({', '.join(rows[0])})")
                marks = ", ".join("?" * len(rows[0]))
                db.executemany(
                    f"INSERT INTO {table} VALUES ({marks})", [tuple(r.values()) for r in rows]
                )
        db.close()
        return path


def find(root, names=None):
    """The captures below a folder, and what was noticed."""
    (source,) = sources([str(root)])
    issues = Issues()
    return READER.find(source, names or source.names(), issues), issues


def read(capture):
    build = TraceBuilder(capture)
    READER.read(capture, build)
    return build.finish()


@pytest.fixture
def trace_of(tmp_path):
    """Writes a framework's database and reads it back."""

    def made(tables, name="ascend_pytorch_profiler_0.db"):
        (capture,) = find(tables.write(tmp_path / name))[0]
        return read(capture)

    return made


def rows(trace, layer):
    """Name, start after NOW, duration and class of the slices of a layer."""
    events = trace.events.take(trace.rows_of(layer))
    return [
        (trace.strings[n], s - NOW, d, OpClass(o))
        for n, s, d, o in zip(
            events.name, events.start_ns.tolist(), events.dur_ns.tolist(), events.op, strict=True
        )
    ]


def arrows(trace):
    """Category, and the starts of both ends after NOW."""
    start = trace.events.start_ns - NOW
    return sorted(
        (trace.strings[n], int(start[s]), int(start[d]))
        for n, s, d in zip(trace.flows.name, trace.flows.src, trace.flows.dst, strict=True)
    )


def args(trace, name):
    (row,) = [i for i, n in enumerate(trace.events.name.tolist()) if trace.strings[n] == name]
    return trace.args[trace.events.args[row]]


def samples(trace):
    return {
        (t.group, t.name, t.unit): trace.counters.value[trace.counters.track == i].tolist()
        for i, t in enumerate(trace.tracks)
        if t.is_counter
    }


# -- tasks ----------------------------------------------------------------------------------


def test_only_tasks_with_an_operator_compute(trace_of):
    """A kernel without one, a copy and a parent of subtasks are something else."""
    tables = Tables().kernel(0, 10).task(20, 30).task(40, 50, "SDMA").task(60, 70, "HCCL")
    assert [row[::3] for row in rows(trace_of(tables), Layer.DEVICE)] == [
        ("MatMul", OpClass.COMPUTE),
        ("AI_CORE", OpClass.UNCLASSIFIED),
        ("SDMA", OpClass.COPY),
        ("HCCL", OpClass.COMM_TASK),
    ]


def test_kernels_of_communication_do_not_compute(trace_of):
    """By the type of the task, by the ending of its name, by the table they stand in."""
    tables = Tables().kernel(0, 10, kind="HCCL").kernel(20, 30, "reduceAicpuKernel").task(40, 50)
    tables.add("COMMUNICATION_SCHEDULE_TASK_INFO", globalTaskId=102, name=ID["MatMul"])
    assert [row[::3] for row in rows(trace_of(tables), Layer.DEVICE)] == [
        ("MatMul", OpClass.COMM_TASK),
        ("reduceAicpuKernel", OpClass.COMM_TASK),
        ("MatMul", OpClass.COMM_TASK),
    ]


def test_graph_of_a_task(trace_of):
    """4294967295 is none; communication has that of the task with its connection."""
    tables = Tables().kernel(0, 10, modelId=5, connectionId=3).kernel(20, 30).operation(40, 50, 3)
    assert trace_of(tables).events.graph.tolist() == [5, -1, 5]


def test_what_the_operator_says_goes_along(trace_of):
    """Ids of the task, names of the operator, readings of its counters; NULL says nothing."""
    tables = Tables().kernel(0, 10, connectionId=77)
    tables["COMPUTE_TASK_INFO"][0] |= {"blockNum": 8, "blockDim": ID["world"], "inputShapes": None}
    tables.add("TASK_PMU_INFO", globalTaskId=100, name=ID["read"], value=0.25)
    tables.add("TASK_PMU_INFO", globalTaskId=555, name=ID["read"], value=0.5)
    trace = trace_of(tables)
    assert args(trace, "MatMul") == {
        "Task Id": 0, "Subtask Id": NONE, "connection_id": 77, "Model Id": NONE,
        "Task Type": "AI_CORE", "Physic Stream Id": 2, "Op Type": "MatMul", "Block Num": 8,
        "read": 0.25,
    }  # fmt: skip
    assert trace.issues.count("metadata-unused") == 1


def test_devices_are_told_apart(trace_of):
    """Several in one database: a group for each; of a single one there is no word."""
    one = trace_of(Tables().kernel(0, 10, deviceId=3), "one.db")
    two = trace_of(Tables().kernel(0, 10, deviceId=3).kernel(0, 10, deviceId=4), "two.db")
    assert [t.group for t in one.tracks] == [""]
    assert [t.group for t in two.tracks] == ["NPU 3", "NPU 4"]


# -- communication --------------------------------------------------------------------------


def part(tables, task, group="world", plane=1, **row):
    return tables.add(
        "COMMUNICATION_TASK_INFO", globalTaskId=task, name=ID["hcom_allReduce__1_0_1"],
        taskType=ID["Memcpy"], planeId=plane, groupName=ID[group], **row,
    )  # fmt: skip


def test_parts_lie_on_the_planes_of_their_group(trace_of):
    """With the times of their tasks, which stay on their streams."""
    tables = part(Tables().task(5, 9, "SDMA").operation(0, 10), 100, size=4000, notifyId=-1)
    trace = trace_of(tables)
    lanes = [(t.title, t.group, t.name) for t in trace.tracks if t.layer is Layer.COMM]
    assert lanes == [
        ("Communication", "Group world", "Group world Communication"),
        ("Communication", "Group world", "Plane 1"),
    ]
    assert rows(trace, Layer.COMM) == [
        ("hcom_allReduce__1_0_1", 0, 10, OpClass.COMM),
        ("Memcpy", 5, 4, OpClass.COMM_TASK),
    ]
    assert args(trace, "Memcpy")["bandwidth(GB/s)"] == 1000


def test_part_without_a_task_is_booked(trace_of):
    """It has no time."""
    trace = trace_of(part(Tables().task(5, 9, "SDMA"), 555))
    assert (trace.issues.count("bad-time"), trace.ledger["lost", "slice"]) == (1, -1)


@pytest.mark.parametrize(("parts", "found"), [(1, [5, 25, 45]), (2, [5, 25]), (3, [5, 25, 45])])
def test_task_that_runs_often_under_one_id(trace_of, parts, found):
    """In graph mode: the k-th part belongs to the k-th run, a lone one to every run."""
    tables = Tables()
    for start in (5, 25, 45):
        tables.task(start, start + 3, "SDMA", globalTaskId=100)
    for _ in range(parts):
        part(tables, 100)
    assert [row[1] for row in rows(trace_of(tables), Layer.COMM)] == found


def test_addresses_do_not_name_groups(tmp_path):
    """Groups called after a host's address are numbered, in the order of time."""
    tables = Tables().operation(20, 30, groupName=900).operation(0, 10, groupName=901)
    path = tables.write(tmp_path / "ascend_pytorch_profiler_0.db")
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO STRING_IDS VALUES (900, '192.0.2.7%eth0_60000_0_174')")
        db.execute("INSERT INTO STRING_IDS VALUES (901, '192.0.2.8%eth0_60000_0_174')")
    db.close()
    trace = read(find(path)[0][0])
    start = dict(zip(trace.events.track.tolist(), trace.events.start_ns.tolist(), strict=True))
    assert {t.name: start[i] - NOW for i, t in enumerate(trace.tracks)} == {
        "Group 0 Communication": 0,
        "Group 1 Communication": 20,
    }


def test_title_is_that_of_the_time(trace_of):
    """What is called Communication today was called HCCL."""
    tables = Tables().operation(0, 10).add("ENUM_API_TYPE", id=5500, name="hccl")
    assert [t.title for t in trace_of(tables).tracks] == ["HCCL"]


# -- the host -------------------------------------------------------------------------------


def operator(tables, start, end, name="aten::mm", thread=9, kind=50001, **row):
    return tables.add(
        "PYTORCH_API", startNs=str(NOW + start), endNs=str(NOW + end),
        globalTid=(7 << 32) + thread, name=ID[name], type=kind,
        **{"connectionId": None, "sequenceNumber": -1, "fwdThreadId": 0, **row},
    )  # fmt: skip


def test_times_as_text_are_exact(trace_of):
    """19 digits, to the nanosecond."""
    trace = trace_of(operator(Tables(), 1, 2**40 + 1))
    assert rows(trace, Layer.HOST) == [("aten::mm", 1, 2**40, OpClass.HOST)]


def test_framework_is_called_by_its_name(trace_of):
    """As the file name says."""
    tables = operator(Tables(), 0, 1)
    assert trace_of(tables, "ascend_mindspore_profiler_0.db").tracks[0].title == "MindSpore"


def test_call_is_named_after_its_layer(trace_of):
    """As in the JSON export; kinds it has no word for stand as they are."""
    tables = Tables().call(0, 1, 1).call(2, 3, 2, kind=5).call(4, 5, 3, kind=6)
    tables.add("ENUM_API_TYPE", id=10000, name="node").add("ENUM_API_TYPE", id=5, name="dpu")
    names = [row[0] for row in rows(trace_of(tables), Layer.RUNTIME)]
    assert names == ["Node@launch", "dpu@launch", "launch"]


def test_rows_of_another_process_stand_apart(trace_of):
    """Threads of the process the tasks are of have no group."""
    tables = operator(Tables().kernel(0, 10), 0, 1)
    operator(tables, 0, 1)["PYTORCH_API"][1]["globalTid"] = (8 << 32) + 9
    groups = [t.group for t in trace_of(tables).tracks if t.layer is Layer.HOST]
    assert groups == ["", "Process 8"]


def test_steps_make_the_step_trace(trace_of):
    """With their numbers, named like the framework's marks."""
    tables = Tables().kernel(5, 10).add("STEP_TIME", id=50, startNs=NOW, endNs=NOW + 40)
    trace = trace_of(tables)
    assert rows(trace, Layer.STEP) == [("ProfilerStep#50", 0, 40, OpClass.ITERATION)]
    assert trace.events.step.tolist() == [50, -1]


# -- arrows ---------------------------------------------------------------------------------


def test_call_points_at_what_it_launched(trace_of):
    """At tasks; at a whole operation instead of its tasks; at subtasks instead of their parent."""
    tables = Tables().kernel(20, 30, connectionId=1).call(0, 1, 1)
    tables.task(40, 60, connectionId=2, taskId=9).task(41, 59, "SDMA", connectionId=2, contextId=0)
    part(tables.operation(41, 59, 2).call(2, 3, 2), 102)
    tables.task(70, 90, connectionId=3, taskId=5).call(4, 5, 3)
    tables.kernel(71, 89, connectionId=3, taskId=5, contextId=0)
    assert arrows(trace_of(tables)) == [
        ("HostToDevice", 0, 20),
        ("HostToDevice", 2, 41),
        ("HostToDevice", 4, 71),
    ]


def test_kernel_nobody_launched_is_booked(trace_of):
    """Its call lies outside the file; tasks that need no call are none of it."""
    tables = Tables().kernel(20, 30, connectionId=1).task(40, 50, "PROFILING_ENABLE")
    trace = trace_of(tables.call(0, 1, 99))
    assert (trace.issues.count("flow-without-end"), trace.ledger["lost", "flow"]) == (1, -1)


def test_without_calls_nothing_is_missed(trace_of):
    """Where no calls were collected there are no arrows to lose."""
    assert trace_of(Tables().kernel(20, 30)).issues.count("flow-without-end") == 0


def test_operator_points_at_its_kernels(trace_of):
    """Through the table of connections; the work queue has arrows of its own."""
    tables = Tables().kernel(20, 30, connectionId=5).kernel(40, 50, connectionId=6)
    operator(tables, 0, 9, connectionId=70)
    operator(tables, 1, 2, "Enqueue", connectionId=71, kind=50002)
    operator(tables, 3, 4, "Dequeue@mm", thread=10, connectionId=72, kind=50002)
    for number, connection in ((70, 5), (70, 6), (71, 900), (72, 900)):
        tables.add("CONNECTION_IDS", id=number, connectionId=connection)
    assert arrows(trace_of(tables)) == [
        ("async_npu", 0, 20),
        ("async_npu", 0, 40),
        ("async_task_queue", 1, 3),
    ]


def test_backward_follows_the_innermost_forward(trace_of):
    """Of one sequence number, on another thread, the first backward operator."""
    tables = operator(Tables(), 0, 9, sequenceNumber=4)
    operator(tables, 1, 8, sequenceNumber=4)
    operator(tables, 20, 29, thread=10, sequenceNumber=4, fwdThreadId=1)
    operator(tables, 21, 28, thread=10, sequenceNumber=4, fwdThreadId=1)
    operator(tables, 40, 49, sequenceNumber=5)
    operator(tables, 50, 59, sequenceNumber=5, fwdThreadId=1)
    assert arrows(trace_of(tables)) == [("fwdbwd", 1, 20)]


def test_mark_on_the_device_is_called_as_on_the_host(trace_of):
    """And an arrow joins the two."""
    tables = Tables().task(20, 30, "MsTx", connectionId=4000000001).add(
        "MSTX_EVENTS", startNs=NOW, endNs=NOW + 1, eventType=0, message=ID["world"],
        globalTid=(7 << 32) + 9, domainId=ID["read"], connectionId=4000000001,
    )  # fmt: skip
    trace = trace_of(tables)
    assert [row[0] for row in rows(trace, Layer.HOST) + rows(trace, Layer.OTHER)] == ["world"] * 2
    assert arrows(trace) == [("MsTx", 0, 20)]


# -- counters -------------------------------------------------------------------------------


def test_bytes_become_the_units_of_the_json(trace_of):
    """MB/s, KB and MB of 1024; per cent as they are."""
    tables = Tables().add("HBM", timestampNs=NOW, bandwidth=2**21, hbmId=1, type=ID["read"])
    tables.add("NPU_MEM", timestampNs=NOW, type=ID["world"], ddr=2048, hbm=4096)
    tables.add("LLC", timestampNs=NOW, llcId=0, mode=ID["read"], hitRate=82.5, throughput=2**20)
    tables.add("MEMORY_RECORD", component=ID["world"], timestamp=NOW, totalAllocated=3 * 2**20)
    assert samples(trace_of(tables)) == {
        ("HBM", "HBM 1/Read", "MB/s"): [2],
        ("LLC", "LLC 0 Read/Hit Rate", "%"): [82.5],
        ("LLC", "LLC 0 Read/Throughput", "MB/s"): [1],
        ("Memory", "world/Total Allocated", "MB"): [3],
        ("NPU MEM", "World/DDR", "KB"): [2],
        ("NPU MEM", "World/HBM", "KB"): [4],
    }


def test_sample_that_is_null_is_none(trace_of):
    """No value, nothing lost; no time, the sample is booked."""
    tables = Tables().add("DDR", timestampNs=NOW, read=None, write=2**20)
    tables.add("DDR", timestampNs=None, read=2**20, write=None)
    trace = trace_of(tables)
    assert samples(trace) == {("DDR", "DDR/Write", "MB/s"): [1]}
    assert trace.ledger == {("read", "counter"): 2, ("lost", "counter"): -1}


def test_memory_of_operators_repeats_the_record(trace_of):
    """Where both are there, the record is enough; else the operators make the same series."""
    alone = Tables().add("OP_MEMORY", allocationTime=NOW, allocationTotalAllocated=2**20)
    assert list(samples(trace_of(alone, "msprof_1.db"))) == [
        ("Memory", "PTA/Total Allocated", "MB")
    ]
    both = alone.add("MEMORY_RECORD", component=ID["world"], timestamp=NOW, totalAllocated=2**20)
    trace = trace_of(both, "msprof_2.db")
    assert list(samples(trace)) == [("Memory", "world/Total Allocated", "MB")]
    assert trace.issues.count("repeated-content") == 1


def test_dies_are_named_only_where_there_are_several(trace_of):
    """Exporters write a number for the only one, too."""
    tables = Tables().add("AICORE_FREQ", timestampNs=NOW, freq=1800, dieId=0)
    assert list(samples(trace_of(tables, "msprof_1.db"))) == [
        ("AI Core Freq", "AI Core Freq", "MHz")
    ]
    tables.add("AICORE_FREQ", timestampNs=NOW, freq=1700, dieId=1)
    assert [name for _, name, _ in samples(trace_of(tables, "msprof_2.db"))] == [
        "AI Core Freq die 0",
        "AI Core Freq die 1",
    ]


# -- finding --------------------------------------------------------------------------------


def capture_folder(root, rank=0, stamp="20250301080000123", **files):
    """A framework's folder with a database of one kernel."""
    folder = root / f"localhost_{40 + rank}_{stamp}_ascend_pt"
    Tables().kernel(0, 10).write(folder / OUTPUT / f"ascend_pytorch_profiler_{rank}.db")
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_folder_says_whose_it_is(tmp_path):
    """Rank by file name, host and process by the folder's name, world by its metadata."""
    info = {"profiler_info_3": {"rank_id": 3}, "profiler_metadata": {
        "ENV_VARIABLES": {"TOKEN": "secret"}, "distributed_args": {"world_size": 8}}}  # fmt: skip
    capture_folder(tmp_path, 3, **info)
    (capture,) = find(tmp_path)[0]
    found = (capture.rank, capture.rank_from, capture.host, capture.pid, capture.world_size)
    assert found == (3, "profiler_info_3.json", "localhost", 43, 8)
    assert len(capture.known) == 2
    assert capture.clock.domain is Domain.UNIX


@pytest.mark.parametrize(("rank", "named"), [(5, "RANK_DEVICE_MAP"), (-1, "")])
def test_rank_of_the_database(tmp_path, rank, named):
    """The table counts before the file's name; -1 is no rank."""
    tables = Tables().kernel(0, 10).add("RANK_DEVICE_MAP", rankId=rank, deviceId=6)
    (capture,) = find(tables.write(tmp_path / "any.dat"))[0]
    assert (capture.rank, capture.rank_from) == (rank if named else None, named)
    assert capture.device == 6


def test_environment_stays_in_the_database(tmp_path):
    """Of META_DATA only what tells of ranks and groups is looked at."""
    metadata = {"ENV_VARIABLES": '{"TOKEN": "secret"}', "distributed_args": '{"rank": 2}'}
    tables = Tables().kernel(0, 10)
    for name, value in metadata.items():
        tables.add("META_DATA", name=name, value=value)
    (capture,) = find(tables.write(tmp_path / "x.db"))[0]
    trace = read(capture)
    assert capture.rank == 2
    assert "secret" not in f"{capture}{trace.notes}{list(trace.strings)}"


def test_every_folder_is_a_capture(tmp_path):
    """Which are windows of one process is not for the reader to say."""
    capture_folder(tmp_path)
    capture_folder(tmp_path, stamp="20250301090000123")
    assert [len(capture.files) for capture in find(tmp_path)[0]] == [1, 1]


def test_a_window_spans_everything_recorded_in_it(tmp_path):
    """Its steps and calls on the host, too, which begin before work on the device."""
    for hour, ns in ((8, 0), (9, 10**9)):
        folder = tmp_path / f"localhost_40_202503010{hour}0000123_ascend_pt" / OUTPUT
        tables = Tables().kernel(ns + 30, ns + 40).call(ns + 10, ns + 20, -1)
        tables.add("STEP_TIME", id=hour, startNs=NOW + ns, endNs=NOW + ns + 50)
        tables.write(folder / "ascend_pytorch_profiler_0.db")
    (trace,) = traceconv.open(str(tmp_path)).traces()
    assert (trace.windows - NOW).tolist() == [[0, 50], [10**9, 10**9 + 50]]


def test_databases_side_by_side(tmp_path):
    """Gathered in one folder, each by its own name; what stands beside them is nobody's."""
    for rank in (0, 1):
        Tables().kernel(0, 10).write(tmp_path / f"ascend_pytorch_profiler_{rank}.db")
    (tmp_path / "profiler_info_7.json").write_text('{"rank_id": 7}')
    captures, _ = find(tmp_path)
    assert [(c.rank, c.known) for c in captures] == [(0, ()), (1, ())]


def test_newest_export_of_a_collection(tmp_path):
    """Older ones are known, and booked."""
    for stamp in (20250301080100, 20250301090000):
        Tables().kernel(0, 10).write(tmp_path / PROF / f"msprof_{stamp}.db")
    (tmp_path / PROF / "device_2").mkdir()
    (tmp_path / PROF / "device_2" / "info.json.2").write_text('{"rank_id": 4, "hostname": "n"}')
    (capture,), issues = find(tmp_path)
    assert capture.files == (f"{PROF}/msprof_20250301090000.db",)
    assert (capture.rank, capture.host, len(capture.known)) == (4, "n", 2)
    assert [i.code for i in issues] == ["superseded-export"]


def test_framework_stands_for_the_collector(tmp_path):
    """Its database holds what that of the PROF folder inside does."""
    folder = capture_folder(tmp_path)
    Tables().kernel(0, 10).write(folder / PROF / "msprof_20250301080100.db")
    (capture,), issues = find(tmp_path)
    assert capture.files[0].endswith("ascend_pytorch_profiler_0.db")
    assert (len(capture.known), [i.code for i in issues]) == (1, ["repeated-content"])


def test_sums_are_known_and_not_read(tmp_path):
    """Beside a capture under any name; alone, they are no capture of this reader."""
    folder = capture_folder(tmp_path)
    Tables().add("StepTraceTime", step="1").write(folder / OUTPUT / "analysis.dat", strings=False)
    (capture,), issues = find(tmp_path)
    assert ([n[-12:] for n in capture.known], list(issues)) == (["analysis.dat"], [])
    captures, issues = find(folder / OUTPUT / "analysis.dat")
    assert (captures, list(issues)) == ([], [])


def test_timeline_in_json_goes_before_the_database(tmp_path):
    """Nothing is doubled; asked for by name, the database is read."""
    folder = capture_folder(tmp_path)
    (folder / OUTPUT / "trace_view.json").write_text(
        '[{"ph":"M","name":"process_name","pid":7,"args":{"name":"Ascend Hardware"}},'
        f'{{"ph":"X","name":"MatMul","pid":7,"tid":2,"ts":"{NOW // 1000}.250","dur":4.5}}]'
    )
    usual = traceconv.open(str(tmp_path))
    asked = traceconv.open(str(tmp_path), reader="ascend_db")
    assert [c.reader for c in usual.found] == ["trace_view"]
    assert [c.reader for c in asked.found] == ["ascend_db"]
    assert (usual.unknown, asked.unknown) == ((), ())


def test_other_databases_are_left_alone(tmp_path):
    """A database with none of the tables is nobody's here."""
    Tables().add("cars", name="x").write(tmp_path / "x.db")
    assert find(tmp_path)[0] == []


# -- bad input ------------------------------------------------------------------------------


def test_database_without_strings(tmp_path):
    """Its name says what it is; reading it says what is missing."""
    (capture,) = find(Tables().add("x", a=1).write(tmp_path / "msprof_1.db", strings=False))[0]
    with pytest.raises(MalformedInputError, match="no table of strings"):
        read(capture)


def test_file_that_is_no_database(tmp_path):
    """Found by its name all the same."""
    (tmp_path / "ascend_pytorch_profiler_2.db").write_bytes(b"<html>not found</html>" * 20)
    (capture,) = find(tmp_path)[0]
    assert capture.rank == 2
    with pytest.raises(MalformedInputError, match="not a readable database"):
        read(capture)


def test_one_broken_window_of_two(tmp_path):
    """The other one is kept, and the loss is booked."""
    capture_folder(tmp_path)
    late = capture_folder(tmp_path, stamp="20250301090000123")
    path = late / OUTPUT / "ascend_pytorch_profiler_0.db"
    path.write_bytes(path.read_bytes()[:50])
    (trace,) = traceconv.open(str(tmp_path)).traces()
    assert (len(trace.events), trace.issues.count("window-failed")) == (1, 1)


def test_cut_database_keeps_its_first_rows(tmp_path):
    """What lies before the cut is read; which tables broke off is booked."""
    tables = Tables()
    for i in range(3000):
        tables.task(10 * i, 10 * i + 5)
    path = tables.write(tmp_path / "ascend_pytorch_profiler_0.db")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    trace = read(find(path)[0][0])
    starts = [row[1] for row in rows(trace, Layer.DEVICE)]
    assert 500 < len(starts) < 3000
    assert starts == list(range(0, 10 * len(starts), 10))
    (issue,) = [i for i in trace.issues if i.code == "truncated"]
    assert issue.places == ("end of file", "table TASK")


def test_every_table_may_be_missing(trace_of):
    """A database of strings and a session alone is an empty trace."""
    trace = trace_of(Tables().add("SESSION_TIME_INFO", startTimeNs=NOW, endTimeNs=None))
    assert trace.counts() == dict.fromkeys(("slice", "instant", "counter", "flow"), 0)


def test_numbers_beyond_all_bounds(trace_of):
    """Ids of 64 bits, negative ones and steps beyond 32 bits neither clash nor fail."""
    tables = Tables().kernel(0, 10, connectionId=2**63 - 1, globalTaskId=-(2**63), modelId=2**40)
    tables.add("STEP_TIME", id=2**40, startNs=NOW, endNs=NOW + 5)
    trace = trace_of(tables)
    assert np.unique(trace.events.step).tolist() == [-1]
    assert trace.events.graph.tolist() == [-1, -1]

"""Where the lanes of Ascend's timelines go, and what their events do."""

import pytest

from traceconv.core.model import EVERY_GRAPH, Layer, OpClass
from traceconv.readers.ascend.mindspore.host import host_info_lane
from traceconv.readers.ascend.mindspore.profiler_folder import DisplayClassifier
from traceconv.readers.shared.ascend_lanes import Classifier
from traceconv.readers.shared.trace_events.timeline import Lane, Names, Skipped

HCCL = {
    ("7", "0"): "Group 0 Communication",
    ("7", "1"): "Plane 0",
    ("7", "2"): "Plane 1",
    ("7", "3"): "Group tp Communication",
    ("7", "4"): "Plane 0",
    ("8", "4"): "Plane 0",
}


def place(process, thread="", tid="5", **lane):
    setting = lane.pop("setting", Classifier())
    return setting(Lane("7", tid, process, thread, **lane))


def shown(placed):
    track = placed.track
    return track.layer, track.title, track.group, track.name


def op_of(placed, name, task_type=""):
    """The class of an event as the reading of trace events decides it."""
    named = placed.by_name(name) if placed.by_name else None
    return named.op if named else placed.by_type.get(task_type, placed.op)


@pytest.mark.parametrize(
    ("process", "thread", "expected"),
    [
        ("Ascend Hardware", "Stream 12", (Layer.DEVICE, "Ascend Hardware", "", "Stream 12")),
        ("Ascend Hardware", "", (Layer.DEVICE, "Ascend Hardware", "", "Stream 5")),
        ("Ascend Hardware", "Step Trace(Model ID:2)", (Layer.STEP, "Step Trace", "", "Model 2")),
        ("Step Trace", "Model ID:13", (Layer.STEP, "Step Trace", "", "Model 13")),
        ("Step Trace", "Model ID:4294967295", (Layer.STEP, "Step Trace", "", "Steps")),
        ("Step Trace Rank0", "iterations", (Layer.STEP, "Step Trace", "", "iterations")),
        ("CANN", "", (Layer.RUNTIME, "CANN", "", "Thread 5")),
        ("Python", "Thread 9", (Layer.HOST, "Python", "", "Thread 9")),
        ("CPU OP", "", (Layer.HOST, "CPU OP", "", "Thread 5")),
        ("Scope Layer", "layer0", (Layer.SCOPE, "Scope Layer", "", "layer0")),
        ("Overlap Analysis", "Free", (Layer.OVERLAP, "Overlap Analysis", "", "Free")),
        ("Something new", "", (Layer.OTHER, "Something new", "", "Thread 5")),
    ],
)
def test_processes_are_known_by_name(process, thread, expected):
    """The name of the process decides the layer; lanes keep the names people know."""
    assert shown(place(process, thread)) == expected


@pytest.mark.parametrize("process", ["HCCL", "Communication"])
def test_planes_belong_to_the_group_before_them(process):
    """Planes of two groups are called alike; the nearest group thread by tid tells them apart."""
    names = Names(threads=HCCL)
    lanes = [(tid, name) for (pid, tid), name in HCCL.items() if pid == "7"]
    placed = [place(process, name, tid, names=names) for tid, name in lanes]
    assert [shown(p) for p in placed] == [
        (Layer.COMM, process, "Group 0", "Group 0 Communication"),
        (Layer.COMM, process, "Group 0", "Plane 0"),
        (Layer.COMM, process, "Group 0", "Plane 1"),
        (Layer.COMM, process, "Group tp", "Group tp Communication"),
        (Layer.COMM, process, "Group tp", "Plane 0"),
    ]


def test_groups_without_a_name_are_numbered():
    """Two threads called Communication are two groups."""
    names = Names(threads={("7", "0"): "Communication", ("7", "2"): "Communication"})
    groups = [place("HCCL", "Communication", t, names=names).track.group for t in ("0", "2")]
    assert groups == ["Group 0", "Group 1"]


def test_planes_of_2023_have_no_group():
    """In 2023 the operators' thread comes after the planes: there is one group, without name."""
    names = Names(threads={("7", "0"): "Plane 0", ("7", "70000"): "Communication Kernel"})
    plane = place("HCCL", "Plane 0", "0", names=names)
    kernel = place("HCCL", "Communication Kernel", "70000", names=names)
    assert (plane.track.group, kernel.track.group) == ("", "")


def test_operators_of_a_group_are_communication_and_its_planes_are_parts():
    """Overlap counts operators, not the transfers they are made of."""
    kernel, plane = place("HCCL", "Group 0 Communication"), place("HCCL", "Plane 1")
    assert op_of(kernel, "hcom_allReduce__586_0_1") == OpClass.COMM
    assert op_of(kernel, "Notify_Wait") == OpClass.COMM_TASK
    assert op_of(plane, "Notify_Wait") == OpClass.COMM_TASK


@pytest.mark.parametrize(
    ("name", "task_type", "expected"),
    [
        ("aclnnMatmul_MatMul", "AI_CORE", OpClass.COMPUTE),
        ("Default/net/DropoutGenMask-op232", "AI_CPU", OpClass.COMPUTE),
        ("aclnnDropoutGenMask_DSAGenBitMask", "DSA_SQE", OpClass.COMPUTE),
        ("aclnnAdd_AddAiCore_Add", "Other", OpClass.COMPUTE),
        ("ReduceSum7", "", OpClass.COMPUTE),
        ("MEMCPY_ASYNC", "Other", OpClass.COPY),
        ("MEMCPY_ASYNC", "PCIE_DMA_SQE", OpClass.COPY),
        ("REDUCE_ASYNC_V2", "REDUCE_ASYNC_V2", OpClass.COPY),
        ("EVENT_WAIT", "EVENT_WAIT_SQE", OpClass.WAIT),
        ("Notify Wait", "Notify Wait", OpClass.WAIT),
        ("Write Value", "Write Value", OpClass.WAIT),
        ("PROFILING_ENABLE", "PLACE_HOLDER_SQE", OpClass.OTHER),
        ("KERNEL_AICPU", "AI_CPU", OpClass.UNCLASSIFIED),
        ("KERNEL_AICORE", "AI_CORE", OpClass.UNCLASSIFIED),
        ("MatMul", "KERNEL_AICORE", OpClass.COMPUTE),
        ("MatMul", "NEXT_CORE", OpClass.UNCLASSIFIED),
        ("NEXT_TASK", "NEXT_SQE", OpClass.UNCLASSIFIED),
        ("CCU_LAUNCH", "CCU_SQE", OpClass.COMM_TASK),
        ("UB_DB_SEND", "UBDMA", OpClass.COMM_TASK),
        ("105", "UBDMA", OpClass.COMM_TASK),
        ("RDMA_SEND", "ROCCE_SQE", OpClass.COMM_TASK),
        ("CAPTURE_WAIT", "C_CORE_SQE", OpClass.WAIT),
        ("IPC_EVENT_WAIT", "NOTIFY_WAIT_SQE", OpClass.WAIT),
        ("HOSTFUNC_CALLBACK", "PLACE_HOLDER_SQE", OpClass.WAIT),
        ("NEXT_LABEL", "C_CORE_SQE", OpClass.OTHER),
        ("MatmulAllReduceAicpu", "AI_CPU", OpClass.COMM_TASK),
        ("aclnnCast_CastAiCpu_Cast", "AI_CPU", OpClass.COMPUTE),
        ("allreduceAicpuKernel", "AI_CPU", OpClass.COMM_TASK),
        ("hcom_allGather_AivKernel", "AI_VECTOR_CORE", OpClass.COMM_TASK),
        ("some_op", "HCCL", OpClass.COMM_TASK),
    ],
)
def test_hardware_tasks_compute_if_they_carry_an_operator(name, task_type, expected):
    """A task that is named after its own kind belongs to no operator."""
    assert op_of(place("Ascend Hardware", "Stream 2"), name, task_type) == expected


@pytest.mark.parametrize(
    ("name", "op", "graph", "step"),
    [
        ("Iteration 12", OpClass.ITERATION, -1, 12),
        ("Model 2 Iteration 1", OpClass.ITERATION, 2, 1),
        ("Model ID: 3 Iteration ID: 4", OpClass.ITERATION, 3, 4),
        ("FP_BP Time 1", OpClass.FP_BP, -1, 1),
        ("Iteration Refresh 1", OpClass.TAIL, -1, 1),
        ("Reduce_7_0", OpClass.REDUCE, -1, 7),
    ],
)
def test_step_trace_names_say_their_part(name, op, graph, step):
    """Iteration, forward and backward, refresh and reduce are told by the slice's name."""
    named = place("Step Trace", "Model ID:2").by_name(name)
    assert (named.op, named.graph, named.step) == (op, graph, step)


def test_the_graph_of_a_step_lane_is_in_its_name():
    """The whole number counts, and 4294967295 is no graph."""
    lanes = ["Step Trace(Model ID:12)", "Model ID:4294967295"]
    assert [place("Ascend Hardware", t).graph for t in lanes] == [12, -1]


def test_step_traces_read_elsewhere_are_left_out():
    """The step trace inside msprof files repeats that of the run's own file."""
    thread = "Step Trace(Model ID:2)"
    lane = {"process": "Ascend Hardware", "thread": thread}
    assert place(**lane, setting=Classifier(steps_elsewhere={2})) == Skipped("repeated-content")
    assert place(**lane, setting=Classifier(steps_elsewhere={EVERY_GRAPH})) == Skipped(
        "repeated-content"
    )
    assert place(**lane, setting=Classifier(steps_elsewhere={3})).graph == 2


def test_framework_steps_carry_their_number():
    """ProfilerStep#n is a host slice with step n."""
    named = place("Python").by_name("ProfilerStep#50")
    assert (named.op, named.step) == (OpClass.HOST, 50)


def test_file_graph_holds_for_device_and_communication():
    """The graph of a 2023 file name is that of its tasks, not of its host calls."""
    setting = Classifier(graph=2)
    lanes = [("Ascend Hardware", "Stream 1"), ("HCCL", "Plane 0"), ("CANN", "")]
    assert [place(p, t, setting=setting).graph for p, t in lanes] == [2, 2, -1]


def test_devices_of_one_file_stand_apart():
    """NPU labels become groups only where there is more than one."""
    several = Names(labels={"7": "NPU 1", "8": "NPU 0"})
    one = Names(labels={"7": "NPU 1"})
    lane = {"process": "Ascend Hardware", "thread": "Stream 2", "labels": "NPU 1"}
    assert place(**lane, names=several).track.group == "NPU 1"
    assert place(**lane, names=one).track.group == ""


def test_counters_are_grouped_by_process():
    """Every counter process is a group of the counters."""
    placed = place("PCle", phase="C")
    assert shown(placed) == (Layer.COUNTER, "Counters", "PCIe", "")


def test_rank_suffixes_of_merged_files_are_dropped():
    """In a file an older viewer merged, a capture takes the lanes of its own rank."""
    setting = Classifier(ranks=(0, -1))
    own = place("Ascend Hardware Rank0", "Stream 1", setting=setting)
    assert shown(own) == (Layer.DEVICE, "Ascend Hardware", "", "Stream 1")
    assert place("Ascend Hardware Rank12", "Stream 1", setting=setting) is None
    assert place("CANN", setting=setting).track.title == "CANN"
    assert place("CANN", setting=Classifier(ranks=(12,))) is None


def test_data_augmentation_arrows_are_decoration():
    """Data_aug Bound only marks the profiler's own viewer."""
    assert place("Step Trace", category="Data_aug Bound") == Skipped("decoration-skipped")


def test_unknown_processes_of_the_host_are_host_layers():
    """The label says where a process without a known name belongs."""
    assert place("New Host Layer", labels="CPU").track.layer == Layer.HOST


@pytest.mark.parametrize(
    ("pid", "tid", "expected"),
    [
        ("1", "519", (Layer.DEVICE, "Ascend Hardware", "", "Stream 519")),
        ("1", "Stream #3", (Layer.DEVICE, "Ascend Hardware", "", "Stream 3")),
        ("9000", "0", (Layer.DEVICE, "AI CPU", "", "Stream 0")),
        ("10000", "520", (Layer.COMM, "Communication", "", "Stream 520")),
        ("13000", "17", (Layer.DEVICE, "GPU Hardware", "", "Stream 17")),
        ("11000", "77", (Layer.HOST, "Host Ops", "", "77")),
        ("12000", "8001", (Layer.OVERLAP, "Overlap Analysis", "", "Merged Communication Op")),
        ("0", "100000", (Layer.STEP, "Step Trace", "", "Steps")),
        ("0", "100001", (Layer.SCOPE, "", "", "Scope Name")),
        ("0", "Ops", (Layer.HOST, "Host Ops", "", "Ops")),
    ],
)
def test_display_files_number_their_processes(pid, tid, expected):
    """Without process names the pid says the kind of a lane."""
    classify = DisplayClassifier("Ascend Hardware", Classifier())
    assert shown(classify(Lane(pid, tid))) == expected


def test_display_files_with_process_names_are_placed_by_them():
    """Later display files name their processes as msprof does."""
    classify = DisplayClassifier("Ascend Hardware", Classifier())
    assert classify(Lane("20", "5", "CPU OP Rank0")).track.title == "CPU OP"


def test_waiting_for_data_is_not_computing():
    """GetNext waits for the host's queue."""
    placed = DisplayClassifier("Ascend Hardware", Classifier())(Lane("9000", "0"))
    assert [op_of(placed, n) for n in ("GetNext", "Cast-op1")] == [OpClass.WAIT, OpClass.COMPUTE]


def test_host_timeline_lanes_are_threads_of_processes():
    """pid and tid are all the host timeline names."""
    assert shown(host_info_lane(Lane("500", "77", category="Dataset"))) == (
        Layer.HOST,
        "MindSpore Host",
        "Process 500",
        "Thread 77",
    )


def test_a_dpu_is_told_by_its_label():
    """Its process is called as that of the host (``dpu_assembler.cpp`` of Ascend/msprof)."""
    placed = place("CANN", "Stream 5", labels="DPU 1")
    assert shown(placed) == (Layer.DEVICE, "DPU", "DPU 1", "Stream 5")
    assert shown(place("CANN", "Thread 5", labels="CPU"))[0] is Layer.RUNTIME

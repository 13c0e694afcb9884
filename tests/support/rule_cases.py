"""For every rule, ranks on which it speaks and ranks on which it must not. Times are ns."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.job_shape import Placement
from traceconv.core.model import Capture, Layer, OpClass, TrackKind
from traceconv.core.side_tables import ABSENT
from traceconv.io.sources import FileSource
from traceconv.passes import compose

US, MS = 1_000, 1_000_000


def builder(rank=0, **hints):
    """A builder of one rank."""
    build = TraceBuilder(Capture("test", FileSource(Path("x"), "x"), ("x",), rank=rank, device=0))
    for name, value in hints.items():
        setattr(build.hints, name, value)
    return build


@cache
def passed(build):
    """The rank after the passes of the detail view; a builder can be finished only once."""
    trace = build.finish()
    for one in compose("detail"):
        trace = one(trace)
    return trace


def side_table(build, name, **columns):
    """A table beside the timeline: lists become columns of the type of their values."""

    def column(values):
        if any(isinstance(v, str) for v in values):
            return np.array(values, object)
        return np.array(values, np.float64 if any(isinstance(v, float) for v in values) else "i8")

    build.side_table(name, name, lambda: {key: column(values) for key, values in columns.items()})
    return build


# -- steps --------------------------------------------------------------------------------


def iterations(*lengths, pause=0, fp_bp=0.5, tail=0.1):
    """A step trace of one graph; parts are shares of the steps."""
    build, start = builder(), 0
    lane = build.track(Layer.STEP, "Model 1")
    for number, length in enumerate(lengths, 1):
        end = start + length
        split = start + int(fp_bp * length)
        common = {"graph": 1, "step": number}
        build.slice(lane, start, length, f"Iteration {number}", op=OpClass.ITERATION, **common)
        build.slice(lane, start, split - start, f"FP_BP {number}", op=OpClass.FP_BP, **common)
        build.slice(lane, end - int(tail * length), int(tail * length), f"Tail {number}",
                    op=OpClass.TAIL, **common)  # fmt: skip
        start = end + pause
    return [build]


# -- device -------------------------------------------------------------------------------


def device(compute, comm=0, idle=0, steps=3, rank=0, first=0, op=OpClass.COMPUTE):
    """Steps of compute (or ``op``), then communication alone, then nothing, of given lengths;
    without marks if the first has no number."""
    build = builder(rank)
    host, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    lane, length = build.track(Layer.COMM, "Communication"), compute + comm + idle
    for number in range(steps):
        at = number * length
        if first is not None:
            mark = first + number
            build.slice(host, at, length, f"ProfilerStep#{mark}", op=OpClass.HOST, step=mark)
        build.slice(stream, at, compute, "kernel", op=op)
        if comm:
            build.slice(lane, at + compute, comm, "hcom_allReduce__1_0_1", op=OpClass.COMM)
    build.slice(stream, steps * length - 1, 1, "last", op=op)
    return [build]


def launched(late, length=10 * US, every=100 * US):
    """Thirty kernels that start so long after their launches."""
    build = builder()
    calls, stream = (
        build.track(Layer.RUNTIME, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    for number in range(30):
        call = build.slice(calls, number * every, 5 * US, "launch")
        kernel = build.slice(stream, number * every + late, length, "k", op=OpClass.COMPUTE)
        build.flow(call, kernel, "HostToDevice")
    return [build]


def starved(wait, compute, steps=3):
    """Steps of waiting for a DataLoader, for one time or a list of them, then compute."""
    build, at = builder(), 0
    host, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    calls = build.track(Layer.RUNTIME, "Thread 1", thread=1)
    fetch = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    for number, ns in enumerate(wait if isinstance(wait, list) else [wait] * steps):
        build.slice(host, at, ns + compute, f"ProfilerStep#{number}", op=OpClass.HOST, step=number)
        build.slice(host, at, ns, fetch, op=OpClass.HOST)
        call = build.slice(calls, at + ns, US, "cudaLaunchKernel")
        kernel = build.slice(stream, at + ns, compute, "kernel", op=OpClass.COMPUTE)
        build.flow(call, kernel, "ac2g")
        at += ns + compute
    return [build]


# -- host ---------------------------------------------------------------------------------


def called(name, call, kernel=400 * US, gap=100 * US, layer=Layer.RUNTIME, each=2, steps=4,
           launches=1):  # fmt: skip
    """Steps of so many pieces: kernels, a call that ends with the last of them, and a gap."""
    build = builder()
    host, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    calls, other = (
        build.track(Layer.RUNTIME, "Thread 1", thread=1),
        build.track(layer, "Thread 1", thread=1),
    )
    length = each * (kernel + gap)
    for number in range(steps):
        at = number * length
        build.slice(host, at, length, f"ProfilerStep#{number}", op=OpClass.HOST, step=number)
        for _ in range(each):
            for part in range(launches):
                begin = at + part * kernel // launches
                launch = build.slice(calls, begin, US, "cudaLaunchKernel")
                row = build.slice(stream, begin, kernel // launches, "k", op=OpClass.COMPUTE)
                build.flow(launch, row, "ac2g")
            build.slice(other, at + kernel - call, call, name)
            at += kernel + gap
    return [build]


def launched_each(kernel, gap, each=50, steps=3):
    """Steps of many equal kernels with equal gaps before them."""
    build = builder()
    host, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    length = each * (kernel + gap)
    for number in range(steps):
        at = number * length
        build.slice(host, at, length, f"ProfilerStep#{number}", op=OpClass.HOST, step=number)
        for i in range(each):
            build.slice(stream, at + i * (kernel + gap) + gap, kernel, "k", op=OpClass.COMPUTE)
    return [build]


def copied(name, copy, compute=MS, steps=3):
    """Steps of a copy and then computing."""
    build = builder()
    host, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    for number in range(steps):
        at = number * (copy + compute)
        build.slice(host, at, copy + compute, f"ProfilerStep#{number}", op=OpClass.HOST,
                    step=number)  # fmt: skip
        build.slice(stream, at, copy, name, op=OpClass.COPY)
        build.slice(stream, at + copy, compute, "kernel", op=OpClass.COMPUTE)
    return [build]


def varied(*lengths, idle=100 * US):
    """Steps whose kernels take so long, each with idle time at its end."""
    build, at = builder(), 0
    host, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    for number, compute in enumerate(lengths):
        build.slice(host, at, compute + idle, f"ProfilerStep#{number}", op=OpClass.HOST,
                    step=number)  # fmt: skip
        build.slice(stream, at, compute, "kernel", op=OpClass.COMPUTE)
        at += compute + idle
    return [build]


def late(launch, independent=True, steps=3):
    """Steps of computing, then a collective of 900 µs, in which a kernel starts after 600 µs that
    is launched after so many; or only after the collective."""
    build = builder()
    host, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    calls, lane = (
        build.track(Layer.RUNTIME, "Thread 1", thread=1),
        build.track(Layer.COMM, "Communication"),
    )
    for number in range(steps):
        at = number * 2 * MS
        build.slice(host, at, 2 * MS, f"ProfilerStep#{number}", op=OpClass.HOST, step=number)
        build.slice(stream, at, MS, "first", op=OpClass.COMPUTE)
        build.slice(lane, at + MS, 900 * US, "hcom_allReduce__1_0_1", op=OpClass.COMM)
        begin = at + MS + (600 if independent else 900) * US
        call = build.slice(calls, at + MS + launch, US, "cudaLaunchKernel")
        kernel = build.slice(stream, begin, 50 * US, "next", op=OpClass.COMPUTE)
        build.flow(call, kernel, "ac2g")
    return [build]


def paused(pause, name="aten::mm", steps=3, each=25, marked=True):
    """Steps of a call and its kernels, a pause in which nothing is recorded, and the same again;
    a range goes on throughout."""
    build, length = builder(), 2 * MS + pause
    host, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    calls = build.track(Layer.RUNTIME, "Thread 1", thread=1)
    for number in range(steps):
        at = number * length
        if marked:
            build.slice(host, at, length, f"ProfilerStep#{number}", op=OpClass.HOST, step=number)
        build.slice(host, at, length, "## forward ##", op=OpClass.HOST)
        for begin, ns in ((at, MS), (at + MS + pause, MS)):
            build.slice(host, begin, ns, "aten::mm", op=OpClass.HOST)
            for kernel in range(begin, begin + ns, ns // each):
                call = build.slice(calls, kernel, US, "cudaLaunchKernel")
                work = build.slice(stream, kernel, ns // each, "k", op=OpClass.COMPUTE)
                build.flow(call, work, "ac2g")
        if name != "aten::mm":
            build.slice(host, at + MS, pause, name, op=OpClass.HOST)
    return [build]


def descheduled(away, call="write", heading="OS Runtime", steps=3, others=None, whole=True, busy=0):
    """Steps of a kernel and a gap in which the launching thread is off the CPU, and calls.

    ``others``: runs of another process, as (CPU, start after the thread lost its own, length);
    None where only the process itself was recorded. ``whole``: everything else was recorded, too.
    ``busy``: how long a second kernel runs in the gap.
    """
    build, length = builder(), 2 * MS
    host, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    calls = build.track(Layer.RUNTIME, "Thread 1", title="CUDA", thread=1)
    kind = {"OS Runtime": TrackKind.SYSTEM_CALLS, "MPI": TrackKind.MESSAGES}.get(heading)
    system = build.track(
        Layer.RUNTIME, "Thread 1", title=heading, thread=1, kind=kind or TrackKind.OTHER
    )
    off = build.track(
        Layer.OTHER, "Thread 1", title="CPU Scheduling", thread=1, kind=TrackKind.OFF_CPU
    )
    beside = {"other processes on from CPU (ns)": 7} if whole and others is not None else {}
    for number in range(steps):
        at = number * length
        build.slice(host, at, length, f"ProfilerStep#{number}", op=OpClass.HOST, step=number)
        launch = build.slice(calls, at, US, "cudaLaunchKernel")
        build.flow(launch, build.slice(stream, at, MS, "k", op=OpClass.COMPUTE), "ac2g")
        if busy:
            launch = build.slice(calls, at + US, US, "cudaLaunchKernel")
            more = build.slice(stream, at + MS, busy, "k", op=OpClass.COMPUTE)
            build.flow(launch, more, "ac2g")
        blocked, lost = call == "poll", at + MS + (0 if call == "poll" else US)
        build.slice(system, at + MS, away if blocked else US, call)
        build.slice(off, lost, away, "Off CPU", args={"from CPU": 1, "to CPU": 2, **beside})
        for cpu, after, ns in others or ():
            lane = build.track(
                Layer.OTHER, f"CPU {cpu}", title="Other Processes", kind=TrackKind.CPU, device=cpu
            )
            build.slice(lane, lost + after, ns, f"indexer (pid {cpu})")
    return [build]


def sequences(*names, gap=2 * US, each=20, steps=3, length=5 * US):
    """Steps of a sequence of kernels that repeats, with gaps between all of them."""
    build, at = builder(), 0
    host, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    for number in range(steps):
        begin = at
        for _ in range(each):
            for name in names:
                build.slice(stream, at, length, name, op=OpClass.COMPUTE)
                at += length + gap
            build.slice(stream, at, 20 * US, "long", op=OpClass.COMPUTE)
            at += 20 * US
        build.slice(host, begin, at - begin, f"ProfilerStep#{number}", op=OpClass.HOST,
                    step=number)  # fmt: skip
    return [build]


def clocked(*mhz, rank=0, name="AI Core Freq", groups=1):
    """A millisecond of computing per sample of the clock, on ``groups`` tracks in turn."""
    build = builder(rank)
    lanes = [build.track(Layer.COUNTER, name, f"{name} {n}", unit="MHz") for n in range(groups)]
    stream = build.track(Layer.DEVICE, "Stream 1")
    for at, value in enumerate(mhz):
        build.counter(lanes[at % groups], at * MS, value)
        build.slice(stream, at * MS, MS, f"k{at}", op=OpClass.COMPUTE)
    return [build]


# -- data preparation ---------------------------------------------------------------------


def host_queue(sizes, build=None, name="device_queue_profiling"):
    """Samples of the host queue, whose capacity is 10."""
    n = len(sizes)
    return [
        side_table(
            build or builder(), name, type=[1] * n, subtype=[10] * n,
            step=list(range(1, n + 1)), value=sizes, **{"time(ms)": [MS] * n},
        )
    ]  # fmt: skip


def device_queue(sizes, build=None):
    """Fetches of the device that find the queue with so many items."""
    n = len(sizes)
    starts = [MS * i for i in range(n)]
    return [
        side_table(build or builder(), "minddata_aicpu", op=["GetNext"] * n, queue_size=sizes,
              **{"start(us)": starts, "end(us)": [s + 100 * US for s in starts]})
    ]  # fmt: skip


def both_queues(host, of_device):
    """The two queues of one rank."""
    (build,) = host_queue(host)
    return device_queue(of_device, build)


def pipeline(*operators):
    """Operators from the root to the leaf: (name, use of the output queue or None)."""
    n = len(operators)
    uses = [use for _, use in operators]
    return [
        side_table(
            builder(), "minddata_pipeline", op_id=list(range(n)),
            op_type=[name for name, _ in operators], num_workers=[4] * n,
            output_queue_average_size=[float("nan") if u is None else 64 * u for u in uses],
            output_queue_length=[64] * n,
            output_queue_usage_rate=[0.0 if u is None else float(u) for u in uses],
            parent_id=[ABSENT, *range(n - 1)],
        )
    ]  # fmt: skip


def workers(cpu, number=4):
    """A map whose workers use so much of their processors."""
    return [
        side_table(builder(), "minddata_pipeline_summary", op_ids=[1], op_names=["Map"],
              num_workers=[number], avg_cpu_pct=[float(cpu)])
    ]  # fmt: skip


def processors(user, system, idle):
    """Samples of the machine's processors."""
    return [
        side_table(builder(), "minddata_cpu_utilization", scope=["device"] * 2, op_id=[ABSENT] * 2,
              user_utilization=[user] * 2, sys_utilization=[system] * 2,
              io_utilization=[0] * 2, idle_utilization=[idle] * 2)
    ]  # fmt: skip


def reader(ratio):
    """The last block of Paddle's timer."""
    return [
        side_table(builder(), "paddle_timer", Block=[0, 0], Measure=["reader_cost", "batch_cost"],
              Unit=["s", "s"], Avg=[0.01, 0.1], Max=[0.02, 0.2], Min=[0.0, 0.1],
              **{"Reader Ratio(%)": [float(ratio)] * 2})
    ]  # fmt: skip


# -- communication ------------------------------------------------------------------------


def waiting(wait, transit):
    """One operation with a wait and a transfer on its plane."""
    build = builder()
    lane = build.track(Layer.COMM, "Communication", "Group 0")
    plane = build.track(Layer.COMM, "Plane 0", "Group 0")
    build.slice(lane, 0, wait + transit, "hcom_allReduce__1_0_1", op=OpClass.COMM)
    build.slice(plane, 0, wait, "Notify_Wait", op=OpClass.COMM_TASK)
    build.slice(plane, wait, transit, "Memcpy", op=OpClass.COMM_TASK)
    return [build]


def packages(*sizes):
    """Copies over HCCS: (bytes, ns)."""
    build, at = builder(), 0
    lane = build.track(Layer.COMM, "Communication", "Group 0")
    plane = build.track(Layer.COMM, "Plane 0", "Group 0")
    for n_bytes, ns in sizes:
        args = {"size(Byte)": n_bytes, "link type": "HCCS", "src rank": 0, "dst rank": 1}
        build.slice(plane, at, ns, "Memcpy", op=OpClass.COMM_TASK, args=args)
        at += ns
    build.slice(lane, 0, at, "hcom_allReduce__1_0_1", op=OpClass.COMM)
    return [build]


def matrix(*speeds):
    """Links from rank 0 to others that carry 100 MB at so many GB/s."""
    n = len(speeds)
    return [
        side_table(
            builder(), "communication_matrix", Operator=["allreduce-total"] * n, Group=["g"] * n,
            Source=[0] * n, Target=list(range(1, n + 1)),
            **{"Transport Type": ["HCCS"] * n, "Transit Size(MB)": [100.0] * n,
               "Transit Time(ms)": [int(100 * MS / s) for s in speeds]},
        )
    ]  # fmt: skip


def cluster(*computing):
    """The table of cluster tools: so many us of computing per rank in a step of 1 ms."""
    n = len(computing)
    build = builder(tables_only=True)
    return [
        side_table(
            build, "cluster_step_trace_time", Step=[1] * n, Type=["rank"] * n,
            Index=[str(rank) for rank in range(n)],
            **{"Computing(us)": [us * US for us in computing],
               "Communication(us)": [(1000 - us) * US for us in computing],
               "Communication(Not Overlapped)(us)": [(1000 - us) * US for us in computing],
               "Free(us)": [0] * n},
        )
    ]  # fmt: skip


def repeated(retry, times=4):
    """Collectives of a millisecond of which the profiler says whether they ran again."""
    build = builder()
    lane = build.track(Layer.COMM, "Communication", "Group 0")
    for at in range(times):
        build.slice(lane, at * MS, MS, f"hcom_allReduce__1_{at}_1", op=OpClass.COMM,
                    args={"retry": retry})  # fmt: skip
    return [build]


# -- operators ----------------------------------------------------------------------------


def kernels(*operators, vendor="ascend"):
    """Compute tasks one after another: (type, shapes, ns)."""
    build, at = builder(vendor=vendor), 0
    stream = build.track(Layer.DEVICE, "Stream 1")
    for kind, shapes, ns in operators:
        args = {"Op Type": kind, "Input Shapes": shapes}
        build.slice(stream, at, ns, f"op/{kind}-op1", op=OpClass.COMPUTE, args=args)
        at += ns
    return [build]


def tasks(*lengths, core="AI_CORE", types="FLOAT16;FLOAT16", kind="MatMulV2"):
    """Calls of one operator on one shape."""
    build, at = builder(vendor="ascend"), 0
    stream = build.track(Layer.DEVICE, "Stream 1")
    for number, ns in enumerate(lengths):
        args = {"Op Type": kind, "Input Shapes": "128,64;64,32", "Task Type": core,
                "Input Data Types": types}  # fmt: skip
        if number:  # the first one is another operator of the usual sort
            build.slice(stream, at, ns, kind, op=OpClass.COMPUTE, args=args)
        else:
            args |= {"Op Type": "Add", "Task Type": "AI_VECTOR_CORE"}
            build.slice(stream, at, ns, "Add", op=OpClass.COMPUTE, args=args)
        at += ns
    return [build]


def products(ns, kinds=("c10::BFloat16", "c10::BFloat16"), device="NVIDIA H100 80GB HBM3",
             dims=((4096, 4096), (4096, 4096)), calls=3, name="aten::mm", given=None):  # fmt: skip
    """Products of matrices that take so long: 4096 x 4096 takes 139 µs at the peak of an H100."""
    build = builder()
    build.hints.device_names[0] = device
    host, stream = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    runtime = build.track(Layer.RUNTIME, "Thread 1", thread=1)
    for number in range(calls):
        at = number * 2 * ns
        args = {"Input Dims": [list(one) for one in dims], "Input type": list(kinds)}
        args |= {} if given is None else {"Concrete Inputs": given}
        build.slice(host, at, ns, name, op=OpClass.HOST, args=args)
        call = build.slice(runtime, at, US, "cudaLaunchKernel")
        build.flow(call, build.slice(stream, at, ns, "gemm", op=OpClass.COMPUTE), "ac2g")
    return [build]


def attending(ns, causal="False", dims=(4, 4096, 16, 128), keys=None, kinds=("c10::Half",) * 3,
              window=""):  # fmt: skip
    """Attention that takes so long: of these dims, an H100 needs 556 µs, half if it is causal."""
    given = ["", "", "", "", "", "4096", "4096", "0.", causal, "False", "", window, "", "", ""]
    every = (dims, keys or dims, keys or dims)
    return products(ns, kinds, dims=every, name="aten::_flash_attention_forward", given=given)


def shaped(*calls, each=6):
    """Calls of an operator: (shape of input and output, ns)."""
    build, at = builder(vendor="ascend"), 0
    stream = build.track(Layer.DEVICE, "Stream 1")
    for shape, ns in calls * each:
        args = {"Op Type": "Add", "Input Shapes": f"{shape};{shape}", "Output Shapes": shape,
                "Input Data Types": "FLOAT16;FLOAT16", "Input Formats": "ND;ND",
                "Output Formats": "ND"}  # fmt: skip
        build.slice(stream, at, ns, "Add", op=OpClass.COMPUTE, args=args)
        at += ns
    return [build]


def staged(*times, steps=3, stages=True, every=MS):
    """A rank per stage that computes and then receives, as (compute, receive) in every step."""
    found = []
    for rank, (compute, receive) in enumerate(times):
        build = builder(rank)
        if stages:
            place = Placement(coordinates={"pp": rank}, place="paths")
            build.capture = replace(build.capture, placement=place)
        lane, kernels = build.track(Layer.STEP, "Model 1"), build.track(Layer.DEVICE, "Stream 7")
        comm = build.track(Layer.COMM, "Group 3", communicator="Group 3")
        for number in range(steps):
            start = number * every
            build.slice(lane, start, every, f"Iteration {number}", op=OpClass.ITERATION,
                        step=number)  # fmt: skip
            build.slice(kernels, start, compute, "gemm", op=OpClass.COMPUTE)
            build.slice(comm, start + compute // 2, compute - compute // 2 + receive,
                        "ncclDevKernel_Recv", op=OpClass.COMM)  # fmt: skip
        found.append(build)
    return found


def memory(*gib):
    """Memory taken from the device."""
    build = builder()
    lane = build.track(Layer.COUNTER, "PTA/Total Reserved", "Memory", "Counters", unit="GB")
    for at, size in enumerate(gib):
        build.counter(lane, at * MS, size)
    return [build]


CAPACITY = {"memory-capacity.capacity": 64.0}

# -- of tables ----------------------------------------------------------------------------


def ranged(kernel, apart, each=20, steps=3):
    """Steps with a range that launches equal kernels, so far apart on the host."""
    build, length = builder(), each * max(kernel, apart) * 2
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    marks = build.track(Layer.HOST, "Thread 1", title="NVTX", thread=1, kind=TrackKind.RANGES)
    calls = build.track(Layer.RUNTIME, "Thread 1", title="CUDA", thread=1)
    stream = build.track(Layer.DEVICE, "Stream 1")
    for number in range(steps):
        at = number * length
        build.slice(host, at, length, f"ProfilerStep#{number}", op=OpClass.HOST, step=number)
        build.slice(marks, at, each * apart, "embedding", op=OpClass.HOST)
        for i in range(each):
            call = build.slice(calls, at + i * apart, US, "cudaLaunchKernel", op=OpClass.HOST)
            begin = at + 2 * US + i * max(kernel, apart)
            build.flow(call, build.slice(stream, begin, kernel, "k", op=OpClass.COMPUTE), "launch")
    return [build]


def replayed(named, unnamed):
    """Steps that replay a graph of a kernel whose operator is known and of one where it is not."""
    build = builder()
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    calls = build.track(Layer.RUNTIME, "Thread 1", title="CUDA", thread=1)
    stream = build.track(Layer.DEVICE, "Stream 1")
    for number in range(3):
        at = number * MS
        build.slice(host, at, MS, f"ProfilerStep#{number}", op=OpClass.HOST, step=number)
        call = build.slice(calls, at, 5 * US, "cudaGraphLaunch", op=OpClass.HOST)
        known = {"operator": "aten::add", "operator known by": "capture trace"}
        for name, start, ns, args in (("a", 10 * US, named, known), ("b", 500 * US, unnamed, {})):
            node = build.slice(stream, at + start, ns, name, op=OpClass.COMPUTE, args=args)
            build.flow(call, node, "launch")
    return [build]


def messages(*sizes, node=()):
    """A step of all-reduces: (bytes, ns, how many); on a node of these H200."""
    build, at = builder(), 0
    build.hints.device_names.update(dict.fromkeys(node, "NVIDIA H200"))
    host, lane = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.COMM, "NCCL", "Group 0"),
    )
    stream = build.track(Layer.DEVICE, "Stream 1")
    for n_bytes, ns, count in sizes:
        args = {"In msg nelems": n_bytes, "Out msg nelems": n_bytes, "dtype": "Byte",
                "Group size": 2, "Collective name": "allreduce",
                "Process Group Ranks": "[0, 1]"}  # fmt: skip
        for _ in range(count):
            build.slice(lane, at, ns, "ncclDevKernel_AllReduce", op=OpClass.COMM, args=args)
            at += ns
    build.slice(stream, at, MS, "k", op=OpClass.COMPUTE)
    build.slice(host, 0, at + MS, "ProfilerStep#1", op=OpClass.HOST, step=1)
    return [build]


def routed(*received):
    """Ranks of one group that get so many rows each."""
    builds = []
    for rank, rows in enumerate(received):
        build = builder(rank)
        lane = build.track(Layer.COMM, "NCCL", "experts")
        split = f"[{', '.join(str(rows // len(received)) for _ in received)}]"
        args = {"In split size": split, "Out split size": split}
        build.slice(lane, 0, MS, "ncclDevKernel_SendRecv", op=OpClass.COMM, args=args)
        builds.append(build)
    return builds


FIRES = {
    "iteration-gap": iterations(MS, MS, MS, pause=2 * MS),
    "forward-backward": iterations(MS, MS, fp_bp=0.9),
    "long-tail": iterations(MS, MS, tail=0.3),
    "first-step": iterations(5 * MS, MS, MS, MS),
    "step-spikes": varied(5 * MS, MS, MS, 2 * MS, MS, MS),
    "input-wait": starved(20 * MS, 80 * MS),
    "device-queue-empty": device_queue([3, 0, 2, 0]),
    "host-queue-empty": host_queue([0, 0, 5, 6]),
    "sending-slow": both_queues([10, 10, 9, 10], [0, 0, 1]),
    "not-sunk": host_queue([3, 4], device(50 * US, idle=50 * US)[0], "dataset_iterator_profiling"),
    "reader-ratio": reader(12.5),
    "pipeline-operator": pipeline(("Batch", 0.3), ("Map", 0.1), ("TFReader", 0.95)),
    "pipeline-source": pipeline(("Batch", 0.3), ("Generator", 0.1)),
    "pipeline-last": pipeline(("Batch", None), ("Map", 0.9), ("TFReader", 0.9)),
    "workers-few": workers(90),
    "workers-many": workers(5),
    "cpu-busy": processors(60, 30, 10),
    "cpu-system": processors(10, 30, 60),
    "device-idle": device(50 * US, idle=50 * US),
    "device-busy": device(99 * US, idle=1 * US),
    "launch-starved": launched(8 * US),
    "exposed-communication": device(50 * US, comm=50 * US),
    "compute-spread": [*device(50 * US, idle=50 * US), *device(80 * US, idle=20 * US, rank=1)],
    "idle-spread": [*device(50 * US, idle=50 * US), *device(80 * US, idle=20 * US, rank=1)],
    "frequency-drop": [*clocked(1800, 1800), *clocked(1800, 1200, rank=1)],
    "host-sync": called("cudaStreamSynchronize", 300 * US, each=1),
    "allocation": called("cudaMalloc", 8 * MS, kernel=10 * MS, gap=MS),
    "garbage-collection": called("GC", 2 * MS, kernel=10 * MS, layer=Layer.HOST),
    "compilation": called("AscendCL@aclopCompileAndExecute", 9 * MS, kernel=10 * MS),
    "small-kernels": launched_each(4 * US, 6 * US),
    "step-copies": copied("Memcpy HtoD (Pageable -> Device)", 50 * US),
    "late-overlap": late(200 * US),
    "host-pause": paused(5 * MS),
    "off-cpu": descheduled(800 * US),
    "foreign-process": descheduled(800 * US, others=[(1, 0, 500 * US)]),
    "kernel-sequence": sequences("a", "b", "c"),
    "communication-wait": waiting(50 * US, 50 * US),
    "small-packets": packages((1 << 10, 50 * US), (1 << 26, 67 * US)),
    "unaligned-packets": packages((1 << 20, 50 * US), ((1 << 21) + 8, 500 * US)),
    "retransmission": repeated("yes"),
    "slow-link": matrix(20.0, 20.5, 19.5, 20.0, 5.0),
    "format-conversion": kernels(("MatMul", "", 80), ("TransData", "", 15), ("Cast", "", 5)),
    "unaligned-shapes": kernels(("MatMul", "127,64;64,32", 50), ("MatMul", "128,64;64,32", 50)),
    "ai-cpu": tasks(900, 100, core="AI_CPU", types="DOUBLE;DOUBLE"),
    "full-precision": tasks(500, 500, types="FLOAT;FLOAT"),
    "uneven-operator": tasks(100, *[100] * 28, 1000, 1200),
    "memory-capacity": memory(10, 62, 20),
    "matmul-efficiency": products(500 * US),
    "attention-efficiency": attending(4 * MS),
    "slow-shape": shaped(("128,1000", 90 * US), ("128,1024", 40 * US)),
    "pipeline-bubbles": staged((700 * US, 100 * US), (600 * US, 300 * US)),
    "stage-imbalance": staged((900 * US, 50 * US), (600 * US, 100 * US)),
    "slow-rank": cluster(500, 600, 510, 500),
    "expert-imbalance": routed(100, 100, 160),
    "launch-bound-range": ranged(2 * US, 10 * US),
    "unnamed-graph-time": replayed(60 * US, 40 * US),
    "small-messages": messages((1 << 10, 20 * US, 20), (1 << 26, MS, 1)),
    "slow-node-links": messages((1 << 26, MS, 4), node=range(2)),
}
"""Ranks on which each rule speaks."""

QUIET = {
    "iteration-gap": iterations(MS, MS, MS, pause=10 * US),
    "forward-backward": iterations(MS, MS, fp_bp=0.7),
    "long-tail": iterations(MS, MS, tail=0.1),
    "first-step": iterations(MS, MS, MS, MS),
    "step-spikes": varied(5 * MS, MS, MS, MS + 300 * US, MS, MS),
    "input-wait": starved(2 * MS, 80 * MS),
    "device-queue-empty": device_queue([3, 1, 2, 4]),
    "host-queue-empty": host_queue([0, 5, 5, 6]),
    "sending-slow": both_queues([0, 0, 0, 1], [0, 0, 1]),
    "not-sunk": host_queue([3, 4], device(50 * US, idle=50 * US)[0]),
    "reader-ratio": reader(4.0),
    "pipeline-operator": pipeline(("Batch", 0.7), ("Map", 0.7), ("TFReader", 0.95)),
    "pipeline-source": pipeline(("Batch", 0.3), ("Generator", 0.8)),
    "pipeline-last": pipeline(("Batch", None), ("Map", 0.5), ("TFReader", 0.9)),
    "workers-few": workers(50),
    "workers-many": workers(5, number=1),
    "cpu-busy": processors(30, 10, 60),
    "cpu-system": processors(30, 10, 60),
    "device-idle": device(90 * US, idle=10 * US),
    "device-busy": device(80 * US, idle=20 * US),
    "launch-starved": launched(60 * US),
    "exposed-communication": device(95 * US, comm=5 * US),
    "compute-spread": [*device(50 * US, idle=50 * US), *device(52 * US, idle=50 * US, rank=1)],
    "idle-spread": [*device(50 * US, idle=50 * US), *device(52 * US, idle=48 * US, rank=1)],
    "frequency-drop": [*clocked(1800, 1800), *clocked(1800, 1780, rank=1)],
    "host-sync": called("cudaStreamWaitEvent", 300 * US),
    "allocation": called("cudaMalloc", 200 * US, kernel=10 * MS, gap=MS),
    "garbage-collection": called("GC", 100 * US, kernel=10 * MS, layer=Layer.HOST),
    "compilation": called("AscendCL@aclopCompileAndExecute", 100 * US, kernel=10 * MS),
    "small-kernels": launched_each(40 * US, 6 * US),
    "step-copies": copied("Memcpy HtoD (Pageable -> Device)", 10 * US),
    "late-overlap": late(200 * US, independent=False),
    "host-pause": paused(5 * MS, name="aten::sort"),
    "off-cpu": descheduled(800 * US, call="poll"),
    "foreign-process": descheduled(800 * US, others=[(3, 0, 500 * US)]),
    "kernel-sequence": sequences("a", "b", "c", length=11 * US),
    "communication-wait": waiting(10 * US, 90 * US),
    "small-packets": packages((1 << 20, 2 * US), (1 << 26, 67 * US)),
    "unaligned-packets": packages((1 << 20, 50 * US), ((1 << 21) + 8, 100 * US), (40, 9 * MS)),
    "retransmission": repeated("no"),
    "slow-link": matrix(20.0, 20.5, 19.5, 20.0, 19.0),
    "format-conversion": kernels(("MatMul", "", 95), ("Cast", "", 5), ("Castle", "", 50)),
    "unaligned-shapes": kernels(("MatMul", "128,64;64,32", 90), ("Add", "127,3;127,3", 50)),
    "ai-cpu": tasks(900, 100, core="AI_CPU", kind="Unique"),
    "full-precision": tasks(500, 500, types="FLOAT16;FLOAT16"),
    "uneven-operator": tasks(2000, *[100] * 28, 160, 180),
    "memory-capacity": memory(10, 50, 20),
    "matmul-efficiency": products(250 * US),
    "attention-efficiency": attending(2 * MS),
    "slow-shape": shaped(("128,1000", 40 * US), ("64,2048", 20 * US)),
    "pipeline-bubbles": staged((800 * US, 100 * US), (750 * US, 150 * US)),
    "stage-imbalance": staged((650 * US, 300 * US), (600 * US, 300 * US)),
    "slow-rank": cluster(500, 600, 510, 598),
    "expert-imbalance": routed(100, 100, 104),
    "launch-bound-range": ranged(20 * US, 2 * US),
    "unnamed-graph-time": replayed(100 * US, 0),
    "small-messages": messages((1 << 20, 20 * US, 20), (1 << 26, MS, 1)),
    "slow-node-links": messages((1 << 26, 300 * US, 4), node=range(2)),
}
"""Ranks that each rule looks at and finds nothing to say of."""

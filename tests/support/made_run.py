"""One small run of two steps on one NPU, described once; exporters write it in two formats.

``made_run_text`` writes what the profiler leaves as text, ``made_run_db`` its database. Times are
ns after :data:`NOW`, of every kind those that both formats can hold exactly.
"""

from dataclasses import dataclass

NOW = 1_740_816_000_000_000_000
PID, LAUNCHER, BACKWARD = 4021, 4030, 4040
HOST_THREAD = PID
NONE = 4294967295
FOLDER = "localhost_4021_20250301080000123_ascend_pt"
OUTPUT = "ASCEND_PROFILER_OUTPUT"
WORLD = "192.0.2.7%eth0_60000_0_1740810000000000"
TENSOR = "tensor"
GROUPS = {WORLD: "Group 0", TENSOR: "Group tensor"}
"""What the timeline calls a group, by its name in the database; in the order of their use."""


@dataclass(frozen=True)
class Kernel:
    """A compute task. ``host_type`` is the type it was launched as, ``engine`` where it ran.

    ``within`` is how much longer the task around it lasted, at either end, if it had one.
    """

    name: str
    host_type: str
    engine: str
    start: int
    dur: int
    connection: int
    task: int
    stream: int = 2
    within: int = 0
    shapes: tuple[str, str] = ('"32,64;64"', '"32,64"')
    counters: tuple[tuple[str, float], ...] = ()

    @property
    def op_type(self):
        """The kind of operator: the last word of its name."""
        return self.name.rpartition("_")[2]


@dataclass(frozen=True)
class Task:
    """A task without an operator: the timeline names it by ``host_type``."""

    host_type: str
    engine: str
    start: int
    dur: int
    connection: int
    task: int
    stream: int = 2
    copied: int = 0


@dataclass(frozen=True)
class Part:
    """A part of a collective, on a plane and as a task on a stream."""

    name: str
    host_type: str
    plane: int
    start: int
    dur: int
    size: int
    peers: tuple[int, int]
    link: str


@dataclass(frozen=True)
class Collective:
    """A whole communication operator and its parts."""

    name: str
    group: str
    start: int
    dur: int
    connection: int
    task: int
    count: int
    parts: tuple[Part, ...]
    stream: int = 4


@dataclass(frozen=True)
class Call:
    """A call of CANN; ``connection`` is what it launched."""

    level: str
    name: str
    start: int
    dur: int
    connection: int
    thread: int = LAUNCHER


@dataclass(frozen=True)
class Operator:
    """A row of the framework. ``launched`` are the connections of its tasks."""

    name: str
    kind: str
    start: int
    dur: int
    thread: int = HOST_THREAD
    sequence: int = -1
    forward_thread: int = 0
    shapes: str = ""
    types: str = ""
    stack: tuple[str, ...] = ()
    launched: tuple[int, ...] = ()
    queued: int = 0


@dataclass(frozen=True)
class Sample:
    """One sample; ``series`` says of what, ``value`` in bytes where the unit is made of them."""

    series: tuple
    at: int
    value: float


def _step(number, at):
    """The framework's rows, calls, tasks and collectives of one step of 12 us."""
    c = 100 * number
    add = Kernel(
        "aclnnAdd_AddAiCore_Add", "KERNEL_AIVEC", "AI_VECTOR_CORE", at + 2000, 700, c + 1, c + 1,
        counters=(("aiv_vec_ratio", 0.25),),
    )  # fmt: skip
    conv = Kernel(
        "aclnnConvolution_Conv2D", "KERNEL_AICORE", "MIX_AIC", at + 2900, 1070, c + 2, c + 2,
        within=10, shapes=('"32,3,224,224"', '"32,64,55,55"'),
    )  # fmt: skip
    matmul = Kernel(
        "aclnnMatmul_MatMulV2", "KERNEL_AICORE", "AI_CORE", at + 5200, 1600, c + 3, c + 3,
        counters=(("aic_mac_ratio", 0.875), ("aic_total_cycles", 184512)),
    )  # fmt: skip
    reduce = Collective(
        f"hcom_allReduce__112_{number}_1", WORLD, at + 4400, 1900, c + 5, c + 5, 1048576,
        (
            Part("Memcpy", "SDMA", 0, at + 4400, 300, 524288, (0, 1), "HCCS"),
            Part("Notify_Wait", "Notify Wait", 1, at + 4710, 40, 0, (0, 1), "INVALID_TYPE"),
            Part("Reduce_Inline", "SDMA", 0, at + 4800, 1500, 524288, (1, 0), "HCCS"),
        ),
    )  # fmt: skip
    gather = Collective(
        f"hcom_allGather__7_{number}_1", TENSOR, at + 7100, 900, c + 6, c + 6, 4096,
        (Part("Memcpy", "SDMA", 3, at + 7150, 800, 16384, (0, 3), "HCCS"),), stream=5,
    )  # fmt: skip
    copy = Task("MEMCPY_ASYNC", "PCIE_DMA_SQE", at + 1500, 250, c + 4, c + 4, copied=4096)
    mark = Task("EVENT_RECORD", "EVENT_RECORD_SQE", at + 6900, 10, c + 7, c + 7)
    tensor = {"shapes": "32,64;64", "types": "float;float"}
    rows = (
        Operator(f"ProfilerStep#{number}", "cpu_op", at, 9000),
        Operator("aten::copy_", "cpu_op", at + 100, 90, launched=(c + 4,)),
        Operator("aten::add", "cpu_op", at + 200, 100, launched=(c + 1,), **tensor,
                 stack=("model.py(31): forward", "train.py(12): <module>")),
        Operator("aten::convolution", "cpu_op", at + 400, 300, sequence=c, launched=(c + 2,)),
        Operator("Enqueue", "enqueue", at + 500, 20, queued=c + 50),
        Operator("Dequeue@aclnnConvolution", "dequeue", at + 540, 150, LAUNCHER, queued=c + 50),
        Operator("ConvolutionBackward0", "cpu_op", at + 800, 400, BACKWARD, sequence=c,
                 forward_thread=1, launched=(c + 3, c + 5, c + 6)),
        Operator("train.py(12): step", "python_function", at + 60, 8000),
    )  # fmt: skip
    calls = (
        Call("acl", "aclrtMemcpyAsync", at + 120, 40, c + 4),
        Call("node", "launch", at + 230, 40, c + 1),
        Call("node", "launch", at + 560, 40, c + 2),
        Call("node", "launch", at + 850, 40, c + 3),
        Call("node", "launch", at + 900, 60, c + 5),
        Call("communication", "Launch_Ffts", at + 970, 15, c + 6),
        Call("runtime", "EventRecord", at + 1000, 15, c + 7),
    )
    samples = (
        Sample(("AI Core Freq",), at + 10, 1800 - 150 * (number % 2)),
        Sample(("NPU MEM", "app", "ddr"), at + 20, 0),
        Sample(("NPU MEM", "app", "hbm"), at + 20, 1048576 * number),
        Sample(("NPU MEM", "device", "ddr"), at + 30, 0),
        Sample(("NPU MEM", "device", "hbm"), at + 30, 2097152 * number),
        Sample(("HBM", 0, "read"), at + 40, 1048576000),
        Sample(("HBM", 0, "write"), at + 40, 524288000),
        Sample(("LLC", 0, "read", "hitRate"), at + 50, 87.5),
        Sample(("LLC", 0, "read", "throughput"), at + 50, 2097152),
        *(Sample(("Acc PMU", 0, way), at + 60, i) for i, way in enumerate(ACCELERATOR)),
        Sample(("Stars Soc Info", "L2 Buffer"), at + 70, 1),
        Sample(("Stars Soc Info", "Mata"), at + 70, 2),
        *(Sample(("Memory", "PTA", total), at + 80, 1048576 * number) for total in TOTALS),
        *(Sample(("Memory", "GE", total), at + 90, 65536) for total in TOTALS[:2]),
        Sample(("NPU Module Mem", "HCCL"), at + 95, 423690240),
        Sample(("NPU Module Mem", "RUNTIME"), at + 95, 96714752),
    )
    return rows, calls, (add, conv, matmul), (copy, mark), (reduce, gather), samples


ACCELERATOR = ("readBwLevel", "writeBwLevel", "readOstLevel", "writeOstLevel")
TOTALS = ("Total Allocated", "Total Reserved", "Total Active")


@dataclass(frozen=True)
class Run:
    """All of it; steps are (number, start, end)."""

    steps: tuple[tuple[int, int, int], ...]
    operators: tuple[Operator, ...]
    calls: tuple[Call, ...]
    kernels: tuple[Kernel, ...]
    tasks: tuple[Task, ...]
    collectives: tuple[Collective, ...]
    samples: tuple[Sample, ...]
    garbage: tuple[tuple[int, int], ...] = ((1300, 50),)

    def overlap(self):
        """(lane, start, end) of the overlap analysis, counted nanosecond by nanosecond."""
        work = {t for k in self.kernels for t in range(k.start, k.start + k.dur)}
        talk = {t for c in self.collectives for t in range(c.start, c.start + c.dur)}
        whole = range(min(work | talk), max(work | talk) + 1)
        lanes = {
            "Computing": work,
            "Communication": talk,
            "Communication(Not Overlapped)": talk - work,
            "Free": set(whole) - work - talk,
        }
        return [(lane, *span) for lane, ticks in lanes.items() for span in _runs(ticks)]


def _runs(ticks):
    """Runs of whole numbers, as (first, one after the last)."""
    starts = sorted(t for t in ticks if t - 1 not in ticks)
    return zip(starts, sorted(t + 1 for t in ticks if t + 1 not in ticks), strict=True)


def made_run(steps=2):
    """A run of so many steps, the first called 7."""
    numbers = [(7 + i, 100 + 12_000 * i) for i in range(steps)]
    parts = [_step(number, at) for number, at in numbers]
    joined = (tuple(row for part in column for row in part) for column in zip(*parts, strict=True))
    return Run(tuple((n, at, at + 9000) for n, at in numbers), *joined)

"""Rules of the host, and of work that could be done better: what they say and what it saves."""

import pytest
from rule_cases import (
    FIRES,
    MS,
    US,
    attending,
    builder,
    called,
    clocked,
    copied,
    descheduled,
    kernels,
    late,
    launched_each,
    packages,
    passed,
    paused,
    products,
    sequences,
    shaped,
    starved,
    tasks,
    varied,
)

from traceconv.analysis.rules.findings import judge
from traceconv.analysis.summarize import SummaryRequest, summarize
from traceconv.analysis.tables.work import flat_product
from traceconv.core.model import Layer, OpClass


def _judged(rule, builders):
    return judge(
        [summarize(passed(one), SummaryRequest(rules=(rule,))) for one in builders], {}, [rule]
    )


def _only(rule, builders):
    (found,) = _judged(rule, builders).findings
    return found


def test_a_synchronisation_that_the_device_outlasts_costs_nothing():
    """The host waits, but the device is not idle afterwards: no finding."""
    assert not _judged("host-sync", called("cudaDeviceSynchronize", 300 * US, gap=0, each=1,
                                           launches=4)).findings  # fmt: skip


def test_a_synchronisation_of_few_launches_is_judged_by_idle_time():
    """A gap of 100 µs behind the only synchronisation of each step of 500 µs."""
    found = _only("host-sync", called("cudaDeviceSynchronize", 50 * US, each=1, launches=4))
    assert found.case.limit == ""
    assert found.case.value == pytest.approx(20)
    assert found.case.figures["per_launch_percent"] == 25
    assert found.case.figures["idle_behind_them_ns"] == 100 * US
    assert found.ms_per_step == 0.05  # no more than the call takes


def test_a_synchronisation_per_launch_is_a_setting():
    """More than half of the launches are waited for: the advice names the switches."""
    found = _only("host-sync", called("aclrtSynchronizeStream", 50 * US))
    assert found.case.limit == "per-launch"
    assert "ASCEND_LAUNCH_BLOCKING" in found.advice
    assert "calls that only wait" in found.text()
    assert not _judged("host-sync", called("aclrtSynchronizeStream", 50 * US, gap=0)).findings


def test_calls_of_the_host_save_no_more_than_the_device_is_idle():
    """8 ms of allocation twice a step beside 2 ms of idle time: at most these."""
    found = _only("allocation", FIRES["allocation"])
    assert found.case.value == pytest.approx(100 * 16 / 22)
    assert found.case.figures["calls_per_step"] == 2
    assert found.ms_per_step == 2
    assert found.slices[0].name == "cudaMalloc"


def test_calls_of_threads_that_launch_nothing_are_no_matter():
    """A thread of its own frees memory."""
    (build,) = called("other", US, kernel=10 * MS)
    aside = build.track(Layer.RUNTIME, "Thread 2", thread=2)
    build.slice(aside, 0, 80 * MS, "cudaFree")
    assert not _judged("allocation", [build]).findings


def test_gaps_before_short_kernels():
    """6 of 10 µs, to the ns; long gaps are not the cost of a launch."""
    found = _only("small-kernels", launched_each(4 * US, 6 * US))
    # the window begins with the first step, the last gap ends with the last kernel
    assert found.case.value == pytest.approx(60)
    assert found.ms_per_step == pytest.approx(0.3)
    assert found.case.figures["kernels_per_step"] == 50
    assert found.slices[0].dur_ns == 6 * US
    assert not _judged("small-kernels", launched_each(4 * US, 600 * US)).findings


def test_copies_that_are_hidden_or_stay_on_the_device_are_none():
    """Only copies between host and device count; pageable memory is advised against."""
    assert not _judged("step-copies", copied("Memcpy DtoD (Device -> Device)", 50 * US)).findings
    found = _only("step-copies", copied("Memcpy DtoH (Device -> Pageable)", 50 * US))
    assert found.case.value == pytest.approx(100 * 50 / 1050)
    assert found.ms_per_step == pytest.approx(0.05)
    assert "pin it" in found.advice
    pinned = _only("step-copies", copied("Memcpy DtoH (Device -> Pinned)", 50 * US))
    assert "pin it" not in pinned.advice


def test_collections_that_were_not_recorded_are_unknown():
    """A timeline without any says nothing: the profiler has to be told to record them."""
    assert _judged("garbage-collection", called("cudaMalloc", US)).unchecked


def test_what_differs_in_a_spike_is_named():
    """Of five steps after the first one takes 1 ms more: computing, 0.2 ms per step."""
    found = _only("step-spikes", varied(5 * MS, MS, MS, 2 * MS, MS, MS))
    assert found.case.steps == [3]
    assert found.case.value == pytest.approx(2.1 / 1.1)
    assert found.case.figures["more_computing_ns"] == MS
    assert found.case.figures["more_idle_ns"] == 0
    assert found.ms_per_step == pytest.approx(0.2)
    assert "Computing differs" in found.advice


def test_a_first_step_is_no_spike():
    """It has a rule of its own."""
    assert not _judged("step-spikes", varied(9 * MS, MS, MS, MS, MS)).findings


def test_operators_on_ai_cpus():
    """By their time and types; what fetches input is another matter."""
    found = _only("ai-cpu", tasks(900, 60, 40, core="AI_CPU", kind="IndexPutV2"))
    assert (found.case.value, found.case.figures["types"]) == (10, ["IndexPutV2"])
    assert found.ms_per_step == pytest.approx(50 / 1e6)
    assert not _judged("ai-cpu", tasks(900, 100, core="AI_CPU", kind="GetNext")).findings


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("volta_sgemm_64x64_nt", True),
        ("void implicit_convolve_sgemm<float, float, 128>(int)", True),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(x)", True),
        ("Cijk_Ailk_Bljk_SB_MT128x128x16", True),
        ("cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4", False),
        ("sm80_xmma_gemm_tf32f32_tf32f32_f32_tn_n_tilesize128x128", False),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_32x6_nn", False),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x256", False),
        ("ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn", False),
    ],
)
def test_kernels_that_multiply_without_tensor_cores(name, full):
    """By the names that libraries give them."""
    build = builder()
    build.slice(build.track(Layer.DEVICE, "Stream 1"), 0, MS, name, op=OpClass.COMPUTE)
    assert bool(_judged("full-precision", [build]).findings) is full


def test_a_tail_is_of_one_shape():
    """What calls take beyond 1.5 medians; of few calls, or of several shapes, there is none."""
    found = _only("uneven-operator", tasks(100, *[100] * 28, 1000, 1200))
    assert found.case.value == pytest.approx(100 * (850 + 1050) / (29 * 100 + 2200))
    assert (found.case.where, found.case.figures["calls"]) == ("MatMulV2", 30)
    assert not _judged("uneven-operator", tasks(100, *[100] * 10, 1000, 1200)).findings
    many = [("MatMul", f"{i % 2 * 900 + 100},64;64,32", i % 2 * 900 + 100) for i in range(60)]
    assert not _judged("uneven-operator", kernels(*many)).findings


def test_waiting_for_input_is_told_apart_in_spikes():
    """Of idle time what waits for input counts once."""
    lengths = [MS, MS, MS, MS, 9 * MS, MS]
    found = _only("step-spikes", starved(lengths, 4 * MS))
    assert found.case.figures["more_input_ns"] == 8 * MS
    assert found.case.figures["more_idle_ns"] == 0
    assert "They wait for input" in found.advice


@pytest.mark.parametrize(
    ("name", "between"),
    [
        ("Memcpy HtoD (Pinned -> Device)", True),
        ("MEMCPY_HtoD", True),
        ("MemcpyD2H", True),
        ("CopyHostToDevice", True),
        ("MEMORY_COPY_DEVICE_TO_HOST", True),
        ("Memcpy Host-to-Device", True),
        ("Memcpy DtoD (Device -> Device)", False),
        ("Memcpy PtoP (Device -> Device)", False),
        ("Memset (Device)", False),
        ("MemcpyD2D", False),
    ],
)
def test_names_of_copies_between_host_and_device(name, between):
    """As profilers write them."""
    assert bool(_judged("step-copies", copied(name, 50 * US)).findings) is between


def test_only_what_does_not_need_a_collective_could_overlap():
    """A kernel that starts while the collective runs, and was launched only then: 600 µs of each
    step, since nothing that it could have waited for ended later; none that was launched before."""
    found = _only("late-overlap", late(200 * US))
    assert found.case.figures["per_step_ns"] == 600 * US
    assert found.case.figures["waits"] == 3
    assert found.ms_per_step == 0.6
    assert not _judged("late-overlap", late(-100 * US)).findings


def test_a_pause_of_the_host_is_no_collection():
    """5 ms in which only a range goes on; a call in it makes it work. Where kernels are launched
    outside recorded operators, the host is not known."""
    found = _only("host-pause", paused(5 * MS))
    assert found.severity == "note"
    assert found.case.figures["pauses"] == 3
    assert found.ms_per_step == 5
    assert found.slices[0].dur_ns == 5 * MS
    assert _judged("host-pause", launched_each(4 * US, 6 * US)).unchecked


def test_a_host_that_is_hardly_seen_does_not_pause():
    """A pause after every few kernels is what a thinned recording looks like, and a capture
    without steps holds the start of the program."""
    assert _judged("host-pause", paused(5 * MS, each=10)).unchecked
    assert _judged("host-pause", paused(5 * MS, marked=False)).unchecked


def test_a_sequence_saves_the_gaps_between_its_kernels():
    """a, b, c in 20 places of a step, with 2 µs between them; what follows is no part of it."""
    found = _only("kernel-sequence", sequences("a", "b", "c"))
    assert found.case.figures["kernels"] == ["a", "b", "c"]
    assert found.case.figures["count"] == 60
    assert found.ms_per_step == pytest.approx(20 * 2 * 2e-3)
    assert (found.case.where, found.case.figures["between_ns"]) == ("Stream 1", 4 * US)


def test_equal_kernels_are_counted_once():
    """Of one kernel again and again, sequences do not share kernels."""
    found = _only("kernel-sequence", sequences(*"aaaaaaa"))
    assert found.case.figures["kernels"] == ["a"] * 7
    assert found.case.figures["count"] == 60


def test_clocks_are_compared_with_ranks_and_over_time():
    """Rank 1 computes one of two milliseconds at two thirds of the clock; a rank alone that speeds
    up for a moment only is not slow otherwise."""
    found = _only("frequency-drop", FIRES["frequency-drop"])
    assert (found.rank, found.case.where) == (1, "AI Core Freq")
    assert found.case.value == pytest.approx(100 / 6)
    assert found.ms_per_step == pytest.approx(1 / 3)
    assert found.slices[0].name == "k1"
    split = _only("frequency-drop", clocked(1800, 1200, groups=2))  # windows in two formats
    assert split.case == _only("frequency-drop", clocked(1800, 1200)).case
    assert _only("frequency-drop", clocked(1800, 1200)).rank == 0
    assert not _judged("frequency-drop", clocked(*[1200] * 150, 1800)).findings
    assert not _judged("frequency-drop", clocked(1800, float("inf"), float("nan"), 1800)).findings


@pytest.mark.parametrize(
    ("name", "core"),
    [
        ("AI Core Freq Die 1", True),
        ("GPC Clock Frequency", True),
        ("sclk", True),
        ("mclk", False),
        ("DRAM Frequency", False),
        ("HBM/Read", False),
    ],
)
def test_clocks_of_memory_are_none_of_the_cores(name, core):
    """By the names of counters."""
    assert bool(_judged("frequency-drop", clocked(1800, 1200, name=name)).findings) is core


def test_operators_that_also_run_on_cores():
    """What runs on AI Cores elsewhere in the capture has a form for them; of operators of unknown
    type nobody knows."""
    build = builder(vendor="ascend")
    stream = build.track(Layer.DEVICE, "Stream 1")
    for at, core in enumerate(("AI_CPU", "AI_VECTOR_CORE")):
        args = {"Op Type": "Unique", "Task Type": core}
        build.slice(stream, at * MS, MS, "Unique", op=OpClass.COMPUTE, args=args)
    assert _only("ai-cpu", [build]).case.value == 50
    assert _judged("ai-cpu", tasks(900, 100, core="AI_CPU", kind="", types="")).unchecked


def test_packages_that_are_not_aligned_are_compared_with_smaller_ones():
    """A larger one should be faster: 500 µs for what takes 100 µs at their speed."""
    found = _only("unaligned-packets", FIRES["unaligned-packets"])
    assert found.case.figures["smallest_bytes"] == (1 << 21) + 8
    assert found.case.figures["not_aligned_packages"] == 1
    assert found.case.gone == {"exposed": pytest.approx(400 * US, rel=1e-4)}
    alone = packages(((1 << 21) + 8, 500 * US), (1 << 26, 67 * US))
    assert not _judged("unaligned-packets", alone).findings


def test_a_transfer_of_seconds_was_sent_again():
    """Over RDMA only."""
    for over, speaks in (("RDMA", True), ("SDMA", False)):
        build = builder()
        plane = build.track(Layer.COMM, "Plane 0", "Group 0")
        build.slice(plane, 0, 4001 * MS, "RDMASend", op=OpClass.COMM_TASK,
                    args={"transport type": over, "size(Byte)": 1024})  # fmt: skip
        build.slice(build.track(Layer.COMM, "Communication", "Group 0"), 0, 4001 * MS,
                    "hcom_allReduce__1_0_1", op=OpClass.COMM, args={"retry": "no"})  # fmt: skip
        assert bool(_judged("retransmission", [build]).findings) is speaks


def test_products_of_matrices_are_measured_by_the_data_sheet():
    """4096 x 4096 x 4096 in 500 µs: 137.4 of 494.7 tera operations in that time."""
    found = _only("matmul-efficiency", products(500 * US))
    assert found.case.value == pytest.approx(100 * 2 * 4096**3 / 989.4e12 / 500e-6)
    assert found.case.figures["device"] == "NVIDIA H100 80GB HBM3"
    least = 2 * 4096**3 / 989.4e12 * 1e3
    assert found.ms_per_step == pytest.approx(3 * (0.5 - least))
    single = products(500 * US, kinds=("float", "float"))
    assert _judged("matmul-efficiency", single).unchecked
    assert _judged(
        "matmul-efficiency", products(500 * US, device="NVIDIA A100-PG509-200")
    ).unchecked


FP8 = ("c10::Float8_e4m3fn", "c10::Float8_e5m2")


def test_products_of_8_bits_are_measured_by_twice_the_peak():
    """Where a data sheet says so; else they are not judged."""
    scaled = {"kinds": FP8, "name": "aten::_scaled_mm"}
    found = _only("matmul-efficiency", products(500 * US, **scaled))
    assert found.case.value == pytest.approx(100 * 2 * 4096**3 / 1978.8e12 / 500e-6)
    assert found.case.figures["peak_of_8_bits_tflops"] == pytest.approx(1978.8)
    assert not _judged("matmul-efficiency", products(150 * US, **scaled)).findings
    for device in ("NVIDIA A100-SXM4-80GB", "NVIDIA H20"):
        assert _judged("matmul-efficiency", products(500 * US, device=device, **scaled)).unchecked
    mixed = {**scaled, "kinds": ("c10::Float8_e4m3fn", "signed char")}
    assert _judged("matmul-efficiency", products(500 * US, **mixed)).unchecked


def multiplied(ns, device, size=4096):
    """A product on an NPU of this name."""
    build = builder(vendor="ascend")
    build.hints.device_names[0] = device
    stream, both = build.track(Layer.DEVICE, "Stream 1"), f"{size},{size}"
    args = {"Op Type": "MatMul", "Input Shapes": f"{both};{both}", "Output Shapes": both,
            "Input Data Types": "DT_BF16;DT_BF16", "Input Formats": "ND;ND"}  # fmt: skip
    build.slice(stream, 0, ns, "MatMul", op=OpClass.COMPUTE, args=args)
    return [build]


def test_products_of_npus_are_measured_by_their_cores_and_clock():
    """24 cores at 1800 MHz multiply 24 * 1.8e9 * 2 * 16^3: 353.9 * 10^12; slow memory is no
    reason of a product of 4096^3."""
    cubes = "Ascend chip 5: 24 cores at 1800 MHz"
    found = _only("matmul-efficiency", multiplied(2 * MS, cubes))
    assert found.case.value == pytest.approx(100 * 2 * 4096**3 / 353.8944e12 / 2e-3)
    assert found.case.figures["device"] == cubes
    assert "memory_gbs" not in found.case.figures
    assert not _judged("matmul-efficiency", multiplied(900 * US, cubes)).findings
    for small in ({"size": 1024}, {"device": "Ascend chip 15: 24 cores at 1800 MHz"}):
        assert _judged(
            "matmul-efficiency", multiplied(2 * MS, **{"device": cubes, **small})
        ).unchecked


def test_products_that_move_much_are_measured_by_the_memory():
    """A row times a matrix: its 32 MiB take 10 µs of 12."""
    moved = products(12 * US, dims=((1, 4096), (4096, 4096)))
    assert not _judged("matmul-efficiency", moved).findings
    assert _judged("matmul-efficiency", moved).quiet


@pytest.mark.parametrize(
    ("sizes", "operations"),
    [
        ((6, 12, 8), 2 * 2 * 3 * 4),  # 2 x 3 times 3 x 4
        ((12, 6, 8), 2 * 4 * 3 * 2),
        ((6, 12, 7), None),
        ((4, 6, 4), None),  # 6 is no square
        ((0, 6, 6), None),
    ],
)
def test_products_of_elements(sizes, operations):
    """From numbers of elements, where they can be those of a product."""
    found = flat_product(*sizes)
    assert (found and found.flops) == operations


def test_attention_is_compared_with_what_the_device_needs():
    """4 sequences of 4096, 16 heads of 128: 5.5e11 operations are 556 µs of an H100, of 4 ms; half
    of them where a query looks back only. A decoder's one query moves keys and values."""
    found = _only("attention-efficiency", attending(4 * MS))
    operations = 4 * 4 * 16 * 4096**2 * 128
    assert found.case.value == pytest.approx(100 * operations / 989.4e12 / 4e-3)
    assert found.ms_per_step == pytest.approx(3 * (4 - operations / 989.4e9))
    causal = _only("attention-efficiency", attending(2 * MS, causal="True"))
    assert causal.case.value == pytest.approx(100 * operations / 2 / 989.4e12 / 2e-3)
    one = _only("attention-efficiency", attending(MS, dims=(8, 1, 16, 128), keys=(8, 4096, 2, 128)))
    assert one.case.value == pytest.approx(100 * 4 * (8 * 16 + 8 * 4096 * 2) * 128 / 3350e9 / 1e-3)


@pytest.mark.parametrize(
    "more",
    [
        {"causal": ""}, {"window": "128"}, {"kinds": ("float",) * 3}, {"dims": (4096, 16, 128)},
        {"keys": (4, 4096, 3, 128)}, {"keys": (4, 8192, 16, 128), "causal": "True"},
        {"dims": (4, 0, 16, 128)}, {"keys": "x"},
    ],
)  # fmt: skip
def test_attention_that_is_not_stated_in_full_is_not_judged(more):
    """What is masked, packed, or of other types: nobody knows what it has to do."""
    assert _judged("attention-efficiency", attending(4 * MS, **more)).unchecked


def test_an_operator_that_is_faster_on_larger_shapes():
    """1000 columns take 90 µs, 1024 take 40: each of six calls could save 50."""
    found = _only("slow-shape", FIRES["slow-shape"])
    assert found.case.figures["larger_shape"] == "128,1024;128,1024 -> 128,1024"
    assert found.ms_per_step == pytest.approx(6 * 0.05)
    few = shaped(("128,1000", 90 * US), ("128,1024", 40 * US), each=4)
    assert not _judged("slow-shape", few).findings


def test_a_thread_that_blocks_is_off_the_cpu_by_itself():
    """800 of 2000 µs, from one CPU to another; without calls of the system nobody can tell."""
    found = _only("off-cpu", FIRES["off-cpu"])
    assert found.ms_per_step == pytest.approx(0.8)
    assert found.case.figures["moved_to_another_cpu_per_step"] == 1
    assert found.slices[0].name == "Off CPU"
    assert _judged("off-cpu", descheduled(800 * US, heading="cuBLAS")).unchecked


def test_another_process_in_the_place_of_the_thread():
    """On the CPU that it lost for 300 of 800 µs, then on the one it comes back to for 200, before
    that on neither; what it was called, and in which steps."""
    runs = [(1, 0, 300 * US), (2, 600 * US, 300 * US), (3, 300 * US, 300 * US)]
    found = _only("foreign-process", descheduled(800 * US, others=runs))
    assert found.ms_per_step == pytest.approx(0.5)
    assert found.case.figures["most_per_step"] == [
        "indexer (pid 1) 300 µs", "indexer (pid 2) 200 µs",
    ]  # fmt: skip
    assert (found.case.figures["processes"], found.case.steps) == (2, [0, 1, 2])
    assert {(one.name, one.lane) for one in found.slices} <= {
        (f"indexer (pid {cpu})", f"Other Processes / CPU {cpu}") for cpu in (1, 2)
    }
    off = _only("off-cpu", descheduled(800 * US, others=runs)).case.figures
    assert off["while_another_process_ran_there_percent"] == pytest.approx(62.5)
    assert "other_processes" not in off


def test_runs_of_one_cpu_that_overlap_count_once():
    """Stamps that contradict each other: runs are on two lanes of the CPU, their time is one."""
    runs = [(1, 0, 300 * US), (1, 200 * US, 300 * US)]
    found = _only("foreign-process", descheduled(800 * US, others=runs))
    assert found.ms_per_step == pytest.approx(0.5)


@pytest.mark.parametrize(
    "told",
    [
        {"others": [(3, 0, 800 * US)]},
        {"others": [(1, 0, 800 * US)], "call": "poll"},
        {"others": [(1, 0, 800 * US)], "busy": 900 * US},
        {"others": [(1, 850 * US, 100 * US)]},
        {"others": []},
    ],
    ids=["on another CPU", "blocked by itself", "device busy", "afterwards", "nobody"],
)
def test_other_processes_that_take_nothing_from_a_launching_thread(told):
    """All processes of the machine were recorded: the rule has looked, and found nothing."""
    judged = _judged("foreign-process", descheduled(800 * US, **told))
    assert not judged.findings and not judged.minor
    assert [rule.id for rule in judged.quiet] == ["foreign-process"]


def test_processes_that_were_not_recorded_are_unknown():
    """Neither none nor 0: the rule has not looked, and a thread off the CPU says so."""
    alone = descheduled(800 * US)
    assert _judged("foreign-process", alone).unchecked
    figures = _only("off-cpu", alone).case.figures
    assert figures["other_processes"] == "not recorded"
    assert "while_another_process_ran_there_percent" not in figures


def test_of_some_processes_only_what_ran_is_said():
    """One of them took the thread's place: at least that; otherwise nobody knows."""
    some = descheduled(800 * US, others=[(1, 0, 300 * US)], whole=False)
    assert _only("foreign-process", some).case.figures["other_processes"] == "not all recorded"
    assert _only("off-cpu", some).case.figures["other_processes"] == "not all recorded"
    for runs in ([(3, 0, 300 * US)], [(1, 0, 2 * US)]):
        little = descheduled(800 * US, others=runs, whole=False)
        judged = _judged("foreign-process", little)
        assert judged.unchecked and not judged.quiet and not judged.findings
    nothing = descheduled(800 * US, others=[(3, 0, 300 * US)], whole=False)
    figures = _only("off-cpu", nothing).case.figures
    assert figures["other_processes"] == "not all recorded"
    assert "while_another_process_ran_there_percent" not in figures


def test_synchronous_copies_are_no_blocking_mode():
    """They wait for the device, and are launches themselves."""
    found = _only("host-sync", called("cudaMemcpy", 300 * US, each=1))
    assert (found.case.limit, found.case.figures["per_launch_percent"]) == ("", 0)
    assert "LAUNCH_BLOCKING" not in found.advice


def test_what_a_step_takes_is_unknown_where_none_is_marked():
    """A capture that counts as one holds the beginning of a program."""
    build = builder()
    calls, stream = (
        build.track(Layer.RUNTIME, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    build.slice(calls, 0, 500 * MS, "cudaMalloc")
    build.slice(stream, 500 * MS, MS, "k", op=OpClass.COMPUTE)
    assert _judged("allocation", [build]).unchecked

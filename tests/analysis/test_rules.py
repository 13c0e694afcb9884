"""Rules: when each speaks and when not, what it says, and what it says if it cannot look."""

import pickle
from dataclasses import replace

import msgspec
import pytest
from rule_cases import (
    CAPACITY,
    FIRES,
    MS,
    QUIET,
    US,
    both_queues,
    builder,
    device,
    device_queue,
    host_queue,
    iterations,
    kernels,
    launched,
    memory,
    packages,
    passed,
    pipeline,
    products,
    side_table,
    staged,
    waiting,
)

from traceconv.analysis.rank_facts import Losses
from traceconv.analysis.rank_summary import decode, encode
from traceconv.analysis.rules.catalog import RULES, thresholds
from traceconv.analysis.rules.findings import _minor, judge
from traceconv.analysis.summarize import SummaryRequest, summarize
from traceconv.core.errors import MalformedInputError, OptionError
from traceconv.core.job_shape import Placement
from traceconv.core.model import Layer, OpClass, TrackKind


def summary(trace, rules=tuple(RULES)):
    """What the rules need of a rank."""
    return summarize(trace, SummaryRequest(rules=rules))


def _traces(builders):
    return [passed(one) for one in builders]


def _judged(rule, builders, **said):
    said = {key.replace("__", ".").replace("_", "-"): value for key, value in said.items()}
    parts = [summary(trace, [rule]) for trace in _traces(builders)]
    return judge(parts, CAPACITY | said if rule == "memory-capacity" else said, [rule])


def _only(rule, builders, **said):
    """The one finding of a rule."""
    (found,) = _judged(rule, builders, **said).findings
    return found


def test_every_rule_has_a_case_that_fires_and_one_that_does_not():
    """A rule nobody tried is a guess."""
    assert list(RULES) == list(FIRES)
    assert list(RULES) == list(QUIET)


SHOWN = {
    "iteration-gap": ["Iteration Interval 2", "Iteration Interval 3"],
    "forward-backward": ["FP_BP 1", "FP_BP 2"],
    "long-tail": ["Tail 1", "Tail 2"],
    "first-step": ["Model 1 Iteration 1"],
    "input-wait": ["enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"],
    "device-queue-empty": ["GetNext"],
    "sending-slow": ["GetNext"],
    "not-sunk": ["Free"],
    "device-idle": ["Free"],
    "launch-starved": ["Free"],
    "exposed-communication": ["Communication(Not Overlapped)"],
    "idle-spread": ["Free"],
    "frequency-drop": ["k1"],
    "host-sync": ["cudaStreamSynchronize"],
    "allocation": ["cudaMalloc"],
    "garbage-collection": ["GC"],
    "compilation": ["AscendCL@aclopCompileAndExecute"],
    "small-kernels": ["Free"],
    "step-copies": ["Memcpy HtoD (Pageable -> Device)"],
    "late-overlap": ["Communication(Not Overlapped)"],
    "host-pause": ["Free"],
    "off-cpu": ["Off CPU"],
    "foreign-process": ["indexer (pid 1)"],
    "kernel-sequence": ["a", "b", "c"],
    "communication-wait": ["hcom_allReduce__1_0_1"],
    "retransmission": ["hcom_allReduce__1_0_1", "hcom_allReduce__1_1_1", "hcom_allReduce__1_2_1"],
    "format-conversion": ["op/Cast-op1", "op/TransData-op1"],
    "unaligned-shapes": ["op/MatMul-op1"],
    "ai-cpu": ["MatMulV2"],
    "full-precision": ["MatMulV2"],
    "uneven-operator": ["MatMulV2"],
    "memory-capacity": ["Memory PTA/Total Reserved"],
    "matmul-efficiency": ["gemm"],
    "attention-efficiency": ["gemm"],
    "slow-shape": ["Add"],
}
"""Names of the slices that each rule shows as its evidence; the others show none."""


@pytest.mark.parametrize("rule", RULES)
def test_what_a_rule_shows_is_what_it_speaks_of(rule):
    """No step where a wait is meant, and nothing of what is all right."""
    found = _judged(rule, FIRES[rule])
    spoken = (*found.findings, *found.minor, *found.good)
    names = {one.name for finding in spoken for one in finding.case.slices}
    assert names == set(SHOWN.get(rule, ()))


@pytest.mark.parametrize("rule", RULES)
def test_rule_fires(rule):
    """It names itself, a rank, a value beyond its threshold, and what to do."""
    found = _judged(rule, FIRES[rule])
    spoken = (*found.findings, *found.minor, *found.good)
    assert spoken
    assert found.quiet == ()
    for finding in spoken:
        main, limit = finding.limit, finding.limits[finding.limit.name]
        assert finding.rule.id == rule
        assert finding.rank in {trace.rank for trace in _traces(FIRES[rule])}
        assert finding.case.value < limit if main.below else finding.case.value > limit
        assert finding.advice.endswith(".")


@pytest.mark.parametrize("rule", RULES)
def test_rule_stays_quiet(rule):
    """It looked, and found nothing: that is neither a finding nor a rule without data."""
    found = _judged(rule, QUIET[rule])
    assert found.findings == ()
    assert [one.id for one in found.quiet] == [rule]
    assert found.unchecked == ()


@pytest.mark.parametrize("rule", RULES)
def test_rule_without_data_is_not_checked(rule):
    """Not fine, and it says what it would need."""
    build = builder()
    build.notes["nothing"] = True
    found = judge([summary(passed(build), [rule])], CAPACITY, [rule])
    assert (found.findings, found.quiet) == ((), ())
    (one,) = found.unchecked
    assert one.text() == f"not checked: {rule}: needs {RULES[rule].needs}"


@pytest.mark.parametrize("rule", RULES)
def test_threshold_can_be_set(rule):
    """The main threshold, far out, silences every case that fires by it."""
    far = -1e9 if RULES[rule].limits[0].below else 1e9
    found = _judged(rule, FIRES[rule], **{rule.replace("-", "_"): far})
    assert not [one for one in (*found.findings, *found.good) if not one.case.limit]


@pytest.mark.parametrize("rule", RULES)
def test_rule_is_described(rule):
    """Every threshold has a source, every rule a title, a measure and a sentence of advice."""
    one = RULES[rule]
    assert all((one.title, one.theme, one.measure, one.needs, one.advice.endswith(".")))
    assert all(limit.source for limit in one.limits)
    assert one.limits[0].name == ""


def test_what_rules_need_of_a_rank_travels():
    """Encoded and between processes, and are judged the same afterwards."""
    for rule in RULES:
        parts = [summary(trace, [rule]) for trace in _traces(FIRES[rule])]
        there = [pickle.loads(pickle.dumps(part)) for part in parts]
        written = [decode(encode(part)) for part in parts]
        texts = [
            [one.as_dict() for one in judge(some, CAPACITY, [rule]).findings]
            for some in (parts, there, written)
        ]
        assert texts[0] == texts[1] == texts[2]


def test_a_broken_table_leaves_its_rules_unchecked():
    """Nothing else suffers, and what is wrong with it is told."""
    build = iterations(MS, MS, tail=0.3)[0]

    def load():
        raise MalformedInputError("summary.json", "byte 7", "not JSON")

    build.side_table("minddata_pipeline_summary", "summary.json", load)
    part = summary(passed(build))
    found = judge([decode(encode(part))])
    assert "long-tail" in {one.rule.id for one in found.findings}
    told = {one.rule.id: one.text() for one in found.unchecked}
    assert told["workers-few"].endswith("(summary.json: byte 7: not JSON)")
    assert "; unreadable: summary.json: byte 7: not JSON" in found.lines()[-1]
    assert found.markdown().endswith("; unreadable: summary.json: byte 7: not JSON.\n")
    assert "(summary.json: byte 7: not JSON)" in found.markdown(every=True)
    assert "(" not in told["first-step"]


# -- thresholds and choices ----------------------------------------------------------------


def test_thresholds_are_named_by_rule_and_name():
    """The main one by the rule alone."""
    said = thresholds({"long-tail": 33, "pipeline-operator.right": 10})
    assert said["long-tail"] == {"": 33.0}
    assert said["pipeline-operator"] == {"": 80.0, "right": 10.0}


@pytest.mark.parametrize("key", ["tail", "long-tail.x", "pipeline-operator.", ""])
def test_unknown_thresholds_are_refused(key):
    """With those there are."""
    with pytest.raises(OptionError, match=r"no threshold .*there are: iteration-gap, "):
        thresholds({key: 1.0} if key != "pipeline-operator." else {"pipeline-operator.x": 1.0})


def test_thresholds_are_numbers():
    """Not the lack of one."""
    with pytest.raises(OptionError, match="nan is not a finite number"):
        thresholds({"long-tail": float("nan")})


def test_unknown_rules_are_refused():
    """Where a rank is read and by the judge."""
    with pytest.raises(OptionError, match="no rule 'x'; there are: iteration-gap"):
        summary(passed(builder()), ["x"])
    with pytest.raises(OptionError, match="no rule 'x'"):
        judge([], rules=["x"])


# -- what findings say -----------------------------------------------------------------------


def test_finding_names_steps_figures_and_slices():
    """Pauses of 2 ms before steps 2 and 3: when, how long, and what is usual."""
    found = _only("iteration-gap", FIRES["iteration-gap"])
    assert (found.rank, found.case.where, list(found.case.steps)) == (0, "graph 1", [2, 3])
    assert found.case.value == pytest.approx(100 * 4 / 7)  # two gaps, three steps of 1 ms
    assert found.case.figures["longest_ns"] == 2 * MS
    assert [(s.start_ns, s.dur_ns) for s in found.slices] == [(MS, 2 * MS), (4 * MS, 2 * MS)]
    assert found.text().startswith(
        "iteration-gap: rank 0, graph 1: Long gaps between steps: 57.1 % (gaps"
    )


@pytest.mark.parametrize("first", [0, 10])
def test_first_step_whatever_its_number(first):
    """The first that was recorded is judged, by at least three others."""
    for several, spoken in ((4, True), (3, False)):
        build, at = builder(), 0
        lane = build.track(Layer.STEP, "Model 1")
        for i in range(several):
            length = MS * (1 + 4 * (i == 0))
            build.slice(lane, at, length, f"{i}", op=OpClass.ITERATION, graph=1, step=first + i)
            at += length
        found = _judged("first-step", [build])
        assert [one.case.steps for one in found.findings] == [(first,)] * spoken
        assert bool(found.unchecked) is not spoken


@pytest.mark.parametrize(("first", "spoken"), [(MS, False), (3 * MS, True)])
def test_first_step_of_a_host_that_is_ahead(first, spoken):
    """Its marks are short once it need not wait for anything: what lasts is the device's work."""
    build, at = builder(), 0
    host, calls = (
        build.track(Layer.HOST, "Thread 1", thread=1),
        build.track(Layer.RUNTIME, "Thread 1", thread=1),
    )
    stream = build.track(Layer.DEVICE, "Stream 1", title="GPU Hardware")
    for i in range(5):
        length, work = (500 * US, first) if not i else (10 * US, MS)
        begin = i and 490 * US + 10 * US * i
        build.slice(host, begin, length, f"ProfilerStep#{i}", op=OpClass.HOST, step=i)
        call = build.slice(calls, begin + US, US, "cudaLaunchKernel", op=OpClass.HOST)
        kernel = build.slice(stream, at + 10 * US, work, "k", op=OpClass.COMPUTE)
        build.flow(call, kernel, "launch")
        at += work
    assert bool(_judged("first-step", [build]).findings) is spoken


def _tails(build, start, numbers, length, tail, reduces=()):
    """Iterations one after the other, each with a tail, and collectives on two streams in it."""
    lane = build.track(Layer.STEP, "Model 1")
    for number in numbers:
        common = {"graph": 1, "step": number}
        build.slice(lane, start, length, f"Iteration {number}", op=OpClass.ITERATION, **common)
        begin = start + length - tail
        build.slice(lane, begin, tail, f"Tail {number}", op=OpClass.TAIL, **common)
        for name, (at, taken) in enumerate(reduces):
            build.slice(lane, begin + at, taken, f"Reduce {name}", op=OpClass.REDUCE, **common)
        start += length


def test_parts_of_all_steps_count():
    """Of 1200 steps the later ones have longer tails; collectives run on two streams at once."""
    build = builder()
    _tails(build, 0, range(1, 601), 100 * US, 10 * US, [(0, 5 * US), (3 * US, 5 * US)])
    _tails(build, 60_000 * US, range(601, 1201), 100 * US, 50 * US, [(0, 8 * US)])
    found = _only("long-tail", [build])
    assert found.case.value == pytest.approx(30)
    figures = found.case.figures
    assert (figures["steps"], figures["mean_ns"]) == (1200, 30 * US)
    assert figures["reduce_percent"] == pytest.approx(8)
    assert [one.lane for one in found.slices] == ["Step Trace / iterations"] * 3


def test_a_share_of_what_no_step_marks_is_not_said():
    """Steps without marks of collectives: how much of the tail these take is unknown."""
    build = builder()
    _tails(build, 0, range(1, 4), 100 * US, 50 * US)
    assert "reduce_percent" not in _only("long-tail", [build]).case.figures


def test_steps_whose_numbers_start_over_are_apart():
    """Two windows: tails of 10 of 100 us, then, under the same numbers, 60 of 100 us."""
    build = builder()
    _tails(build, 0, (1, 2, 3), 100 * US, 10 * US)
    _tails(build, 10 * MS, (1, 2, 3), 100 * US, 60 * US)
    found = _only("long-tail", [build])
    assert (found.case.value, found.case.figures["steps"]) == (pytest.approx(35), 6)


@pytest.mark.parametrize("rule", RULES)
def test_evidence_is_in_a_lane_or_in_a_table(rule):
    """Whatever slice a rule shows, it says where: a lane of the trace, else the table it is of."""
    for one in _judged(rule, FIRES[rule]).findings:
        for piece, since in zip(one.slices, one.since_ns, strict=True):
            assert bool(piece.lane) != bool(piece.table)
            assert (since is None) == (not piece.lane)


def test_what_a_table_tells_of_is_shown_where_it_is_drawn():
    """By name and most of its time: stamps of tables are coarser; else it is in no lane."""
    build = builder(vendor="ascend")
    lane = build.track(Layer.COMM, "Communication", "Group 0", "HCCL")
    build.slice(lane, 1_000_100, 80 * US, "send", op=OpClass.COMM)
    columns = {
        "Operator": ["send", "gone"], "Group": ["g", "g"], "Step": [1, 1],
        "Start Timestamp(us)": [1_000_000, 5_000_000], "Elapse Time(ms)": [80 * US, 70 * US],
        "Transit Time(ms)": [US, US], "Wait Time(ms)": [70 * US, 60 * US],
        "Synchronization Time(ms)": [70 * US, 60 * US], "Idle Time(ms)": [0, 0],
    }  # fmt: skip
    found = _only("communication-wait", [side_table(build, "communication", **columns)])
    drawn, told = found.slices
    assert (drawn.name, drawn.start_ns, drawn.lane) == (
        "send", 1_000_100, "HCCL / Group 0 / Communication",
    )  # fmt: skip
    assert (told.name, told.lane, told.table) == ("gone", "", "communication")
    assert found.since_ns == (0, None)
    lines = judge([summary(passed(build), ["communication-wait"])], {}, ["communication-wait"])
    text = "\n".join(lines.lines())
    assert "send: 80 µs at 0.000 000 000 s, rank 0, HCCL / Group 0 / Communication" in text
    assert "gone: 70 µs in the table communication, on no track" in text


def test_steps_without_device_work_are_left_out():
    """Shares are of steps in which the profiler was collecting."""
    found = _only("device-idle", FIRES["device-idle"])
    assert found.case.value == pytest.approx(50, abs=0.1)
    assert list(found.case.steps) == [0, 1, 2]
    assert found.case.figures["free_percent"] == pytest.approx(50, abs=0.1)
    assert [s.dur_ns for s in found.slices] == [50 * US, 50 * US, 50 * US - 1]


def test_starved_queue_tells_the_distribution():
    """Thirty launches, 8 us from call to kernel, the device idle in between."""
    figures = _only("launch-starved", FIRES["launch-starved"]).case.figures
    assert [figures[f"p{p}_ns"] for p in (5, 25, 50, 75, 95)] == [8 * US] * 5
    assert figures["launches"] == 30


def test_short_waits_of_a_busy_device_are_no_starving():
    """Long kernels back to back start soon after their launch, and nothing is idle."""
    assert not _judged("launch-starved", launched(8 * US, length=95 * US)).findings


def test_spread_names_both_ends():
    """The rank that computes longest, and the one that does least."""
    found = _only("compute-spread", FIRES["compute-spread"])
    assert (found.rank, found.case.figures["rank_of_least"]) == (1, 0)
    assert found.case.value == pytest.approx(100 * 30 / 65, abs=0.1)


def test_spread_needs_two_ranks():
    """One rank is compared with nobody."""
    found = _judged("compute-spread", device(50 * US))
    assert [one.ranks for one in found.unchecked] == [()]


def test_spread_compares_the_same_steps():
    """Steps only one rank has do not count."""
    ranks = [
        *device(50 * US, idle=50 * US, steps=3),
        *device(51 * US, idle=49 * US, steps=6, rank=1),
    ]
    assert not _judged("compute-spread", ranks).findings


@pytest.mark.parametrize("rule", ["compute-spread", "idle-spread"])
@pytest.mark.parametrize("first", [None, 3])
def test_what_is_no_common_step_is_not_compared(rule, first):
    """Recordings without steps, or of other ones, may be of any length and of any work."""
    ranks = [*device(50 * US, idle=50 * US), *device(80 * US, idle=20 * US, rank=1, first=first)]
    found = _judged(rule, ranks)
    assert (found.findings, found.quiet) == ((), ())
    assert [one.rule.id for one in found.unchecked] == [rule]


@pytest.mark.parametrize("rule", ["compute-spread", "idle-spread"])
@pytest.mark.parametrize("stages", [(0, 0, 1), (0, 1, 1)])
def test_stages_of_a_pipeline_are_looked_at_by_themselves(rule, stages):
    """Ranks 0 and 2 differ, and only ranks of one stage have to be alike."""
    builders = [*device(50 * US, idle=50 * US), *device(51 * US, idle=49 * US, rank=1),
                *device(80 * US, idle=20 * US, rank=2)]  # fmt: skip
    parts = []
    for build, stage in zip(builders, stages, strict=True):
        trace = passed(build)
        stated = replace(trace.capture, placement=Placement(coordinates={"pp": stage}))
        parts.append(summary(replace(trace, capture=stated), [rule]))
    found = judge(parts, {}, [rule])
    ends = [sorted((one.rank, one.case.figures["rank_of_least"])) for one in found.findings]
    assert ends == ([[1, 2]] if stages == (0, 1, 1) else [])


def test_copies_alone_do_not_show_that_a_device_is_idle():
    """A file of copies holds no kernels: what ran meanwhile is unknown."""
    copies = device(5 * US, idle=95 * US, op=OpClass.COPY)
    for rule in ("device-idle", "step-copies", "device-busy"):
        assert _judged(rule, copies).unchecked


def test_some_ranks_without_data_are_named():
    """The finding stands, and so does what was not looked at."""
    found = _judged("device-queue-empty", [*device_queue([0, 0]), builder(3)])
    assert [one.rank for one in found.findings] == [0]
    assert [(one.rule.id, one.ranks) for one in found.unchecked] == [("device-queue-empty", (3,))]
    assert "not checked: device-queue-empty (rank 3)" in "\n".join(found.lines())


def test_empty_fetches_are_steps():
    """The second and the fourth step waited."""
    found = _only("device-queue-empty", FIRES["device-queue-empty"])
    assert (list(found.case.steps), found.case.value) == ([2, 4], 50.0)
    assert [s.start_ns for s in found.slices] == [MS, 3 * MS]


def test_empty_host_queue_is_not_slow_sending():
    """Who has nothing to send is not slow at it: processing is."""
    ranks = both_queues([0, 0, 0, 1], [0, 0, 1])
    assert not _judged("sending-slow", ranks).findings
    assert _judged("host-queue-empty", ranks).findings


def test_a_dataset_that_is_not_sunk_has_a_host_queue_too():
    """Its own file says so."""
    ranks = host_queue([0, 0, 1], name="dataset_iterator_profiling")
    assert _only("host-queue-empty", ranks).case.where == "dataset_iterator"


@pytest.mark.parametrize(
    ("name", "word"),
    [("Map", "map"), ("MapOp", "map"), ("Batch", "batch"), ("PaddedBatch", "batch")],
)
def test_advice_suits_the_inner_operator(name, word):
    """Maps and batches are told apart."""
    found = _only("pipeline-operator", pipeline(("Filter", 0.5), (name, 0.1), ("TFReader", 0.95)))
    assert f"of this {word}" in found.advice
    assert found.case.where == f"{name} (operator 1)"


@pytest.mark.parametrize(
    ("name", "word"),
    [("GeneratorOp", "generator"), ("TFReader", "reader"), ("MindDataset", "reader")],
)
def test_advice_suits_the_source(name, word):
    """Generators run the user's code, readers read files."""
    assert (
        f"of the {word}" in _only("pipeline-source", pipeline(("Batch", 0.1), (name, 0.1))).advice
    )


def test_operators_without_work_are_passed_over():
    """A shuffle is no culprit; queues behind a repeat count for what comes after it."""
    assert not _judged(
        "pipeline-operator", pipeline(("Batch", 0.1), ("Shuffle", 0.1), ("R", 0.9))
    ).findings
    found = _only("pipeline-operator", pipeline(("Batch", 0.1), ("Repeat", None), ("R", 0.9)))
    assert found.case.where == "Batch (operator 0)"


def test_a_circle_of_operators_ends():
    """Broken parents do not hang the look."""
    ranks = [
        side_table(builder(), "minddata_pipeline", op_id=[0, 1], op_type=["Map", "Repeat"],
              num_workers=[1, 1], output_queue_average_size=[5.0, float("nan")],
              output_queue_length=[8, 8], output_queue_usage_rate=[0.5, 0.0], parent_id=[1, 1])
    ]  # fmt: skip
    assert not _judged("pipeline-operator", ranks).findings


def test_waiting_before_the_first_transfer_is_for_other_ranks():
    """Waiting between transfers is not."""
    assert "other ranks come late" in _only("communication-wait", waiting(50, 50)).advice


def test_waits_that_are_little_of_an_operation_do_not_count():
    """Neither waiting nor transfers: what an operation does besides is not known."""
    build = waiting(50 * US, 50 * US)[0]
    lane = build.track(Layer.COMM, "Communication", "Group 0")
    plane = build.track(Layer.COMM, "Plane 0", "Group 0")
    build.slice(lane, MS, MS, "hcom_allReduce__1_1_1", op=OpClass.COMM)
    build.slice(plane, MS, 1, "Notify_Wait", op=OpClass.COMM_TASK)
    assert [one.id for one in _judged("communication-wait", [build]).quiet]


def test_a_log_of_collectives_says_nothing_of_the_device():
    """What it computed besides is not in it, so idle and exposed time are not known."""
    build = builder()
    lane = build.track(Layer.COMM, "Communication", "Group 0")
    build.slice(lane, 0, MS, "hcom_allReduce__1_0_1", op=OpClass.COMM)
    for rule in ("device-idle", "device-busy", "exposed-communication"):
        assert [one.rule.id for one in _judged(rule, [build]).unchecked] == [rule]


def test_waits_of_the_profilers_own_table():
    """Where the timeline holds no tasks; totals are not counted twice."""
    ranks = [
        side_table(builder(), "communication",
              Operator=["Total Op Info", "hcom_allReduce__1_0_1@1"],
              **{"Start Timestamp(us)": [0, 5 * MS], "Elapse Time(ms)": [9 * MS] * 2,
                 "Wait Time(ms)": [3 * MS] * 2, "Synchronization Time(ms)": [0] * 2,
                 "Transit Time(ms)": [6 * MS] * 2})
    ]  # fmt: skip
    found = _only("communication-wait", ranks)
    assert (found.case.value, found.case.figures["operations"]) == (pytest.approx(100 / 3), 1)
    assert [(s.start_ns, s.dur_ns) for s in found.slices] == [(5 * MS, 9 * MS)]


def test_a_slow_package_is_not_small_if_a_smaller_one_is_fast():
    """Then something else slows it down."""
    sizes = [(1 << 20, 60 * US), (1 << 23, 1000 * US), (1 << 25, 1900 * US)]
    assert not _judged("small-packets", packages(*sizes)).findings


def test_no_package_is_small_whatever_the_threshold():
    """Nothing is reported of packages that are not there."""
    ranks = packages((1 << 26, 67 * US))
    assert not _judged("small-packets", ranks, small_packets=-1).findings


def test_packages_of_the_profilers_own_table():
    """Sizes and times by transport, without the sums."""
    ranks = [
        side_table(builder(), "communication_bandwidth",
              Operator=["Total Op Info", "a@1", "a@1"],
              **{"Transport Type": ["HCCS"] * 3, "Package Size(MB)": [0.001, 0.001, 64.0],
                 "Count": [9, 2, 1], "Total Duration(ms)": [9 * MS, MS, 3 * MS]})
    ]  # fmt: skip
    found = _only("small-packets", ranks)
    assert (found.case.value, found.case.figures["small_packages"]) == (25.0, 2)


def test_conversions_are_those_of_ascend():
    """A kernel of another vendor that is called like one is none."""
    ranks = kernels(("Cast", "", 90), ("MatMul", "", 10), vendor="nvidia")
    assert [one.rule.id for one in _judged("format-conversion", ranks).unchecked]


def test_blocked_layouts_are_aligned():
    """Their last dimensions are the block; rows of 7 blocks are no misfit."""
    shapes = "7,3,16,16;9,7,16,16"
    found = _judged("unaligned-shapes", kernels(("MatMulV2", shapes, 10)))
    assert [one.id for one in found.quiet] == ["unaligned-shapes"]


def test_unaligned_shapes_are_named():
    """With the time they take of all matrix operators."""
    found = _only("unaligned-shapes", FIRES["unaligned-shapes"])
    assert (found.case.value, found.case.figures["shapes"]) == (50.0, ["MatMul 127,64;64,32"])


def _gpu_memory(rank, reserved, **hints):
    build = builder(rank, **hints)
    lane = build.track(
        Layer.COUNTER, "GPU 0 Reserved", "Memory", unit="GB", kind=TrackKind.ALLOCATOR, device=0
    )
    build.counter(lane, 5, reserved)
    return build


def test_capacity_is_that_of_the_capture():
    """Each rank by its own; one whose capture is silent is not checked."""
    size = {"device_memory_bytes": {0: 80 << 30}}
    ranks = [_gpu_memory(0, 76, **size), _gpu_memory(1, 40, **size), _gpu_memory(2, 79)]
    found = judge([summary(trace) for trace in _traces(ranks)], rules=["memory-capacity"])
    [one] = found.findings
    assert (one.rank, one.case.value, one.case.figures["capacity_bytes"]) == (0, 95.0, 80 << 30)
    assert one.as_dict()["thresholds"] == {"memory-capacity": 90.0, "capacity": 80.0}
    assert [told.ranks for told in found.unchecked] == [(2,)]


def test_a_capacity_that_is_said_counts():
    """More than that of the capture."""
    rank = _gpu_memory(0, 30, device_memory_bytes={0: 80 << 30})
    assert _only("memory-capacity", [rank], memory_capacity__capacity=32.0).case.value == 93.75


def test_capacity_has_to_be_said_where_no_capture_tells_it():
    """No rule guesses."""
    parts = [summary(trace) for trace in _traces(memory(60))]
    assert "memory-capacity" in {one.rule.id for one in judge(parts).unchecked}
    assert judge(parts, CAPACITY, ["memory-capacity"]).findings[0].case.value == 93.75


def test_cpu_of_paddle_is_one_figure():
    """Busy or not can be said, user and system cannot be told apart."""

    def running(ms):
        rank = builder(cpu_percent={"system": [95.0]})
        rank.slice(rank.track(Layer.HOST, "Thread 1", thread=1), 0, ms * MS, "forward")
        return [rank]

    assert _judged("cpu-busy", running(999)).unchecked  # of few ticks of 10 ms
    ranks = running(1000)
    assert _only("cpu-busy", ranks).case.value == 95.0
    assert [one.rule.id for one in _judged("cpu-system", ranks).unchecked] == ["cpu-system"]


def test_bubbles_are_what_nothing_hides_in_each_stage():
    """What is received while the rank computes is none; stages are named, with what they cost."""
    stages = staged((700 * US, 100 * US), (600 * US, 300 * US), (500 * US, 400 * US))
    found = _judged("pipeline-bubbles", stages).findings
    assert {one.case.where: one.case.value for one in found} == {"stage 1": 30.0, "stage 2": 40.0}
    assert {one.gain_ns for one in found} == {None}


def test_stages_are_compared_with_their_mean():
    """And with nothing else: the rank that is named is in the stage that computes most."""
    found = _only("stage-imbalance", staged((400 * US, 0), (800 * US, 0), (600 * US, 0)))
    assert (found.rank, found.case.where) == (1, "stage 1")
    assert found.case.value == pytest.approx(100 / 3)
    assert found.case.gone == {"stages": 200 * US}


@pytest.mark.parametrize("rule", ["pipeline-bubbles", "stage-imbalance"])
def test_stages_that_nothing_states_are_not_checked(rule):
    """No stage is guessed from numbers of ranks."""
    judged = _judged(rule, staged((400 * US, 300 * US), (800 * US, 0), stages=False))
    assert judged.findings == ()
    assert [one.rule.id for one in judged.unchecked] == [rule]


def test_what_saves_less_than_a_hundredth_of_a_step_is_no_finding():
    """All places of a rule on a rank together count; a gate does not fail on it."""
    (one,) = _judged("matmul-efficiency", products(500 * US)).findings
    for whole_ms, places, minor in ((1, 1, False), (99, 1, False), (101, 1, True), (150, 2, False)):
        losses = {0: Losses(steps=1, known_ns=whole_ms * MS)}
        same = [msgspec.structs.replace(one, gain_ns=1e6)] * places
        assert bool(_minor(same, losses)) is minor
    unknown = msgspec.structs.replace(one, gain_ns=None)
    assert not _minor([unknown], {0: Losses(steps=1, known_ns=10**12)})
    assert not _minor([msgspec.structs.replace(one, gain_ns=0.0)], {})
    found = _judged("garbage-collection", FIRES["garbage-collection"])
    assert (found.findings, found.at_least("note")) == ((), [])
    assert [line for line in found.lines() if line.startswith("would save less than 1 %")]
    assert found.as_dict()["minor"][0]["rule"] == "garbage-collection"


def test_one_sample_of_a_queue_says_nothing():
    """Whether it is empty, nobody knows; that the dataset is not sunk, its file says."""
    assert _judged("host-queue-empty", host_queue([0, 0])).unchecked
    assert _judged("host-queue-empty", host_queue([0, 0, 0])).findings


def test_kernels_that_begin_before_their_launch_tell_clocks_that_are_off():
    """By 15 us at least: then kernels that begin 8 us after it begin 23 us after it."""
    assert _judged("launch-starved", launched(8 * US)).findings
    early = launched(8 * US)
    build = early[0]
    calls, stream = (
        build.track(Layer.RUNTIME, "Thread 1", thread=1),
        build.track(Layer.DEVICE, "Stream 1"),
    )
    for number in range(30, 34):
        call = build.slice(calls, number * 100 * US, 5 * US, "launch")
        kernel = build.slice(stream, number * 100 * US - 15 * US, US, "k", op=OpClass.COMPUTE)
        build.flow(call, kernel, "HostToDevice")
    assert not _judged("launch-starved", early).findings


@pytest.mark.parametrize(("copied", "advised"), [(90, True), (30, False)])
def test_an_npu_that_copies_is_not_told_to_do_more_per_launch(copied, advised):
    """Copies are idle time of its cores, and what it is idle for."""
    build = builder(vendor="ascend")
    stream = build.track(Layer.DEVICE, "Stream 1")
    build.slice(stream, 0, 50 * US, "MatMul", op=OpClass.COMPUTE)
    build.slice(stream, 50 * US, copied * US, "MEMCPY_ASYNC", op=OpClass.COPY)
    build.slice(stream, 150 * US, 50 * US, "MatMul", op=OpClass.COMPUTE)
    found = _only("device-idle", [build])
    assert ("copies memory" in found.advice) is advised

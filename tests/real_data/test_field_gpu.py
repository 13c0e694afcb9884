"""Captures of GPUs after public bug reports, each with the value that is right."""

import csv
import re
from collections import defaultdict

import pytest
from paths import DATA

import traceconv
from traceconv.core.intervals import union
from traceconv.core.model import OpClass

FIELD = DATA / "field"


def opened(where):
    """The only trace below a folder, with its issues by code."""
    [trace] = traceconv.open(FIELD / where).traces("detail")
    issues = {}
    for issue in trace.issues:
        issues[issue.code] = issues.get(issue.code, 0) + issue.count
    return trace, issues


def names(trace):
    """Names of all events."""
    return [trace.strings[i] for i in trace.events.name.tolist()]


def test_marks_of_the_profiler_win_over_inner_ranges():
    """Each of three ProfilerStep has ten ranges "step 0" to "step 9"."""
    trace, _ = opened("gpu/kineto_inner_ranges_named_step")
    assert trace.steps.step.tolist() == [2, 3, 4]
    assert trace.steps.dur_ns.tolist() == [95_000_000] * 3


def test_unescaped_quotes_are_repaired():
    """Eight functions of files that are named ``{"device": "cpu"}``."""
    trace, issues = opened("gpu/kineto_unescaped_quotes")
    assert [n for n in names(trace) if "device" in n] == [
        f'{{"device": "cpu"}}({i}): f{i}' for i in range(8)
    ]
    assert issues["repaired-record"] == 8
    assert "malformed-record" not in issues


def test_negative_durations_are_counted():
    """Two are printed as two signed halves, one as JSON has it."""
    _, issues = opened("gpu/kineto_negative_durations")
    assert issues["negative-duration"] == 3
    assert "malformed-record" not in issues


def test_commas_behind_the_last_member():
    """Every event is there."""
    trace, issues = opened("hub/trailing_comma_in_object")
    assert {"Event1", "Event2"} <= set(names(trace))
    assert issues["repaired-record"] == 2


@pytest.mark.parametrize(
    ("name", "skipped"),
    [("chrome_twice.json", 257), ("twice.pt.trace.json", 326), ("garbage.pt.trace.json", 13)],
)
def test_what_follows_the_document_is_a_loss(name, skipped):
    """A second document and garbage are counted in bytes; a document with the way to get it."""
    trace, issues = opened(f"general/two_documents_in_one_file/{name}")
    assert [n for n in names(trace) if n.startswith("k")] == ["k1", "k2"]
    assert issues["skipped-bytes"] == skipped


def test_lane_of_waiting_has_the_name_it_is_given():
    """Kineto puts it on a row of its own, whose number is 1000000 more than the stream's."""
    trace, _ = opened("gpu/kineto_sync_stream")
    lanes = {track.name for track in trace.tracks if track.title == "GPU Synchronization"}
    assert lanes == {"Stream 7 (sync)", "No stream"}


def test_counters_of_two_devices_are_two():
    """Their process is a text that names the device."""
    trace, _ = opened("gpu/kineto_counters_of_two_gpus")
    values = {}
    for track, value in zip(trace.counters.track, trace.counters.value, strict=True):
        values.setdefault(trace.tracks[track].title, []).append(value)
    assert {title: (v[0], v[-1] - v[0] < 100) for title, v in values.items()} == {
        "GPU 0 Counters": (100.5, True),
        "GPU 1 Counters": (1100.5, True),
    }


def test_correlation_numbers_that_are_used_again():
    """Each kernel follows the last call of its number, 50 us before."""
    trace, issues = opened("gpu/kineto_correlation_reused")
    start = trace.events.start_ns
    assert (start[trace.flows.dst] - start[trace.flows.src]).tolist() == [50_000] * 20
    assert "flow-without-end" not in issues


@pytest.mark.parametrize(
    ("where", "damaged", "busy_ns"),
    [
        ("gpu/kineto_zero_stamps", 8, 24_000_000),
        ("gpu/kineto_zero_stamps_unix", 7, 4_000_000),
    ],
)
def test_kernels_at_zero_are_damaged(where, damaged, busy_ns):
    """However many they are, they are in no timeline and in no figure, but counted."""
    trace, issues = opened(where)
    assert issues["far-stamp"] == damaged
    kernels = trace.events.op == OpClass.COMPUTE
    assert int(trace.events.dur_ns[kernels].sum()) == busy_ns
    assert int(trace.events.start_ns.max() - trace.events.start_ns.min()) < 10**9


def test_collectives_of_jax_by_their_primitives():
    """``psum_invariant`` (JAX 0.8 and later) is an all-reduce; no program says so."""
    for trace in traceconv.open(FIELD / "hub/jax_without_hlo").traces("detail"):
        communicating = names(trace.keep("comm", trace.events.op == OpClass.COMM))
        assert {name.split(".")[0] for name in communicating} == {"psum_invariant"}


def test_the_rank_that_issued_another_operation():
    """Ranks 0, 1 and 3 wait in operation 7."""
    hang = traceconv.stragglers(FIELD / "gpu/flight_recorder_hang").verdict.hang
    assert (hang.kind, hang.group, hang.number) == ("mismatch", "0", 7)
    assert [(one.ranks, one.what) for one in hang.sides] == [
        ((0, 1, 3), "_all_gather_base"),
        ((2,), "all_reduce"),
    ]


def test_hung_collectives_are_drawn():
    """From when they could begin to the end of the dump, which stamps what it finds begun."""
    begins = []
    for trace in traceconv.open(FIELD / "gpu/flight_recorder_hang").traces("detail"):
        assert trace.issues.count("negative-duration") == 0
        hung = trace.keep("hung", trace.events.op == OpClass.OTHER)
        row = hung.events.start_ns.argmax()
        begins.append((names(hung)[row], int(hung.events.start_ns[row] % 10**9)))
        assert hung.events.dur_ns[row] == 1000
    assert begins == [
        ("nccl:_all_gather_base", 70_000_000),
        ("nccl:_all_gather_base", 70_000_000),
        ("nccl:all_reduce", 75_000_000),
        ("nccl:_all_gather_base", 70_000_000),
    ]


@pytest.mark.parametrize(
    ("where", "kernels", "computing_ns"),
    [("sglang_decode", 555, 9_759_752), ("vllm_decode_full", 425, 10_674_507)],
)
def test_capture_of_a_graph_is_no_window(where, kernels, computing_ns):
    """Beside the pass that replays the graph; the figures are those of TraceLens."""
    [trace] = traceconv.open(DATA / "gpu/inference" / where).traces("detail")
    work = trace.keep("work", trace.events.op == OpClass.COMPUTE)
    assert len(work.events) == kernels
    busy = union(work.events.start_ns, work.events.end_ns)
    assert abs(int((busy[:, 1] - busy[:, 0]).sum()) - computing_ns) < 200
    assert len(trace.windows) <= 1


PASSES = DATA / "gpu/inference"


def _rows(where, name):
    with (PASSES / where / "perf_csvs" / name).open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("where", ["sglang_decode", "vllm_decode_full"])
def test_pass_is_not_idle_before_its_first_work(where):
    """Its window is as in ``gpu_timeline.csv``: from its first work to its last."""
    [trace] = traceconv.open(PASSES / where).traces("detail")
    stated = {row["type"]: float(row["time ms"]) * 1e6 for row in _rows(where, "gpu_timeline.csv")}
    steps = trace.steps
    assert steps.device_dur_ns.tolist() == [pytest.approx(stated["total_time"], abs=50)]
    assert steps.computing_ns.tolist() == [pytest.approx(stated["computation_time"], abs=200)]
    assert steps.free_ns.tolist() == [pytest.approx(stated["idle_time"], abs=50)]


@pytest.mark.parametrize(("where", "nodes"), [("sglang_decode", 544), ("vllm_decode_full", 421)])
def test_capture_names_all_kernels_of_a_replay(where, nodes):
    """Operators and modules of the capture trace, for the whole device time of the graph."""
    tables = traceconv.stats(PASSES / where, by="graph")
    graph, node = tables["graph"], tables["graph_node"]
    assert graph["Nodes"].tolist() == [nodes]
    assert graph["Named(%)"].tolist() == [100.0]
    assert graph["Known By"].tolist() == ["capture trace"]
    spent = defaultdict(int)
    for name, module, ns in zip(
        node["Operator"], node["Module"], node["Total Time(ns)"].tolist(), strict=True
    ):
        last = "nn.Module: " + re.sub(r"_\d+$", "", module.rpartition(".")[2])
        spent[re.sub(r"^(sglang_profiler::.*)_\d+$", r"\1", name), last] += ns
    stated = {
        (row["name"], row["parent_module"]): float(row["total_direct_kernel_time_ms"]) * 1e6
        for row in _rows(where, "ops_summary.csv")
    }
    known = {key: ns for key, ns in stated.items() if key in spent}
    assert sum(known.values()) > 0.96 * sum(stated.values())
    for key, ns in known.items():
        assert abs(spent[key] - ns) < 100, key


@pytest.mark.parametrize("where", ["sglang_decode", "vllm_decode_full"])
def test_flops_and_rates_of_products_and_attention(where):
    """Those of TraceLens, whose rates are means of the calls' rates; operators around one that is
    counted are not counted again, and calls that differ in their kernels are one row."""
    table = traceconv.stats(PASSES / where, by="operator_flops")["operator_flops"]
    keys = ("Kind", "Operator", "FLOPs", "Bytes", "Count", "Total Time(ns)", "Rate(TFLOP/s)",
            "Bandwidth(GB/s)")  # fmt: skip
    rows = zip(*(table[key].tolist() for key in keys), strict=True)
    kinds = ("GEMM", "attention")
    ours = {(name, flops): rest for kind, name, flops, *rest in rows if kind in kinds}
    theirs = defaultdict(lambda: [0.0, 0, 0.0])
    for row in _rows(where, "GEMM.csv") + _rows(where, "InferenceAttention_fwd.csv"):
        if flops := round(float(row["GFLOPS_first"]) * 1e9):
            one = theirs[row["name"], flops]
            one[0] = float(row["Data Moved (MB)_first"]) * (1 << 20)
            one[1] += int(row["name_count"])
            one[2] += float(row["Kernel Time (µs)_sum"]) * 1000
    around = ("aiter::gemm_a16w16", "vllm::rocm_unquantized_gemm")
    compared = 0
    for (name, flops), (n_bytes, count, ns) in theirs.items():
        if name in around:
            continue
        found = [rest for key, rest in ours.items() if key[0].startswith(name) and key[1] == flops]
        assert [one[:2] for one in found] == [[n_bytes, count]], name
        assert abs(found[0][2] - ns) < 100, name
        rate, speed = found[0][3:]
        assert rate == pytest.approx(flops * count / ns / 1000, rel=1e-4), name
        assert speed == pytest.approx(n_bytes * count / ns, rel=1e-4), name
        compared += 1
    assert compared == len(ours)

"""Ascend captures as their profilers wrote them: figures published with the samples."""

import numpy as np
import pytest
from ascend_files import READERS, read
from paths import ASCEND

from traceconv.core.clock import Domain, to_ns
from traceconv.core.errors import Issues
from traceconv.core.intervals import total, union
from traceconv.core.model import Kind, Layer, OpClass
from traceconv.io.sources import sources

TEXT = "msinsight/test/data/pytorch/text"
ADVICE = "msprof-analyze/ut/advisor/timeline_advice"


def find(below):
    """All Ascend captures below a sample folder, and the files none of them knows."""
    (source,) = sources([str(ASCEND / below)])
    left, captures, issues = list(source.names()), [], Issues()
    for reader in READERS.values():
        found = reader.find(source, left, issues)
        taken = {name for c in found for name in (*c.files, *c.known)}
        left = [name for name in left if name not in taken]
        captures += found
    return captures, left, issues


@pytest.fixture(scope="module")
def training():
    """The two ranks of the 2023 single export, by rank."""
    return {c.rank: (c, read(c)) for c in find("mindinsight/profiler")[0]}


@pytest.fixture(scope="module")
def views():
    """The traces of all ``trace_view.json`` samples, by folder."""
    folders = [f"{TEXT}/level0/rank0_ascend_pt", ADVICE]
    folders += [f"{TEXT}/level1/rank{rank}_ascend_pt" for rank in (0, 1)]
    return {folder: read(find(folder)[0][0]) for folder in folders}


def spans(trace, op, layer=None):
    """The intervals of all slices of a class."""
    rows = (trace.events.op == op) & (trace.events.kind == Kind.SLICE)
    if layer is not None:
        rows &= trace.rows_of(layer)
    events = trace.events.take(rows)
    return union(events.start_ns, events.end_ns)


def rows(trace, op):
    return int((trace.events.op == op).sum())


def names(trace, layer):
    return [t.name for t in trace.tracks if t.layer == layer]


def arrows(trace):
    ids, counts = np.unique(trace.flows.name, return_counts=True)
    return {trace.strings[i]: n for i, n in zip(ids.tolist(), counts.tolist(), strict=True)}


# -- the single export of 2023 ------------------------------------------------------------


def test_ranks_graphs_and_devices(training):
    """Rank 0 ran graph 2 on device 0, rank 1 graph 0 on device 1, in processes of one host."""
    found = [(c.rank, c.graphs, c.device, c.pid, c.rank_from) for c, _ in training.values()]
    assert found == [(0, (2,), 0, 10036, "info.json.0"), (1, (0,), 1, 10044, "info.json.1")]
    assert {c.host for c, _ in training.values()} == {"A2007104679"}


def test_every_file_of_the_folder_is_known():
    """Exports, side files, tables and clocks: nothing in the folder is a stranger."""
    captures, left, issues = find("mindinsight/profiler")
    repeated = {i.count for i in issues if "PROF" in i.file}
    assert ([len(c.files) for c in captures], left, repeated) == ([5, 5], [], {11})


def test_the_clock_is_that_of_the_host(training):
    """Both ranks stamp by one monotonic clock; their anchors agree within 10 us."""
    clocks = [c.clock for c, _ in training.values()]
    assert [c.domain for c in clocks] == [Domain.MONOTONIC] * 2
    assert clocks[0].offset_ns == 1692340024324979000 - 56579931060630
    assert abs(clocks[0].offset_ns - clocks[1].offset_ns) < 10_000


@pytest.mark.parametrize(("rank", "length"), [(0, "47587.81"), (1, "57532.96")])
def test_step_trace_holds_ten_iterations(training, rank, length):
    """The step trace is repeated in every file, and here once."""
    _, trace = training[rank]
    ops = (OpClass.ITERATION, OpClass.FP_BP, OpClass.TAIL, OpClass.REDUCE)
    assert [rows(trace, op) for op in ops] == [10] * 4
    first = trace.events.take((trace.events.op == OpClass.ITERATION) & (trace.events.step == 1))
    assert first.dur_ns.tolist() == [to_ns(length)]


def test_iteration_ends_where_its_arguments_say(training):
    """56635864652.49 + 47587.81 us is the stated Iteration End."""
    _, trace = training[0]
    row = np.flatnonzero((trace.events.op == OpClass.ITERATION) & (trace.events.step == 1))[0]
    end = trace.args[int(trace.events.args[row])]["Iteration End"]
    assert int(trace.events.end_ns[row]) == to_ns(str(end))


def test_streams_and_planes(training):
    """Lanes as the vendor's viewer shows them."""
    streams = [f"Stream {n}" for n in (2, 3, 4, 10, 12, 13)]
    assert names(training[0][1], Layer.DEVICE) == streams
    planes = ["Communication Kernel", *(f"Plane {p}" for p in range(4))]
    assert [names(t, Layer.COMM) for _, t in training.values()] == [planes, planes]


def test_graphs_come_from_the_file_names(training):
    """Tasks and communication of 2023 name no graph themselves."""
    for rank, graph in ((0, 2), (1, 0)):
        _, trace = training[rank]
        named = trace.events.graph[trace.rows_of(Layer.DEVICE, Layer.COMM, Layer.STEP)]
        assert set(named.tolist()) == {graph}


@pytest.mark.parametrize("rank", [0, 1])
def test_compute_tasks_are_the_vendors_computing_lane(training, rank):
    """The union of what we call compute equals the lane, to the nanosecond; likewise
    communication.
    """
    _, trace = training[rank]
    for ours, vendors in ((1, OpClass.COMPUTING), (2, OpClass.COMMUNICATION)):
        assert spans(trace, OpClass(ours)).tolist() == spans(trace, vendors).tolist()


@pytest.mark.parametrize(
    ("rank", "computing", "communication"), [(0, "5914.58", "41534.3"), (1, "5927.58", "51464.47")]
)
def test_overlap_sums_of_the_first_iteration(training, rank, computing, communication):
    """The published sums are those of the first collection window."""
    _, trace = training[rank]
    start, end = trace.windows[0].tolist()
    for op, expected in ((OpClass.COMPUTE, computing), (OpClass.COMM, communication)):
        mine = spans(trace, op)
        inside = mine[(mine[:, 0] >= start) & (mine[:, 1] <= end)]
        assert total(inside) == to_ns(expected)


def test_every_iteration_file_is_a_window(training):
    """Between the files nothing is known; four iterations were exported."""
    assert [len(t.windows) for _, t in training.values()] == [4, 4]


def test_the_trace_holds_each_event_once(training):
    """Slices of four msprof files without their step traces, and one step trace of 40."""
    counts = [t.counts()["slice"] for _, t in training.values()]
    assert counts == [
        (1049 + 1085 + 1081 + 1086) - 4 * 4 + 40,
        (1060 + 1084 + 1085 + 1088) - 4 * 4 + 40,
    ]


# -- trace_view.json ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        (f"{TEXT}/level0/rank0_ascend_pt", (382, 2460, 0, 533, 4, 3716)),
        (f"{TEXT}/level1/rank0_ascend_pt", (382, 2460, 707, 535, 300, 4431)),
        (f"{TEXT}/level1/rank1_ascend_pt", (382, 2460, 708, 535, 300, 4287)),
        (ADVICE, (547, 1007, 382, 276, 0, 0)),
    ],
)
def test_rows_by_layer(views, folder, expected):
    """Overlap, host, runtime, device and communication rows, and counter samples."""
    trace = views[folder]
    layers = (Layer.OVERLAP, Layer.HOST, Layer.RUNTIME, Layer.DEVICE, Layer.COMM)
    found = [int(trace.rows_of(layer).sum()) for layer in layers]
    assert (*found, len(trace.counters)) == expected
    assert sum(found) == trace.counts()["slice"]


@pytest.mark.parametrize("level", ["level0/rank0", "level1/rank0", "level1/rank1"])
def test_187_compute_tasks_and_four_operators(views, level):
    """As counted in the kernel table: 191 rows, of which four are communication."""
    trace = views[f"{TEXT}/{level}_ascend_pt"]
    assert (rows(trace, OpClass.COMPUTE), rows(trace, OpClass.COMM)) == (187, 4)


@pytest.mark.parametrize(
    "folder", [f"{TEXT}/{p}_ascend_pt" for p in ("level0/rank0", "level1/rank0", "level1/rank1")]
)
def test_compute_tasks_are_the_computing_lane_but_for_rounding(views, folder):
    """Interval by interval, borders differ by 1 ns at most: the lane was made from finer stamps."""
    ours, theirs = spans(views[folder], OpClass.COMPUTE), spans(views[folder], OpClass.COMPUTING)
    assert ours.shape == theirs.shape == (187, 2)
    assert np.abs(ours - theirs).max() <= 1


def test_task_types_do_not_matter_where_they_say_nothing(views):
    """In early 2024 every task type but AI_CPU is Other; copies are told by their name."""
    trace = views[ADVICE]
    ours, theirs = spans(trace, OpClass.COMPUTE), spans(trace, OpClass.COMPUTING)
    assert (rows(trace, OpClass.COMPUTE), rows(trace, OpClass.COPY)) == (274, 2)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= 1


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("level0/rank0", ("8827.473", "85516.889", "81515.607", "25908.102")),
        ("level1/rank0", ("8873.756", "105991.878", "101963.203", "25744.050")),
        ("level1/rank1", ("8878.295", "100375.286", "96359.047", "26675.274")),
    ],
)
def test_the_vendors_overlap_lanes_add_up_to_the_table(views, level, expected):
    """The sums of the lanes are those of step_trace_time.csv, to the nanosecond."""
    events = views[f"{TEXT}/{level}_ascend_pt"].events
    ops = (OpClass.COMPUTING, OpClass.COMMUNICATION, OpClass.NOT_OVERLAPPED, OpClass.FREE)
    sums = [int(events.dur_ns[events.op == op].sum()) for op in ops]
    assert sums == [to_ns(text) for text in expected]


def test_stamps_are_exact(views):
    """Nineteen digits survive: nothing went through floating point."""
    trace = views[f"{TEXT}/level1/rank0_ascend_pt"]
    kernels = trace.events.take(trace.events.op == OpClass.COMPUTE)
    assert int(kernels.start_ns.min()) == 1736408883704643212


def test_planes_of_the_group(views):
    """Level 1 has eight planes in group 0, level 0 only its operators."""
    lanes = [
        [(t.group, t.name) for t in views[f"{TEXT}/{level}/rank0_ascend_pt"].tracks
         if t.layer == Layer.COMM]
        for level in ("level0", "level1")
    ]  # fmt: skip
    group = ("Group 0", "Group 0 Communication")
    planes = [("Group 0", f"Plane {p}") for p in range(8)]
    assert lanes[0][:1] == lanes[1][:1] == [group]
    assert lanes[1][1:] == planes


def test_arrows_bind_to_their_slices(views):
    """At level 1 every arrow is drawn, one launch may start several kernels; at level 0 the
    launching layer is not in the file.
    """
    level0, level1 = (views[f"{TEXT}/{level}/rank0_ascend_pt"] for level in ("level0", "level1"))
    assert arrows(level1) == {
        "async_npu": 210,
        "async_task_queue": 159,
        "fwdbwd": 27,
        "HostToDevice": 215,
    }
    assert arrows(level0) == {"async_npu": 210, "async_task_queue": 159, "fwdbwd": 27}
    assert level0.issues.count("flow-without-end") == 215


def test_step_marks_of_the_framework(views):
    """ProfilerStep#50 is the step."""
    trace = views[f"{TEXT}/level1/rank0_ascend_pt"]
    marked = trace.events.take(trace.events.step >= 0)
    assert [trace.strings[n] for n in marked.name.tolist()] == ["ProfilerStep#50"]
    assert marked.step.tolist() == [50]


@pytest.mark.parametrize(
    ("folder", "files", "known"),
    [(f"{TEXT}/level0/rank0_ascend_pt", 1, 9), (f"{TEXT}/level1/rank1_ascend_pt", 1, 13)],
)
def test_every_file_of_a_capture_is_known(folder, files, known):
    """Tables and identity files of the sample folders are recognised."""
    captures, left, _ = find(folder)
    assert [(len(c.files), len(c.known)) for c in captures] == [(files, known)]
    assert left == []


def test_ranks_of_the_samples():
    """Two ranks at level 1, both by the name of their profiler_info."""
    captures, left, _ = find(f"{TEXT}/level1")
    found = [(c.rank, c.rank_from, c.clock.domain) for c in captures]
    assert found == [
        (0, "profiler_info_0.json", Domain.UNIX),
        (1, "profiler_info_1.json", Domain.UNIX),
    ]
    assert left == []


def test_lone_timelines_have_no_rank():
    """Nothing beside the file, nothing to know: the caller decides."""
    captures = find("msinsight/server/src/test/test_data/heatMap")[0]
    assert [(c.rank, c.label.rpartition("/")[2]) for c in captures] == [(None, "heatMap")]
    assert read(captures[0]).counts()["slice"] == 4


def test_a_file_of_metadata_only_is_an_empty_trace():
    """The viewer's fuzz seed names processes and holds no event."""
    path = "msinsight/server/src/test/fuzz/test_data/trace_view_tiny.json"
    (found,) = find(path)[0]
    assert (found.reader, sum(read(found).counts().values())) == ("msprof", 0)


@pytest.mark.parametrize(("kind", "files"), [("normal", 1), ("slice", 2)])
def test_exports_that_are_names_only(kind, files):
    """Zero-byte exports of the discovery tests are found, booked and empty."""
    captures, left, _ = find(f"msinsight/server/src/test/test_data/msprof/{kind}")
    trace = read(captures[0])
    assert (len(captures), left, len(captures[0].files)) == (1, [], files)
    assert (trace.issues.count("empty-file"), trace.counts()["slice"]) == (files, 0)


# -- old MindSpore ------------------------------------------------------------------------


def test_display_timeline_of_the_first_generation():
    """6359 slices: operators on 11 streams, communication on 11 others; of 322 steps beside it, of
    which only the first has no interval, four rows each.
    """
    captures, left, _ = find("mindinsight/run_1")
    (found,) = captures
    trace = read(found)
    assert (found.rank, found.clock.domain, left) == (1, Domain.RELATIVE, [])
    assert trace.counts()["slice"] == 6359 + 322 * 4 - 1
    assert [len(names(trace, layer)) for layer in (Layer.DEVICE, Layer.COMM)] == [11, 11]
    assert rows(trace, OpClass.COMM) == 322 * 11

"""Captures of GPUs after public bug reports, each with the value that is right."""

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
    """A second document, and what is none, are counted in bytes."""
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

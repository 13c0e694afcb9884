"""Timelines Paddle 3.3.1 wrote: figures published with the samples, and taken from its summary."""

import re
from collections import Counter

import numpy as np
import pytest
from paths import GPU

import traceconv
from traceconv.core.intervals import total, union
from traceconv.core.model import Layer

PADDLE = GPU / "paddle"
THREE_STEPS = "host_vmpid_32055_time_2026_11_20_09_32_29_670730.paddle_trace.json"
BROKEN = "host_vmpid_32098_time_2026_11_20_09_32_31_735630.paddle_trace.json"
RANKS = (
    "rank0_time_2026_11_20_09_32_45_462686.paddle_trace.json",
    "rank1_time_2026_11_20_09_32_45_460752.paddle_trace.json",
)
PROTOBUF = "single_rank0_time_2026_11_20_09_32_33_649367.paddle_trace.pb"


@pytest.fixture(scope="module")
def traces():
    """The trace of every sample, by file name."""
    return {
        name: next(iter(traceconv.open(str(PADDLE / name)).traces()))
        for name in (THREE_STEPS, BROKEN, *RANKS, PROTOBUF)
    }


def kinds(trace):
    """How many slices there are of each type."""
    events = trace.events
    return Counter(trace.args[a].get("type") for a in events.args[events.kind == 0].tolist())


def steps(trace):
    """Number and duration of the marked steps, by start."""
    events = trace.events
    rows = np.flatnonzero(events.step >= 0)
    rows = rows[np.argsort(events.start_ns[rows])]
    return list(zip(events.step[rows].tolist(), events.dur_ns[rows].tolist(), strict=True))


THREE = {
    "ProfileStep": 3, "Forward": 9, "Backward": 3, "Optimization": 3, "Dataloader": 3,
    "Operator": 78, "OperatorInner": 111, "DygraphKernelLaunch": 69, "UserDefined": 33,
    "PythonUserDefined": 3,
}  # fmt: skip
TWO = {kind: count * 2 // 3 for kind, count in THREE.items()}
PARALLEL = {
    **THREE, "Forward": 12, "Operator": 81, "OperatorInner": 120, "DygraphKernelLaunch": 78,
    "UserDefined": 36,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "counts"),
    [(THREE_STEPS, THREE), (BROKEN, TWO), *((r, PARALLEL) for r in RANKS), (PROTOBUF, THREE)],
)
def test_every_event_is_there(traces, name, counts):
    """As many slices of each type as were counted in the file."""
    assert kinds(traces[name]) == counts


@pytest.mark.parametrize(
    ("name", "slices", "instants"),
    [(THREE_STEPS, 315, 0), (BROKEN, 210, 84), *((r, 342, 0) for r in RANKS), (PROTOBUF, 315, 126)],
)
def test_accounts_are_those_of_the_files(traces, name, slices, instants):
    """What was read is what is there; allocations give two samples each."""
    assert traces[name].counts() == {
        "slice": slices, "instant": instants, "counter": 2 * instants, "flow": 0,
    }  # fmt: skip
    assert not any(stage == "lost" for stage, _ in traces[name].ledger)


@pytest.mark.parametrize(
    ("name", "durations"),
    [
        (THREE_STEPS, [549_179, 528_989, 444_092]),
        (RANKS[0], [7_719_013, 7_955_085, 7_201_991]),
        (RANKS[1], [7_942_957, 7_976_076, 6_315_490]),
        (PROTOBUF, [5_840_101, 835_706, 676_208]),
    ],
)
def test_steps_are_those_of_the_file(traces, name, durations):
    """Recording began with the third step."""
    assert steps(traces[name]) == list(zip((3, 4, 5), durations, strict=True))


@pytest.mark.parametrize(
    ("name", "earliest_us", "spread_ns"),
    [
        (THREE_STEPS, 1795167149668934, 2),
        (BROKEN, 1795167151723543, 5),
        (RANKS[0], 1795167165439470, 0),
        (RANKS[1], 1795167165438109, 5),
    ],
)
def test_starts_are_known_to_a_few_nanoseconds(traces, name, earliest_us, spread_ns):
    """The files narrow the start of their first event to 5, 10 or even 1 ns."""
    trace = traces[name]
    (noted,) = trace.notes["paddle"]
    first = int(trace.events.start_ns[trace.events.kind == 0].min())
    assert first // 1000 == earliest_us
    assert noted["starts_uncertain_ns"] == spread_ns
    assert noted["starts_recovered"] == trace.counts()["slice"]


@pytest.mark.parametrize("name", [THREE_STEPS, BROKEN, *RANKS])
def test_every_start_is_within_its_stamp(traces, name):
    """Cut down to microseconds, the recovered starts are the stamps of the file."""
    text = (PADDLE / name).read_text()
    stamps = sorted(int(us) for us in re.findall(r'"ts": (\d+), "dur"', text))
    events = traces[name].events
    assert sorted((events.start_ns[events.kind == 0] // 1000).tolist()) == stamps


@pytest.mark.parametrize("name", [THREE_STEPS, BROKEN, *RANKS, PROTOBUF])
def test_rows_nest(traces, name, tmp_path):
    """No row needs a second lane: what crossed in the stamps alone no longer does."""
    (trace,) = traceconv.open(str(PADDLE / name)).traces("detail")
    assert {track.lane for track in trace.tracks} == {0}


def test_broken_json_is_repaired(traces):
    """Two names with quotes are all that is wrong with the file."""
    trace = traces[BROKEN]
    assert trace.issues.count("repaired-record") == 2
    assert list(trace.strings).count('my "quoted" user range') == 1
    names = [trace.strings[n] for n in trace.events.name.tolist()]
    assert names.count('my "quoted" user range') == 2


def test_names_have_no_durations(traces):
    """The writer's suffix is gone from every name."""
    for trace in traces.values():
        assert [text for text in trace.strings if text.endswith("s]")] == []


def test_ranks_meet_on_one_clock(tmp_path):
    """Both ranks in one file, as far apart as they were."""
    out = tmp_path / "both.json"
    report = traceconv.merge(*(str(PADDLE / name) for name in RANKS), out=str(out), mode="detail")
    first, second = traceconv.open(*(str(PADDLE / name) for name in RANKS)).traces()
    apart = first.span()[0] - second.span()[0]
    assert (report.ranks, report.clock["method"]) == ((0, 1), "meta")
    assert apart // 1000 in (1360, 1361)  # 1795167165439470 and ...438109 us
    offsets = [one["offset_ns"] for one in report.clock["ranks"].values()]
    assert offsets == ["0", "0"]


def test_folder_is_understood(tmp_path):
    """Four of the files name no rank that could be told apart; the reports hold tables only."""
    found = traceconv.inspect(str(PADDLE))
    readers = Counter(capture.reader for capture in found.captures)
    assert readers == {"paddle": 5, "paddle_text": 2}
    assert found.unknown == []


@pytest.mark.parametrize(
    ("kind", "milliseconds"),
    [
        ("ProfileStep", 1.52), ("Dataloader", 0.46), ("Forward", 0.24), ("Backward", 0.23),
        ("Optimization", 0.31), ("Operator", 0.43), ("UserDefined", 0.42), ("OperatorInner", 0.20),
        ("DygraphKernelLaunch", 0.15),
    ],
)  # fmt: skip
def test_times_are_those_of_paddles_own_summary(traces, kind, milliseconds):
    """The overview that Paddle prints, which merges the ranges of each type."""
    trace = traces[THREE_STEPS]
    chosen = [trace.args[a].get("type") == kind for a in trace.events.args.tolist()]
    events = trace.events.take(np.array(chosen))
    assert round(total(union(events.start_ns, events.end_ns)) / 1e6, 2) == milliseconds


def test_samples_of_protobuf_and_json_have_the_same_rows(traces):
    """Recorded apart, they agree on rows, names and how often each stands there."""

    def shape(trace, steps):
        sides = {
            track.name.rpartition(" ")[2] for track in trace.tracks if track.layer is Layer.HOST
        }
        rows = trace.events.kind == 0
        names = Counter(trace.strings[n] for n in trace.events.name[rows].tolist())
        ours = {n: c // steps for n, c in names.items() if not re.search(r"#\d|user_?range", n)}
        return sides, ours

    assert shape(traces[PROTOBUF], 3)[0] == shape(traces[BROKEN], 2)[0]
    text, raw = shape(traces[BROKEN], 2)[1], shape(traces[PROTOBUF], 3)[1]
    assert {n: c for n, c in text.items() if "quoted" not in n} == {
        n: c for n, c in raw.items() if "quoted" not in n
    }

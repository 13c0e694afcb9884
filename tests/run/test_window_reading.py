"""Several captures of one rank: windows that are joined, and copies that are refused."""

import gzip
import json
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
from paths import ROOT
from torch_files import flight, memory

import traceconv
from traceconv.core.errors import RankError
from traceconv.core.hints import Hints
from traceconv.run.stages import events
from traceconv.run.window_reading import joined

BASE = 1_740_816_000_000_000_000
SECOND = 1_000_000


def slices(at, n=3, **more):
    """Kernels of a tenth of a second's time, in us from the base."""
    return [
        {
            "ph": "X", "cat": "kernel", "name": f"k{i}", "pid": 0, "tid": 7, "ts": at + 10 * i,
            "dur": 5, "args": {"stream": 7, "device": 0, "correlation": i + 1}, **more,
        }
        for i in range(n)
    ]  # fmt: skip


def capture(path, rows, rank=0, **more):
    """A capture of PyTorch's profiler."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "schemaVersion": 1, "distributedInfo": {"rank": rank}, "baseTimeNanoseconds": BASE, **more,
        "traceEvents": rows,
    }  # fmt: skip
    path.write_text(json.dumps(content))
    return path


def only(*paths, **options):
    """The one rank below some paths."""
    (found,) = traceconv.open(*map(str, paths), **options).found
    return found


def read(found):
    return events(found, lambda _: None)


def starts(trace):
    return sorted((trace.events.start_ns - BASE).tolist())


def test_captures_of_one_rank_are_its_windows_in_the_order_of_time(tmp_path):
    """However they are named and given, and each is a window of the trace."""
    late = capture(tmp_path / "a" / "first.json", slices(8 * SECOND))
    early = capture(tmp_path / "b" / "second.json", slices(2 * SECOND, 2))
    for paths in ([tmp_path], [late, early]):
        trace = read(only(*paths))
        assert starts(trace) == [
            2_000_000_000, 2_000_010_000, 8_000_000_000, 8_000_010_000, 8_000_020_000
        ]  # fmt: skip
        assert (trace.windows - BASE).tolist() == [
            [2_000_000_000, 2_000_015_000], [8_000_000_000, 8_000_025_000]
        ]  # fmt: skip


def test_streams_of_windows_on_two_devices_are_told_apart(tmp_path):
    """As in one capture with two devices."""
    capture(tmp_path / "a.json", slices(2 * SECOND))
    capture(tmp_path / "b.json", slices(8 * SECOND, pid=1))
    assert {track.group for track in read(only(tmp_path)).tracks} == {"GPU 0", "GPU 1"}


def test_what_went_in_comes_out(tmp_path):
    """Rows, names, tracks, arguments and arrows are those of the captures read alone."""
    demo = ROOT / "golden" / "kineto" / "two_ranks" / "input"
    whole = capture(tmp_path / "b.json", slices(9 * 10**9, name="later", tid=9), rank=0)
    files = [f for f in sorted(demo.iterdir()) if f.is_file()]
    first = next(f for f in files if only(f).rank == 0)
    alone = [read(only(path)) for path in (first, whole)]
    both = read(only(first, whole))
    for kind in ("slice", "instant", "counter", "flow"):
        assert both.counts()[kind] == sum(one.counts()[kind] for one in alone)
        booked = sum(n for (_, k), n in both.ledger.items() if k == kind)
        assert booked == both.counts()[kind]
    assert rows(both) == sorted(row for one in alone for row in rows(one))
    assert arrows(both) == sorted(row for one in alone for row in arrows(one))


def rows(trace):
    """Everything of every event, spelled out."""
    return sorted(
        (
            trace.tracks[track].heading, trace.tracks[track].group, trace.tracks[track].name,
            start, dur, trace.strings[name], op, json.dumps(trace.args[args], sort_keys=True),
        )
        for track, start, dur, name, op, args in zip(
            *(getattr(trace.events, c).tolist() for c in (
                "track", "start_ns", "dur_ns", "name", "op", "args"
            )), strict=True,
        )
    )  # fmt: skip


def arrows(trace):
    start = trace.events.start_ns
    flows = trace.flows
    return sorted(
        (int(start[a]), int(start[b]), trace.strings[name])
        for a, b, name in zip(flows.src, flows.dst, flows.name.tolist(), strict=True)
    )


def test_what_any_window_says_of_its_source_is_true_of_all(tmp_path):
    """Whatever the kind of the hint: a text, a number by name; a window with a timeline is enough
    for the rank to have one."""
    capture(tmp_path / "a.json", slices(2 * SECOND))
    trace = read(only(tmp_path))
    said = {
        name: {bool: True, str: "busy", list: ["Python"], dict: {0: 1}}[type(value)]
        for name in Hints.__struct_fields__
        if name not in ("cpu_percent", "tables_only", "supplement")
        and (value := getattr(Hints(), name)) is not None
    }
    one, other = replace(trace, hints=Hints(**said)), replace(trace, hints=Hints())
    for every in ([one, one], [one, other], [other, one]):
        assert joined(every).hints == one.hints


def test_dumps_beside_a_timeline_count_in_no_figure(tmp_path):
    """Of the flight recorder and of memory: they are kept, and say where the job hangs."""
    capture(tmp_path / "rank0.json", slices(2 * SECOND))
    alone = str([one.data.columns for one in traceconv.stats(tmp_path, by="overlap").results])
    (tmp_path / "nccl_trace_rank_0").write_bytes(flight())
    (tmp_path / "rank0.pickle").write_bytes(memory())
    beside = str([one.data.columns for one in traceconv.stats(tmp_path, by="overlap").results])
    assert beside == alone
    assert traceconv.stragglers(tmp_path).verdict.hang
    trace = read(only(tmp_path))
    assert trace.windows.tolist() == [[BASE + 2 * SECOND * 1000, BASE + (2 * SECOND + 25) * 1000]]
    assert {"nccl:all_reduce"} <= {trace.strings[i] for i in trace.events.name.tolist()}


def test_a_block_that_is_never_released_lives_in_its_window_only(tmp_path):
    """Allocations of the next window are not added to it."""
    for second in (2, 9):
        marks = [
            {"ph": "i", "s": "t", "name": "[memory]", "pid": 7, "tid": 7, "ts": second * SECOND + n,
             "args": {"Bytes": 512, "Addr": 64 * n, "Device Type": 1, "Device Id": 0,
                      "Total Allocated": 4096, "Total Reserved": 4096}}
            for n in (1, 2)
        ]  # fmt: skip
        capture(tmp_path / f"{second}.json", [*slices(second * SECOND), *marks])
    [live] = traceconv.stats(tmp_path, by="memory_live").results
    rows = zip(*(live.data.columns[key].tolist() for key in ("Blocks", "Bytes")), strict=True)
    assert (2, 1024) in rows


def test_a_timeline_in_one_window_is_measured(tmp_path):
    """A rank is of tables only if all of its windows are."""
    capture(tmp_path / "a.json", slices(2 * SECOND))
    trace = read(only(tmp_path))
    tables = replace(trace, hints=Hints(tables_only=True))
    assert not joined([trace, tables]).hints.tables_only
    assert joined([tables, tables]).hints.tables_only


def test_time_between_windows_is_not_free(tmp_path):
    """Nothing was recorded there, so nothing is known."""
    for second in (2, 8):
        capture(tmp_path / f"{second}.json", slices(second * SECOND))
    out = tmp_path / "out" / "x.txt"
    out.parent.mkdir()
    traceconv.merge(str(tmp_path / "2.json"), str(tmp_path / "8.json"), out=str(out))
    free = [line.split() for line in out.read_text().splitlines() if '"Free"' in line]
    assert [(row[0], row[1]) for row in free[1:]] == [
        ("5000", "+5000"), ("15000", "+5000"), ("6000005000", "+5000"), ("6000015000", "+5000")
    ]  # fmt: skip


def test_a_copy_is_refused(tmp_path):
    """Also under another name, and compressed."""
    import gzip

    path = capture(tmp_path / "a.json", slices(0))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(RankError, match=r"a\.json.*b\.json\.gz.* they have the same content"):
        traceconv.open(str(tmp_path))


def test_the_same_events_twice_are_refused_when_they_are_read(tmp_path):
    """One capture with a part of the other is no window of its own."""
    capture(tmp_path / "a.json", slices(0, 9))
    capture(tmp_path / "b.json", slices(0, 5), host_name="x")
    with pytest.raises(RankError, match=r"rank 0 is claimed twice.*; 5 of their events are the"):
        read(only(tmp_path))


def test_two_processes_at_one_time_are_not_one_rank(tmp_path):
    """Hosts tell them apart; nothing is joined."""
    capture(tmp_path / "a.json", slices(0, 5), host_name="x")
    capture(tmp_path / "b.json", slices(2, 5), host_name="y")
    found = traceconv.open(tmp_path).found
    assert [(one.rank, one.rank_from) for one in found] == [
        (0, "by host and rank"),
        (1, "by host and rank"),
    ]


def test_recordings_of_one_time_that_nothing_tells_apart_are_refused(tmp_path):
    """A process records itself once at a time; the message says what to do."""
    capture(tmp_path / "a.json", slices(0, 5))
    capture(tmp_path / "b.json", slices(2, 5, name="other"))
    with pytest.raises(
        RankError, match=r"at the same time\. Say where paths have the rank: `rank_from"
    ):
        read(only(tmp_path))


def test_one_long_event_within_another_is_two_processes(tmp_path):
    """None of the first begins in the time that both cover."""
    for name, at in (("a", 0), ("b", 40)):
        (row,) = slices(at, 1)
        capture(tmp_path / f"{name}.json", [{**row, "dur": 100}])
    with pytest.raises(RankError, match="at the same time"):
        read(only(tmp_path))


def test_a_broken_window_is_booked_and_the_others_are_read(tmp_path):
    """As among the files of one profiler."""
    capture(tmp_path / "a.json", slices(0))
    (tmp_path / "b.pt.trace.json").write_text('{"distributedInfo": {"rank": 0}, "baseTimeNanoseconds": 1, "traceEvents": 7}')  # fmt: skip # noqa: E501
    found = only(tmp_path)
    assert len(found.parts) == 2
    trace = read(found)
    assert len(trace.events) == 3
    assert trace.issues.count("window-failed") == 1


def exported_and_crashed(folder):
    """A run whose first window was exported, and whose second one was not."""
    crashed = ROOT / "golden" / "ascend_raw" / "crashed" / "input"
    shutil.copytree(crashed, folder / "crashed")
    demo = ROOT / "golden" / "trace_view" / "demo" / "input"
    shutil.copytree(demo / "localhost_4021_20250301080000123_ascend_ms", folder / "w1_ascend_ms")
    for name in ("profiler_info_0.json", "profiler_metadata.json"):
        (folder / "w1_ascend_ms" / name).unlink()
    (folder / "w1_ascend_ms" / "profiler_info_2.json").write_text("{}")


def test_exported_in_one_window_and_crashed_in_another(tmp_path):
    """Two readers, one rank."""
    exported_and_crashed(tmp_path)
    found = only(tmp_path)
    assert (found.rank, found.reader) == (2, "ascend_raw + trace_view")
    trace = read(found)
    alone = [read(part) for part in found.parts]
    assert len(trace.windows) == 2
    assert trace.counts()["slice"] == sum(one.counts()["slice"] for one in alone)


@pytest.mark.parametrize("clock", ["unix", "relative"])
def test_two_formats_of_one_recording_name_the_option_that_helps(tmp_path, clock):
    """And following the advice works, whichever is chosen."""
    capture(tmp_path / "a.json", slices(0, 5))
    rows = "".join(f"k{i},{BASE + i * 10_000},5000,0\n" for i in range(5))
    (tmp_path / "b.csv").write_text(f"# clock={clock} unit=ns\nname,ts,dur,rank\n{rows}")
    with pytest.raises(RankError) as caught:
        read(only(tmp_path))
    for reader in ("kineto", "event_log"):
        assert f'`reader="{reader}"`' in str(caught.value)
        assert len(read(only(tmp_path, reader=reader)).events) == 5


def test_windows_without_a_common_clock_are_refused(tmp_path):
    """Nothing says which was first."""
    capture(tmp_path / "a.json", slices(0))
    other = capture(tmp_path / "b.json", slices(100))
    other.write_text(other.read_text().replace("baseTimeNanoseconds", "noBase"))
    with pytest.raises(RankError, match=r"their order is unknown: .*b\.json has no clock"):
        traceconv.open(str(tmp_path))


def test_a_rank_of_two_sources_travels(tmp_path):
    """To workers, and through the files of shards."""
    job = tmp_path / "job"
    paths = [
        str(
            capture(job / f"w{second}" / f"r{rank}.json", slices(second * SECOND), rank=rank).parent
        )
        for second in (2, 8)
        for rank in (0, 1)
    ][::2]
    (_, found) = traceconv.open(*paths).found
    assert rows(read(pickle.loads(pickle.dumps(found)))) == rows(read(found))
    whole, shards = (tmp_path / name for name in ("whole.pftrace", "shards.pftrace"))
    traceconv.merge(*paths, out=str(whole))
    for i in range(2):
        traceconv.merge(*paths, out=str(tmp_path / f"{i}.shard"), shard=f"{i}/2")
    traceconv.join(str(tmp_path / "0.shard"), str(tmp_path / "1.shard"), out=str(shards))
    assert whole.read_bytes() == shards.read_bytes()


def test_inspection_lists_every_window(tmp_path):
    """A line and an entry each."""
    for second in (2, 10):
        capture(tmp_path / f"s{second}.json", slices(second * SECOND))
    seen = traceconv.inspect(str(tmp_path), counts=True)
    (entry,) = seen.as_dict()["captures"]
    assert [one["files"] for one in entry["windows"]] == [["s2.json"], ["s10.json"]]
    assert entry["counts"]["slice"] == 6
    assert "rank 0: 2 captures, each a collection window of its rank" in seen.lines()


@pytest.mark.parametrize(
    ("pids", "hours", "mixed"), [((7, 8), 26, 1), ((7, 7), 26, 0), ((7, 8), 0.5, 0)]
)
def test_windows_of_two_processes_hours_apart_are_of_two_jobs(tmp_path, pids, hours, mixed):
    """A long run has one process; a restart follows soon."""
    for number, pid in enumerate(pids):
        at = int(number * hours * 3600 * SECOND)
        host = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": pid, "tid": 1, "ts": at, "dur": 9}
        capture(tmp_path / f"{number}.json", [*slices(at), host])
    (trace,) = traceconv.open(tmp_path).traces()
    assert len(trace.windows) == 2
    assert [one.code for one in trace.issues].count("jobs-mixed") == mixed


@pytest.mark.parametrize(
    ("pids", "hours", "steps", "doubts"),
    [((7, 7), 1, (4, 4), 1), ((7, 8), 0.1, (4, 4), 1), ((7, 7), 0.1, (4, 4), 0),
     ((7, 7), 1, (4, 5), 0)],
)  # fmt: skip
def test_step_numbers_that_come_again_may_be_of_two_runs(tmp_path, pids, hours, steps, doubts):
    """A continued run keeps counting; one that profiles twice may begin again."""
    for number, (pid, step) in enumerate(zip(pids, steps, strict=True)):
        at = int(number * hours * 3600 * SECOND)
        capture(tmp_path / f"{number}.json", [*slices(at), mark(step, at) | {"pid": pid}])
    (trace,) = traceconv.open(tmp_path).traces()
    assert [one.code for one in trace.issues].count("steps-repeated") == doubts
    assert traceconv.inspect(tmp_path).issues.count("steps-repeated") == doubts


def test_figures_of_two_runs_leave_out_the_time_between_them(tmp_path):
    """No rank and no gap takes the hour in which nothing was recorded."""
    for run in range(2):
        (tmp_path / str(run)).mkdir()
        for path in (ROOT / "examples/job").glob("*.gz"):
            text = gzip.decompress(path.read_bytes()).decode()
            later = text.replace(str(BASE), str(BASE + run * 3600 * 10**9))
            (tmp_path / str(run) / path.stem).write_text(later)
    judged = traceconv.stragglers(tmp_path, cache=False)
    (culprit,) = judged.verdict.culprits
    alone = traceconv.stragglers(tmp_path / "0", cache=False).verdict.culprits[0]
    assert culprit.rank == alone.rank == 5
    assert culprit.gain_ns == pytest.approx(alone.gain_ns, rel=0.1)
    assert np.nanmax(judged.verdict.replay.own.parts) < 10_000_000


def test_analyses_read_every_window(tmp_path):
    """Steps of both, and no time between them."""
    capture(tmp_path / "a.json", [*slices(0), mark(1, 0)])
    capture(tmp_path / "b.json", [*slices(9 * SECOND), mark(1, 9 * SECOND)])
    (trace,) = traceconv.open(str(tmp_path)).traces("detail")
    assert trace.steps.step.tolist() == [1, 1]
    assert traceconv.inspect(tmp_path, counts=True).counts[0]["steps"] == [1, 1]
    assert int(np.max(trace.steps.dur_ns)) == 100_000


def mark(step, at):
    return {
        "ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 7, "tid": 7,
        "ts": at, "dur": 100, "args": {},
    }  # fmt: skip


def test_a_step_belongs_to_the_window_that_recorded_it():
    """Steps begin on the host, before any work on the device."""
    job = str(ROOT / "golden" / "trace_view" / "two_windows" / "input")
    table = traceconv.stats(job)["step"]
    assert list(zip(table["Step"].tolist(), table["Window"].tolist(), strict=True)) == [
        (2, 1), (3, 1), (8, 2), (9, 2)
    ]  # fmt: skip
    (trace,) = traceconv.open(job).traces("detail")
    assert trace.steps.pause_ns.tolist() == [-1, 0, -1, 0]  # unknown between windows


def test_every_verb_takes_a_rank_of_several_captures():
    """Steps of both windows in tables, operations of both matched."""
    job = str(ROOT / "golden" / "kineto" / "two_windows" / "input")
    steps = traceconv.stats(job)["step"]
    rows = zip(steps["Rank"].tolist(), steps["Step"].tolist(), strict=True)
    assert [row for row in rows if row[0] >= 0] == [(0, 2), (0, 10), (1, 2), (1, 10)]
    assert sorted(traceconv.align(job, method="wall").plan.offsets) == [0, 1]
    assert traceconv.diagnose(job).findings
    assert traceconv.stragglers(job).lines()[0] == (
        "no verdict: none of the 2 collectives of ranks 0-1 in lane 0 of communication, whose "
        "group is not recorded, was matched: 2 operations in common are too few, 3 are needed"
    )


def test_an_npu_and_a_gpu_are_two_ranks(tmp_path):
    """Captures of two jobs in one folder are no windows of one rank, whenever they were made."""
    capture(tmp_path / "gpu.json", slices(SECOND))
    task = [
        {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "Ascend Hardware"}},
        {"ph": "X", "name": "MatMul", "pid": 7, "tid": 2, "ts": f"{BASE // 1000 + 9 * SECOND}.250",
         "dur": 4.5, "args": {"Task Type": "AI_CORE"}},
    ]  # fmt: skip
    npu = tmp_path / "a_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    npu.parent.mkdir(parents=True)
    npu.write_text(json.dumps(task))
    (tmp_path / "a_ascend_pt" / "profiler_info_0.json").write_text('{"rank_id": 0}')
    with pytest.raises(RankError, match=r"one ran on .*a GPU.*Choose one with") as error:
        read(only(tmp_path))
    assert 'reader="kineto"' in str(error.value) and "an NPU" in str(error.value)
    assert len(read(only(tmp_path, reader="kineto")).events) == 3


def test_a_stamp_of_zero_does_not_join_windows(tmp_path):
    """Damaged stamps are found before windows are, whichever window has them."""
    zero = {**slices(0, 1)[0], "ts": -BASE // 1000}
    capture(tmp_path / "a.json", slices(2 * SECOND, 9))
    capture(tmp_path / "b.json", [*slices(8 * SECOND, 9), zero])
    trace = read(only(tmp_path))
    assert (trace.windows[:, 0] - BASE).tolist() == [2_000_000_000, 8_000_000_000]

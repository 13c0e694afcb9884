"""How the Perfetto writer lays out ranks, layers, groups and lanes."""

import pytest
from perfetto_decoded import BASE, builder, decoded, processes, stream, written

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import OptionError, OutputError
from traceconv.core.model import Capture, Layer, OpClass, Track
from traceconv.validation import validate


def layout_trace(rank, **capture):
    build = builder(rank, **capture)
    for track in (
        Track(Layer.DEVICE, "Stream 12", title="Ascend Hardware"),
        Track(Layer.DEVICE, "Stream 3", title="Ascend Hardware"),
        Track(Layer.COMM, "Plane 0", group="Group 0", title="HCCL"),
        Track(Layer.COMM, "Plane 0", group="Group 1", title="HCCL"),
        Track(Layer.STEP, "Step"),
        Track(Layer.HOST, "Thread 7", lane=0, thread=7),
        Track(Layer.HOST, "Thread 7", lane=1, thread=7),
    ):
        build.slice(build.add_track(track), BASE, 1, "k")
    build.track(Layer.OTHER, "unused")
    return build.finish()


def test_tracks_nest_in_the_order_of_the_screen():
    """Rank, Timeline, layer, group, lane, where more than one is in a group; threads aside."""
    out, _ = written(layout_trace(2))
    lanes = [m.track for m in out.marks]
    head = ["Rank 2", "Timeline"]
    assert [
        [*head, "Step Trace \u00b7 Step"],
        ["Host", "Host"],
        ["Host", "Host"],
        [*head, "Ascend Hardware", "Stream 3"],
        [*head, "Ascend Hardware", "Stream 12"],
        [*head, "HCCL", "Group 0 \u00b7 Plane 0"],
        [*head, "HCCL", "Group 1 \u00b7 Plane 0"],
    ] == [out.path(uuid) for uuid in lanes]
    layers = [t for t in out.tracks.values() if out.tracks.get(t.parent_uuid) and t.child_ordering]
    assert {3} == {t.child_ordering for t in layers}
    ranked = [out.tracks[u].sibling_order_rank for u in lanes]
    assert ranked == [0, 0, 1, 0, 1, 0, 1]
    assert next(t for t in out.tracks.values() if t.HasField("process")).sibling_order_rank == 2


def test_a_row_without_a_name_is_called_by_its_group():
    """Tables without a timeline name no stream."""
    build = builder(0)
    build.slice(build.add_track(Track(Layer.DEVICE, "", title="Ascend Hardware")), BASE, 1, "k")
    out, _ = written(build.finish())
    assert out.path(out.marks[0].track) == ["Rank 0", "Ascend Hardware"]


def test_host_threads_are_threads_of_the_rank():
    """The first lane of a thread is the thread; others are in it. Names that differ stay."""
    build = builder(0, pid=77)
    for layer, title, name, process, thread, own_name in (
        (Layer.HOST, "Python", "Thread 77 (main)", -1, 77, "main"),
        (Layer.HOST, "Python", "Thread 8", -1, 8, ""),
        (Layer.HOST, "Host", "Thread 9", 77, 9, ""),
        (Layer.HOST, "Host", "Thread 9", 78, 9, ""),
        (Layer.HOST, "Host", "Thread 0", -1, 0, ""),
        (Layer.RUNTIME, "CANN", "Thread 77 (main)", -1, 77, "main"),
        (Layer.RUNTIME, "CANN", "Thread 8 (C++)", -1, 8, "C++"),
        (Layer.SCOPE, "Host (device projection)", "Thread 8", -1, 8, ""),
    ):
        group = f"Process {process}" if process >= 0 else ""
        track = Track(
            layer, name, group, title, process=process, thread=thread, thread_name=own_name
        )
        build.slice(build.add_track(track), BASE, 1, "k")
    out, _ = written(build.finish())
    threads = {t.uuid: t.thread for t in out.tracks.values() if t.HasField("thread")}
    assert sorted((t.pid, t.tid, t.thread_name) for t in threads.values()) == [
        (77, 8, "Python"),
        (77, 9, "Host"),
        (77, 77, "main"),
    ]
    assert {tuple(out.path(m.track)) for m in out.marks if m.track not in threads} == {
        ("Python", "CANN \u00b7 Thread 8 (C++)"),
        ("Rank 0", "Timeline", "Host (device projection) \u00b7 Thread 8"),
        ("Rank 0", "Timeline", "Host", "Process 78 \u00b7 Thread 9"),
        ("Rank 0", "Timeline", "Host", "Thread 0"),
        ("main", "CANN"),
    }


def test_threads_of_unrelated_processes_are_lanes():
    """Trace-event JSON of any program: two processes may have a thread of one number each."""
    build = TraceBuilder(Capture("chrome_json", None, (), rank=0))
    for process, title in enumerate(("parent", "worker")):
        track = Track(Layer.HOST, "Thread 7", title=title, process=process, thread=7)
        build.slice(build.add_track(track), BASE, 1, "k")
    out, _ = written(build.finish())
    assert not any(t.HasField("thread") for t in out.tracks.values())


def job_of(lost):
    """Ranks that compute for what is left of 100 ns."""
    runs = {}
    for rank, ns in lost.items():
        build = TraceBuilder.of_rank(rank)
        build.slice(stream(build, "Stream 1"), BASE, 100 - ns, "k", op=OpClass.COMPUTE)
        build.slice(stream(build, f"Stream {7 + rank % 2}"), BASE + 99, 1, "copy", op=OpClass.COPY)
        host = build.add_track(Track(Layer.HOST, "Thread 5", title="Python", thread=5))
        build.slice(host, BASE, 100, "call")
        runs[rank] = build.finish()
    return runs


def test_lanes_across_ranks_stand_below_each_other(tmp_path):
    """Without communication, the rank that computes least is first; threads stay with their ranks;
    read back it is the same."""
    lost = {0: 10, 1: 60, 2: 30, 10: 60}
    job, texts = tmp_path / "job.pftrace", {}
    traceconv.write(job_of(lost).values(), job)
    for layout in ("rank", "lane"):
        path = tmp_path / f"{layout}.pftrace"
        traceconv.merge(job, out=path, mode="detail", layout=layout, align="none")
        assert validate(path).ok
        text = tmp_path / f"{layout}.txt"
        traceconv.convert(path, out=text)
        texts[layout] = text.read_text()
    assert texts["rank"] == texts["lane"]
    out = decoded(path.read_bytes())
    lanes = {}
    for uuid in dict.fromkeys(m.track for m in out.marks):
        path_of = tuple(out.path(uuid))
        if path_of[0] == "All ranks":
            place = (out.tracks[uuid].sibling_order_rank, path_of[-1])
            lanes.setdefault(path_of[1:-1], []).append(place)
    order = [(0, "Rank 1"), (1, "Rank 10"), (2, "Rank 2"), (3, "Rank 0")]
    assert sorted(lanes["Overlap Analysis", "Computing"]) == order
    assert sorted(lanes["Hardware", "Stream 8"]) == order[:1]
    assert sorted(lanes["Hardware", "Stream 7"]) == order[1:]
    groups = [t.name for t in out.tracks.values() if out.path(t.uuid)[:-1] == ["All ranks"]]
    assert groups == ["Step Trace \u00b7 iterations", "Overlap Analysis", "Hardware"]
    assert {t.thread.tid for t in out.tracks.values() if t.HasField("thread")} == {5}


def test_the_rank_that_others_wait_for_is_first_of_a_lane(tmp_path):
    """It communicates least."""
    runs = []
    for rank, computing in {0: 60, 1: 50, 2: 90}.items():
        build = TraceBuilder.of_rank(rank)
        build.slice(stream(build, "Stream 1"), BASE, computing, "k", op=OpClass.COMPUTE)
        late = BASE + computing
        build.slice(stream(build, "Stream 2"), late, 100 - computing, "c", op=OpClass.COMM)
        runs.append(build.finish())
    traceconv.write(runs, tmp_path / "job.pftrace")
    path = tmp_path / "lane.pftrace"
    traceconv.merge(tmp_path / "job.pftrace", out=path, layout="lane", align="none")
    out = decoded(path.read_bytes())
    order = {
        out.path(uuid)[-1]: track.sibling_order_rank
        for uuid, track in out.tracks.items()
        if out.path(uuid)[-2:-1] == ["Computing"]
    }
    assert sorted(order, key=order.get) == ["Rank 2", "Rank 0", "Rank 1"]


def test_only_perfetto_has_lanes_across_ranks(tmp_path):
    """Said before any work, and nothing is left."""
    traceconv.write(job_of({0: 1}).values(), tmp_path / "job.pftrace")
    for name in ("x.json", "x.tar", "x.txt"):
        with pytest.raises(OptionError, match="only Perfetto output"):
            traceconv.merge(tmp_path / "job.pftrace", out=tmp_path / name, layout="lane")
    assert [path.name for path in tmp_path.iterdir()] == ["job.pftrace"]


def test_only_sub_lanes_of_one_track_are_merged():
    """The two rows of a thread are one on screen; streams never are."""
    out, _ = written(layout_trace(0))
    tracks = [out.tracks[m.track] for m in out.marks]
    assert [t.sibling_merge_behavior for t in tracks] == [2, 3, 3, 2, 2, 2, 2]
    assert tracks[1].sibling_merge_key_int == tracks[2].sibling_merge_key_int > 0


def test_root_orders_processes():
    """Without this, viewers order ranks by their number of slices."""
    out, _ = written()
    assert (out.tracks[0].process_ordering, out.tracks[0].thread_ordering) == (1, 1)


def test_pid_is_the_process_own_where_it_is_free():
    """A pid two ranks share, none, or one no viewer takes, gives way to one made from the rank."""
    pids = (4321, 4321, -1, 0, 2**31, 1_000_002)
    traces = [layout_trace(rank, pid=pid) for rank, pid in enumerate(pids)]
    out, _ = written(*traces)
    expected = [4321, 1_000_001, 1_000_002, 1_000_003, 1_000_004, 1_000_005]
    found = processes(out)
    assert expected == [found[f"Rank {rank}"].pid for rank in range(6)]
    assert found["Rank 1"].process_labels == ["pid 4321"]


def test_process_is_labelled_with_device_and_host():
    """Device 0 is a device."""
    out, _ = written(layout_trace(0, device=0, host="node7"))
    assert processes(out)["Rank 0"].process_labels == ["device 0", "node7"]


def test_many_tracks_have_ids_of_their_own():
    """Past the small ids of a rank come larger ones, of no other rank."""
    traces = []
    for rank in (0, 1):
        build = builder(rank)
        for i in range(400):
            build.slice(stream(build, f"Stream {i}"), BASE, 1, "k")
        traces.append(build.finish())
    out, _ = written(*traces)
    assert len({m.track for m in out.marks}) == 800


def test_ranks_beyond_the_ids_are_refused():
    """The message says what to do instead."""
    build = builder(1 << 24)
    build.slice(stream(build), BASE, 1, "k")
    with pytest.raises(OutputError, match="write Chrome JSON"):
        written(build.finish())

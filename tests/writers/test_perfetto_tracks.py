"""How the Perfetto writer lays out ranks, layers, groups and lanes."""

import pytest
from perfetto_decoded import BASE, builder, processes, stream, written

from traceconv.core.errors import OutputError
from traceconv.core.model import Layer, Track


def layout_trace(rank, **capture):
    build = builder(rank, **capture)
    for track in (
        Track(Layer.DEVICE, "Stream 12", title="Ascend Hardware"),
        Track(Layer.DEVICE, "Stream 3", title="Ascend Hardware"),
        Track(Layer.COMM, "Plane 0", group="Group 0", title="HCCL"),
        Track(Layer.COMM, "Plane 0", group="Group 1", title="HCCL"),
        Track(Layer.STEP, "Step"),
        Track(Layer.HOST, "Thread 7", lane=0),
        Track(Layer.HOST, "Thread 7", lane=1),
    ):
        build.slice(build.add_track(track), BASE, 1, "k")
    build.track(Layer.OTHER, "unused")
    return build.finish()


def test_tracks_nest_in_the_order_of_the_screen():
    """Rank, Timeline, layer, group, lane; siblings are numbered, parents explicit."""
    out, _ = written(layout_trace(2))
    lanes = [m.track for m in out.marks]
    head = ["Rank 2", "Timeline"]
    assert [
        [*head, "Step Trace", "Step"],
        [*head, "Host", "Thread 7"],
        [*head, "Host", "Thread 7"],
        [*head, "Ascend Hardware", "Stream 3"],
        [*head, "Ascend Hardware", "Stream 12"],
        [*head, "HCCL", "Group 0", "Plane 0"],
        [*head, "HCCL", "Group 1", "Plane 0"],
    ] == [out.path(uuid) for uuid in lanes]
    layers = [t for t in out.tracks.values() if out.tracks.get(t.parent_uuid) and t.child_ordering]
    assert {3} == {t.child_ordering for t in layers}
    ranked = [out.tracks[u].sibling_order_rank for u in lanes]
    assert ranked == [0, 0, 1, 0, 1, 0, 0]
    assert next(t for t in out.tracks.values() if t.HasField("process")).sibling_order_rank == 2


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

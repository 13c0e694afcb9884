"""What files are like: packed, joined, compressed inside, cut, hostile; and where state is lost."""

import gzip
import zlib

import pytest
from perfetto_files import flow, note, process, thread
from trace_bytes import START, field, msg, packet, track

import traceconv
from traceconv.core.errors import SourceError
from traceconv.core.model import OpClass
from traceconv.find import discovery
from traceconv.io.sources import sources
from traceconv.readers.perfetto import packets as reading
from traceconv.run.stages import events

LANE = track(1, (2, "lane"))


def begin(ns, name, *fields):
    return packet((8, ns), (10, 1), (11, msg((9, 1), (11, 1), (23, name), *fields)))


def end(ns):
    return packet((8, ns), (10, 1), (11, msg((9, 2), (11, 1))))


def slices(count, first=0):
    return b"".join(
        begin(1000 * i, f"s{i}") + end(1000 * i + 500) for i in range(first, first + count)
    )


WHOLE = START + LANE + slices(20)


def rows(path, **options):
    """Starts, lengths and names of slices; losses and doubts."""
    trace = next(iter(traceconv.open(str(path), **options).traces()))
    names = [trace.strings[i] for i in trace.events.name.tolist()]
    found = zip(
        (trace.events.start_ns - trace.events.start_ns[:1].sum()).tolist(),
        trace.events.dur_ns.tolist(), names, strict=True,
    )  # fmt: skip
    lost = {i.code: i.count for i in trace.issues if i.severity != "info"}
    return list(found), lost


EXPECTED = [(1000 * i, 500, f"s{i}") for i in range(20)]


@pytest.fixture
def written(tmp_path):
    """Writes a file, and gives what is read of it."""

    def one(data, name="t.pftrace"):
        path = tmp_path / name
        path.write_bytes(data)
        return rows(path)

    return one


def test_gzip_members_are_one_file(written):
    """Also where a packet is in two of them."""
    members = gzip.compress(WHOLE[:333]) + gzip.compress(WHOLE[333:])
    assert written(members, "t.pftrace.gz") == (EXPECTED, {})
    assert written(members, "t.bin") == (EXPECTED, {})


def test_zstd_frames_are_one_file(written):
    zstandard = pytest.importorskip("zstandard")
    one = zstandard.ZstdCompressor()
    frames = one.compress(WHOLE[:333]) + one.compress(WHOLE[333:])
    assert written(frames, "t.pftrace.zst") == (EXPECTED, {})


@pytest.mark.parametrize("wbits", [15, 31], ids=["zlib", "gzip"])
def test_packets_inside_packets(written, wbits):
    """In their place among the others."""
    packer = zlib.compressobj(wbits=wbits)
    inside = packer.compress(slices(10, 5)) + packer.flush()
    data = START + LANE + slices(5) + packet((50, inside)) + slices(5, 15)
    assert written(data) == (EXPECTED, {})


def test_packets_that_unpack_to_far_too_much_are_refused(written, monkeypatch):
    monkeypatch.setattr(reading, "RATIO_FREE_BYTES", 1 << 20)
    bomb = packet((50, zlib.compress(slices(1) + packet((9999, bytes(1 << 20))))))
    with pytest.raises(SourceError, match="bomb"):
        written(WHOLE + 30 * bomb)


def test_a_compressed_packet_that_is_damaged_is_lost_alone(written):
    packed = bytearray(zlib.compress(slices(3, 30)))
    packed[10:20] = bytes(10)
    found, lost = written(WHOLE + packet((50, bytes(packed))))
    assert (found[:20], set(lost)) == (EXPECTED, {"malformed-record"})


@pytest.mark.parametrize("chunk", [64, 300, 1 << 20])
def test_what_stands_between_packets_is_skipped(written, chunk, monkeypatch):
    """Whatever is read at a time."""
    monkeypatch.setattr(reading, "CHUNK_BYTES", chunk)
    data = START + LANE + slices(10) + b"\xff\x00 no packets \x0a" * 5 + slices(10, 10)
    found, lost = written(data)
    assert (found, lost) == (EXPECTED, {"skipped-bytes": 1})


@pytest.mark.parametrize("cut", range(len(WHOLE) - 60, len(WHOLE)))
def test_every_cut_is_said(written, cut):
    """And costs what is behind it, no more."""
    found, lost = written(WHOLE[:cut])
    whole = len(found) - lost.get("unfinished-slice", 0)
    assert found[:whole] == EXPECTED[:whole] and whole >= 17
    assert ("truncated" in lost) != (cut in ends_of_packets(WHOLE))


def ends_of_packets(data):
    from traceconv.protobuf.message_columns import frames

    found = frames(data, 0, len(data), 1 << 30)
    return set((found.start + found.size).tolist())


def test_without_state_what_needs_it_is_lost(written):
    """Until the state is cleared again; what needs none is read."""
    texts = (12, msg((2, msg((1, 1), (2, "named")))))
    needs = packet((8, 5), (10, 2), (13, 2), (11, msg((9, 3), (11, 1), (10, 1))))
    defines = packet((10, 2), (13, 1), texts)
    found, lost = written(START + LANE + slices(2) + needs + defines + needs)
    assert [name for _, _, name in found] == ["s0", "named", "s1"]
    assert lost == {"state-lost": 1}
    dropped = packet((10, 2), (42, 1))
    found, lost = written(START + LANE + slices(2) + defines + needs + dropped + needs + needs)
    assert len(found) == 3 and lost == {"state-lost": 2}


def test_text_by_number_that_was_never_sent(written):
    """The event is there, without a name."""
    one = packet((8, 5), (10, 1), (13, 2), (11, msg((9, 3), (11, 1), (10, 77))))
    found, lost = written(START + LANE + slices(1) + one)
    assert [name for _, _, name in found] == ["s0", ""]
    assert lost == {"interned-unknown": 1, "missing-name": 1}


def test_a_length_that_lies_is_no_loop(written):
    """Lengths up to the largest number, at the end, in the middle."""
    for bad in (
        b"\x0a" + b"\xff" * 9 + b"\x01",
        b"\x0a\xff\xff\xff\xff\x07",
        b"\x0a" + b"\x80" * 30,
    ):
        found, lost = written(WHOLE + bad)
        assert found == EXPECTED and lost
        found, lost = written(START + LANE + slices(10) + bad + slices(10, 10))
        assert found == EXPECTED and lost


def test_fields_of_other_kinds_than_they_have(written):
    """A name that is a number, a track that is a text: the packet is passed over or read in part,
    and nothing breaks."""
    odd = [
        packet((8, b"x"), (11, msg((9, 3), (11, 1)))),
        packet((8, 7), (11, msg((9, b"3"), (11, 1), (23, 5)))),
        packet((8, 7), (11, msg((9, 3), (11, b"1"), (47, b"\xff\xff")))),
        packet((8, 7), (11, 5)),
        packet((60, 5)),
        packet((12, 5), (59, 1), (6, 2)),
        packet((6, msg((1, 5), (1, msg((1, b"a"), (2, b"b")))))),
        field(1, 5),
    ]
    for one in odd:
        found, _ = written(START + LANE + slices(10) + one + slices(10, 10))
        assert [row for row in found if row[2].startswith("s")] == EXPECTED


def stage(ns, *fields):
    return packet((8, ns), (10, 1), (13, 2), (53, msg((1, ns), (2, 5), (13, 1), *fields)))


def pair(*fields):
    return (6, msg(*fields))


@pytest.mark.parametrize("tier", ["1", "0"])
def test_arguments_of_gpu_slices(tmp_path, monkeypatch, tier):
    """Their own texts, whatever is in them, between what their stage and further fields say; of a
    key that comes twice the last value counts, in the place of the first."""
    monkeypatch.setenv("TRACECONV_NATIVE", tier)
    interned = msg(
        (24, msg((1, 1), (2, "[07] stream 7"))),
        (24, msg((1, 2), (2, "Kernel"), (3, "what a kernel is"))),
        (24, msg((1, 3), (2, "Memcpy"))),
    )
    path = tmp_path / "gpu.pftrace"
    path.write_bytes(
        packet((10, 1), (13, 1), (12, interned))
        + stage(1000, (14, 2), (17, "a"), pair((1, "x"), (2, 'q"\n\u00e9')))
        + stage(2000, (14, 3), (17, "b"), pair((1, "x"), (2, "1")), pair((1, "y")))
        + stage(3000, (14, 3), (17, "c"))
        + stage(4000, (14, 2), (17, "d"))
        + stage(5000, (14, 2), pair((1, "description"), (2, "own")), pair((2, "no key")))
        + stage(6000, (14, 3), *(pair((1, k), (2, k + k)) for k in ("x", "y", "x")))
        + stage(7000, (14, 3), (10, 9), pair((1, b"\xff"), (2, "1")), pair((1, b"\xfe"), (2, "2")))
        + stage(8000, (14, 9), (5, 4), pair((1, 3), (2, "wrong kind")))
        + packet((8, 9000), (10, 1), (13, 2), (53, msg((1, 1), (2, 5), (13, 77))))
        + packet((8, 9000), (10, 1), (13, 2), (53, msg((1, "no id"), (13, 1))))
    )
    (trace,) = traceconv.open(str(path)).traces()
    rows = trace.events.take(trace.events.start_ns.argsort())
    names = [trace.strings[i] for i in rows.name.tolist()]
    assert names == ["a", "b", "c", "d", "Kernel", "Memcpy", "Memcpy", "render stage(0)"]
    assert [trace.args[i] if i >= 0 else {} for i in rows.args.tolist()] == [
        {"description": "what a kernel is", "x": 'q"\n\u00e9'},
        {"x": "1", "y": ""},
        {},
        {"description": "what a kernel is"},
        {"description": "own", "": "no key"},
        {"x": "xx", "y": "yy"},
        {"\ufffd": "2", "submission_id": 9},
        {"": "wrong kind", "context_id": 4},
    ]
    assert {issue.code: issue.count for issue in trace.issues if issue.severity == "loss"} == {
        "malformed-record": 2
    }


def test_gpu_slices_that_wait(tmp_path):
    """Arrows from what they waited for, ids in one field or in several."""
    interned = msg((24, msg((1, 1), (2, "queue"))))
    path = tmp_path / "gpu.pftrace"
    path.write_bytes(
        packet((10, 1), (13, 1), (12, interned))
        + stage(1000, (17, "a"))
        + stage(2000, (17, "b"))
        + stage(3000, (17, "c"), (18, 1000), (18, 2000))
        + stage(4000, (17, "d"), (18, b"\xe8\x07\xb8\x17"))
    )
    (trace,) = traceconv.open(str(path)).traces()
    ends = zip(trace.flows.src.tolist(), trace.flows.dst.tolist(), strict=True)
    assert sorted(ends) == [(0, 2), (0, 3), (1, 2), (2, 3)]


def on(uuid, begin_ns, end_ns, name, *fields):
    """A slice on a track."""
    return packet(
        (8, begin_ns), (10, 1), (11, msg((9, 1), (11, uuid), (22, "x"), (23, name), *fields))
    ) + packet((8, end_ns), (10, 1), (11, msg((9, 2), (11, uuid))))


def ranks_of(tmp_path, data):
    path = tmp_path / "t.pftrace"
    path.write_bytes(data)
    found = discovery.discover(sources([str(path)])).captures
    return [events(capture, lambda n: None) for capture in found]


def drawn(trace):
    names = [trace.strings[i] for i in trace.events.name.tolist()]
    return [
        (names[a], names[b])
        for a, b in zip(trace.flows.src.tolist(), trace.flows.dst.tolist(), strict=True)
    ]


def test_arrows_from_rank_to_rank_are_counted_and_none_is_made_up(tmp_path):
    """A chain that goes to another rank and comes back is no arrow within the first one, and what
    is in a process of no rank is counted once."""
    data = b""
    for pid, stream in ((10, "STREAM [1]"), (20, "STREAM [1]"), (30, "")):
        data += track(pid, process(pid, f"p{pid}"))
        data += track(pid + 1, (5, pid), (2, stream) if stream else thread(pid, pid, "main"))
    data += on(11, 1000, 1100, "a", flow(5)) + on(21, 1200, 1300, "b", flow(5))
    data += on(11, 1400, 1500, "c", flow(5)) + on(11, 1600, 1700, "d", flow(5))
    data += on(31, 1000, 1800, "launcher", flow(6)) + on(21, 1900, 2000, "e", flow(6))
    first, second = ranks_of(tmp_path, data)
    assert drawn(first) == [("c", "d")]
    assert drawn(second) == []
    assert first.issues.count("flow-across-ranks") == 1  # b to c
    assert second.issues.count("flow-across-ranks") == 2  # a to b, launcher to e
    assert [one.issues.count("track-without-rank") for one in (first, second)] == [1, 0]
    assert first.ledger["read", "slice"] == 4 and first.ledger["lost", "slice"] == -1


def test_what_one_group_has_twice_is_two_and_what_differs_is_not_one(tmp_path):
    """Copies are what is alike in every column and argument, once per group."""
    data = b""
    for group in (0, 1):
        head = 1000 * (group + 1)
        data += track(head, process(group + 1, f"group {group}"))
        for rank in (0, 1):
            uuid = head + 10 + rank
            name = thread(group + 1, uuid, f"rank {rank} compute")
            data += track(uuid, (5, head), name)
            args = (note("shape", "2x2"), note("shape", "4x4"))
            data += on(uuid, 5000, 6000, "gemm", args[0], flow(9 + group))
            data += on(uuid, 7000, 8000, "twice", args[0]) + on(uuid, 8000, 8000, "mark")
            data += on(uuid, 8000, 8000, "mark") + on(uuid, 9000, 9500, "gemm", args[group])
    for trace in ranks_of(tmp_path, data):
        names = [trace.strings[i] for i in trace.events.name.tolist()]
        assert sorted(names) == ["gemm", "gemm", "gemm", "mark", "mark", "twice"]
        assert trace.issues.count("repeated-content") == 4
        assert trace.ledger["read", "slice"] == 10
        assert not len(trace.flows)


def test_ranges_that_proton_projects_onto_a_graph_are_no_work(tmp_path):
    """Tracks of its writer (PerfettoTraceDump.cpp): a range around two kernels, and the launch."""
    data = track(1, process(0, "Trace"))
    for uuid, name in ((2, "CPU Thread 1"), (3, "Graph: Stream 0"), (4, "GPU Stream 0")):
        data += track(uuid, (5, 1), (2, name))
    data += on(2, 1000, 2000, "train", flow(5)) + on(3, 3000, 9000, "layer")
    data += on(4, 3000, 5000, "matmul_kernel", flow(5)) + on(4, 6000, 9000, "add_kernel")
    (trace,) = ranks_of(tmp_path, data)
    work = trace.events.dur_ns[trace.events.op == OpClass.COMPUTE]
    assert work.tolist() == [2000, 3000]
    assert drawn(trace) == [("train", "matmul_kernel")]

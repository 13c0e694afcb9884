"""XSpace files: their framing, their devices as ranks, and what operations are."""

import pytest
import xplane_files
from paths import ROOT
from xplane_files import Plane, message, number, space, text

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues, MalformedInputError
from traceconv.core.model import Layer, OpClass
from traceconv.find.capture_ranks import resolve
from traceconv.io.sources import sources
from traceconv.readers.xla.operations import operation
from traceconv.readers.xla.space import is_space, space_of
from traceconv.readers.xla.xplane import READER


def found(folder):
    """The captures below a folder, and what was noted."""
    [source] = sources([str(folder)])
    issues = Issues()
    return READER.find(source, source.names(), issues), issues


def read(path, *, number=0):
    """The trace of one capture of a file, rank 0 if nothing names one."""
    captures, issues = found(path)
    captures = resolve(captures, "meta", issues)
    build = TraceBuilder(captures[number])
    READER.read(captures[number], build)
    return build.finish()


def gpu_plane(device=0, **stats):
    plane = Plane(f"/device:GPU:{device}", device)
    plane.add(plane.line(1, "Stream #7(Kernel)"), "gemm", 10, 5, **stats)
    return plane


@pytest.mark.parametrize("name", xplane_files.golden())
def test_golden_inputs_are_what_their_maker_writes(name):
    """Nobody edits them by hand."""
    assert (ROOT / "golden" / name).read_bytes() == xplane_files.golden()[name]


# -- framing -----------------------------------------------------------------------------------


def test_a_plane_that_is_cut_gives_its_whole_events():
    """Of any first bytes of a file, every event that is whole, and no other."""
    whole = space(gpu_plane(correlation_id=3), gpu_plane(1, correlation_id=4))
    counts = []
    for size in range(len(whole)):
        planes = space_of(whole[:size]).planes
        counts.append(sum(len(plane) for plane in planes))
        starts = [t for plane in planes for t in plane.offset_ps.tolist()]
        assert set(starts) <= {10 * xplane_files.US}
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 2)


@pytest.mark.parametrize(
    ("head", "known"),
    [
        (space(gpu_plane())[:40], True),
        (message(1, text(2, "Task Environment")), True),
        (message(1, text(2, "other")), False),
        (message(1, message(11, b"/x")), False),
        (b"\n", False),
        (b"", False),
        (b"\nplain text\n", False),
    ],
)
def test_known_by_the_first_plane(head, known):
    """Perfetto's traces begin with the same byte."""
    assert is_space(head) is known


def test_nothing_to_read_is_an_error(tmp_path):
    """A file of the right name that holds no plane."""
    (tmp_path / "a.xplane.pb").write_bytes(b"\xff" * 50)
    with pytest.raises(MalformedInputError, match="not one plane"):
        read(tmp_path)


# -- ranks -------------------------------------------------------------------------------------


def ranks(folder):
    captures, issues = found(folder)
    return [(c.rank, c.device) for c in captures], issues


def test_hosts_with_a_number_in_their_name(tmp_path):
    """The number of the host times the devices of one, also of GPUs that did nothing."""
    idle = Plane("/device:GPU:1", 1)
    (tmp_path / "x.xplane.pb").write_bytes(space(gpu_plane(), idle, host="t1v-n-0-w-3"))
    (tmp_path / "y.xplane.pb").write_bytes(space(gpu_plane(), gpu_plane(1), host="t1v-n-0-w-1"))
    assert ranks(tmp_path)[0] == [(6, 0), (2, 0), (3, 1)]


def test_hosts_without_a_number_are_counted_and_said(tmp_path):
    """In the order of their names, numbers in these as numbers."""
    for host in ("b10", "b9"):
        (tmp_path / f"{host}.xplane.pb").write_bytes(space(gpu_plane(), gpu_plane(1), host=host))
    got, issues = ranks(tmp_path)
    assert got == [(2, 0), (3, 1), (0, 0), (1, 1)]
    assert issues.count("rank-derived") == 1


def test_one_device_per_host_is_left_to_names(tmp_path):
    """As with other readers, so that patterns of the user apply."""
    for name in ("worker0", "worker1"):
        (tmp_path / f"{name}.xplane.pb").write_bytes(space(gpu_plane()))
    captures, issues = found(tmp_path)
    assert [c.rank for c in captures] == [None, None]
    assert [c.rank for c in resolve(captures, "name", issues)] == [0, 1]
    assert [c.rank for c in resolve(captures, r"worker(\d)", issues)] == [0, 1]


def test_runs_of_one_host_are_windows_of_its_ranks(tmp_path):
    """A second profile of the same process is no second host."""
    for run in ("2026_01_01_00_00_00", "2026_01_01_00_10_00"):
        folder = tmp_path / "plugins" / "profile" / run
        folder.mkdir(parents=True)
        (folder / "h.xplane.pb").write_bytes(space(gpu_plane(), gpu_plane(1)))
    assert [rank for rank, _ in ranks(tmp_path)[0]] == [0, 1, 0, 1]


def test_processes_of_the_cpu_backend(tmp_path):
    """The number of a device holds that of its process; older ones count in larger steps."""

    def process(name, *devices):
        plane = Plane("/host:CPU")
        line = plane.line(1, "pool")
        for device in devices:
            plane.add(line, "dot.1", 10, 5, hlo_op="dot.1", device_ordinal=device, run_id=1)
        (tmp_path / name).write_bytes(space(plane))

    process("b.xplane.pb", 0, 1)
    process("a.xplane.pb", 2048, 2049)
    assert sorted(ranks(tmp_path)[0]) == [(0, 0), (1, 1), (2, 2048), (3, 2049)]
    process("a.xplane.pb", 131072, 131073)
    assert sorted(ranks(tmp_path)[0]) == [(0, 0), (1, 1), (2, 131072), (3, 131073)]


def test_the_first_cpu_backends_number_no_devices(tmp_path):
    """JAX 0.4 writes the operation alone; it computes or communicates all the same."""
    plane = Plane("/host:CPU")
    line = plane.line(1, "tf_XLATfrtCpuClient")
    for start, name in ((10, "dot.1"), (20, "all-reduce.2")):
        plane.add(line, name, start, 5, hlo_op=name, hlo_module="jit_f", program_id=1)
    plane.add(line, "ThunkExecutor::Execute", 10, 20)
    (tmp_path / "h.xplane.pb").write_bytes(space(plane))
    assert [rank for rank, _ in ranks(tmp_path)[0]] == [None]
    trace = read(tmp_path)
    assert set(trace.events.op.tolist()) == {OpClass.COMPUTE, OpClass.HOST, OpClass.COMM}


def test_what_the_viewer_made_is_known(tmp_path):
    """Files beside are claimed by the first capture, and read by none."""
    names = ("h.trace.json.gz", "h.op_stats.pb", "ALL_HOSTS.op_stats.pb", "perfetto_trace.json.gz")
    for name in names:
        (tmp_path / name).write_bytes(b"{}")
    (tmp_path / "h.xplane.pb").write_bytes(space(gpu_plane(), gpu_plane(1)))
    captures, _ = found(tmp_path)
    assert [sorted(c.known) for c in captures] == [sorted(names), []]
    assert set(captures[0].uses) == set(names)


# -- events ------------------------------------------------------------------------------------


def test_times_are_rounded_at_both_ends(tmp_path):
    """Start and end half up; the length is what is between them."""
    plane = Plane("/device:GPU:0")
    line = plane.line(1, "Stream #7(Kernel)", 3)
    for start, dur in ((1499, 1001), (1500, 999), (2000, 0)):
        plane.raw(line, number(1, plane.kind("k")) + number(2, start) + number(3, dur))
    (tmp_path / "a.xplane.pb").write_bytes(space(plane))
    trace = read(tmp_path)
    rows = sorted(zip(trace.events.start_ns.tolist(), trace.events.dur_ns.tolist(), strict=True))
    assert rows == [(xplane_files.BEGIN + 3 + a, b) for a, b in ((1, 2), (2, 0), (2, 0))]
    assert trace.issues.count("stamp-rounded") == 2


def test_lines_stamped_in_unix_time_are_not_moved(tmp_path):
    """A line may count from 1970 itself."""
    plane = Plane("/device:GPU:0")
    plane.add(plane.line(1, "Stream #7", xplane_files.BEGIN + 77), "k", 0, 1)
    plane._lines[0][3][0] = number(1, plane.kind("k")) + number(2, 5000) + number(3, 1000)
    (tmp_path / "a.xplane.pb").write_bytes(space(plane))
    assert read(tmp_path).events.start_ns.tolist() == [xplane_files.BEGIN + 82]


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (number(2, 1 << 62) + number(3, 5), "bad-time"),
        (number(2, 5000) + number(3, -5000), "negative-duration"),
        (number(2, 5000) + b"\x1f", "malformed-record"),
    ],
)
def test_events_without_a_usable_time_are_booked(tmp_path, event, code):
    """Seen and lost; the others are kept."""
    plane = gpu_plane()
    plane.raw(plane._lines[0], number(1, plane.kind("gemm")) + event)
    (tmp_path / "a.xplane.pb").write_bytes(space(plane))
    trace = read(tmp_path)
    assert trace.counts()["slice"] == 1
    assert trace.issues.count(code) == 1
    assert trace.ledger["lost", "slice"] == -1


def test_a_recording_that_ends_at_no_time_is_booked(tmp_path):
    """Its events are kept; found by mutation."""
    task = Plane("Task Environment", profile_start_time=xplane_files.BEGIN,
                 profile_stop_time=(1 << 64) - 1)  # fmt: skip
    (tmp_path / "a.xplane.pb").write_bytes(space(gpu_plane(), task, timed=False))
    trace = read(tmp_path)
    assert (trace.counts()["slice"], trace.issues.count("malformed-record")) == (1, 1)


def test_events_of_unknown_kinds_are_named_by_number(tmp_path):
    """Also where that is below zero; found by mutation. Nothing says that they are work."""
    plane = gpu_plane()
    for kind in (7, -1):
        plane.raw(plane._lines[0], number(1, kind) + number(2, 90_000) + number(3, 1000))
    (tmp_path / "a.xplane.pb").write_bytes(space(plane))
    trace = read(tmp_path)
    names = sorted(trace.strings[i] for i in trace.events.name.tolist())
    assert names == ["event -1", "event 7", "gemm"]
    assert trace.issues.count("name-unknown") == 2


def test_numbers_without_a_sign_stay_so(tmp_path):
    """uint64 beyond int64, doubles that are none, texts by reference."""
    values = {"u": (1 << 64) - 1, "i": -3, "d": 0.5, "nan": float("nan"), "t": "a longer text"}
    (tmp_path / "a.xplane.pb").write_bytes(space(gpu_plane(**values)))
    trace = read(tmp_path)
    expected = {"u": 2**64 - 1, "i": -3, "d": 0.5, "nan": "nan", "t": "a longer text"}
    assert trace.args[int(trace.events.args[0])] == expected


def test_paths_of_the_user_are_cut_down(tmp_path):
    """Of a source its last part; its stack is left out."""
    stats = {"source": "/home/somebody/train.py:7", "source_stack": "/home/somebody/train.py:7"}
    (tmp_path / "a.xplane.pb").write_bytes(space(gpu_plane(**stats)))
    trace = read(tmp_path)
    assert trace.args[int(trace.events.args[0])] == {"source": "train.py:7"}


def test_rows_of_the_host_are_with_one_device_each(tmp_path):
    """Those that launch on a device with it, all others with the first; steps with every one."""
    threads = Plane("/host:CPU")
    line = threads.line(1, "python")
    threads.add(line, "train", 0, 90, _r=1, step_num=4)
    threads.add(line, "load", 1, 2)
    for device in (0, 1):
        threads.add(line, f"launch {device}", 5 + device, 1, correlation_id=device + 1)
    planes = [gpu_plane(d, correlation_id=d + 1) for d in (0, 1)]
    (tmp_path / "a.xplane.pb").write_bytes(space(*planes, threads))
    got = []
    for i in (0, 1):
        trace = read(tmp_path, number=i)
        names = [trace.strings[n] for n in trace.events.name.tolist()]
        got.append((sorted(names), len(trace.flows), trace.issues.count("host-rows-first")))
    assert got == [
        (["gemm", "launch 0", "load", "train"], 1, 2),
        (["gemm", "launch 1", "train"], 1, 0),
    ]


def test_the_second_half_of_an_asynchronous_collective(tmp_path):
    """Counted where the whole is not recorded, and only there."""

    def core(*background):
        plane = Plane("/device:TPU:0")
        ops = plane.line(3, "XLA Ops")
        for name, start in (("all-gather-start.2", 10), ("all-gather-done.2", 40)):
            kind = plane.kind(f"%{name} = ...", name, hlo_category=name[11:-2].join(("async-", "")))
            plane.add(ops, kind, start, 5)
        for start, dur in background:
            kind = plane.kind("%all-gather-start.2", "all-gather", hlo_category="async-start")
            plane.add(plane.line(4, "Async XLA Ops"), kind, start, dur, hlo_op="all-gather-done.2")
        return plane

    def lengths(*background):
        (tmp_path / "a.xplane.pb").write_bytes(space(core(*background)))
        events = read(tmp_path).events
        return sorted(events.dur_ns[events.op == OpClass.COMM].tolist())

    assert lengths() == [5000]
    assert lengths((10, 35)) == [35_000]
    assert lengths((10, 20)) == [5000, 20_000]  # of another one: both count


@pytest.mark.parametrize(
    ("names", "op", "word"),
    [
        (("all-reduce", "", "x.1"), OpClass.COMM, "all-reduce"),
        (("", "all-gather", "psum"), OpClass.COMM, "all-gather"),
        (("", "", "psum.3"), OpClass.COMM, "all-reduce"),
        (("", "", "reduce_scatter.7"), OpClass.COMM, "reduce-scatter"),
        (("", "", "ppermute"), OpClass.COMM, "collective-permute"),
        (("async-done", "", "all-reduce-done.1"), OpClass.COMM, "all-reduce"),
        (("async-done", "", "fusion.4"), OpClass.WAIT, ""),
        (("loop fusion", "", "all-reduce.3"), OpClass.COMPUTE, ""),
        (("all-reduce fusion", "", "f"), OpClass.COMM, "all-reduce"),
        (("copy-done", "", "f"), OpClass.COPY, ""),
        (("infeed", "", "f"), OpClass.COPY, ""),
        (("", "while", "f"), OpClass.OTHER, ""),
        (("", "fusion", "copy_fusion.clone"), OpClass.COMPUTE, ""),
        (("custom-call", "custom-call", "kernel"), OpClass.COMPUTE, ""),
        (("", "", ""), OpClass.COMPUTE, ""),
        (("", "", "psum_invariant.7"), OpClass.COMM, "all-reduce"),
        (("", "", "psum2"), OpClass.COMM, "all-reduce"),
        (("", "", "unreduced_pmax.1"), OpClass.COMM, "all-reduce"),
        (("", "", "all_gather_invariant"), OpClass.COMM, "all-gather"),
        (("", "", "all_gather_reduced_start.2"), OpClass.COMM, "all-gather"),
        (("", "", "unreduced_reduce_scatter"), OpClass.COMM, "reduce-scatter"),
        (("", "", "psum_scatter.4"), OpClass.COMM, "reduce-scatter"),
        (("", "", "psend"), OpClass.COMM, "send"),
        (("", "", "precv.1"), OpClass.COMM, "recv"),
        (("", "", "pbroadcast_invariant"), OpClass.COMM, "collective-broadcast"),
        (("", "ragged-all-to-all", "f"), OpClass.COMM, "all-to-all"),
        (("", "collective-reduce", "f"), OpClass.COMM, "collective-reduce"),
        (("", "pvary.1", "pvary.1"), OpClass.UNCLASSIFIED, ""),
        (("", "opcode-of-2030", "psum"), OpClass.COMM, "all-reduce"),
        (("", "opcode-of-2030", "f"), OpClass.UNCLASSIFIED, ""),
        (("data formatting", "", "f"), OpClass.COMPUTE, ""),
        (("category of 2030", "dot", "f"), OpClass.COMPUTE, ""),
        (("category of 2030", "", "f"), OpClass.UNCLASSIFIED, ""),
    ],
)
def test_classes_of_operations(names, op, word):
    """By category, opcode and name, in this order."""
    got = operation(*names)
    assert (got.op, got.word) == (op, word)


def test_layers_of_lines(tmp_path):
    """Threads, calls and streams; what is derived is a scope."""
    whole = space_of(xplane_files.gpus())
    assert [plane.name for plane in whole.planes][:2] == ["/device:GPU:0", "/device:GPU:1"]
    (tmp_path / "a.pb").write_bytes(xplane_files.gpus())
    trace = read(tmp_path)
    of = {track.name: track.layer for track in trace.tracks}
    assert of["Steps"] is Layer.SCOPE
    assert of["Stream 17"] is Layer.DEVICE
    assert of["Host Threads/583"] is Layer.RUNTIME
    assert of["python"] is Layer.HOST

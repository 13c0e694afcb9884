"""Raw data of Ascend devices: clocks, slices, pairs, steps, tasks and what joins them."""

import json
import shutil

import numpy as np
import pytest
from ascend_raw_made import (
    CASES,
    DEVICE_TICK,
    GRAPH,
    MONOTONIC_NS,
    NO_GRAPH,
    PROF,
    UNIX_NS,
    WORKER,
    Tree,
    crashed,
    device,
    flip,
    hwts,
    job,
    mark,
    stars,
)
from click.testing import CliRunner
from paths import ROOT

import traceconv
from traceconv.cli.formats import formats
from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Domain
from traceconv.core.errors import Issues
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.core.ordering import combined_key
from traceconv.io.sources import sources
from traceconv.passes import compose
from traceconv.readers.ascend import msprof, trace_view
from traceconv.readers.ascend.common.identity import Identity
from traceconv.readers.ascend.mindspore import reader as mindspore
from traceconv.readers.ascend.raw import reader as ascend_raw
from traceconv.readers.ascend.raw import scheduler_logs as logs
from traceconv.readers.ascend.raw.clock import read_clock
from traceconv.readers.ascend.raw.device_tasks import wraps
from traceconv.readers.ascend.raw.slice_files import lost_between, numbered, records
from traceconv.readers.ascend.raw.steps import new_iterations
from traceconv.readers.shared.pairing import latest, paired
from traceconv.readers.shared.table_kinds import NOT_NEEDED


def column(*values):
    return np.array(values, np.int64)


def find(folder, issues=None):
    (source,) = sources([str(folder)])
    return ascend_raw.READER.find(source, source.names(), issues or Issues())


def read(folder):
    (capture,) = find(folder)
    build = TraceBuilder(capture)
    ascend_raw.READER.read(capture, build)
    return build.finish()


def codes(trace):
    return {issue.code: issue.count for issue in trace.issues}


def named(trace, op):
    return [trace.strings[i] for i in trace.events.name[trace.events.op == op].tolist()]


@pytest.fixture
def build(tmp_path):
    (source,) = sources([str(tmp_path)])
    return TraceBuilder(Capture("ascend_raw", source, ("x",), rank=0))


# -- clocks -------------------------------------------------------------------------------


def clock_of(tmp_path, tree, dev=0):
    (source,) = sources([str(tree.write(tmp_path))])
    return read_clock(Identity(source, Issues()), source.names(), dev)


def small_files(**device_info):
    """The clock files of one device; the figures are those of the reference's example."""
    info = {"DeviceInfo": [{"hwts_frequency": "100", **device_info}]}
    start = {"collectionTimeBegin": "1736408883000000", "clockMonotonicRaw": "172163500000000"}
    tree = Tree().add("device_0/info.json.0", info).add("device_0/start_info.0", start)
    tree.add("device_0/host_start.log.0", "[Host]\nclock_monotonic_raw: 172163581670080\n")
    return tree.add("device_0/dev_start.log.0", "cntvct:17238197612056\n")


def test_device_ticks_become_unix_time(tmp_path):
    """The worked example: 100 000 ticks after the anchor."""
    clock = clock_of(tmp_path, small_files())
    assert clock.device_ns(column(17238197712056)).tolist() == [1736408883082670080]
    assert clock.domain is Domain.UNIX


def test_host_began_later_than_its_log(tmp_path):
    """``cntvct_diff`` moves the anchor by so many ticks of the host."""
    tree = small_files()
    log = "clock_monotonic_raw = 172163581670080\ncntvct_diff = 500\n"
    tree.add("device_0/host_start.log.0", log)
    tree.add("host/info.json", {"CPU": [{"Frequency": "100.000000"}]})
    found = clock_of(tmp_path, tree).device_ns(column(17238197612056))
    assert found.tolist() == [1736408883081670080 + 5000]


def test_host_stamps_without_a_frequency_are_nanoseconds(tmp_path):
    """No frequency of the host's counter: its stamps are of the monotonic clock."""
    tree = small_files().add("host/info.json", {"CPU": [{"Id": 0}]})
    assert clock_of(tmp_path, tree).host_ns(column(172163500000007)).tolist() == [
        1736408883000000007
    ]


@pytest.mark.parametrize(("mhz", "ticks", "ns"), [
    ("1000", 7, 7), ("100.000000", 7, 70), ("38.4", 3, 78), ("38.4", 2**40, 28633115306667),
    ("9000", 9, 1), ("49.999999", 50_000_000, 1_000_000_020),
])  # fmt: skip
def test_ticks_are_exact(tmp_path, mhz, ticks, ns):
    """Any frequency: whole numbers all the way, rounded half up."""
    clock = clock_of(tmp_path, small_files(hwts_frequency=mhz))
    first, at = clock.device_ns(column(17238197612056, 17238197612056 + ticks)).tolist()
    assert at - first == ns


@pytest.mark.parametrize("tick", [-1, 2**63 - 1, 0])
def test_impossible_ticks_have_no_time(tmp_path, tick):
    """Ticks no clock can hold: -1, and the others are not disturbed."""
    clock = clock_of(tmp_path, small_files(hwts_frequency="0.001"))
    found = clock.device_ns(column(tick, 17238197612056)).tolist()
    assert found == [-1, 1736408883081670080]


def test_without_an_anchor_the_first_record_is_the_start_of_the_collection(tmp_path):
    """No ``dev_start.log``: the first tick falls on the time the collector began."""
    tree = small_files()
    del tree.files["device_0/dev_start.log.0"]
    clock = clock_of(tmp_path, tree)
    clock.begin(1000)
    assert clock.device_ns(column(1000, 1100)).tolist() == [
        1736408883081670080,
        1736408883081671080,
    ]
    assert len(clock.doubts) == 1


def test_broken_clock_files_leave_times_relative(tmp_path):
    """Files full of something else are an issue, and times count from the first record."""
    tree = Tree().add("device_0/info.json.0", "{").add("device_0/start_info.0", "[]")
    tree.add("device_0/host_start.log.0", b"\xff\x00clock: x\n")
    clock = clock_of(tmp_path, tree)
    clock.begin(500)
    assert (clock.domain, clock.device_ns(column(501)).tolist()) == (Domain.RELATIVE, [10])


# -- columns ------------------------------------------------------------------------------


def test_an_end_takes_the_latest_open_beginning():
    """Two beginnings: the first is replaced; an end after an end has none."""
    begins = np.array([True, True, False, False, True, False])
    start, end, matched = paired(column(1, 1, 1, 1, 2, 2), begins)
    assert (start.tolist(), end.tolist()) == ([1, 4], [2, 5])
    assert matched.tolist() == [False, True, True, False, True, True]


def test_keys_of_any_numbers_stay_apart():
    """Columns too wide for digits are ranked instead."""
    low, high = -(2**63), 2**63 - 1
    key = combined_key(column(low, high, low, high), column(high, low, low, low))
    assert len(set(key.tolist())) == 3
    assert key[1] == key[3]


def test_latest_row_not_after():
    """The last row of the key until then, the first if all are later, -1 for unknown keys."""
    at = latest(column(5, 5, 7), column(10, 20, 10), column(5, 5, 5, 6), column(15, 20, 9, 99))
    assert at.tolist() == [0, 1, 0, -1]


def test_gaps_in_running_numbers_are_counted():
    """15 is followed by 0; every number left out is a lost record."""
    assert lost_between(np.array([14, 15, 0, 1, 4], np.uint8)) == 2


def test_numbers_that_run_otherwise_say_nothing():
    """Numbers that hardly ever follow each other count something else."""
    assert lost_between(np.array([3, 3, 3, 3, 3], np.uint8)) == 0


def test_slices_sort_by_number():
    """The tenth slice follows the ninth."""
    assert numbered(["a.slice_10", "a.slice_9", "b"]) == {"a": ["a.slice_9", "a.slice_10"]}


def test_excess_bytes_at_the_front(build):
    """A file whose beginning was dropped: its first bytes are no record."""
    blob = hwts(0, 0, 1, 5, 1)[-9:] + hwts(1, 0, 2, 6, 1) + hwts(2, 1, 2, 7, 1)
    rows = records(blob, logs.HWTS, logs.marked, build)
    assert rows["task"].tolist() == [2, 2]
    assert [(i.code, i.places) for i in build.issues] == [
        ("skipped-bytes", ("9 bytes of a record at byte 0",))
    ]


def test_excess_bytes_at_the_end(build):
    """A file that ends in the middle of a record: the others are where they seem."""
    blob = hwts(1, 0, 2, 6, 1) + hwts(2, 1, 2, 7, 1) + hwts(0, 0, 1, 5, 1)[:9]
    rows = records(blob, logs.HWTS, logs.marked, build)
    assert (rows["task"].tolist(), [i.code for i in build.issues]) == ([2, 2], ["truncated"])


def test_other_records_are_skipped_one_at_a_time(build):
    """A wrong magic number costs one record."""
    blob = hwts(0, 0, 1, 5, 1) + hwts(1, 0, 1, 5, 1, magic=1) + hwts(2, 1, 1, 6, 1)
    assert len(records(blob, logs.HWTS, logs.marked, build)) == 2
    assert [(i.code, i.places) for i in build.issues] == [("malformed-record", ("byte 64",))]


# -- steps --------------------------------------------------------------------------------


def iterations(*marks):
    rows = np.frombuffer(b"".join(mark(tag, time) for tag, time in marks), logs.TRACK)
    found = new_iterations(logs.markers(rows, chip_6=False))
    return list(zip(found.start.tolist(), found.end.tolist(), found.forward.tolist(), strict=True))


def test_a_graph_that_starts_and_ends_is_one_iteration():
    """Start and end of the graph; what comes between belongs to it."""
    assert iterations((0, 1), (2, 3), (1, 9)) == [(1, 9, 3)]


def test_an_iteration_end_opens_the_next():
    """Iterations that follow each other inside one run of a graph."""
    assert iterations((0, 1), (4, 5), (2, 6), (4, 9), (1, 10)) == [(1, 5, -1), (5, 9, 6)]


def test_a_new_start_forgets_what_was_collected():
    """A start after an iteration's end opens anew, and drops the marks before it."""
    assert iterations((0, 1), (4, 5), (2, 6), (0, 7), (1, 9)) == [(1, 5, -1), (7, 9, -1)]


def test_marks_before_any_start_belong_to_nothing():
    """Ends without a start are passed over."""
    assert iterations((4, 1), (1, 2), (2, 3), (0, 4), (1, 6)) == [(4, 6, -1)]


# -- tasks --------------------------------------------------------------------------------


def stars_rows(*rows):
    return np.frombuffer(b"".join(stars(n, *row) for n, row in enumerate(rows)), logs.STARS)


@pytest.mark.parametrize(("stream", "task", "expanded", "expected"), [
    (5, 9, False, (5, 9)), (0x1005, 0x3FFF, False, (5, 0x1FFF)),
    (0x9005, 0x0001, False, (5, 0x8001)), (0x2123, 0xF007, False, (7, 0xF123)),
    (0x8123, 0x8007, True, (7, 0x8123)), (0x0123, 7, True, (0x123, 7)),
])  # fmt: skip
def test_encoded_numbers_of_stars(build, stream, task, expanded, expected):
    """Streams and tasks share their bits when there are many of either."""
    tasks = logs.stars_tasks(
        stars_rows((0, task, 1, stream), (1, task, 2, stream)), expanded, build
    )
    assert (int(tasks.stream[0]), int(tasks.task[0])) == expected


def test_records_of_several_schedulers_are_ordered_by_time(build):
    """An end that was written before its beginning still finds it."""
    tasks = logs.stars_tasks(stars_rows((1, 7, 30, 2), (0, 7, 10, 2)), False, build)
    assert (tasks.start.tolist(), tasks.end.tolist()) == ([10], [30])


def test_a_task_with_subtasks_gives_way_to_them(build):
    """Only the run whose subtasks were logged is left out."""
    rows = [(0, 9, 10, 3, 3), (34, 9, 11, 3, 3, 0), (35, 9, 15, 3, 3, 0), (1, 9, 20, 3, 3)]
    rows += [(0, 9, 30, 3, 3), (1, 9, 40, 3, 3)]
    tasks = logs.stars_tasks(stars_rows(*rows), False, build)
    assert (tasks.start.tolist(), tasks.context.tolist()) == ([11, 30], [0, -1])


def test_wraps_of_task_numbers():
    """Tasks before the first logged wrap belong to the round before it; other streams say -1."""
    rows = np.frombuffer(flip(100, 2, 4) + flip(200, 2, 5), logs.TRACK)
    tasks = logs.Tasks(*(column(*c) for c in (
        (2, 2, 2, 8), (1, 1, 1, 1), (50, 150, 250, 150), (60, 160, 260, 160), (0,) * 4, (-1,) * 4
    )))  # fmt: skip
    assert wraps(tasks, logs.flips(rows)).tolist() == [3, 4, 5, -1]


# -- what is said of it -------------------------------------------------------------------


def test_golden_inputs_are_what_their_maker_writes(root):
    """The bytes of the golden cases are those of ``ascend_raw_made``."""
    for case, make in CASES.items():
        folder = root / "golden" / "ascend_raw" / case / "input"
        files = [p for p in folder.rglob("*") if p.is_file()]
        kept = {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}
        assert kept == make().files


def test_formats_say_what_was_never_tried():
    """The list of formats names the records that are read from their layout only."""
    shown = CliRunner().invoke(formats, ["--json"]).output
    readers = {r["name"]: r["unverified"] for r in json.loads(shown)["readers"]}
    assert readers["ascend_raw"] == ascend_raw.READER.unverified
    assert "stars_soc" in CliRunner().invoke(formats, []).output


# -- captures -----------------------------------------------------------------------------


def test_a_crashed_run_has_everything_that_was_written(tmp_path):
    """Streams with names, steps, calls of the host, collectives, arrows, counters."""
    trace = read(crashed().write(tmp_path))
    layers = {t.layer for t in trace.tracks}
    assert layers == {Layer.STEP, Layer.RUNTIME, Layer.DEVICE, Layer.COMM, Layer.COUNTER}
    assert named(trace, OpClass.COMM) == ["hcom_allReduce__1_0_1"] * 2
    assert named(trace, OpClass.COMPUTE) == ["aclnnMatmul_MatMulV2"] * 3


def test_the_task_that_was_running_lasts_until_the_end(tmp_path):
    """The third operator never ended: it is drawn until the last stamp of the device."""
    trace = read(crashed().write(tmp_path))
    rows = np.flatnonzero(trace.events.op == OpClass.COMPUTE)
    assert int(trace.events.end_ns[rows].max()) == UNIX_NS + 270_000
    assert codes(trace)["unfinished-slice"] == 1


def test_views_of_a_crashed_run(tmp_path):
    """Steps and overlap are made of it as of any capture."""
    (capture,) = find(crashed().write(tmp_path))
    build = TraceBuilder(capture)
    ascend_raw.READER.read(capture, build)
    trace = build.finish()
    for one in compose("summary"):
        trace = one(trace)
    overlap = trace.events.take(trace.rows_of(Layer.OVERLAP))
    sums = {op: int(overlap.dur_ns[overlap.op == op].sum()) for op in set(overlap.op.tolist())}
    assert sums[OpClass.COMPUTING] == 20_000 + 20_000 + 60_000
    assert sums[OpClass.NOT_OVERLAPPED] == 60_000


def test_identity_of_a_crashed_run(tmp_path):
    """Rank, device and process come from the small files; the clock is Unix time."""
    (capture,) = find(crashed().write(tmp_path))
    found = (capture.rank, capture.device, capture.pid, capture.host, capture.clock.domain)
    assert found == (2, 0, 4242, "node", Domain.UNIX)
    assert capture.detail.notes["collection_ended"] is False


def test_every_file_of_the_folder_belongs_to_the_capture(tmp_path):
    """Records of kinds that are not read, clocks and ``.done`` files are known."""
    (capture,) = find(crashed().write(tmp_path))
    assert sorted((*capture.files, *capture.known)) == sorted(crashed().files)


def test_a_job_folder_itself_may_be_named(tmp_path):
    """The same with the folder's own path, and with the folder around it."""
    job().write(tmp_path)
    inner, outer = read(tmp_path / "JOBABCDEF"), read(tmp_path)
    assert inner.events.start_ns.tolist() == outer.events.start_ns.tolist()
    assert inner.counts() == outer.counts()


def test_two_devices_of_one_folder_are_two_captures(tmp_path):
    """Each has its own rank, clock and records."""
    tree = crashed(worker="run")
    data = f"run/{PROF}/device_1"
    for name, content in list(tree.files.items()):
        if "/device_0/" in name:
            moved = name.replace("device_0", "device_1")
            moved = moved.replace(".data.0.", ".data.1.").removesuffix(".0")
            tree.files[moved if moved.startswith(f"{data}/data") else f"{moved}.1"] = content
    del tree.files["run/profiler_info_2.json"]
    tree.add(f"{data}/info.json.1", {"rank_id": 3, "DeviceInfo": [{"hwts_frequency": 100}]})
    found = find(tree.write(tmp_path))
    assert [(c.rank, c.device) for c in found] == [(2, 0), (3, 1)]


@pytest.mark.parametrize(("reader", "name", "content"), [
    (trace_view, f"{WORKER}/ASCEND_PROFILER_OUTPUT/trace_view.json", "[]"),
    (msprof, f"{WORKER}/{PROF}/mindstudio_profiler_output/msprof_20250301080001.json", "[]"),
])  # fmt: skip
def test_raw_files_beside_an_export_are_not_read(tmp_path, reader, name, content):
    """What was exported is read; the reader of the export takes the raw files along."""
    (source,) = sources([str(crashed().add(name, content).write(tmp_path))])
    (capture,) = reader.READER.find(source, source.names(), Issues())
    left = [n for n in source.names() if n not in {*capture.files, *capture.known}]
    assert ascend_raw.READER.find(source, left, Issues()) == []


def test_raw_files_beside_display_files_are_not_read(tmp_path):
    """Old MindSpore leaves its raw folder beside the timeline it made of it."""
    tree = job().add("ascend_timeline_display_1.json", "[]")
    (source,) = sources([str(tree.write(tmp_path))])
    captures = mindspore.READER.find(source, source.names(), Issues())
    taken = {n for c in captures for n in (*c.files, *c.known)}
    left = [n for n in source.names() if n not in taken]
    assert (len(captures), ascend_raw.READER.find(source, left, Issues())) == (1, [])


def test_a_crashed_run_of_old_mindspore_is_one_capture(tmp_path):
    """Its host's records and its device's are one rank; with no clock in common both begin
    together.
    """
    spans = "tid,pid,parent_pid,module_name,event,stage,level,start_end,custom_info,"
    spans += "memory_usage(kB),time_stamp(us)\n"
    rows = "7,7,1,M,E,S,0,0,,1,1700000000000000\n7,7,1,M,E,S,0,1,,1,1700000000000009\n"
    tree = job().add("host_info/host_info_1.csv", spans + rows)
    (source,) = sources([str(tree.write(tmp_path))])
    captures = mindspore.READER.find(source, source.names(), Issues())
    left = set(source.names()) - {n for c in captures for n in (*c.files, *c.known)}
    assert (len(captures), left) == (1, set())
    build = TraceBuilder(captures[0])
    mindspore.READER.read(captures[0], build)
    trace = build.finish()
    device_rows = trace.rows_of(Layer.DEVICE)
    assert int(trace.events.start_ns[device_rows].min()) == 1_700_000_000_000_000_000
    assert codes(trace)["clock-assumed"] == 1


def test_marks_of_no_graph_are_steps_of_the_framework(tmp_path):
    """Step marks carry their number and stand on the lane of steps."""
    data = mark(60_000, device(0), NO_GRAPH, 50) + mark(60_001, device(9), NO_GRAPH, 50)
    tree = Tree().sliced(f"{PROF}/device_0/data/ts_track.data.0", data)
    trace = read(tree.write(tmp_path))
    events = trace.events
    assert (events.op.tolist(), events.graph.tolist(), events.step.tolist()) == (
        [OpClass.ITERATION], [-1], [50]
    )  # fmt: skip


def test_a_lone_folder_without_clocks_counts_from_its_first_record(tmp_path):
    """Only records: their times are kept relative, ticks are taken for the usual 10 ns, and that is
    said."""
    data = mark(0, DEVICE_TICK) + mark(1, DEVICE_TICK + 50)
    tree = Tree().sliced(f"{PROF}/device_0/data/ts_track.data.0", data)
    trace = read(tree.write(tmp_path))
    assert (trace.events.start_ns.tolist(), trace.events.dur_ns.tolist()) == ([0], [500])
    assert (trace.events.graph.tolist(), codes(trace)) == ([GRAPH], {"clock-assumed": 2})
    places = [place for issue in trace.issues for place in issue.places]
    assert places[0] == "no frequency of the device's counter: taken as 100 MHz"
    assert MONOTONIC_NS > 0


def test_files_beside_the_records_have_uses(tmp_path):
    """Markers, clocks, empty slices, and a counter nobody reads."""
    folder = f"{PROF}/device_0/data"
    tree = Tree().sliced(f"{folder}/ts_track.data.0", mark(0, DEVICE_TICK))
    tree.add(f"{folder}/hbm.data.0.slice_0", "abcd").add(f"{folder}/aicore.data.0.slice_0", "")
    tree.add(f"{PROF}/device_0/host_start.log.0", "[Host]\n")
    (source,) = sources([str(tree.write(tmp_path))])
    (capture,) = ascend_raw.READER.find(source, source.names(), Issues())
    assert {name.rpartition("/")[2]: use for name, use in capture.uses.items()} == {
        "ts_track.data.0.slice_0.done": "states that a file is complete",
        "hbm.data.0.slice_0": NOT_NEEDED,
        "aicore.data.0.slice_0": "empty",
        "host_start.log.0": "rank, device, host, clock",
    }


def test_databases_among_raw_data_are_no_export(tmp_path):
    """Those that an export was made of are raw data, too: nothing of the run is left out."""
    tree = Tree().add("ASCEND_PROFILER_OUTPUT/trace_view.json", "[]")
    tree.add(f"{PROF}/host/sqlite/runtime.db", "SQLite format 3\0")
    (source,) = sources([str(tree.write(tmp_path))])
    issues = Issues()
    (capture,) = trace_view.READER.find(source, source.names(), issues)
    uses = {name.rpartition("/")[2]: use for name, use in capture.uses.items()}
    assert uses["runtime.db"] == "raw data, as the timeline holds it"
    assert issues.count("export-unused") == 0


@pytest.mark.parametrize("inside", [False, True])
def test_tables_of_mindspore_are_of_the_raw_folder_that_they_are_beside(tmp_path, inside):
    """In it or around it: they make no capture of another rank, and are tables of this one."""
    shutil.copytree(ROOT / "golden/ascend_raw/job/input", tmp_path / "profiler")
    folder = tmp_path / "profiler" / "JOBABCDEF"
    place = folder if inside else folder.parent
    (place / "pipeline_profiling_0.json").write_text(
        '{"sampling_interval": 10, "op_info": [{"op_id": 0, "op_type": "Batch", "num_workers": 2,'
        ' "metrics": null, "children": null}]}'
    )
    for root in (folder, folder.parent) if inside else (folder.parent,):
        [capture] = traceconv.open(str(root)).found
        assert capture.reader == "ascend_raw"
        assert "minddata_pipeline" in capture.tables

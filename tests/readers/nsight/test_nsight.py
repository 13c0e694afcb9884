"""Nsight Systems exports: synthetic databases of three schema generations."""

import json
import sqlite3
from dataclasses import replace

import pytest

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Layer, OpClass
from traceconv.io.sources import sources
from traceconv.readers.nsight.reader import READER

SECRET = "hf_SecretToken_1234567890"
PIDS = (148, 149)


def _global(pid, tid=0):
    return (1 << 48) | (pid << 24) | tid


def _make(path, generation="3.25", normalized=False, environment=()):
    """Two processes, one GPU each: a kernel, a collective, a copy, calls, ranges, and noise."""
    green = ", greenContextId" if generation != "2.9" else ""
    meta = "EXPORT_META_DATA" if generation == "2.9" else "META_DATA_EXPORT"
    db = sqlite3.connect(path)
    run = db.execute
    run("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    texts = ["gemm", "ncclDevKernel_AllReduce", "cudaLaunchKernel_v7000", "MPI_Barrier", SECRET]
    db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(texts, 10))
    run(f"CREATE TABLE {meta} (name TEXT, value TEXT)")
    run(f"INSERT INTO {meta} VALUES ('EXPORT_PARAM_TIME_NORMALIZE', ?)", [str(normalized).lower()])
    run(f"INSERT INTO {meta} VALUES ('EXPORT_PARAM_INPUT_FILE', '/home/{SECRET}/x.nsys-rep')")
    run("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
    run("INSERT INTO META_DATA_CAPTURE VALUES ('COMMAND_LINE', ?)", [SECRET])
    run("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
    db.executemany("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?)", environment)
    run("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INT, utcTime, localTime)")
    run("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '', '')")
    run("CREATE TABLE PROCESSES (globalPid INT, pid INT, name TEXT)")
    run("CREATE TABLE ThreadNames (nameId INT, priority INT, globalTid INT)")
    run(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT"
        f"{green}, streamId INT, correlationId INT, globalPid INT, demangledName INT,"
        " shortName INT, gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT)"
    )
    run(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, contextId INT,"
        " streamId INT, correlationId INT, globalPid INT, bytes INT, copyKind INT)"
    )
    run(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INT, end INT, deviceId INT,"
        " contextId INT, streamId INT, correlationId INT, globalPid INT, syncType INT)"
    )
    run(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, eventClass INT,"
        " globalTid INT, correlationId INT, nameId INT, returnValue INT)"
    )
    run(
        "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT,"
        " textId INT, domainId INT)"
    )
    kernel = "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName"
    for device, pid in enumerate(PIDS):
        run(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL ({kernel}) VALUES (1000,1500,?,1,7,5,?,10)",
            [device, _global(pid)],
        )
        run(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL ({kernel}) VALUES (1400,1900,?,1,9,6,?,11)",
            [device, _global(pid)],
        )
        run(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (2000,2100,?,1,7,77,?,4096,1)",
            [device, _global(pid)],
        )
        run(
            "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (1,2,?,1,?,8,?,3)",
            [device, 0xFFFFFFFF, _global(pid)],
        )
        thread = _global(pid, pid)
        calls = [(100, 200, 0, thread, 5, 12, 0), (300, 350, 1, thread, 6, 12, 0)]
        calls.append((100, 200, 67, thread, 5, 12, 0))
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?)", calls)
        ranges = [
            (10, 400, 59, "iter_3", thread, None, 0),
            (20, 30, 59, None, thread, 13, 1),
            (500, None, 60, "open", thread, None, 0),
            (600, None, 34, "mark", thread, None, 0),
            (None, None, 75, "MPI", thread, None, 1),
        ]
        db.executemany("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?,?)", ranges)
    db.commit()
    db.close()
    return path


def _traces(path):
    [source] = sources([str(path)])
    for capture in READER.find(source, source.names(), Issues()):
        build = TraceBuilder(capture if capture.rank is not None else replace(capture, rank=0))
        READER.read(capture, build)
        yield build.finish()


def _rows(trace, layer):
    events = trace.events.take(trace.rows_of(layer))
    return [
        (trace.tracks[t].name, trace.strings[n], s, d)
        for t, n, s, d in zip(
            events.track.tolist(), events.name.tolist(), events.start_ns.tolist(),
            events.dur_ns.tolist(), strict=True,
        )
    ]  # fmt: skip


@pytest.fixture(params=["2.9", "3.13", "3.25"])
def export(tmp_path, request):
    """An export of each schema generation."""
    return _make(tmp_path / "report.sqlite", request.param)


def test_every_process_with_gpu_work_is_a_rank(export):
    """Devices order the ranks when nothing else names them."""
    traces = list(_traces(export))
    found = [(t.rank, t.capture.pid, t.capture.device, t.capture.rank_from) for t in traces]
    why = "one process per device"
    assert found == [(0, 148, 0, why), (1, 149, 1, why)]


def test_device_rows_keep_time_stream_and_class(export):
    """Kernels and copies lie on hardware streams, collectives on the lanes of NCCL."""
    trace = next(_traces(export))
    assert _rows(trace, Layer.DEVICE) == [
        ("Stream 7", "gemm", 1000, 500),
        ("Stream 7", "Memcpy Host-to-Device", 2000, 100),
    ]
    assert _rows(trace, Layer.COMM) == [("Stream 9", "ncclDevKernel_AllReduce", 1400, 500)]
    assert OpClass.COMM in trace.events.op.tolist()


def test_backtrace_copies_of_calls_are_left_out_and_counted(export):
    """A call is one slice, however often the table repeats it."""
    trace = next(_traces(export))
    calls = [row[2:] for row in _rows(trace, Layer.RUNTIME) if row[0] == "Thread 148"]
    assert calls == [(100, 100), (300, 50)]
    assert trace.issues.count("repeated-content") == 1


def test_launch_arrows_stay_within_a_process(export):
    """Equal correlation ids of two processes are not confused; a copy without a call is booked."""
    for trace in _traces(export):
        ends = zip(trace.flows.src.tolist(), trace.flows.dst.tolist(), strict=True)
        starts = sorted(
            (int(trace.events.start_ns[a]), int(trace.events.start_ns[b])) for a, b in ends
        )
        assert starts == [(100, 1000), (300, 1400)]
        assert trace.issues.count("flow-without-end") == 2


def test_nvtx_names_come_from_text_or_strings(export):
    """Domains have lanes of their own, open ranges end with the table, steps carry numbers."""
    trace = next(_traces(export))
    host = trace.rows_of(Layer.HOST)
    headings = {t.heading for t in trace.tracks if t.layer is Layer.HOST}
    assert headings == {"NVTX", "NVTX MPI"}
    assert _rows(trace, Layer.HOST) == [
        ("Thread 148", "iter_3", 10, 390),
        ("Thread 148", "open", 500, 100),
        ("Thread 148", "mark", 600, 0),
        ("Thread 148", "MPI_Barrier", 20, 10),
    ]
    assert sorted(set(trace.events.step[host].tolist())) == [-1, 3]
    assert trace.issues.count("unfinished-slice") == 1


@pytest.mark.parametrize(("normalized", "shared"), [(False, 1700000000000000000), (True, 0)])
def test_the_clock_is_tied_to_unix_time_once(tmp_path, normalized, shared):
    """Normalized stamps are Unix time already."""
    trace = next(_traces(_make(tmp_path / "r.sqlite", normalized=normalized)))
    assert trace.capture.clock.offset_ns == shared


def test_a_rank_variable_names_the_rank_of_a_lone_process(tmp_path):
    """Only then is it known whose environment it is."""
    path = _make(tmp_path / "r.sqlite", environment=[("SLURM_PROCID", "3"), ("HOME", SECRET)])
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE deviceId = 1")
        db.execute("DELETE FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE deviceId = 1")
    db.close()
    [trace] = _traces(path)
    assert (trace.rank, trace.capture.rank_from) == (3, "SLURM_PROCID")


def test_nothing_of_the_user_is_copied(export):
    """Tokens in columns that are not needed appear nowhere in the trace."""
    for trace in _traces(export):
        texts = [*trace.strings, *(trace.args.raw(i).decode() for i in range(len(trace.args)))]
        texts += [repr(trace.tracks), repr((trace.notes, trace.hints)), repr(list(trace.issues))]
        assert not [t for t in texts if SECRET in t]


def test_nothing_of_the_user_reaches_an_output(tmp_path):
    """Tokens in every text column that is not needed stand in no file we write."""
    path = _make(tmp_path / "r.sqlite", environment=[("HOME", SECRET), ("API_TOKEN", SECRET)])
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO PROCESSES VALUES (?, 148, ?)", [_global(148), SECRET])
        db.execute("CREATE TABLE ProcessStreams (globalPid INT, filenameId INT, contentId INT)")
        db.execute("INSERT INTO ProcessStreams VALUES (?, 14, 14)", [_global(148)])
        db.execute("CREATE TABLE ANALYSIS_FILE (id INT, filename TEXT, content BLOB)")
        db.execute("INSERT INTO ANALYSIS_FILE VALUES (1, ?, ?)", [SECRET, SECRET.encode()])
        db.execute("CREATE TABLE DIAGNOSTIC_EVENT (timestamp INT, text TEXT, globalPid INT)")
        db.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (1, ?, ?)", [SECRET, _global(148)])
        db.execute("UPDATE TARGET_INFO_SESSION_START_TIME SET localTime = ?", [SECRET])
    db.close()
    for name in ("out.pftrace", "out.json", "out.txt"):
        report = traceconv.merge(str(path), out=str(tmp_path / name), mode="detail", scope=True)
        assert SECRET.encode() not in (tmp_path / name).read_bytes()
        assert SECRET not in json.dumps(report.as_dict())
    assert SECRET not in json.dumps(traceconv.inspect(str(path), counts=True).as_dict())


def test_a_report_beside_its_export_is_known(tmp_path):
    """It is no file that is missing in the result; one without an export is."""
    for name in ("a.nsys-rep", "b.nsys-rep"):
        (tmp_path / name).write_bytes(b"x")
    _make(tmp_path / "a.sqlite")
    issues = traceconv.merge(tmp_path, out=tmp_path / "out.json").issues
    assert [i.file for i in issues if i.code == "unread-file"] == [str(tmp_path / "b.nsys-rep")]


def test_another_database_is_not_claimed(tmp_path):
    """SQLite alone is not enough."""
    with sqlite3.connect(tmp_path / "x.sqlite") as db:
        db.execute("CREATE TABLE t (a INT)")
    db.close()
    [source] = sources([str(tmp_path / "x.sqlite")])
    assert READER.find(source, source.names(), Issues()) == []


def test_odd_values_do_not_stop_a_report(tmp_path):
    """NULL, text and negative times are booked, the rest is read."""
    path = _make(tmp_path / "r.sqlite")
    with sqlite3.connect(path) as db:
        kernel = (
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, globalPid)"
        )
        db.execute(f"{kernel} VALUES (NULL, 5, 0, 7, ?)", [_global(148)])
        db.execute(f"{kernel} VALUES ('abc', 5, 0, 7, ?)", [_global(148)])
        db.execute(f"{kernel} VALUES (9000, 8000, 0, 7, ?)", [_global(148)])
        db.execute(f"{kernel} VALUES ('9500', '9600', 0, 7, ?)", [_global(148)])
    db.close()
    trace = next(_traces(path))
    assert (trace.issues.count("bad-time"), trace.issues.count("negative-duration")) == (2, 1)
    assert ("Stream 7", "(no name)", 9500, 100) in _rows(trace, Layer.DEVICE)


@pytest.mark.parametrize(
    ("column", "number", "shown"),
    [("uint64Value", -1, 2**64 - 1), ("int32Value", -1, -1), ("doubleValue", 1.5, 1.5)],
)
def test_a_range_shows_the_number_it_carries(tmp_path, column, number, shown):
    """``nvtxEventAttributes_t`` has one of six types; SQLite holds unsigned numbers as signed."""
    path = _make(tmp_path / "report.sqlite")
    with sqlite3.connect(path) as db:
        db.execute(f"ALTER TABLE NVTX_EVENTS ADD COLUMN {column}")
        db.execute(f"UPDATE NVTX_EVENTS SET {column} = ? WHERE text = 'mark'", [number])
    trace = next(_traces(path))
    args = {trace.strings[n]: a for n, a in zip(trace.events.name, trace.events.args, strict=True)}
    assert trace.args[args["mark"]] == {"payload": shown}

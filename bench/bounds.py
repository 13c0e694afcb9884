"""``--mem-limit`` reader by reader: the peak of a merge without a limit and under one.

A part of :mod:`bench.scale`. Inputs are generated, and converted or packed where that is what a
reader reads. The peak is that of the largest process, pages of mapped files included: what counts
where memory is short. Every input needs more than the limit.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import measure
from bench.generate import generate
from bench.generate_gpu import BASE_NS, KERNELS, groups, kineto, nsight
from bench.rows import PYTHON

LIMIT = 192 << 20
"""The least there is: what is a share of it elsewhere is most of it here."""

EVENTS = 1_500_000
"""Of every input, about; few readers take less than 130 bytes for one."""


def _trace_view(path: Path, events: int) -> Path:
    generate(path, 0, events)
    return path


def _zip(path: Path, events: int) -> Path:
    folder = _trace_view(path / "in", events)
    with zipfile.ZipFile(path / "capture.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as out:
        for file in sorted(f for f in folder.rglob("*") if f.is_file()):
            out.write(file, file.relative_to(folder))
    shutil.rmtree(folder)
    return path / "capture.zip"


def _tar(path: Path, events: int) -> Path:
    folder = _trace_view(path / "in", events)
    with tarfile.open(path / "capture.tar.gz", "w:gz", compresslevel=1) as out:
        out.add(folder, ".")
    shutil.rmtree(folder)
    return path / "capture.tar.gz"


def _converted(path: Path, events: int) -> Path:
    """By traceconv, from a trace_view.json: the Perfetto trace of one rank."""
    made = path / "trace.pftrace"
    source = _trace_view(path / "in", events)
    command = [PYTHON, "-m", "traceconv", "merge", str(source), "-q", "-m", "detail", "-o"]
    measure.run([*command, str(made)])
    shutil.rmtree(source)
    return made


def _kineto(ending: str) -> Callable[[Path, int], Path]:
    def make(path: Path, events: int) -> Path:
        packed = path / "trace.pt.trace.json.gz"
        kineto(packed, events)
        if ending == "gz":
            return packed
        import gzip

        plain = packed.with_suffix("")
        with gzip.open(packed) as source, plain.open("wb") as target:
            shutil.copyfileobj(source, target)
        packed.unlink()
        return plain

    return make


def _nsight(path: Path, events: int) -> Path:
    nsight(path / "report.sqlite", events)
    return path / "report.sqlite"


def _hub(kind: str, name: str) -> Callable[[Path, int], Path]:
    def make(path: Path, events: int) -> Path:
        words = [kind, str(path / name), "--events", str(events)]
        measure.run([PYTHON, "-m", "bench.generate_hub", *words])  # what it takes goes with it
        return path / name

    return make


def _rocprof(path: Path, events: int) -> Path:
    """A table of kernels."""
    file = path / "1_kernel_trace.csv"
    head = ("Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id")
    head = (*head, "Kernel_Name", "Correlation_Id", "Start_Timestamp", "End_Timestamp")
    with file.open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(head)
        for one in groups(events):
            start, name = BASE_NS + one.device, KERNELS[one.number % len(KERNELS)]
            place = ("KERNEL_DISPATCH", "Agent 1", 1, 1, 1, one.number, 1)
            table.writerow((*place, name, one.number, start, start + one.busy))
    return file


def _lines(path: Path, events: int) -> Path:
    """One JSON object per line, found by its keys."""
    file = path / "train.jsonl"
    with file.open("w") as out:
        for one in groups(events):
            at = (BASE_NS + one.start) / 1e9
            record = {"ts": round(at, 6), "dur": one.length / 1e9, "name": f"op{one.number % 97}",
                      "rank": 0}  # fmt: skip
            out.write(json.dumps(record) + "\n")
    return file


def _ascend_db(path: Path, events: int) -> Path:
    """Tasks of one device and the calls that launched them."""
    file = path / "worker0_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "ascend_pytorch_profiler_0.db"
    file.parent.mkdir(parents=True)
    database = sqlite3.connect(file)
    for name, columns in ASCEND.items():
        database.execute(f"CREATE TABLE {name} ({columns})")
    names = [*KERNELS, "AI_CORE", "aclnnMatmul", "launch"]
    database.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", enumerate(names))
    core, call, kind = len(KERNELS), len(KERNELS) + 1, len(KERNELS) + 2
    database.execute("INSERT INTO SESSION_TIME_INFO VALUES (?, ?)", (BASE_NS, BASE_NS + 10**12))
    database.execute("INSERT INTO RANK_DEVICE_MAP VALUES (0, 0)")

    def rows(table: str) -> Iterator[tuple[int, ...]]:
        for one in groups(events // 2):
            n, start, device = one.number, BASE_NS + one.start, BASE_NS + one.device
            if table == "TASK":
                yield device, device + one.busy, 0, n, n, 7, core, 0, 2, n, 0xFFFFFFFF
            elif table == "COMPUTE_TASK_INFO":
                yield n % len(KERNELS), n, 24, 0, core, core
            else:
                yield start, start + one.length, 20000, 7, n, call + kind * 0

    for table in ("TASK", "COMPUTE_TASK_INFO", "CANN_API"):
        marks = ",".join("?" * (ASCEND[table].count(",") + 1))
        database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows(table))
    database.commit()
    database.close()
    return file.parents[1]


ASCEND = {
    "STRING_IDS": "id INTEGER PRIMARY KEY, value TEXT",
    "SESSION_TIME_INFO": "startTimeNs INTEGER, endTimeNs INTEGER",
    "RANK_DEVICE_MAP": "rankId INTEGER, deviceId INTEGER",
    "TASK": "startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, "
    "globalTaskId INTEGER, globalPid INTEGER, taskType INTEGER, contextId INTEGER, "
    "streamId INTEGER, taskId INTEGER, modelId INTEGER",
    "COMPUTE_TASK_INFO": "name INTEGER, globalTaskId INTEGER, blockDim INTEGER, "
    "mixBlockDim INTEGER, taskType INTEGER, opType INTEGER",
    "CANN_API": "startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, "
    "connectionId INTEGER, name INTEGER",
}
"""Tables of the profiler's database, as far as they hold tasks and calls."""

INPUTS: dict[str, Callable[[Path, int], Path]] = {
    "trace_view.json": _trace_view,
    "trace_view in .zip": _zip,
    "trace_view in .tar.gz": _tar,
    "Kineto JSON": _kineto("json"),
    "Kineto .json.gz": _kineto("gz"),
    "Nsight SQLite": _nsight,
    "Ascend database": _ascend_db,
    "ROCm rocpd database": _hub("rocpd", "results.db"),
    "ROCm kernel table": _rocprof,
    "XLA .xplane.pb": _hub("xplane", "host.xplane.pb"),
    "Perfetto trace": _converted,
    "event log (lines)": _lines,
}
"""How an input of about so many events is made in a folder."""


def table(folder: Path, scale: float, only: str = "") -> None:
    """Print a row per input: its size, the peak with and without a limit, the peak over it."""
    print(f"\n{'input':<24}{'MB':>6}{'no limit, MB':>14}{'192M, MB':>10}{'of limit':>10}{'CPU':>7}")
    for name, make in INPUTS.items():
        if only not in name:
            continue
        place = folder / "bounds"
        place.mkdir()
        source = _apart(make, place, round(EVENTS * scale))
        files = [source] if source.is_file() else [f for f in source.rglob("*") if f.is_file()]
        size = sum(f.stat().st_size for f in files) / 1e6
        free, bound = _merged(source, place), _merged(source, place, "--mem-limit", str(LIMIT))
        row = f"{name:<24}{size:>6.0f}{free.rss / 1e6:>14.0f}{bound.rss / 1e6:>10.0f}"
        print(f"{row}{bound.rss / LIMIT:>10.2f}{bound.cpu / free.cpu:>6.1f}x", flush=True)
        shutil.rmtree(place)


def _apart(make: Callable[[Path, int], Path], place: Path, events: int) -> Path:
    """Make an input in a child: a process is charged with what the one that starts it holds."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(tell, bytes(make(place, events)))
            code = 0
        finally:
            os._exit(code)
    os.close(tell)
    with os.fdopen(told, "rb") as reader:
        made = reader.read()
    if os.waitpid(child, 0)[1]:
        raise measure.CommandFailed(f"an input of {events} events could not be made")
    return Path(os.fsdecode(made))


def _merged(source: Path, place: Path, *options: str) -> measure.Taken:
    how = ("-q", "-f", "-m", "detail", "-j", "1", "-o", str(place / "out.pftrace"), *options)
    return measure.run([PYTHON, "-m", "traceconv", "merge", str(source), *how])

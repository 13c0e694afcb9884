"""Small Nsight Systems exports, a table at a time, and what is read from them."""

import sqlite3
import struct
from dataclasses import replace

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.io.sources import sources
from traceconv.readers.nsight.reader import READER

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX = "NVTX_EVENTS"
COLUMNS = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INT",
    KERNEL: "start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT,"
    " demangledName INT",
    RUNTIME: "start INT, end INT, eventClass INT, globalTid INT, correlationId INT, nameId INT",
    NVTX: "start INT, end INT, eventType INT, text TEXT, globalTid INT, textId INT, domainId INT,"
    " jsonText TEXT, binaryData TEXT",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId INT, schemaId INT, idx INT, type INT, name TEXT,"
    " offset INT",
    "GPU_METRICS": "timestamp INT, typeId INT, metricId INT, value INT",
    "TARGET_INFO_GPU_METRICS": "typeId INT, metricId INT, metricName TEXT",
    "TARGET_INFO_GPU": "id INT, cuDevice INT, totalMemory INT",
    "MPI_RANKS": "globalTid INT, rank INT",
    "MPI_COMMUNICATORS": "rank INT, timestamp INT, commHandle INT, localRank INT, size INT",
    "MPI_P2P_EVENTS": "start INT, end INT, globalTid INT, textId INT, size INT, remoteRank INT",
    "MPI_OTHER_EVENTS": "start INT, end INT, globalTid INT, textId INT",
    "DIAGNOSTIC_EVENT": "severity INT, text TEXT",
    "PROCESSES": "pid INT, name TEXT",
    "SCHED_EVENTS": "start INT, cpu INT, isSchedIn INT, globalTid INT",
    "CUBLAS_EVENTS": "start INT, end INT, eventClass INT, globalTid INT, nameId INT",
}
GEMM, NCCL, LAUNCH, BARRIER = 10, 11, 12, 13
_STRINGS = {GEMM: "gemm", NCCL: "ncclDevKernel_AllReduce", LAUNCH: "launch", BARRIER: "MPI_Barrier"}

SCHEMA = 1 << 24
INIT, MESSAGE = SCHEMA + 2, SCHEMA + 7
ENTRIES = [
    (1, INIT, 0, 18, "NCCL communicator ID", None),
    (1, INIT, 1, 5, "No. of ranks", 8),
    (1, INIT, 2, 5, "Rank", 12),
    (1, MESSAGE, 0, 18, "NCCL communicator ID", None),
    (1, MESSAGE, 1, 22, "Message size [bytes]", 8),
    (1, MESSAGE, 2, SCHEMA + 16, "Reduction operation", 16),
]


def global_id(pid, tid=0):
    """A serialized process or thread id."""
    return (1 << 48) | (pid << 24) | tid


def kernel(start, end, correlation=-1, name=GEMM, pid=1, device=0, stream=7):
    return (start, end, device, stream, correlation, global_id(pid), name)


def call(start, correlation, pid=1, tid=1):
    return (start, start + 5, 0, global_id(pid, tid), correlation, LAUNCH)


def range_(start, end, text, pid=1, tid=1, domain=0, blob=None, json=None):
    return (start, end, 59, text, global_id(pid, tid), None, domain, json, blob)


def payload(schema, *values, domain=1, form="<QQi4x"):
    """A payload with its head."""
    body = struct.pack(form, *values)
    return struct.pack("<IIIIQQ", domain, 0, schema, 0, len(body), 32 + len(body)) + body


def write(path, **tables):
    """An export with rows in some tables; those that name nothing are left out."""
    rows = {
        "StringIds": list(_STRINGS.items()),
        "TARGET_INFO_SESSION_START_TIME": [(1700000000000000000,)],
        **tables,
    }
    db = sqlite3.connect(path)
    for table, some in rows.items():
        db.execute(f"CREATE TABLE {table} ({COLUMNS[table]})")
        marks = ",".join("?" * (COLUMNS[table].count(",") + 1))
        db.executemany(f"INSERT INTO {table} VALUES ({marks})", some)
    db.commit()
    db.close()
    return path


def captures(path):
    """What is found."""
    [source] = sources([str(path)])
    return READER.find(source, source.names(), Issues())


def traces(path):
    """What is read, a trace per process; ranks nobody names count from 0."""
    found = []
    for i, capture in enumerate(captures(path)):
        build = TraceBuilder(capture if capture.rank is not None else replace(capture, rank=i))
        READER.read(capture, build)
        found.append(build.finish())
    return found


def rows(trace, layer):
    """(lane, name, start, duration, arguments) of the events of a layer."""
    events = trace.events.take(trace.rows_of(layer))
    columns = (events.track, events.name, events.start_ns, events.dur_ns, events.args)
    return [
        (trace.tracks[t], trace.strings[n], s, d, trace.args[a])
        for t, n, s, d, a in zip(*(column.tolist() for column in columns), strict=True)
    ]

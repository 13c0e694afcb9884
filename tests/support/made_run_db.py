"""A made run as the Ascend PyTorch profiler exports it as a database."""

import json
import sqlite3
from contextlib import closing

from made_run import FOLDER, NONE, NOW, OUTPUT, PID

SCHEMA = """
CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE SESSION_TIME_INFO (startTimeNs INTEGER, endTimeNs INTEGER);
CREATE TABLE RANK_DEVICE_MAP (rankId INTEGER, deviceId INTEGER);
CREATE TABLE ENUM_API_TYPE (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE ENUM_HCCL_DATA_TYPE (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE ENUM_HCCL_LINK_TYPE (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE ENUM_HCCL_TRANSPORT_TYPE (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE ENUM_MODULE (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER,
    globalTaskId INTEGER, globalPid INTEGER, taskType INTEGER, contextId INTEGER,
    streamId INTEGER, taskId INTEGER, modelId INTEGER);
CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockDim INTEGER,
    mixBlockDim INTEGER, taskType INTEGER, opType INTEGER, inputFormats INTEGER,
    inputDataTypes INTEGER, inputShapes INTEGER, outputFormats INTEGER, outputDataTypes INTEGER,
    outputShapes INTEGER);
CREATE TABLE TASK_PMU_INFO (globalTaskId INTEGER, name INTEGER, value NUMERIC);
CREATE TABLE MEMCPY_INFO (globalTaskId NUMERIC, size NUMERIC, memcpyOperation NUMERIC);
CREATE TABLE COMMUNICATION_OP (opName INTEGER, startNs INTEGER, endNs INTEGER,
    connectionId INTEGER, groupName INTEGER, opId INTEGER PRIMARY KEY, relay INTEGER,
    retry INTEGER, dataType INTEGER, algType INTEGER, count NUMERIC, opType INTEGER);
CREATE TABLE COMMUNICATION_TASK_INFO (name INTEGER, globalTaskId INTEGER, taskType INTEGER,
    planeId INTEGER, groupName INTEGER, notifyId INTEGER, rdmaType INTEGER, srcRank INTEGER,
    dstRank INTEGER, transportType INTEGER, size INTEGER, dataType INTEGER, linkType INTEGER,
    opId INTEGER);
CREATE TABLE CANN_API (startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER,
    connectionId INTEGER PRIMARY KEY, name INTEGER);
CREATE TABLE PYTORCH_API (startNs TEXT, endNs TEXT, globalTid INTEGER, connectionId INTEGER,
    name INTEGER, sequenceNumber INTEGER, fwdThreadId INTEGER, inputDtypes INTEGER,
    inputShapes INTEGER, callchainId INTEGER, type INTEGER);
CREATE TABLE CONNECTION_IDS (id INTEGER, connectionId INTEGER);
CREATE TABLE PYTORCH_CALLCHAINS (id INTEGER, stack INTEGER, stackDepth INTEGER);
CREATE TABLE STEP_TIME (id INTEGER, startNs INTEGER, endNs INTEGER);
CREATE TABLE GC_RECORD (startNs INTEGER, endNs INTEGER, globalTid INTEGER);
CREATE TABLE AICORE_FREQ (deviceId INTEGER, timestampNs NUMERIC, freq INTEGER);
CREATE TABLE NPU_MEM (type INTEGER, ddr NUMERIC, hbm NUMERIC, timestampNs INTEGER,
    deviceId INTEGER);
CREATE TABLE HBM (deviceId INTEGER, timestampNs INTEGER, bandwidth NUMERIC, hbmId INTEGER,
    type INTEGER);
CREATE TABLE LLC (deviceId INTEGER, llcId INTEGER, timestampNs INTEGER, hitRate REAL,
    throughput INTEGER, mode INTEGER);
CREATE TABLE ACC_PMU (accId INTEGER, readBwLevel INTEGER, writeBwLevel INTEGER,
    readOstLevel INTEGER, writeOstLevel INTEGER, timestampNs NUMERIC, deviceId INTEGER);
CREATE TABLE SOC_BANDWIDTH_LEVEL (l2BufferBwLevel INTEGER, mataBwLevel INTEGER,
    timestampNs NUMERIC, deviceId INTEGER);
CREATE TABLE NPU_MODULE_MEM (moduleId INTEGER, timestampNs INTEGER, totalReserved NUMERIC,
    deviceId INTEGER);
CREATE TABLE MEMORY_RECORD (component INTEGER, timestamp INTEGER, totalAllocated INTEGER,
    totalReserved INTEGER, totalActive INTEGER, streamPtr INTEGER, deviceId INTEGER);
"""
ENUMS = {
    "ENUM_API_TYPE": {
        5000: "runtime", 5500: "communication", 10000: "node", 15000: "model", 20000: "acl",
        50001: "op", 50002: "queue", 50003: "trace", 50004: "mstx",
    },
    "ENUM_HCCL_DATA_TYPE": {4: "FP32", 65535: "INVALID_TYPE"},
    "ENUM_HCCL_LINK_TYPE": {0: "ON_CHIP", 1: "HCCS", 65535: "INVALID_TYPE"},
    "ENUM_HCCL_TRANSPORT_TYPE": {0: "SDMA", 2: "LOCAL"},
    "ENUM_MODULE": {3: "HCCL", 7: "RUNTIME"},
}  # fmt: skip
_KINDS = {"cpu_op": 50001, "enqueue": 50002, "dequeue": 50002, "python_function": 50003}
_FRAMEWORK = 1 << 28
"""Ids of the framework's own strings begin here, so that they clash with none of CANN's."""


class Tables:
    """Rows of a database, by table; strings are numbered as they come."""

    def __init__(self):
        self.rows = {}
        self._ids = {}

    def string(self, text, first=0):
        """The id of a string."""
        return self._ids.setdefault(text, first + len(self._ids))

    def add(self, table, **row):
        """One row, by column."""
        self.rows.setdefault(table, []).append(row)

    def write(self, connection):
        """All rows, strings last."""
        for enum, names in ENUMS.items():
            connection.executemany(f"INSERT INTO {enum} VALUES (?, ?)", names.items())
        for table, rows in self.rows.items():
            marks = ", ".join("?" * len(rows[0]))
            statement = f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES ({marks})"
            connection.executemany(statement, [tuple(row.values()) for row in rows])
        strings = [(number, text) for text, number in self._ids.items()]
        connection.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", strings)


def tables(run):
    """The rows of a run."""
    made = Tables()
    made.add("SESSION_TIME_INFO", startTimeNs=NOW, endTimeNs=NOW + 30_000)
    made.add("RANK_DEVICE_MAP", rankId=0, deviceId=0)
    _tasks(made, run)
    _host(made, run)
    for number, start, end in run.steps:
        made.add("STEP_TIME", id=number, startNs=NOW + start, endNs=NOW + end)
    _counters(made, run)
    return made


def _number(enum, name):
    return next(number for number, text in ENUMS[enum].items() if text == name)


def _tasks(made, run):
    numbers = iter(range(1, 1 << 16))

    def task(one, kind, start, dur, context=NONE):
        number = next(numbers)
        made.add(
            "TASK", startNs=NOW + start, endNs=NOW + start + dur, deviceId=0,
            connectionId=one.connection, globalTaskId=number, globalPid=PID,
            taskType=made.string(kind), contextId=context, streamId=one.stream, taskId=one.task,
            modelId=NONE,
        )  # fmt: skip
        return number

    for one in run.kernels:
        if one.within:
            task(one, one.host_type, one.start - one.within, one.dur + 2 * one.within)
        kind = one.engine if one.within else one.host_type
        number = task(one, kind, one.start, one.dur, 0 if one.within else NONE)
        _kernel(made, one, number)
    for one in run.tasks:
        number = task(one, one.host_type, one.start, one.dur)
        if one.copied:
            made.add("MEMCPY_INFO", globalTaskId=number, size=one.copied, memcpyOperation=1)
    for index, one in enumerate(run.collectives):
        task(one, "AI_CORE", one.start - 5, one.dur + 10)
        made.add(
            "COMMUNICATION_OP", opName=made.string(one.name), startNs=NOW + one.start,
            endNs=NOW + one.start + one.dur, connectionId=one.connection,
            groupName=made.string(one.group), opId=index, relay=0, retry=0, dataType=4,
            algType=made.string("MESH-RING"), count=one.count,
            opType=made.string(one.name.partition("__")[0] + "_"),
        )  # fmt: skip
        for context, part in enumerate(one.parts):
            number = task(one, part.host_type, part.start, part.dur, context)
            made.add(
                "COMMUNICATION_TASK_INFO", name=made.string(one.name), globalTaskId=number,
                taskType=made.string(part.name), planeId=part.plane,
                groupName=made.string(one.group), notifyId=0, rdmaType=65535,
                srcRank=part.peers[0], dstRank=part.peers[1], transportType=0, size=part.size,
                dataType=4, linkType=_number("ENUM_HCCL_LINK_TYPE", part.link), opId=index,
            )  # fmt: skip


def _kernel(made, one, number):
    made.add(
        "COMPUTE_TASK_INFO", name=made.string(one.name), globalTaskId=number, blockDim=24,
        mixBlockDim=0, taskType=made.string(one.engine), opType=made.string(one.op_type),
        inputFormats=made.string("ND"), inputDataTypes=made.string("FLOAT"),
        inputShapes=made.string(one.shapes[0]), outputFormats=made.string("ND"),
        outputDataTypes=made.string("FLOAT"), outputShapes=made.string(one.shapes[1]),
    )  # fmt: skip
    for name, value in one.counters:
        made.add("TASK_PMU_INFO", globalTaskId=number, name=made.string(name), value=value)


def _host(made, run):
    for one in run.calls:
        made.add(
            "CANN_API", startNs=NOW + one.start, endNs=NOW + one.start + one.dur,
            type=_number("ENUM_API_TYPE", one.level), globalTid=(PID << 32) + one.thread,
            connectionId=one.connection, name=made.string(one.name),
        )  # fmt: skip
    named = {task.connection for task in (*run.kernels, *run.collectives)}  # of copies none is
    sets, chains = {}, {}
    for one in run.operators:
        connections = (one.queued,) if one.queued else tuple(c for c in one.launched if c in named)
        known = sets.setdefault(connections, len(sets)) if connections else None
        chain = chains.setdefault(one.stack, len(chains)) if one.stack else None
        plain = one.kind == "cpu_op"
        made.add(
            "PYTORCH_API", startNs=str(NOW + one.start), endNs=str(NOW + one.start + one.dur),
            globalTid=(PID << 32) + one.thread, connectionId=known,
            name=made.string(one.name, _FRAMEWORK),
            sequenceNumber=one.sequence if plain else None,
            fwdThreadId=one.forward_thread if plain else None,
            inputDtypes=made.string(one.types, _FRAMEWORK) if one.types else None,
            inputShapes=made.string(one.shapes, _FRAMEWORK) if one.shapes else None,
            callchainId=chain, type=_KINDS[one.kind],
        )  # fmt: skip
    for connections, number in sets.items():
        for connection in connections:
            made.add("CONNECTION_IDS", id=number, connectionId=connection)
    for stack, number in chains.items():
        for depth, frame in enumerate(stack):
            made.add("PYTORCH_CALLCHAINS", id=number, stack=made.string(frame), stackDepth=depth)
    for start, dur in run.garbage:
        made.add("GC_RECORD", startNs=NOW + start, endNs=NOW + start + dur,
                 globalTid=(PID << 32) + PID)  # fmt: skip


def _counters(made, run):
    rows = {}
    for one in run.samples:
        group, *which = one.series
        table, ids, column = _TABLES[group](made, *which)
        time = "timestamp" if table == "MEMORY_RECORD" else "timestampNs"
        key = (table, one.at, tuple(ids.items()))
        row = rows.setdefault(key, {**ids, time: NOW + one.at, "deviceId": 0})
        row[column] = one.value
    for (table, _, _), row in rows.items():
        made.add(table, **_whole(table, row))


def _whole(table, row):
    """The row with every column of totals, absent ones as NULL."""
    totals = _TOTALS.values() if table == "MEMORY_RECORD" else ()
    return {**row, **{column: row.get(column) for column in totals}}


_TOTALS = {
    "Total Allocated": "totalAllocated", "Total Reserved": "totalReserved",
    "Total Active": "totalActive",
}  # fmt: skip
_TABLES = {
    "AI Core Freq": lambda made: ("AICORE_FREQ", {}, "freq"),
    "NPU MEM": lambda made, owner, kind: ("NPU_MEM", {"type": made.string(owner)}, kind),
    "HBM": lambda made, number, way: (
        "HBM", {"hbmId": number, "type": made.string(way)}, "bandwidth"),
    "LLC": lambda made, number, mode, what: (
        "LLC", {"llcId": number, "mode": made.string(mode)}, what),
    "Acc PMU": lambda made, number, way: ("ACC_PMU", {"accId": number}, way),
    "Stars Soc Info": lambda made, what: (
        "SOC_BANDWIDTH_LEVEL", {},
        {"L2 Buffer": "l2BufferBwLevel", "Mata": "mataBwLevel"}[what]),
    "Memory": lambda made, component, total: (
        "MEMORY_RECORD", {"component": made.string(component)}, _TOTALS[total]),
    "NPU Module Mem": lambda made, module: (
        "NPU_MODULE_MEM", {"moduleId": _number("ENUM_MODULE", module)}, "totalReserved"),
}  # fmt: skip


def write_database(run, root):
    """The folder of the export as a database below ``root``; its path."""
    folder = root / FOLDER
    output = folder / OUTPUT
    output.mkdir(parents=True)
    info = {"config": {"experimental_config": {"_profiler_level": "Level1"}}, "rank_id": 0}
    (folder / "profiler_info_0.json").write_text(json.dumps(info))
    with closing(sqlite3.connect(output / "ascend_pytorch_profiler_0.db")) as connection:
        connection.executescript(SCHEMA)
        tables(run).write(connection)
        connection.commit()
    return folder

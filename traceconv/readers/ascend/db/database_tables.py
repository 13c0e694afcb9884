"""Reading one database of an Ascend capture, table by table; and its counters.

Counters: which columns of which tables are series, under the names and units of the JSON export.
Databases hold bytes and bytes per second, the JSON KB, MB and MB/s (of 1024). Two things the JSON
gets wrong are right here: a hit rate is in per cent (there a share of 1 is called "%"), and DDR
traffic is in MB/s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import MalformedInputError
from traceconv.core.model import Capture, Layer, OpClass, TrackKind
from traceconv.core.ordering import factored_rows
from traceconv.readers.ascend.common.capture_files import Detail, Part
from traceconv.readers.ascend.common.identity import describe
from traceconv.readers.ascend.db import host
from traceconv.readers.ascend.db.device import Communication, tasks
from traceconv.readers.ascend.db.export import KB, MB, TIMES, Export
from traceconv.readers.ascend.db.host import arrows, operators
from traceconv.readers.shared.arguments import shared, text, tracks
from traceconv.readers.shared.ascend_lanes import MEMORY_KINDS, OVERLAP_LANES, step_lane
from traceconv.readers.shared.sqlite.database import Database, opened

Spell = Callable[[int, Mapping[int, str]], str]
"""What the number in a column adds to the name of a series, given the strings."""


def plain(value: int, strings: Mapping[int, str]) -> str:
    """The number itself."""
    return str(value)


def named(value: int, strings: Mapping[int, str]) -> str:
    """Its string."""
    return strings.get(value, str(value))


def title(value: int, strings: Mapping[int, str]) -> str:
    """The same with a capital: "Read"."""
    return named(value, strings).capitalize()


def upper(value: int, strings: Mapping[int, str]) -> str:
    """The same as "APP" and "Device" are spelled."""
    name = named(value, strings)
    return name.upper() if name == "app" else name.capitalize()


def dies(value: int, strings: Mapping[int, str]) -> str:
    """A die, where there are several; else ""."""
    return f" die {value}" if value >= 0 else ""


@dataclass(frozen=True)
class Series:
    """One series: its column, its name (with the places of :attr:`Gauge.ids`), unit, factor."""

    column: str
    name: str
    unit: str = ""
    factor: float = 1.0


@dataclass(frozen=True)
class Gauge:
    """A table of samples.

    Attributes:
        group:  the group of its tracks: the process of the JSON.
        ids:    columns that distinguish series, and how they are spelled.
        time:   the column of time, ns; names separated by "|" are one renamed column.
        enum:   the table the ids are spelled from instead of the strings.
        unless: its rows repeat those of this table, if that has any.
    """

    table: str
    group: str
    series: tuple[Series, ...]
    ids: tuple[tuple[str, Spell], ...] = ()
    time: str = "timestampNs"
    enum: str = ""
    unless: str = ""


def _network(table: str, group: str) -> Gauge:
    series = []
    for way, name in (("rx", "Rx"), ("tx", "Tx")):
        port = f"Port {{0}}/{name} {name}"
        series += [
            Series(f"{way}PacketRate", f"{port} Packets"),
            Series(f"{way}ByteRate", f"{port} Bytes", "MB/s", MB),
            Series(f"{way}Errors", f"{port} Errors"),
            Series(f"{way}Dropped", f"{port} Dropped"),
        ]
    return Gauge(table, group, tuple(series), (("funcId", plain),))


def _device_network() -> Gauge:
    counts = (
        "macTxPfcPkt", "macRxPfcPkt", "macTxByte", "macRxByte", "macTxBadByte", "macRxBadByte",
        "roceTxPkt", "roceRxPkt", "roceTxErrPkt", "roceRxErrPkt", "roceTxCnpPkt", "roceRxCnpPkt",
        "roceNewPktRty", "nicTxByte", "nicRxByte",
    )  # fmt: skip
    rates = ("macTxBandwidth", "macRxBandwidth", "nicTxBandwidth", "nicRxBandwidth")
    series = [*(Series(c, c) for c in counts), *(Series(c, c, "MB/s", MB) for c in rates)]
    return Gauge("NETDEV_STATS", "Network Device", tuple(series))


def _totals(prefix: str, *columns: str) -> tuple[Series, ...]:
    names = ("Total Allocated", "Total Reserved", "Total Active")
    return tuple(Series(c, f"{prefix}/{n}", "MB", MB) for c, n in zip(columns, names, strict=False))


GAUGES = (
    Gauge(
        "AICORE_FREQ",
        "AI Core Freq",
        (Series("freq", "AI Core Freq{0}", "MHz"),),
        (("dieId", dies),),
    ),
    Gauge(
        "NPU_MEM",
        "NPU MEM",
        (Series("ddr", "{0}/DDR", "KB", KB), Series("hbm", "{0}/HBM", "KB", KB)),
        (("type", upper),),
    ),
    Gauge(
        "HBM",
        "HBM",
        (Series("bandwidth", "HBM {0}/{1}", "MB/s", MB),),
        (("hbmId", plain), ("type", title)),
    ),
    Gauge(
        "DDR",
        "DDR",
        (Series("read", "DDR/Read", "MB/s", MB), Series("write", "DDR/Write", "MB/s", MB)),
    ),
    Gauge(
        "LLC",
        "LLC",
        (
            Series("hitRate", "LLC {0} {1}/Hit Rate", "%"),
            Series("throughput", "LLC {0} {1}/Throughput", "MB/s", MB),
        ),
        (("llcId", plain), ("mode", title)),
    ),
    Gauge(
        "HCCS",
        "HCCS",
        (Series("rxThroughput", "Rx", "MB/s", MB), Series("txThroughput", "Tx", "MB/s", MB)),
    ),
    Gauge(
        "PCIE",
        "PCIe",
        (
            Series("txCplAvg", "PCIe_cpl Tx", "", MB),
            Series("rxCplAvg", "PCIe_cpl Rx", "", MB),
            Series("txNonpostAvg", "PCIe_nonpost Tx", "", MB),
            Series("rxNonpostAvg", "PCIe_nonpost Rx", "", MB),
            Series("txNonpostLatencyAvg", "PCIe_nonpost_latency Tx", "", 1 / 1000),
            Series("txPostAvg", "PCIe_post Tx", "", MB),
            Series("rxPostAvg", "PCIe_post Rx", "", MB),
        ),
    ),
    _network("NIC", "NIC"),
    _network("ROCE", "RoCE"),
    _device_network(),
    Gauge(
        "ACC_PMU",
        "Acc PMU",
        (
            Series("readBwLevel", "read_bandwidth acc_id {0}"),
            Series("readOstLevel", "read_ost acc_id {0}"),
            Series("writeBwLevel", "write_bandwidth acc_id {0}"),
            Series("writeOstLevel", "write_ost acc_id {0}"),
        ),
        (("accId", plain),),
    ),
    Gauge(
        "SOC_BANDWIDTH_LEVEL",
        "Stars Soc Info",
        (
            Series("l2BufferBwLevel", "L2 Buffer Bw Level"),
            Series("mataBwLevel", "Mata Bw Level"),
        ),
    ),
    Gauge(
        "SIO",
        "SIO",
        tuple(
            Series(f"{way}{kind}", f"{kind.lower()}_{way} {{0}}", "", MB)
            for way in ("rx", "tx")
            for kind in ("Req", "Rsp", "Snp", "Dat")
        ),
        (("name", named),),
    ),
    Gauge(
        "QOS",
        "QoS",
        (Series("bandwidth", "{0}{1}", "", MB),),
        (("eventName", named), ("dieId", dies)),
    ),
    Gauge(
        "UB",
        "Ub",
        (
            Series("rxUdmaBind", "UB Port{0:0>3} bandwidth_rx", "MB/s"),
            Series("txUdmaBind", "UB Port{0:0>3} bandwidth_tx", "MB/s"),
        ),
        (("portId", plain),),
    ),
    Gauge(
        "SAMPLE_PMU_TIMELINE",
        "AI Core Utilization",
        (
            Series("usage", "{0} {1} Usage", "%"),
            Series("freq", "{0} {1} Freq", "MHz"),
            Series("totalCycle", "{0} {1} Cycles"),
        ),
        (("coreType", named), ("coreId", plain)),
    ),
    Gauge("CPU_USAGE", "CPU Usage", (Series("usage", "CPU {0} Usage", "%"),), (("cpuId", plain),)),
    Gauge("HOST_MEM_USAGE", "Memory Usage", (Series("usage", "Memory Usage", "%"),)),
    Gauge(
        "HOST_DISK_USAGE",
        "Disk Usage",
        (
            Series("usage", "Disk Usage", "%"),
            Series("readRate", "Disk Read", "KB/s", KB),
            Series("writeRate", "Disk Write", "KB/s", KB),
        ),
    ),
    Gauge(
        "HOST_NETWORK_USAGE",
        "Network Usage",
        (Series("usage", "Network Usage", "%"), Series("speed", "Network Speed", "KB/s", KB)),
    ),
    Gauge(
        "NPU_MODULE_MEM",
        "NPU Module Mem",
        (Series("totalReserved", "{0}", "MB", MB),),
        (("moduleId", named),),
        enum="ENUM_MODULE",
    ),
    Gauge(
        "MEMORY_RECORD",
        "Memory",
        _totals("{0}", "totalAllocated", "totalReserved", "totalActive"),
        (("component", named),),
        time="timestamp|timestampNs",
    ),
    Gauge(
        "NPU_OP_MEM",
        "Memory",
        _totals("{0}", "totalAllocate", "totalReserve"),
        (("component", named),),
        unless="MEMORY_RECORD",
    ),
    Gauge(
        "OP_MEMORY",
        "Memory",
        _totals(
            "PTA", "allocationTotalAllocated", "allocationTotalReserved", "allocationTotalActive"
        ),
        time="allocationTime",
        unless="MEMORY_RECORD",
    ),
    Gauge(
        "OP_MEMORY",
        "Memory",
        _totals("PTA", "releaseTotalAllocated", "releaseTotalReserved", "releaseTotalActive"),
        time="releaseTime",
        unless="MEMORY_RECORD",
    ),
)
"""Every table of counters. Of PCIE the averages are taken, as the JSON has them."""


# -- lanes of their own ---------------------------------------------------------------------------

_INT32_MAX = 2**31 - 1

_UNITS = (
    ("CCU", "CCU", {"deviceId": -1, "name": -1}),
    ("DPU_TASK", "DPU", {"dpuDeviceId": -1, "opName": -1}),
)
"""Table, title of its lane, its columns of device and name."""


def steps(export: Export) -> None:
    """The steps of the framework, called as in its own marks."""
    wanted = {**TIMES, "id": -1}
    rows, dur = export.timed(export.database.columns("STEP_TIME", wanted), "STEP_TIME")
    if not len(dur):
        return
    step = np.where((rows["id"] >= 0) & (rows["id"] <= _INT32_MAX), rows["id"], -1)
    values, codes = np.unique(step, return_inverse=True)
    names = [f"ProfilerStep#{s}" if s >= 0 else "ProfilerStep" for s in values.tolist()]
    export.build.extend(
        track=export.build.add_track(step_lane(-1).track),
        start_ns=rows["startNs"],
        dur_ns=dur,
        name=np.array([export.build.string(n) for n in names], np.int32)[codes],
        op=OpClass.ITERATION,
        step=step.astype(np.int32),
    )


def overlap(export: Export) -> None:
    """The overlap analysis that newer exporters, and viewers, leave in the database."""
    table = "OVERLAP_ANALYSIS"
    rows = export.database.columns(table, {**TIMES, "deviceId": -1, "type": -1})
    lanes = list(OVERLAP_LANES.items())
    known = (rows["type"] >= 0) & (rows["type"] < len(lanes))
    export.build.skip("kind-not-read", f"table {table}", int((~known).sum()))
    rows, dur = export.timed({name: column[known] for name, column in rows.items()}, table)

    def lane(device: int, kind: int) -> int:
        name, (sort, _) = lanes[kind]
        return export.device_track(Layer.OVERLAP, name, device, "Overlap Analysis", sort=sort)

    names = np.array([export.build.string(name) for name, _ in lanes], np.int32)
    classes = np.array([op for _, (_, op) in lanes], np.int8)
    export.build.extend(
        track=tracks((rows["deviceId"], rows["type"]), lane),
        start_ns=rows["startNs"],
        dur_ns=dur,
        name=names[rows["type"]],
        op=classes[rows["type"]],
    )


def units(export: Export) -> None:
    """What units beside the streams did."""
    for table, title, columns in _UNITS:
        wanted = {**TIMES, **columns, "args": -1}
        rows, dur = export.timed(export.database.columns(table, wanted), table)
        device, name = (rows[column] for column in columns)

        def lane(number: int, title: str = title) -> int:
            return export.device_track(Layer.DEVICE, title, number, title)

        export.build.extend(
            track=tracks((device,), lane),
            start_ns=rows["startNs"],
            dur_ns=dur,
            name=export.names(name, table),
            args=shared(export.build, {"args": (rows["args"], text(export.strings))}),
        )


# -- counters ---------------------------------------------------------------------------------


def counters(export: Export) -> None:
    """Read all counter tables. A NULL is no sample; a sample without a time is booked."""
    for gauge in GAUGES:
        columns = export.database.tables.get(gauge.table, ())
        series = [s for s in gauge.series if s.column in columns]
        if series:
            _read_series(export, gauge, series)


def _read_series(export: Export, gauge: Gauge, series: list[Series]) -> None:
    wanted: dict[str, int | float] = {gauge.time: -1, "deviceId": -1}
    wanted |= dict.fromkeys((name for name, _ in gauge.ids), -1)
    wanted |= dict.fromkeys((s.column for s in series), math.nan)
    rows = export.database.columns(gauge.table, wanted)
    time, place = rows[gauge.time.split("|")[0]], f"table {gauge.table}"
    if gauge.unless and _has_rows(export, gauge.unless):
        export.build.skip("repeated-content", place, int((time >= 0).sum()))
        return
    table, codes = factored_rows(rows["deviceId"], *(rows[name] for name, _ in gauge.ids))
    names = list(_names(export, gauge, table))
    for one in series:
        value = rows[one.column] * one.factor
        there = ~np.isnan(value)
        late = there & (time < 0)
        export.build.seen("counter", int(there.sum()))
        export.build.skip("bad-time", place, int(late.sum()), "counter")
        kept = there & ~late
        # only combinations with samples of this series get a track
        used, of_row = np.unique(codes[kept], return_inverse=True)
        tracks = [_track(export, gauge, one, *names[code]) for code in used.tolist()]
        if tracks:
            track = np.array(tracks, np.int32)[of_row]
            export.build.counters(track=track, start_ns=time[kept], value=value[kept])


def _track(export: Export, gauge: Gauge, series: Series, device: int, spelled: list[str]) -> int:
    return export.device_track(
        Layer.COUNTER,
        series.name.format(*spelled),
        device,
        "Counters",
        inner=gauge.group,
        unit=series.unit,
        kind=MEMORY_KINDS.get(gauge.group, TrackKind.OTHER),
    )


def _names(
    export: Export, gauge: Gauge, table: list[tuple[int, ...]]
) -> Iterator[tuple[int, list[str]]]:
    """Device and spelled ids of every combination."""
    strings = export.enum(gauge.enum, {}) if gauge.enum else export.strings
    spells = [spell for _, spell in gauge.ids]
    lone = [len({row[i + 1] for row in table}) < 2 for i in range(len(spells))]
    for device, *ids in table:
        spelled = [
            "" if spell is dies and alone else spell(value, strings)
            for spell, value, alone in zip(spells, ids, lone, strict=True)
        ]
        yield device, spelled


def _has_rows(export: Export, table: str) -> bool:
    return len(export.database.columns(table, {"deviceId": -1})["deviceId"]) > 0


_UNREAD = ("SAMPLE_PMU_SUMMARY",)
"""Tables of sums, which have no times."""


def read_databases(capture: Capture, build: TraceBuilder) -> None:
    """Read the databases of a capture, its windows, one after the other.

    Raises:
        MalformedInputError: none of them can be read.
    """
    detail: Detail = capture.detail
    describe(build, detail.notes)
    parts = [part for part in detail.parts if part.name in set(capture.files)]
    failures: list[MalformedInputError] = []
    for part in parts:
        build.file = capture.source.title(part.name)
        before = build.rows
        try:
            with opened(capture.source, part.name, salvage=True) as database:
                _read(database, build, part)
        except MalformedInputError as e:
            failures.append(e)
            build.skip("malformed-record", str(e)[:200])
            continue
        span = build.span(before, (Layer.DEVICE, Layer.COMM)) or build.span(before)
        if span and part.window:
            build.window(*span)
    if failures and len(failures) == len(parts):
        raise failures[0]


def _read(database: Database, build: TraceBuilder, part: Part) -> None:
    if "STRING_IDS" not in database.tables and not (database.damage and database.tables):
        raise MalformedInputError(
            database.title, "", "it has no table of strings; was the profiler stopped before "
            "it had written everything, or the copy cut? If there is a -wal file, copy it too",
        )  # fmt: skip
    base = part.name.rpartition("/")[2]
    export = Export(database, build, "MindSpore" if "mindspore" in base else "Python")
    of_device = tasks(export)
    communication = Communication(export, of_device)
    operations = communication.operations()
    communication.parts()
    calls, rows, marks = host.calls(export), operators(export), host.marks(export)
    arrows(export, of_device, operations, calls, rows, marks)
    host.others(export)
    steps(export)
    overlap(export)
    units(export)
    counters(export)
    for table in _UNREAD:
        sums = database.columns(table, {"deviceId": -1})["deviceId"]
        build.skip("metadata-unused", f"table {table}", len(sums))
    for place in database.damaged_places():
        build.skip("truncated", place)

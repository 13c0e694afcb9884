"""Counters of a database: the columns that are series, with the names and units of the JSON
export.

Databases hold bytes and bytes per second, the JSON KB, MB and MB/s (of 1024). Two errors of the
JSON are corrected: a hit rate is in percent (there a ratio of 1 is called "%"), and DDR traffic is
in MB/s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from traceconv.core.model import Layer, TrackKind
from traceconv.core.ordering import factored_rows
from traceconv.readers.ascend.db.export import KB, MB, Export
from traceconv.readers.shared.ascend_lanes import MEMORY_KINDS

Spell = Callable[[str], str] | None
"""Spells the string of an id for the name of a series; None for the number itself."""


def _owner(name: str) -> str:
    """As "APP" and "Device" are spelled."""
    return name.upper() if name == "app" else name.capitalize()


def _die(number: str) -> str:
    """A die; left out where there is only one."""
    return f" die {number}"


Series = tuple[str, str, float]
"""Name (with the places of :attr:`Gauge.ids`), unit, factor."""


@dataclass(frozen=True)
class Gauge:
    """A table of samples.

    Attributes:
        group:  the group of its tracks: the process of the JSON.
        series: by column.
        ids:    columns that distinguish series, and how they are spelled.
        time:   the column of time, ns; names separated by "|" are one renamed column.
        enum:   the table with the names of the ids, instead of the strings.
        unless: a table whose rows these repeat, if it has any.
    """

    table: str
    group: str
    series: Mapping[str, Series]
    ids: Mapping[str, Spell] = field(default_factory=dict)
    time: str = "timestampNs"
    enum: str = ""
    unless: str = ""


def _totals(prefix: str, *columns: str) -> dict[str, Series]:
    names = ("Total Allocated", "Total Reserved", "Total Active")
    pairs = zip(columns, names, strict=False)
    return {column: (f"{prefix}/{name}", "MB", MB) for column, name in pairs}


_NETWORK: Mapping[str, Series] = {
    f"{way.lower()}{column}": (f"Port {{0}}/{way} {way} {name}", unit, factor)
    for way in ("Rx", "Tx")
    for column, name, unit, factor in (
        ("PacketRate", "Packets", "", 1), ("ByteRate", "Bytes", "MB/s", MB),
        ("Errors", "Errors", "", 1), ("Dropped", "Dropped", "", 1),
    )
}  # fmt: skip
_NETWORK_COUNTS = (
    "macTxPfcPkt", "macRxPfcPkt", "macTxByte", "macRxByte", "macTxBadByte", "macRxBadByte",
    "roceTxPkt", "roceRxPkt", "roceTxErrPkt", "roceRxErrPkt", "roceTxCnpPkt", "roceRxCnpPkt",
    "roceNewPktRty", "nicTxByte", "nicRxByte",
)  # fmt: skip
_NETWORK_RATES = ("macTxBandwidth", "macRxBandwidth", "nicTxBandwidth", "nicRxBandwidth")

_COMPONENT = {"component": str}
_OP_MEMORY = ("TotalAllocated", "TotalReserved", "TotalActive")

GAUGES = (
    Gauge("AICORE_FREQ", "AI Core Freq", {"freq": ("AI Core Freq{0}", "MHz", 1)}, {"dieId": _die}),
    Gauge(
        "NPU_MEM", "NPU MEM", {"ddr": ("{0}/DDR", "KB", KB), "hbm": ("{0}/HBM", "KB", KB)},
        {"type": _owner},
    ),
    Gauge(
        "HBM", "HBM", {"bandwidth": ("HBM {0}/{1}", "MB/s", MB)},
        {"hbmId": None, "type": str.capitalize},
    ),
    Gauge("DDR", "DDR", {"read": ("DDR/Read", "MB/s", MB), "write": ("DDR/Write", "MB/s", MB)}),
    Gauge(
        "LLC", "LLC",
        {"hitRate": ("LLC {0} {1}/Hit Rate", "%", 1),
         "throughput": ("LLC {0} {1}/Throughput", "MB/s", MB)},
        {"llcId": None, "mode": str.capitalize},
    ),
    Gauge("HCCS", "HCCS", {f"{way.lower()}Throughput": (way, "MB/s", MB) for way in ("Rx", "Tx")}),
    Gauge(
        "PCIE", "PCIe",  # the averages, as in the JSON
        {"txCplAvg": ("PCIe_cpl Tx", "", MB), "rxCplAvg": ("PCIe_cpl Rx", "", MB),
         "txNonpostAvg": ("PCIe_nonpost Tx", "", MB), "rxNonpostAvg": ("PCIe_nonpost Rx", "", MB),
         "txNonpostLatencyAvg": ("PCIe_nonpost_latency Tx", "", 1 / 1000),
         "txPostAvg": ("PCIe_post Tx", "", MB), "rxPostAvg": ("PCIe_post Rx", "", MB)},
    ),
    Gauge("NIC", "NIC", _NETWORK, {"funcId": None}),
    Gauge("ROCE", "RoCE", _NETWORK, {"funcId": None}),
    Gauge(
        "NETDEV_STATS", "Network Device",
        {c: (c, "MB/s", MB) if c in _NETWORK_RATES else (c, "", 1)
         for c in (*_NETWORK_COUNTS, *_NETWORK_RATES)},
    ),
    Gauge(
        "ACC_PMU", "Acc PMU",
        {"readBwLevel": ("read_bandwidth acc_id {0}", "", 1),
         "readOstLevel": ("read_ost acc_id {0}", "", 1),
         "writeBwLevel": ("write_bandwidth acc_id {0}", "", 1),
         "writeOstLevel": ("write_ost acc_id {0}", "", 1)},
        {"accId": None},
    ),
    Gauge(
        "SOC_BANDWIDTH_LEVEL", "Stars Soc Info",
        {"l2BufferBwLevel": ("L2 Buffer Bw Level", "", 1),
         "mataBwLevel": ("Mata Bw Level", "", 1)},
    ),
    Gauge(
        "SIO", "SIO",
        {f"{way}{kind}": (f"{kind.lower()}_{way} {{0}}", "", MB)
         for way in ("rx", "tx") for kind in ("Req", "Rsp", "Snp", "Dat")},
        {"name": str},
    ),
    Gauge("QOS", "QoS", {"bandwidth": ("{0}{1}", "", MB)}, {"eventName": str, "dieId": _die}),
    Gauge(
        "UB", "Ub",
        {f"{way}UdmaBind": (f"UB Port{{0:0>3}} bandwidth_{way}", "MB/s", 1)
         for way in ("rx", "tx")},
        {"portId": None},
    ),
    Gauge(
        "SAMPLE_PMU_TIMELINE", "AI Core Utilization",
        {"usage": ("{0} {1} Usage", "%", 1), "freq": ("{0} {1} Freq", "MHz", 1),
         "totalCycle": ("{0} {1} Cycles", "", 1)},
        {"coreType": str, "coreId": None},
    ),
    Gauge("CPU_USAGE", "CPU Usage", {"usage": ("CPU {0} Usage", "%", 1)}, {"cpuId": None}),
    Gauge("HOST_MEM_USAGE", "Memory Usage", {"usage": ("Memory Usage", "%", 1)}),
    Gauge(
        "HOST_DISK_USAGE", "Disk Usage",
        {"usage": ("Disk Usage", "%", 1), "readRate": ("Disk Read", "KB/s", KB),
         "writeRate": ("Disk Write", "KB/s", KB)},
    ),
    Gauge(
        "HOST_NETWORK_USAGE", "Network Usage",
        {"usage": ("Network Usage", "%", 1), "speed": ("Network Speed", "KB/s", KB)},
    ),
    Gauge(
        "NPU_MODULE_MEM", "NPU Module Mem", {"totalReserved": ("{0}", "MB", MB)},
        {"moduleId": str}, enum="ENUM_MODULE",
    ),
    Gauge(
        "MEMORY_RECORD", "Memory",
        _totals("{0}", "totalAllocated", "totalReserved", "totalActive"), _COMPONENT,
        time="timestamp|timestampNs",
    ),
    Gauge(
        "NPU_OP_MEM", "Memory", _totals("{0}", "totalAllocate", "totalReserve"), _COMPONENT,
        unless="MEMORY_RECORD",
    ),
    *(
        Gauge(
            "OP_MEMORY", "Memory", _totals("PTA", *(f"{when}{total}" for total in _OP_MEMORY)),
            time=f"{when}Time", unless="MEMORY_RECORD",
        )
        for when in ("allocation", "release")
    ),
)  # fmt: skip


def add_counters(export: Export) -> None:
    """Read all counter tables. NULLs are skipped; samples without a time are reported."""
    _report_unread(export)
    for gauge in GAUGES:
        columns = export.database.tables.get(gauge.table, ())
        series = {key: spelling for key, spelling in gauge.series.items() if key in columns}
        if series:
            _add(export, gauge, series)


_LEFT = ("Min", "Max")
"""Endings of columns of extremes, whose averages are read."""

_SIDE_TABLES = ("MEMORY_RECORD", "OP_MEMORY")
"""Tables whose columns are all read into side tables."""


def _report_unread(export: Export) -> None:
    """Report columns of counter tables that are not read."""
    read: dict[str, set[str]] = {}
    for gauge in GAUGES:
        repeated = gauge.unless and export.database.count(gauge.unless)
        if gauge.table in _SIDE_TABLES or repeated:
            continue
        names = {"deviceId", *gauge.time.split("|"), *gauge.ids, *gauge.series}
        read.setdefault(gauge.table, set()).update(names)
    for table, names in read.items():
        unread = [c for c in export.database.tables.get(table, ()) if c not in names]
        unread = [c for c in unread if not c.endswith(_LEFT)]
        if unread_filled := export.database.filled(table, unread):
            where = f"table {table}: {', '.join(unread_filled)}"
            export.build.skip("columns-unread", where, len(unread_filled))


def _add(export: Export, gauge: Gauge, series: Mapping[str, Series]) -> None:
    requested = {gauge.time: -1, "deviceId": -1, **dict.fromkeys(gauge.ids, -1)}
    rows = export.database.columns(gauge.table, {**requested, **dict.fromkeys(series, math.nan)})
    time, where = rows[gauge.time.split("|")[0]], f"table {gauge.table}"
    if gauge.unless and export.database.count(gauge.unless):
        export.build.skip("repeated-content", where, int((time >= 0).sum()))
        return
    table, codes = factored_rows(rows["deviceId"], *(rows[name] for name in gauge.ids))
    places = _id_texts(export, gauge, table)
    for column, (name, unit, factor) in series.items():
        value = rows[column] * factor
        is_given = ~np.isnan(value)
        export.build.seen("counter", int(is_given.sum()))
        export.build.skip("bad-time", where, int((is_given & (time < 0)).sum()), "counter")
        is_timed = is_given & (time >= 0)
        # only combinations with samples of this series get a track
        used, of_row = np.unique(codes[is_timed], return_inverse=True)
        tracks = []
        for code in used.tolist():
            heading, identity = export.of_device(table[code][0], gauge.group)
            kind = MEMORY_KINDS.get(gauge.group, TrackKind.OTHER)
            tracks.append(
                export.build.track(
                    Layer.COUNTER, name.format(*places[code]), heading, "Counters", unit=unit,
                    kind=kind, device_kind="NPU", **identity,
                )
            )  # fmt: skip
        if tracks:
            track = np.array(tracks, np.int32)[of_row]
            export.build.counters(track=track, start_ns=time[is_timed], value=value[is_timed])


def _id_texts(export: Export, gauge: Gauge, table: list[tuple[int, ...]]) -> list[list[str]]:
    """The spelled ids of every combination."""
    strings = export.enum(gauge.enum, {}) if gauge.enum else export.strings
    columns = []
    for column, spell in enumerate(gauge.ids.values(), 1):
        values = [row[column] for row in table]
        if spell is None:
            columns.append([str(value) for value in values])
        elif spell is _die:
            several = len(set(values)) > 1
            columns.append([_die(str(v)) if several and v >= 0 else "" for v in values])
        else:
            columns.append([spell(strings.get(value, str(value))) for value in values])
    return [list(row) for row in zip(*columns, strict=True)] or [[] for _ in table]

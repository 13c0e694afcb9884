"""Counters: which columns of which tables are series, under the names and units of the JSON.

Databases hold bytes and bytes per second, the JSON KB, MB and MB/s (of 1024). Two things are told
right here that the JSON gets wrong: a hit rate is in per cent (there a share of 1 is called "%"),
and DDR traffic is in MB/s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

KB, MB = 1 / 1024, 1 / 1024**2

Spell = Callable[[int, Mapping[int, str]], str]
"""What the number in a column adds to the name of a series, given the strings."""


def plain(value: int, strings: Mapping[int, str]) -> str:
    """The number itself."""
    return str(value)


def said(value: int, strings: Mapping[int, str]) -> str:
    """The string it stands for."""
    return strings.get(value, str(value))


def title(value: int, strings: Mapping[int, str]) -> str:
    """The same with a capital: "Read"."""
    return said(value, strings).capitalize()


def upper(value: int, strings: Mapping[int, str]) -> str:
    """The same as "APP" and "Device" are spelled."""
    name = said(value, strings)
    return name.upper() if name == "app" else name.capitalize()


def dies(value: int, strings: Mapping[int, str]) -> str:
    """A die, where several are told apart; others have none."""
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
        group:  what its tracks stand under: the process of the JSON.
        ids:    columns that tell series apart, and how they are spelled.
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
        (("name", said),),
    ),
    Gauge(
        "QOS",
        "QoS",
        (Series("bandwidth", "{0}{1}", "", MB),),
        (("eventName", said), ("dieId", dies)),
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
        (("coreType", said), ("coreId", plain)),
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
        (("moduleId", said),),
        enum="ENUM_MODULE",
    ),
    Gauge(
        "MEMORY_RECORD",
        "Memory",
        _totals("{0}", "totalAllocated", "totalReserved", "totalActive"),
        (("component", said),),
        time="timestamp|timestampNs",
    ),
    Gauge(
        "NPU_OP_MEM",
        "Memory",
        _totals("{0}", "totalAllocate", "totalReserve"),
        (("component", said),),
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

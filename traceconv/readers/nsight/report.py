"""One process of an Nsight Systems report while it is read.

Sampled metrics of GPUs (``--gpu-metrics-devices``) become counters. A sample belongs to a GPU of
the machine, not to a process: every process that uses the GPU gets it. The lowest byte of a
sample's type is the GPU as Nsight numbers them; CUDA may number them in another way, which
TARGET_INFO_GPU says where it is there. Samples of GPUs that no process of the report uses are
counted and left out. Those of network cards are the machine's, and shown with its first process.

Names of metrics end in their unit, in brackets ("DRAM Read Bandwidth [Throughput %]"). Clocks are
called MHz and hold Hz in reports that others describe: values that no clock reaches in MHz are
taken as Hz.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I64
from traceconv.core.ordering import combined_key, factored_rows
from traceconv.core.patterns import lazy_regex
from traceconv.readers.nsight import tables
from traceconv.readers.nsight.collectives import MARKS, Issued
from traceconv.readers.nsight.processes import NO_PROCESS, Process, owner_of, pid_of, tid_of
from traceconv.readers.shared.arguments import lookup, picked
from traceconv.readers.shared.gpu_kernels import note_devices
from traceconv.readers.shared.layouts import (
    Launched,
    RowLayout,
    Shown,
    TableRows,
    add_rows,
    add_samples,
)
from traceconv.readers.shared.profiler_messages import book_messages
from traceconv.readers.shared.sqlite.database import Column, Database
from traceconv.readers.shared.table_rows import database_rows

_COMMUNICATORS = tables.DEVICE.lane._replace(field="lane")
"""The lanes of kernels where it is known for which communicators they work."""


@dataclass
class Report:
    """One process of a report being read.

    Attributes:
        launched: calls into the runtime, and device rows.
        calls:    the rows of the calls.
    """

    database: Database
    build: TraceBuilder
    process: Process
    launched: Launched = field(default_factory=Launched)
    calls: TableRows = field(default_factory=lambda: TableRows({}, "", 0))

    # -- rows ------------------------------------------------------------------------------------

    def rows(self, layout: RowLayout) -> TableRows:
        """The rows of this process in a table, with the names of their threads."""
        rows = database_rows(self.database, layout, self.strings)
        if layout.table not in self.database.tables:
            return rows
        owner = "thread" if "thread" in layout.columns else "process"
        device = rows["device"] if "device" in layout.columns else None
        is_owned, rows.columns[owner] = self.owned(layout.table, rows[owner], device)
        rows = rows.take(is_owned)
        if owner == "thread":
            self.name_threads(rows)
        return rows

    def owned(
        self, table: str, ids: Column, device: Column | None = None
    ) -> tuple[NDArray[np.bool_], Column]:
        """Which rows belong to this process, by serialized ids, and the ids themselves; rows that
        name no process get the id of this one."""
        pids = owner_of(ids)
        is_owned = np.isin(pids, (self.process.pid, *self.process.others))
        unnamed = pids == NO_PROCESS
        if unnamed.any():
            is_owned |= self._assumed(table, unnamed, device)
            ids = np.where(unnamed, max(self.process.pid, 0) << 24, ids)
        return is_owned, ids

    def _assumed(
        self, table: str, unnamed: NDArray[np.bool_], device: Column | None
    ) -> NDArray[np.bool_]:
        """The rows without a process that are this one's. Rows of no process are counted as an
        issue, by the first process."""
        device = np.full(len(unnamed), -1) if device is None else device
        process = self.process
        assumed = unnamed & (process.lone | np.isin(device, process.owned))
        self.build.skip("process-assumed", f"table {table}", int(assumed.sum()))
        if process.sole is not None and not process.lone:
            nobody = unnamed & ~np.isin(device, process.sole)
            self.build.skip("process-unknown", f"table {table}", int(nobody.sum()))
        return assumed

    def strings(self, ids: I64) -> dict[int, str]:
        """The strings of a report by their numbers."""
        return self.database.texts("StringIds", "id", "value", ids)

    def name_threads(self, rows: TableRows) -> None:
        """Name the threads of serialized ids, and the processes other than this one."""
        rows.columns["process"] = rows["thread"]
        threads, groups, identity = {}, {}, {}
        for number in np.unique(rows["thread"]).tolist():
            pid, tid = int(pid_of(number)), int(tid_of(number))
            is_own = pid in (self.process.pid, NO_PROCESS)
            threads[number] = f"Thread {tid}" if tid else "No thread"
            groups[number] = "" if is_own else f"Process {pid}"
            identity[number] = {"process": -1 if is_own else pid, "thread": tid}
        rows.names |= {"thread": threads, "process": groups}
        rows.identity["thread"] = identity

    # -- what is added ---------------------------------------------------------------------------

    def runtime(self) -> None:
        """Add CUDA runtime and driver calls, without their copies that carry backtraces."""
        rows = self.rows(tables.RUNTIME)
        call = np.isin(rows["class"], tables.CALL_CLASSES)
        self.build.lose("repeated-content", rows.where, int((~call).sum()))
        rows = rows.take(call)
        added = add_rows(self.build, tables.RUNTIME, rows)
        self.launched.calls.append((rows["correlation"], added))
        self.calls = rows.take(added >= 0)

    def kernels(self, nccl: Issued | None, ranks: Mapping[int, int]) -> None:
        """Add the kernels.

        Args:
            nccl:  the calls of NCCL, if their sizes are known.
            ranks: ranks of communicators.
        """
        rows = self.rows(tables.KERNELS)
        rows.columns["name"] = np.where(rows["demangled"] >= 0, rows["demangled"], rows["name"])
        rows.names["name"] = self.strings(np.unique(rows["name"][rows["name"] >= 0]))
        shared = np.maximum(rows["static"], 0) + np.maximum(rows["dynamic"], 0)
        recorded = (rows["static"] >= 0) | (rows["dynamic"] >= 0)
        rows.columns["shared memory"] = np.where(recorded, shared, -1)
        layout = tables.KERNELS
        if nccl is not None:
            nccl.mark(rows, self.calls, ranks, self.build.comm_words, self.build.strings)
            layout = structs.replace(layout, lane=_COMMUNICATORS, args=(*layout.args, *MARKS))
        self._work(layout, rows)

    def work(self) -> None:
        """Add copies, memory sets, graphs and synchronisations."""
        for layout in tables.WORK:
            self._work(layout, self.rows(layout))

    def _work(self, layout: RowLayout, rows: TableRows) -> None:
        layout = self._of_one_device(layout)
        for column in {"stream", layout.lane.field}:
            none = rows[column] == tables.NO_STREAM
            rows.columns[column] = np.where(none, -1, rows[column])
        added = add_rows(self.build, layout, rows)
        self.launched.work.append((rows["correlation"], added))

    def library_calls(self) -> None:
        """Add calls into libraries, and other tables with the columns of calls."""
        for layout in tables.CALLS:
            if layout.table in self.database.tables:
                self._calls(layout)
        for layout in self._families.values():
            self._calls(layout)

    @cached_property
    def _families(self) -> dict[str, RowLayout]:
        """The tables of calls that are known by how their names begin."""
        needed = {"start", "end", "globalTid", "nameId"}
        return {
            table: structs.replace(tables.HOST, table=table, title=title, layer=layer)
            for table, columns in self.database.tables.items()
            for begin, (title, layer) in tables.FAMILIES.items()
            if table.startswith(begin) and needed <= {*columns}
        }

    def _calls(self, layout: RowLayout) -> None:
        rows = self.rows(layout)
        if layout.table == "OSRT_API":
            call = rows["class"] == tables.OS_CALL
            self.build.skip("metadata-unused", rows.where, int((~call).sum()))
            rows = rows.take(call)
        add_rows(self.build, layout, rows)

    def gpu_memory(self) -> None:
        """Note memory and names of the GPUs that this process uses, as CUDA numbers them."""
        listed = self.database.rows("TARGET_INFO_GPU", "id", "cuDevice", "totalMemory", "name")
        gpus = [(gpu if device is None else device, *facts) for gpu, device, *facts in listed]
        note_devices(
            self.build.hints,
            [
                {"id": device, "totalGlobalMem": size, "name": name}
                for device, size, name in gpus
                if device in self.process.devices
            ],
        )

    def memory(self) -> None:
        """Add the memory allocated since the recording began, by device and kind of memory."""
        rows = self.rows(tables.MEMORY)
        rows = rows.take(np.lexsort((rows["start"], rows["kind"], rows["device"])))
        change = np.where(rows["operation"] == _RELEASE, -1, 1) * np.maximum(rows["bytes"], 0)
        held = np.cumsum(change)
        lanes = combined_key(rows["device"], rows["kind"])
        first_rows = np.flatnonzero(np.diff(lanes, prepend=-1))
        before = np.repeat(
            held[first_rows] - change[first_rows], np.diff(np.append(first_rows, len(held)))
        )
        rows.columns["value"] = held - before
        add_samples(self.build, self._of_one_device(tables.MEMORY), rows)

    def metrics(self) -> None:
        """Add the samples of the GPUs that this process uses."""
        rows = database_rows(self.database, tables.METRICS)
        gpu = rows["type"] & 0xFF
        gpus = self.database.columns("TARGET_INFO_GPU", {"id": -1, "cuDevice": -1})
        device = picked(gpus["cuDevice"], lookup(gpus["id"], gpu))
        rows.columns["device"] = np.where(device >= 0, device, gpu)
        process = self.process
        if process.claimed:
            stray = int((~np.isin(rows["device"], process.claimed)).sum())
            self.build.skip("kind-not-read", f"{rows.where}, GPUs that no process uses", stray)
        rows = rows.take(np.isin(rows["device"], process.devices))
        listed = self.database.rows("TARGET_INFO_GPU_METRICS", "typeId", "metricId", "metricName")
        names = {(kind, metric): name for kind, metric, name in listed if name is not None}
        keys, key_of = factored_rows(rows["device"], rows["type"], rows["metric"])
        highest = np.full(len(keys), -np.inf)
        np.fmax.at(highest, key_of, rows["value"])
        labels = [
            _metric(str(names.get((kind, metric), f"Metric {metric}")), top)
            for (_, kind, metric), top in zip(keys, highest.tolist(), strict=True)
        ]
        self._samples(tables.METRICS, rows, key_of, labels)

    def network(self) -> None:
        """Add the samples of network cards, with the first process."""
        if self.process.sole is None:
            return
        rows = database_rows(self.database, tables.NETWORK)
        cards = dict(self.database.rows("NIC_ID_MAP", "globalId", "nicId"))
        card_names = dict(self.database.rows("TARGET_INFO_NIC_INFO", "nicId", "name"))
        rows.names["card"] = {
            number: str(card_names[card]) for number, card in cards.items() if card_names.get(card)
        }
        listed = self.database.rows(
            "TARGET_INFO_NETWORK_METRICS", "metricsListId", "metricsIdx", "name", "unit"
        )
        metric_labels = {(group, index): (name, unit) for group, index, name, unit in listed}
        keys, key_of = factored_rows(rows["list"], rows["metric"], rows["port"])
        labels = []
        for group, index, port in keys:
            name, unit = metric_labels.get((group, index), (None, None))
            label = str(name or f"Metric {index}") + (f" (port {port})" if port > 1 else "")
            labels.append((label, str(unit or "")))
        self._samples(tables.NETWORK, rows, key_of, labels)

    def _samples(
        self,
        layout: RowLayout,
        rows: TableRows,
        key_of: NDArray[np.intp],
        labels: list[tuple[str, str]],
    ) -> None:
        """Add samples; ``key_of`` is the index of each sample's name and unit in ``labels``."""
        rows.columns |= {"name": key_of, "unit": key_of}
        rows.names |= {
            "name": {i: name for i, (name, _) in enumerate(labels)},
            "unit": {i: unit for i, (_, unit) in enumerate(labels)},
        }
        add_samples(self.build, self._of_one_device(layout), rows)

    def _of_one_device(self, layout: RowLayout) -> RowLayout:
        """The layout without a device heading, if the process uses a single device."""
        if self.process.device < 0 or layout.group.field != "device":
            return layout
        return structs.replace(layout, group=Shown("device", "", of="device"))

    # -- the rest --------------------------------------------------------------------------------

    def diagnostics(self) -> None:
        """Report the profiler's own errors and warnings, with the first process."""
        if self.process.sole is None:
            return
        rows = self.database.rows(tables.DIAGNOSTICS, "severity", "text")
        messages = [
            [text for level, text in rows if level == severity] for severity in (_ERROR, _WARNING)
        ]
        book_messages(self.build, *messages)
        unread = len(rows) - sum(map(len, messages))
        self.build.skip("kind-not-read", f"table {tables.DIAGNOSTICS}", unread)

    def rest(self) -> None:
        """Count the rows of all other tables, with the first process."""
        read_tables = {*tables.READ, *tables.DESCRIBING, *self._families}
        for table in self.database.tables if self.process.sole is not None else ():
            if table not in read_tables and not table.startswith(tables.DESCRIBED):
                self.build.skip("kind-not-read", f"table {table}", self.database.count(table))


_WARNING, _ERROR = 2, 3
_RELEASE = 1

_UNIT = lazy_regex(r"(.+)\[([^\[\]]+)\]\s*+")
_FASTEST_MHZ = 100_000


def _metric(label: str, highest: float) -> tuple[str, str]:
    """The name of a metric, and its unit, which the name ends in."""
    match = _UNIT.fullmatch(label)
    name, unit = (match[1].rstrip(), match[2]) if match else (label, "")
    if unit.endswith("%"):
        unit = "%"
    elif unit == "MHz" and highest > _FASTEST_MHZ:
        unit = "Hz"
    return name, unit

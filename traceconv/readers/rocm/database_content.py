"""Read the events of one process in a rocpd database."""

from __future__ import annotations

import json
from functools import cached_property

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import I64, Kind
from traceconv.core.ordering import factored_rows
from traceconv.readers.rocm.database import GPU, Member, Tables, suffixes
from traceconv.readers.rocm.process import (
    ALLOCATIONS,
    CALLS,
    COPIES,
    KERNELS,
    Category,
    Process,
    category,
    copy_device,
    found_in,
    summed,
)
from traceconv.readers.shared.arguments import lookup, picked, quoted
from traceconv.readers.shared.layouts import RowLayout, Shown, TableRows, add_samples
from traceconv.readers.shared.sqlite.database import Database
from traceconv.readers.shared.table_rows import database_rows

_SIZES = {
    key: tuple(f"{column}_size_{axis}" for axis in "xyz")
    for key, column in (("grid", "grid"), ("block", "workgroup"))
}

REGIONS = structs.replace(
    CALLS,
    table="region",
    end="end",
    columns={"name": "name_id", "event": "event_id"},
)
DISPATCHES = structs.replace(
    KERNELS,
    table="kernel_dispatch",
    end="end",
    columns={
        "name": "kernel_id", "dispatch": "dispatch_id", "event": "event_id",
        "LDS": "group_segment_size", "scratch": "private_segment_size", **_SIZES,
    },
)  # fmt: skip
TRANSFERS = structs.replace(
    COPIES,
    table="memory_copy",
    end="end",
    columns={
        "name": "name_id", "to": "dst_agent_id", "from": "src_agent_id", "bytes": "size",
        "event": "event_id",
    },
)  # fmt: skip
ALLOCATED = structs.replace(
    ALLOCATIONS,
    table="memory_allocate",
    end="end",
    columns={"operation": "type", "level": "level", "address": "address", "size": "size"},
    texts=frozenset({"operation", "level"}),
)
SAMPLES = RowLayout(
    table="sample",
    start="timestamp",
    first_ns=1,
    columns={"id": "id", "event": "event_id", "name": "name_id"},
    links=CALLS.links,
    kind=Kind.INSTANT,
    lane=CALLS.lane,
)
"""Samples: counters over time, rocTX markers, frames of call stacks."""

COUNTERS = RowLayout(
    first_ns=1,
    title="ROCm Counters",
    lane=Shown("counter"),
    group=KERNELS.group,
    track=KERNELS.track,
    unit=Shown("unit"),
)


_INSTANCE = ("xcc", "shader engine", "instance")
"""Columns that identify the instances of a counter that is sampled within a kernel."""


class Reading:
    """Reads one process of a database into ``build``."""

    def __init__(self, build: TraceBuilder, database: Database, member: Member) -> None:
        self._build, self._member = build, member
        self._tables = Tables(database, member.suffix)
        self._process = Process(build)
        self._used: list[I64] = []  # events of regions, which may have samples, too
        self._dispatched: I64 = np.empty(0, np.int64)  # events of kernels

    def read(self) -> None:
        """Put everything into the trace."""
        self._regions()
        self._kernels()
        copies, agents = self._rows(TRANSFERS), self._tables.agents
        copies.names["name"] = self._tables.strings(copies["name"])
        copies.names["from"] = copies.names["to"] = copies.names["device"]
        gpus = np.array([row for row, (kind, _) in agents.items() if kind == GPU], np.int64)
        copies.columns["device"] = copy_device(copies["from"], copies["to"], gpus)
        self._process.work(TRANSFERS, copies)
        self._samples()
        self._process.allocations(self._rows(ALLOCATED))
        self._process.launched.draw(self._build)
        self._book_rest()

    # -- what rows have in common ------------------------------------------------------------

    def _rows(self, layout: RowLayout) -> TableRows:
        """The rows of the process, and rows without a process, which belong to the first one.

        Of their events they get ``correlation``, the number that calls and what they launched have
        in common, and ``category``.
        """
        rows = self._tables.read(layout)
        row = self._member.row
        if row >= 0:
            rows = rows.take((rows["pid"] == row) | (rows["pid"] < 0))
        if "event" in rows.columns:
            event_rows = lookup(self._events["id"], rows["event"])
            stack = picked(self._events["stack_id"], event_rows)
            rows.columns["correlation"] = np.where(stack > 0, stack, -1)
            rows.columns["category"] = picked(self._events["category_id"], event_rows)
        threads, agents = self._threads, self._tables.agents
        rows.names["thread"] = {
            number: f"{tid} ({name})" if name else str(tid)
            for number, (tid, name) in threads.items()
        }
        rows.identity["thread"] = {
            number: {"thread": tid, "thread_name": name} for number, (tid, name) in threads.items()
        }
        rows.names["device"] = {number: f"{k} {index}" for number, (k, index) in agents.items()}
        rows.identity["device"] = {
            number: {"device_kind": k, "device": index} for number, (k, index) in agents.items()
        }
        return rows

    @cached_property
    def _threads(self) -> dict[int, tuple[int, str]]:
        listed = self._tables.rows("info_thread", "id", "tid", "name")
        return {
            row: (tid if isinstance(tid, int) else row, str(name or ""))
            for row, tid, name in listed
            if isinstance(row, int)
        }

    @cached_property
    def _events(self) -> dict[str, I64]:
        """The events that rows of other tables refer to."""
        return self._tables.columns("event", {"id": -1, "category_id": -1, "stack_id": -1})

    def _categories(self, rows: TableRows) -> dict[int, Category]:
        codes = np.unique(rows["category"])
        if self._tables.has("info_category", "id", "name"):
            names = self._tables.texts("info_category", "id", "name")
        else:
            names = self._tables.strings(codes)
        return {code: category(names.get(code, "")) for code in codes.tolist()}

    # -- calls and ranges --------------------------------------------------------------------

    def _regions(self) -> None:
        rows = self._rows(REGIONS)
        self._used.append(rows["event"])
        rows.names["name"] = self._tables.strings(rows["name"])
        categories = self._categories(rows)
        markers = [code for code, kind in categories.items() if kind.marker]
        functions = [i for i, name in rows.names["name"].items() if name.startswith("roctx")]
        called = np.isin(rows["name"], functions) | (rows["name"] < 0)
        self._rename(rows, np.flatnonzero(called & np.isin(rows["category"], markers)))
        detail = found_in(self._call_arguments(rows["event"]), rows["event"])
        self._process.calls(REGIONS, rows, categories, detail)

    def _rename(self, rows: TableRows, chosen: NDArray[np.intp]) -> None:
        """Name rows by the message of their event, if it has one."""
        messages = self._messages(rows["event"][chosen]) if len(chosen) else {}
        codes = {text: -2 - i for i, text in enumerate(dict.fromkeys(messages.values()))}
        for i, event in zip(chosen.tolist(), rows["event"][chosen].tolist(), strict=True):
            if event in messages:
                rows.columns["name"][i] = codes[messages[event]]
        rows.names["name"] = {**rows.names["name"], **{code: t for t, code in codes.items()}}

    def _messages(self, ids: I64) -> dict[int, str]:
        """Messages of markers, by event."""
        by_event = {}
        for event, raw in self._tables.texts("event", "id", "extdata", ids).items():
            try:
                members = json.loads(raw)
            except NOT_JSON:
                continue
            if isinstance(members, dict) and isinstance(members.get("message"), str):
                by_event[event] = members["message"]
        return by_event

    def _call_arguments(self, events: I64) -> dict[int, bytes]:
        """Arguments of calls as JSON members with a leading comma, by event."""
        requested = set(events.tolist())
        by_event: dict[int, dict[bytes, bytes]] = {}
        columns = ("event_id", "position", "name", "value")
        for event, _, name, value in sorted(
            (row for row in self._tables.rows("arg", *columns) if row[0] in requested),
            key=lambda row: (row[0], row[1] if isinstance(row[1], int) else 0),
        ):
            member = quoted(str(name)), quoted("" if value is None else str(value))
            by_event.setdefault(event, {})[member[0]] = b",%b:%b" % member
        return {event: b"".join(members.values()) for event, members in by_event.items()}

    # -- devices -----------------------------------------------------------------------------

    def _kernels(self) -> None:
        rows = self._rows(DISPATCHES)
        self._dispatched = rows["event"]
        counts = ("arch_vgpr_count", "accum_vgpr_count", "sgpr_count")
        symbols = self._tables.columns("info_kernel_symbol", {"id": -1, **dict.fromkeys(counts, 0)})
        symbol_rows = lookup(symbols["id"], rows["name"])
        for key, column in zip(("VGPRs", "accumulation VGPRs", "SGPRs"), counts, strict=True):
            rows.columns[key] = picked(
                np.where(symbols[column] > 0, symbols[column], -1), symbol_rows
            )
        texts = self._tables.rows("info_kernel_symbol", "id", "display_name", "kernel_name")
        rows.names["name"] = {i: str(shown or plain or "") for i, shown, plain in texts}
        values = self._measured
        values = values.take((values["sample"] < 0) & np.isin(values["event"], rows["event"]))
        listed = self._tables.rows("info_pmc", "id", "symbol", "name")
        names = {row: str(symbol or name) for row, symbol, name in listed}
        counters = [names.get(code, f"counter {code}") for code in values["pmc"].tolist()]
        counted = summed(values["event"], counters, values["value"].tolist())
        self._process.work(DISPATCHES, rows, found_in(counted, rows["event"]))

    @cached_property
    def _measured(self) -> TableRows:
        """Values of counters: of a dispatch as a whole, or, with ``sample``, of a time in it."""
        layout = RowLayout(
            table=self._tables.name("pmc_event"),
            start="id",
            columns={
                "event": "event_id", "pmc": "pmc_id", "value": "value", "sample": "sample_id",
                **{dimension: dimension.replace(" ", "_") for dimension in _INSTANCE},
            },
            floats=frozenset({"value"}),
        )  # fmt: skip
        return database_rows(self._tables.database, layout)

    # -- counters ----------------------------------------------------------------------------

    def _samples(self) -> None:
        """Add samples with values as counters and others as instants, such as rocTX markers.
        Samples of an event that is also a region add nothing and are counted."""
        rows, values = self._rows(SAMPLES), self._measured
        rows.columns["name"] = np.where(rows["name"] >= 0, rows["name"], rows["track name"])
        of_samples = (values["event"] >= 0) & ~np.isin(values["event"], self._dispatched)
        sample_of = np.where(
            values["sample"] >= 0,
            lookup(rows["id"], values["sample"]),
            lookup(rows["event"], np.where(of_samples, values["event"], -2)),
        )
        self._counters(rows, values.take(sample_of >= 0), sample_of[sample_of >= 0])
        measured = np.isin(rows["event"], values["event"][of_samples & (values["sample"] < 0)])
        measured[sample_of[sample_of >= 0]] = True
        doubled = ~measured & np.isin(rows["event"], np.concatenate(self._used))
        where = "table rocpd_sample: of regions"
        self._build.skip("metadata-unused", where, int(doubled.sum()))
        instants = rows.take(~measured & ~doubled)
        instants.names["name"] = self._tables.strings(instants["name"])
        self._rename(instants, np.arange(len(instants)))
        self._process.calls(SAMPLES, instants, self._categories(instants))

    def _counters(self, rows: TableRows, values: TableRows, sample_of: I64) -> None:
        """Add the values of samples, on the track of their sample or their counter.

        Args:
            sample_of: the sample of each value.
        """
        listed = self._tables.rows("info_pmc", "id", "agent_id", "units", "symbol", "name")
        counters = {row: facts for row, *facts in listed}
        tracks = self._tables.strings(rows["name"])
        keys, key_of = factored_rows(
            values["pmc"], rows["name"][sample_of], *(values[dimension] for dimension in _INSTANCE)
        )
        labels, devices, units = [], [], []
        for counter, track, *instance in keys:
            agent, unit, symbol, counter_name = counters.get(counter, (None, "", "", ""))
            dimensions = zip(_INSTANCE, instance, strict=True)
            label = tracks.get(track) or str(counter_name or symbol or f"Counter {counter}")
            labels.append(" ".join([label, *(f"{k} {n}" for k, n in dimensions if n >= 0)]))
            devices.append(agent if isinstance(agent, int) else -1)
            units.append(str(unit or ""))
        samples = rows.take(sample_of)
        samples.coded("counter", [labels[i] for i in key_of.tolist()])
        samples.coded("unit", [units[i] for i in key_of.tolist()])
        samples.columns["device"] = np.array(devices, np.int64)[key_of]
        samples.columns["value"] = values["value"]
        add_samples(self._build, COUNTERS, samples)

    def _book_rest(self) -> None:
        """Count the rows of all other tables of the process that are in the file."""
        tables, all_suffixes = self._tables, suffixes(self._tables.database)
        for name in tables.database.tables:
            plain = name.removesuffix(tables.suffix)
            stray = tables.suffix == all_suffixes[0] and not name.endswith(tuple(all_suffixes))
            unread = plain.removeprefix("rocpd_") not in READ and not name.startswith("sqlite_")
            if unread and (plain != name or stray):
                self._build.skip("kind-not-read", f"table {plain}", tables.database.count(name))


READ = {
    "metadata", "string", "track", "timestamp", "event", "arg", "pmc_event", "info_node",
    "info_process", "info_thread", "info_agent", "info_queue", "info_stream", "info_pmc",
    "info_category", "info_code_object", "info_kernel_symbol",
    *(one.table for one in (REGIONS, DISPATCHES, TRANSFERS, ALLOCATED, SAMPLES)),
}  # fmt: skip
"""Tables that are read, or that describe the rows of others."""

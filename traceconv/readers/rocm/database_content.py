"""The rows of one process in a rocpd database, on their way into a trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import I32, I64, Kind, Layer, OpClass
from traceconv.core.ordering import factored, factored_rows
from traceconv.readers.rocm.database import GPU, Member, Place, Rows, Tables
from traceconv.readers.rocm.process import (
    Category,
    Process,
    Spans,
    category,
    copy_device,
    counted,
    lane_of,
    registered,
    triples,
)
from traceconv.readers.shared.arguments import Value, label, lookup, number, picked, quoted
from traceconv.readers.shared.sqlite.database import Column, Database


@dataclass
class Events:
    """The table of events, by number: what rows of other tables have in common."""

    ids: I64
    category: I64
    stack: I64
    names: dict[int, str]

    def at(self, ids: I64) -> I64:
        """Positions of events, -1 of those that are not there."""
        return lookup(self.ids, ids)

    def stack_of(self, ids: I64) -> I64:
        """Numbers that calls and what they launched have in common, -1 where there is none."""
        found = picked(self.stack, self.at(ids))
        return np.where(found > 0, found, -1)


class Reading:
    """Reads one process of a database into ``build``."""

    def __init__(self, build: TraceBuilder, database: Database, member: Member) -> None:
        self._build, self._member = build, member
        self._tables = Tables(database, member.suffix)
        self._process = Process(build, self._device, self._thread)
        self._used: list[I64] = []  # events of regions, which may have samples, too

    def read(self) -> None:
        """Put everything into the trace."""
        self._regions()
        self._kernels()
        self._copies()
        self._samples()
        self._allocations()
        self._process.draw()
        self._book_rest()

    # -- what rows have in common ------------------------------------------------------------

    def _device(self, number: int) -> str:
        kind, index = self._tables.agents.get(number, (GPU, number))
        return f"{kind} {index}"

    def _thread(self, number: int) -> str:
        tid, name = self._threads.get(number, (number, ""))
        return (f"Thread {tid}" if tid >= 0 else "No thread") + (f" ({name})" if name else "")

    @cached_property
    def _threads(self) -> dict[int, tuple[int, str]]:
        listed = self._tables.rows("info_thread", "id", "tid", "name")
        return {
            row: (tid if isinstance(tid, int) else row, str(name or ""))
            for row, tid, name in listed
            if isinstance(row, int)
        }

    @cached_property
    def _events(self) -> Events:
        tables = self._tables
        requested = {"id": -1, "category_id": -1, "stack_id": -1}
        rows = tables.columns("event", requested)
        if tables.has("info_category", "id", "name"):
            names = tables.texts("info_category", "id", "name")
        else:
            names = tables.strings(rows["category_id"])
        return Events(rows["id"], rows["category_id"], rows["stack_id"], names)

    def _mine(self, place: Place) -> NDArray[np.bool_]:
        """Rows of the process; those of none are the first one's, which is nearly always alone."""
        own: NDArray[np.bool_] = place.pid == self._member.row
        return own | (place.pid < 0) if self._member.row >= 0 else np.ones(len(own), bool)

    def _labels(self, ids: I64, texts: Mapping[int, str], otherwise: str = "(no name)") -> I32:
        codes, back = factored(ids)
        table = [self._build.string(texts.get(i) or otherwise) for i in codes.tolist()]
        missing = np.array([i not in texts for i in codes.tolist()], bool)
        if len(codes):
            self._build.skip("missing-name", "table rocpd_string", int(missing[back].sum()))
        return np.array(table, np.int32)[back] if table else np.empty(0, np.int32)

    def _read(self, table: str, requested: Mapping[str, Any], *times: str) -> Rows:
        """The rows of the process."""
        rows = self._tables.read(table, requested, *times)
        return rows.take(self._mine(rows.place))

    def _spans(self, table: str, rows: Rows) -> Spans:
        start, end = rows.times
        return Spans(start, end, f"table rocpd_{table}")

    # -- calls and ranges --------------------------------------------------------------------

    def _regions(self) -> None:
        tables = self._tables
        rows = self._read("region", {"name_id": -1, "event_id": -1}, "start", "end")
        name, event = rows.columns["name_id"], rows.columns["event_id"]
        self._used.append(event)
        events = self._events
        at = events.at(event)
        stack = events.stack_of(event)
        sort, categories = self._categories(picked(events.category, at))
        texts = tables.strings(name)
        names = self._labels(name, texts)
        marker = np.array([c.marker for c in categories] or [False])[sort]
        self._rename(np.flatnonzero(marker), event, name, texts, names)
        detail = self._call_arguments(event)

        def args(chosen: NDArray[np.intp]) -> I32:
            more = [detail.get(i, b"") for i in event[chosen].tolist()]
            return registered(self._build, {"correlation": (stack[chosen], number)}, more)

        self._process.calls(
            self._spans("region", rows),
            names,
            sort,
            categories,
            rows.place.tid,
            stack,
            args,
        )

    def _categories(self, ids: I64) -> tuple[I64, list[Category]]:
        codes, back = factored(ids)
        found = [category(self._events.names.get(i, "")) for i in codes.tolist()]
        return back.astype(np.int64), found

    def _rename(
        self,
        chosen: NDArray[np.intp],
        event: I64,
        name: I64,
        texts: Mapping[int, str],
        names: I32,
    ) -> None:
        """Give markers their text where the name is that of the function."""
        called = [
            i for i in chosen.tolist() if texts.get(int(name[i]), "roctx").startswith("roctx")
        ]
        messages = self._messages(event[called]) if called else {}
        for i in called:
            if text := messages.get(int(event[i])):
                names[i] = self._build.string(text)

    def _messages(self, ids: I64) -> dict[int, str]:
        """What markers say, by event."""
        found = {}
        for event, raw in self._tables.texts("event", "id", "extdata", ids).items():
            try:
                stated = json.loads(raw)
            except NOT_JSON:
                continue
            if isinstance(stated, dict) and isinstance(stated.get("message"), str):
                found[event] = stated["message"]
        return found

    def _call_arguments(self, events: I64) -> dict[int, bytes]:
        """Arguments of calls by event, each beginning with a comma."""
        wanted = set(events.tolist())
        found: dict[int, dict[bytes, bytes]] = {}
        columns = ("event_id", "position", "name", "value")
        for event, _, name, value in sorted(
            (row for row in self._tables.rows("arg", *columns) if row[0] in wanted),
            key=lambda row: (row[0], row[1] if isinstance(row[1], int) else 0),
        ):
            member = quoted(str(name)), quoted("" if value is None else str(value))
            found.setdefault(event, {})[member[0]] = b",%b:%b" % member
        return {event: b"".join(members.values()) for event, members in found.items()}

    # -- devices -----------------------------------------------------------------------------

    def _kernels(self) -> None:
        tables, table = self._tables, "kernel_dispatch"
        sizes = {f"{of}_size_{axis}": -1 for of in ("grid", "workgroup") for axis in "xyz"}
        requested = {
            "kernel_id": -1, "dispatch_id": -1, "event_id": -1, "group_segment_size": -1,
            "private_segment_size": -1, **sizes,
        }  # fmt: skip
        found = self._read(table, requested, "start", "end")
        rows, place = found.columns, found.place
        events = self._events
        stack = events.stack_of(rows["event_id"])
        symbols = tables.rows(
            "info_kernel_symbol", "id", "display_name", "kernel_name", "arch_vgpr_count",
            "accum_vgpr_count", "sgpr_count",
        )  # fmt: skip
        texts = {s[0]: str(s[1] or s[2] or "") for s in symbols}
        registers = {s[0]: s[3:] for s in symbols}
        counters = self._counters_of(rows["event_id"])

        def args(chosen: NDArray[np.intp]) -> I32:
            part = {name: column[chosen] for name, column in rows.items()}
            shapes = zip(
                triples("grid", [part[f"grid_size_{axis}"] for axis in "xyz"]),
                triples("block", [part[f"workgroup_size_{axis}"] for axis in "xyz"]),
                part["event_id"].tolist(),
                strict=True,
            )
            more = [grid + block + counters.get(event, b"") for grid, block, event in shapes]
            return registered(
                self._build,
                {
                    "correlation": (stack[chosen], number),
                    "dispatch": (part["dispatch_id"], number),
                    "queue": (place.queue_id[chosen], number),
                    "stream": (place.stream_id[chosen], number),
                    "LDS": (part["group_segment_size"], number),
                    "scratch": (part["private_segment_size"], number),
                    "VGPRs": (part["kernel_id"], _register(registers, 0)),
                    "accumulation VGPRs": (part["kernel_id"], _register(registers, 1)),
                    "SGPRs": (part["kernel_id"], _register(registers, 2)),
                },
                more,
            )

        lane, lanes = lane_of(place.stream_id, place.queue_id)
        self._process.work(
            self._spans(table, found),
            self._labels(rows["kernel_id"], texts),
            place.agent_id,
            lane,
            stack,
            args,
            lanes=lanes,
        )

    def _counters_of(self, events: I64) -> dict[int, bytes]:
        """What was counted during kernels, by event, each beginning with a comma; instances of a
        counter that have no name of their own are added up."""
        rows = self._tables.columns("pmc_event", {"event_id": -1, "pmc_id": -1, "value": np.nan})
        listed = self._tables.rows("info_pmc", "id", "symbol", "name")
        names = {row: str(symbol or name) for row, symbol, name in listed}
        found: dict[int, dict[str, float]] = {}
        at = np.flatnonzero(np.isin(rows["event_id"], events) & np.isfinite(rows["value"]))
        columns = (rows[name][at].tolist() for name in ("event_id", "pmc_id", "value"))
        for event, counter, value in zip(*columns, strict=True):
            of = found.setdefault(event, {})
            name = names.get(counter, f"counter {counter}")
            of[name] = of.get(name, 0.0) + value
        return {event: counted(of) for event, of in found.items()}

    def _copies(self) -> None:
        tables, table = self._tables, "memory_copy"
        requested = {
            "name_id": -1, "dst_agent_id": -1, "src_agent_id": -1, "size": -1, "event_id": -1,
        }  # fmt: skip
        found = self._read(table, requested, "start", "end")
        rows, place = found.columns, found.place
        events = self._events
        stack = events.stack_of(rows["event_id"])
        known = {row: f"{kind} {index}" for row, (kind, index) in tables.agents.items()}

        def args(chosen: NDArray[np.intp]) -> I32:
            return registered(
                self._build,
                {
                    "correlation": (stack[chosen], number),
                    "bytes": (rows["size"][chosen], number),
                    "from": (rows["src_agent_id"][chosen], label(known)),
                    "to": (rows["dst_agent_id"][chosen], label(known)),
                    "stream": (place.stream_id[chosen], number),
                },
            )

        lane, lanes = lane_of(place.stream_id, place.queue_id)
        self._process.work(
            self._spans(table, found),
            self._labels(rows["name_id"], tables.strings(rows["name_id"]), "Memory copy"),
            self._copy_device(rows["src_agent_id"], rows["dst_agent_id"]),
            lane,
            stack,
            args,
            op=OpClass.COPY,
            lanes=lanes,
        )

    def _copy_device(self, source: I64, target: I64) -> I64:
        """The GPU that a copy occupies: of two that from which it is."""
        gpus = [row for row, (kind, _) in self._tables.agents.items() if kind == GPU]
        return copy_device(source, target, np.array(gpus, np.int64))

    # -- counters ----------------------------------------------------------------------------

    def _samples(self) -> None:
        """Samples with a value are counters, marks of rocTX instants; those of events that are
        regions, too, are no events of their own."""
        tables, build = self._tables, self._build
        found = self._read("sample", {"event_id": -1, "name_id": -1}, "timestamp")
        rows, place, [time] = found.columns, found.place, found.times
        name = np.where(rows["name_id"] >= 0, rows["name_id"], found.track_name)
        pmc = tables.columns("pmc_event", {"event_id": -1, "pmc_id": -1, "value": np.nan})
        measured = np.isin(rows["event_id"], pmc["event_id"])
        doubled = ~measured & np.isin(rows["event_id"], np.concatenate(self._used))
        build.skip("metadata-unused", "table rocpd_sample: of regions", int(doubled.sum()))
        texts = tables.strings(name)
        self._counters(np.flatnonzero(measured), rows["event_id"], time, name, texts, pmc)
        at = np.flatnonzero(~measured & ~doubled)
        events = self._events
        sort, categories = self._categories(
            picked(events.category, events.at(rows["event_id"][at]))
        )
        messages = self._messages(rows["event_id"][at])
        words = [messages.get(i) for i in rows["event_id"][at].tolist()]
        stated = [
            word or texts.get(n, "(no name)")
            for word, n in zip(words, name[at].tolist(), strict=True)
        ]
        spans = Spans(time[at], time[at], "table rocpd_sample")
        good = spans.usable(build, "instant")
        tracks = [
            build.track(c.layer, self._thread(tid), "", c.title)
            for c, tid in zip(
                (categories[i] for i in sort[good].tolist()),
                place.tid[at][good].tolist(),
                strict=True,
            )
        ]
        build.extend(
            track=np.array(tracks, np.int32),
            kind=Kind.INSTANT,
            start_ns=time[at][good],
            name=np.array(
                [build.string(s) for s, yes in zip(stated, good.tolist(), strict=True) if yes],
                np.int32,
            ),
            op=OpClass.HOST,
        )

    def _counters(
        self,
        at: NDArray[np.intp],
        event: I64,
        time: I64,
        name: I64,
        texts: Mapping[int, str],
        pmc: Mapping[str, Column],
    ) -> None:
        """Values over time: every value of the event of a sample, on the lane of its track."""
        if not len(at):
            return
        build = self._build
        order = at[np.argsort(event[at], kind="stable")]
        chosen = np.flatnonzero(np.isin(pmc["event_id"], event[at]))
        sample = order[np.searchsorted(event[order], pmc["event_id"][chosen])]
        listed = self._tables.rows("info_pmc", "id", "agent_id", "units", "symbol", "name")
        known = {row: rest for row, *rest in listed}

        def track(counter: int, stated: int) -> int:
            agent, units, symbol, own = known.get(counter, (None, "", "", ""))
            group = self._device(agent) if isinstance(agent, int) else ""
            label = texts.get(stated) or str(own or symbol or f"Counter {counter}")
            return build.track(Layer.COUNTER, label, group, "ROCm Counters", unit=str(units or ""))

        keys, which = factored_rows(pmc["pmc_id"][chosen], name[sample])
        numbers = np.array([track(*key) for key in keys], np.int32)
        where = "table rocpd_sample"
        self._process.samples(numbers[which], time[sample], pmc["value"][chosen], where)

    def _allocations(self) -> None:
        tables, table = self._tables, "memory_allocate"
        rows = self._read(table, {"id": -1, "address": -1, "size": 0}, "start", "end")
        kinds, levels = (tables.texts(table, "id", name) for name in ("type", "level"))
        ids = rows.columns["id"].tolist()
        self._process.allocations(
            self._spans(table, rows),
            [kinds.get(i, "") for i in ids],
            [levels.get(i, "") for i in ids],
            rows.place.agent_id,
            rows.columns["address"].tolist(),
            rows.columns["size"],
        )

    def _book_rest(self) -> None:
        for table in ("info_pc", "call_stack", "line_info"):
            rows = self._tables.database.count(self._tables.name(table))
            self._build.skip("kind-not-read", f"table rocpd_{table}", rows)


def _register(registers: Mapping[int, tuple[Any, ...]], which: int) -> Value:
    def value(kernel: int) -> bytes:
        counts = registers.get(kernel, ())
        stated = counts[which] if counts else None
        return b"%d" % stated if isinstance(stated, int) and stated > 0 else b""

    return value

"""The times, names, arguments and classes of the events of any plane."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import FARTHEST_NS, TraceBuilder
from traceconv.core.clock import is_unix_ns
from traceconv.core.model import I32, I64, Mask, OpClass
from traceconv.core.ordering import combined_key
from traceconv.core.rank_ranges import format_ranges
from traceconv.readers.shared.arguments import objects, quoted
from traceconv.readers.shared.pairing import latest
from traceconv.readers.xla.links import Links
from traceconv.readers.xla.operations import Operation, Program, Programs, operation, programs
from traceconv.readers.xla.planes import Device, Kind, device_kind, kind_of, owner
from traceconv.readers.xla.space import Plane, Space

LINKS = frozenset(("_pt", "_p", "_ct", "_c", "_r", "_a"))
"""Stats that become flows and steps, not arguments."""

HIDDEN = frozenset(("_src", "source_stack", "memory_access_breakdown"))
"""Stats that are not read: stacks of the program's source and tables per operation."""

PATHS = frozenset(("source",))
"""Stats that hold paths; only the file name is kept."""

_MOST_PS = 1 << 61
INT64_MIN = np.iinfo(np.int64).min


class PlaneRows:
    """Adds events of planes of an XSpace to a trace.

    Attributes:
        links: flows between rows, drawn once all planes are read.
    """

    def __init__(self, build: TraceBuilder, space: Space, device: Device) -> None:
        self.build, self.space, self.device = build, space, device
        self.links = Links()
        recorded = space.recorded_ns
        self._base = recorded[0] if recorded else 0
        self._known: dict[int, list[Operation]] = {}

    def is_ours(self, plane: Plane) -> bool:
        """Whether a plane is of the device that is read."""
        return self.is_device(plane) and owner(plane.name) == self.device.number

    def is_device(self, plane: Plane) -> bool:
        """Whether a plane is of any device of the file."""
        if kind_of(plane.name) is Kind.CHIP:
            return owner(plane.name) in self.device.numbers
        is_kind = kind_of(plane.name) is Kind.DEVICE and device_kind(plane.name) == self.device.kind
        return is_kind and owner(plane.name) in self.device.numbers

    @cached_property
    def _programs(self) -> Programs:
        return programs([p for p in self.space.planes if kind_of(p.name) is Kind.NOTES])

    def names(self, plane: Plane) -> I32:
        """String ids of the names of all events; an event of unknown kind is "event <id>"."""
        build = self.build
        of_kind = np.array([*map(build.string, plane.kinds), -1], np.int32)
        name_ids: I32 = of_kind[plane.kind_of]
        nameless = np.flatnonzero(name_ids < 0)
        ids = plane.metadata_id[nameless].tolist()
        name_ids[nameless] = [build.string(f"event {i}") for i in ids]
        return name_ids

    def times(self, plane: Plane) -> tuple[I64, I64, Mask, Mask]:
        """Starts and durations in ns, whether a time can be used, and whether it was rounded.

        Starts and ends are rounded half up; a duration is the difference of the two.
        """
        stamps = np.array([line.timestamp_ns for line in plane.lines] or [0], np.int64)
        near = (stamps >= -FARTHEST_NS) & (stamps <= FARTHEST_NS - self._base)
        base = np.where(is_unix_ns(stamps), 0, self._base) + np.where(near, stamps, 0)
        offset, length = plane.offset_ps, plane.duration_ps
        usable = (np.abs(offset) < _MOST_PS) & (np.abs(length) < _MOST_PS) & near[plane.line_of]
        usable &= (offset > INT64_MIN) & (length > INT64_MIN)  # whose absolute value is negative
        start_ps, end_ps = np.where(usable, offset, 0), np.where(usable, offset + length, 0)
        start, end = (start_ps + 500) // 1000, (end_ps + 500) // 1000
        rounded = (start_ps % 1000 != 0) | (end_ps % 1000 != 0)
        return base[plane.line_of] + start, np.where(length < 0, -1, end - start), usable, rounded

    def added(
        self,
        plane: Plane,
        events: NDArray[np.intp],
        *,
        track: I32,
        op: NDArray[np.int8],
        name: I32,
        step: I32,
    ) -> I64:
        """Add the events ``events`` of a plane.

        Returns:
            The row in the trace of every event of the plane, -1 if it was not added.
        """
        build = self.build
        start, dur, usable, rounded = self.times(plane)
        build.seen("slice", len(events))
        broken = plane.broken[events]
        bad = ~broken & ~usable[events]
        negative = ~broken & ~bad & (dur[events] < 0)
        where = f"plane {plane.name}"
        for code, mask in (
            ("malformed-record", broken),
            ("bad-time", bad),
            ("negative-duration", negative),
        ):
            build.skip(code, where, int(mask.sum()), "slice")
        keep = ~(broken | bad | negative)
        added = events[keep]
        build.skip("stamp-rounded", where, int(rounded[added].sum()))
        build.skip("name-unknown", where, int((plane.kind_of[added] < 0).sum()))
        first_row = build.extend(
            track=track[keep],
            start_ns=start[added],
            dur_ns=dur[added],
            name=name[keep],
            op=op[keep],
            step=step[keep],
            args=self._args(plane, added, op[keep], name[keep]),
        )
        row_of_event = np.full(len(plane), -1, np.int64)
        row_of_event[added] = np.arange(first_row, first_row + len(added))
        return row_of_event

    def _args(self, plane: Plane, events: NDArray[np.intp], op: NDArray[np.int8], name: I32) -> I32:
        """Arguments of events: their stats; for collectives also the operation and the group."""
        build = self.build
        collective = (op == OpClass.COMM) | (op == OpClass.COMM_TASK)
        ids, first = [np.empty(0, np.int32)], 0
        for texts in plane.arguments(events, HIDDEN | LINKS, PATHS):
            for i in np.flatnonzero(collective[first : first + len(texts)]).tolist():
                event = first + i
                members = self._collective(
                    plane, int(events[event]), build.strings[int(name[event])]
                )
                if members:
                    texts[i] = (texts[i][:-1] + b"," if texts[i] else b"{") + members + b"}"
            ids.append(objects(build, texts))
            first += len(texts)
        return np.concatenate(ids)

    def _collective(self, plane: Plane, event: int, name: str) -> bytes:
        """Arguments of a collective, as members of an object."""
        collective = self.operations(plane)[event]
        if not collective.word:
            return b""
        members = b'"Collective name":' + quoted(collective.word)
        program = self._program(plane, event)
        op = self._text(plane, "hlo_op", event) or name
        if op not in program.opcodes:
            return members
        groups = program.groups.get(op, ())
        if len(groups) < 2:  # the groups of an operation hold every device once
            return members + b',"Process Group Name":"all devices"'
        rank = self.build.capture.rank
        own_groups = [group for group in groups if rank in group]
        if len(own_groups) == 1:
            devices = f"devices {format_ranges(own_groups[0])}"
            members += b',"Process Group Name":%b,"Group size":%d' % (
                quoted(devices),
                len(own_groups[0]),
            )
        return members

    def book(self, plane: Plane) -> None:
        """Count the events of a plane that cannot be read or have no time."""
        where = f"plane {plane.name}"
        self.build.skip(
            "kind-not-read", f"{where}: counted without times", int(plane.aggregate.sum())
        )
        for code, count in sorted(plane.damage.items()):
            self.build.skip(code, where, count)
        for name, count in sorted(plane.unread(HIDDEN).items()):
            self.build.skip("metadata-unused", f"stat {name}", count)

    # -- operations of XLA -------------------------------------------------------------------

    def _text(self, plane: Plane, key: str, event: int) -> str:
        codes, table = plane.texts(key)
        return table[codes[event]] if codes[event] >= 0 else ""

    def _program(self, plane: Plane, event: int) -> Program:
        number, present = plane.integers("program_id")
        module = self._text(plane, "hlo_module", event)
        return self._programs.find(int(number[event]) if present[event] else None, module)

    def operations(self, plane: Plane) -> list[Operation]:
        """The operation of XLA that every event of a plane is."""
        if id(plane) in self._known:
            return self._known[id(plane)]
        number, present = plane.integers("program_id")
        texts = [plane.texts(key)[0] for key in ("hlo_category", "hlo_op", "hlo_module")]
        key = combined_key(
            *(codes.astype(np.int64) for codes in texts),
            np.where(present, number, -1),
            plane.kind_of,
        )
        _, first, back = np.unique(key, return_index=True, return_inverse=True)
        table = []
        for event in first.tolist():
            kind = int(plane.kind_of[event])
            if kind < 0:  # nothing says what it is
                table.append(Operation(OpClass.UNCLASSIFIED))
                continue
            name = plane.kinds[kind]
            instruction = self._text(plane, "hlo_op", event) or name
            opcode = self._program(plane, event).opcodes.get(instruction, "")
            table.append(operation(self._text(plane, "hlo_category", event), opcode, name))
        self._known[id(plane)] = known = [table[i] for i in back.tolist()]
        return known

    def classes(self, plane: Plane, events: NDArray[np.intp], background: Mask) -> NDArray[np.int8]:
        """Classes of operations of XLA.

        The start of an asynchronous collective is not counted as communication, nor is its end
        where the line of asynchronous operations (``background``) holds the whole of it.
        """
        known = self.operations(plane)
        ops = np.array([known[i].op for i in events.tolist()], np.int8)
        phases = np.array([known[i].phase for i in events.tolist()], "U8")
        comm = ops == OpClass.COMM
        parts = comm & ~background & (phases == "start")
        done = np.flatnonzero(comm & ~background & (phases == "done"))
        complete = events[comm & background]
        if len(done) and len(complete):
            names = {name: code for code, name in enumerate(dict.fromkeys(plane.kinds))}
            name = np.array([*(names[kind] for kind in plane.kinds), -1], np.int64)[plane.kind_of]
            codes, texts = plane.texts("hlo_op")
            instruction = np.array([*(names.get(text, -2) for text in texts), -2], np.int64)[codes]
            start, dur, _, _ = self.times(plane)
            over = latest(
                instruction[complete], start[complete], name[events[done]], start[events[done]]
            )
            holder = complete[np.maximum(over, 0)]
            inside = (over >= 0) & (start[holder] <= start[events[done]])
            inside &= start[holder] + dur[holder] >= start[events[done]] + dur[events[done]]
            parts[done[inside]] = True
        ops[parts] = OpClass.COMM_TASK
        return ops

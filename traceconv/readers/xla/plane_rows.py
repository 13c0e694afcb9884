"""What the planes of one device have in common: times, names, arguments and collectives."""

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
from traceconv.readers.xla.planes import (
    Device,
    Kind,
    device_kind,
    kind_of,
    owner,
)
from traceconv.readers.xla.space import Plane, Space

HIDDEN = frozenset(
    ("_pt", "_p", "_ct", "_c", "_src", "_r", "_a", "source_stack", "memory_access_breakdown")
)
"""Stats that are no arguments: links, which become arrows, and where the profiler was called."""

PATHS = frozenset(("source",))
"""Stats that are paths of the user."""

_MOST_PS = 1 << 62


class PlaneRows:
    """Adds events of planes of an XSpace to a trace.

    Attributes:
        links: what rows say of each other.
    """

    def __init__(self, build: TraceBuilder, space: Space, device: Device) -> None:
        self.build, self.space, self.device = build, space, device
        self.links = Links()
        recorded = space.recorded_ns
        self._base = recorded[0] if recorded else 0

    def is_ours(self, plane: Plane) -> bool:
        return self.is_device(plane) and owner(plane.name) == self.device.number

    def is_device(self, plane: Plane) -> bool:
        """Whether it is of one of the devices that are ranks."""
        if kind_of(plane.name) is Kind.CHIP:
            return owner(plane.name) in self.device.numbers
        same = kind_of(plane.name) is Kind.DEVICE and device_kind(plane.name) == self.device.kind
        return same and owner(plane.name) in self.device.numbers

    # -- what all planes have in common ------------------------------------------------------

    @cached_property
    def _programs(self) -> Programs:
        return programs([p for p in self.space.planes if kind_of(p.name) is Kind.NOTES])

    def names(self, plane: Plane) -> I32:
        """String ids of the names of all events; those of unknown kinds are made of their id."""
        build, kinds = self.build, plane.kind_of
        of_kind = np.array([build.string(name) for name in plane.kinds] or [0], np.int32)
        found = of_kind[np.maximum(kinds, 0)]
        nameless = np.flatnonzero(kinds < 0)
        ids, back = np.unique(plane.metadata_id[nameless], return_inverse=True)
        made = np.array([build.string(f"event {i}") for i in ids.tolist()] or [0], np.int32)
        found[nameless] = made[back]
        return found

    def times(self, plane: Plane) -> tuple[I64, I64, Mask, Mask]:
        """Starts and durations in ns, whether a time can be used, and whether it was rounded.

        Starts and ends are rounded half up, and durations are what is between them.
        """
        stamps = np.array([line.timestamp_ns for line in plane.lines] or [0], np.int64)
        lines = plane.line_of
        near = (stamps >= -FARTHEST_NS) & (stamps <= FARTHEST_NS - self._base)
        base = np.where(is_unix_ns(stamps), 0, self._base) + np.where(near, stamps, 0)
        offset, length = plane.offset_ps, plane.duration_ps
        usable = (np.abs(offset) < _MOST_PS // 2) & (np.abs(length) < _MOST_PS // 2)
        usable &= near[lines] & (offset > np.iinfo(np.int64).min)
        first = np.where(usable, offset, 0)
        last = np.where(usable, offset + length, 0)
        start, end = (first + 500) // 1000, (last + 500) // 1000
        rounded = (first % 1000 != 0) | (last % 1000 != 0)
        return base[lines] + start, np.where(length < 0, -1, end - start), usable, rounded

    def added(
        self,
        plane: Plane,
        at: NDArray[np.intp],
        *,
        track: I32,
        op: NDArray[np.int8],
        name: I32,
        step: I32,
    ) -> I64:
        """Add the events ``at`` of a plane; for every event of it its row in the trace, else -1."""
        build = self.build
        start, dur, usable, rounded = self.times(plane)
        build.seen("slice", len(at))
        broken = plane.broken[at]
        bad = ~broken & ~usable[at]
        negative = ~broken & ~bad & (dur[at] < 0)
        where = f"plane {plane.name}"
        for code, mask in (
            ("malformed-record", broken),
            ("bad-time", bad),
            ("negative-duration", negative),
        ):
            build.skip(code, where, int(mask.sum()), "slice")
        keep = ~(broken | bad | negative)
        kept = at[keep]
        build.skip("stamp-rounded", where, int(rounded[kept].sum()))
        build.skip("name-unknown", where, int((plane.kind_of[kept] < 0).sum()))
        first = build.extend(
            track=track[keep],
            start_ns=start[kept],
            dur_ns=dur[kept],
            name=name[keep],
            op=op[keep],
            step=step[keep],
            args=self._args(plane, kept, op[keep], name[keep]),
        )
        found = np.full(len(plane), -1, np.int64)
        found[kept] = np.arange(first, first + len(kept))
        return found

    def _args(self, plane: Plane, at: NDArray[np.intp], op: NDArray[np.int8], name: I32) -> I32:
        """Arguments of events: their stats; of collectives also what and among whom they are."""
        build = self.build
        collective = (op == OpClass.COMM) | (op == OpClass.COMM_TASK)
        ids, first = [np.empty(0, np.int32)], 0
        for texts in plane.arguments(at, HIDDEN, PATHS):
            for i in np.flatnonzero(collective[first : first + len(texts)]).tolist():
                event = first + i
                members = self._collective(plane, int(at[event]), build.strings[int(name[event])])
                if members:
                    texts[i] = (texts[i][:-1] + b"," if texts[i] else b"{") + members + b"}"
            ids.append(objects(build, texts))
            first += len(texts)
        return np.concatenate(ids)

    def _collective(self, plane: Plane, event: int, name: str) -> bytes:
        """Arguments of a collective, as members of an object."""
        known = self.operations(plane)[event]
        if not known.word:
            return b""
        members = b'"Collective name":' + quoted(known.word)
        program = self._program(plane, event)
        op = self.text(plane, "hlo_op", event) or name
        if op not in program.opcodes:
            return members
        groups = program.groups.get(op, ())
        if len(groups) < 2:  # the groups of an operation hold every device once
            return members + b',"Process Group Name":"all devices"'
        rank = self.build.capture.rank
        mine = [group for group in groups if rank in group]
        if len(mine) == 1:
            devices = f"devices {format_ranges(mine[0])}"
            members += b',"Process Group Name":%b,"Group size":%d' % (quoted(devices), len(mine[0]))
        return members

    def book(self, plane: Plane) -> None:
        """Book what of a plane cannot be read, or has no time."""
        where = f"plane {plane.name}"
        self.build.skip(
            "kind-not-read", f"{where}: counted without times", int(plane.aggregate.sum())
        )
        for code, count in sorted(plane.damage.items()):
            self.build.skip(code, where, count)

    # -- operations of XLA -------------------------------------------------------------------

    def text(self, plane: Plane, key: str, event: int) -> str:
        codes, table = plane.texts(key)
        return table[codes[event]] if codes[event] >= 0 else ""

    def _program(self, plane: Plane, event: int) -> Program:
        number, there = plane.integers("program_id")
        module = self.text(plane, "hlo_module", event)
        return self._programs.find(int(number[event]) if there[event] else None, module)

    def operations(self, plane: Plane) -> list[Operation]:
        """What every event of a plane does, if it is an operation of XLA."""
        known = self._known.get(id(plane))
        if known is not None:
            return known
        category, categories = plane.texts("hlo_category")
        op, ops = plane.texts("hlo_op")
        module, modules = plane.texts("hlo_module")
        number, there = plane.integers("program_id")
        kinds = plane.kind_of
        key = combined_key(
            *(c.astype(np.int64) for c in (category, op, module)),
            np.where(there, number, -1),
            kinds,
        )
        _, first, back = np.unique(key, return_index=True, return_inverse=True)
        table = []
        for event in first.tolist():
            if kinds[event] < 0:  # nothing says what it is
                table.append(Operation(OpClass.OTHER))
                continue
            name = plane.kinds[kinds[event]]
            own = ops[op[event]] if op[event] >= 0 else name
            program = self._programs.find(
                int(number[event]) if there[event] else None,
                modules[module[event]] if module[event] >= 0 else "",
            )
            stated = categories[category[event]] if category[event] >= 0 else ""
            table.append(operation(stated, program.opcodes.get(own, ""), name))
        found = [table[i] for i in back.tolist()]
        self._known[id(plane)] = found
        return found

    @cached_property
    def _known(self) -> dict[int, list[Operation]]:
        return {}

    def classes(self, plane: Plane, at: NDArray[np.intp], background: Mask) -> NDArray[np.int8]:
        """Classes of operations of XLA.

        The start of an asynchronous collective is no communication, and neither is its end where it
        is within the whole of it on the line of those.
        """
        found = self.operations(plane)
        ops = np.array([found[i].op for i in at.tolist()], np.int8)
        phases = np.array([found[i].phase for i in at.tolist()] or [""])
        comm = (ops == OpClass.COMM) & ~background
        parts = comm & (phases[: len(at)] == "start")
        done = np.flatnonzero(comm & (phases[: len(at)] == "done"))
        whole = np.flatnonzero((ops == OpClass.COMM) & background)
        if len(done) and len(whole):
            codes, _, table = self._own_names(plane)
            start, dur, _, _ = self.times(plane)
            ends, _ = plane.texts("hlo_op")
            key = np.array([table.get(i, -2) for i in ends[at[whole]].tolist()], np.int64)
            over = latest(key, start[at[whole]], codes[at[done]], start[at[done]])
            holder = at[whole][np.maximum(over, 0)]
            inside = (over >= 0) & (start[holder] <= start[at[done]])
            inside &= start[holder] + dur[holder] >= start[at[done]] + dur[at[done]]
            parts[done[inside]] = True
        ops[parts] = OpClass.COMM_TASK
        return ops

    def _own_names(self, plane: Plane) -> tuple[I64, list[str], dict[int, int]]:
        """Codes of the names of events; and by the code of a text of ``hlo_op`` that of the same
        name, where there is one."""
        names = plane.kinds
        number: dict[str, int] = {}
        of_kind = np.array([number.setdefault(n, len(number)) for n in names] or [0], np.int64)
        codes = np.where(plane.kind_of >= 0, of_kind[np.maximum(plane.kind_of, 0)], -1)
        _, texts = plane.texts("hlo_op")
        return codes, names, {i: number[t] for i, t in enumerate(texts) if t in number}

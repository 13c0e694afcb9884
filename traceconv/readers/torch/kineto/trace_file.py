"""One file of a PyTorch trace: its lanes, and what is done to rows before they are added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX
from traceconv.core.json_text import NOT_JSON, Repeated
from traceconv.core.model import I32, I64, Layer, OpClass, Track, TrackKind
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.shared.collective_names import lane_title
from traceconv.readers.shared.gpu_kernels import note_devices
from traceconv.readers.shared.numbers import count_of
from traceconv.readers.shared.profiler_messages import book_messages
from traceconv.readers.shared.trace_events.timeline import Incoming, Probes, read_events
from traceconv.readers.torch.kineto.header import BASE, ProcessGroup, only_group, process_groups
from traceconv.readers.torch.kineto.lanes import Classifier, Sort

_AT_ONCE = 1 << 24
_SPARSE = 16


def texts_of(build: TraceBuilder, rows: Incoming, chosen: NDArray[np.intp]) -> list[bytes]:
    """The arguments of some rows as JSON, ``b"{}"`` for rows without.

    Bytes that are near each other are fetched in one go: most are, as they are read in order.
    """
    address, length = rows.address[chosen], rows.length[chosen]
    present = length > 0
    if not present.any():
        return [b"{}"] * len(chosen)
    low, high = int(address[present].min()), int((address + length)[present].max())
    size = int(length[present].sum())
    if high - low <= min(_AT_ONCE, _SPARSE * size):
        text, start = build.stored(low, high - low), (address - low).tolist()
        return [
            text[offset : offset + n] if n else b"{}"
            for offset, n in zip(start, length.tolist(), strict=True)
        ]
    pairs = zip(address.tolist(), length.tolist(), strict=True)
    return [build.stored(offset, n) if n else b"{}" for offset, n in pairs]


_BYTES = {
    **dict.fromkeys(("complexdouble",), 16),
    **dict.fromkeys(("double", "long", "complexfloat", "float64", "int64", "uint64"), 8),
    **dict.fromkeys(("float", "int", "complexhalf", "float32", "int32", "uint32"), 4),
    **dict.fromkeys(("half", "bfloat16", "short", "float16", "int16", "uint16"), 2),
    **dict.fromkeys(("byte", "char", "bool", "int8", "uint8"), 1),
}
"""Size of an element by ``dtype``; 8-bit floats go by their prefix."""

_SHARES = (
    (lazy_regex("allreduce"), lambda n: 2 * (n - 1) / n),
    (lazy_regex("allgather|reducescatter|alltoall|gather|scatter"), lambda n: (n - 1) / n),
    (lazy_regex("broadcast|reduce|send|recv"), lambda n: 1.0),
)


class Facts(msgspec.Struct, rename={
    "collective": "Collective name",
    "sent": "In msg nelems",
    "received": "Out msg nelems",
    "dtype": "dtype",
    "ranks": "Group size",
    "group": "Process Group Name",
    "description": "Process Group Description",
    "known_bytes": "bytes",
}):  # fmt: skip
    """The collective of a kernel, from its arguments."""

    collective: Any = None
    sent: Any = None
    received: Any = None
    dtype: Any = None
    ranks: Any = None
    group: Any = None
    description: Any = None
    known_bytes: Any = None


_decode = msgspec.json.Decoder(Facts).decode
_STATED = b'"Collective name"'


class _Placed(msgspec.Struct, frozen=True):
    """The track of a collective's kernel, its bytes, -1 if they are unknown or stated already, and
    the share of these that a rank moves."""

    track: int
    size: int = -1
    share: float = 0.0

    def more(self, dur_ns: int) -> bytes:
        """Further members for the arguments, with the brace that closes them."""
        members = b', "bytes": %d' % self.size
        if self.share > 0 and dur_ns > 0:
            members += b', "bus bandwidth (GB/s)": %.3f' % (self.size / dur_ns * self.share)
        return members + b"}"


class Collectives(msgspec.Struct):
    """Moves kernels that communicate to the lane of their process group, with size and bandwidth.

    PyTorch (2.2 and later, NCCL) copies what it knows of a collective into the arguments of its
    kernel. The size is that of the larger side: what is gathered, what is to be scattered.
    Bandwidth is that of the bus, as nccl-tests define it: bytes per time, times what the algorithm
    makes each rank move. A kernel also waits for its peers, so that is what was reached, not what
    was possible.

    Attributes:
        groups: what the file's head says of process groups, by name.
        device_lanes: the tracks that kernels are on, by number.
    """

    build: TraceBuilder
    device_lanes: Mapping[int, Track]
    groups: Mapping[str, ProcessGroup] = msgspec.field(default_factory=dict)
    _known: Repeated[_Placed] = msgspec.field(default_factory=Repeated)

    def place(self, rows: Incoming, chosen: NDArray[np.intp]) -> None:
        """Give the chosen rows their tracks and more arguments."""
        columns = (rows.name, rows.track, rows.dur_ns, rows.address, rows.length)
        cells = [column[chosen].tolist() for column in columns]
        tracks, addresses, lengths = [], [], []
        for text, name, track, dur_ns, address, length in zip(
            texts_of(self.build, rows, chosen), *cells, strict=True
        ):
            try:
                facts = _decode(text)
            except NOT_JSON:
                facts = Facts()
            # most repeat the arguments of others
            values = msgspec.structs.astuple(facts)
            location = self._known.of(
                (name, track, *values), self._place_collective, facts, name, track
            )
            if location.size >= 0:
                longer = text.rstrip()[:-1] + location.more(dur_ns)
                address, length = self.build.spill(longer), len(longer)
            tracks.append(location.track)
            addresses.append(address)
            lengths.append(length)
        rows.track[chosen], rows.address[chosen] = tracks, addresses
        rows.length[chosen] = lengths

    def stated(self, rows: Incoming, chosen: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of the chosen rows that are collectives by their arguments, whatever their names
        say. The first row of a name on a stream decides whether the others are looked at."""
        place = rows.name[chosen].astype(np.int64) << 32 | rows.track[chosen]
        _, first, back = np.unique(place, return_index=True, return_inverse=True)
        chosen = chosen[self._states(rows, chosen[first])[back]]
        return chosen[self._states(rows, chosen)]

    def _states(self, rows: Incoming, chosen: NDArray[np.intp]) -> NDArray[np.bool_]:
        return np.array([_STATED in text for text in texts_of(self.build, rows, chosen)], bool)

    def _place_collective(self, facts: Facts, name: int, track: int) -> _Placed:
        title = lane_title(self.build.strings[name])
        lane = self._track(facts, self.device_lanes[track], title)
        elements = max(count_of(facts.sent, INT64_MAX), count_of(facts.received, INT64_MAX))
        kind = str(facts.dtype).lower()
        element_bytes = 1 if kind.startswith("float8") else _BYTES.get(kind, -1)
        if min(elements, element_bytes) < 0 or facts.known_bytes is not None:
            return _Placed(lane)
        ranks = count_of(facts.ranks, INT64_MAX)
        if ranks < 0:
            ranks = self.groups.get(str(facts.group), ProcessGroup()).size
        called = str(facts.collective).lower().replace("_", "")
        shares = (share(ranks) for pattern, share in _SHARES if ranks > 1 and pattern.match(called))
        return _Placed(lane, elements * element_bytes, next(shares, 0.0))

    def _track(self, facts: Facts, stream: Track, title: str) -> int:
        """The lane of the process group; of the stream, if no group is named."""
        name = communicator = ""
        if isinstance(facts.group, str | int) and facts.group != "":
            key = str(facts.group)
            description = facts.description
            if not isinstance(description, str) or description in ("", "undefined"):
                description = self.groups.get(key, ProcessGroup()).description
            name = f"Group {key}" + (f" ({description})" if description else "")
            communicator = name if description or not key.isdecimal() else ""
        return self.build.track(
            Layer.COMM,
            name or stream.name,
            stream.group,
            title,
            device=stream.device,
            device_kind=stream.device_kind,
            stream=-1 if name else stream.stream,
            communicator=communicator,
        )


class Launches(msgspec.Struct):
    """Draws flows from calls to what they made the device do, by their correlation numbers.

    The profiler also records both ends of every launch (``ac2g``). These are bound by time, and in
    files of whole microseconds two calls may begin together; a call that launches nothing has an
    end, and all but the first kernel of a replayed graph have no start. Correlation numbers have
    none of these problems, and filtered files keep them.

    Attributes:
        tasks_seen: what a device did, with or without a number.
    """

    build: TraceBuilder
    tasks_seen: int = 0
    _calls: list[_Launched] = msgspec.field(default_factory=list)
    _tasks: list[_Launched] = msgspec.field(default_factory=list)

    def note(self, rows: Incoming, calls: NDArray[np.bool_], tasks: NDArray[np.bool_]) -> None:
        """Take in a batch of rows whose graph probe is the correlation number."""
        self.tasks_seen += int(tasks.sum())
        for selected, launched in ((calls, self._calls), (tasks, self._tasks)):
            chosen = np.flatnonzero(selected & (rows.graph > 0)).astype(np.int32)
            if len(chosen):
                launched.append(
                    (rows.graph[chosen], chosen + np.int32(rows.first), rows.start_ns[chosen])
                )

    @property
    def numbered(self) -> bool:
        """Whether flows can be drawn by number; also if there is nothing to draw."""
        return bool(self._tasks) or not self.tasks_seen

    def draw(self) -> None:
        """Add the flows; a task whose call is not in the file is booked.

        Numbers are used again when a profiler starts anew: of several calls with a number, the
        last one before the task launched it.
        """
        number, task, start = _joined(self._tasks)
        if not len(task):
            return
        called, call, begun = _joined(self._calls)
        is_task = np.repeat((False, True), (len(call), len(task)))
        numbers, rows = np.concatenate((called, number)), np.concatenate((call, task))
        order = np.lexsort((is_task, np.concatenate((begun, start)), numbers))
        numbers, rows, is_task = numbers[order], rows[order], is_task[order]
        position = np.arange(len(rows))
        before = np.maximum.accumulate(np.where(is_task, -1, position))
        behind = np.minimum.accumulate(np.where(is_task, len(rows), position)[::-1])[::-1]
        behind = np.minimum(behind, len(rows) - 1)
        # clocks differ: a task may begin before the only call that can have launched it
        has_before = (before >= 0) & (numbers[before] == numbers)
        chosen = np.where(has_before, before, behind)
        matched = is_task & ~is_task[chosen] & (numbers[chosen] == numbers)
        self.build.seen("flow", len(task))
        missing = len(task) - int(matched.sum())
        self.build.skip("flow-without-end", "no launching call", missing, "flow")
        name = self.build.string("launch")
        tasks = np.flatnonzero(matched)
        tasks = tasks[np.argsort(rows[tasks], kind="stable")]
        self.build.flows(src=rows[chosen[tasks]], dst=rows[tasks], name=name)


_Launched = tuple[I32, I32, I64]
"""Correlation number, row and start of some rows."""


def _joined(parts: list[_Launched]) -> _Launched:
    none = np.empty(0, np.int32)
    numbers, rows, starts = zip(*parts, strict=True) if parts else ([none], [none], [none])
    return np.concatenate(numbers), np.concatenate(rows), np.concatenate(starts).astype(np.int64)


_DEVICES = {0: "CPU", 1: "GPU", 6: "GPU", 12: "XPU", 15: "HPU", 19: "MTIA"}
"""Device types as PyTorch numbers them (CUDA and HIP are both GPUs)."""


class Allocation(msgspec.Struct, gc=False, rename={
    "allocated": "Total Allocated",
    "reserved": "Total Reserved",
    "device": "Device Id",
    "type": "Device Type",
}):  # fmt: skip
    """The totals in a record of an allocation; numbers may be text."""

    allocated: Any = None
    reserved: Any = None
    device: Any = None
    type: Any = None


_allocation = msgspec.json.Decoder(Allocation).decode


def memory_counters(build: TraceBuilder, rows: Incoming, chosen: NDArray[np.intp]) -> None:
    """Add the totals in the chosen rows (allocations, ``[memory]``) as counter samples.

    Records since 2022 give the totals after each change, per device; older ones only the change.
    The records themselves stay instants.
    """
    samples: dict[int, list[tuple[int, int]]] = {}
    times = rows.start_ns[chosen].tolist()
    for time_ns, text in zip(times, texts_of(build, rows, chosen), strict=True):
        try:
            allocation = _allocation(text)
        except NOT_JSON:
            continue
        type_, device = count_of(allocation.type, INT64_MAX), count_of(allocation.device, INT64_MAX)
        kind = _DEVICES.get(type_, f"Device type {type_}" if type_ >= 0 else "Device")
        device = -1 if kind == "CPU" else device
        owner = f"{kind} {device}" if device >= 0 else kind
        for measure, total in (
            ("Allocated", allocation.allocated),
            ("Reserved", allocation.reserved),
        ):
            if (value := count_of(total, INT64_MAX)) >= 0:
                track = build.track(
                    Layer.COUNTER,
                    f"{owner} {measure}",
                    "Memory",
                    unit="B",
                    kind=TrackKind.ALLOCATOR,
                    device=device,
                    device_kind=kind,
                )
                samples.setdefault(track, []).append((time_ns, value))
    for track, pairs in samples.items():
        start_ns, values = np.array(pairs, np.int64).T
        build.seen("counter", len(pairs))
        build.counters(track=track, start_ns=start_ns, value=values.astype(np.float64))


_PROBES = Probes(graph=("correlation",), type="")
_TASKS = (Sort.KERNEL, Sort.COPY, Sort.SYNC)


USED_KEYS = {BASE, "distributedInfo", "deviceProperties", "host_name", "ERROR", "WARNING"}


class File:
    """Reads one file into ``build``.

    Args:
        is_unix: its stamps count from 1970, whatever base it names.
        part: prefix of the process ids of the rank, in a file of several ranks; "" reads all.
        shift_ns: added to all stamps.
    """

    def __init__(
        self, build: TraceBuilder, is_unix: bool, part: str = "", shift_ns: int = 0
    ) -> None:
        self._build, self._is_unix, self._shift_ns = build, is_unix, shift_ns
        self._launches = Launches(build)
        self._classify = Classifier(build, lambda: not self._launches.numbered, part)
        self._collectives = Collectives(build, self._classify.tracks)

    def read(self, source: Source, name: str) -> None:
        """Read it.

        Raises:
            MalformedInputError: nothing in it can be read as trace events.
        """
        build = self._build
        read_events(
            source, name, build, self._classify, _PROBES, self._begin, self._revise,
            used_keys=USED_KEYS | {"traceEvents"},
        )  # fmt: skip
        self._launches.draw()
        self._identify()
        hints = build.hints
        hints.range_names += sorted(self._classify.annotations.keys() - hints.range_names)
        hints.ranges_projected |= Sort.PROJECTION in self._classify.sorts.values()

    def _begin(self, keys: Mapping[str, Any]) -> int:
        """Use the keys around the events; the time to add to stamps, ns. Messages of the profiler
        are counted."""
        self._collectives.groups = process_groups(keys.get("distributedInfo"))
        self._classify.group = only_group(keys.get("distributedInfo"))
        logs = [keys.get(level) or [] for level in ("ERROR", "WARNING")]
        book_messages(self._build, *(log if isinstance(log, list) else [log] for log in logs))
        note_devices(self._build.hints, keys.get("deviceProperties"))
        base_ns = count_of(keys.get(BASE), INT64_MAX)
        based = 0 <= base_ns <= INT64_MAX and not self._is_unix
        return (base_ns if based else 0) + self._shift_ns

    def _revise(self, rows: Incoming) -> None:
        """Look into the rows that need it. The graph probe holds correlation numbers."""
        numbered = self._classify.sorts
        sorts = np.zeros(max(numbered) + 1, np.int8)
        sorts[list(numbered)] = list(numbered.values())
        sort_of_row = sorts[rows.track]
        kernels = sort_of_row == Sort.KERNEL
        tasks = np.isin(sort_of_row, _TASKS) & ~rows.instant
        self._launches.note(rows, (sort_of_row == Sort.CALL) & ~rows.instant, tasks)
        rows.graph[:] = -1
        others = np.flatnonzero(kernels & (rows.op == OpClass.COMPUTE) & ~rows.instant)
        rows.op[self._collectives.stated(rows, others)] = OpClass.COMM
        communicating = np.flatnonzero(kernels & (rows.op == OpClass.COMM) & ~rows.instant)
        if len(communicating):
            self._collectives.place(rows, communicating)
        on_cpus = np.flatnonzero((sort_of_row == Sort.OPERATOR) & (rows.op == OpClass.COMM))
        if len(on_cpus):
            group = self._classify.group
            rows.track[on_cpus] = self._build.track(
                Layer.COMM, group, title="Gloo", device_kind="CPU", communicator=group
            )
        marks = np.flatnonzero((sort_of_row == Sort.MEMORY) & rows.instant)
        if len(marks):
            memory_counters(self._build, rows, marks)

    def _identify(self) -> None:
        """Say of the capture which process and device it is, where that is certain by now."""
        processes, capture = self._classify.processes, self._build.capture
        if not processes:
            return
        pid = count_of(processes.main, INT64_MAX)
        device = count_of(processes.devices[0], INT64_MAX) if len(processes.devices) == 1 else -1
        self._build.capture = replace(
            capture,
            pid=pid if capture.pid < 0 else capture.pid,
            device=device if capture.device < 0 else capture.device,
        )

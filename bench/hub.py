"""XLA's and ROCm's captures in the suite: inputs, the plain scripts they are compared with, rows.

    python -m bench.hub generate xplane|rocpd OUT --events 250000
    python -m bench.hub xplane IN.xplane.pb OUT      protobuf's classes, TraceProtoBuilder
    python -m bench.hub rocpd IN.db OUT              sqlite3, fetchall, TraceProtoBuilder

Nothing in the inputs was ever measured; their groups are those of :mod:`bench.generate_gpu`, with
shorter ranges of the host, so that these nest. Of a
group, the XSpace has an operation of a TPU's core and the call of the host that launched it, the
database two ranges of the host and a kernel or a copy. The scripts write every slice with its
arguments, and of the database an arrow per launch; they show no steps and no overlap.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from bench.generate_gpu import BASE_NS, KERNELS, OPS, PID, STEP_GROUPS, groups
from bench.measure import run
from bench.naive import Tracks, add_argument, add_event
from bench.rows import PYTHON, TIERS, Row, Suite, native_built, ratio

SHARE = 4
"""The captures have one event for so many of the large one."""

EVENTS = {"xplane": 2, "rocpd": 3}
"""Slices of a group."""


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.hub")
    parser.add_argument("what", choices=("generate", "xplane", "rocpd"))
    parser.add_argument("paths", nargs=2)
    parser.add_argument("--events", type=int, default=250_000)
    given = parser.parse_args(argv)
    first, second = given.paths
    if given.what == "generate":
        count = max(1, given.events // EVENTS[first])
        {"xplane": generate_xplane, "rocpd": generate_rocpd}[first](Path(second), count)
    else:
        peer = {"xplane": xplane, "rocpd": rocpd}[given.what]
        Path(second).write_bytes(peer(first))
    return 0


def add(suite: Suite, folder: Path, events: int) -> None:
    """Generate both captures, and add what reads them."""
    for kind, ending in (("xplane", "xplane.pb"), ("rocpd", "db")):
        path = folder / f"hub.{ending}"
        words = ("generate", kind, str(path), "--events", str(events // SHARE))
        run([PYTHON, "-m", "bench.hub", *words])
        suite.add(
            f"naive {kind}", PYTHON, "-m", "bench.hub", kind, str(path), out=f"{kind}.pftrace"
        )
        for tier, switch in TIERS.items():
            convert = (PYTHON, "-m", "traceconv", "convert", str(path), "-q", "-o")
            env = {"TRACECONV_NATIVE": switch}
            job = suite.add(
                f"{tier}: {kind} convert", *convert, out=f"{tier}-{kind}.pftrace", env=env
            )
            job.note = "" if tier != "native" or native_built() else "not built"


def rows(suite: Suite) -> list[Row]:
    """The rows of the table."""

    def over(kind: str, of: str) -> Callable[[str], float | None]:
        return lambda tier: ratio(
            suite.of(f"naive {kind}", of), suite.of(f"{tier}: {kind} convert", of)
        )

    return [
        Row("xplane convert: speed over protobuf script", 1.0, True, over("xplane", "cpu")),
        Row("xplane convert: memory of script over ours", 2.0, True, over("xplane", "anonymous")),
        Row("rocpd convert: speed over sqlite3 script", 1.5, True, over("rocpd", "cpu")),
        Row("rocpd convert: memory of script over ours", 4.0, True, over("rocpd", "anonymous")),
    ]


# -- XLA --------------------------------------------------------------------------------------

_FIELDS = {
    "XSpace": "1 planes *XPlane, 4 hostnames *string",
    "XPlane": "1 id int64, 2 name string, 3 lines *XLine, 4 kinds *Kind, 5 keys *Key, "
    "6 stats *XStat",
    "Kind": "1 key int64, 2 value XEventMetadata",
    "Key": "1 key int64, 2 value XStatMetadata",
    "XLine": "1 id int64, 2 name string, 3 timestamp_ns int64, 4 events *XEvent",
    "XEvent": "1 metadata_id int64, 2 offset_ps int64, 3 duration_ps int64, 4 stats *XStat",
    "XStat": "1 metadata_id int64, 2 double_value double, 3 uint64_value uint64, "
    "4 int64_value int64, 5 str_value string, 6 bytes_value bytes, 7 ref_value uint64",
    "XEventMetadata": "1 id int64, 2 name string, 4 display_name string, 5 stats *XStat",
    "XStatMetadata": "1 id int64, 2 name string",
}
"""Messages of an XSpace, as far as they are used; * is repeated."""


@cache
def message(name: str) -> Any:
    """The class of a message, by protobuf itself."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="xspace.proto", package="x", syntax="proto3")
    kinds = {k: getattr(file.message_type.add().field.add(), f"TYPE_{k.upper()}")
             for k in ("int64", "uint64", "double", "string", "bytes")}  # fmt: skip
    del file.message_type[:]
    for title, fields in _FIELDS.items():
        found = file.message_type.add(name=title)
        for field in fields.split(", "):
            number, word, kind = field.split()
            entry = found.field.add(name=word, number=int(number))
            entry.label = 3 if kind.startswith("*") else 1
            kind = kind.removeprefix("*")
            if kind in kinds:
                entry.type = kinds[kind]
            else:
                entry.type, entry.type_name = entry.TYPE_MESSAGE, f".x.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"x.{name}"))


class _Plane:
    """A plane that is filled."""

    def __init__(self, space: Any, number: int, name: str) -> None:
        self.plane = space.planes.add(id=number, name=name)
        self._kinds: dict[str, int] = {}
        self._keys: dict[str, int] = {}

    def kind(self, name: str, display: str = "", **stats: int | str) -> int:
        """The number of a kind of events."""
        if name not in self._kinds:
            number = self._kinds[name] = len(self._kinds) + 1
            entry = self.plane.kinds.add(key=number).value
            entry.id, entry.name, entry.display_name = number, name, display
            self.stats(entry, stats)
        return self._kinds[name]

    def stats(self, of: Any, values: dict[str, int | str]) -> None:
        """Add stats to an event or to a kind."""
        for key, value in values.items():
            if key not in self._keys:
                self._keys[key] = len(self._keys) + 1
                entry = self.plane.keys.add(key=self._keys[key]).value
                entry.id, entry.name = self._keys[key], key
            stat = of.stats.add(metadata_id=self._keys[key])
            setattr(stat, "int64_value" if isinstance(value, int) else "str_value", value)


def generate_xplane(path: Path, count: int) -> None:
    """Write the profile of a host with one core of a TPU."""
    space = message("XSpace")(hostnames=["host-0"])
    core, host = _Plane(space, 2, "/device:TPU:0"), _Plane(space, 1, "/host:CPU")
    titles = ("Steps", "XLA Modules", "XLA Ops")
    steps, modules, ops = (core.plane.lines.add(id=i, name=n) for i, n in enumerate(titles, 1))
    main_thread = host.plane.lines.add(id=PID, name=f"main/{PID}")
    first = last = step = 0
    for group in groups(count):
        if group.number % STEP_GROUPS == 0:
            if group.number:
                _step(core, steps, modules, step, first, last)
            first, step = group.device - 500, step + 1
        last = group.device + group.busy
        name = f"fusion.{group.number % 60}"
        category = "all-reduce" if group.kind == "collective" else "fusion"
        number = core.kind(
            f"%{category}.{group.number % 60} = f32[1024]{{0}} custom-call()",
            name if category == "fusion" else f"all-reduce.{group.number % 60}",
            hlo_category=category, program_id=77, bytes_accessed=4096,
        )  # fmt: skip
        event = ops.events.add(
            metadata_id=number, offset_ps=group.device * 1000, duration_ps=group.busy * 1000
        )
        own: dict[str, int | str] = {
            "group_id": step, "device_offset_ps": group.device * 1000,
            "device_duration_ps": group.busy * 1000, "flops": group.number % 997,
        }  # fmt: skip
        core.stats(event, own)
        call = main_thread.events.add(
            metadata_id=host.kind(OPS[group.number % len(OPS)]),
            offset_ps=group.start * 1000, duration_ps=group.length // 3 * 1000,
        )  # fmt: skip
        host.stats(call, {"index": group.number, "source": "synthetic"})
    _step(core, steps, modules, step, first, last)
    for line in (*core.plane.lines, *host.plane.lines):
        line.timestamp_ns = BASE_NS
    path.write_bytes(space.SerializeToString())


def _step(core: _Plane, steps: Any, modules: Any, number: int, first: int, last: int) -> None:
    for line, name in ((steps, str(number)), (modules, "jit_train_step(77)")):
        event = line.events.add(
            metadata_id=core.kind(name), offset_ps=first * 1000, duration_ps=(last - first) * 1000
        )
        core.stats(event, {"group_id": number, "run_id": number})


def xplane(path: str) -> bytes:
    """The bytes of a Perfetto trace of a profile: lines as tracks, stats as arguments."""
    from perfetto.trace_builder.proto_builder import (  # type: ignore[import-untyped]
        TraceProtoBuilder,
    )

    space = message("XSpace").FromString(Path(path).read_bytes())
    base = min(line.timestamp_ns for plane in space.planes for line in plane.lines)
    trace = TraceProtoBuilder()
    tracks = Tracks(trace, {})
    for plane in space.planes:
        kinds = {entry.key: entry.value for entry in plane.kinds}
        keys = {entry.key: entry.value.name for entry in plane.keys}
        for line in plane.lines:
            found = []
            for event in line.events:
                start = line.timestamp_ns - base + event.offset_ps // 1000
                kind = kinds[event.metadata_id]
                stats = {
                    keys[stat.metadata_id]: stat.str_value or stat.int64_value
                    for stat in (*kind.stats, *event.stats)
                }
                name = kind.display_name or kind.name
                found.append((start, start + event.duration_ps // 1000, name, stats, ()))
            _add_slices(trace, tracks.add(plane.name, line.name), found)
    written: bytes = trace.serialize()
    return written


Slice = tuple[int, int, str, dict[str, Any], Any]
"""Start, end, name, arguments, numbers of arrows."""


def _add_slices(trace: Any, track: int, found: list[Slice]) -> None:
    """Begin and end packets of one lane, in the order in which they nest."""
    found.sort(key=lambda one: (one[0], -one[1]))
    ends: list[int] = []
    for start, end, name, arguments, arrows in found:
        while ends and ends[-1] <= start:
            add_event(trace, track, ends.pop(), 2)
        event = add_event(trace, track, start, 1)
        event.name = name
        event.flow_ids.extend(arrows)
        for key, value in arguments.items():
            if value is not None:
                add_argument(event, key, value)
        ends.append(end)
    while ends:
        add_event(trace, track, ends.pop(), 2)


# -- ROCm -------------------------------------------------------------------------------------

_GUID = "00000000-0000-7000-8000-000000000501"
_PLACE = ("nid", "pid", "tid")
TABLES = {
    "metadata": ("tag", "value"),
    "info_node": ("hostname",),
    "info_process": ("nid", "pid", "environment"),
    "info_thread": ("tid", "name", "nid", "pid"),
    "info_agent": ("type", "absolute_index", "type_index", "nid", "pid"),
    "info_kernel_symbol": ("display_name", "arch_vgpr_count", "sgpr_count"),
    "string": ("string",),
    "event": ("category_id", "stack_id", "parent_stack_id", "extdata"),
    "region": ("name_id", "event_id", *_PLACE, "start", "end"),
    "kernel_dispatch": (
        "agent_id", "kernel_id", "dispatch_id", "queue_id", "stream_id", "start", "end",
        "workgroup_size_x", "workgroup_size_y", "workgroup_size_z", "grid_size_x", "grid_size_y",
        "grid_size_z", "event_id", *_PLACE,
    ),
    "memory_copy": (
        "start", "end", "name_id", "dst_agent_id", "src_agent_id", "size", "stream_id", "event_id",
        *_PLACE,
    ),
}  # fmt: skip
"""Tables of a database of schema 3, without ``id`` and ``guid``."""

_TEXT = {
    "tag",
    "value",
    "hostname",
    "environment",
    "name",
    "type",
    "display_name",
    "string",
    "extdata",
}


def generate_rocpd(path: Path, count: int) -> None:
    """Write a database of one process and one GPU, as rocprofv3 does."""
    rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
    api, marks = "HIP_RUNTIME_API_EXT", "MARKER_CORE_RANGE_API"
    copies = "MEMORY_COPY_HOST_TO_DEVICE"
    texts = [api, marks, "KERNEL_DISPATCH", "MEMORY_COPY", "hipLaunchKernel", "hipMemcpyAsync",
             "roctxThreadRangeA", copies]  # fmt: skip
    rows["metadata"] = [("schema_version", "3"), ("guid", _GUID)]
    rows["info_node"] = [("node-a",)]
    rows["info_process"] = [(1, PID, '{"RANK": "0", "WORLD_SIZE": "8"}')]
    rows["info_thread"] = [(PID, "", 1, 1)]
    rows["info_agent"] = [("CPU", 0, 0, 1, 1), ("GPU", 1, 0, 1, 1)]
    kernels = [*KERNELS, "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"]
    rows["info_kernel_symbol"] = [(name, 24, 16) for name in kernels]
    rows["string"] = [(text,) for text in texts]
    number = {text: i for i, text in enumerate(texts, 1)}
    here = (1, 1, 1)

    def event(category: str, stack: int, extra: str = "{}") -> int:
        rows["event"].append((number[category], stack, 0, extra))
        return len(rows["event"])

    for group in groups(count):
        mark, call = 2 * group.number + 1, 2 * group.number + 2
        start, stop = BASE_NS + group.start, BASE_NS + group.start + group.length // 3
        at, end = BASE_NS + group.device, BASE_NS + group.device + group.busy
        name = OPS[group.number % len(OPS)]
        ident = event(marks, mark, f'{{"message": "{name}"}}')
        rows["region"].append((number["roctxThreadRangeA"], ident, *here, start, stop))
        called = number["hipMemcpyAsync" if group.kind == "copy" else "hipLaunchKernel"]
        middle = start + group.length // 9
        ident = event(api, call)
        rows["region"].append((called, ident, *here, middle, middle + group.length // 9))
        if group.kind == "copy":
            ident = event("MEMORY_COPY", call)
            rows["memory_copy"].append((at, end, number[copies], 2, 1, 4096, 1, ident, *here))
            continue
        kernel = len(kernels) if group.kind == "collective" else 1 + group.number % len(KERNELS)
        rows["kernel_dispatch"].append(
            (2, kernel, group.number + 1, 1, 1, at, end, 256, 1, 1, 4096, 1, 1,
             event("KERNEL_DISPATCH", call), *here)
        )  # fmt: skip
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    for table, columns in TABLES.items():
        kinds = ", ".join(f'"{c}" {"TEXT" if c in _TEXT else "INTEGER"}' for c in columns)
        title = f"rocpd_{table}_{_GUID.replace('-', '_')}"
        own = f"id INTEGER PRIMARY KEY, guid TEXT DEFAULT '{_GUID}'"
        database.execute(f'CREATE TABLE "{title}" ({own}, {kinds})')
        names = ", ".join(f'"{c}"' for c in columns)
        marks_ = ", ".join("?" * len(columns))
        database.executemany(f'INSERT INTO "{title}" ({names}) VALUES ({marks_})', rows[table])
    database.commit()
    database.close()


def rocpd(path: str) -> bytes:
    """The bytes of a Perfetto trace of a database's tables."""
    from perfetto.trace_builder.proto_builder import TraceProtoBuilder

    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    database.row_factory = sqlite3.Row
    found: dict[str, list[dict[str, Any]]] = {}
    for (title,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
        name = title.removeprefix("rocpd_").removesuffix(f"_{_GUID.replace('-', '_')}")
        found[name] = [dict(row) for row in database.execute(f'SELECT * FROM "{title}"').fetchall()]
    database.close()
    texts = {row["id"]: row["string"] for row in found["string"]}
    symbols = {row["id"]: row["display_name"] for row in found["info_kernel_symbol"]}
    events = {row["id"]: row for row in found["event"]}
    calls = {events[row["event_id"]]["stack_id"]: row["id"] for row in found["region"]}
    arrows: dict[int, list[int]] = defaultdict(list)
    lanes: dict[tuple[str, str], list[Slice]] = defaultdict(list)
    base = min(row["start"] for row in found["region"])
    for table in ("kernel_dispatch", "memory_copy"):
        for row in found[table]:
            call = calls.get(events[row["event_id"]]["stack_id"])
            own: list[int] = []
            name = symbols[row["kernel_id"]] if "kernel_id" in row else texts[row["name_id"]]
            number = len(arrows) + 1
            if call is not None:
                arrows[call].append(number)
                own = [number]
            lane = lanes["device", f"Stream {row['stream_id']}"]
            lane.append((row["start"] - base, row["end"] - base, name, _arguments(row), own))
    for row in found["region"]:
        event = events[row["event_id"]]
        name, arguments = texts[row["name_id"]], _arguments(row)
        arguments["category"] = texts[event["category_id"]]
        if '"message"' in event["extdata"]:
            name = event["extdata"].split('"')[3]
        lane = lanes["host", f"Thread {row['tid']}"]
        lane.append(
            (row["start"] - base, row["end"] - base, name, arguments, arrows.get(row["id"], ()))
        )
    trace = TraceProtoBuilder()
    tracks = Tracks(trace, {})
    for (group, name), slices in lanes.items():
        _add_slices(trace, tracks.add(group, name), slices)
    written: bytes = trace.serialize()
    return written


_SHOWN = ("dispatch_id", "queue_id", "workgroup_size_x", "grid_size_x", "size", "src_agent_id")


def _arguments(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in _SHOWN if key in row}


if __name__ == "__main__":
    sys.exit(main())

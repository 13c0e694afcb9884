"""Generate captures of XLA and of ROCm: an XSpace, and a database of rocprofv3.

    python -m bench.generate_hub xplane|rocpd OUT --events 250000

Nothing in them was ever measured. The groups of events are those of :mod:`bench.generate_gpu`, with
shorter host ranges, so that these nest. Per group, the XSpace has an operation of a TPU core and
the host call that launched it; the database has two host ranges and a kernel or a copy.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
from functools import cache
from pathlib import Path
from typing import Any

from bench.generate_gpu import BASE_NS, KERNELS, OPS, PID, STEP_GROUPS, groups


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench.generate_hub")
    parser.add_argument("kind", choices=("xplane", "rocpd"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--events", type=int, default=250_000)
    given = parser.parse_args(argv)
    generate, per_group = {"xplane": (generate_xplane, 2), "rocpd": (generate_rocpd, 3)}[given.kind]
    generate(given.path, max(1, given.events // per_group))
    return 0


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


if __name__ == "__main__":
    sys.exit(main())

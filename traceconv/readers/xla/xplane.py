"""XLA's profiler: the XSpace that JAX, TensorFlow and PyTorch/XLA write.

Written by: ``jax.profiler``, ``tf.profiler`` and ``torch_xla``; seen: TensorFlow of 2020, JAX 0.10
            on processors, GPUs (ROCm) and TPU v6e.
Files:      ``<run>/<host>.xplane.pb``, one per host, or any name: protobuf is known by its first
            plane. What the profiler's own viewer makes of it lies beside it and is not read.
Units and clock: picoseconds, from the time of a line, from ``profile_start_time`` (Unix ns); starts
            and ends are rounded half up to the ns. Without that time the clock is unknown. A TPU
            has a clock of its own, too: times are those on the clock of the host, the others are
            arguments (``device_offset_ps``, ``device_duration_ps``).
Rank from:  the device: of processors its number in the job (2048 per process), of others its number
            on the host and that of the host in its name (``...-w-3``); hosts without a number are
            counted in the order of their names, and that is said. One device per host and no such
            name: by the name of the file, as for other readers.
Quirks:     lines of GPUs other than streams, and some of TPUs, say again what is measured
            elsewhere: they are shown among the scopes and never counted (derived_lines). A loop
            contains its body; of an asynchronous collective the start is no communication, its end
            only where the whole is not recorded (tpu_two_hosts). Operations of the CPU backend are
            among the rows of the host's threads (cpu_two_devices). Steps are those of the device,
            if it recorded any, else marks of the host with ``step_num``; which of these work of
            the CPU backend is of, the calls say (:mod:`traceconv.readers.xla.launches`).
Ignored:    stacks of sources, bytes, and paths but for their last part; links that only join an
            operation with its end; the files beside.
Source:     tensorflow.profiler.XSpace and the names of planes and lines in openxla/xla.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain
from traceconv.core.columns import natural_order
from traceconv.core.errors import Issues
from traceconv.core.model import Capture
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.shared.table_kinds import SAME_RUN

if TYPE_CHECKING:
    from traceconv.readers.xla.space import Space

_NAMED = ".xplane.pb"
_RUN = lazy_regex(r"(.*?)plugins/profile/[^/]+/([^/]+)", re.DOTALL)
_WORKER = lazy_regex(r"-w-(\d{1,6})(?:\D|\Z)")
_BESIDE = lazy_regex(
    r"(?:perfetto_trace\.json\.gz|ALL_HOSTS\..*|.*\.SSTABLE|.*\.(?:op_stats|hlo_proto)[^/]*\.pb|"
    r".*\.(?:trace|memory_profile)\.json\.gz|"
    r".*\.(?:input_pipeline|overview_page|kernel_stats|tensorflow_stats|memory_profile)\.pb)"
)
_STRIDES = (131072, 2048)
"""Device numbers of the CPU backend count from so much per process; older JAX used the first."""


class _File(msgspec.Struct, frozen=True):
    """What is known of a file.

    Attributes:
        host:    equal for the files of one host.
        worker:  number of the host in its name, -1 if there is none.
        kind, numbers: of its devices.
        room:    devices the host has, those without events included.
        start_ns: of the recording, None if it is not known.
    """

    name: str
    host: str
    host_name: str
    worker: int
    kind: str
    numbers: tuple[int, ...]
    room: int
    start_ns: int | None


class XplaneReader:
    """Reads XSpace files."""

    name = "xplane"
    title = "XLA profiler (JAX, TensorFlow, PyTorch/XLA)"
    files = "*.xplane.pb"
    order = 345

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per device of every file."""
        files = [self._file(source, name) for name in names if _is_ours(source, name)]
        ranks = _ranks(files, source, issues)
        found = []
        claimed: set[str] = set()
        for file in files:
            folder = PurePosixPath(file.name).parent
            beside = [
                n
                for n in names
                if PurePosixPath(n).parent == folder
                and _BESIDE.fullmatch(PurePosixPath(n).name)
                and n not in claimed
            ]
            claimed |= set(beside)
            for i, number in enumerate(file.numbers):
                found.append(self._capture(source, file, number, ranks, () if i else tuple(beside)))
        return found

    def _file(self, source: Source, name: str) -> _File:
        from traceconv.readers.shared.protobuf_wire import content
        from traceconv.readers.xla.space import space_of

        space = space_of(content(source, name))
        match = _RUN.fullmatch(name)
        stem = PurePosixPath(name).name.removesuffix(_NAMED)
        host = f"{match[1]}{stem}" if match else name.removesuffix(_NAMED)
        texts = (*space.hosts[:1], stem)
        worker = next((int(m[1]) for m in map(_WORKER.search, texts) if m), -1)
        kind, numbers, room = _devices(space)
        recorded = space.recorded_ns
        return _File(
            name, host, space.hosts[0] if space.hosts else stem, worker, kind, numbers, room,
            recorded[0] if recorded else None,
        )  # fmt: skip

    def _capture(
        self,
        source: Source,
        file: _File,
        number: int,
        ranks: Mapping[tuple[str, int], tuple[int, str]],
        beside: tuple[str, ...],
    ) -> Capture:
        from traceconv.readers.xla.planes import Device

        rank, evidence = ranks.get((file.host, number), (None, ""))
        clock = Anchor(Domain.UNIX, evidence="profile_start_time") if file.start_ns else None
        title = source.title(file.name)
        return Capture(
            reader=self.name,
            source=source,
            files=(file.name,),
            rank=rank,
            rank_from=evidence,
            known=beside,
            host=file.host_name,
            device=number,
            clock=clock,
            label=title if len(file.numbers) == 1 else f"{title} ({file.kind} {number})",
            detail=Device(file.kind, number, file.numbers, number == file.numbers[0]),
            uses=dict.fromkeys(beside, SAME_RUN),
        )

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event of one device into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.xla.device_plane import read_device

        read_device(capture, build)


def _is_ours(source: Source, name: str) -> bool:
    if name.endswith((_NAMED, f"{_NAMED}.gz")):
        return True
    head = source.head(name, 512)
    if not head.startswith(b"\n"):
        return False
    from traceconv.readers.xla.space import is_space

    return is_space(head)


def _devices(space: Space) -> tuple[str, tuple[int, ...], int]:
    """Kind and numbers of the devices of a file that did something, and how many there are."""
    from traceconv.readers.xla.planes import Kind, device_kind, kind_of, owner

    planes = [p for p in space.planes if kind_of(p.name) is Kind.DEVICE]
    busy = [p for p in planes if p.has_events()]
    if busy:
        kind = device_kind(busy[0].name)
        every = {owner(p.name) for p in planes if device_kind(p.name) == kind}
        numbers = sorted({owner(p.name) for p in busy if device_kind(p.name) == kind})
        return kind, tuple(numbers), len(every)
    found: set[int] = set()
    for plane in space.planes:
        if kind_of(plane.name) is Kind.HOST:
            ops, _ = plane.texts("hlo_op")
            number, there = plane.integers("device_ordinal")
            found |= set(number[(ops >= 0) & there].tolist())
    found = {n for n in found if 0 <= n < 1 << 31}
    return ("CPU", tuple(sorted(found)), len(found)) if found else ("Host", (-1,), 1)


def _ranks(
    files: Sequence[_File], source: Source, issues: Issues
) -> dict[tuple[str, int], tuple[int, str]]:
    """The rank of every device, by host and number, and what says so."""
    hosts: dict[str, _File] = {}
    for file in files:
        if file.kind == "Host":
            continue
        had = hosts.setdefault(file.host, file)
        numbers = tuple(sorted({*had.numbers, *file.numbers}))
        hosts[file.host] = replace(had, numbers=numbers, room=max(had.room, file.room))
    every = list(hosts.values())
    if every and all(file.kind == "CPU" for file in every):
        return _ranks_of_processes(every)
    room = {f.host: max(f.room, *(n + 1 for n in f.numbers if n < 1 << 16), 1) for f in every}
    if every and all(file.worker >= 0 for file in every):
        most = max(room.values())
        return {
            (f.host, n): (f.worker * most + n, f"host {f.worker}, {f.kind} {n}")
            for f in every
            for n in f.numbers
        }
    if all(len(file.numbers) == 1 for file in every):
        return {}
    found, first = {}, 0
    for file in sorted(every, key=lambda f: natural_order(f.host)):
        for number in file.numbers:
            found[file.host, number] = (first + number, f"{file.kind} {number}")
        first += room[file.host]
    if len(every) > 1:
        issues.add("rank-order", source.label, f"{len(every)} hosts", len(every))
    return found


def _ranks_of_processes(files: Sequence[_File]) -> dict[tuple[str, int], tuple[int, str]]:
    """Ranks of the devices of the CPU backend: their numbers hold that of the process."""
    numbers = [n for file in files for n in file.numbers]
    stride = next((s for s in _STRIDES if max(numbers) >= s), _STRIDES[-1])
    each = max(n % stride for n in numbers) + 1
    return {
        (file.host, n): (n // stride * each + n % stride, f"device_ordinal {n}")
        for file in files
        for n in file.numbers
    }


READER = XplaneReader()

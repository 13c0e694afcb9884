"""XLA's profiler: the XSpace that JAX, TensorFlow and PyTorch/XLA write.

Written by: ``jax.profiler``, ``tf.profiler`` and ``torch_xla``; seen: TensorFlow of 2020, JAX 0.10
            on processors, GPUs (ROCm) and TPU v6e.
Files:      ``<run>/<host>.xplane.pb``, one per host; other names are recognised by the first
            plane. The files that XProf derives from it in the same folder are not read.
Units and clock: picoseconds after the timestamp of a line, which counts from ``profile_start_time``
            (Unix ns); starts and ends are rounded half up to ns. Without that stat the clock is
            unknown. TPU events have times on the host's clock, which are used, and on the chip's,
            which become arguments (``device_offset_ps``, ``device_duration_ps``).
Rank from:  the device. CPU devices are numbered per job (2048 per process); other devices by their
            number on the host and the number in the host's name (``...-w-3``). Hosts without a
            number count in the order of their names, with a warning. A file with one device and no
            such name takes its rank from the file name.
Quirks:     GPU lines other than streams, and some TPU lines, repeat what other lines measure: they
            are shown as scopes and never counted (derived_lines). Loops contain their body. The
            start of an asynchronous collective is not communication, its end only where the whole
            is not recorded (tpu_two_hosts). Operations of the CPU backend are rows of host threads
            (cpu_two_devices). Steps are those of the device, else host annotations with
            ``step_num``; :mod:`traceconv.readers.xla.launches` finds the step of CPU operations.
Ignored:    source stacks, bytes, all but the file name of paths, links between an operation and
            its end.
Source:     tensorflow.profiler.XSpace; names of planes and lines in openxla/xla.
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
"""Device numbers per process of the CPU backend; older JAX used the first."""


class _File(msgspec.Struct, frozen=True):
    """A file and its devices.

    Attributes:
        host:    equal for the files of one host.
        worker:  the number in the host's name, -1 without one.
        kind, numbers: of the devices.
        room:    number of devices of the host, idle ones included.
        start_ns: begin of the recording; None if unknown.
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
    """Kind and numbers of the devices with events, and the number of all devices."""
    from traceconv.readers.xla.planes import Kind, device_kind, kind_of, owner

    planes = [p for p in space.planes if kind_of(p.name) is Kind.DEVICE]
    busy = [p for p in planes if p.has_events()]
    if busy:
        kind = device_kind(busy[0].name)
        of_kind = {owner(p.name) for p in planes if device_kind(p.name) == kind}
        numbers = sorted({owner(p.name) for p in busy if device_kind(p.name) == kind})
        return kind, tuple(numbers), len(of_kind)
    ordinals: set[int] = set()
    for plane in space.planes:
        if kind_of(plane.name) is Kind.HOST:
            operations = plane.texts("hlo_op")[0] >= 0
            number, present = plane.integers("device_ordinal")
            ordinals |= set(number[operations & present].tolist())
            ordinals |= {-1} if (operations & ~present).any() else set()
    numbered = {n for n in ordinals if 0 <= n < 1 << 31}
    if numbered:
        return "CPU", tuple(sorted(numbered)), len(numbered)
    return "CPU" if -1 in ordinals else "Host", (-1,), 1


def _ranks(
    files: Sequence[_File], source: Source, issues: Issues
) -> dict[tuple[str, int], tuple[int, str]]:
    """The rank of every device and the evidence for it, by host and device number."""
    hosts: dict[str, _File] = {}
    for file in files:
        if file.numbers == (-1,):
            continue
        had = hosts.setdefault(file.host, file)
        numbers = tuple(sorted({*had.numbers, *file.numbers}))
        hosts[file.host] = replace(had, numbers=numbers, room=max(had.room, file.room))
    files_of_hosts = list(hosts.values())
    if files_of_hosts and all(file.kind == "CPU" for file in files_of_hosts):
        return _ranks_of_processes(files_of_hosts)
    room = {
        f.host: max(f.room, *(n + 1 for n in f.numbers if n < 1 << 16), 1) for f in files_of_hosts
    }
    if files_of_hosts and all(file.worker >= 0 for file in files_of_hosts):
        widest = max(room.values())
        return {
            (f.host, n): (f.worker * widest + n, f"host {f.worker}, {f.kind} {n}")
            for f in files_of_hosts
            for n in f.numbers
        }
    if all(len(file.numbers) == 1 for file in files_of_hosts):
        return {}
    ranks, first = {}, 0
    for file in sorted(files_of_hosts, key=lambda f: natural_order(f.host)):
        for number in file.numbers:
            ranks[file.host, number] = (first + number, f"{file.kind} {number}")
        first += room[file.host]
    if len(files_of_hosts) > 1:
        issues.add(
            "rank-derived", f"{source.label}: {len(files_of_hosts)} hosts, by host and device"
        )
    return ranks


def _ranks_of_processes(files: Sequence[_File]) -> dict[tuple[str, int], tuple[int, str]]:
    """Ranks of CPU devices, whose numbers contain that of the process."""
    numbers = [n for file in files for n in file.numbers]
    stride = next((s for s in _STRIDES if max(numbers) >= s), _STRIDES[-1])
    per_process = max(n % stride for n in numbers) + 1
    return {
        (file.host, n): (n // stride * per_process + n % stride, f"device_ordinal {n}")
        for file in files
        for n in file.numbers
    }


READER = XplaneReader()

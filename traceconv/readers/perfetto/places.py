"""Places events of other programs: layer, lane and class of each track.

The first of these that is known decides: the category of a producer (rocprofv3, rocprof-sys,
xpu_timer, PyTorch), the stage of a GPU packet, the name of the track. Other tracks are host tracks
if they are threads. Communication kernels are recognized by name, on devices only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from msgspec.structs import replace

from traceconv.core.model import Layer, OpClass, Track
from traceconv.core.patterns import lazy_regex
from traceconv.readers.perfetto.tracks import ROOT, Described, Descriptors, Key
from traceconv.readers.shared.collective_names import lane_title
from traceconv.readers.shared.gpu_kernels import PROJECTION, kernel_class


class Sort(Enum):
    """What events of a category are."""

    RANGE = auto()  # of the user, or of a framework
    CALL = auto()  # into the runtime or a library
    KERNEL = auto()
    COLLECTIVE = auto()
    COPY = auto()
    STREAM = auto()  # on a stream: kernels and copies
    PROJECTION = auto()  # of a host range onto the device: no work
    WAIT = auto()
    OTHER = auto()


_SORTS = {
    **dict.fromkeys(
        ("marker_api", "rocm_marker_api", "user", "host", "python", "python_function", "cpu_op",
         "user_annotation", "mpi", "ompt", "timer_sampling", "overflow_sampling", "operator"),
        Sort.RANGE,
    ),
    **dict.fromkeys(
        ("hip_api", "hip_api_ext", "hsa_api", "rccl_api", "rocm_hip_api", "rocm_hsa_api",
         "rocm_rccl_api", "rocdecode_api", "rocjpeg_api", "runtime", "cuda_runtime", "cuda_driver",
         "hip_runtime", "hip_driver"),
        Sort.CALL,
    ),
    **dict.fromkeys(
        ("kernel_dispatch", "rocm_kernel_dispatch", "kernel", "gpu_kernel", "matmul"), Sort.KERNEL
    ),
    "nccl": Sort.COLLECTIVE,
    **dict.fromkeys(
        ("memory_copy", "rocm_memory_copy", "gpu_memcpy", "gpu_memset", "memcpy", "memset",
         "device_memory"),
        Sort.COPY,
    ),
    "rocm_hip_stream": Sort.STREAM,
    **dict.fromkeys(("gpu_user_annotation", "cuda_profiler_range"), Sort.PROJECTION),
    **dict.fromkeys(("cuda_event", "cuda_sync", "gpu_sync"), Sort.WAIT),
    **dict.fromkeys(("memory_allocation", "rocm_memory_allocate", "scratch_memory"), Sort.OTHER),
}  # fmt: skip
"""By category, in lower case."""

_STAGES = {"kernel": Sort.KERNEL, "memcpy": Sort.COPY, "memset": Sort.COPY}
"""By the name of a GPU packet's stage; other stages are not device work."""

_DEVICE = lazy_regex(r"\bstream\b\W*\d|\bqueue\b\W*\d|(?<![\w.])GPU(?![\w.])", re.IGNORECASE)
"""Names of device tracks, but not ``Startup.GPU.LoadTime`` of a browser."""
_STREAM_NAME = lazy_regex(
    r"(Stream|Plane|Lane|Thread) |Communication( Kernel)?\Z|Operations\Z|Collectives\Z"
)
"""Names of tracks that say where something ran, and not among which ranks."""
_UNNAMED_GROUP = lazy_regex(r"Group \d+( Communication)?\Z|(GPU|NPU|TPU|CPU) \d+\Z")
_STREAM_THREAD = lazy_regex(r"stream\W*\d+", re.IGNORECASE)
_COPY = lazy_regex(r"MEMORY_COPY_|Memcpy|Memset|__amd_rocclr_(?:copy|fill)Buffer", re.IGNORECASE)

RANK = lazy_regex(r"(?<![a-z])rank[ _-]?(\d{1,7})(?!\d)", re.IGNORECASE)
"""The rank in the name of a process or thread."""

_ON_DEVICE = (Sort.KERNEL, Sort.COLLECTIVE, Sort.COPY, Sort.STREAM)
_FAKE = "launch_kernel"
"""Bars of xpu_timer that say when a kernel was launched, and do not last as long as the call."""


@dataclass(frozen=True)
class Lane:
    """Properties of a track.

    Attributes:
        name:    its own.
        group:   of the tracks it is nested in, below the process.
        process: (machine, pid), None if it is in none.
        title:   of the process, "" if it is in none.
        thread:  its number; None if it is no thread.
        gpu:     number of the GPU of GPU packets, -1 for all others.
        merged:  tracks that are alike are shown as one.
        identity: what tells it from others of its name.
    """

    name: str
    group: str = ""
    process: tuple[int, int] | None = None
    title: str = ""
    thread: int | None = None
    gpu: int = -1
    merged: bool = False
    identity: Key = ()

    @property
    def rank(self) -> int:
        """The rank its thread or process names, -1 if neither does."""
        match = RANK.search(self.name if self.thread is not None else "") or RANK.search(self.title)
        return int(match[1]) if match else -1


class Lanes:
    """The tracks of a file as :class:`Lane`.

    Args:
        first_names: names of the first events of tracks, for those that have no name.
    """

    def __init__(
        self, descriptors: Descriptors, keys: Sequence[Key], first_names: Sequence[str]
    ) -> None:
        self._descriptors = descriptors
        self._first = first_names
        machines = {int(key[1]) for key in keys}
        self._machines = len(machines) > 1
        self.lanes = [self._lane(key, first_names[i]) for i, key in enumerate(keys)]

    def _lane(self, key: Key, first_name: str) -> Lane:
        machine = int(key[1])
        if key[0] == "gpu":
            own_process = (machine, int(key[5])) if int(key[5]) else None
            name, title = str(key[3]), self._title(own_process)
            return Lane(name, "", own_process, title, gpu=int(key[2]), identity=key[:5])
        if key[0] == "counter":
            own_process = (machine, int(key[3]))
            return Lane(
                str(key[2]),
                self._descriptors.threads.get((machine, int(key[3]), int(key[4])))
                or f"Thread {key[4]}",
                own_process,
                self._title(own_process),
                identity=key,
            )
        if key[0] == "async":
            process = (machine, int(key[2])) if int(key[2]) >= 0 else None
            scope = (*key[:3], *key[4:], first_name)
            return Lane(
                first_name, "Async", process, self._title(process), merged=True, identity=scope
            )
        if key[0] == "instants":
            process = (machine, int(key[2])) if len(key) > 2 else None
            return Lane("Instants", "", process, self._title(process), identity=key)
        descriptor = self._descriptors.of(key)
        if not descriptor:
            name = "Default Track" if key[2] == ROOT else first_name or f"Track {key[2]}"
            return Lane(name, identity=key)
        return self._described(key, descriptor, first_name)

    def _described(self, key: Key, descriptor: Described, first_name: str) -> Lane:
        machine = int(key[1])
        if descriptor.pid is not None and descriptor.tid is not None:
            own_process = (machine, descriptor.pid)
            label = descriptor.label or self._descriptors.threads.get(
                (machine, descriptor.pid, descriptor.tid)
            )
            name = label or f"Thread {descriptor.tid}"
            return Lane(
                name, "", own_process, self._title(own_process), thread=descriptor.tid, identity=key
            )
        if descriptor.pid is not None:
            own_process = (machine, descriptor.pid)
            return Lane(
                "Process",
                "",
                own_process,
                descriptor.label or self._title(own_process),
                identity=key,
            )
        groups: list[str] = []
        around: Described | None = None
        for ancestor in list(self._descriptors.ancestors(machine, int(key[2])))[1:]:
            if ancestor.pid is not None:
                around = ancestor
                break
            groups.append(ancestor.name or "")
        known_pid = None if around is None else around.pid
        process = None if known_pid is None else (machine, known_pid)
        title = (around.label if around and around.tid is None else "") or self._title(process)
        if around is not None and around.tid is not None:
            groups.append(around.label or f"Thread {around.tid}")
        name = first_name if descriptor.name is None else descriptor.name
        identity = key
        if descriptor.merges:
            identity = (
                "merged",
                machine,
                descriptor.parent,
                descriptor.merge,
                descriptor.merge_key or name,
            )
        group = " / ".join(filter(None, reversed(groups)))
        return Lane(name, group, process, title, merged=descriptor.merges, identity=identity)

    def _title(self, process: tuple[int, int] | None) -> str:
        if not process:
            return ""
        name = self._descriptors.processes.get(process) or f"Process {process[1]}"
        return f"{name} (machine {process[0]})" if self._machines else name


def is_known(category: str) -> bool:
    """Whether the category of an event decides what the event is."""
    return any(word in _SORTS for word in category.lower().split(","))


class Places:
    """Places the events of one rank.

    Args:
        lanes: that have events of it.
        comm_words: further words (lower case) in the names of kernels that communicate.

    Attributes:
        unshown: the stated name of the only process, by process: no track has it.
    """

    def __init__(self, lanes: Sequence[Lane], comm_words: Sequence[str] = ()) -> None:
        self._words = tuple(comm_words)
        processes = {lane.process: lane.title for lane in lanes if lane.process is not None}
        self._alike = Counter(processes.values())
        self._many = len(processes) > 1
        self.unshown = (
            {}
            if self._many
            else {
                process: title
                for process, title in processes.items()
                if title != f"Process {process[1]}" and not RANK.search(title)
            }
        )
        self._gpus = len({lane.gpu for lane in lanes if lane.gpu >= 0}) > 1
        self._taken: dict[Track, Key] = {}

    def sort(self, lane: Lane, category: str, stage: str | None) -> Sort | None:
        """What events of a category on a lane are; None if only the lane says.

        Args:
            stage: name of the stage of a GPU packet, None for other events.
        """
        if stage is not None:
            return _STAGES.get(stage.lower(), Sort.PROJECTION)
        for word in category.lower().split(","):
            if word in _SORTS:
                return _SORTS[word]
        if PROJECTION.fullmatch(lane.name):
            return Sort.PROJECTION
        on_stream = (
            _STREAM_THREAD.fullmatch(lane.name)
            if lane.thread is not None
            else (_DEVICE.search(lane.name) and lane.process is not None)
        )
        return Sort.STREAM if on_stream else None

    def kernel(self, sort: Sort, name: str) -> OpClass:
        """The class of an event on a device, by its name where that matters."""
        if sort is Sort.COLLECTIVE:
            return OpClass.COMM
        if sort is Sort.COPY or _COPY.match(name):
            return OpClass.COPY
        return kernel_class(name, self._words)

    def track(self, lane: Lane, sort: Sort | None, name: str, op: OpClass) -> Track:
        """The track of an event.

        Args:
            name: of the event.
            op:   its class.
        """
        if sort in _ON_DEVICE or sort is Sort.PROJECTION:
            layer, title = Layer.DEVICE, "GPU Hardware"
            if sort is Sort.PROJECTION:
                layer, title = Layer.SCOPE, "GPU Annotations"
            elif op is OpClass.COMM:
                layer, title = Layer.COMM, lane_title(name)
            # of a stream, the name of the communicator is that of the group
            of = self._device_group(lane) if _STREAM_NAME.match(lane.name) else lane.name
            track = Track(
                layer,
                lane.name,
                self._device_group(lane),
                title,
                device=lane.gpu,
                device_kind="GPU",
                communicator="" if layer is not Layer.COMM or _UNNAMED_GROUP.match(of) else of,
            )
        elif lane.thread is not None and (sort is Sort.OTHER or name == _FAKE):
            track = Track(Layer.OTHER, lane.name, self._process(lane))
        elif lane.thread is not None:
            main = lane.process is not None and lane.process[1] == lane.thread
            layer = Layer.RUNTIME if sort is Sort.CALL else Layer.HOST
            track = Track(
                layer,
                lane.name,
                self._process(lane),
                sort=int(not main),
                process=lane.process[1] if lane.process else -1,
                thread=-1 if lane.process is None else lane.thread,
            )
        elif sort is Sort.CALL or sort is Sort.RANGE:
            layer = Layer.RUNTIME if sort is Sort.CALL else Layer.HOST
            track = Track(layer, lane.name, self._groups(lane), sort=1)
        else:
            track = Track(Layer.OTHER, lane.name, self._groups(lane))
        return self._own(lane, track)

    def counter(self, lane: Lane, unit: str) -> Track:
        """The track of a counter."""
        return self._own(lane, Track(Layer.COUNTER, lane.name, self._groups(lane), unit=unit))

    def _device_group(self, lane: Lane) -> str:
        if lane.gpu >= 0:
            return f"GPU {lane.gpu}" if self._gpus else ""
        return self._groups(lane)

    def _groups(self, lane: Lane) -> str:
        return " / ".join(filter(None, (self._process(lane), lane.group)))

    def _process(self, lane: Lane) -> str:
        """The process of a lane, if there are several."""
        if not self._many or lane.process is None:
            return ""
        alone = self._alike[lane.title] < 2
        return lane.title if alone else f"{lane.title} ({lane.process[1]})"

    def _own(self, lane: Lane, track: Track) -> Track:
        """``track``, with a number after its name if another lane has the same."""
        number, name = 1, track.name
        while self._taken.setdefault(track, lane.identity) != lane.identity:
            number += 1
            track = replace(track, name=f"{name} ({number})")
        return track

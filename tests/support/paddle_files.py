"""Files as Paddle's profiler would write them, from one description of a recording."""

from dataclasses import dataclass, field

import numpy as np

from tests import descriptors
from traceconv.readers.paddle.layout import MEMORY_TYPES, PYTHON_TYPES, TYPES

T0 = 1_740_000_000_000_000_137
"""When recordings begin, ns since 1970."""


@dataclass
class Work:
    """What a device did for a call."""

    name: str
    start: int
    end: int
    kind: str = "Kernel"
    device: int = 0
    stream: int = 7
    bytes: int = 0


@dataclass
class Call:
    """A call into the runtime."""

    name: str
    start: int
    end: int
    correlation: int
    work: list[Work] = field(default_factory=list)
    tid: int = 100


@dataclass
class Host:
    """An event of the host. Times count from T0."""

    name: str
    kind: str
    start: int
    end: int
    tid: int = 100
    calls: list[Call] = field(default_factory=list)
    shapes: dict[str, list[list[int]]] = field(default_factory=dict)


@dataclass
class Memory:
    """An allocation, or the end of one."""

    kind: str
    at: int
    increase: int
    allocated: int
    reserved: int
    place: str = "gpu:0"
    tid: int = 100


@dataclass
class Recording:
    """One collection window."""

    hosts: list[Host] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    pid: int = 100
    span_index: int = 0
    threads: dict[int, str] = field(default_factory=lambda: {100: "MainThread"})

    def calls(self):
        return [call for host in self.hosts for call in host.calls]

    def work(self):
        return [(call, work) for call in self.calls() for work in call.work]


def small() -> Recording:
    """Two steps with kernels, a collective, a copy and a memset, on one device."""
    hosts = [
        Host("ProfileStep#0", "ProfileStep", 0, 90_250),
        Host("ProfileStep#1", "ProfileStep", 95_100, 180_030),
        Host("LeNet", "Forward", 2_001, 41_503),
        Host("Gradient Backward", "Backward", 45_000, 80_777),
        Host("matmul dygraph", "Operator", 3_000, 30_900, shapes={"x": [[8, 4]], "y": [[4, -1]]}),
        Host("matmul kernel launch", "DygraphKernelLaunch", 5_750, 28_400),
        Host("all_reduce", "Communication", 46_010, 60_000),
        Host("relu dygraph", "Operator", 100_000, 130_001),
    ]
    hosts[5].calls = [
        Call("cudaLaunchKernel", 6_100, 9_200, 11, [Work("sgemm<float>[8]", 12_345, 40_678)]),
        Call("cudaMalloc", 10_000, 10_400, 12),
        Call("cudaMemcpyAsync", 11_000, 12_600, 13,
             [Work("MEMCPY_HtoD", 41_000, 43_501, "Memcpy", bytes=4096)]),
    ]  # fmt: skip
    hosts[6].calls = [
        Call("cudaLaunchKernel", 47_000, 48_900, 14,
             [Work("ncclDevKernel_AllReduce_Sum_f32", 50_000, 75_125, stream=20)]),
    ]  # fmt: skip
    hosts[7].calls = [
        Call("cudaMemsetAsync", 101_000, 101_300, 15,
             [Work("MEMSET", 102_000, 102_640, "Memset", bytes=512)]),
        Call("cudaLaunchKernel", 101_999, 103_000, 16, [Work("relu_kernel", 102_700, 104_000)]),
    ]  # fmt: skip
    memory = [
        Memory("Allocate", 3_500, 4096, 4096, 8192),
        Memory("Free", 110_999, -4096, 0, 8192),
    ]
    return Recording(hosts, memory)


# -- JSON ----------------------------------------------------------------------------------


def as_json(recording: Recording, version: str = "1.0.2", truth: int = T0) -> str:
    """The recording as the JSON writer prints it: nothing escaped, starts cut to microseconds."""
    printer = _Printer(recording, version, truth)
    events = printer.hosts() + printer.calls() + printer.work() + printer.memory()
    index = "span_index" if version == "1.0.2" else "span_indx"
    head = f'  "displayTimeUnit": "ms",\n  "schemaVersion": "{version}",\n'
    head += f'  "{index}": "{recording.span_index}",\n'
    if printer.devices:
        head += f'  "deviceProperties": [{_properties(printer.devices)}\n  ],\n'
    body = ",\n".join([*events, *printer.names(), "  {}"])
    text = "{\n" + head + '  "traceEvents": [\n' + body + "\n  ]"
    if version != "1.0.0":
        extra = {str(tid): name for tid, name in recording.threads.items()}
        extra["Process Cpu Utilization"] = "0.500000"
        text += ',\n  "ExtraInfo": {\n'
        text += ",\n".join(f'    "{k}": "{v}"' for k, v in extra.items()) + "\n  }"
    return text + "\n}\n"


def _properties(devices):
    return ",".join(f'\n    {{"id": {d}, "name": "GPU {d}", "smCount": 108}}' for d in devices)


class _Printer:
    def __init__(self, recording, version, truth):
        self.recording, self.version, self.truth = recording, version, truth
        self.devices = sorted({work.device for _, work in recording.work()})
        self.first = min((h.start for h in recording.hosts), default=0)

    def slice(self, one, pid, tid, category, args):
        dur = one.end - one.start
        shown = f"{dur / 1e6:.3f} ms"
        if self.version != "1.0.0" and dur <= 1_000_000:
            shown = f"{dur / 1e3:.3f} us"
        since = [float(np.float32(t - self.first) / np.float32(1000)) for t in (one.start, one.end)]
        lines = [f'"start_time": "{since[0]:.3f} us"', f'"end_time": "{since[1]:.3f} us"', *args]
        inner = ",\n".join(f"      {line}" for line in lines)
        return (
            f'  {{\n    "name": "{one.name}[{shown}]", "pid": {pid}, "tid": {tid},\n'
            f'    "ts": {(self.truth + one.start) // 1000}, "dur": {dur / 1000:.3f},\n'
            f'    "ph": "X", "cat": "{category}",\n    "cname": "thread_state_runnable",\n'
            f'    "args": {{\n{inner}\n    }}\n  }}'
        )

    def hosts(self):
        found = []
        for host in self.recording.hosts:
            side = "Python" if host.kind in PYTHON_TYPES else "C++"
            args = []
            if host.kind == "Operator" and self.version != "1.0.0":
                shapes = ", ".join(f'"{k}": {v}' for k, v in host.shapes.items())
                args = [f'"input_shapes": {{{shapes}}}', '"input_dtypes": {}', '"callstack": ""']
            tid = f'"{host.tid}({side})"'
            found.append(self.slice(host, self.recording.pid, tid, host.kind, args))
        return found

    def calls(self):
        found = []
        for call in self.recording.calls():
            tid = f'"{call.tid}(C++)"'
            args = [f'"correlation id": {call.correlation}']
            found.append(self.slice(call, self.recording.pid, tid, "CudaRuntime", args))
            middle = (2 * self.truth + call.start + call.end) // 2 // 1000
            found.append(self.arrow(call.correlation, self.recording.pid, tid, middle, "s"))
        return found

    def work(self):
        found = []
        for call, work in self.recording.work():
            args = [f'"stream": {work.stream}', f'"correlation id": {call.correlation}']
            if work.kind == "Kernel":
                args += ['"grid": [1, 2, 3]', '"theoretical achieved occupancy %": 50.000000']
            else:
                args += [f'"bytes": {work.bytes}']
            found.append(self.slice(work, work.device, work.stream, work.kind, args))
            at, bound = (self.truth + work.start) // 1000, ""
            if work.end - work.start >= 1000:
                at, bound = (2 * self.truth + work.start + work.end) // 2 // 1000, ', "bp": "e"'
            row = work.device, work.stream
            found.append(self.arrow(call.correlation, *row, at, "f", bound))
        return found

    @staticmethod
    def arrow(number, pid, tid, at, phase, bound=""):
        return (
            f'  {{\n    "name": "launch", "id": {number}, "pid": {pid}, "tid": {tid},\n'
            f'    "ts": {at},\n    "ph": "{phase}", "cat": "async"{bound}\n  }}'
        )

    def memory(self):
        return [
            f'  {{\n    "name": "[memory]", "pid": {self.recording.pid}, "tid": "{m.tid}(C++)",\n'
            f'    "ts": {(self.truth + m.at) // 1000},\n    "ph": "i", "cat": "{m.kind}",\n'
            f'    "args": {{\n      "place": "Place({m.place})",\n      "addr": "4096",\n'
            f'      "increase_bytes": {m.increase},\n      "current_allocated": {m.allocated},\n'
            f'      "current_reserved": {m.reserved},\n      "peak_allocated": 4096,\n'
            f'      "peak_reserved": 8192\n    }}\n  }}'
            for m in self.recording.memory
        ]

    def names(self):
        pid, found = self.recording.pid, []
        for tid, name in self.recording.threads.items():
            for side in ("Python", "C++"):
                row = f'"{tid}({side})"'
                found.append(_meta("process_name", pid, row, f'"Process {pid} (CPU)"'))
                found.append(_meta("thread_name", pid, row, f'"thread {tid}:{name}({side})"'))
        for device, stream in sorted({(w.device, w.stream) for _, w in self.recording.work()}):
            found.append(_meta("process_name", device, stream, f'"Device {device} (GPU)"'))
            found.append(_meta("thread_name", device, stream, f'"stream {stream}"'))
        return found


def _meta(what, pid, tid, name):
    return (
        f'  {{\n    "name": "{what}", "pid": {pid}, "tid": {tid},\n    "ph": "M",\n'
        f'    "args": {{\n      "name": {name}\n    }}\n  }}'
    )


# -- protobuf ------------------------------------------------------------------------------


def message(name):
    return descriptors.message("paddle_profiler", f"traceconv.paddle.{name}")


def as_pb(recording: Recording, version: str = "1.0.2") -> bytes:
    """The recording as the protobuf writer serialises it: one tree per thread, with a root."""
    trees = message("NodeTreesProto")(version=version.encode(), span_index=recording.span_index)
    for tid, name in recording.threads.items():
        tree = trees.thread_trees.add(thread_id=tid)
        root = tree.host_event_nodes.add(id=0, parent_id=-1)
        root.host_trace_event.MergeFrom(
            message("HostTraceEventProto")(name=b"root node", type=7, start_ns=0, end_ns=2**64 - 1)
        )
        for number, host in enumerate((h for h in recording.hosts if h.tid == tid), 1):
            _host(tree.host_event_nodes.add(id=number, parent_id=0), host, recording.pid)
        for m in (m for m in recording.memory if m.tid == tid):
            root.mem_trace_event_nodes.add().mem_event.MergeFrom(_memory(m, recording.pid))
        trees.extra_info.add(key=str(tid).encode(), value=name.encode())
    for device in sorted({work.device for _, work in recording.work()}):
        trees.device_property.add(id=device, name=f"GPU {device}".encode(), sm_count=108)
    return trees.SerializeToString(deterministic=True)


def _host(node, host, pid):
    event = node.host_trace_event
    event.name, event.type = host.name.encode(), TYPES.index(host.kind)
    event.start_ns, event.end_ns = T0 + host.start, T0 + host.end
    event.process_id, event.thread_id = pid, host.tid
    if host.shapes:
        supplement = node.op_supplement_event_nodes.add().op_supplement_event
        for key, shapes in host.shapes.items():
            supplement.input_shapes.key.append(key.encode())
            of_key = supplement.input_shapes.shapes.add()
            for shape in shapes:
                of_key.shape.add(size=[size % 2**64 for size in shape])
    for call in host.calls:
        below = node.runtime_trace_event_nodes.add()
        event = below.runtime_trace_event
        event.name, event.correlation_id = call.name.encode(), call.correlation
        event.start_ns, event.end_ns = T0 + call.start, T0 + call.end
        event.process_id, event.thread_id = pid, call.tid
        for work in call.work:
            _work(below.device_trace_event_nodes.add().device_trace_event, call, work)


def _work(event, call, work):
    event.name, event.type = work.name.encode(), TYPES.index(work.kind)
    event.start_ns, event.end_ns = T0 + work.start, T0 + work.end
    event.device_id, event.context_id, event.stream_id = work.device, 1, work.stream
    event.correlation_id = call.correlation
    if work.kind == "Kernel":
        info = event.kernel_info
        info.grid_x, info.grid_y, info.grid_z = 1, 2, 3
        info.block_x, info.block_y, info.block_z = 32, 1, 1
        info.occupancy = 50
    elif work.kind == "Memcpy":
        event.memcpy_info.num_bytes, event.memcpy_info.copy_kind = work.bytes, b"MEMCPY_HtoD"
    else:
        event.memset_info.num_bytes, event.memset_info.value = work.bytes, 0


def _memory(m, pid):
    return message("MemTraceEventProto")(
        timestamp_ns=T0 + m.at, type=MEMORY_TYPES.index(m.kind), addr=4096, process_id=pid,
        thread_id=m.tid, increase_bytes=m.increase, place=f"Place({m.place})".encode(),
        current_allocated=m.allocated, current_reserved=m.reserved, peak_allocated=4096,
        peak_reserved=8192,
    )  # fmt: skip


# -- before 2.3 ----------------------------------------------------------------------------


def old_rows(recording: Recording):
    """The recording as a flat list: name, start, end, device, row, is it of a GPU, bytes."""
    rows = [(h.name, h.start, h.end, 0, h.tid, 0, 0) for h in recording.hosts]
    rows += [(c.name, c.start, c.end, -1, c.tid, 0, 0) for c in recording.calls()]
    rows += [
        (w.name, w.start, w.end, w.device, w.stream, 1, w.bytes if w.kind == "Memcpy" else 0)
        for _, w in recording.work()
    ]
    return rows


def as_profile(recording: Recording) -> bytes:
    """The recording as a ``Profile`` message."""
    profile = message("Profile")(start_ns=T0, end_ns=T0 + 200_000, mem_events=[b"\x08\x01"])
    for name, start, end, device, row, kind, size in old_rows(recording):
        event = profile.events.add(name=name.encode(), start_ns=T0 + start, end_ns=T0 + end)
        event.device_id, event.sub_device_id, event.type = device, row, kind
        if size:
            event.memcopy.bytes = size
    return profile.SerializeToString(deterministic=True)


def as_timeline(recordings: dict[str, Recording]) -> str:
    """What ``timeline.py`` makes of profiles, by key: nanoseconds where microseconds belong."""
    pids, named, events = {}, [], []
    for key, recording in recordings.items():
        for name, start, end, device, row, kind, _ in old_rows(recording):
            place = f"gpu:{device}" if kind else "cuda_api" if device < 0 else f"cpu:block:{device}"
            pid = pids.setdefault(f"{key}:{place}", len(pids))
            events.append(
                f'{{"ph": "X", "cat": "Op", "pid": {pid}, "tid": {row}, "ts": {T0 + start}, '
                f'"dur": {end - start}, "name": "{name}", "args": {{"name": "{name}"}}}}'
            )
        pid = pids.setdefault(f"memory usage on {key}:gpu:0", len(pids))
        events.append(
            f'{{"ph": "C", "cat": "Op", "pid": {pid}, "tid": 0, "name": "Memory", "ts": {T0}, '
            '"args": {"data": 4096}}'
        )
    for process, pid in pids.items():
        named.append(
            f'{{"name": "process_name", "ph": "M", "pid": {pid}, "args": {{"name": "{process}"}}}}'
        )
    return '{"traceEvents": [' + ", ".join(named + events) + "]}"

"""XSpace files in small: an encoder, and the inputs of the golden cases of the family.

``python tests/support/xplane_files.py`` writes these below ``golden``.
"""

import json
import struct
import sys
from pathlib import Path

US = 1_000_000
"""Picoseconds."""

BEGIN, END = 1_790_000_000_000_000_000, 1_790_000_000_004_000_000
"""When recordings begin and end, Unix ns."""


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, content):
    return varint(field << 3 | 2) + varint(len(content)) + content


def text(field, value):
    return message(field, value.encode())


class Plane:
    """One plane; ``line`` begins a line, ``add`` puts an event on it."""

    def __init__(self, name, ident=0, **own):
        self._name, self._ident = name, ident
        self._lines, self._kinds, self._stats = [], {}, {}
        self._own = b"".join(message(6, self._stat(k, v)) for k, v in own.items())

    def _key(self, name):
        return self._stats.setdefault(name, 50 + len(self._stats))

    def _stat(self, name, value):
        key = number(1, self._key(name))
        if isinstance(value, float):
            return key + varint(2 << 3 | 1) + struct.pack("<d", value)
        if isinstance(value, bytes):
            return key + message(6, value)
        if isinstance(value, str):  # long texts are references to names of stats
            return key + (number(7, self._key(value)) if len(value) > 8 else text(5, value))
        return key + number(3 if value >= 0 else 4, value)

    def kind(self, name, display="", **stats):
        """The number of a kind of events."""
        if (name, display) not in self._kinds:
            ident = len(self._kinds) + 1
            body = number(1, ident) + text(2, name)
            body += text(4, display) if display else b""
            body += b"".join(message(5, self._stat(k, v)) for k, v in stats.items())
            self._kinds[name, display] = (ident, body)
        return self._kinds[name, display][0]

    def line(self, ident, name, timestamp_ns=0):
        self._lines.append((ident, name, timestamp_ns, []))
        return self._lines[-1]

    def add(self, line, kind, start_us, dur_us, **stats):
        """An event; times are microseconds since the begin of the recording."""
        if isinstance(kind, str):
            kind = self.kind(kind)
        start = round(start_us * US) - line[2] * 1000
        event = number(1, kind) + number(2, start)
        event += number(3, round(dur_us * US)) if dur_us else b""
        line[3].append(event + b"".join(message(4, self._stat(k, v)) for k, v in stats.items()))

    def raw(self, line, event):
        """An event of any bytes."""
        line[3].append(event)

    def encoded(self):
        out = number(1, self._ident) + text(2, self._name)
        for ident, name, stamp, events in self._lines:
            body = number(1, ident) + text(2, name) + (number(3, stamp) if stamp else b"")
            out += message(3, body + b"".join(message(4, e) for e in events))
        for ident, body in self._kinds.values():
            out += message(4, number(1, ident) + message(2, body))
        for name, ident in self._stats.items():
            out += message(5, number(1, ident) + message(2, number(1, ident) + text(2, name)))
        return out + self._own


def space(*planes, host="", warnings=(), timed=True):
    """A file."""
    if timed:
        own = {"profile_start_time": BEGIN, "profile_stop_time": END}
        planes = (*planes, Plane("Task Environment", **own))
    out = b"".join(message(1, plane.encoded()) for plane in planes)
    out += b"".join(text(3, one) for one in warnings)
    return out + (text(4, host) if host else b"")


def program(name, number_, **operations):
    """A program's metadata: its operations with their opcode and groups of devices."""
    body = text(1, "main")
    for op, (opcode, *groups) in operations.items():
        one = text(1, op.replace("__", ".")) + text(2, opcode)
        for group in groups:
            one += message(49, message(1, b"".join(map(varint, group))))
        body += message(2, one)
    return f"{name}({number_})", {"Hlo Proto": message(1, text(1, name) + message(3, body))}


# -- golden cases ------------------------------------------------------------------------------

OPS = {
    "fusion.1": ("fusion", "convolution fusion"),
    "while.3": ("while", "while"),
    "fusion.7": ("fusion", "loop fusion"),
    "all-gather-start.2": ("all-gather-start", "async-start"),
    "all-gather-done.2": ("all-gather-done", "async-done"),
    "all-reduce.5": ("all-reduce", "all-reduce"),
    "infeed.1": ("infeed", "infeed"),
}


def tpu_host(host):
    """Two cores, two steps: a loop, a gather behind it, a reduction, input."""
    planes = []
    for core in (0, 1):
        late = 3 * (2 * host + core)
        plane = Plane(f"/device:TPU:{core}", 2 + core, device_type_string="TPU made")
        steps, modules = plane.line(1, "Steps"), plane.line(2, "XLA Modules")
        ops, background = plane.line(3, "XLA Ops"), plane.line(4, "Async XLA Ops")
        waits, derived = plane.line(6, "XLA TraceMe"), plane.line(9, "Framework Ops")
        samples = plane.line(11, "_counters_")

        def run(name, start, dur, group, plane=plane, ops=ops, derived=derived):
            opcode, category = OPS[name]
            kind = plane.kind(
                f"%{name} = f32[8,128] {opcode}(f32[8,128] %p)", name,
                hlo_category=category, program_id=77, source="/somewhere/of/mine/train.py:7",
            )  # fmt: skip
            chip = {"device_offset_ps": round((start - 44) * US), "device_duration_ps": 1}
            plane.add(ops, kind, start, dur, group_id=group, **chip)
            if "fusion" in name:
                plane.add(derived, f"train/{name}", start, dur)

        for group, step in enumerate((41, 42)):
            at = 1000 + 500 * group + late
            plane.add(steps, str(step), at, 460 - late, group_id=group)
            plane.add(
                modules, "jit_train(77)", at - 1, 462 - late, run_id=500 + group, _ct=12,
                _c=-(10 * core + group) - 1,
            )  # fmt: skip
            run("infeed.1", at, 20, group)
            run("fusion.1", at + 25, 100.123457, group)
            run("all-gather-start.2", at + 126, 0.015625, group)
            run("while.3", at + 127, 96, group)
            for i in range(3):
                run("fusion.7", at + 127 + 32 * i, 30, group)
            run("all-gather-done.2", at + 224, 14, group)
            if core == 0:  # the other core keeps no such line
                kind = plane.kind(
                    "%all-gather-start.2 = ...", "all-gather", hlo_category="async-start"
                )
                plane.add(background, kind, at + 126, 112, hlo_op="all-gather-done.2", _a=1)
            run("all-reduce.5", at + 239, 221 - late, group)
            plane.add(samples, "MXU utilization", at, 0, value=37.5 * group)
        plane.add(waits, "barrier-cores", 990, 5)
        plane.add(waits, "dropped_traces", 999, 0, dropped_traces=12)
        plane.raw(ops, number(1, 999) + number(2, 3000 * US) + number(3, US))  # of no known kind
        plane.raw(ops, number(1, plane.kind("often")) + number(5, 40) + number(3, US))
        planes.append(plane)
    sparse = Plane("/device:TPU:0 SparseCore 0", 100)
    kind = sparse.kind("%sparse.1 = custom-call()", "sparse.1", hlo_category="custom-call")
    sparse.add(sparse.line(3, "Sparse Core Ops"), kind, 1050, 40)
    chip = Plane("#Chip TPU 1 HBM", 101)
    chip.add(chip.line(1, "HBM"), "dma", 1060, 5)
    threads = Plane("/host:CPU", 1)
    main = threads.line(7, "main/7", 200_000)
    for group, step in enumerate((41, 42)):
        at = 960 + 500 * group
        threads.add(main, "train", at, 480, _r=1, step_num=step)
        threads.add(main, "data_load", at + 5, 15, source="synthetic")
        for core in (0, 1):
            enqueued = {"_pt": 12, "_p": -(10 * core + group) - 1, "device_ordinal": core}
            threads.add(main, "DoEnqueueProgram", at + 22 + core, 1, **enqueued)
    name = f"made-w-{host}"
    return space(*planes, sparse, chip, threads, host=name, warnings=("made: a warning",))


def cpu_process():
    """Two devices of one process; what they do is on threads of a pool, which gets the work of the
    second step before it is done with the first."""
    notes = Plane("/host:metadata")
    name, stats = program(
        "jit_train", 5, psum__3=("all-reduce", (0, 1)), dot__1=("dot",), while__2=("while",),
        copy_fusion=("fusion",), ppermute__4=("collective-permute",), add__9=("add",),
    )  # fmt: skip
    notes.kind(name, **stats)
    plane = Plane("/host:CPU", process_id=4711)
    python, other = plane.line(1, "python"), plane.line(2, "python", 5_000)
    pools = [plane.line(10 + i, f"tf_XLAPjRtCpuClient/{10 + i}") for i in range(2)]
    plane.add(other, "idle", 10, 5)
    links = iter(range(1, 99))
    for i, step in enumerate((7, 8)):
        at = 100 + 200 * i
        plane.add(python, "train", at, 180, _r=1, step_num=step)
        plane.add(python, "$train.py:7 step", at + 1, 100)
        for device in (0, 1):
            given = next(links)
            plane.add(python, "ThreadpoolListener::Record", at + 20 + device, 0, _pt=15, _p=given)
            begin = at + 30 + 160 * (1 - i) + device  # the first step begins in the second
            pool = pools[device]
            plane.add(pool, "ThreadpoolListener::StartRegion", begin, 0, _ct=15, _c=given)
            run = {"hlo_module": "jit_train", "program_id": 5, "run_id": -50 + i}
            run["device_ordinal"] = device
            for op, start, dur in (
                ("while.2", 1, 20), ("add.9", 2, 5), ("add.9", 9, 5), ("dot.1", 22, 8.0005),
                ("copy_fusion", 31, 2), ("psum.3", 34, 30 - device), ("ppermute.4", 65, 4),
                ("copy.8", 70, 1),
            ):  # fmt: skip
                link = next(links)
                plane.add(pool, op, begin + start, dur, hlo_op=op, _pt=0, _p=link, **run)
                plane.add(pool, f"end: {op}", begin + start + dur, 0.001, _ct=0, _c=link)
        plane.add(
            python, "MemoryAllocation", at + 50, 0, allocator_name="made",
            bytes_allocated=4096 * (i + 1), bytes_reserved=8192, peak_bytes_in_use=8192,
        )  # fmt: skip
    return space(notes, plane, host="made")


def gpus():
    """Streams of two GPUs with calls of the runtime, lines that are derived from them, a GPU that
    is not used; nothing says when the recording began."""
    planes = []
    threads = Plane("/host:CPU", 1)
    calls = threads.line(583, "Host Threads/583", 4_000)
    main = threads.line(1, "python")
    threads.add(main, "train", 90, 400, _r=1, step_num=3)
    for device in (0, 1):
        plane = Plane(f"/device:GPU:{device}", device, device_vendor="made", memory_size=1 << 34)
        stream = plane.line(17 + device, f"Stream #{17 + device}(MemcpyH2D,Kernel)", 4_000)
        other = plane.line(30, "Stream #30(Kernel)")
        derived = plane.line(-559038737, "Steps"), plane.line(-559038734, "TensorFlow Ops")
        base = 100 * device
        rows = (
            (
                stream,
                "MemcpyH2D",
                100,
                5,
                {"memcpy_details": "kind:pinned size:4096 dest:0 async:1"},
            ),
            (stream, "gemm.kd", 110, 40, {"kernel_details": "regs:32 grid:8,1,1 block:64,1,1"}),
            (other, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 130, 60, {"hlo_op": "all-reduce.3"}),
            (stream, "__amd_rocclr_copyBuffer.kd", 160, 10, {}),
            (other, "gemm.kd", 200, 20, {}),
        )
        for i, (line, name, start, dur, stats) in enumerate(rows):
            ident = base + min(i, 3) + 1  # one call launches the last two
            plane.add(line, name, start + base, dur, correlation_id=ident, **stats)
            if i < 4 and not (device and i == 2):
                threads.add(calls, "hipLaunchKernel", start + base - 8, 2, correlation_id=ident)
        plane.add(derived[0], "0", 100 + base, 120)
        plane.add(derived[1], plane.kind("layer/gemm", "MatMul"), 110 + base, 40)
        planes.append(plane)
    idle = Plane("/device:GPU:2", 2)
    idle.line(40, "Stream #40(Kernel)")
    return space(*planes, idle, threads, timed=False)


def viewer_json():
    """What the viewer of the profiler would show of a TPU, a GPU and a host."""
    records = [
        {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
        for pid, name in ((3, "/device:TPU:0"), (4, "/device:GPU:1"), (701, "/host:CPU"))
    ]
    threads = {
        (3, 1): "Steps", (3, 2): "XLA Modules", (3, 3): "XLA Ops", (3, 4): "Async XLA Ops",
        (3, 5): "Framework Ops", (3, 6): "XLA TraceMe", (4, 7): "Stream #7(Kernel)",
        (4, 8): "XLA Ops", (701, 9): "python", (701, 10): "pool", (701, 11): "python",
    }  # fmt: skip
    for (pid, tid), name in threads.items():
        args = {"name": name}
        records.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": args})
    cpu = {"hlo_op": "dot.1", "hlo_module": "jit_f", "device_ordinal": "2", "run_id": "-7"}
    rows = (
        (3, 1, 100, 90, "41", {}), (3, 2, 99, 92, "jit_train(77)", {"run_id": "5"}),
        (3, 3, 100, 20.1234567, "fusion.1", {"hlo_category": "loop fusion"}),
        (3, 3, 121, 0.5, "all-gather-start.2", {"hlo_category": "async-start"}),
        (3, 3, 122, 40, "while.3", {"hlo_category": "while"}),
        (3, 3, 123, 30, "fusion.7", {"hlo_category": "output fusion"}),
        (3, 3, 165, 20, "all-reduce.5", {"hlo_category": "all-reduce"}),
        (3, 4, 121, 30, "all-gather", {"hlo_category": "async-start"}),
        (3, 5, 100, 20, "train/fusion.1", {}), (3, 6, 95, 4, "barrier-cores", {}),
        (4, 7, 100, 10, "gemm", {}), (4, 7, 105, 20, "ncclDevKernel_AllReduce", {}),
        (4, 7, 130, 3, "MemcpyD2H", {}), (4, 8, 100, 10, "dot", {}),
        (701, 9, 90, 120, "train", {"step_num": "41", "_src": "x.cc"}),
        (701, 11, 91, 5, "idle", {}),
        (701, 10, 110, 15, "dot.1", cpu), (701, 10, 126, 1e-06, "end: dot.1", {}),
        (701, 10, 130, 9, "psum.2", {**cpu, "hlo_op": "psum.2"}),
    )  # fmt: skip
    for pid, tid, ts, dur, name, args in rows:
        one = {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name}
        records.append({**one, "args": args} if args else one)
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in [*records, {}])
    head = '{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":['
    return f"{head}{lines}]}}".encode()


def sampled():
    """A GPU with hardware counters and NVTX ranges of CUPTI, and stats that are not read."""
    gpu, ranges = Plane("/device:GPU:0", 0), Plane("/host:NVTX-CUPTI", 5)
    gpu.add(gpu.line(1, "Stream #7(Kernel)"), "gemm", 10, 5, source_stack="train.py:7")
    counters, name = gpu.line(9, "_counters_"), "sm__cycles_active.avg"
    for i in range(3):
        gpu.add(counters, name, 10 + 2 * i, 0, **{name: 0.5 + i})
    ranges.add(ranges.line(77, "main"), "forward", 5, 20, nvtx_range="forward")
    return space(gpu, ranges)


def sparse_core():
    """A TPU core and its sparse core, which repeats the step."""
    core, sparse = Plane("/device:TPU:0", 2), Plane("/device:TPU:0 SparseCore 0", 3)
    core.add(core.line(1, "Steps"), "4", 0, 100)
    fusion = core.kind("fusion.1", "fusion.1", hlo_category="loop fusion")
    core.add(core.line(3, "XLA Ops"), fusion, 10, 50)
    sparse.add(sparse.line(1, "Sparse Core Steps"), "4", 0, 100)
    sparse.add(sparse.line(2, "Sparse Core Modules"), "offloaded(1)", 60, 30)
    gather = sparse.kind("gather.9", "gather.9", hlo_category="gather")
    sparse.add(sparse.line(3, "Sparse Core Ops"), gather, 62, 20)
    return space(core, sparse)


def golden():
    """The inputs of the golden cases: path below ``golden`` -> bytes."""
    run = "input/plugins/profile/2026_01_02_03_04_05"
    whole, shown = tpu_host(0), viewer_json()
    return {
        f"xplane/tpu_two_hosts/{run}/host0.xplane.pb": whole,
        f"xplane/tpu_two_hosts/{run}/host1.xplane.pb": tpu_host(1),
        "xplane/cpu_two_devices/input/made.xplane.pb": cpu_process(),
        "xplane/derived_lines/input/profile.pb": gpus(),
        "xplane/gpu_counters/input/rank0.xplane.pb": sampled(),
        "xplane/sparse_core/input/rank0.xplane.pb": sparse_core(),
        "xplane/cut_off/input/host0.xplane.pb": whole[: len(whole) // 5],
        f"xla_json/devices/{run}/host0.trace.json": shown,
        f"xla_json/devices/{run}/perfetto_trace.json": shown,
        "xla_json/cut_off/input/rank2/host0.trace.json": shown[:2200],
    }


def main():
    folder = Path(__file__).parents[2] / "golden"
    for name, content in golden().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        sys.stdout.write(f"{path}: {len(content)}\n")


if __name__ == "__main__":
    main()

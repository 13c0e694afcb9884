"""Perfetto traces as several programs lay theirs out: the inputs of the golden cases.

The events are invented; track names, categories, annotations, clocks and kinds of packets are those
of the producers' sources. ``python tests/support/perfetto_files.py`` rewrites the inputs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from trace_bytes import Fixed, Value, msg, packet

BEGIN, END, INSTANT, COUNTER, STATE = 1, 2, 3, 4, 5
BOOT, REAL = 6, 1

Fields = tuple[int, Value]


class Kernel(NamedTuple):
    """What a device did: start, length, the call that launched it, its number, its step."""

    name: str
    sort: str
    start: int
    dur: int
    call: int
    id: int
    step: int


REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def kernels(late: int = 0) -> list[Kernel]:
    """Two steps: a copy, two kernels, a collective that the second kernel overlaps."""
    made = []
    at = 500_000 + late
    for step in (0, 1):
        for name, sort, gap, dur in (
            ("copy", "copy", 3_000, 4_000),
            ("attention(float*, float*)", "compute", 2_000, 30_000),
            (REDUCE, "comm", -10_000, 24_000),
            ("layernorm(float*)", "compute", -6_000, 12_000),
        ):
            start = at + gap
            made.append(Kernel(name, sort, start, dur, start - 9_000, 70 + len(made), step))
            at = start + dur
        at += 20_000
    return made


def note(name: str, value: Value | bool, iid: int = 0) -> Fields:
    """One annotation."""
    key: Fields = (1, iid) if iid else (10, name)
    if isinstance(value, bool):
        return 4, msg(key, (2, int(value)))
    if isinstance(value, int):
        return 4, msg(key, (4, value) if value < 0 else (3, value))
    return 4, msg(key, (5, value) if isinstance(value, float) else (6, value))


def track(uuid: int, *fields: Fields) -> Fields:
    return 60, msg((1, uuid), *fields)


def process(pid: int, name: str) -> Fields:
    return 3, msg((1, pid), (6, name))


def thread(pid: int, tid: int, name: str = "") -> Fields:
    return 4, msg((1, pid), (2, tid), *([(5, name)] if name else []))


class Writer:
    """One sequence as the SDK writes it: every text is defined in the packet that first uses it."""

    def __init__(self, sequence: int, flags: int = 2) -> None:
        self._sequence, self._flags = sequence, flags
        self._ids: dict[int, dict[str, int]] = {}
        self._fresh: list[Fields] = []

    def iid(self, table: int, text: str) -> int:
        known = self._ids.setdefault(table, {})
        if text not in known:
            known[text] = len(known) + 1
            self._fresh.append((table, msg((1, known[text]), (2, text))))
        return known[text]

    def packet(
        self, *fields: Fields, time: int | None = None, clock: int = 0, flags: int = -1
    ) -> bytes:
        fresh, self._fresh = self._fresh, []
        stamp: list[Fields] = [] if time is None else [(8, time)]
        state = self._flags if flags < 0 else flags
        return packet(
            *stamp, *fields,
            *([(12, msg(*fresh))] if fresh else []),
            (10, self._sequence),
            *([(13, state)] if state else []),
            *([(58, clock)] if clock else []),
        )  # fmt: skip

    def event(
        self, time: int, kind: int, uuid: int, name: str = "", category: str = "", *more: Fields,
        clock: int = 0, notes: dict[str, Value] | None = None,
    ) -> bytes:  # fmt: skip
        fields: list[Fields] = [(9, kind)]
        if category:
            fields.append((3, self.iid(1, category)))
        if name:
            fields.append((10, self.iid(2, name)))
        fields.append((11, uuid))
        fields += [note(key, value, self.iid(3, key)) for key, value in (notes or {}).items()]
        return self.packet((11, msg(*fields, *more)), time=time, clock=clock)


def flow(number: int) -> Fields:
    return 47, Fixed(number)


def ends(number: int) -> Fields:
    return 48, Fixed(number)


def snapshot(*clocks: tuple[int, ...], primary: int = 0) -> Fields:
    """Readings: clock, ticks, and whether it is incremental, and ns per tick."""
    readings = [
        (1, msg(*((n, v) for n, v in zip((1, 2, 3, 4), clock, strict=False) if v or n < 3)))
        for clock in clocks
    ]
    return 6, msg(*readings, *([(2, primary)] if primary else []))


def rocprofv3(ranks: int = 1) -> bytes:
    """rocprofv3, or ``rocpd convert`` of several processes: device slices after all of the host."""
    boot, out = 77_000_000_000, b""
    sdk = Writer(4)
    for rank in range(ranks):
        pid = 3100 + rank
        own = 0xC0FFEE0000 + (rank << 20)
        host, streams, counter = own + 1, {"comm": own + 3}, own + 9
        names = {"copy": own + 2, "compute": own + 2, **streams}
        out += packet(track(own, process(pid, "python3")), (10, 4))
        out += packet(track(host, thread(pid, pid, "python3")), (10, 4))
        for number, uuid in ((1, own + 2), (2, own + 3)):
            out += packet(track(uuid, (2, f"STREAM [{number}]"), (5, own)), (10, 4))
        bytes_ = (8, msg((3, 3), (4, 1024)))
        out += packet(track(counter, (2, "COPY BYTES to [1] (GPU)"), (5, own), bytes_), (10, 4))
        if not rank:
            defaults = (59, msg((58, 64), (11, msg((11, host)))))
            clocks = snapshot((BOOT, boot), (64, boot, 1, 1))
            out += packet((8, 0), defaults, clocks, (10, 4), (13, 1))
        made = kernels(1_700 * rank)
        for step in (0, 1):
            mine = [k for k in made if k.step == step]
            low, high = mine[0].call - 2_000, mine[-1].start + mine[-1].dur + 1_000
            notes = {"begin_ns": boot + low, "end_ns": boot + high, "corr_id": 20 + step}
            out += sdk.event(boot + low, BEGIN, host, f"iteration {step}", "marker_api",
                             clock=BOOT, notes=notes)  # fmt: skip
            for k in sorted(mine, key=lambda k: k.call):
                call = "hipMemcpyAsync" if k.sort == "copy" else "hipLaunchKernel"
                notes = {"tid": pid, "corr_id": k.id, "stream_ID": 2 if k.sort == "comm" else 1}
                out += sdk.event(boot + k.call, BEGIN, host, call, "hip_api", flow(own ^ k.id),
                                 clock=BOOT, notes=notes)  # fmt: skip
                out += sdk.event(boot + k.call + 900, END, host, "", "hip_api", clock=BOOT)
            out += sdk.event(boot + high, END, host, "", "marker_api", clock=BOOT)
        for k in made:
            copy = k.sort == "copy"
            name = "MEMORY_COPY_HOST_TO_DEVICE" if copy else k.name
            category = "memory_copy" if copy else "kernel_dispatch"
            size: dict[str, Value] = {"copy_bytes": 8192} if copy else {"queue": 0, "agent": "1"}
            out += sdk.event(boot + k.start, BEGIN, names[k.sort], name, category, flow(own ^ k.id),
                             clock=BOOT, notes={"corr_id": k.id, **size})  # fmt: skip
            out += sdk.event(boot + k.start + k.dur, END, names[k.sort], "", category, clock=BOOT)
            if copy:
                for time, value in ((k.start, 8), (k.start + k.dur, 0)):
                    out += sdk.event(boot + time, COUNTER, counter, "", "", (30, value), clock=BOOT)
    return out


def rank_threads() -> bytes:
    """xpu_timer: processes are groups (the first has number and id 0), threads name ranks."""
    unix = 1_780_000_000_000_000_000
    names = ["ncclAllReduce", "matmul", "launch_kernel"]
    texts = [(2, msg((1, i), (2, name))) for i, name in enumerate(names, 1)]
    texts += [
        (3, msg((1, i), (2, name))) for i, name in enumerate(("count", "delay(us)", "dtype"), 1)
    ]
    out, first = b"", True
    for group, title in enumerate(("dp", "pp")):
        head = group * 100_000_000
        out += packet(track(head, process(group, title)))
        for rank in (4, 5):
            base = head + (rank + 1) * 10_000
            for line, what in ((1, "compute"), (2, "io")):
                name = f"rank {rank} {what}"
                out += packet(track(base + line, (5, head), thread(group, base + line, name)))
            for k in (k for k in kernels(1_000 * rank) if k.sort != "copy"):
                comm = k.sort == "comm"
                start, dur = k.start // 1000 * 1000, k.dur // 1000 * 1000
                fields = [(9, BEGIN), (10, 1 if comm else 2), (11, base + (2 if comm else 1))]
                fields += [(22, "nccl" if comm else "matmul"), note("", k.id, 1)]
                fields += [note("", (k.start - k.call) // 1000, 2)]
                fields += [note("", "float32", 3), flow(7 << 32 | k.step)] if comm else []
                more = [(12, msg(*texts)), (42, 1), (13, 3)] if first else []
                out += packet((8, unix + start), (10, 1), (11, msg(*fields)), *more)
                event = msg((9, END), (11, fields[2][1]))
                out += packet((10, 1), (8, unix + start + dur), (11, event))
                first = False
    return out


def gpu_packets() -> bytes:
    """PyTorch's native exporter: calls are TrackEvents, what GPUs did are packets of their own."""
    unix, pid = 1_781_000_000_000_000_000, 5151
    made = kernels()
    out = packet(snapshot((BOOT, unix), (REAL, unix)), (8, unix), (10, 1))
    out += packet(track(1, process(pid, "python3")))
    out += packet(track(2, (5, 1), thread(pid, pid, f"thread {pid} (python3)")))
    names = ["ProfilerStep#3", "ProfilerStep#4", "cudaLaunchKernel", "cudaMemcpyAsync"]
    names += sorted({k.name for k in made if k.sort != "copy"})
    texts = [(2, msg((1, i), (2, name))) for i, name in enumerate(names, 1)]
    texts += [
        (1, msg((1, i), (2, c))) for i, c in enumerate(("user_annotation", "cuda_runtime"), 1)
    ]
    stages = ((1, "Kernel"), (2, "Memcpy"), (5, "Annotation"), (31, "[07] stream 7"))
    texts += [(24, msg((1, i), (2, name))) for i, name in (*stages, (32, "[16] stream 16"))]
    texts += [(23, msg((1, 1), (2, pid))), (1001, msg((1, 1), (2, "registers_per_thread")))]
    spec = msg((1, 7), (2, "Power (W)"), (3, "of the board"))
    texts += [(47, msg((1, 1), (3, 0), (2, msg((1, spec)))))]
    texts += [(1000, msg((1, i), (3, name))) for i, name in enumerate(names[4:], 1)]
    out += packet((12, msg(*texts)), (10, 1), (13, 1))
    device = Writer(1)

    def host(time: int, *fields: Fields) -> bytes:
        return device.packet((11, msg((11, 2), *fields)), time=unix + time)

    last = b""
    for step in (0, 1):
        mine = [k for k in made if k.step == step]
        out += host(mine[0].call - 2_000, (9, BEGIN), (10, 1 + step), (3, 1))
        last += host(mine[-1].start + 9_000, (9, END))
    for i, k in enumerate(made, 1):
        call = 4 if k.sort == "copy" else 3
        correlation = (3000, msg((1, i)))
        notes = (note("cbid", 211), note("correlation", k.id))
        out += host(k.call, (9, BEGIN), (10, call), (3, 2), correlation, *notes)
        last += host(k.call + 1_000, (9, END))
    out += last
    for i, k in enumerate(made, 1):
        copy, comm = k.sort == "copy", k.sort == "comm"
        fields = [
            (1, i),
            (2, k.dur),
            (11, 0),
            (13, 32 if comm else 31),
            (14, 2 if copy else 1),
            (5, 1),
        ]
        if not copy:
            sizes = [(1, msg((1, 64), (2, 2), (3, 1))), (2, msg((1, 128), (2, 1), (3, 1)))]
            launch = (21, msg(*sizes, (3, msg((1, 1), (4, 40)))))
            fields += [(20, names.index(k.name) + 1), (19, names[4:].index(k.name) + 1), launch]
        extra = {"device id": "0", "stream id": "16" if comm else "7", "correlation": str(k.id)}
        extra |= {"bytes": "8192"} if copy else {}
        extra |= {"Collective name": "allreduce", "Group size": "8"} if comm else {}
        fields += [(6, msg((1, key), (2, text))) for key, text in extra.items()]
        out += device.packet((53, msg(*fields)), time=unix + k.start)
    for step in (0, 1):  # the range of a step over the kernels of a stream: no work
        mine = [k for k in made if k.step == step and k.sort != "comm"]
        dur = mine[-1].start + mine[-1].dur - mine[0].start
        fields = [(1, 500 + step), (2, dur), (11, 0), (13, 31), (14, 5), (5, 1), (20, 1 + step)]
        out += device.packet((53, msg(*fields)), time=unix + mine[0].start)
    for i in range(3):
        sample = msg((4, 1), (2, msg((1, 7), (3, 250.5 + i))))
        out += device.packet((52, sample), time=unix + 480_000 + i * 60_000)
    return out


def sdk() -> bytes:
    """An application with the SDK: stamps that are differences, counters of threads that are, too,
    a compressed second thread, nested annotations, a state, arrows whose ids are used anew."""
    boot, pid, out = 9_000_000_000, 811, b""
    out += packet(track(50, process(pid, "server")), (10, 3))
    for sequence, tid in ((1, 8111), (2, 8112)):
        own, time = Writer(sequence), boot + 1_000 * sequence
        lane, clock = 500 + sequence, 600 + sequence
        defaults = (59, msg((58, 64), (11, msg((11, lane), (31, clock)))))
        clocks = snapshot((BOOT, time), (64, time, 1, 1))
        body = packet((8, 0), defaults, clocks, (10, sequence), (13, 1))
        body += own.packet(track(lane, thread(pid, tid, f"worker {sequence}")), time=0)
        counter = (8, msg((1, 1), (4, 1), (5, 1)))
        body += own.packet(track(clock, (5, lane), counter), time=0)

        def delta(after: int, kind: int, *fields: Fields, own: Writer = own) -> bytes:
            return own.packet((11, msg((9, kind), *fields)), time=after)

        for i in range(2):
            name = (10, own.iid(2, f"request {i}"))
            shape = (4, msg((10, "shape"), (12, msg((3, 2))), (12, msg((3, 64)))))
            inner = (4, msg((10, "cache"), (11, msg((10, "hit"), (2, 1))),
                            (11, msg((10, "age"), (5, 0.25)))))  # fmt: skip
            pointer = (4, msg((10, "at"), (7, 0xBEEF)))
            category = (3, own.iid(1, "rpc"))
            body += delta(400, BEGIN, category, name, shape, inner, pointer, (12, 300), flow(9))
            body += delta(150, INSTANT, (3, own.iid(1, "rpc")), (10, own.iid(2, "parsed")))
            body += delta(650, END, (12, 800), note("status", 200), ends(9))
        body += own.packet(
            (11, msg((9, INSTANT), (23, "flushed"), (11, lane))), time=time + 90, clock=BOOT
        )
        out += packet((50, zlib.compress(body))) if sequence == 2 else body
    state = Writer(5)
    out += packet(track(70, (2, "queue"), (5, 50), (18, b"")), (10, 5), (13, 1))
    for after, name in ((0, "idle"), (900, "busy"), (1_700, "")):
        out += state.event(boot + 2_000 + after, STATE, 70, name)
    for uuid, start, dur in ((81, 100, 700), (82, 300, 200), (83, 900, 400)):
        out += packet(track(uuid, (2, "uploads"), (5, 50)), (10, 5))
        out += state.event(boot + start, BEGIN, uuid, "upload", "io")
        out += state.event(boot + start + dur, END, uuid)
    out += packet((8, boot), (10, 9), (2, msg((1, msg((1, pid), (2, 1), (3, "server"))))))
    return out + packet((8, boot), (10, 9), (45, msg((3, "x"))))


def legacy() -> bytes:
    """Chrome until 2020: phases, ids, overrides, stamps in events, a descriptor of a thread."""
    start = packet((44, msg((1, 20), (2, 21), (5, "CrBrowserMain"), (6, 1_000))), (10, 1), (13, 1))
    out = start + packet((43, msg((1, 20), (6, "Browser"))), (10, 1), (13, 2))
    own = Writer(1)

    def event(
        after: int, name: str, phase: str, *old: Fields, notes: tuple[Fields, ...] = ()
    ) -> bytes:
        fields = [(1, after), (3, own.iid(1, "cat")), (10, own.iid(2, name))]
        return own.packet((11, msg(*fields, (6, msg((2, ord(phase)), *old)), *notes)))

    out += event(0, "task", "B", (8, 5), (13, 2))
    out += event(10, "paint", "X", (3, 40), notes=(note("frame", 12),))
    out += event(60, "task", "E")
    out += event(5, "load", "b", (11, 77), notes=(note("url", "a.example"),))
    out += event(1, "load", "n", (11, 77))
    out += event(30, "load", "e", (11, 77), notes=(note("bytes", 512),))
    out += event(2, "reply", "X", (3, 9), (8, 5), (13, 1))
    out += event(20, "vsync", "I", (14, 1))
    out += event(1, "resize", "I", (14, 2))
    out += event(1, "elsewhere", "X", (3, 4), (18, 30), (19, 31))
    out += event(1, "counter of old", "O", (11, 1))
    return out + event(1, "backwards", "X", (3, -4))


def clocks() -> bytes:
    """A clock of its own that is related to boot time twice, packets before the first snapshot,
    a clock that nothing relates, a sequence whose beginning is missing."""
    out = packet((10, 1), (13, 1)) + packet(track(1, (2, "work")))
    own = Writer(1)
    out += own.event(5_100, BEGIN, 1, "early", clock=128) + own.event(5_400, END, 1, clock=128)
    out += packet(snapshot((128, 5_000), (BOOT, 1_000_000)), (10, 1))
    out += own.event(5_600, BEGIN, 1, "between", clock=128) + own.event(5_900, END, 1, clock=128)
    out += packet(
        snapshot((128, 6_000), (BOOT, 1_002_500), (REAL, 1_790_000_000_001_002_500)), (10, 1)
    )
    out += own.event(6_100, BEGIN, 1, "after", clock=128) + own.event(6_300, END, 1, clock=128)
    out += own.event(100, INSTANT, 1, "nowhere", clock=129)
    lost = Writer(2)
    return out + lost.event(1_003_000, INSTANT, 1, "lost", "without a state")


def named_ends() -> bytes:
    """Slices that cross, closed by name; marks that close nothing, and what nobody closes; tracks
    that are inside of what is not described; ids that are not defined."""
    out = packet((10, 1), (13, 1)) + packet(track(1, thread(7, 70, "main")))
    own = Writer(1)
    marks = [(10, BEGIN, "a"), (20, BEGIN, "b"), (40, END, "a"), (50, END, "b"), (60, BEGIN, "c")]
    marks += [(70, END, "d"), (80, BEGIN, "open"), (90, END, "c")]
    for time, kind, name in marks:
        out += own.event(time, kind, 1, name, "x")
    out += packet(track(2, (2, "inside"), (5, 99))) + own.event(30, INSTANT, 2, "unseen")
    out += packet(
        (8, 35), (10, 1), (13, 2), (11, msg((9, INSTANT), (11, 1), (10, 40), note("", 1, 41)))
    )
    return out + own.event(37, COUNTER, 1, "", "", (30, 5)) + own.event(200, 9, 1, "no kind")


def damaged() -> bytes:
    """A packet in the middle says that it is longer than it is, one is no message."""
    whole = bytearray(rocprofv3())
    places, at = [], 0
    while at < len(whole):
        size, start = whole[at + 1], at + 2
        if size >= 128:
            size, start = size & 127 | whole[at + 2] << 7, at + 3
        places.append((at, start))
        at = start + size
    whole[places[20][0] + 1] = 0x7E
    whole[places[30][1]] = 0x07
    return bytes(whole)


def other_sources() -> bytes:
    """What the kernel traced, and no event of a program."""
    bundle = (1, msg((1, 0), (2, msg((1, 1000), (2, 5)))))
    return packet((33, b"")) + packet(bundle, (10, 1)) * 3 + packet((8, 5), (7, msg((1, b""))))


def legacy_flows() -> bytes:
    """Flows of Chrome's older format: to the slice around, on by way of a step, and to the next
    slice; the same id under another name is another flow, one has no end."""
    out = packet((10, 1), (13, 1))
    for uuid, tid in ((1, 11), (2, 12)):
        out += packet(track(uuid, thread(10, tid, f"thread {tid}")), (10, 1))
    own = Writer(1)

    def slice_(start: int, end: int, uuid: int, name: str) -> bytes:
        return own.event(start, BEGIN, uuid, name, "c") + own.event(end, END, uuid)

    def flow(time: int, uuid: int, name: str, phase: str, *old: Fields) -> bytes:
        fields = [(11, uuid), (3, own.iid(1, "c")), (10, own.iid(2, name))]
        inner = (6, msg((2, ord(phase)), (6, 5), *old))
        return own.packet((11, msg(*fields, inner)), (8, time))

    out += slice_(100, 200, 1, "source") + slice_(250, 290, 1, "step") + slice_(300, 400, 2, "sink")
    out += slice_(500, 600, 2, "next")
    out += flow(110, 1, "F", "s") + flow(260, 1, "F", "t") + flow(310, 2, "F", "f", (12, 1))
    return out + flow(120, 1, "G", "s") + flow(450, 2, "G", "f") + flow(130, 1, "H", "s")


def wide_clock() -> bytes:
    """The defaults of a sequence name a clock by more than 32 bits."""
    out = packet((10, 1), (13, 1), (59, msg((58, 1 << 63 | 128)))) + packet(track(1, (2, "work")))
    out += packet(snapshot((128, 0), (BOOT, 1_000)), (10, 2))
    own = Writer(1)
    return out + own.event(10, BEGIN, 1, "a") + own.event(25, END, 1)


UNIX, BOOTED = 1_700_000_000_000_000_000, 5_000_000_000
SECRET = b"--password=hunter2"

FTRACE = (1, msg((1, 0), (2, msg((1, BOOTED + 700), (2, 5)))))
TREE = (2, msg((1, msg((1, 77), (2, 1), (3, "/home/alice/bin/server"), (3, SECRET)))))
PATHS = (
    12,
    msg((17, msg((1, 4), (2, "/home/alice/lib/libc.so"))), (5, msg((1, 9), (2, "memcpy")))),
)
SAMPLE = (66, msg((1, 0), (2, 77)))
LOG = (39, msg((1, msg((6, SECRET)))))


def with_system_data(late: int = 0) -> bytes:
    """Two slices; the kernel's events, some of them packed, samples of a CPU, a log."""
    out = packet(snapshot((BOOT, BOOTED), (REAL, UNIX + late)), (10, 1))
    out += packet(track(5, thread(77, 78, "main")), (10, 1), (13, 1), (3, 1001))
    for i in range(2):
        at = BOOTED + 1000 * i
        out += packet((8, at), (10, 1), (11, msg((9, 1), (11, 5), (23, f"s{i}"))))
        out += packet((8, at + 500), (10, 1), (11, msg((9, 2), (11, 5))))
    out += packet(FTRACE, (10, 2), (3, 1001)) * 3
    out += packet((50, zlib.compress(packet(FTRACE, (10, 2)) * 2)))
    out += packet((8, BOOTED), TREE, (10, 3))
    out += packet(PATHS, (10, 4), (13, 1)) + packet((8, BOOTED + 300), SAMPLE, (10, 4), (13, 2))
    out += packet((8, BOOTED + 300), SAMPLE, PATHS, (10, 4), (13, 2))
    return out + packet((8, BOOTED), LOG, (10, 5)) + packet((89, msg((1, 7), (2, 8))))


INPUTS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "rocprofv3": ("results.pftrace", rocprofv3),
    "two_processes": ("out_results.pftrace", lambda: rocprofv3(2)),
    "rank_threads": ("trace_0.bin", rank_threads),
    "gpu_packets": ("rank0.pftrace", gpu_packets),
    "sdk": ("trace.perfetto-trace", sdk),
    "legacy_events": ("chrome.pftrace", legacy),
    "legacy_flows": ("chrome.pftrace", legacy_flows),
    "clocks": ("trace.pftrace", clocks),
    "wide_clock": ("trace.pftrace", wide_clock),
    "named_ends": ("trace.pftrace", named_ends),
    "damaged": ("results.pftrace", damaged),
    "cut_off": ("results.pftrace", lambda: rocprofv3()[:-333]),
    "other_sources": ("trace.pftrace", other_sources),
}
"""By golden case: the name of its file, and what makes it."""


def inputs(golden: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below ``golden/perfetto`` that is made here, and its content."""
    for case, (name, make) in INPUTS.items():
        yield golden / "perfetto" / case / "input" / name, make()


if __name__ == "__main__":
    for path, data in inputs(Path(__file__).parents[2] / "golden"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

"""Raw captures of Ascend devices, made: the golden inputs of ``ascend_raw`` and of its tests.

``python tests/ascend_raw_made.py`` writes the inputs of the golden cases again.
"""

import itertools
import json
import struct
from pathlib import Path

from paths import ROOT

UNIX_US, MONOTONIC_NS = 1_740_816_000_000_000, 500_000_000_000
UNIX_NS = UNIX_US * 1000
DEVICE_TICK, HOST_TICK = 1_000_000, 2_000_000
PROF = "PROF_000001_20250301080000123_ABCDEFGH"
WORKER = "node_4242_20250301080000123_ascend_pt"
GRAPH, NO_GRAPH = 3, 2**32 - 1
COUNTER = "profiler_default_tag"


def device(us):
    """Ticks of the device, 10 ns each, so long after the start."""
    return DEVICE_TICK + round(us * 100)


def host(us):
    """Ticks of the host."""
    return HOST_TICK + round(us * 100)


class Tree:
    """Files by name, to be written or changed first."""

    def __init__(self):
        self.files = {}

    def add(self, name, content):
        if isinstance(content, dict):
            content = json.dumps(content)
        self.files[name] = content.encode() if isinstance(content, str) else bytes(content)
        return self

    def sliced(self, stem, content, *cuts):
        """One stream of bytes as slices that end at these offsets."""
        borders = [0, *cuts, len(content)]
        for number, (a, b) in enumerate(itertools.pairwise(borders)):
            self.add(f"{stem}.slice_{number}", content[a:b])
            self.add(f"{stem}.slice_{number}.done", f"filesize:{b - a}\n")
        return self

    def write(self, folder):
        for name, content in self.files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder


# -- records ------------------------------------------------------------------------------


def old_mark(tag, tick, stream=519, task=7):
    """20 bytes of ``training_trace``."""
    return struct.pack("<QHHQ", tag, task, stream, tick)


def hwts(number, kind, task, tick, stream, unit=0, magic=0x6BD3):
    """64 bytes of HWTS; ``number`` counts records."""
    head = (number % 16) << 4 | kind
    return struct.pack("<BBHHHQI40x4x", head, unit, magic, 0, task, tick, stream)


def stars(number, function, task, tick, stream, sqe=0, context=0, sub=0, magic=0x6BD3):
    """64 bytes of STARS."""
    head = function | (number % 16) << 6 | sqe << 10
    return struct.pack("<HHHHQHHHH40x", head, magic, stream, task, tick, sub, context, 0x8000, 0)


def stars_6(number, function, task, tick, sqe=0, magic=0x6BD3):
    """32 bytes of STARS of the newest chips."""
    return struct.pack("<HHIQ16x", function | (number % 16) << 6 | sqe << 10, magic, task, tick)


def track(kind, body):
    """40 bytes of ``ts_track``."""
    return struct.pack("<BBHI", 0, kind, 40, 0) + body.ljust(32, b"\0")


def mark(tag, tick, graph=GRAPH, index=0, stream=2, task=0):
    return track(10, struct.pack("<QQQHHH", tick, index, graph, stream, task, tag))


def mark_6(tag, tick, graph=GRAPH, index=0, stream=2, task=0):
    return track(10, struct.pack("<QQQHHI", tick, index, graph, tag, stream, task))


def flip(tick, stream, number):
    return track(14, struct.pack("<QHHHH", tick, stream, number, 0, 0))


def scheduled(tick, stream, task, kind, state):
    return track(12, struct.pack("<QHHHB", tick, stream, task, kind, state))


# -- an old capture -----------------------------------------------------------------------

OPERATORS = ("Default/Conv2D-op1", "Default/MatMul-op2", "Default/AllReduce-op3")


def job_marks(steps=3):
    """Marks of some steps, the last one cut off before its end."""
    found = []
    for step in range(steps):
        at = 1000 + step * 1000
        found += [(10010, at - 10, 519), (1, at, 519), (3, at + 300, 520), (2, at + 500, 521)]
        found += [(4, at + 700, 520), (255, at + 900, 541)] if step < steps - 1 else []
    return b"".join(old_mark(tag, tick, stream) for tag, tick, stream in found)


def job_tasks():
    """Tasks of two steps: a lost record, a block mark, an end without a beginning, one that had
    lost its end, one that was running.
    """
    rows = []
    for at in (1000, 2000):
        rows += [(0, 11, at + 10, 519), (0, 12, at + 60, 521), (1, 11, at + 50, 519)]
        rows += [(2, 12, at + 70, 521), (1, 12, at + 90, 521), (0, 30, at + 310, 520)]
        rows += [(1, 30, at + 690, 520)]
    rows += [(0, 13, 2950, 519), (0, 13, 3010, 519), (1, 13, 3020, 519), (1, 77, 3030, 520)]
    rows += [(0, 14, 3040, 521)]
    numbers = [n + (n > 9) for n in range(len(rows))]
    return b"".join(
        hwts(number, kind, task, tick, stream)
        for number, (kind, task, tick, stream) in zip(numbers, rows, strict=True)
    )


AI_CPU = (
    "[100] Node:InitData, Run tart:5000, Run end:5100\0"
    "Thread[ 1] process device[1]:aicpu[ 0] task end, tickDrvTopHalf=900,tickDrvBottomHalf=905, "
    "tickBeforeRun=910,tickAfterRun=990, dispatchTime=2 us, totalTime=9 us.\0"
    "Thread[ 2] process device[1]:aicpu[ 0] task end, tickDrvTopHalf=1900,tickDrvBottomHalf=1905, "
    "tickBeforeRun=1910,tickAfterRun=1990, dispatchTime=3 us, totalTime=8 us.\0"
)


DATA_QUEUE = (
    "[10] Enqueue data to dp, source:ab-1, index:1, size:0\0"
    "[12] Enqueue data to dp, source:ab-1, index:2, size:1\0"
    "Thread[ 4][1] Enqueue data\0"
    "[20] Enqueue data to dp, source:ab-1, index:3, size:2\0"
)
"""Microseconds of the counter: ticks 1000, 1200 and 2000; one sentence of another form."""


def job(tree=None):
    """A ``JOB*`` folder of old MindSpore on device 1; records lie across slices."""
    tree = tree or Tree()
    root = "JOBABCDEF"
    tree.add(f"{root}/host_start.log.1", "[Device1]\nclock_realtime: 5\nclock_monotonic_raw: 3\n")
    steps = f"{root}/data/training_trace.46.dev.{COUNTER}.1"
    marks, tasks = job_marks(), job_tasks()
    tree.sliced(steps, marks, 130)
    for number, (a, b) in enumerate(((0, 100), (100, 500), (500, None))):
        # a tenth slice sorts by its number, not by its name
        name = f"{root}/data/hwts.log.data.45.dev.{COUNTER}.1.slice_{(8, 9, 10)[number]}"
        tree.add(name, tasks[a:b])
    text = f"{root}/data/Framework.host.vm"
    lines = "".join(
        f"{name} {blocks} {task} 3\n"
        for name, blocks, task in zip(
            (*OPERATORS[:2], "Default/Cast-op4"), (32, 8, 1), (11, 12, 13), strict=True
        )
    )
    tree.add(f"{text}.task_desc_info.1.slice_0", lines)
    tree.add(f"{text}.graph_desc_info.1.slice_0", f"op_name:{OPERATORS[0]} op_type:Conv2D x:1\n")
    tree.add(f"{text}.point.1.slice_0", f"1 {OPERATORS[0]}\n2 {OPERATORS[1]}\n3 {OPERATORS[2]}\n")
    tree.add(f"{root}/data/DATA_PREPROCESS.dev.AICPU.1.slice_0", AI_CPU)
    tree.add(f"{root}/data/DATA_PREPROCESS.dev.TDT.1.slice_0", DATA_QUEUE)
    return tree


def job_cut_off():
    """The same, with the front of one file aged away and the ends of both cut off."""
    tree = job()
    stem = f"JOBABCDEF/data/hwts.log.data.45.dev.{COUNTER}.1.slice_"
    tree.files[f"{stem}8"] = tree.files[f"{stem}8"][20:]
    steps = f"JOBABCDEF/data/training_trace.46.dev.{COUNTER}.1.slice_1"
    tree.files[steps] = tree.files[steps][:-7]
    last = bytearray(tree.files[f"{stem}10"])
    last[64:68] = b"\xff\xff\xff\xff"  # a record of another kind of data
    tree.files[f"{stem}10"] = bytes(last)
    return tree


# -- a crashed capture of a newer chip ----------------------------------------------------

NAMES = {
    101: "aclnnMatmul_MatMulV2", 102: "MatMulV2", 103: "KERNEL_AICORE",
    104: "hcom_allReduce__1_0_1",
    105: "NOTIFY_WAIT", 106: "MEMCPY_ASYNC", 107: "Notify_Wait", 108: "Memcpy", 109: "tp_group",
    110: "aclnnAdd_Add", 111: "Add", 112: "FFTS_PLUS", 113: "KERNEL_AIVEC", 114: "MESH-RING",
}  # fmt: skip
TYPES = "10000_1:launch\n5500_1:hccl\n5000_1:KERNEL_AICORE\n"
THREAD = 77
FIRST = (65_530, 1, 11)


def call(level, start_us, end_us, item):
    """40 bytes of ``api_event``."""
    ticks = host(start_us), host(end_us)
    return struct.pack("<HHIIIQQQ", 0x5A5A, level, 1, THREAD, 0, *ticks, item)


def head(level, us, length):
    return struct.pack("<HHIIIQ", 0x5A5A, level, 1, THREAD, length, host(us))


def launched(us, stream, task, batch, kind, kernel=0):
    """64 bytes of ``task_track``."""
    body = struct.pack("<HHHHQQ", 0, stream, task, batch, kind, kernel)
    return (head(5000, us, 40) + body).ljust(64, b"\0")


def operator(us, op, kind, unit=0, blocks=20):
    """64 bytes of ``node_basic_info``."""
    return (head(10000, us, 40) + struct.pack("<QIQII", op, unit, kind, blocks, 0)).ljust(64, b"\0")


def collective(us):
    """64 bytes of ``hccl_op_info``."""
    return (head(10000, us, 40) + struct.pack("<BBQQQ", 0, 3, 114, 4096, 109)).ljust(64, b"\0")


def transfer(us, item, plane, size):
    """256 bytes of ``hccl_info``."""
    body = struct.pack("<QQQIIIIII", item, 0, 109, 0, 1, 2, 0, plane, NO_GRAPH)
    body += struct.pack(
        "<QIIdQQQIIIIII", 2**64 - 1, 0, 0, 0.0, 0, 0, size, 0, 3, 1, 0, 2**32 - 1, 0
    )
    return (head(5500, us, 232) + body).ljust(256, b"\0")


def crashed_host(tree, root, iterations=3):
    """What the host recorded: an operator and a collective in every iteration."""
    calls, tracks, operators, collectives, parts = [], [], [], [], []
    for i in range(iterations):
        at, batch = i * 100, int(i > 0)
        first = FIRST[i]  # numbers start anew with the second iteration
        calls += [call(10000, at, at + 4, 101), call(10000, at + 5, at + 12, 104)]
        tracks.append(launched(at + 2, 2, first, batch, 103))
        operators.append(operator(at + 3, 101, 102))
        for k, (item, kind) in enumerate(((107, 105), (108, 106))):
            calls.append(call(5500, at + 6 + 2 * k, at + 7 + 2 * k, item))
            tracks.append(launched(at + 6.5 + 2 * k, 5, first + 1 + k, 0, kind))
            parts.append(transfer(at + 6.6 + 2 * k, item, k, 4096 * k))
        operators.append(operator(at + 11, 104, 104, unit=9))
        collectives.append(collective(at + 11.5))
    data = f"{root}/host/data"
    tree.sliced(f"{data}/unaging.api_event.data", b"".join(calls), 60)
    tree.sliced(f"{data}/unaging.compact.task_track", b"".join(tracks))
    tree.sliced(f"{data}/unaging.compact.node_basic_info", b"".join(operators))
    tree.sliced(f"{data}/unaging.compact.hccl_op_info", b"".join(collectives))
    tree.sliced(f"{data}/unaging.additional.hccl_info", b"".join(parts))
    lines = "".join(f"{number}:{name}\n" for number, name in NAMES.items())
    tree.sliced(f"{data}/unaging.additional.hash_dic", lines.encode())
    tree.sliced(f"{data}/unaging.additional.type_info_dic", TYPES.encode())
    return tree


def crashed_tasks(iterations=3):
    """STARS records: the last operator never ends."""
    rows = []
    for i in range(iterations):
        at, first = i * 100, FIRST[i]
        rows += [(0, first, at + 10, 2, 0), (1, first, at + 30, 2, 0)]
        rows += [(0, first + 1, at + 30, 5, 7), (1, first + 1, at + 40, 5, 7)]
        rows += [(0, first + 2, at + 40, 5, 11), (1, first + 2, at + 60, 5, 11)]
        rows += [(0, 9, at + 62, 3, 3), (1, 9, at + 70, 3, 3)]
    del rows[-7:-2]
    found = [
        stars(n, function, task, device(us), stream, sqe)
        for n, (function, task, us, stream, sqe) in enumerate(rows)
    ]
    for us, context, sub in ((63, 0, 6), (64, 1, 1)):  # subtasks of the first task of stream 3
        found.append(stars(len(found), 34, 9, device(us), 3, 3, context, sub))
        found.append(stars(len(found), 35, 9, device(us + 3), 3, 3, context, sub))
    found.append(stars(len(found), 40, 9, device(70), 3))
    return b"".join(found)


def crashed_marks(iterations=3, one=mark):
    """Records of the task scheduler."""
    found = [one(60_000, device(0), NO_GRAPH, 50)]
    for i in range(iterations):
        at = i * 100
        found += [
            one(0, device(at + 5)),
            one(2, device(at + 10)),
            one(10_000, device(at + 30), stream=5),
        ]
        found += [one(10_001, device(at + 60), stream=5), one(3, device(at + 60))]
        found += [one(4, device(at + 80)), one(1, device(at + 82))]
        found += [one(20_000, device(at + 1)), one(20_001, device(at + 4))]
    del found[-5:]
    found.append(one(60_001, device(190), NO_GRAPH, 50))
    found += [flip(device(95), 2, 1), track(99, b"new")]
    found += [scheduled(device(us), 8, 40, 1, state) for us, state in ((84, 0), (85, 1), (88, 2))]
    return b"".join(found)


def clocks(tree, root, chip="5", dev=0):
    """The small files of a collector's folder."""
    start = {"collectionTimeBegin": str(UNIX_US), "clockMonotonicRaw": str(MONOTONIC_NS)}
    cpu = [{"Id": 0, "Frequency": "100.000000"}]
    chips = [{"id": dev, "hwts_frequency": "100"}]
    about = {"devices": str(dev), "CPU": cpu, "platform_version": chip, "pid": "4242", "rank_id": 2}
    for side, suffix in (("host", ""), (f"device_{dev}", f".{dev}")):
        info = {**about, "DeviceInfo": chips} if suffix else about
        tree.add(f"{root}/{side}/info.json{suffix}", info)
        tree.add(f"{root}/{side}/start_info{suffix}", start)
        log = f"clock_monotonic_raw: {MONOTONIC_NS}\ncntvct: {HOST_TICK}\ncntvct_diff: 0\n"
        tree.add(f"{root}/{side}/host_start.log{suffix}", f"[Host]\nclock_realtime: 1\n{log}")
    log = f"clock_monotonic_raw:{MONOTONIC_NS}\ncntvct:{DEVICE_TICK}\n"
    return tree.add(f"{root}/device_{dev}/dev_start.log.{dev}", log)


def crashed(tree=None, worker=WORKER):
    """A run of PyTorch that died in its third iteration, as it left its folder."""
    tree = tree or Tree()
    root = f"{worker}/{PROF}"
    clocks(tree, root)
    crashed_host(tree, root)
    data = f"{root}/device_0/data"
    tree.sliced(f"{data}/stars_soc.data.0", crashed_tasks(), 200)
    tree.sliced(f"{data}/ts_track.data.0", crashed_marks(), 410)
    changes = struct.pack("<II", 2, 0) + struct.pack("<QII", device(0), 1800, 0)
    changes += struct.pack("<QII", device(50), 800, 0)
    tree.sliced(f"{data}/lpmFreqConv.data.0", changes.ljust(888, b"\0"))
    used = struct.pack("<IIQQQ", 0, 0, 0, 1 << 20, device(1))
    tree.sliced(f"{data}/npu_mem.data.0", used + struct.pack("<IIQQQ", 1, 0, 0, 1 << 21, device(2)))
    tree.sliced(f"{data}/hbm.data.0", bytes(48))
    tree.add(f"{worker}/profiler_info_2.json", {"rank_id": 2})
    return tree


def crashed_cut_off():
    """The same, cut where the disk was full: half records, and no anchor of the device."""
    tree = crashed()
    data = f"{WORKER}/{PROF}/device_0/data"
    for name in (f"{data}/stars_soc.data.0.slice_1", f"{data}/ts_track.data.0.slice_1"):
        tree.files[name] = tree.files[name][:-90]
    del tree.files[f"{WORKER}/{PROF}/device_0/dev_start.log.0"]
    return tree


def chip_6():
    """A PROF folder of the newest chips: short records, long task numbers, no streams."""
    tree = Tree()
    clocks(tree, PROF, "15", 1)
    tasks = [(0, 70_000, 10), (0, 70_001, 12), (1, 70_000, 20), (1, 70_001, 30)]
    found = [stars_6(n, f, task, device(us), 2) for n, (f, task, us) in enumerate(tasks)]
    tree.sliced(f"{PROF}/device_1/data/stars_soc.data.1", b"".join(found))
    tree.sliced(f"{PROF}/device_1/data/ts_track.data.1", crashed_marks(2, mark_6))
    return tree


CASES = {
    "job": job, "job_cut_off": job_cut_off, "crashed": crashed,
    "crashed_cut_off": crashed_cut_off, "chip_6": chip_6,
}  # fmt: skip

if __name__ == "__main__":
    for name, make in CASES.items():
        make().write(ROOT / "golden" / "ascend_raw" / name / "input")

"""Host files of CANN and of FRAMEWORK, packed by hand from the description of their layout.

``python tests/ascend_raw_host_made.py`` writes the inputs of two golden cases again.
"""

import json
import struct

from paths import ROOT

MAGIC = 0x5A5A
NEVER = 2**64 - 1
NO_CONTEXT = 2**32 - 1
ACL, MODEL, NODE, HCCL, RUNTIME = 20000, 15000, 10000, 5500, 5000
MHZ, CNTVCT, MONOTONIC = 100, 1_000_000, 5_000_000_000
UNIX_US, MONOTONIC_START = 1_740_816_000_000_000, 4_000_000_000
OFFSET = UNIX_US * 1000 - MONOTONIC_START


def ns(tick):
    """The time of a tick of the folder that ``clock_files`` describes."""
    return (tick - CNTVCT) * 10 + MONOTONIC + OFFSET


def clock_files(folder):
    """The small files of a ``host`` folder that say what its counter means, by name."""
    info = {
        "CPU": [{"Id": "0", "Frequency": f"{MHZ}.000000"}], "hostname": "node", "pid": "4242",
        "rank_id": -1,
    }  # fmt: skip
    start = {"collectionTimeBegin": str(UNIX_US), "clockMonotonicRaw": str(MONOTONIC_START)}
    log = f"[Host]\nclock_realtime: 1\nclock_monotonic_raw: {MONOTONIC}\ncntvct: {CNTVCT}\n"
    return {
        f"{folder}/info.json": json.dumps(info).encode(),
        f"{folder}/start_info": json.dumps(start).encode(),
        f"{folder}/host_start.log": log.encode(),
    }


# -- records of the collector ---------------------------------------------------------------


def api(level, kind, thread, begin, end, item=0, request=0, magic=MAGIC):
    return struct.pack("<HHIIIQQQ", magic, level, kind, thread, request, begin, end, item)


def _head(level, kind, thread, length, time, magic=MAGIC):
    return struct.pack("<HHIIIQ", magic, level, kind, thread, length, time)


def _padded(record, size):
    assert len(record) <= size
    return record + bytes(size - len(record))


def task_track(thread, time, stream, task, kind, device=0, batch=0, kernel=0):
    body = struct.pack("<HHHHQQ", device, stream, task, batch, kind, kernel)
    return _padded(_head(RUNTIME, 803, thread, 40, time) + body, 64)


def node_basic_info(thread, time, op, op_type, unit=0, blocks=8):
    body = struct.pack("<QIQIIB", op, unit, op_type, blocks, 0, 0)
    return _padded(_head(NODE, 1, thread, 40, time) + body, 64)


def hccl_op_info(thread, time, group, algorithm, count, data_type=4):
    body = struct.pack("<BBQQQ", 0, data_type, algorithm, count, group)
    return _padded(_head(NODE, 10, thread, 40, time) + body, 64)


def memcpy_info(thread, time, size, direction):
    body = struct.pack("<QQH", size, size, direction)
    return _padded(_head(RUNTIME, 806, thread, 40, time) + body, 64)


def hccl_info(thread, time, item, group, plane, context=NO_CONTEXT, size=1024, remote=3):
    body = struct.pack("<QQQ", item, 0, group)
    body += struct.pack("<IIIIII", 1, remote, 8, 0, plane, context)
    body += struct.pack("<QII", NEVER, 0, 0)
    body += struct.pack("<dQQQ", 1.5, 11, 12, size)
    body += struct.pack("<IIIIII", 0, 4, 1, 0, 255, 0)
    return _padded(_head(HCCL, 2, thread, 232, time) + body, 256)


def context_ids(thread, time, op, contexts):
    body = struct.pack("<QI", op, len(contexts)) + struct.pack(f"<{len(contexts)}I", *contexts)
    return _padded(_head(NODE, 4, thread, 232, time) + body, 256)


def graph_id_map(thread, time, name, graph, model):
    return _padded(
        _head(MODEL, 5, thread, 232, time) + struct.pack("<QII", name, graph, model), 256
    )


def other_info(thread, time):
    return _padded(_head(NODE, 3, thread, 232, time), 256)


def hash_dic(names):
    return "".join(f"{number}:{name}\n" for number, name in names.items()).encode()


def type_dic(names):
    return "".join(f"{level}_{kind}:{name}\n" for (level, kind), name in names.items()).encode()


# -- files of FRAMEWORK -----------------------------------------------------------------------


def tlv(kind, value):
    return struct.pack("<HI", kind, len(value)) + value


def record(fixed, texts):
    inner = b"".join(
        tlv(kind, text.encode() if isinstance(text, str) else text) for kind, text in texts.items()
    )
    return tlv(1, fixed + inner)


def ms_op(
    thread, start, end, texts, flow=NEVER, step=0, module=0, event=0, stage=0, graph=False,
    is_stage=False, stack=False, pid=4242,
):  # fmt: skip
    fixed = struct.pack("<5Q", thread, flow, step, start, end) + struct.pack(
        "<i3H", pid, module, event, stage
    )
    fixed += struct.pack("<b3B", 0, graph, is_stage, stack)
    assert len(fixed) == 54
    return record(fixed, texts)


def ms_memory(time, used, alloc, size=512, device=0, owner="Default/Add-op1"):
    fixed = struct.pack("<i", device)
    fixed += struct.pack("<11Q", 77, 4242, time, 4096, size, used, 9 * used, alloc, 0, 0, 0)
    fixed += struct.pack("<I4B", 0, 0, 0, 0, 0)
    assert len(fixed) == 100
    return record(fixed, {13: owner})


def old_op(thread, start, end, texts, sequence=-1, flow=None, forward=0, pid=4242):
    fixed = struct.pack("<3q4Q", start, end, sequence, pid, thread, thread, forward)
    fixed += b"" if flow is None else struct.pack("<Q", flow)
    return record(fixed + b"\0", texts)


def torch_op(
    thread, start, end, texts, sequence=-1, forward=0, pid=4242, scope=b"\0", end_thread=None
):
    end_thread = thread if end_thread is None else end_thread
    fixed = struct.pack("<3q4Q", start, end, sequence, pid, thread, end_thread, forward)
    return record(fixed + scope + b"\0", texts)


def torch_mark(thread, time, category, correlation, name, pid=4242):
    return record(struct.pack("<q4Q", time, category, correlation, thread, pid), {1: name})


def torch_memory(time, allocated, reserved, active, device_type=20, device=0):
    fixed = struct.pack("<7q", 4096, time, 512, allocated, reserved, active, 0)
    fixed += struct.pack("<2b3B2Q", device_type, device, 0, 0, 0, 77, 4242)
    assert len(fixed) == 77
    return record(fixed, {})


def gc_record(start, end, pid=4242):
    return struct.pack("<3Q", pid, start, end)


def tracer_func(thread, time, key, tag, pid=4242):
    return struct.pack("<4QB", time, thread, pid, key, tag)


def tracer_hash(key, value):
    return record(struct.pack("<Q", key), {1: value})


# -- golden inputs ----------------------------------------------------------------------------

PROF = "PROF_000001_20250301080000123_ABCDEFGH"
MINDSPORE = "node_4242_20250301080000123_ascend_ms"
PYTORCH = "node_4242_20250301080000123_ascend_pt"
TRAIN = CNTVCT + 50_000


def mindspore():
    """Two steps of MindSpore 2.4, the second cut short: files by name."""
    ranges = [ms_op(4242, TRAIN - 90, TRAIN - 90, {13: "profiler started"}, stack=True)]
    memory = []
    for step in (1, 2):
        at = TRAIN + 10_000 * step
        net = f"Default/network-Net/fc{step}/MatMul-op{step}"
        ranges += [
            ms_op(4242, at, at + 9000, {13: f"ProfilerStep#{step}"}, stack=True, step=step),
            ms_op(4242, at + 100, at + 8000, {13: "train.py(12): step"}, stack=True, step=step),
            ms_op(4242, at + 200, at + 210, {13: "flow"}, flow=step, step=step),
            ms_op(
                4300, at + 400, at + 900, {13: "MatMul", 14: net, 17: "shape:2,3"}, flow=step,
                step=step, module=2, event=4,
            ),
            ms_op(4300, at + 1000, at + 1500, {13: "x"}, is_stage=True, stage=5, step=step),
            ms_op(4300, at + 1600, at + 1700, {13: "MatMul", 14: net}, module=4, event=77),
        ]  # fmt: skip
        memory += [
            ms_memory(at + 300, step << 20, 64 << 20),
            ms_memory(at + 1900, (step << 20) - 4096, 64 << 20, size=NEVER),
        ]
    return {
        **{f"{MINDSPORE}/{n}": c for n, c in clock_files(f"{PROF}/host").items()},
        f"{MINDSPORE}/profiler_info_3.json": b'{"rank_id": 3, "ms_version": "2.4.0"}',
        f"{MINDSPORE}/FRAMEWORK/mindspore.op_range": b"".join(ranges)[:-20],
        f"{MINDSPORE}/FRAMEWORK/mindspore.memory_usage": b"".join(memory),
    }


def pytorch():
    """A step of PyTorch that never ended: files by name."""
    start = {
        "syscnt_enable": True, "freq": MHZ, "start_cnt": CNTVCT, "start_monotonic": MONOTONIC,
    }  # fmt: skip
    at = TRAIN
    dims = {3: "float;float", 4: "2,3;3,4"}
    ops = [
        torch_op(4242, at, at + 9000, {2: "ProfilerStep#5"}),
        torch_op(
            4242, at + 100, at + 800, {2: "aten::linear", **dims, 8: "net.py(7): forward;run"}
        ),
        torch_op(4242, at + 200, at + 700, {2: "aten::addmm", **dims, 10: "48"}, sequence=1),
        torch_op(4400, at + 4000, at + 4600, {2: "AddmmBackward0"}, sequence=1, forward=1),
        torch_op(4242, at + 5000, at + 5100, {2: b"aten::\xff"}),
    ]
    marks = [
        torch_mark(4242, at + 300, 0, 70, "aclnnAddmm"),
        torch_mark(4242, at + 340, 1, 70, "aclnnAddmm"),
        torch_mark(4300, at + 360, 2, 70, "aclnnAddmm"),
        torch_mark(4300, at + 600, 3, 70, "aclnnAddmm"),
        torch_mark(4242, at + 5020, 0, 71, "aclnnMul"),
    ]
    memory = [
        torch_memory(at + 250, 3 << 20, 20 << 20, 4 << 20),
        torch_memory(at + 4100, 1 << 20, 20 << 20, 2 << 20),
    ]
    calls = ((50, 1, 0), (90, 2, 0), (850, 2, 1), (3900, 9, 2), (4000, 9, 3), (4900, 3, 0))
    names = {1: "train.py(3): main", 2: "Linear######139", 3: "optim.py(9): step"}
    return {
        **{f"{PYTORCH}/{n}": c for n, c in clock_files(f"{PROF}/host").items()},
        f"{PYTORCH}/profiler_info_1.json": json.dumps({"start_info": start, "rank_id": 1}).encode(),
        f"{PYTORCH}/FRAMEWORK/torch.op_range": b"".join(ops),
        f"{PYTORCH}/FRAMEWORK/torch.op_mark": b"".join(marks),
        f"{PYTORCH}/FRAMEWORK/torch.memory_usage": b"".join(memory),
        f"{PYTORCH}/FRAMEWORK/torch.gc_record": gc_record(at + 6000, at + 6500),
        f"{PYTORCH}/FRAMEWORK/torch.python_tracer_hash": b"".join(
            tracer_hash(*name) for name in names.items()
        ),
        f"{PYTORCH}/FRAMEWORK/torch.python_tracer_func": b"".join(
            tracer_func(4242, at + time, key, tag) for time, key, tag in calls
        ),
    }


def write_golden(root):
    """Write the inputs of the golden cases below ``root`` again."""
    for case, files in (("framework_mindspore", mindspore()), ("framework_torch", pytorch())):
        for name, content in files.items():
            path = root / "golden" / "ascend_raw" / case / "input" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


if __name__ == "__main__":
    write_golden(ROOT)

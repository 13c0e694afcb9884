"""Dumps of PyTorch that are pickles; inputs of golden cases.

``python tests/support/torch_files.py`` writes these below ``golden``.
"""

import pickle
import sys
from pathlib import Path

START_US = 1_700_000_000_000_000
MIB = 1 << 20


def collective(number, name, created, started, completed, group=("0", "default_pg"), **more):
    """One entry of a flight recorder; times in us after the start, None if they are not known."""

    def ns(us):
        return None if us is None else (START_US + us) * 1000

    return {
        "record_id": number, "pg_id": int(group[0]), "process_group": group,
        "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number, "profiling_name": name,
        "time_created_ns": ns(created), "time_discovered_started_ns": ns(started),
        "time_discovered_completed_ns": ns(completed), "duration_ms": None, "state": "completed",
        "input_sizes": [[3, 4]], "input_dtypes": ["Float"], "output_sizes": [[3, 4]],
        "output_dtypes": ["Float"], "retired": completed is not None, "timeout_ms": 600_000,
        "is_p2p": False,
        "frames": [{"name": "train", "filename": "/folder/of/mine/train.py", "line": 3}], **more,
    }  # fmt: skip


def flight(protocol=2):
    """A job that hangs in its third collective."""
    entries = [
        collective(1, "nccl:all_reduce", 0, 50, 900, duration_ms=0.5),
        collective(2, "nccl:all_gather", 1_000, 1_100, 1_900, group=("1", "tensor")),
        collective(3, "nccl:all_reduce", 2_000, 2_500, None, state="started"),
        collective(4, "nccl:reduce_scatter", 2_600, None, None, state="scheduled"),
    ]
    dump = {
        "version": "2.10", "nccl_version": "2.21.5", "pg_status": {0: {"last_enqueued": 4}},
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "entries": entries,
    }  # fmt: skip
    return pickle.dumps(dump, protocol)


class Tagged:
    """A value that needs a class."""


def frames(*names):
    return [
        {"name": name, "filename": f"/folder/of/mine/{name}.py", "line": 7 + i}
        for i, name in enumerate(names)
    ]


def block(size, state="active_allocated"):
    return {"size": size, "requested_size": size - 4, "state": state, "address": 0}


def memory(protocol=4):
    """Two devices: one that ran for a while before the log begins, one with two records."""
    train, load = frames("forward", "train"), frames("load", "train")

    def record(action, us, size=0, addr=0, stack=train, **more):
        times = {"time_us": START_US + us} if us is not None else {}
        return {
            "action": action,
            "addr": addr,
            "size": size,
            "stream": 0,
            "frames": stack,
            **times,
            **more,
        }

    first = [
        record("segment_alloc", 0, 20 * MIB, 0x1000),
        record("alloc", 10, 4 * MIB, 0x1000),
        record("alloc", 20, 8 * MIB, 0x2000, load),
        record("free_requested", 30, 4 * MIB, 0x1000),
        record("free_completed", 35, 4 * MIB, 0x1000),
        record("free_completed", 36, MIB, 0x9000),  # allocated before the log begins
        record("alloc", 40, 4 * MIB, 0x1000),
        record("oom", 50, 64 * MIB, 30 * MIB),
        record("snapshot", 60),
        record("something_new", 61),
        record("alloc", None, 5),
    ]
    second = [
        record("alloc", 15, 2 * MIB, 0x1000),
        record("free_requested", 25, 9 * MIB, 0x1000),
        record("alloc", 35, MIB, 0x5000),
    ]
    marks = [
        {"name": "step 1", "stage": "START", "device": 0, "time_us": START_US + 5},
        {"name": "step 1", "stage": "END", "device": 0, "time_us": START_US + 45},
        {"name": "step 2", "stage": "START", "device": 0, "time_us": START_US + 46},
        {"name": "lost", "stage": "END", "device": 0, "time_us": START_US + 47},
    ]
    whole = [block(4 * MIB), block(8 * MIB), block(MIB, "active_pending_free")]
    held = [
        (0, 20, [*whole, block(7 * MIB, "inactive")]),
        (0, 2, [block(2 * MIB)]),
        (1, 2, [block(2 * MIB, "inactive")]),
    ]
    segments = [
        {
            "device": device,
            "address": 0x1000,
            "total_size": size * MIB,
            "stream": 0,
            "blocks": blocks,
        }
        for device, size, blocks in held
    ]
    value = {
        "segments": segments, "device_traces": [first, second, []],
        "allocator_settings": {"expandable_segments": False}, "external_annotations": marks,
    }  # fmt: skip
    return pickle.dumps(value, protocol)


def golden():
    """The inputs of the golden cases: path below ``golden`` -> bytes."""
    return {
        "flight_recorder/pickle/input/nccl_trace_rank_1": flight(),
        "flight_recorder/cut_pickle/input/nccl_trace_rank_1": flight()[:1100],
        "flight_recorder/classes/input/nccl_trace_rank_1": pickle.dumps(
            {"nccl_version": "2.21.5", "entries": [Tagged()]}, 2
        ),
        "memory_snapshot/training/input/rank3/snapshot.pickle": memory(),
        "memory_snapshot/cut_off/input/snapshot.pickle": memory()[:900],
    }


def main():
    folder = Path(__file__).parents[2] / "golden"
    for name, content in golden().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        sys.stdout.write(f"{path}: {len(content)}\n")


if __name__ == "__main__":
    from torch_files import main

    main()

"""The events of a generated capture as %-templates.

A template is the texts of events that belong together (an operator's six framework events), with
``%(name)s`` for everything that differs from row to row; ``<name>`` is filled in once per rank.
"""

from __future__ import annotations

FRAMEWORK = (
    '{"ph": "X", "name": "%(module)s", "pid": <python>, "tid": %(tid)d, "ts": "%(t0)s", '
    '"dur": %(d0)s, "cat": "python_function", '
    '"args": {"Python id": %(id)d, "Python parent id": %(parent)d}}',
    '{"ph": "X", "name": "%(op)s", "pid": <python>, "tid": %(tid)d, "ts": "%(t1)s", '
    '"dur": %(d1)s, "cat": "cpu_op", "args": {"Sequence number": %(id)d, "Fwd thread id": 0, '
    '"Input Dims": "%(dims)s", "Input type": "%(types)s", "Call stack": "%(stack)s"}}',
    '{"ph": "X", "name": "Enqueue", "pid": <python>, "tid": %(tid)d, "ts": "%(t2)s", '
    '"dur": %(d2)s, "cat": "enqueue", "args": {"correlation_id": %(id)d}}',
    '{"ph": "s", "bp": "e", "name": "enqueue_to_dequeue", "id": %(id)d, "pid": <python>, '
    '"tid": %(tid)d, "ts": "%(t2)s", "cat": "async_task_queue"}',
    '{"ph": "X", "name": "Dequeue@%(acl)s", "pid": <python>, "tid": <queue>, "ts": "%(t3)s", '
    '"dur": %(d3)s, "cat": "dequeue", "args": {"correlation_id": %(id)d}}',
    '{"ph": "f", "bp": "e", "name": "enqueue_to_dequeue", "id": %(id)d, "pid": <python>, '
    '"tid": <queue>, "ts": "%(t3)s", "cat": "async_task_queue"}',
)
STEP = (
    '{"ph": "X", "name": "ProfilerStep#%(step)d", "pid": <python>, "tid": <main>, "ts": "%(t0)s", '
    '"dur": %(d0)s, "cat": "cpu_op", "args": {"Sequence number": -1, "Fwd thread id": 0}}',
)
FWDBWD = (
    '{"ph": "s", "bp": "e", "name": "fwdbwd", "id": %(id)d, "pid": <python>, "tid": <main>, '
    '"ts": "%(t0)s", "cat": "fwdbwd"}',
    '{"ph": "f", "bp": "e", "name": "fwdbwd", "id": %(id)d, "pid": <python>, "tid": <autograd>, '
    '"ts": "%(t1)s", "cat": "fwdbwd"}',
)
TO_NPU = (
    '{"ph": "s", "bp": "e", "name": "torch_to_npu", "id": %(id)d, "pid": <python>, '
    '"tid": %(tid)d, "ts": "%(t0)s", "cat": "async_npu"}',
    '{"ph": "f", "bp": "e", "name": "torch_to_npu", "id": %(id)d, "pid": <hardware>, '
    '"tid": %(stream)d, "ts": "%(t1)s", "cat": "async_npu"}',
)


def _call(name: str, level: str, tid: str, t: str, d: str) -> str:
    api = name.partition("@")[2]
    return (
        f'{{"name": "{name}", "pid": <cann>, "tid": {tid}, "ts": "{t}", "dur": {d}, '
        f'"args": {{"Thread Id": {tid}, "Mode": "{level.upper()}_OP", "level": "{level}", '
        f'"id": "{api}", "item_id": "0", "connection_id": %(id)d}}, "ph": "X"}}'
    )


def _arrow(tid: str, t: str, to: str, to_tid: str, at: str) -> tuple[str, str]:
    return (
        '{"name": "HostToDevice%(id)d", "ph": "s", "cat": "HostToDevice", "id": "%(id)d", '
        f'"pid": <cann>, "tid": {tid}, "ts": "{t}"}}',
        '{"name": "HostToDevice%(id)d", "ph": "f", "id": "%(id)d", '
        f'"ts": "{at}", "cat": "HostToDevice", "pid": {to}, "tid": {to_tid}, "bp": "e"}}',
    )


DEVICE = (
    _call("AscendCL@%(acl)s", "acl", "<queue>", "%(t0)s", "%(d0)s"),
    _call("Node@launch", "node", "<queue>", "%(t1)s", "%(d1)s"),
    _call("Runtime@KernelLaunch", "runtime", "<queue>", "%(t2)s", "%(d2)s"),
    '{"name": "%(kernel)s", "pid": <hardware>, "tid": %(stream)d, "ts": "%(t3)s", "dur": %(d3)s, '
    '"args": {"Model Id": 4294967295, "Task Type": "%(type)s", "Physic Stream Id": %(stream)d, '
    '"Task Id": %(task)d, "Batch Id": %(batch)d, "Subtask Id": 4294967295, '
    '"connection_id": %(id)d}, "ph": "X"}',
    *_arrow("<queue>", "%(t1)s", "<hardware>", "%(stream)d", "%(t3)s"),
)
COLLECTIVE = (
    _call("Communication@hcom_allReduce_", "communication", "<comm>", "%(t0)s", "18.5"),
    '{"name": "EVENT_WAIT", "pid": <hardware>, "tid": 4, "ts": "%(t1)s", "dur": 9.50003125, '
    '"args": {"Model Id": 4294967295, "Task Type": "EVENT_WAIT_SQE", "Physic Stream Id": 4, '
    '"Task Id": %(task)d, "Batch Id": 0, "Subtask Id": 4294967295, "connection_id": %(id)d}, '
    '"ph": "X"}',
    '{"name": "hcom_allReduce__586_%(op)d_1", "pid": <hccl>, "tid": 0, "ts": "%(t2)s", '
    '"dur": %(d2)s, "args": {"connection_id": %(id)d, "model id": 4294967295, '
    '"data_type": "FP32", "alg_type": "MESH-RING", "count": %(count)d}, "ph": "X"}',
    *_arrow("<comm>", "%(t0)s", "<hccl>", "0", "%(t2)s"),
)


def _task(name: str, transport: str, link: str, n: int) -> str:
    return (
        f'{{"name": "{name}", "pid": <hccl>, "tid": %(plane)d, "ts": "%(t{n})s", '
        f'"dur": %(d{n})s, "args": {{"notify_id": "%(notify)d", "stream id": 4, '
        f'"task id": %(task)d, "task type": "{name}", "transport type": "{transport}", '
        f'"link type": "{link}", "model id": 4294967295}}, "ph": "X"}}'
    )


PLANE = (
    _task("Notify_Wait", "LOCAL", "INVALID_TYPE", 0),
    _task("Memcpy", "SDMA", "HCCS", 1),
    _task("Notify_Record", "SDMA", "INVALID_TYPE", 2),
)
COUNTERS = tuple(
    f'{{"name": "{name}", "ts": "%(t0)s", "pid": <{process}>, "tid": 0, '
    f'"args": {{"{key}": {value}}}, "ph": "C"}}'
    for process, name, key, value in (
        ("freq", "AI Core Freq", "MHz", "%(level)d"),
        ("memory", "APP/HBM", "KB", "%(kb)d.0"),
        ("memory", "Device/HBM", "KB", "%(kb)d.0"),
        ("hbm", "HBM 0/Read", "Read(MB/s)", "%(rate)s"),
        ("hbm", "HBM 0/Write", "Write(MB/s)", "%(rate)s"),
        ("llc", "LLC 0 Read/Throughput", "Throughput(MB/s)", "%(rate)s"),
        ("llc", "LLC 0 Read/Hit Rate", "Hit Rate(%%)", "%(part)s"),
        ("qos", "QoS OTHERS", "value", "%(level)d"),
        ("hbm", "HBM 1/Read", "Read(MB/s)", "%(rate)s"),
        ("hbm", "HBM 1/Write", "Write(MB/s)", "%(rate)s"),
    )
)

LANE = (
    '{"name": "%(lane)s", "pid": <overlap>, "tid": %(tid)d, "ts": "%(t0)s", "dur": %(d0)s, '
    '"ph": "X"}',
)
PROCESS = (
    '{"name": "process_name", "pid": %(pid)d, "tid": 0, "args": {"name": "%(name)s"}, "ph": "M"}',
    '{"name": "process_labels", "pid": %(pid)d, "tid": 0, "args": {"labels": "%(label)s"}, '
    '"ph": "M"}',
    '{"name": "process_sort_index", "pid": %(pid)d, "tid": 0, "args": {"sort_index": %(sort)d}, '
    '"ph": "M"}',
)
THREAD = (
    '{"name": "thread_name", "pid": %(pid)d, "tid": %(tid)d, "args": {"name": "%(name)s"}, '
    '"ph": "M"}',
)

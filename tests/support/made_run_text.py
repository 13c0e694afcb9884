"""A made run as the Ascend PyTorch profiler exports it as text: a timeline and tables."""

import csv
import json

from made_run import FOLDER, GROUPS, NONE, NOW, OUTPUT, PID, TOTALS

LEVELS = {"acl": "AscendCL", "node": "Node", "communication": "Communication", "runtime": "Runtime"}
_SORT = {
    "CANN": 7, "Ascend Hardware": 14, "AI Core Freq": 15, "Communication": 16, "NPU MEM": 17,
    "Acc PMU": 19, "HBM": 24, "Stars Soc Info": 25, "LLC": 27, "Overlap Analysis": 31,
}  # fmt: skip
_OVERLAP = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
_PMU = {
    "readBwLevel": "read_bandwidth", "writeBwLevel": "write_bandwidth",
    "readOstLevel": "read_ost", "writeOstLevel": "write_ost",
}  # fmt: skip


def ts(at):
    """Microseconds with three digits, as text."""
    return f"{(NOW + at) // 1000}.{(NOW + at) % 1000:03d}"


def pid(process):
    """The number that represents a process of CANN's part."""
    return (PID << 10) | (_SORT[process] << 5) | (31 if process == "CANN" else 0)


class Timeline(list):
    """Events of one file, in the order they are added."""

    def process(self, number, name, label):
        """Declare a process."""
        for kind, args in (("name", {"name": name}), ("labels", {"labels": label})):
            self.append(
                {"name": f"process_{kind}", "pid": number, "tid": 0, "args": args, "ph": "M"}
            )

    def thread(self, number, tid, name):
        """Declare a thread."""
        self.append(
            {"name": "thread_name", "pid": number, "tid": tid, "args": {"name": name}, "ph": "M"}
        )

    def slice(self, name, number, tid, start, dur, args=None, **more):
        """One slice, of ns."""
        event = {
            "name": name,
            "pid": number,
            "tid": tid,
            "ts": ts(start),
            "dur": dur / 1000,
            **more,
        }
        self.append(event | ({"args": args} if args is not None else {}) | {"ph": "X"})

    def arrow(self, cat, name, number, ends):
        """An arrow from the first of ``ends`` (pid, tid, start) to all others."""
        for ph, (process, tid, at) in zip("s" + "f" * (len(ends) - 1), ends, strict=True):
            event = {"name": name, "ph": ph, "cat": cat, "id": number, "pid": process, "tid": tid}
            self.append(event | {"ts": ts(at)} | ({"bp": "e"} if ph == "f" else {}))


def timeline(run):
    """The events of ``trace_view.json``."""
    events = Timeline()
    targets = _targets(run)
    _framework(events, run, targets)
    _hardware(events, run)
    _communication(events, run)
    _calls(events, run, targets)
    _overlap(events, run)
    _counters(events, run)
    return list(events)


def _targets(run):
    """What a connection launched: (pid, tid, start), of a collective the whole of it."""
    ends = {t.connection: (pid("Ascend Hardware"), t.stream, t.start) for t in run.tasks}
    ends |= {k.connection: (pid("Ascend Hardware"), k.stream, k.start) for k in run.kernels}
    heads = _lanes(run)
    return ends | {
        c.connection: (pid("Communication"), heads[c.group], c.start) for c in run.collectives
    }


def _framework(events, run, targets):
    events.process(PID, "Python", "CPU")
    events.process(2, "Python GC", "CPU")
    for tid in dict.fromkeys(o.thread for o in run.operators):
        events.thread(PID, tid, f"Thread {tid}")
    for one in run.operators:
        events.slice(one.name, PID, one.thread, one.start, one.dur, _args(one), cat=one.kind)
        for connection in one.launched:
            to = targets[connection]
            start = (PID, one.thread, one.start)
            events.arrow("async_npu", "torch_to_npu", NOW + to[2], (start, to))
    queue, sequence = {}, {}
    for one in run.operators:
        end = (PID, one.thread, one.start)
        if one.queued:
            queue.setdefault(one.queued, []).append(end)
        if one.sequence >= 0:
            sequence.setdefault(one.sequence, []).append(end)
    for number, ends in queue.items():
        events.arrow("async_task_queue", "enqueue_to_dequeue", number, ends)
    for number, ends in sequence.items():
        events.arrow("fwdbwd", "fwdbwd", number, ends)
    events.thread(2, PID, f"Thread {PID}")
    for start, dur in run.garbage:
        events.slice("GC", 2, PID, start, dur, {}, cat="GC")


def _args(one):
    if one.queued:
        return {"correlation_id": one.queued}
    if one.kind != "cpu_op":
        return {}
    args = {"Sequence number": one.sequence, "Fwd thread id": one.forward_thread}
    if one.shapes:
        args |= {"Input Dims": one.shapes, "Input type": one.types}
    return args | ({"Call stack": ";\r\n".join(one.stack)} if one.stack else {})


def _hardware(events, run):
    number = pid("Ascend Hardware")
    events.process(number, "Ascend Hardware", "NPU")
    streams = {t.stream for t in (*run.kernels, *run.tasks, *run.collectives)}
    for stream in sorted(streams):
        events.thread(number, stream, f"Stream {stream}")

    def task(name, engine, one, start, dur, context, **more):
        args = {
            "Model Id": NONE, "Task Type": engine, "Physic Stream Id": one.stream,
            "Task Id": one.task, "Batch Id": 0, "Subtask Id": context,
            "connection_id": one.connection, **more,
        }  # fmt: skip
        events.slice(name, number, one.stream, start, dur, args)

    for one in run.kernels:  # what is around a subtask is not written
        task(one.name, one.engine, one, one.start, one.dur, 0 if one.within else NONE)
    for one in run.tasks:
        copied = {"size(B)": one.copied, "operation": "host to device"} if one.copied else {}
        task(one.host_type, one.engine, one, one.start, one.dur, NONE, **copied)
    for one in run.collectives:
        for context, part in enumerate(one.parts):
            task(part.host_type, part.host_type, one, part.start, part.dur, context)


def _lanes(run):
    """The thread of every group; its planes follow it."""
    heads, at = {}, 0
    for group in GROUPS:
        heads[group] = at
        planes = [p.plane for c in run.collectives if c.group == group for p in c.parts]
        at += 2 + max(planes)
    return heads


def _communication(events, run):
    number = pid("Communication")
    events.process(number, "Communication", "NPU")
    for group, head in _lanes(run).items():
        events.thread(number, head, f"{GROUPS[group]} Communication")
        planes = {p.plane for c in run.collectives if c.group == group for p in c.parts}
        for plane in sorted(planes):
            events.thread(number, head + 1 + plane, f"Plane {plane}")
    for one in run.collectives:
        head = _lanes(run)[one.group]
        events.slice(one.name, number, head, one.start, one.dur, {
            "connection_id": one.connection, "model id": NONE, "data_type": "FP32",
            "alg_type": "MESH-RING", "count": one.count, "relay": "no", "retry": "no",
        })  # fmt: skip
        for context, part in enumerate(one.parts):
            speed = part.size / part.dur
            events.slice(part.name, number, head + 1 + part.plane, part.start, part.dur, {
                "notify_id": "0", "duration estimated(us)": part.dur / 1000,
                "stream id": one.stream, "task id": one.task, "context id": context,
                "task type": part.name, "src rank": part.peers[0], "dst rank": part.peers[1],
                "transport type": "SDMA", "size(Byte)": part.size, "data type": "FP32",
                "link type": part.link, "bandwidth(GB/s)": speed, "model id": NONE,
            })  # fmt: skip


def _calls(events, run, targets):
    number = pid("CANN")
    events_of_streams = {t.connection for t in run.tasks if t.host_type.startswith("EVENT")}
    events.process(number, "CANN", "CPU")
    for tid in dict.fromkeys(c.thread for c in run.calls):
        events.thread(number, tid, f"Thread {tid}")
    for one in run.calls:
        events.slice(f"{LEVELS[one.level]}@{one.name}", number, one.thread, one.start, one.dur, {
            "Thread Id": one.thread, "Mode": "launch", "level": one.level, "id": one.name,
            "item_id": "0", "connection_id": one.connection,
        })  # fmt: skip
        if one.connection not in events_of_streams:  # to these no arrow is written
            ends = ((number, one.thread, one.start), targets[one.connection])
            name = f"HostToDevice{one.connection << 32}"
            events.arrow("HostToDevice", name, str(one.connection << 32), ends)


def _overlap(events, run):
    number = pid("Overlap Analysis")
    events.process(number, "Overlap Analysis", "NPU")
    for tid, lane in enumerate(_OVERLAP):
        events.thread(number, tid, lane)
    for lane, start, end in run.overlap():
        events.slice(lane, number, _OVERLAP.index(lane), start, end - start)


# -- counters and tables --------------------------------------------------------------------


def _counters(events, run):
    memory = {}
    for one in run.samples:
        group, *which = one.series
        if group in ("Memory", "NPU Module Mem"):
            continue
        name, args = _SERIES[group](one.value, *which)
        events.append({"name": name, "ts": ts(one.at), "pid": pid(group), "tid": 0, "args": args,
                       "ph": "C"})  # fmt: skip
        if group == "NPU MEM":
            key = (one.at, name.partition("/")[0])
            memory[key] = memory.get(key, 0) + one.value / 1024
    for (at, owner), value in memory.items():
        events.append({"name": f"{owner}/Memory", "ts": ts(at), "pid": pid("NPU MEM"), "tid": 0,
                       "args": {"KB": value}, "ph": "C"})  # fmt: skip
    for group in dict.fromkeys(one.series[0] for one in run.samples):
        if group in _SORT:
            events.process(pid(group), group, "NPU")


def _npu_mem(value, owner, kind):
    owner = {"app": "APP", "device": "Device"}[owner]
    return f"{owner}/{kind.upper()}", {"KB": value / 1024}


def _hbm(value, number, way):
    return f"HBM {number}/{way.capitalize()}", {f"{way.capitalize()}(MB/s)": value / 1048576}


def _llc(value, number, mode, what):
    name = f"LLC {number} {mode.capitalize()}"
    if what == "hitRate":
        return f"{name}/Hit Rate", {"Hit Rate(%)": value / 100}
    return f"{name}/Throughput", {"Throughput(MB/s)": value / 1048576}


_SERIES = {
    "AI Core Freq": lambda value: ("AI Core Freq", {"MHz": value}),
    "NPU MEM": _npu_mem,
    "HBM": _hbm,
    "LLC": _llc,
    "Acc PMU": lambda value, number, way: (_PMU[way], {"value": value, "acc_id": number}),
    "Stars Soc Info": lambda value, what: (f"{what} Bw Level", {f"{what} Bw Level": value}),
}


def _table(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _memory(run):
    """Rows of the table of allocators: one per component and moment."""
    rows = {}
    for one in run.samples:
        if one.series[0] == "Memory":
            _, component, total = one.series
            blank = dict.fromkeys((f"{t}(MB)" for t in TOTALS), "")
            head = {"Component": component, "Timestamp(us)": f"{ts(one.at)}\t", **blank}
            row = rows.setdefault((component, one.at), {**head, "Device Type": "NPU:0"})
            row[f"{total}(MB)"] = one.value / 1048576
    return list(rows.values())


def _modules(run):
    return [
        {"Component": one.series[1], "Timestamp(us)": f"{ts(one.at)}\t",
         "Total Reserved(MB)": one.value / 1048576, "Device": "NPU:0"}
        for one in run.samples if one.series[0] == "NPU Module Mem"
    ]  # fmt: skip


def _kernels(run):
    counters = dict.fromkeys(name for k in run.kernels for name, _ in k.counters)
    return [
        {"Step Id": 7, "Model ID": NONE, "Task ID": one.task, "Stream ID": one.stream,
         "Name": one.name, "Type": one.op_type, "Accelerator Core": one.engine,
         "Start Time(us)": f"{ts(one.start)}\t", "Duration(us)": one.dur / 1000,
         "Block Dim": 24, "Mix Block Dim": 0, "Input Shapes": one.shapes[0],
         "Input Data Types": "FLOAT", "Input Formats": "ND", "Output Shapes": one.shapes[1],
         "Output Data Types": "FLOAT", "Output Formats": "ND",
         **{name: dict(one.counters).get(name, "N/A") for name in counters}}
        for one in run.kernels
    ]  # fmt: skip


def write_text(run, root):
    """The folder of the text export below ``root``; its path."""
    folder = root / FOLDER
    output = folder / OUTPUT
    output.mkdir(parents=True)
    info = {"config": {"experimental_config": {"_profiler_level": "Level1"}}, "rank_id": 0}
    (folder / "profiler_info_0.json").write_text(json.dumps(info))
    (output / "trace_view.json").write_text(json.dumps(timeline(run)))
    _table(output / "memory_record.csv", _memory(run))
    _table(output / "npu_module_mem.csv", _modules(run))
    _table(output / "kernel_details.csv", _kernels(run))
    return folder

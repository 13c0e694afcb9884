"""Files as ROCm's profilers would write them, from one small run; inputs of the golden cases.

``python tests/support/rocm_files.py`` writes these below ``golden/rocprof`` and ``golden/rpd``.
Databases are kept as SQL, but for one that is cut off.
"""

import csv
import io
import json
import sqlite3
import sys
import tempfile
from pathlib import Path

BOOT = 77_000_000_000_000
"""Nanoseconds since the host booted when the run begins."""

GEMM, SILU, REDUCE, FILL = 11, 12, 13, 14
KERNELS = {
    GEMM: "gemm(float*, int)",
    SILU: "void silu<float>(float*)",
    REDUCE: "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
    FILL: "__amd_rocclr_fillBufferAligned",
}


class Run:
    """What one process did, as plain records."""

    def __init__(self, rank, pid, agents, late=0):
        self.rank, self.pid, self.agents = rank, pid, agents
        self.guid = f"0{rank}000000-0000-7000-8000-{pid:012d}"
        self.calls, self.kernels, self.copies, self.memory, self.counts = [], [], [], [], []
        self.ids = iter(range(1, 99))
        at = BOOT + 1000 + late
        self.alloc(at, "ALLOC", 1 << 20)
        self.kernel(0, FILL, at + 2_000, 500, stream=0)  # its call was not recorded
        for step in (5, 6):
            begin = at + 10_000 + 100_000 * (step - 5)
            self.call("MARKER", "roctxThreadRangeA", begin, 80_000, message=f"step {step}")
            self.call("MARKER", "roctxThreadRangeA", begin + 100, 20_000, message="forward")
            one = self.call(
                "HIP", "hipMemcpyAsync", begin + 500, 900, args=(("size_t", "sizeBytes", "4096"),)
            )
            self.copies.append((one, "HOST_TO_DEVICE", begin + 2_000, 3_000, 0, agents[0], 4096))
            one = self.call("HIP", "hipLaunchKernel", begin + 6_000, 700)
            self.kernel(one, GEMM, begin + 8_000, 20_000, count=(10.0, 32.0))
            one = self.call("HIP", "hipLaunchKernel", begin + 7_000, 700)
            self.kernel(one, SILU, begin + 27_800, 5_000)  # begins before the one before has ended
            outer = self.call("RCCL", "ncclAllReduce", begin + 9_000, 2_000, thread=1)
            one = self.call("HIP", "hipExtLaunchKernel", begin + 9_500, 600, thread=1, parent=outer)
            self.kernel(one, REDUCE, begin + 30_000 + late, 30_000 - late, stream=2, queue=2)
            one = self.call("HIP", "hipGraphLaunch", begin + 20_000, 1_500)
            for i in range(2):
                self.kernel(one, SILU, begin + 62_000 + 3_000 * i, 2_500, agent=1, stream=3)
            self.copies.append((one, "DEVICE_TO_HOST", begin + 68_000, 1_000, agents[0], 0, 4))
        self.mark = (next(self.ids), at + 150_000, "saved")
        self.alloc(at + 300_000, "FREE", 0)
        self.alloc(at + 301_000, "FREE", 0, 0x9000)  # allocated before the recording

    def call(self, kind, name, start, dur, thread=0, message="", parent=0, args=()):
        ident = next(self.ids)
        self.calls.append((ident, kind, name, start, start + dur, thread, message, parent, args))
        return ident

    def kernel(self, call, kernel, start, dur, agent=0, stream=1, queue=1, count=()):
        ident = len(self.kernels) + 1
        self.kernels.append(
            (ident, call, kernel, start, start + dur, self.agents[agent], stream, queue)
        )
        self.counts += [(ident, "SQ_WAVES", value) for value in count]

    def alloc(self, at, kind, size, address=0x1000):
        call = self.call("HIP", "hipMalloc" if size else "hipFree", at, 800)
        self.memory.append((call, kind, at + 100, at + 700, address, size))

    def thread(self, number):
        return self.pid + 7 * number


# -- databases ---------------------------------------------------------------------------------


class Script:
    """SQL of a database: tables by what is put into them."""

    def __init__(self, suffix, guid):
        self._suffix, self._guid = suffix, guid
        self._tables, self._rows, self._strings = {}, [], {}

    def put(self, table, **row):
        columns = self._tables.setdefault(table, [])
        columns += [name for name in row if name not in columns]
        self._rows.append((table, row))

    def string(self, text):
        if text not in self._strings:
            self._strings[text] = 40 + 3 * len(self._strings)
            self.put("string", id=self._strings[text], string=text)
        return self._strings[text]

    def text(self):
        lines = []
        for table, columns in self._tables.items():
            own = [c for c in columns if c != "id"]
            typed = [f'"{c}" {_type(table, c)}' for c in own]
            guid = f"\"guid\" TEXT DEFAULT '{self._guid}'"
            named = f'"rocpd_{table}{self._suffix}"'
            lines.append(
                f'CREATE TABLE {named} ("id" INTEGER PRIMARY KEY, {", ".join([guid, *typed])});'
            )
        for table, row in self._rows:
            names = ", ".join(f'"{name}"' for name in row)
            values = ", ".join(map(_literal, row.values()))
            lines.append(f'INSERT INTO "rocpd_{table}{self._suffix}" ({names}) VALUES ({values});')
        return "\n".join(lines) + "\n"


_TEXTS = (
    "tag", "string", "hostname", "environment", "type", "level", "name", "symbol", "units",
    "display_name", "extdata",
)  # fmt: skip


def _type(table, column):
    if table == "pmc_event" and column == "value":
        return "REAL"
    return "TEXT" if column in _TEXTS else "INTEGER"


def _literal(value):
    if value is None:
        return "NULL"
    return str(value) if not isinstance(value, str) else "'" + value.replace("'", "''") + "'"


def described(script, run, *, environment=True, rows=lambda number: number):
    """The tables that describe a process."""
    own = {"nid": 1, "pid": run.pid}
    script.put("info_node", id=1, hostname="node-a")
    variables = {"RANK": str(run.rank), "WORLD_SIZE": "2", "API_TOKEN": "not for others"}
    script.put(
        "info_process", id=run.pid, nid=1, pid=run.pid,
        environment=json.dumps(variables if environment else {}),
    )  # fmt: skip
    for number in (0, 1):
        script.put(
            "info_thread", id=rows(run.thread(number)), tid=run.thread(number), name="", **own
        )
    for i in range(5):
        kind = "GPU" if i else "CPU"
        script.put(
            "info_agent", id=rows(i), type=kind, absolute_index=i, type_index=max(i - 1, 0), **own
        )
    for ident, name in KERNELS.items():
        script.put(
            "info_kernel_symbol", id=ident, display_name=name, arch_vgpr_count=24, sgpr_count=16
        )


CATEGORIES = {
    "HIP": ("HIP_RUNTIME_API_EXT", "hip_api", "rocm_hip_api"),
    "RCCL": ("RCCL_API", "rccl_api", "rocm_rccl_api"),
    "MARKER": ("MARKER_CORE_RANGE_API", "marker_api", "rocm_marker_api"),
    "KERNEL": ("KERNEL_DISPATCH", "kernel_dispatch", "rocm_kernel_dispatch"),
    "COPY": ("MEMORY_COPY", "memory_copy", "rocm_memory_copy"),
    "ALLOC": ("MEMORY_ALLOCATION", "memory_allocation", "rocm_memory_allocation"),
}


def _events(script, which, number_of):
    """Puts events; their numbers."""
    ids = iter(range(1, 999))

    def event(kind, stack=0, parent=0, extdata="{}"):
        ident, category = next(ids), CATEGORIES[kind][which] if kind in CATEGORIES else kind
        script.put(
            "event", id=ident, category_id=number_of(category), stack_id=stack,
            parent_stack_id=parent, extdata=extdata,
        )  # fmt: skip
        return ident

    return event


def schema_3(run):
    """As rocprofv3 fills it: places in columns, the text of markers beside the events."""
    script = Script("_" + run.guid.replace("-", "_"), run.guid)
    for tag, value in (("schema_version", "3"), ("guid", run.guid)):
        script.put("metadata", tag=tag, value=value)
    described(script, run)
    event = _events(script, 0, script.string)
    own = {"nid": 1, "pid": run.pid}
    for ident, kind, name, start, end, thread, message, parent, args in run.calls:
        said = json.dumps({"message": message}) if message else "{}"
        number = event(kind, ident, parent, said)
        place = {**own, "tid": run.thread(thread), "start": start, "end": end}
        script.put("region", id=ident, name_id=script.string(name), event_id=number, **place)
        for position, (_, key, value) in enumerate(args):
            script.put("arg", event_id=number, position=position, name=key, value=value)
    counted = {}
    for ident, call, kernel, start, end, agent, stream, queue in run.kernels:
        counted[ident] = event("KERNEL", call)
        script.put(
            "kernel_dispatch", id=ident, tid=run.thread(0), agent_id=agent, kernel_id=kernel,
            dispatch_id=ident, queue_id=queue, stream_id=stream, start=start, end=end,
            workgroup_size_x=64, workgroup_size_y=1, workgroup_size_z=1, grid_size_x=4096,
            grid_size_y=1, grid_size_z=1, event_id=counted[ident], **own,
        )  # fmt: skip
    script.put(
        "info_pmc", id=9, agent_id=run.agents[0], name="SQ_WAVES", symbol="SQ_WAVES", units=""
    )
    for dispatch, _, value in run.counts:
        script.put("pmc_event", event_id=counted[dispatch], pmc_id=9, value=value)
    for call, name, start, dur, source, target, size in run.copies:
        script.put(
            "memory_copy", tid=run.thread(0), start=start, end=start + dur,
            name_id=script.string(f"MEMORY_COPY_{name}"), dst_agent_id=target,
            src_agent_id=source, size=size, stream_id=1, event_id=event("COPY", call), **own,
        )  # fmt: skip
    for call, kind, start, end, address, size in run.memory:
        script.put(
            "memory_allocate", tid=run.thread(0), agent_id=run.agents[0] if size else None,
            type=kind, level="REAL", start=start, end=end, address=address, size=size,
            event_id=event("ALLOC", call), **own,
        )  # fmt: skip
    ident, at, message = run.mark
    number = event("MARKER", ident, 0, json.dumps({"message": message}))
    script.put(
        "track", id=1, tid=run.thread(0), name_id=script.string("MARKER_CORE_RANGE_API"), **own
    )
    script.put("sample", id=ident, track_id=1, timestamp=at, event_id=number)
    return script.text()


def schema_4(run):
    """As newer tools fill it: places in tracks, times in a table of their own (calls have theirs
    beside the track), markers named by their text, a counter per instance."""
    script = Script("_" + run.guid.replace("-", "_"), run.guid)
    for tag, value in (("schema_version", "4.0.0"), ("guid", run.guid)):
        script.put("metadata", tag=tag, value=value)
    described(script, run)
    categories, tracks, times = {}, {}, iter(range(1, 999))

    def category(name):
        if name not in categories:
            categories[name] = len(categories) + 1
            script.put("info_category", id=categories[name], name=name)
        return categories[name]

    def track(**of):
        key = tuple(sorted(of.items()))
        if key not in tracks:
            tracks[key] = len(tracks) + 1
            script.put("track", id=tracks[key], nid=1, pid=run.pid, **of)
        return tracks[key]

    def time(at):
        ident = next(times)
        script.put("timestamp", id=ident, value=at)
        return ident

    event = _events(script, 1, category)
    marks = [(run.mark[0], "MARKER", "roctxMarkA", run.mark[1], run.mark[1], 0, run.mark[2], 0, ())]
    for ident, kind, name, start, end, thread, message, parent, _ in run.calls + marks:
        said = json.dumps({"message": name}) if message else "{}"
        script.put(
            "region", id=ident, track_id=track(tid=run.thread(thread)), start=start, start_phase=1,
            end=end, end_phase=2, name_id=script.string(message or name),
            event_id=event(kind, ident, parent, said),
        )  # fmt: skip
    counted = {}
    for ident, call, kernel, start, end, agent, stream, queue in run.kernels:
        counted[ident] = event("KERNEL", call)
        place = track(tid=run.thread(0), agent_id=agent, queue_id=queue, stream_id=stream)
        script.put(
            "kernel_dispatch", id=ident, track_id=place, kernel_id=kernel, dispatch_id=ident,
            start_id=time(start), end_id=time(end), event_id=counted[ident],
        )  # fmt: skip
    for i in (0, 1):
        symbol = f"SQ_WAVES:xcc={i}"
        script.put(
            "info_pmc", id=90 + i, agent_id=run.agents[0], name="SQ_WAVES", symbol=symbol, units=""
        )
    for i, (dispatch, _, value) in enumerate(run.counts):
        script.put("pmc_event", event_id=counted[dispatch], pmc_id=90 + i % 2, value=value)
    for call, name, start, dur, source, target, size in run.copies:
        script.put(
            "memory_copy", track_id=track(agent_id=target, stream_id=1), start_id=time(start),
            end_id=time(start + dur), name_id=script.string(f"MEMORY_COPY_{name}"),
            dst_agent_id=target, src_agent_id=source, size=size, event_id=event("COPY", call),
        )  # fmt: skip
    for call, kind, start, end, address, size in run.memory:
        of = {"agent_id": run.agents[0]} if size else {}
        script.put(
            "memory_allocate", track_id=track(**of), type=kind, level="REAL", start_id=time(start),
            end_id=time(end), address=address, size=size, event_id=event("ALLOC", call),
        )  # fmt: skip
    return script.text()


def sampling(run):
    """As rocprof-sys fills it: rows of threads and devices are numbered anew, counters over time,
    frames of call stacks that are regions and samples, a mark; the id is no UUID."""
    guid = f"{run.pid:032x}"
    script = Script(f"_{guid}", guid)
    script.put("metadata", tag="upid", value=guid)
    rows = {run.thread(0): 1, run.thread(1): 2, **{i: 5 - i for i in range(5)}}
    described(script, run, environment=False, rows=rows.__getitem__)
    event = _events(script, 2, script.string)
    own = {"nid": 1, "pid": run.pid}
    for ident, kind, name, start, end, thread, message, parent, _ in run.calls:
        place = {**own, "tid": rows[run.thread(thread)], "start": start, "end": end}
        number = event(kind, ident, parent)
        script.put(
            "region", id=ident, name_id=script.string(message or name), event_id=number, **place
        )
    for ident, call, kernel, start, end, agent, stream, queue in run.kernels:
        script.put(
            "kernel_dispatch", id=ident, tid=1, agent_id=rows[agent], kernel_id=kernel,
            dispatch_id=ident, queue_id=queue, stream_id=stream, start=start, end=end,
            event_id=event("KERNEL", call), **own,
        )  # fmt: skip
    for call, name, start, dur, source, target, size in run.copies:
        script.put(
            "memory_copy",
            start=start,
            end=start + dur,
            name_id=script.string(f"MEMORY_COPY_{name}"),
            dst_agent_id=rows[target],
            src_agent_id=rows[source],
            size=size,
            stream_id=1,
            event_id=event("COPY", call),
            **own,
        )
    script.put("info_pmc", id=3, agent_id=rows[run.agents[0]], name="busy", symbol="", units="%")
    script.put("track", id=1, name_id=script.string("device_busy_gfx"), **own)
    script.put("track", id=2, tid=1, name_id=script.string("Thread 0 (S)"), **own)
    for i, value in enumerate((12.0, 93.0, 47.5)):
        number = event("device_busy_gfx")
        script.put("pmc_event", event_id=number, pmc_id=3, value=value)
        script.put("sample", id=i + 1, track_id=1, timestamp=BOOT + 50_000 * i + 1, event_id=number)
    for i, name in enumerate(("main", "train")):
        number, start = event("timer_sampling"), BOOT + 1_000 + i
        place = {**own, "tid": 1, "start": start, "end": BOOT + 250_000 - i}
        script.put("region", id=80 + i, name_id=script.string(name), event_id=number, **place)
        script.put("sample", id=10 + i, track_id=2, timestamp=start, event_id=number)
    script.put("sample", id=20, track_id=2, timestamp=BOOT + 5_000, event_id=event("user"))
    return script.text()


# -- tables and JSON ---------------------------------------------------------------------------

API = (
    "Domain",
    "Function",
    "Process_Id",
    "Thread_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
)
KERNEL = (
    "Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Kernel_Id", "Kernel_Name", "Correlation_Id",
    "Dispatch_Id", "Start_Timestamp", "End_Timestamp", "LDS_Block_Size", "VGPR_Count",
    "Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z", "Grid_Size_X", "Grid_Size_Y",
    "Grid_Size_Z",
)  # fmt: skip


def _csv(headings, rows):
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return out.getvalue().encode()


def api_rows(run, kind):
    return [
        (CATEGORIES[kind][0], message or name, run.pid, run.thread(thread), ident, start, end)
        for ident, of, name, start, end, thread, message, *_ in run.calls
        if of == kind
    ]


def kernel_rows(run, agent="Agent {}".format):
    return [
        ("KERNEL_DISPATCH", agent(of), queue, stream, kernel, KERNELS[kernel], call, ident, start,
         end, 0, 24, 64, 1, 1, 4096, 1, 1)
        for ident, call, kernel, start, end, of, stream, queue in run.kernels
    ]  # fmt: skip


def copy_rows(run):
    return [
        (
            "MEMORY_COPY",
            f"MEMORY_COPY_{name}",
            1,
            f"Agent {source}",
            f"Agent {target}",
            call,
            start,
            start + dur,
        )
        for call, name, start, dur, source, target, _ in run.copies
    ]


COPY = (
    "Kind", "Direction", "Stream_Id", "Source_Agent_Id", "Destination_Agent_Id", "Correlation_Id",
    "Start_Timestamp", "End_Timestamp",
)  # fmt: skip


def tables(run):
    """The tables of one process by what follows its number in their names."""
    memory = [
        ("MEMORY_ALLOCATION", f"MEMORY_ALLOCATION_{'ALLOCATE' if size else 'FREE'}",
         f"Agent {run.agents[0]}" if size else "", size, f"0x{address:016x}", call, start, end)
        for call, _, start, end, address, size in run.memory
    ]  # fmt: skip
    counts = [
        (run.kernels[i - 1][1], i, f"Agent {run.agents[0]}", name, value, 1, 2)
        for i, name, value in run.counts
    ]
    agents = [(i, "GPU" if i else "CPU") for i in range(5)]
    marks = [
        *api_rows(run, "MARKER"),
        (
            CATEGORIES["MARKER"][0],
            run.mark[2],
            run.pid,
            run.thread(0),
            run.mark[0],
            run.mark[1],
            run.mark[1],
        ),
    ]
    return {
        "kernel_trace": _csv(KERNEL, kernel_rows(run)),
        "hip_api_trace": _csv(API, api_rows(run, "HIP")),
        "rccl_api_trace": _csv(API, api_rows(run, "RCCL")),
        "marker_api_trace": _csv(API, marks),
        "memory_copy_trace": _csv(COPY, copy_rows(run)),
        "memory_allocation_trace": _csv(
            ("Kind", "Operation", "Agent_Id", "Allocation_Size", "Address", *API[4:]),
            memory,
        ),
        "counter_collection": _csv(
            (*KERNEL[6:8], "Agent_Id", "Counter_Name", "Counter_Value", *API[5:]),
            [(*row[:5], BOOT, BOOT + 1) for row in counts],
        ),
        "agent_info": _csv(("Node_Id", "Agent_Type"), agents),
        "hip_api_stats": _csv(("Name", "Calls", "TotalDurationNs"), [("hipLaunchKernel", 4, 2800)]),
    }  # fmt: skip


def converted(runs):
    """Tables of two processes, as a conversion writes them: each row begins with a process."""
    return {
        "out_kernel_trace.csv": _csv(
            ("Guid", *KERNEL), [(r.guid, *row) for r in runs for row in kernel_rows(r)]
        ),
        "out_hip_api_trace.csv": _csv(
            ("Guid", *API), [(r.guid, *row) for r in runs for row in api_rows(r, "HIP")]
        ),
    }


def old_kernels(run):
    """A table of 2024: devices are numbers, and there are no streams."""
    rows = kernel_rows(run, agent=int)
    left = [i for i, heading in enumerate(KERNEL) if heading not in ("Stream_Id", "VGPR_Count")]
    return _csv([KERNEL[i] for i in left], [[row[i] for i in left] for row in rows])


def rocprof_v1(run):
    """A table of rocprof, whose counters are columns; a dispatch without one."""
    headings = [
        "Index", "KernelName", "gpu-id", "queue-id", "queue-index", "pid", "tid", "grd", "wgr",
        "lds", "scr", "arch_vgpr", "accum_vgpr", "sgpr", "wave_size", "sig", "obj", "SQ_WAVES",
        "DispatchNs", "BeginNs", "EndNs", "CompleteNs",
    ]  # fmt: skip
    counts = {dispatch: value for dispatch, _, value in run.counts}
    rows = [
        [ident, KERNELS[kernel], run.agents.index(agent), queue, i, run.pid, run.pid, 4096, 64,
         128, 0, 32, 0, 16, 64, "0x0", "0x7f0000000000", counts.get(ident, "None"), start - 500,
         start, end, end + 200]
        for i, (ident, _, kernel, start, end, agent, _, queue) in enumerate(run.kernels)
    ]  # fmt: skip
    return _csv(headings, rows)


def rocprof_v2(*runs):
    """A table of rocprofv2 with the kernels of several processes."""
    headings = [
        "Dispatch_ID", "GPU_ID", "Queue_ID", "PID", "TID", "Grid_Size", "Workgroup_Size",
        "LDS_Per_Workgroup", "Scratch_Per_Workitem", "Arch_VGPR", "Accum_VGPR", "SGPR", "Wave_Size",
        "Kernel_Name", "Start_Timestamp", "End_Timestamp", "Correlation_ID",
    ]  # fmt: skip
    rows = [
        [ident, agent, queue, run.pid, run.pid, 4096, 64, 128, 0, 32, 0, 16, 64, KERNELS[kernel],
         start, end, call]
        for run in runs
        for ident, call, kernel, start, end, agent, _, queue in run.kernels
    ]  # fmt: skip
    return _csv(headings, rows)


def sampled_within(run):
    """A database of schema 3.0.3: counters sampled within a kernel, and tables of later writers."""
    suffix, guid = "_" + run.guid.replace("-", "_"), run.guid
    columns = ("sample_id", "xcc", "shader_engine", "instance")
    made = [f'ALTER TABLE "rocpd_pmc_event{suffix}" ADD COLUMN {one} INTEGER;' for one in columns]
    start = run.kernels[1][3]
    made += [
        f'CREATE TABLE "rocpd_gpu_pc_sample{suffix}" (id INTEGER, guid TEXT, timestamp BIGINT);',
        f"INSERT INTO \"rocpd_gpu_pc_sample{suffix}\" VALUES (1, '{guid}', {start});",
        f'INSERT INTO "rocpd_track{suffix}" (id, guid, nid, pid) '
        f"VALUES (90, '{guid}', 1, {run.pid});",
    ]
    for i in range(4):
        made += [
            f'INSERT INTO "rocpd_sample{suffix}" (id, guid, track_id, timestamp) '
            f"VALUES ({900 + i}, '{guid}', 90, {start + 100 * i});",
            f'INSERT INTO "rocpd_pmc_event{suffix}" '
            "(guid, event_id, pmc_id, value, sample_id, xcc, shader_engine, instance) SELECT "
            f"'{guid}', event_id, 9, {100.5 * i}, {900 + i}, 0, {i % 2}, 0 "
            f'FROM "rocpd_kernel_dispatch{suffix}" WHERE start = {start};',
        ]
    return schema_3(run) + "\n".join(made) + "\n"


def tool_json(run):
    """One process as JSON."""
    kinds = [
        "NONE",
        *(CATEGORIES[k][0] for k in ("HIP", "RCCL", "MARKER", "KERNEL", "COPY", "ALLOC")),
    ]
    operations = {kind: [] for kind in kinds}

    def record(kind, name, ident, start, end, thread=0, **more):
        listed = operations[CATEGORIES[kind][0]]
        if name not in listed:
            listed.append(name)
        return {
            "size": 64, "kind": kinds.index(CATEGORIES[kind][0]), "operation": listed.index(name),
            "thread_id": run.thread(thread), "correlation_id": {"internal": ident, "external": 0},
            "start_timestamp": start, "end_timestamp": end, **more,
        }  # fmt: skip

    def handle(number):
        return {"handle": number}

    def api(kind):
        return [
            record(kind, name, ident, start, end, thread)
            for ident, of, name, start, end, thread, *_ in run.calls
            if of == kind
        ]

    dispatches = [
        record(
            "KERNEL",
            "COMPLETE",
            call,
            start,
            end,
            stream_id=handle(stream),
            dispatch_info={
                "agent_id": handle(600 + agent),
                "queue_id": handle(queue),
                "kernel_id": kernel,
                "dispatch_id": ident,
                "private_segment_size": 0,
                "group_segment_size": 128,
                "workgroup_size": {"x": 64, "y": 1, "z": 1},
                "grid_size": {"x": 4096, "y": 1, "z": 1},
            },
        )
        for ident, call, kernel, start, end, agent, stream, queue in run.kernels
    ]
    copies = [
        record(
            "COPY",
            f"MEMORY_COPY_{name}",
            call,
            start,
            start + dur,
            bytes=size,
            src_agent_id=handle(600 + source),
            dst_agent_id=handle(600 + target),
            stream_id=handle(1),
        )
        for call, name, start, dur, source, target, size in run.copies
    ]
    memory = [
        record(
            "ALLOC",
            f"MEMORY_ALLOCATION_{kind}",
            call,
            start,
            end,
            allocation_size=size,
            agent_id=handle(600 + run.agents[0] if size else 0),
            address=handle(address),
        )
        for call, kind, start, end, address, size in run.memory
    ]
    counted = [
        {
            "dispatch_data": {"dispatch_info": {"dispatch_id": i}},
            "records": [{"counter_id": handle(5), "value": value}],
        }
        for i, _, value in run.counts
    ]
    buffers = {
        "kernel_dispatch": [*dispatches, "no record"], "hip_api": api("HIP"),
        "rccl_api": api("RCCL"),
        "marker_api": api("MARKER"), "memory_copy": copies, "memory_allocation": memory,
        "scratch_memory": [{"kind": 9}],
    }  # fmt: skip
    return {
        "metadata": {
            "node": {"hostname": "node-a"}, "pid": run.pid, "command": ["python", "secret.py"],
        },
        "agents": [{"id": handle(600 + i), "type": 2 if i else 1} for i in range(5)],
        "counters": [{"id": handle(5), "name": "SQ_WAVES"}],
        "strings": {
            "buffer_records": [{"kind": kind, "operations": operations[kind]} for kind in kinds],
            "marker_api": [{"key": call[0], "value": call[6]} for call in run.calls if call[6]],
        },
        "kernel_symbols": [
            {"kernel_id": i, "formatted_kernel_name": name, "sgpr_count": 16}
            for i, name in KERNELS.items()
        ],
        "buffer_records": buffers,
        "callback_records": {"counter_collection": counted},
    }  # fmt: skip


# -- RPD ---------------------------------------------------------------------------------------

RPD = """
CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, string TEXT);
CREATE TABLE rocpd_api (id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, start INTEGER,
  end INTEGER, apiName_id INTEGER, args_id INTEGER);
CREATE TABLE rocpd_op (id INTEGER PRIMARY KEY, gpuId INTEGER, queueId INTEGER, sequenceId INTEGER,
  start INTEGER, end INTEGER, description_id INTEGER, opType_id INTEGER);
CREATE TABLE rocpd_api_ops (id INTEGER PRIMARY KEY, api_id INTEGER, op_id INTEGER);
CREATE TABLE rocpd_kernelapi (api_ptr_id INTEGER PRIMARY KEY, stream TEXT, gridX INTEGER,
  gridY INTEGER, gridZ INTEGER, workgroupX INTEGER, workgroupY INTEGER,
  workgroupZ INTEGER, kernelName_id INTEGER);
CREATE TABLE rocpd_copyapi (api_ptr_id INTEGER PRIMARY KEY, stream TEXT, size INTEGER,
  kind INTEGER);
CREATE TABLE rocpd_monitor (id INTEGER PRIMARY KEY, deviceType TEXT, deviceId INTEGER,
  monitorType TEXT, start INTEGER, end INTEGER, value TEXT);
CREATE TABLE rocpd_metadata (id INTEGER PRIMARY KEY, tag TEXT, value TEXT);
INSERT INTO rocpd_metadata (tag, value) VALUES ('schema_version', '2');
"""


def rpd(processes=(31, 32)):
    """Two processes: calls, user marks, overhead, kernels, copies, a fill, monitors."""
    words = ["", "hipLaunchKernel", "hipMemcpyAsync", "UserMarker", "iteration 3", "forward",
             "OpTable::writeRows", "KernelExecution", "CopyHostToDevice", "FillBuffer", "Barrier",
             "gemm(float*)",
             "ncclDevKernel_Generic_1(int)"]  # fmt: skip
    ids = {word: i + 1 for i, word in enumerate(words)}
    lines = [RPD.strip()]

    def put(table, *values):
        lines.append(f"INSERT INTO rocpd_{table} VALUES ({', '.join(map(_literal, values))});")

    for word, ident in ids.items():
        put("string", ident, word)
    calls, ops, arrows = iter(range(1, 99)), iter(range(1, 99)), iter(range(1, 99))
    for n, pid in enumerate(processes):
        at = BOOT + 500 * n

        def call(name, start, dur, args="", at=at, pid=pid):
            ident = next(calls)
            put("api", ident, pid, pid, at + start, at + start + dur, ids[name], ids[args])
            return ident

        def op(call, kind, start, dur, name="", at=at, gpu=n, queue=0):
            ident = next(ops)
            put("op", ident, gpu, queue, ident, at + start, at + start + dur, ids[name], ids[kind])
            if call:
                put("api_ops", next(arrows), call, ident)

        call("UserMarker", 1_000, 60_000, "iteration 3")
        call("UserMarker", 1_500, 20_000, "forward")
        one = call("hipMemcpyAsync", 2_000, 900)
        put("copyapi", one, "0x0", 4096, 1)
        op(one, "CopyHostToDevice", 4_000, 3_000)
        one = call("hipLaunchKernel", 5_000, 700)
        put("kernelapi", one, "0x0", 16, 2, 1, 256, 1, 1, ids["gemm(float*)"])
        op(one, "KernelExecution", 8_000, 20_000, "gemm(float*)")
        one = call("hipLaunchKernel", 9_000, 700)
        op(one, "KernelExecution", 20_000, 30_000, "ncclDevKernel_Generic_1(int)", queue=1)
        op(0, "FillBuffer", 52_000, 500)
        op(one, "Barrier", 50_000, 100)
        call("OpTable::writeRows", 70_000, 5_000)
        call("hipLaunchKernel", 80_000, -5)
    for i, value in enumerate(("800", "1700", "none")):
        put("monitor", i + 1, "gpu", 0, "sclk", BOOT + 10_000 * i, BOOT + 10_000 * (i + 1), value)
    return "\n".join(lines) + "\n"


def cut_database(script, share):
    """The first bytes of the database that a script makes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        database = sqlite3.connect(path)
        database.executescript(f"PRAGMA page_size=4096;\n{script}")
        database.close()
        data = path.read_bytes()
    return data[: int(len(data) * share)]


def golden():
    """The inputs of the golden cases but for the cut database: path below ``golden`` -> bytes."""
    first, second = Run(0, 501, (1, 2)), Run(1, 502, (3, 4), late=300)
    found = {
        "rocprof/schema_3/input/node-a/501_results.db.sql": schema_3(first).encode(),
        "rocprof/schema_3/input/node-a/502_results.db.sql": schema_3(second).encode(),
        "rocprof/schema_3/input/node-a/502_kernel_trace.csv": _csv(KERNEL, kernel_rows(second)),
        "rocprof/merged/input/both.db.sql": (schema_3(first) + schema_3(second)).encode(),
        "rocprof/schema_4/input/run.rpdb/501_results.db.sql": schema_4(first).encode(),
        "rocprof/schema_4/input/run.rpdb/index.yaml": b'files: ["501_results.db"]\n',
        "rocprof/sampling/input/rank1/rocpd.db.sql": sampling(first).encode(),
        "rocprof/tool_json/input/501_results.json": json.dumps(
            {"rocprofiler-sdk-tool": [tool_json(first)]}, indent=0
        ).encode(),
        "rocprof/old_table/input/rank3/kernel_trace.csv": old_kernels(first),
        "rocprof/rocprof_v1/input/results.csv": rocprof_v1(first),
        "rocprof/rocprof_v2/input/results.csv": rocprof_v2(first, second),
        "rocprof/sampled_within/input/501_results.db.sql": sampled_within(first).encode(),
        "rocprof/cut_off/input/501_kernel_trace.csv": _csv(KERNEL, kernel_rows(first))[:1500],
        "rocprof/cut_json/input/501_results.json": json.dumps(
            {"rocprofiler-sdk-tool": [tool_json(first)]}
        ).encode()[:5000],
        "rpd/two_processes/input/trace.rpd.sql": rpd().encode(),
    }  # fmt: skip
    for run in (first, second):
        for name, content in tables(run).items():
            found[f"rocprof/csv_set/input/{run.pid}_{name}.csv"] = content
    for name, content in converted([first, second]).items():
        found[f"rocprof/converted/input/{name}"] = content
    return found


def main():
    folder = Path(__file__).parents[2] / "golden"
    made = {**golden(), "rpd/cut_off/input/rank2.rpd": cut_database(rpd((31,)), 0.6)}
    for name, content in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        sys.stdout.write(f"{path}: {len(content)}\n")


if __name__ == "__main__":
    main()

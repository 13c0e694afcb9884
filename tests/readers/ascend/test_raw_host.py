"""The host's side of raw Ascend data: slices, records, names, the timeline of CANN, launches."""

import json

import ascend_raw_host_made as made
import numpy as np
import pytest

from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Capture, OpClass
from traceconv.io.sources import sources
from traceconv.readers.ascend.common.identity import Identity
from traceconv.readers.ascend.raw.clock import read_clock
from traceconv.readers.ascend.raw.host_launches import ARGUMENTS, read_host
from traceconv.readers.ascend.raw.host_records import LAYOUTS, Dictionary, HostFiles

T = 10_000_000
TYPES = {
    (20000, 0x30001): "aclrtMemcpyAsync", (20000, 0x70002): "hcom_allReduce_",
    (15000, 1): "ModelExecute",
    (10000, 5): "launch", (10000, 6): "step_info", (5500, 9): "master", (5000, 7): "LaunchKernel",
    (5000, 100): "KERNEL_AICORE", (5000, 101): "MEMCPY_ASYNC", (5000, 102): "EVENT_RECORD",
    (5000, 103): "FFTS_PLUS", (5000, 104): "NOTIFY_WAIT",
}  # fmt: skip
NAMES = {
    11: "Default/net/MatMul-op1", 12: "MatMul", 13: "hcom_allReduce__1", 14: "Notify_Wait",
    15: "group:one", 16: "RING", 17: "Memcpy", 18: "a_kernel", 2**64 - 5: "Default/net/Add-op2",
}  # fmt: skip


class Folder:
    """A ``host/data`` folder, written for one test."""

    def __init__(self, root):
        self.root = root
        for name, content in made.clock_files("host").items():
            self.put(name, content)
        self.host("unaging.additional.hash_dic", made.hash_dic(NAMES))
        self.host("unaging.additional.type_info_dic", made.type_dic(TYPES))

    def put(self, name, content):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def host(self, stem, *slices):
        for number, content in enumerate(slices):
            self.put(f"host/data/{stem}.slice_{number}", content)
        return self

    def source(self):
        (self.opened,) = sources([str(self.root)])
        return self.opened

    def builder(self):
        self.build = TraceBuilder(Capture("ascend_raw", self.source(), (), rank=0))
        return self.build

    def files(self):
        build = self.builder()
        return HostFiles.among(self.opened, self.opened.names(), build)

    def columns(self, kind):
        return self.files().columns(kind)

    def read(self):
        build = self.builder()
        names = self.opened.names()
        clock = read_clock(Identity(self.opened, Issues()), names, -1)
        self.side = read_host(build, self.opened, names, clock)
        self.trace = build.finish()
        return self

    def calls(self):
        """Name, lane, start and duration of every event."""
        events = self.trace.events
        return [
            (self.trace.strings[n], self.trace.tracks[t].name, s, d)
            for n, t, s, d in zip(
                events.name,
                events.track,
                events.start_ns.tolist(),
                events.dur_ns.tolist(),
                strict=True,
            )
        ]

    def args(self):
        return [self.trace.args[i] for i in self.trace.events.args.tolist()]

    def issues(self):
        return {(i.code, i.count) for i in self.build.issues}

    def text(self, column):
        """A column of texts; "" for none."""
        return self.side.texts(column)

    def launches(self, *names):
        """Some columns of the launches."""
        return tuple(self.side[name].tolist() for name in names)

    def said(self):
        """The members of every launch's arguments, as JSON text."""
        rows, known = [], self.side.names
        for i in range(len(self.side)):
            codes = {key: int(self.side[key][i]) for key in ARGUMENTS}
            rows.append(
                {
                    key: json.dumps(known[key].get(code, code) if key in known else code)
                    for key, code in codes.items()
                    if code >= 0
                }
            )
        return rows


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


# -- slices and records -------------------------------------------------------------------


def track(n):
    return made.task_track(77, T + n, stream=3, task=n, kind=100)


def tasks(folder):
    return folder.columns("compact.task_track")["task"].tolist()


def test_slices_follow_each_other_by_number(folder):
    """Slice 10 comes after slice 9, not after slice 1."""
    folder.host("unaging.compact.task_track", *(track(n) for n in range(12)))
    assert list(range(12)) == tasks(folder)


def test_a_record_may_straddle_two_slices(folder):
    """Slices are cut anywhere; records are read across."""
    blob = b"".join(track(n) for n in range(4))
    folder.host("unaging.compact.task_track", blob[:70], blob[70:200], blob[200:])
    assert ([0, 1, 2, 3], set()) == (tasks(folder), folder.issues())


def test_excess_lies_at_the_front(folder):
    """What aged out took the beginning of a record with it; the rest of it is passed over."""
    blob = b"".join(track(n) for n in range(4))
    folder.host("aging.compact.task_track", blob[50:])
    assert ([1, 2, 3], {("skipped-bytes", 1)}) == (tasks(folder), folder.issues())


def test_kept_records_go_before_aging_ones(folder):
    """Both kinds of one class are read."""
    folder.host("aging.compact.task_track", track(5))
    folder.host("unaging.compact.task_track", track(1))
    assert tasks(folder) == [1, 5]


def test_a_record_with_a_wrong_magic_is_skipped_alone(folder):
    """What lies around a broken record is kept."""
    broken = bytearray(track(1))
    broken[0] = 0
    folder.host("unaging.compact.task_track", track(0) + bytes(broken) + track(2) + bytes(64))
    assert ([0, 2], {("malformed-record", 2)}) == (tasks(folder), folder.issues())


@pytest.mark.parametrize("length", range(193))
def test_a_file_cut_anywhere_keeps_its_whole_records(folder, length):
    """Three records of which only the first bytes are left."""
    blob = b"".join(track(n) for n in range(3))[:length]
    folder.host("unaging.compact.task_track", blob)
    assert list(range(length // 64)) == tasks(folder)


def test_records_of_kinds_not_read_are_counted(folder):
    """Tensors are known, and not shown."""
    folder.host("unaging.additional.tensor_info", made.other_info(77, T) * 3)
    assert {("kind-not-read", 3)} == folder.read().issues()


RECORDS = {
    "api_event.data": (
        made.api(10000, 5, 77, T, T + 9, 2**64 - 5, 4),
        {"level": 10000, "type": 5, "time": T, "end": T + 9, "item": -5, "request": 4},
    ),
    "compact.task_track": (
        made.task_track(77, T, 3, 65535, 100, device=2, batch=6, kernel=18),
        {"device": 2, "stream": 3, "task": 65535, "batch": 6, "kind": 100, "kernel": 18},
    ),
    "compact.node_basic_info": (
        made.node_basic_info(77, T, 11, 12, unit=4, blocks=40),
        {"op": 11, "op_type": 12, "unit": 4, "blocks": 40, "flags": 0, "state": 0},
    ),
    "compact.hccl_op_info": (
        made.hccl_op_info(77, T, 15, 16, 4096, data_type=3),
        {"group": 15, "algorithm": 16, "count": 4096, "data_type": 3, "bits": 0},
    ),
    "compact.memcpy_info": (
        made.memcpy_info(77, T, 1 << 40, 2),
        {"bytes": 1 << 40, "direction": 2},
    ),
    "additional.hccl_info": (
        made.hccl_info(77, T, 14, 15, plane=2, context=7, size=1 << 33, remote=5),
        {
            "item": 14, "group": 15, "local_rank": 1, "remote_rank": 5, "rank_size": 8,
            "plane": 2, "context": 7, "notify": -1, "bytes": 1 << 33, "data_type": 4, "link": 1,
            "transport": 0, "rdma": 255,
        },
    ),
    "additional.graph_id_map": (
        made.graph_id_map(77, T, 11, 3, 9),
        {"name": 11, "graph": 3, "model": 9},
    ),
    "additional.context_id_info": (
        made.context_ids(77, T, 11, [4, 5]),
        {"op": 11, "count": 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", RECORDS)
def test_every_field_of_a_record_is_read_from_its_place(folder, kind):
    """Fields as they were packed; 64-bit numbers keep their bits."""
    blob, expected = RECORDS[kind]
    folder.host(f"unaging.{kind}", blob)
    found = folder.columns(kind)
    expected = {**expected, "thread": 77, "time": T}
    assert expected == {name: int(found[name][0]) for name in expected}
    assert len(blob) == LAYOUTS[kind].itemsize


def test_a_string_may_hold_colons(folder):
    """Lines are split at the first one."""
    assert Dictionary.of(folder.files()).name(15) == "group:one"


def test_a_number_without_a_name_stands_as_itself(folder):
    """The dictionary lacks it: the name of a call is the number, and that is booked."""
    folder.host("unaging.api_event.data", made.api(5500, 9, 77, T, T + 5, item=2**64 - 77))
    folder.read()
    assert folder.calls()[0][0] == "Communication@18446744073709551539"
    assert {("name-unknown", 1)} == folder.issues()


# -- the timeline of CANN -----------------------------------------------------------------


def test_calls_are_named_as_in_the_exported_timeline(folder):
    """Layer and function; of communication what it does, of the program's own calls their name."""
    folder.host(
        "unaging.api_event.data",
        made.api(20000, 0x30001, 77, T, T + 50)
        + made.api(15000, 1, 77, T + 60, T + 90, item=3)
        + made.api(10000, 5, 78, T, T + 40, item=11)
        + made.api(5500, 9, 78, T + 5, T + 20, item=14)
        + made.api(5000, 7, 78, T + 6, T + 8)
        + made.api(30000, 7, 79, T, T + 8),
    )
    folder.read()
    assert [
        ("AscendCL@aclrtMemcpyAsync", "Thread 77", made.ns(T), 500),
        ("Model@ModelExecute", "Thread 77", made.ns(T + 60), 300),
        ("Node@launch", "Thread 78", made.ns(T), 400),
        ("Communication@Notify_Wait", "Thread 78", made.ns(T + 5), 150),
        ("Runtime@LaunchKernel", "Thread 78", made.ns(T + 6), 20),
        ("Api@7", "Thread 79", made.ns(T), 80),
    ] == folder.calls()


def test_calls_have_the_arguments_of_the_exported_timeline(folder):
    """Mode, level, id and item as the profiler writes them."""
    folder.host(
        "unaging.api_event.data",
        made.api(20000, 0x30001, 77, T, T + 50) + made.api(10000, 5, 77, T + 60, T + 70, item=11),
    )
    folder.read()
    assert folder.args() == [
        {
            "Thread Id": 77,
            "Mode": "ACL_RTS",
            "level": "acl",
            "id": "aclrtMemcpyAsync",
            "item_id": "0",
        },
        {
            "Thread Id": 77,
            "Mode": "launch",
            "level": "node",
            "id": "0",
            "item_id": "Default/net/MatMul-op1",
        },
    ]


def test_halves_of_an_event_are_joined(folder):
    """The first half of a key is the start, the next the end, and so on."""
    half = [made.api(15000, 1, 77, T + t, made.NEVER, item=3, request=r) for t, r in
            ((0, 1), (5, 2), (30, 1), (40, 1), (45, 2), (70, 1))]  # fmt: skip
    folder.host("unaging.api_event.data", b"".join(half))
    folder.read()
    assert [(start - made.ns(T), dur) for _, _, start, dur in folder.calls()] == [
        (0, 300),
        (50, 400),
        (400, 300),
    ]


def test_an_event_that_never_ended_lasts_until_the_end_of_its_thread(folder):
    """It is marked, and counted."""
    folder.host(
        "unaging.api_event.data",
        made.api(15000, 1, 77, T, made.NEVER, item=3) + made.api(5000, 7, 77, T + 20, T + 25),
    )
    folder.read()
    assert [("Model@ModelExecute", "Thread 77", made.ns(T), 250)] == folder.calls()[:1]
    assert folder.args()[0]["unfinished"] is True
    assert {("unfinished-slice", 1)} == folder.issues()


def test_calls_without_usable_times_are_lost_and_counted(folder):
    """No start, an end before the start, and a stamp outside any clock."""
    folder.host(
        "unaging.api_event.data",
        made.api(5000, 7, 77, 0, T) + made.api(5000, 7, 77, T, T - 5)
        + made.api(5000, 7, 77, T, 2**63 + 7) + made.api(5000, 7, 77, T, T),
    )  # fmt: skip
    folder.read()
    assert (1, {("bad-time", 2), ("negative-duration", 1)}) == (
        len(folder.calls()),
        folder.issues(),
    )


# -- launches -----------------------------------------------------------------------------


def launch(begin, end, thread=77, item=11):
    """A call of the node layer, and one of the runtime in it."""
    return made.api(10000, 5, thread, begin, end, item=item) + made.api(
        5000, 7, thread, begin + 2, end - 2
    )


def test_a_task_has_the_operator_of_the_call_around_it(folder):
    """Name and type of the operator, class, launching call; names of hashes above 2**63, too."""
    folder.host("unaging.api_event.data", launch(T, T + 20), launch(T + 20, T + 40, item=12))
    folder.host(
        "aging.compact.node_basic_info",
        made.node_basic_info(77, T + 20, 11, 12)
        + made.node_basic_info(77, T + 40, 2**64 - 5, 12, unit=2),
    )
    folder.host(
        "aging.compact.task_track",
        made.task_track(77, T + 9, 3, 1, 100) + made.task_track(77, T + 30, 3, 2, 100, batch=1),
    )
    folder.read()
    side = folder.side
    assert folder.text("name") == ["Default/net/MatMul-op1", "Default/net/Add-op2"]
    assert folder.text("unit") == ["AI_CORE", "AI_VECTOR_CORE"]
    assert folder.text("kind") == ["KERNEL_AICORE"] * 2
    assert side["class"].tolist() == [OpClass.COMPUTE] * 2
    assert ([0, 2], [made.ns(T + 9), made.ns(T + 30)]) == (
        side["row"].tolist(),
        side["start"].tolist(),
    )
    assert tuple(
        c.tolist() for c in (side["stream"], side["task"], side["batch"], side["context"])
    ) == (
        [3, 3],
        [1, 2],
        [0, 1],
        [-1, -1],
    )
    assert folder.said() == [{"Op Type": '"MatMul"', "Block Num": "8"}] * 2


def test_without_records_of_operators_the_call_names_the_task(folder):
    """At the lowest level of profiling only calls are recorded."""
    folder.host("unaging.api_event.data", launch(T, T + 20))
    folder.host("aging.compact.task_track", made.task_track(77, T + 9, 3, 1, 100))
    assert folder.read().text("name") == ["Default/net/MatMul-op1"]


def test_a_task_of_another_thread_belongs_to_no_call(folder):
    """Calls are looked for on the thread that launched."""
    folder.host("unaging.api_event.data", launch(T, T + 20))
    folder.host("aging.compact.task_track", made.task_track(78, T + 9, 3, 1, 102))
    folder.read()
    assert (
        folder.text("name"), folder.text("kind"), folder.launches("row", "class")
    ) == ([""], ["EVENT_RECORD"], ([-1], [OpClass.WAIT]))  # fmt: skip


def test_a_kernel_no_operator_launched_is_named_by_itself(folder):
    """Its own name is in the record."""
    folder.host("aging.compact.task_track", made.task_track(78, T + 9, 3, 1, 100, kernel=18))
    folder.read()
    assert (folder.text("name"), folder.side["class"].tolist()) == (["a_kernel"], [OpClass.COMPUTE])


def test_copies_have_the_sizes_recorded_in_their_calls(folder):
    """Of two copies in one call the first has the first size."""
    folder.host("unaging.api_event.data", made.api(20000, 0x30001, 77, T, T + 50))
    folder.host(
        "aging.compact.memcpy_info",
        made.memcpy_info(77, T + 10, 100, 1) + made.memcpy_info(77, T + 20, 200, 2),
    )
    folder.host(
        "aging.compact.task_track",
        made.task_track(77, T + 9, 3, 1, 101) + made.task_track(77, T + 15, 3, 2, 101),
    )
    folder.read()
    assert folder.said() == [
        {"size(B)": "100", "operation": '"host to device"'},
        {"size(B)": "200", "operation": '"device to host"'},
    ]
    assert folder.launches("row", "class") == (
        [0, 0],
        [OpClass.COPY] * 2,
    )


def communication(folder, infos):
    """One collective whose two parts are launched by calls of the communication layer."""
    folder.host(
        "unaging.api_event.data",
        made.api(15000, 1, 77, T - 10, T + 90, item=6)
        + made.api(10000, 5, 77, T, T + 80, item=13)
        + made.api(5500, 9, 77, T + 5, T + 30, item=14)
        + made.api(5500, 9, 77, T + 40, T + 70, item=17),
    )
    folder.host("aging.compact.hccl_op_info", made.hccl_op_info(77, T + 80, 15, 16, 4096))
    folder.host("aging.additional.hccl_info", infos)
    return folder


def test_parts_of_a_collective_have_their_planes_and_groups(folder):
    """Each is told in a record of its own; all belong to the call of the collective."""
    communication(
        folder,
        made.hccl_info(77, T + 20, 14, 15, plane=0)
        + made.hccl_info(77, T + 60, 17, 15, plane=1, size=512, remote=made.NO_CONTEXT),
    )
    folder.host(
        "aging.compact.task_track",
        made.task_track(77, T + 9, 5, 1, 104) + made.task_track(77, T + 50, 5, 2, 101),
    )
    folder.read()
    side = folder.side
    assert folder.text("part") == ["Notify_Wait", "Memcpy"]
    assert folder.text("name") == ["hcom_allReduce__1"] * 2
    assert folder.text("group") == ["group:one"] * 2
    assert tuple(
        c.tolist() for c in (side["plane"], side["graph"], side["class"], side["row"])
    ) == (
        [0, 1],
        [6, 6],
        [OpClass.COMM_TASK] * 2,
        [1, 1],
    )
    assert folder.said()[1] == {
        "src rank": "1", "dst rank": "4294967295", "transport type": '"SDMA"', "size(Byte)": "512",
        "data type": '"FP32"', "link type": '"HCCS"', "rdma type": '"RESERVED"',
        "alg_type": '"RING"', "count": "4096",
    }  # fmt: skip


def test_subtasks_of_a_fused_collective_follow_its_task(folder):
    """One row per context, beside that of the task."""
    communication(
        folder,
        made.hccl_info(77, T + 20, 14, 15, plane=0, context=1)
        + made.hccl_info(77, T + 20, 17, 15, plane=3, context=2),
    )
    folder.host("aging.compact.task_track", made.task_track(77, T + 9, 5, 1, 103))
    folder.read()
    assert folder.launches("context", "plane") == (
        [-1, 1, 2],
        [-1, 0, 3],
    )
    assert folder.text("part") == ["Notify_Wait", "Notify_Wait", "Memcpy"]
    assert folder.side["task"].tolist() == [1, 1, 1]


def test_operators_fused_into_one_task_have_a_row_each(folder):
    """Contexts name their operator; the record of the whole task is none."""
    folder.host("unaging.api_event.data", launch(T, T + 40))
    folder.host(
        "aging.compact.node_basic_info",
        made.node_basic_info(77, T + 40, 13, 12, unit=6) + made.node_basic_info(77, T + 40, 11, 12)
        + made.node_basic_info(77, T + 40, 2**64 - 5, 12, unit=2),
    )  # fmt: skip
    folder.host(
        "aging.additional.context_id_info",
        made.context_ids(77, T + 40, 11, [0, 1]) + made.context_ids(77, T + 40, 2**64 - 5, [2]),
    )
    folder.host("aging.compact.task_track", made.task_track(77, T + 9, 5, 1, 103))
    folder.read()
    assert folder.side["context"].tolist() == [-1, 0, 1, 2]
    assert folder.text("name")[1:] == ["Default/net/MatMul-op1"] * 2 + ["Default/net/Add-op2"]


def test_marks_of_steps_launch_nothing(folder):
    """A call of the node layer that only marks a step gives no names."""
    folder.host("unaging.api_event.data", made.api(10000, 6, 77, T, T + 40, item=1))
    folder.host("aging.compact.task_track", made.task_track(77, T + 9, 5, 1, 102))
    folder.read()
    assert (folder.text("name"), [c[0] for c in folder.calls()]) == ([""], ["Node@step_info"])


def test_many_launches_are_joined_exactly(folder):
    """Each belongs to its own call, also after task numbers started anew."""
    n = 20_000
    at = T + 40 * np.arange(n)
    folder.host("unaging.api_event.data", b"".join(launch(t, t + 30) for t in at.tolist()))
    folder.host(
        "aging.compact.task_track",
        b"".join(made.task_track(77, t + 9, 3, i & 65535, 100) for i, t in enumerate(at.tolist())),
    )
    folder.read()
    assert (2 * np.arange(n)).tolist() == folder.side["row"].tolist()

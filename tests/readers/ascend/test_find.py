"""Finding Ascend captures: whose they are, which windows they have, what belongs to them."""

import json

import pytest
from ascend_files import OUTPUT, PROF, UNIX_US, Folder, read

import traceconv
from traceconv.core.clock import Domain


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_tables_of_another_vendor_with_the_same_names_are_left(tmp_path):
    """Cambricon's tools write kernel_details.csv next to the trace of PyTorch."""
    events = [{"ph": "X", "cat": "kernel", "name": "MLUBlockKernel", "pid": 0, "tid": 1, "ts": 10,
               "dur": 5, "args": {"device": 0, "stream": 1, "correlation": 7}}]  # fmt: skip
    header = {"schemaVersion": 1, "distributedInfo": {"rank": 1, "world_size": 2}}
    (tmp_path / "w.pt.trace.json").write_text(json.dumps({**header, "traceEvents": events}))
    tables = tmp_path / "cambricon_output" / "w-span"
    tables.mkdir(parents=True)
    rows = "Thread Id,Correlation Id,Kernel Name,Operator,Start Time,Duration(us),Device Id\n"
    (tables / "kernel_details.csv").write_text(rows + "1,7,MLUBlockKernel,aten::mm,10,5,0\n")
    (tables / "operator_memory.csv").write_text("Name,Size(KB),Device Type\naten::mm,4,MLU:0\n")
    opened = traceconv.open(tmp_path)
    assert [(one.reader, one.rank) for one in opened.found] == [("kineto", 1)]
    assert {path.rpartition("/")[2] for path in opened.unknown} == {
        "kernel_details.csv", "operator_memory.csv",
    }  # fmt: skip


# -- whose it is --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "content", "rank", "named_by"),
    [
        ("profiler_info_3.json", {"rank_id": 3}, 3, "profiler_info_3.json"),
        ("profiler_info_0.json", {"rank_id": "0"}, 0, "profiler_info_0.json"),
        ("profiler_info.json", {"rank_id": 2}, 2, "profiler_info.json: rank_id"),
        ("profiler_info.json", {"rank_id": "5"}, 5, "profiler_info.json: rank_id"),
        ("profiler_info.json", {"rank_id": -1}, None, ""),
        ("profiler_info.json", {"rank_id": "-1"}, None, ""),
        ("profiler_info.json", {"rank_id": True}, None, ""),
        ("profiler_metadata.json", {"distributed_args": {"rank": 6}}, 6, "profiler_metadata.json"),
        (f"{OUTPUT}/ascend_pytorch_profiler_7.db", "SQLite", 7, "ascend_pytorch_profiler_7.db"),
        (f"{PROF}/device_1/info.json.1", {"rank_id": 4}, 4, "info.json.1"),
        ("notes.txt", "rank 3", None, ""),
    ],
)
def test_rank_is_found_where_it_is_named(folder, file, content, rank, named_by):
    """The rank comes from files, as number or text, and -1 is none."""
    folder.capture("a_ascend_pt").add(f"a_ascend_pt/{file}", content)
    (found,) = folder.find()
    assert (found.rank, found.rank_from) == (rank, named_by)


def test_folder_names_are_trusted_least(folder):
    """A folder may be called rank_3 by whoever made it: good enough if nothing else speaks."""
    folder.capture("rank_3_ascend_pt").capture("rank_4_ascend_pt", profiler_info_1={"rank_id": 1})
    assert [c.rank for c in folder.find()] == [3, 1]
    assert folder.codes() == []


def test_conflicting_ranks_are_booked(folder):
    """The most trusted claim wins, and the disagreement is an issue that names the places."""
    (found,) = folder.capture("a_ascend_pt", profiler_info_3={"rank_id": 1}).find()
    (issue,) = folder.issues
    assert (found.rank, issue.code) == (3, "rank-conflict")
    assert issue.places == ("profiler_info_3.json: 3, profiler_info_3.json: rank_id: 1",)


def test_host_and_process_are_read_off_the_worker(folder):
    """The folder's name begins with host and process id, unless somebody chose another."""
    folder.capture("node-1_4021_20250301080000123_ascend_ms", profiler_info_0={})
    (found,) = folder.find()
    assert (found.host, found.pid, found.rank) == ("node-1", 4021, 0)


def test_metadata_gives_groups_and_no_secrets(folder):
    """Group names and ranks travel; environment and communicator addresses do not."""
    metadata = {
        "ENV_VARIABLES": {"TOKEN": "s3cret"},
        "distributed_args": {"rank": 1, "world_size": 4},
        "parallel_group_info": {
            "10.0.0.1%eth0_1": {"group_name": "tp", "group_rank": 0, "global_ranks": [0, 1]}
        },
    }
    (found,) = folder.capture("a_ascend_pt", profiler_metadata=metadata).find()
    assert found.detail.notes["parallel_groups"] == [{"name": "tp", "ranks": [0, 1]}]
    assert (found.rank, found.world_size) == (1, 4)
    assert not {"s3cret", "10.0.0.1"} & set(json.dumps(found.detail.notes).split('"'))


def test_a_broken_identity_file_is_an_issue(folder):
    """What cannot be read names nobody, and is booked."""
    folder.capture("a_ascend_pt").add("a_ascend_pt/profiler_info_2.json", '{"rank_id": ')
    (found,) = folder.find()
    assert (found.rank, folder.codes()) == (2, ["malformed-record"])


def test_only_the_first_object_of_an_identity_file_counts(folder):
    """Collectors write one line; what somebody appended does not hide it."""
    folder.capture("a_ascend_pt").add("a_ascend_pt/profiler_info.json", '{"rank_id": 2}\nmore')
    (found,) = folder.find()
    assert (found.rank, folder.codes()) == (2, [])


def test_files_of_the_capture_are_known_and_strangers_are_not(folder):
    """Tables, databases and raw data of a capture are recognised; other files are left alone."""
    expected = [
        "FRAMEWORK/torch.op_range",
        f"{OUTPUT}/kernel_details.csv",
        f"{OUTPUT}/analysis.db",
        f"{PROF}/device_0/data/hwts.data.0.slice_0",
        f"{PROF}/device_0/info.json.0.done",
        f"{PROF}/mindstudio_profiler_output/msprof_20250301080103.json",
        "logs/profiler.log",
        "profiler_info_0.json",
    ]
    for name in [*expected, "notes.txt", f"{OUTPUT}/my.csv"]:
        folder.add(f"a_ascend_pt/{name}", {})
    (found,) = folder.capture("a_ascend_pt").find()
    assert [n.removeprefix("a_ascend_pt/") for n in found.known] == sorted(expected)


@pytest.mark.parametrize("below", ["a_ascend_pt", f"a_ascend_pt/{OUTPUT}"])
def test_a_folder_further_down_is_found_too(folder, below):
    """The capture's folder may be named itself, and so may the one with its output."""
    (found,) = folder.capture("a_ascend_pt").find(below=below)
    assert found.files[0].endswith("trace_view.json")


# -- collection windows -------------------------------------------------------------------


def test_windows_of_a_rank_are_one_capture(folder):
    """Folders of one process at other times are its windows, in the order of time."""
    for day, ts in ((2, UNIX_US + 10**9), (1, UNIX_US)):
        folder.capture(f"h_77_2025030{day}080000123_ascend_pt", ts, profiler_info_0={})
    (trace,) = traceconv.open(str(folder.root)).traces()
    assert trace.windows.tolist() == [
        [UNIX_US * 1000 + 250 + k * 10**12, UNIX_US * 1000 + 4750 + k * 10**12] for k in (0, 1)
    ]


def test_one_window_is_as_long_as_its_events(folder):
    """A capture of one file does not say when it was collecting."""
    (found,) = folder.capture("h_77_20250301080000123_ascend_pt").find()
    assert read(found).windows.tolist() == []


@pytest.mark.parametrize(
    "other",
    ["copy/h_77_20250301080000123_ascend_pt", "h_88_20250302080000123_ascend_pt"],
)
def test_claims_of_the_same_time_stay_apart(folder, other):
    """A copy, or another process, is no window: both are found, and the caller refuses them."""
    folder.capture("h_77_20250301080000123_ascend_pt", profiler_info_0={})
    folder.capture(other, UNIX_US + 5, profiler_info_0={})
    assert [c.rank for c in folder.find()] == [0, 0]


def test_an_empty_timeline_beside_a_database_is_left_to_it(folder):
    """The database holds what the text export failed to write."""
    folder.add(f"a_ascend_pt/{OUTPUT}/trace_view.json", "")
    folder.add(f"a_ascend_pt/{OUTPUT}/ascend_pytorch_profiler_0.db", "SQLite")
    assert (folder.find(), folder.codes()) == ([], ["empty-file"])


# -- old MindSpore ------------------------------------------------------------------------


def display(ts=0.0):
    return [{"name": "MatMul-op1", "ph": "X", "tid": "519", "ts": ts, "dur": 2.5, "pid": 1}]


def test_display_files_count_from_their_first_event(folder):
    """Their clock is comparable with nothing, unless the stamps are Unix time."""
    folder.add("p/ascend_timeline_display_3.json", display())
    folder.add("q/gpu_timeline_display_0.json", display(1600695893269618.2))
    found = [(c.rank, c.rank_from, c.clock.domain) for c in folder.find("mindspore")]
    assert found == [
        (3, "ascend_timeline_display_3.json", Domain.RELATIVE),
        (0, "gpu_timeline_display_0.json", Domain.UNIX),
    ]


def test_profiler_info_beside_a_display_file(folder):
    """It says rank, size of the job and graphs."""
    folder.add("ascend_timeline_display_1.json", display())
    info = {"rank_id": "1", "rank_size": 8, "graph_ids": [2, 0]}
    folder.add("profiler_info_1.json", info).add("flops_1.txt", "").add("flops_0.txt", "")
    (found,) = folder.find("mindspore")
    assert (found.rank, found.rank_from) == (1, "profiler_info_1.json")
    assert (found.world_size, found.graphs) == (8, (0, 2))
    assert found.known == ("flops_1.txt", "profiler_info_1.json")


@pytest.mark.parametrize("below", ["", "host_info"])
def test_host_timelines_are_found(folder, below):
    """The folder may be given itself; what the file holds tells it from other timelines."""
    slice_ = {"name": "a::b", "cat": "m", "ph": "X", "ts": UNIX_US, "dur": 60, "pid": "5",
              "tid": "77", "args": {"parent_pid": "1"}}  # fmt: skip
    folder.add("host_info/timeline_0.json", [slice_]).add("timeline_9.json", [])
    (found,) = folder.find("mindspore", below)
    assert (found.rank, found.clock.domain) == (0, Domain.UNIX)
    assert [t.name for t in read(found).tracks] == ["Thread 77"]


def test_host_timeline_beside_a_relative_display_file_is_left(folder):
    """Nothing ties their clocks, so only one of them can be shown."""
    folder.add("ascend_timeline_display_0.json", display())
    folder.add("host_info/timeline_0.json", [{"args": {"parent_pid": "1"}}])
    (found,) = folder.find("mindspore")
    assert (found.files, folder.codes()) == (("ascend_timeline_display_0.json",), ["unused-file"])

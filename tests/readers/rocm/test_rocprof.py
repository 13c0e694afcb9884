"""One run in every form in which ROCm's tools leave it."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
import rocm_files
from paths import ROOT
from rocm_files import BOOT, Run

import traceconv
from traceconv.core.builder import TraceBuilder
from traceconv.core.errors import Issues
from traceconv.core.model import Layer, OpClass, TrackKind
from traceconv.find.capture_ranks import resolve
from traceconv.io.sources import sources
from traceconv.readers.rocm.process import category
from traceconv.readers.rocm.rocprof import READER

RUN = Run(0, 501, (1, 2))


def database(path, *scripts):
    """A database file of scripts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as file:
        for script in scripts:
            file.executescript(script)
    return path


def tables(folder, made, prefix=""):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in made.items():
        (folder / f"{prefix}{name}.csv").write_bytes(content)


def found(folder):
    """The captures below a folder, and what was noted."""
    [source] = sources([str(folder)])
    issues = Issues()
    return READER.find(source, source.names(), issues), issues


def traces(folder):
    captures, issues = found(folder)
    read = []
    for capture in resolve(captures, "meta", issues):
        build = TraceBuilder(capture)
        READER.read(capture, build)
        read.append(build.finish())
    return read


def rows(trace, *layers):
    """(lane, name, class, start, duration) of the events of some layers."""
    events = trace.events.take(trace.rows_of(*layers))
    columns = (events.track, events.name, events.op, events.start_ns, events.dur_ns)
    return sorted(
        (trace.tracks[t].group, trace.tracks[t].name, trace.strings[n], o, s, d)
        for t, n, o, s, d in zip(*(c.tolist() for c in columns), strict=True)
    )


def arrows(trace):
    """(start of the call, start of the work) of all arrows."""
    start = trace.events.start_ns
    ends = zip(start[trace.flows.src].tolist(), start[trace.flows.dst].tolist(), strict=True)
    return sorted(ends)


def test_samples_of_program_counters_are_counted_by_their_table(tmp_path):
    """They have no end, and no lane."""
    tables(tmp_path, rocm_files.tables(RUN), "501_")
    text = "Sample_Timestamp,Exec_Mask,Dispatch_Id\n77000000001000,1,1\n77000000002000,1,1\n"
    (tmp_path / "501_pc_sampling_host_trap.csv").write_text(text)
    [trace] = traces(tmp_path)
    [issue] = [one for one in trace.issues if "pc_sampling" in one.file]
    assert (issue.code, issue.count) == ("kind-not-read", 2)


def test_members_of_a_later_version_are_counted(tmp_path):
    """Of the file, of an element, and of its records."""
    run = json.loads(rocm_files.golden()["rocprof/tool_json/input/501_results.json"])
    run["rocprofiler-sdk-tool"][0] |= {"later_records": [1]}
    run["rocprofiler-sdk-tool"][0]["buffer_records"]["later_kind"] = [{}, {}]
    (tmp_path / "501_results.json").write_text(json.dumps(run))
    [trace] = traces(tmp_path)
    places = {place for issue in trace.issues for place in issue.places}
    assert places >= {"keys later_records", "later_kind"}


def test_members_of_another_type_are_refused(tmp_path):
    """As a file that is cut off is."""
    run = json.loads(rocm_files.golden()["rocprof/tool_json/input/501_results.json"])
    run["rocprofiler-sdk-tool"][0]["callback_records"]["counter_collection"] = {}
    (tmp_path / "501_results.json").write_text(json.dumps(run))
    with pytest.raises(traceconv.TraceconvError, match=r"501_results.json.*counter|callback"):
        traces(tmp_path)


@pytest.mark.parametrize("name", rocm_files.golden())
def test_golden_inputs_are_what_their_maker_writes(name):
    """Nobody edits them by hand."""
    assert (ROOT / "golden" / name).read_bytes() == rocm_files.golden()[name]


FORMS = {
    "schema 3": lambda at: database(at / "501_results.db", rocm_files.schema_3(RUN)),
    "schema 4": lambda at: database(at / "501_results.db", rocm_files.schema_4(RUN)),
    "rocprof-sys": lambda at: database(at / "rocpd.db", rocm_files.sampling(RUN)),
    "tables": lambda at: tables(at, rocm_files.tables(RUN), "501_"),
    "json": lambda at: (at / "501_results.json").write_bytes(
        rocm_files.golden()["rocprof/tool_json/input/501_results.json"]
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_tells_the_same(tmp_path, form):
    """What devices did, on which lane, launched by which call; ranges, and steps by them."""
    FORMS["schema 3"](tmp_path / "one")
    (tmp_path / "other").mkdir()
    FORMS[form](tmp_path / "other")
    [first], [second] = traces(tmp_path / "one"), traces(tmp_path / "other")
    work = (Layer.DEVICE, Layer.COMM)
    assert rows(second, *work) == rows(first, *work)
    assert len(rows(first, *work)) == 15
    assert arrows(second) == arrows(first)
    assert len(arrows(first)) == 14
    assert rows(second, Layer.RUNTIME) == rows(first, Layer.RUNTIME)
    ranges = {track.title for track in second.tracks if track.kind is TrackKind.RANGES}
    assert ranges == {"rocTX"}
    steps = sorted(set(second.events.step.tolist()))
    assert steps == [-1, 5, 6]


@pytest.mark.parametrize("form", ["schema 3", "schema 4", "tables", "json"])
def test_what_is_allocated(tmp_path, form):
    """A release is that of its address; one of before the recording is counted."""
    FORMS[form](tmp_path)
    [trace] = traces(tmp_path)
    counters = trace.counters
    samples = list(zip(counters.start_ns.tolist(), counters.value.tolist(), strict=True))
    assert samples == [(BOOT + 1700, float(1 << 20)), (BOOT + 301_700, 0.0)]
    assert trace.tracks[int(counters.track[0])].group == "GPU 0"
    assert trace.issues.count("end-without-begin") == 1


@pytest.mark.parametrize(
    ("form", "counts"),
    [
        ("schema 3", {"SQ_WAVES": 42}),
        ("schema 4", {"SQ_WAVES:xcc=0": 10, "SQ_WAVES:xcc=1": 32}),
        ("tables", {"SQ_WAVES": 42}),
        ("json", {"SQ_WAVES": 42}),
    ],
)
def test_counters_of_kernels(tmp_path, form, counts):
    """Instances without a name of their own are added up."""
    FORMS[form](tmp_path)
    [trace] = traces(tmp_path)
    gemm = [
        trace.args[i]
        for i, name in zip(trace.events.args.tolist(), trace.events.name.tolist(), strict=True)
        if trace.strings[name].startswith("gemm")
    ]
    assert {k: v for k, v in gemm[0].items() if k.startswith("SQ")} == counts


def test_marks_are_instants(tmp_path):
    """In a sample, or a range without length."""
    for form in ("schema 3", "schema 4", "tables"):
        FORMS[form](tmp_path / form)
        [trace] = traces(tmp_path / form)
        marks = trace.events.take(trace.events.kind == 1)
        assert [trace.strings[i] for i in marks.name.tolist()] == ["saved"]


def test_counters_over_time_and_samples_of_regions(tmp_path):
    """Values are a counter of their device; frames are once in the trace, and that is said."""
    FORMS["rocprof-sys"](tmp_path)
    [trace] = traces(tmp_path)
    track = trace.tracks[int(trace.counters.track[0])]
    assert (track.name, track.group, track.unit) == ("device_busy_gfx", "GPU 0", "%")
    assert trace.counters.value.tolist() == [12.0, 93.0, 47.5]
    assert trace.issues.count("metadata-unused") == 2
    frames = [row for row in rows(trace, Layer.HOST) if row[2] in ("main", "train")]
    assert len(frames) == 2


# -- which files, which ranks ------------------------------------------------------------------


def test_a_database_is_preferred_to_what_is_beside_it(tmp_path):
    """Tables, JSON and Perfetto traces of the same process are known, and not read."""
    FORMS["schema 3"](tmp_path)
    FORMS["tables"](tmp_path)
    FORMS["json"](tmp_path)
    (tmp_path / "501_results.pftrace").write_bytes(b"\n\x00")
    [capture], _ = found(tmp_path)
    assert capture.files == ("501_results.db",)
    assert len(capture.known) == 11
    assert set(capture.uses.values()) == {"the same run in another form"}


def test_tables_are_read_where_the_json_beside_them_is_cut_off(tmp_path):
    """A killed process leaves half of the JSON; the loss is counted."""
    FORMS["tables"](tmp_path)
    FORMS["json"](tmp_path)
    [whole], _ = found(tmp_path)
    path = tmp_path / "501_results.json"
    path.write_bytes(path.read_bytes()[:-900])
    [capture], issues = found(tmp_path)
    assert (whole.files, whole.detail.kind, capture.detail.kind) == ((path.name,), "json", "csv")
    assert (path.name in capture.known, issues.count("malformed-record")) == (True, 1)


def test_rows_that_were_found_before_are_not_read_again(tmp_path):
    """A merged database beside those it was made of, and a conversion."""
    other = Run(1, 502, (3, 4))
    database(tmp_path / "a/501_results.db", rocm_files.schema_3(RUN))
    database(tmp_path / "a/502_results.db", rocm_files.schema_3(other))
    database(tmp_path / "b/both.db", rocm_files.schema_3(RUN), rocm_files.schema_3(other))
    for name, content in rocm_files.converted([RUN, other]).items():
        tables(tmp_path / "c", {name.removesuffix(".csv"): content})
    captures, issues = found(tmp_path)
    assert [c.files for c in captures] == [("a/501_results.db",), ("a/502_results.db",)]
    assert issues.count("repeated-content") == 4
    claimed = {n for c in captures for n in (*c.files, *c.known)}
    assert claimed == {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*")}


def test_ranks_are_those_of_the_environment(tmp_path):
    """And nothing else of it leaves the database."""
    for rank, pid in ((5, 502), (3, 501)):
        database(tmp_path / f"{pid}_results.db", rocm_files.schema_3(Run(rank, pid, (1, 2))))
    captures, _ = found(tmp_path)
    assert [(c.rank, c.rank_from, c.world_size) for c in captures] == [
        (3, "RANK", 2),
        (5, "RANK", 2),
    ]
    out = tmp_path / "out.txt"
    report = traceconv.merge(str(tmp_path), out=str(out), mode="detail")
    assert "not for others" not in out.read_text() + str(report.as_dict())


def test_processes_without_a_rank_are_counted_and_said(tmp_path):
    """In the order of their numbers, not of the text of these."""
    for pid in (99, 501):
        tables(tmp_path, rocm_files.tables(Run(0, pid, (1, 2))), f"{pid}_")
    found = traceconv.open(tmp_path)
    assert [(c.pid, c.rank) for c in found.found] == [(99, 0), (501, 1)]
    assert found.issues.count("rank-derived") == 1


def test_views_are_not_asked(tmp_path):
    """A view of the name of a table, that never ends, is not looked at."""
    endless = (
        "CREATE VIEW rocpd_kernel_dispatch AS WITH RECURSIVE n(i) AS "
        "(SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id, i AS start, i AS end FROM n;"
    )
    database(tmp_path / "a.db", rocm_files.schema_3(RUN), endless)
    [trace] = traces(tmp_path)
    assert len(rows(trace, Layer.DEVICE, Layer.COMM)) == 15


def test_a_lone_table_is_enough(tmp_path):
    """Older ones have no streams: lanes are queues then, and devices numbers."""
    (tmp_path / "kernel_trace.csv").write_bytes(rocm_files.old_kernels(RUN))
    [trace] = traces(tmp_path)
    lanes = {(track.group, track.name) for track in trace.tracks}
    assert lanes == {("GPU 1", "Queue 1"), ("GPU 1", "Queue 2"), ("GPU 2", "Queue 1")}


def test_other_tables_are_left_alone(tmp_path):
    """A name of ours with other headings is another tool's."""
    (tmp_path / "kernel_trace.csv").write_text("name,start,end\na,1,2\n")
    assert found(tmp_path)[0] == []


@pytest.mark.parametrize(
    ("name", "layer", "title", "marker"),
    [
        ("HIP_RUNTIME_API_EXT", Layer.RUNTIME, "HIP", False),
        ("rocm_hip_api", Layer.RUNTIME, "HIP", False),
        ("hsa_api", Layer.RUNTIME, "HSA", False),
        ("RCCL_API", Layer.RUNTIME, "RCCL", False),
        ("KFD_PAGE_FAULT", Layer.RUNTIME, "KFD", False),
        ("rocm_marker_api", Layer.HOST, "rocTX", True),
        ("python", Layer.HOST, "python", False),
        ("host", Layer.HOST, "", False),
    ],
)
def test_categories(name, layer, title, marker):
    """As every version spells them."""
    got = category(name)
    assert (got.layer, got.title, got.marker) == (layer, title, marker)


# -- RPD ---------------------------------------------------------------------------------------


def test_rpds_of_containers_at_one_time_are_of_two_processes(tmp_path):
    """Process id and GPU are equal in both, and the clock is that of the node."""
    for name, late in (("r0", 0), ("r1", 1_300)):
        path = database(tmp_path / f"trace_{name}.rpd", rocm_files.rpd((31,)))
        with closing(sqlite3.connect(path)) as opened, opened:
            for table in ("api", "op"):
                opened.execute(
                    f"UPDATE rocpd_{table} SET start = start + {late}, end = end + {late}"
                )
    found = traceconv.open(tmp_path)
    assert [one.rank for one in found.found] == [0, 1]
    assert found.issues.count("rank-derived") == 1


def test_processes_of_an_rpd(tmp_path):
    """Every operation is with the process whose call it belongs to, those of no call with the
    first; the writer of the profile is no work of the host."""
    database(tmp_path / "x.rpd", rocm_files.rpd())
    opened = traceconv.open(str(tmp_path))
    assert [c.pid for c in opened.found] == [31, 32]
    first, second = opened.traces()
    assert [len(rows(t, Layer.DEVICE, Layer.COMM)) for t in (first, second)] == [6, 4]
    assert [len(t.flows) for t in (first, second)] == [4, 4]
    assert {t.title for t in first.tracks if t.layer is Layer.OTHER} == {"Profiler"}
    ops = {OpClass(o) for _, _, _, o, _, _ in rows(first, Layer.DEVICE, Layer.COMM)}
    assert ops == {OpClass.COMPUTE, OpClass.COMM, OpClass.COPY, OpClass.WAIT}
    assert first.counters.value.tolist() == [800.0, 1700.0]
    assert first.issues.count("counter-not-numeric") == 1
    assert sorted(set(first.events.step.tolist())) == [-1, 3]


@pytest.mark.parametrize(
    "table, column", [("api", "tid"), ("op", "gpuId"), ("monitor", "deviceId")]
)
def test_an_rpd_without_a_column_keeps_its_rows(table, column, tmp_path):
    """Its values are unknown."""
    whole = traceconv.open(database(tmp_path / "whole.rpd", rocm_files.rpd())).traces()
    path = database(
        tmp_path / "less.rpd", rocm_files.rpd(), f"ALTER TABLE rocpd_{table} DROP COLUMN {column}"
    )
    for complete, without in zip(whole, traceconv.open(path).traces(), strict=True):
        assert without.counts() == complete.counts()


def test_processes_and_gpus_of_merged_nodes_are_told_by_the_strides(tmp_path):
    """As the views of rocmProfileData tell them; hosts have a clock each."""
    database(tmp_path / "x.rpd", rocm_files.rpd((31, 10_000_031)))
    with closing(sqlite3.connect(tmp_path / "x.rpd")) as merged, merged:
        merged.execute("CREATE TABLE IF NOT EXISTS rocpd_metadata (tag, value)")
        strides = [("pid_stride", "10000000"), ("gpu_stride", "1000")]
        merged.executemany("INSERT INTO rocpd_metadata (tag, value) VALUES (?, ?)", strides)
        merged.execute("UPDATE rocpd_op SET gpuId = gpuId + 999 WHERE gpuId = 1")
        merged.execute("UPDATE rocpd_monitor SET deviceId = 1000 WHERE id = 2")
    opened = traceconv.open(tmp_path)
    assert [(c.host, c.pid) for c in opened.found] == [("node 0", 31), ("node 1", 31)]
    for trace in opened.traces():
        assert {t.device for t in trace.tracks if t.layer is Layer.DEVICE} == {0}
        assert {t.thread for t in trace.tracks if t.layer is Layer.RUNTIME} == {31}
        assert len(trace.counters) == 1
    assert traceconv.align(tmp_path).plan.issues.count("unaligned") == 2


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["csv_set", "tool_json"])
def test_outputs_do_not_depend_on_the_order_of_hashes(case, tmp_path):
    """Python hashes texts anew in every process: workers and runs write the same bytes."""
    out, found = tmp_path / "out.pftrace", set()
    for seed in "123":
        command = [
            sys.executable,
            "-m",
            "traceconv",
            "merge",
            "-m",
            "detail",
            "-f",
            "-q",
            "-o",
            out,
        ]
        folder = ROOT / "golden/rocprof" / case / "input"
        env = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([*command, folder], check=True, env=env)
        found.add(out.read_bytes())
    assert len(found) == 1

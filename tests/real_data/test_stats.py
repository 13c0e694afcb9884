"""Tables of real captures against the profilers' own files, column by column.

Differences, and why:

* ``op_statistic.csv`` is computed from stamps finer than the nanosecond its tasks are rounded to:
  min, average and max differ by at most 1 ns, totals by 1 ns per task, ratios in the third decimal.
* ``api_statistic.csv`` rounds averages to the nanosecond, and takes variances from the rounded
  averages: they differ from the fifth digit on.
* ``step_trace_time.csv`` takes stage and preparing from stamps held in doubles: a grid of 250 ns.
* ``communication.json`` is computed from stamps of fractions of a nanosecond: the parts of an
  operation differ by at most 1 ns per task.
* ``communication_matrix.json`` gives sums per operation of one kind; ours are over all operations
  of the kind, so the totals are compared.
* Paddle's report is rounded to 0.01 ms and 0.01 %.
"""

import csv
import json
import sqlite3
from decimal import Decimal

import numpy as np
import pytest
from paths import DATA

import traceconv
from traceconv.analysis.tables.catalog import TABLES
from traceconv.core.side_tables import ABSENT

TORCH = DATA / "ascend" / "msinsight" / "test" / "data" / "pytorch"
TEXT = [TORCH / "text" / "level1" / f"rank{rank}_ascend_pt" for rank in (0, 1)]
DATABASES = [TORCH / "db" / "level1" / f"rank{rank}_ascend_pt" for rank in (0, 1)]
OUTPUT = "ASCEND_PROFILER_OUTPUT"
PADDLE = DATA / "gpu" / "paddle"


def _rows(side_table):
    """The rows of a table as dictionaries."""
    columns = {heading: column.tolist() for heading, column in side_table.columns.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _told(capture, name):
    with (capture / OUTPUT / name).open(encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def _ns(text, unit=1000):
    return int((Decimal(text) * unit).to_integral_value())


@pytest.mark.parametrize("capture", TEXT)
def test_operators_by_type_are_op_statistic(capture):
    """Types, cores, counts and order are equal; times to 1 ns, sums to 1 ns per task."""
    ours = _rows(traceconv.stats(str(capture), by=["type"])["type"])
    told = _told(capture, "op_statistic.csv")
    exact = ("OP Type", "Core Type", "Count")
    assert [tuple(row[key] for key in exact) for row in ours] == [
        (t["OP Type"], t["Core Type"], int(t["Count"])) for t in told
    ]
    for row, t in zip(ours, told, strict=True):
        assert abs(row["Total Time(ns)"] - _ns(t["Total Time(us)"])) <= row["Count"]
        for name in ("Min Time", "Avg Time", "Max Time"):
            assert abs(row[f"{name}(ns)"] - _ns(t[f"{name}(us)"])) <= 1
        assert row["Ratio(%)"] == pytest.approx(float(t["Ratio(%)"]), abs=0.001)


@pytest.mark.parametrize("capture", TEXT)
def test_runtime_calls_are_api_statistic(capture):
    """Every level and name, with count, sum, min and max; averages and variances as rounded."""
    ours = {
        (row["Level"], row["API Name"]): row
        for row in _rows(traceconv.stats(str(capture), by=["api"])["api"])
    }
    told = {(t["Level"], t["API Name"]): t for t in _told(capture, "api_statistic.csv")}
    assert ours.keys() == told.keys()
    for key, t in told.items():
        row = ours[key]
        assert (row["Count"], row["Time(ns)"], row["Min(ns)"], row["Max(ns)"]) == (
            int(t["Count"]), _ns(t["Time(us)"]), _ns(t["Min(us)"]), _ns(t["Max(us)"]),
        )  # fmt: skip
        assert abs(row["Avg(ns)"] - _ns(t["Avg(us)"])) <= 1
        assert row["Variance"] == pytest.approx(float(t["Variance"]), rel=1e-5, abs=0.001)


def test_host_operators_are_operator_details():
    """Calls, total and self time of every operator, to the ns; queues are none of them."""
    ours = {
        row["Operator"]: [row[f"{name}(ns)"] for name in ("Total Time", "Self Time")]
        for row in _rows(traceconv.stats(str(TEXT[0]), by=["op"])["op"])
        if row["Core Type"] == "Host CPU"
    }
    told = {}
    for t in _told(TEXT[0], "operator_details.csv"):
        sums = told.setdefault(t["Name"], [0, 0])
        for i, part in enumerate(("Total", "Self")):
            sums[i] += _ns(t[f"Host {part} Duration(us)"])
    assert ours == told
    assert ours["Conv2D"] == [887_050, 887_050]


def test_the_pause_before_a_step_is_the_files_own():
    """Data_aug Bound of the step trace, which is written at the end of the iteration before."""
    folder = DATA / "ascend/mindinsight/profiler"
    (prof,) = folder.glob("PROF_000001_20230818142704322_*")
    events = json.loads(
        (prof / "device_0/timeline/step_trace_0_2_1.json").read_text(), parse_float=Decimal
    )
    told = [
        _ns(e["args"]["Data_aug Bound(us)"])
        for e in events
        if e["ph"] == "t" and e["name"].startswith("Data_aug Bound")
    ]
    ours = traceconv.stats(str(prof), by=["step"])["step"]["Data Aug Bound(ns)"].tolist()
    assert (told[0], ours[0]) == (0, ABSENT)  # nothing was recorded before the first
    assert ours[1:] == told[1:]


@pytest.mark.parametrize("capture", TEXT)
def test_step_times_are_step_trace_time(capture):
    """Sums are equal to the ns, also in the five legends; stage and preparing to 250 ns."""
    found = traceconv.stats(str(capture), by=["overlap"])
    (row,) = _rows(found["step_trace_time"])
    (told,) = _told(capture, "step_trace_time.csv")
    for heading, value in told.items():
        ours = row["Step"] if heading == "Step" else row[f"{heading}(ns)"]
        theirs = int(value) if heading == "Step" else _ns(value)
        assert abs(ours - theirs) <= (250 if heading in ("Stage", "Preparing") else 0), heading
    step = _rows(found["overlap"])[0]
    computing, comm = _ns(told["Computing"]), _ns(told["Communication"])
    exposed = _ns(told["Communication(Not Overlapped)"])
    assert [step[name] for name in list(step)[3:7]] == [
        computing, computing - (comm - exposed), comm - exposed, exposed,
    ]  # fmt: skip
    before, after = _ns(told["Preparing"]), step["Known(ns)"] - _ns(told["Stage"])
    # the device is also idle before its first task, and until the step ends
    assert 0 <= step["Idle(ns)"] - _ns(told["Free"]) - before <= after
    assert step["Utilization(%)"] == pytest.approx(100 * (computing + exposed) / step["Known(ns)"])


@pytest.mark.parametrize("capture", DATABASES)
def test_step_times_of_a_database_are_its_table(capture):
    """The stored row, whose sums are made of stamps in whole ns, to the last digit."""
    (row,) = _rows(traceconv.stats(str(capture), by=["step_trace_time"])["step_trace_time"])
    with sqlite3.connect(f"file:{capture / OUTPUT / 'analysis.db'}?mode=ro", uri=True) as db:
        columns = "computing, communication_not_overlapped, overlapped, communication, free"
        (told,) = db.execute(f"select {columns} from StepTraceTime")
    db.close()
    assert [row[name] for name in list(row)[3:8]] == [round(value * 1000) for value in told]


@pytest.mark.parametrize("capture", TEXT)
def test_operations_are_communication_json(capture):
    """Elapsed time to 1 ns, its parts to 1 ns per task, ratios to four decimals."""
    side_table = traceconv.stats(str(capture), by=["comm_op"])["comm_op"]
    with (capture / OUTPUT / "communication.json").open() as file:
        told = json.load(file, parse_float=Decimal)["step50"]["collective"]
    told.pop("Total Op Info")
    ours = {row["Operation"]: row for row in _rows(side_table)}
    assert ours.keys() == {name.partition("@")[0] for name in told}
    for name, info in told.items():
        row, times = ours[name.partition("@")[0]], info["Communication Time Info"]
        assert abs(row["Start Time(ns)"] - _ns(times["Start Timestamp(us)"])) <= 250
        for part in ("Elapse", "Transit", "Wait", "Synchronization", "Idle"):
            told_ns = _ns(times[f"{part} Time(ms)"], 1_000_000)
            assert abs(row[f"{part} Time(ns)"] - told_ns) <= 6, (name, part)
        for part in ("Wait", "Synchronization"):
            ratio = 100 * float(times[f"{part} Time Ratio"])
            assert row[f"{part} Time Ratio(%)"] == pytest.approx(ratio, abs=0.0051)


@pytest.mark.parametrize("capture", TEXT)
def test_traffic_is_the_total_of_communication_matrix(capture):
    """Bytes are equal; transit time to 1 ns per task; who, whom and over what."""
    ours = _rows(traceconv.stats(str(capture), by=["link"])["link"])
    with (capture / OUTPUT / "communication_matrix.json").open() as file:
        told = json.load(file)["step50"]["collective"]
    (total,) = (links for name, links in told.items() if name.startswith("allreduce-total@"))
    assert {f"{row['Source']}-{row['Destination']}": row["Transport"] for row in ours} == {
        link: info["Transport Type"] for link, info in total.items()
    }
    for row in ours:
        info = total[f"{row['Source']}-{row['Destination']}"]
        assert row["Bytes"] == round(info["Transit Size(MB)"] * 1e6)
        told_ns = info["Transit Time(ms)"] * 1e6
        assert row["Transit Time(ns)"] == pytest.approx(told_ns, abs=row["Count"])
        assert row["Bandwidth(GB/s)"] == pytest.approx(info["Bandwidth(GB/s)"], abs=0.01)


def test_ranks_together_are_the_rows_of_a_cluster_table():
    """A row per rank as each alone has it; below them the largest, as for a stage."""
    both = _rows(traceconv.stats(*map(str, TEXT), by=["step_trace_time"])["step_trace_time"])
    alone = [
        _rows(traceconv.stats(str(one), by=["step_trace_time"])["step_trace_time"])[0]
        for one in TEXT
    ]
    assert both[:2] == alone
    assert both[2] == {
        heading: max(row[heading] for row in alone) for heading in both[2] if heading != "Rank"
    } | {"Rank": ABSENT, "Device": ABSENT, "Source": ""}


CLUSTERS = [
    "msprof-analyze/resource/advisor/cluster_analysis_output",
    "msinsight/server/src/test/test_data/cluster_analysis_output",
]


@pytest.mark.parametrize("folder", CLUSTERS)
def test_the_row_of_all_ranks_is_the_stage_of_a_cluster_table(folder):
    """Made of the cluster tool's rows of the first stage, our job row is its row of the stage."""
    with (DATA / "ascend" / folder / "cluster_step_trace_time.csv").open() as file:
        rows = list(csv.DictReader(file))
    stage = next(row for row in rows if row["Type"] == "stage")
    members = set(stage["Index"].strip("()").split(", "))
    headings = list(stage)[3:]
    table = TABLES["step_trace_time"]
    keys = dict(zip([column.name for column in table.columns[3:12]], list(_NAMES), strict=True))
    ranked = []
    for row in rows:
        if row["Type"] == "rank" and row["Index"] in members:
            facts = {key: np.array([_ns(row.get(h, "0") or "0")])
                     for h, key in keys.items()}  # fmt: skip
            ranked.append((int(row["Index"]), {**facts, "graph": np.array([-1]),
                                               "step": np.array([ABSENT]), "window": np.array([1]),
                                               "device": np.array([ABSENT]),
                                               "source": np.array([""], object)}))  # fmt: skip
    built = table.build(ranked)
    assert built["Rank"][-1] == ABSENT
    assert {h: int(built[f"{h}(ns)"][-1]) for h in headings} == {h: _ns(stage[h]) for h in headings}


_NAMES = (
    "computing_ns", "not_overlapped_ns", "overlapped_ns", "communication_ns", "free_ns", "stage_ns",
    "bubble_ns", "exclude_receive_ns", "preparing_ns",
)  # fmt: skip


@pytest.fixture
def mindspore(tmp_path):
    """The generation A tables of rank 0, without the other captures beside them."""
    for path in (DATA / "ascend" / "mindinsight" / "profiler").glob("*_0.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_data_preparation_of_mindspore(mindspore):
    """Queue, pipeline and CPU as the files say: one empty sample of 64 places, queues of 20."""
    found = traceconv.stats(str(mindspore), by=["data"])
    (queue,) = _rows(found["data"])
    assert [queue[name] for name in ("Records", "Capacity", "Empty", "Push Time(ns)")] == [
        1, 64, 1, 4_000_000,
    ]  # fmt: skip
    pipeline = _rows(found["pipeline"])
    assert [(r["Id"], r["Operator"], r["Parent"], r["Workers"]) for r in pipeline] == [
        (0, "Batch", ABSENT, 4), (1, "Shuffle", 0, 1), (2, "TFReader", 1, 4), (3, "TFReader", 1, 4),
    ]  # fmt: skip
    assert [(r["Queue Mean"], r["Queue Usage(%)"]) for r in pipeline[1:]] == [(20.0, 31.25)] * 3
    assert [(r["Scope"], r["User(%)"], r["Sys(%)"]) for r in _rows(found["cpu"])] == [
        ("device", 20.0, 20.0), ("operator 1", 20.0, 20.0), ("process", 20.0, 20.0),
    ]  # fmt: skip


def test_dynamic_shapes_of_mindspore(mindspore):
    """Every operator row of dynamic_shape_info, by step, type and shapes."""
    with (mindspore / "dynamic_shape_info_0.json").open() as file:
        steps = json.load(file, parse_float=Decimal)["operator"]
    told = [one for rows in steps.values() for one in rows]
    ours = _rows(traceconv.stats(str(mindspore), by=["shape"])["shape"])
    assert sum(row["Count"] for row in ours) == len(told)
    assert sum(row["Total Time(ns)"] for row in ours) == sum(_ns(one["dur"]) for one in told)
    assert {(row["Step"], row["OP Type"]) for row in ours} == {
        (one["step"], one["op_type"]) for one in told
    }


def test_flops_of_mindspore(mindspore):
    """The model, then row by row."""
    with (mindspore / "flops_0.txt").open() as file:
        told = [[cell.strip() for cell in row] for row in csv.reader(file)][1:]
    summed = json.loads((mindspore / "flops_summary_0.json").read_text())
    model, *ours = _rows(traceconv.stats(str(mindspore), by=["flops"])["flops"])
    assert list(model.values())[1:5] == ["(model)", *summed.values()]
    assert [list(row.values())[1:5] for row in ours] == [[n, *map(float, v)] for n, *v in told]


def test_cube_and_vector_flops_of_mindspore(tmp_path):
    """All seven columns of the file."""
    file = DATA / "ascend/mindinsight/profiler/flops_1.txt"
    (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "profiler_info_1.json").write_text('{"rank_id": 1}')
    with file.open() as lines:
        told = [[cell.strip() for cell in row] for row in csv.reader(lines)][1:]
    ours = _rows(traceconv.stats(str(tmp_path), by=["flops"])["flops"])
    assert [[row["Operator"], *list(row.values())[5:]] for row in ours] == [
        [name, *map(float, values)] for name, *values in told
    ]


def test_types_of_mindspore_are_those_of_its_table(tmp_path):
    """The plain list of operators, summed by the types that the table of operators gives them."""
    folder = DATA / "ascend/mindinsight/run_1/normal_run/profiler"
    for name in ("output_timeline_data_1.txt", "output_op_compute_time_detail_1.txt"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    detail = (folder / "output_op_compute_time_detail_1.txt").read_text().splitlines()
    types = {row[0]: row[1] for line in detail if (row := line.split()) and "-op" in row[0]}
    told = {}
    with (folder / "output_timeline_data_1.txt").open() as file:
        for name, _, _, length in list(csv.reader(file))[1:]:
            told.setdefault(types[name.rpartition("/")[2]], []).append(_ns(length, 1_000_000))
    ours = {
        row["OP Type"]: (row["Count"], row["Total Time(ns)"])
        for row in _rows(traceconv.stats(str(tmp_path), by=["type"])["type"])
    }
    assert ours == {kind: (len(all_), sum(all_)) for kind, all_ in told.items()}


def test_a_table_as_it_is_has_every_cell():
    """Those of l2_cache.csv, in which nothing is a time."""
    ours = _rows(traceconv.stats(str(TEXT[0]), by=["l2_cache"])["l2_cache"])
    told = _told(TEXT[0], "l2_cache.csv")
    for row, t in zip(ours, told, strict=True):
        for heading, cell in t.items():
            value = row[heading]
            assert value in ("", ABSENT) if cell == "N/A" else type(value)(cell) == value, heading


@pytest.mark.parametrize("folder", CLUSTERS)
def test_a_cluster_table_alone_has_every_rank(folder):
    """Overlap of each rank as the cluster tool's row has it."""
    path = DATA / "ascend" / folder
    with (path / "cluster_step_trace_time.csv").open() as file:
        told = [row for row in csv.DictReader(file) if row["Type"] == "rank"]
    found = _rows(traceconv.stats(str(path), by=["overlap"])["overlap"])
    ours = [row for row in found if row["Rank"] != ABSENT]
    names = {
        "Total Compute": "Computing",
        "Communication Overlapped": "Overlapped",
        "Communication Not Overlapped": "Communication(Not Overlapped)",
        "Idle": "Free",
    }
    assert [row["Rank"] for row in ours] == [int(row["Index"]) for row in told]
    for row, t in zip(ours, told, strict=True):
        for mine, theirs in names.items():
            assert abs(row[f"{mine}(ns)"] - _ns(t[theirs])) <= 1, mine


@pytest.mark.parametrize("rank", [1, 3])
def test_tables_without_a_timeline_are_what_analysis_db_says(rank):
    """Steps and operations of a capture of which only sums were kept."""
    capture = DATA / f"ascend/msinsight/test/st/level2/rank_{rank}_ascend_pt"
    found = traceconv.stats(str(capture), by=["step_trace_time", "comm_op"])
    with sqlite3.connect(f"file:{capture / OUTPUT / 'analysis.db'}?mode=ro", uri=True) as db:
        device, step, *times = next(db.execute("SELECT * FROM StepTraceTime"))
        waits = dict(db.execute("SELECT hccl_op_name, wait_time FROM CommAnalyzerTime"))
    db.close()
    (row,) = _rows(found["step_trace_time"])
    assert (row["Device"], row["Step"]) == (device, int(step))
    # Stage and Preparing of the text went through doubles of a grid of 0.25 us
    assert list(row.values())[3:12] == pytest.approx([t * 1000 for t in times], abs=250)
    waiting = {r["Operation"]: r["Wait Time(ns)"] for r in _rows(found["comm_op"])}
    assert waiting == {
        name: pytest.approx(ms * 1e6, abs=1)
        for name, ms in waits.items()
        if name != "Total Op Info"
    }


def _section(name):
    """Rows of a section of Paddle's printed report."""
    side_table = traceconv.stats(str(PADDLE / "summary_3steps_cpu.txt"), by=["summary"])
    return [row for row in _rows(side_table["paddle_summary"]) if row["Section"] == name]


def _recorded(name):
    (path,) = PADDLE.glob("host_vmpid_32055*.json")
    return _rows(traceconv.stats(str(path), by=[name])[name])


PARTS = {
    "CPU Total(ns)": "Total Time(ns)",
    "CPU Avg(ns)": "Avg Time(ns)",
    "CPU Max(ns)": "Max Time(ns)",
    "CPU Min(ns)": "Min Time(ns)",
}


def test_phases_are_the_model_summary_of_paddle():
    """Calls, total, average, max, min and ratio of every phase, as far as they are printed."""
    told = {row["Name"].replace("ProfileStep", "Step"): row for row in _section("Model")}
    ours = {row["Phase"]: row for row in _recorded("phase")}
    assert list(ours) == list(told)
    for name, row in ours.items():
        assert row["Count"] == told[name]["Calls"]
        assert row["Ratio(%)"] == pytest.approx(told[name]["CPU Ratio(%)"], abs=0.0051)
        for theirs, mine in PARTS.items():
            if told[name][theirs] != ABSENT:
                assert abs(row[mine] - told[name][theirs]) <= 5_000, (name, mine)


def test_operators_are_the_operator_summary_of_paddle():
    """The same, in the same order, with ratios of all operators."""
    told = [row for row in _section("Operator") if row["Level"] == 0]
    ours = _recorded("op")
    assert [row["Operator"] for row in ours] == [row["Name"] for row in told]
    for row, t in zip(ours, told, strict=True):
        assert row["Count"] == t["Calls"]
        assert row["Ratio(%)"] == pytest.approx(t["CPU Ratio(%)"], abs=0.0051)
        for theirs, mine in PARTS.items():
            assert abs(row[mine] - t[theirs]) <= 5_000


def test_use_of_the_cpu_is_the_device_summary_of_paddle():
    """Process and system, as printed."""
    told = {row["Name"]: row["Utilization(%)"] for row in _section("Device")}
    ours = {row["Scope"]: row["User(%)"] for row in _recorded("cpu")}
    assert ours == {"process": told["CPU(Process)"], "system": told["CPU(System)"]}


def test_reading_time_of_a_timer_log():
    """Figures and ratio of the log's own summary."""
    rows = _rows(traceconv.stats(str(PADDLE / "timer_only_log.txt"), by=["reader"])["reader"])
    assert [(row["Measure"], row["Unit"], row["Avg"]) for row in rows] == [
        ("reader_cost", "s", 0.00012),
        ("batch_cost", "s", 0.00038),
        ("ips", "images/s", 21771.6681),
    ]
    assert rows[0]["Reader Ratio(%)"] == 31.318


def test_kernels_of_nsight_are_those_of_its_table():
    """Counts and sums by short name, asked of the database itself."""
    path = DATA / "gpu" / "nsys" / "perlmutter-cloverleaf-cuda.sqlite"
    found = traceconv.stats(str(path), by=["kernel", "copy"])
    kernels, copies = _rows(found["kernel"]), _rows(found["copy"])
    assert sum(row["Count"] for row in kernels) == 1312
    assert sum(row["Total Time(ns)"] for row in kernels) == 294404540
    assert sorted((row["Count"], row["Bytes"]) for row in copies) == [(25, 51200), (254, 225065752)]


def test_kernels_of_kineto_add_up():
    """Count and sum of the capture, collectives among them."""
    path = DATA / "gpu" / "kineto" / "hta_nccl_data_rank0of2.json.gz"
    rows = _rows(traceconv.stats(str(path), by=["kernel"])["kernel"])
    by_kind = {
        kind: sum(row["Count"] for row in rows if row["Kind"] == kind)
        for kind in ("compute", "communication")
    }
    assert by_kind == {"compute": 2679, "communication": 21}
    assert sum(row["Total Time(ns)"] for row in rows) == 162532340


def test_times_in_pandas_are_ns(tmp_path):
    """The whole table, exactly, with its headings in ns."""
    pytest.importorskip("pandas")
    side_table = traceconv.stats(str(TEXT[0]), by=["type"])["type"]
    frame = side_table.to_pandas()
    assert frame["Total Time(ns)"].tolist() == side_table["Total Time(ns)"].tolist()
    assert np.int64(frame["Count"].sum()) == 187

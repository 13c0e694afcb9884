"""Tables of old MindSpore as side tables: their columns, whatever the file is like."""

import json

import numpy as np
import pytest
from ascend_files import Folder, read

from traceconv.core.errors import MalformedInputError
from traceconv.core.side_tables import ABSENT
from traceconv.readers.ascend.mindspore import tables
from traceconv.readers.ascend.tables import names as table_names


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def side_tables(folder):
    (found,) = folder.find("mindspore")
    return read(found).side_tables


def content(side_table):
    return {heading: column.tolist() for heading, column in side_table.columns.items()}


def test_queue_records(folder):
    """Five numbers a line; the time becomes nanoseconds."""
    folder.add("device_queue_profiling_0.txt", "0 1 1 4 10\n1 64 1 0 10\n\n1 64\n")
    folder.add("dataset_iterator_profiling_0.txt", "0 0 2 3 7\n")
    found = side_tables(folder)
    assert content(found["device_queue_profiling"]) == {
        "type": [0, 1],
        "subtype": [1, 64],
        "step": [1, 1],
        "value": [4, 0],
        "time(ns)": [10_000_000, 10_000_000],
    }
    assert len(found["dataset_iterator_profiling"]) == 1


@pytest.mark.parametrize(
    ("name", "scale"), [("minddata_aicpu", 1000), ("minddata_getnext_profiling", 1)]
)
def test_get_next_records(folder, name, scale):
    """Ascend writes us, GPU ns; both are ns here."""
    folder.add(f"{name}_0.txt", "GetNext 100 140 0\n")
    assert content(side_tables(folder)[name]) == {
        "op": ["GetNext"],
        "start(ns)": [100 * scale],
        "end(ns)": [140 * scale],
        "queue_size": [0],
    }


PIPELINE = {
    "sampling_interval": 10,
    "op_info": [
        {"op_id": 1, "op_type": "Shuffle", "num_workers": 2, "children": None,
         "metrics": {"output_queue": {"size": [10, 20, 30], "length": 64}}},
        {"op_id": 0, "op_type": "Batch", "num_workers": 4, "children": [1], "metrics": None},
    ],
}  # fmt: skip


def test_the_pipeline_as_sampled(folder):
    """Where the table was not written, it is made: the same columns, the same figures."""
    folder.add("pipeline_profiling_0.json", PIPELINE)
    found = side_tables(folder)
    assert content(found["minddata_pipeline"]) == {
        "op_id": [1, 0],
        "op_type": ["Shuffle", "Batch"],
        "num_workers": [2, 4],
        "output_queue_size": ["[10, 20, 30]", ""],
        "output_queue_average_size": pytest.approx([20.0, np.nan], nan_ok=True),
        "output_queue_length": [64, ABSENT],
        "output_queue_usage_rate": pytest.approx([0.3125, np.nan], nan_ok=True),
        "sample_interval": [10, 10],
        "parent_id": [0, ABSENT],
        "children_id": ["", "[1]"],
    }
    samples = found["minddata_pipeline_samples"]
    assert (samples["op_id"].tolist(), samples["size"].tolist()) == ([1, 1, 1], [10, 20, 30])


def test_the_table_of_the_pipeline_goes_before_what_can_be_made(folder):
    """It is what the profiler says."""
    folder.add("pipeline_profiling_0.json", PIPELINE)
    folder.add("minddata_pipeline_raw_0.csv", "op_id,op_type\n7,TFReader\n")
    assert side_tables(folder)["minddata_pipeline"]["op_id"].tolist() == [7]


def test_the_summary_of_the_pipeline_stands_on_its_side(folder):
    """Keys are lines in the CSV, members in JSON: both are columns here."""
    keyed = {"op_ids": [0, 1], "op_names": ["Batch", "Map"], "avg_cpu_pct": [1.5, -1]}
    folder.add("minddata_pipeline_summary_0.json", keyed | {"per_batch_time": [1, 2, 3]})
    folder.add(
        "minddata_pipeline_summary_1.csv", "op_ids,0,1\nop_names,Batch,Map\navg_cpu_pct,1.5,-1\n"
    )
    found = [read(c).side_tables["minddata_pipeline_summary"] for c in folder.find("mindspore")]
    for side_table in found:
        assert side_table["op_names"].tolist() == ["Batch", "Map"]
        assert side_table["avg_cpu_pct"].tolist() == [1.5, -1.0]


def test_use_of_the_processors(folder):
    """One row per sample of the machine, the process and each operator."""
    use = {
        "sampling_interval": 100, "cpu_processor_num": 8, "time_stamp": [10, 20],
        "device_info": {"user_utilization": [1, 2], "idle_utilization": [98, 97]},
        "process_info": {"user_utilization": [3, 4]},
        "op_info": [{"op_id": 5, "metrics": {"user_utilization": [6, 7]}}],
    }  # fmt: skip
    side_table = side_tables(folder.add("minddata_cpu_utilization_0.json", use))[
        "minddata_cpu_utilization"
    ]
    assert content(side_table) == {
        "scope": ["device", "device", "process", "process", "operator", "operator"],
        "op_id": [ABSENT] * 4 + [5, 5],
        "time_stamp": [10, 20] * 3,
        "user_utilization": [1, 2, 3, 4, 6, 7],
        "idle_utilization": [98, 97] + [ABSENT] * 4,
        "cpu_processor_num": [8] * 6,
        "sampling_interval": [100] * 6,
    }


def test_shapes_that_change(folder):
    """Operators and kernels by step; durations in us."""
    op = {"step": 1, "op_side": "gpu", "op_type": "Add", "op_name": "Add-op6", "dur": 75.616,
          "shape_info": ["[32, 1]"]}  # fmt: skip
    info = {
        "operator": {"1": [op]},
        "kernel": {},
        "operator_type": {"1": {"Add": [75.616, 1, 75.616]}},
    }
    found = side_tables(folder.add("dynamic_shape_info_0.json", info))
    assert content(found["dynamic_shape_info"]) == {
        "side": ["operator"],
        "step": [1],
        "op_side": ["gpu"],
        "op_type": ["Add"],
        "op_name": ["Add-op6"],
        "dur(ns)": [75_616],
        "shape_info": ['["[32, 1]"]'],
    }
    assert content(found["dynamic_shape_types"]) == {
        "side": ["operator"],
        "step": [1],
        "type": ["Add"],
        "total(ns)": [75_616],
        "count": [1],
        "average(ns)": [75_616],
    }


def test_costs_of_collectives(folder):
    """Per step, and per operator, link and transport."""
    operators = json.dumps({"a": ["1", 0.5, 0.25, {"0-1": {"SDMA": [0.5, 4.096, 8192.0]}}],
                            "b": ["1", 0.125, 0, {}]}).replace('"', '""')  # fmt: skip
    heading = "step_num,communication_cost,wait_cost,link_info,communication_operator_cost\n"
    folder.add("hccl_raw_0.csv", heading + f'1,0.625,0.25,{{}},"{operators}"\n')
    found = side_tables(folder)
    assert content(found["hccl_raw"]) == {
        "step_num": [1],
        "communication_cost(ns)": [625_000],
        "wait_cost(ns)": [250_000],
    }
    assert content(found["hccl_raw_links"]) == {
        "step_num": [1, 1],
        "operator": ["a", "b"],
        "communication_cost(ns)": [500_000, 125_000],
        "wait_cost(ns)": [250_000, 0],
        "source": [0, ABSENT],
        "destination": [1, ABSENT],
        "transport": ["SDMA", ""],
        "time(ns)": [500_000, ABSENT],
        "size(KB)": pytest.approx([4.096, np.nan], nan_ok=True),
        "bandwidth(KB/s)": pytest.approx([8192.0, np.nan], nan_ok=True),
    }


RULED = """====================op compute time====================
optype_name      compute_time(ms, per-step)    percent
-------------  ----------------------------  ---------
MatMul                              1.9367        1.53

Detail:
op_name     op_type      avg_execution_time  subgraph
----------  ---------  --------------------  ----------
MatMul-op1  MatMul                  37.2522  Default
Mul-op2     Mul broken
"""


def test_ruled_tables(folder):
    """Two tables in one file, and all once more for every analysis: the last ones count."""
    folder.add("output_op_compute_time_detail_0.txt", RULED.replace("1.9367", "7.5") + RULED)
    (found,) = folder.find("mindspore")
    trace = read(found)
    assert content(trace.side_tables["output_op_compute_time_type"]) == {
        "optype_name": ["MatMul"],
        "compute_time(ms, per-step)": [1.9367],
        "percent": [1.53],
    }
    assert trace.side_tables["output_op_compute_time_detail"]["op_name"].tolist() == ["MatMul-op1"]
    assert trace.issues.count("malformed-record") == 1


def test_sums_below_a_ruled_table_are_no_rows(folder):
    """They would be counted twice."""
    text = (
        "op_name       compute_time(ms) stream_id\n" + "-" * 12 + "  " + "-" * 15 + "  " + "-" * 9
    )
    folder.add(
        "output_op_compute_time_0.txt",
        text + "\nDefault/a 0.0012020000000000002  519\ntotal op 1 0\n",
    )
    assert content(side_tables(folder)["output_op_compute_time"]) == {
        "op_name": ["Default/a"],
        "compute_time(ns)": [1202],
        "stream_id": [519],
    }


def test_a_table_that_is_not_there(folder):
    """No rule, no columns."""
    assert (
        len(
            side_tables(folder.add("output_op_compute_time_0.txt", "nothing\n"))[
                "output_op_compute_time"
            ]
        )
        == 0
    )


@pytest.mark.parametrize(
    ("name", "side_table"),
    [
        ("pipeline_profiling_0.json", "minddata_pipeline"),
        ("minddata_cpu_utilization_0.json", "minddata_cpu_utilization"),
        ("dynamic_shape_info_0.json", "dynamic_shape_types"),
        ("flops_scope_0.json", "flops_scope"),
        ("parallel_strategy_0.json", "parallel_strategy"),
        ("minddata_pipeline_summary_0.json", "minddata_pipeline_summary"),
    ],
)
@pytest.mark.parametrize("text", ['{"op_info": [1', "[]", '{"a": ' + "[" * 100_000])
def test_what_is_no_json_object_is_refused(folder, name, side_table, text):
    """By the loader, when somebody looks."""
    found = side_tables(folder.add(name, text))
    with pytest.raises(MalformedInputError, match="JSON"):
        len(found[side_table])


@pytest.mark.parametrize(
    "wrong",
    [
        {"op_info": 5, "time_stamp": {}, "device_info": [], "data": 1, "operator": [1]},
        {"op_info": [{"metrics": 1, "children": 2}, 3], "operator": {"1": 2}, "op_ids": 4},
        {"operator_type": {"1": {"a": 5}}, "data": {"links": [1]}, "op_ids": [1], "x": 2},
    ],
)
def test_json_of_another_shape_gives_what_it_holds(folder, wrong):
    """No loader trusts what it reads."""
    for name in ("pipeline_profiling", "minddata_cpu_utilization", "dynamic_shape_info",
                 "flops_scope", "flops_summary", "minddata_pipeline_summary"):  # fmt: skip
        folder.add(f"{name}_0.json", wrong)
    lengths = {name: len(side_table) for name, side_table in side_tables(folder).items()}
    assert lengths["flops_summary"] == 1
    assert lengths["dynamic_shape_info"] == 0


def test_a_cluster_table_says_what_its_name_says(folder):
    """Mode, stages and ranks are in the name only."""
    folder.add("ascend_cluster_analyse_pipeline-parallel_2_4_1.csv", "computation_time\n1.5\n2\n")
    assert content(side_tables(folder)["cluster_analyse"]) == {
        "computation_time": [1.5, 2.0],
        "mode": ["pipeline-parallel"] * 2,
        "stages": [2, 2],
        "ranks": [4, 4],
    }


def test_side_tables_of_a_folder_with_exports(folder):
    """The capture of a PROF folder has the tables beside it, too."""
    prof = "PROF_000001_20230818142704322_ABCDEFGH"
    folder.add(f"{prof}/device_0/timeline/msprof_0_2_1.json", [
        {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "Ascend Hardware"}},
    ])  # fmt: skip
    folder.add(f"{prof}/device_0/info.json.0", {"rank_id": 0})
    folder.add("device_queue_profiling_0.txt", "1 64 1 0 10\n")
    (found,) = folder.find("msprof")
    assert len(read(found).side_tables["device_queue_profiling"]) == 1
    assert found.uses["device_queue_profiling_0.txt"] == "table device_queue_profiling"


def test_every_layout_of_a_file_can_be_read():
    """Files are found by one table and read by another: both know the same layouts."""
    named = {layout for _, _, layout in table_names.MINDSPORE_TABLES}
    assert set(tables.LAYOUTS) == named

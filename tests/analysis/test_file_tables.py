"""The profilers' own tables as they are: which there are, and what becomes of their columns."""

from pathlib import Path

import numpy as np
import pytest

from traceconv.analysis.summarize import SummaryRequest, summarize
from traceconv.analysis.tables.catalog import FILES, TABLES, tables
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.core.side_tables import ABSENT
from traceconv.io.sources import FileSource
from traceconv.readers.shared.table_kinds import KINDS


def _builder(rank=0):
    return TraceBuilder(Capture("test", FileSource(Path("x"), "x"), ("x",), rank=rank))


@pytest.fixture
def build():
    """A builder for rank 0."""
    return _builder()


def _known(build, *names):
    return summarize(build.finish(), SummaryRequest(tables=names))


def _result(name, *builders):
    (result,) = tables([_known(one, name) for one in builders])
    return result


def _columns(result, *headings):
    return list(zip(*(result.data[heading].tolist() for heading in headings), strict=True))


def test_every_kind_of_table_can_be_asked_for():
    """A new one has a kind, or nobody would see it."""
    assert [table.reads for table in FILES.values()] == [(kind,) for kind in KINDS]
    assert {kind for table in TABLES.values() for kind in table.reads} <= set(KINDS)


def _file_table(build, name, **columns):
    build.side_table(name, f"{name}.csv", lambda: columns)
    return build


def test_tables_of_profilers_are_shown_as_they_are(build):
    """Times are ns, units are those of the headings or of the kind; ranks need not agree."""
    one = _file_table(build, "aicore_type", **{
        "kernel_type": np.array(["Cast", "Mul"], object), "total_time(ms)": np.array([5, ABSENT]),
        "percent": np.array([2.5, np.nan]),
    })  # fmt: skip
    two = _file_table(_builder(1), "aicore_type", kernel_type=np.array([7]), more=np.array([9]))
    result = _result("aicore_type", one, two)
    assert {key: values.tolist() for key, values in result.data.columns.items()} == {
        "Rank": [0, 0, 1], "kernel_type": ["Cast", "Mul", "7"],
        "total_time(ns)": [5, ABSENT, ABSENT],
        "percent(%)": pytest.approx([2.5, np.nan, np.nan], nan_ok=True),
        "more": [ABSENT, ABSENT, 9],
    }  # fmt: skip
    assert result.data.units == {
        "Rank": "1", "kernel_type": "", "total_time(ns)": "ns", "percent(%)": "%", "more": "1",
    }  # fmt: skip


def test_tables_of_a_cluster_are_of_the_ranks_they_name(build):
    """Whatever capture they were found beside; texts in such a column are left as they are."""
    one = _file_table(build, "cluster_communication", Rank=np.array([8, 3]), x=np.array([1, 2]))
    assert _columns(_result("cluster_communication", one), "Rank", "x") == [(3, 2), (8, 1)]
    texts = _file_table(_builder(), "dataset", Rank=np.array(["a", ""], object))
    assert _columns(_result("dataset", texts), "Rank", "Rank (file)") == [(0, "a"), (0, "")]


def test_files_nobody_has_are_left_out_of_several(build):
    """Seventy tables without data would hide those with."""
    summaries = [_known(_file_table(build, "dp", Action=np.array([1])), *FILES)]
    assert [result.table.name for result in tables(summaries)] == ["dp"]
    (result,) = tables([_known(build, "hbm")])
    assert (result.rows, result.table.needs) == (0, "hbm.csv, hbm_*.csv")


# -- computed tables that read them --------------------------------------------------------

TABLE_OF_FLOPS = [column.key for column in TABLES["flops"].columns[1:]]


def test_flops_of_cube_and_vector_units_and_of_the_model(build):
    """Seven columns, and the sum that a file of its own holds."""
    heads = [f"{what} {unit})" for unit in ("cube", "vector")
             for what in ("MFLOPs(10^6", "GFLOPS(10^9")]  # fmt: skip
    heads += ["FLOPS utilization(cube)", "FLOPS utilization(vec)"]
    columns = {"full_kernel_name": np.array(["Default/Cast-op6"], object)}
    columns |= {head: np.array([i]) for i, head in enumerate(heads)}
    build.side_table("flops", "flops_1.txt", lambda: columns)
    summed = {"FLOPs": 8.5, "FLOPS": 9.5, "FLOPS_Utilization": 3.5}
    build.side_table(
        "flops_summary", "x.json", lambda: {key: np.array([v]) for key, v in summed.items()}
    )
    model, row = _columns(_result("flops", build), *TABLE_OF_FLOPS)
    assert model[:4] == ("(model)", 8.5, 9.5, 3.5)
    assert row[4:] == (0, 1, 4, 2, 3, 5)


def test_types_of_old_mindspore_are_arguments_or_in_its_tables(build):
    """The display file names the type; operators of the plain list are looked up by full name."""
    stream = build.track(Layer.DEVICE, "Stream 1")
    build.hints.vendor = "ascend"
    for i, args in enumerate((
        {"type": "MatMul", "fullname": "Default/MatMul-op1"}, {"fullname": "Default/Add-op2"},
        {"fullname": "Default/Abs-op3"}, {"type": "no operator"},
    )):  # fmt: skip
        build.slice(stream, 10 * i, 5, f"op{i}", op=OpClass.COMPUTE, args=args)
    for table, name, kind in (
        ("framework_raw", "full_kernel_name", "kernel_type"),
        ("output_op_compute_time_detail", "op_name", "op_type"),
    ):
        full, stated = (("Default/Add-op2", "Add"), ("Default/Abs-op3", "Abs"))[name == "op_name"]
        columns = {name: np.array([full], object), kind: np.array([stated], object)}
        build.side_table(table, table, lambda columns=columns: columns)
    types = {kind for (kind,) in _columns(_result("type", build), "OP Type")}
    assert types == {"MatMul", "Add", "Abs", ""}

"""Rows that ranks exchange by all-to-all, as operators of the host state them."""

from traceconv.analysis.tables import expert
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer, OpClass
from traceconv.io.sources import FileSource


def test_rows_that_return_are_not_routed(tmp_path):
    """Rank 0 sends 1 and 3 rows and gets 1 and 7, computes, and sends those 1 and 7 back; the next
    layer exchanges 2 and 2. Operations with equal parts say nothing."""
    build = TraceBuilder(Capture("test", FileSource(tmp_path, "x"), ("x",), rank=0))
    host = build.track(Layer.HOST, "Thread 1", thread=1)
    exchanges = (("[1, 7]", "[1, 3]"), ("[1, 3]", "[1, 7]"), ("[]", "[]"), ("[2, 2]", "[2, 2]"))
    for i, (received, sent) in enumerate(exchanges):
        inputs = ["", "", "", received, sent, "False", "-1"]
        args = {"Concrete Inputs": inputs}
        build.slice(host, 100 * i, 50, "c10d::alltoall_base_", args=args)
    trace = build.finish()
    facts = {table.name: table.facts(trace) for table in expert.TABLES}
    rows = {name: {k: v.tolist() for k, v in table.items()} for name, table in facts.items()}
    assert rows["expert"] == {
        "Group": [""], "Peers": [2], "Count": [3], "Sent": [16], "Received": [16], "Routed": [12],
    }  # fmt: skip
    assert rows["expert_peer"]["Routed"] == [3, 9]


def layers(trace):
    """Source, layer, count and rows of each row of the table of layers."""
    facts = next(table for table in expert.TABLES if table.name == "expert_layer").facts(trace)
    names = ("Source", "Layer", "Count", "Rows")
    return [*zip(*(facts[name].tolist() for name in names), strict=True)] if facts else []


def started(folder):
    """A rank without events, and a thread of it."""
    build = TraceBuilder(Capture("test", FileSource(folder, "x"), ("x",), rank=0))
    return build, build.track(Layer.HOST, "Thread 1", thread=1)


def test_layers_without_modules_are_numbered_within_the_step(tmp_path):
    """Two layers in each of two steps; the exchange back adds no layer."""
    build, host = started(tmp_path)
    for step in (0, 1):
        for i, sizes in enumerate(("[1, 7]", "[1, 3]", "[2, 2]")):
            inputs = ["", "", "", sizes, "[1, 3]" if i == 0 else "[1, 7]" if i == 1 else "[5, 0]"]
            args = {"Concrete Inputs": inputs}
            start = 1_000 * step + 100 * i
            build.slice(host, start, 50, "c10d::alltoall_base_", step=step, args=args)
    assert layers(build.finish()) == [
        ("exchange", "all layers", 4, 24),
        ("exchange", "exchange 1", 2, 16),
        ("exchange", "exchange 2", 2, 8),
    ]


def test_the_layer_is_the_module_that_calls(tmp_path):
    """Two grouped products in one module, one in another; a plain product does not count."""
    build, host = started(tmp_path)
    for i, (module, rows) in enumerate((("MoE_0", (6, 6)), ("MoE_1", (4,)))):
        build.slice(host, 400 * i, 300, f"nn.Module: {module}")
        for k, n in enumerate(rows):
            dims = [[n, 8], [4, 8, 16], [4]]
            args = {"Input Dims": dims}
            build.slice(host, 400 * i + 50 * k, 40, "aten::_grouped_mm", args=args)
    build.slice(host, 900, 20, "aten::mm", args={"Input Dims": [[3, 8], [8, 2]]})
    assert layers(build.finish()) == [
        ("product", "all layers", 3, 16),
        ("product", "MoE_0", 2, 12),
        ("product", "MoE_1", 1, 4),
    ]


def test_grouped_products_of_npus_are_tasks(tmp_path):
    """The rows are those of the first input."""
    build, _ = started(tmp_path)
    build.hints.vendor = "ascend"
    stream = build.track(Layer.DEVICE, "Stream 2", device=0)
    for i, rows in enumerate((2048, 1024)):
        args = {"Op Type": "GroupedMatmul", "Input Shapes": f'"{rows},64;8,64,128;8"'}
        build.slice(stream, 100 * i, 50, "aclnnGroupedMatmulV4", op=OpClass.COMPUTE, args=args)
    assert layers(build.finish())[0] == ("product", "all layers", 2, 3072)

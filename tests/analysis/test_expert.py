"""Rows that ranks exchange by all-to-all, as operators of the host state them."""

from traceconv.analysis.tables import expert
from traceconv.core.builder import TraceBuilder
from traceconv.core.model import Capture, Layer
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

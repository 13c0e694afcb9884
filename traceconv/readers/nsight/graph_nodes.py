"""Nodes of CUDA graphs in an Nsight Systems report: the NVTX range in which each was created.

``CUDA_GRAPH_NODE_EVENTS`` has the creation of every node, while a stream is captured and again,
with the id of the original, when the graph is instantiated. Kernels name the latter
(``--cuda-graph-trace=node``). Ranges of PyTorch and of the user tell the operator; those of NCCL
and MPI do not.
"""

from __future__ import annotations

import numpy as np

from traceconv.core.model import Capture
from traceconv.core.side_tables import ABSENT, Columns
from traceconv.readers.nsight import tables
from traceconv.readers.nsight.nvtx import RANGES, parsed
from traceconv.readers.shared.graph_nodes import Node, columns_of
from traceconv.readers.shared.sqlite.database import opened

TABLE = "CUDA_GRAPH_NODE_EVENTS"
_ID = {"graphNodeId": ABSENT, "originalGraphNodeId": ABSENT}


def nodes(capture: Capture) -> Columns:
    """The table of nodes, see :mod:`traceconv.readers.shared.graph_nodes`."""
    with opened(capture.source, capture.files[0], salvage=True) as database:
        created = database.columns(TABLE, {"start": -1, "globalTid": 0, **_ID})
        ranges = database.columns(
            tables.NVTX.table,
            {"start": -1, "end": -1, "globalTid": 0, "eventType": -1, "textId": -1, "rowid": -1},
        )
        names = database.texts("StringIds", "id", "value", np.unique(ranges["textId"]))
        inline = database.texts(tables.NVTX.table, "rowid", "text", ranges["rowid"])
    texts = [
        inline.get(row) or names.get(text, "")
        for row, text in zip(ranges["rowid"].tolist(), ranges["textId"].tolist(), strict=True)
    ]
    is_operator = np.isin(ranges["eventType"], RANGES) & (ranges["end"] >= ranges["start"])
    is_operator &= np.array(
        [bool(text) and not text.startswith(("nccl", "MPI_")) for text in texts], bool
    )
    within: dict[int, str] = {}
    columns = (created[key].tolist() for key in ("start", "globalTid", "graphNodeId"))
    for time, thread, node in zip(*columns, strict=True):
        around = is_operator & (ranges["globalTid"] == thread)
        around &= (ranges["start"] <= time) & (ranges["end"] > time)
        if around.any():
            enclosing = np.flatnonzero(around)
            within[node] = parsed(texts[enclosing[ranges["start"][enclosing].argmax()]])[0]
    originals = created["originalGraphNodeId"].tolist()
    original = dict(zip(created["graphNodeId"].tolist(), originals, strict=True))
    rows = []
    for node in original:
        # a clone is created outside of the ranges of the operators
        source = original[node] if original[node] not in (ABSENT, 0, node) else node
        if operator := within.get(source, ""):
            rows.append(Node(id=node, operator=operator))
    return columns_of(rows)

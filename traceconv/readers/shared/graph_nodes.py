"""The side table of the nodes of graphs: which operator each is of.

Read by :mod:`traceconv.passes.graph_replays`, which finds the nodes among the kernels of replays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from traceconv.core.side_tables import ABSENT, Columns

TABLE = "graph_nodes"
"""The name of the table; its columns are those of :class:`Node`."""


class Node(NamedTuple):
    """One node of a graph; a text is "" and a number ABSENT where it is unknown.

    Attributes:
        capture: number of the graph among those captured, from 0; ABSENT if only ``id`` is known.
        batch: the batch size that it was captured for.
        id: of the node in replays.
        call: the runtime call that added it.
        operator_call: number of the call of the operator among those of the graph, from 0.
        shapes, types, inputs: of the operator, as recorded.
    """

    capture: int = ABSENT
    batch: int = ABSENT
    id: int = ABSENT
    call: str = ""
    kernel: str = ""
    operator: str = ""
    operator_call: int = ABSENT
    module: str = ""
    shapes: str = ""
    types: str = ""
    inputs: str = ""


def columns_of(nodes: Sequence[Node]) -> Columns:
    """The columns of some nodes."""
    columns: dict[str, NDArray[Any]] = {}
    for i, (name, default) in enumerate(zip(Node._fields, Node(), strict=True)):
        columns[name] = np.empty(len(nodes), object if default == "" else np.int64)
        columns[name][:] = [node[i] for node in nodes]
    return columns

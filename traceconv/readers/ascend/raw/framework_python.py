"""Python's calls as PyTorch's profiler traces them: calls and returns, names by number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from traceconv.core.builder import TraceBuilder
from traceconv.core.model import I32, I64
from traceconv.readers.ascend.raw.framework_rows import (
    FrameworkClock,
    Lanes,
    Names,
    put_slices,
    read_table,
    timed,
)
from traceconv.readers.ascend.raw.slices import layout
from traceconv.readers.shared.arguments import factored
from traceconv.readers.shared.pairing import Marks, nested_by_name

TRACER_FUNC = layout(
    33, time=(0, "<u8"), thread=(8, "<u8"), pid=(16, "<u8"), key=(24, "<u8"), tag=(32, "u1")
)
TRACER_HASH = layout(8, key=(0, "<u8"))
_LAST_TAG = 3  # call, return, call of C, return of C

_MODULE = "######"
"""Sets the name of a module apart from the number of the instance."""


def read_names(build: TraceBuilder, data: Any) -> dict[int, str]:
    """``torch.python_tracer_hash``: names of functions by their number."""
    table = read_table(data, (TRACER_HASH,), (1,), build)
    said = table.text(1)
    keys = table.column("key").tolist()
    return {key: said.values[c] for key, c in zip(keys, said.codes.tolist(), strict=True) if c >= 0}


def read_calls(
    build: TraceBuilder, data: Any, names: Mapping[int, str], clock: FrameworkClock
) -> None:
    """``torch.python_tracer_func``: calls on threads. A return ends the newest open call; those
    that were never ended last until the last stamp of their thread.
    """
    rest = len(data) % TRACER_FUNC.itemsize
    if rest:
        build.skip("truncated", f"byte {len(data) - rest}")
    rows = np.frombuffer(data, TRACER_FUNC, len(data) // TRACER_FUNC.itemsize)
    rows = rows[_known(build, rows["tag"])]
    column = {n: rows[n].astype(np.int64) for n in ("thread", "pid", "key", "tag")}
    time_ns = clock.torch_ns(rows["time"].astype(np.int64))
    threads, code = np.unique(column["thread"], return_inverse=True)
    lane: I32 = code.astype(np.int32)
    none = np.full(len(rows), -1, np.int32)
    if not len(rows):
        return
    begin, end = nested_by_name(Marks(lane, time_ns, none, none, column["tag"] & 1 == 0))
    stray = begin < 0
    build.seen("slice", int(stray.sum()))
    build.skip("end-without-begin", "returns", int(stray.sum()), "slice")
    begin, end = begin[~stray], end[~stray]
    build.skip("unfinished-slice", "calls", int((end < 0).sum()))
    last = np.zeros(len(threads), np.int64)
    np.maximum.at(last, lane, time_ns)
    start = time_ns[begin]
    stop = np.where(end >= 0, time_ns[end], last[lane[begin]])
    kept = timed(build, start, stop)
    begin = begin[kept]
    lanes = Lanes.of(build, "Python", column["pid"])
    put_slices(
        build,
        lanes.tracks(column["pid"], column["thread"])[begin],
        start[kept],
        stop[kept],
        _named(build, column["key"][begin], names),
    )


def _known(build: TraceBuilder, tag: Any) -> Any:
    known = tag <= _LAST_TAG
    build.skip("kind-not-read", "records of unknown tags", int((~known).sum()))
    return known


def _named(build: TraceBuilder, keys: I64, names: Mapping[int, str]) -> Names:
    """Names of functions; instances of a module are numbered in the order of the rows."""
    values, codes = factored(keys)
    lacking = np.array([value not in names for value in values.tolist()], bool)
    build.skip("name-unknown", "torch.python_tracer_hash", int(lacking[codes].sum()))
    said = [names.get(value, str(value % (1 << 64))) for value in values.tolist()]
    count: dict[str, int] = {}
    for code in codes[np.sort(np.unique(codes, return_index=True)[1])].tolist():
        module, apart, _ = said[code].partition(_MODULE)
        if apart:
            count[module] = count.get(module, -1) + 1
            said[code] = f"nn.Module: {module}_{count[module]}"
    return Names(codes, said)

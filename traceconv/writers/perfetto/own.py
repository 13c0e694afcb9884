"""The packet of a rank for our own reader, which viewers ignore.

The format has no fields for the identity of a track, the graph and step of a row, the names and
directions of flows, or the losses of reading. ``schemas/proto/traceconv_rank.proto`` describes how
they are written. Columns are run-length and delta encoded: the rows of a track are in order of
time, so a few runs give the steps of all rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from traceconv.core.codes import Severity
from traceconv.core.model import I64, FlowTable, Mask, Trace
from traceconv.protobuf.message import varint_bytes
from traceconv.protobuf.perfetto_schema import (
    GRAPH_ADDED,
    OWN_FIELD,
    STEP_ADDED,
    OwnRank,
)
from traceconv.writers import Document
from traceconv.writers.perfetto.packets import varint_sizes, varints
from traceconv.writers.perfetto.tracks import uuids
from traceconv.writers.perfetto.wire import message, number, packet, text

FOUND_AGAIN = frozenset(("nested-deep", "steps-uncovered"))
"""Issues that are found again in whatever is read back: they are not carried over."""


class Numbered(msgspec.Struct):
    """The rows whose arguments got numbers that they did not have.

    Attributes:
        rows: ascending.
        which: per row: :data:`STEP_ADDED`, :data:`GRAPH_ADDED` or both.
        empty: those that had an object without members.
    """

    rows: list[int] = msgspec.field(default_factory=list)
    which: list[int] = msgspec.field(default_factory=list)
    empty: list[int] = msgspec.field(default_factory=list)

    def add(self, row: int, raw: bytes, keys: Iterable[str]) -> None:
        """A row with the arguments ``raw`` got these."""
        bits = {"step": STEP_ADDED, "graph": GRAPH_ADDED}
        self.rows.append(row)
        self.which.append(sum(bits[key] for key in keys))
        if raw and not raw.strip(b"{} \t\r\n"):
            self.empty.append(row)


def rank_packet(
    sequence: bytes, source: Trace, trace: Trace, document: Document, numbered: Numbered
) -> bytes:
    """The packet of a rank.

    Args:
        sequence: the encoded sequence id.
        source:   the rank as it is.
        trace:    as it is written, with numbers of steps among arguments.
    """
    columns = [number(OwnRank.ROWS, len(trace.events))]
    if _placed(trace):
        columns.append(message(OwnRank.PLACES, varints(_place_runs(trace).ravel())))
    if len(trace.flows):
        columns += _arrow_names(trace)
        columns.append(message(OwnRank.ARROW_RUNS, varints(_name_runs(trace.flows))))
        turned = np.flatnonzero(turned_arrows(trace))
        columns.append(message(OwnRank.ARROWS_TURNED, varints(np.diff(turned, prepend=0))))
    return _packet(sequence, *_identity(source, document, numbered), *columns)


def _identity(trace: Trace, document: Document, numbered: Numbered) -> list[bytes]:
    """The fields that do not grow with the rows."""
    about = json.dumps(_about(trace, document.base_ns), ensure_ascii=False, separators=(",", ":"))
    fields = [number(OwnRank.RANK, trace.rank), text(OwnRank.ABOUT, about)]
    if numbered.rows:
        pairs = np.empty((len(numbered.rows), 2), np.int64)
        pairs[:, 0] = np.diff(np.array(numbered.rows, np.int64), prepend=0)
        pairs[:, 1] = numbered.which
        fields.append(message(OwnRank.NUMBERED, varints(pairs.ravel())))
    return fields


def odd_packet(sequence: bytes, rows: I64, before: int, raws: Sequence[bytes]) -> bytes:
    """The packet of rows whose arguments are other JSON than annotations say.

    Args:
        before: the last row of the packet before, 0 if there is none.
    """
    gaps = varints(np.diff(rows, prepend=before))
    arguments = [message(OwnRank.ODD_ARGUMENTS, raw) for raw in raws]
    return _packet(sequence, message(OwnRank.ODD_ROWS, gaps), *arguments)


def _packet(sequence: bytes, *fields: bytes) -> bytes:
    return packet(sequence, message(OWN_FIELD, *fields))


def _about(trace: Trace, base_ns: int) -> dict[str, Any]:
    """Identity, tracks, windows, hints, notes and issues of a rank, as JSON, without unknown
    values."""
    capture = trace.capture
    windows = (trace.windows - base_ns).tolist()
    hints = {key: value for key, value in msgspec.structs.asdict(trace.hints).items() if value}
    issues = [
        [one.code, one.file, one.count, list(one.places)]
        for one in trace.issues
        if one.severity is not Severity.INFO and one.code not in FOUND_AGAIN
    ]
    ids, used = uuids(trace).tolist(), trace.used.tolist()
    tracks = {
        str(ids[i]): msgspec.to_builtins(track) for i, track in enumerate(trace.tracks) if used[i]
    }
    known = {
        "tracks": tracks,
        "host": capture.host,
        "device": capture.device if capture.device >= 0 else "",
        "pid": capture.pid if capture.pid >= 0 else "",
        "world_size": capture.world_size if capture.world_size >= 0 else "",
        "windows": windows,
        "hints": hints,
        "notes": dict(trace.notes),
        "issues": issues,
    }
    return {key: value for key, value in known.items() if value not in ("", [], {})}


# -- flows ----------------------------------------------------------------------------------------


def turned_arrows(trace: Trace) -> Mask:
    """Which flows have a target that begins before their source, or is the row before it."""
    flows, start = trace.flows, trace.events.start_ns
    src, dst = flows.src, flows.dst
    turned: Mask = (start[dst] < start[src]) | ((start[dst] == start[src]) & (dst < src))
    return turned


def _arrow_names(trace: Trace) -> list[bytes]:
    used = np.unique(trace.flows.name).tolist()
    return [text(OwnRank.ARROW_NAMES, trace.strings[i]) for i in used]


def _name_runs(flows: FlowTable) -> I64:
    """Lengths of runs of flows of one name, and that name, in turns."""
    which = np.searchsorted(np.unique(flows.name), flows.name)
    begins = np.flatnonzero(np.diff(which, prepend=-1))
    lengths = np.diff(np.append(begins, len(which)))
    return np.stack((lengths, which[begins]), axis=1).ravel()


# -- rows -----------------------------------------------------------------------------------------


def _placed(trace: Trace) -> bool:
    """Whether any row is of a graph or a step."""
    return bool((trace.events.graph >= 0).any() or (trace.events.step >= 0).any())


def _place_runs(trace: Trace) -> I64:
    """Runs of rows of one graph and step: how many, and these, plus 1."""
    graph = trace.events.graph.astype(np.int64) + 1
    step = trace.events.step.astype(np.int64) + 1
    new = np.ones(len(graph), bool)
    new[1:] = (graph[1:] != graph[:-1]) | (step[1:] != step[:-1])
    begins = np.flatnonzero(new)
    lengths = np.diff(np.append(begins, len(graph)))
    runs: I64 = np.stack((lengths, graph[begins], step[begins]), axis=1)
    return np.maximum(runs, 0)  # EVERY_GRAPH, which is below -1, is not one graph


# -- what it takes --------------------------------------------------------------------------------

_HEADER = 5
"""Bytes of the tag and the length of a packed field, at most."""


def fixed_cost(sequence: bytes, trace: Trace, document: Document, numbered: Numbered) -> int:
    """Bytes of the packet of a rank whatever rows and flows are kept."""
    identity = _packet(sequence, *_identity(trace, document, numbered))
    longer = 4  # the lengths of the packet itself, with all that is in it
    rows = len(number(OwnRank.ROWS, len(trace.events)))
    headers = _HEADER * (_placed(trace) + 2 * bool(len(trace.flows)))
    return len(identity) + sum(map(len, _arrow_names(trace))) + longer + rows + headers


def place_costs(trace: Trace) -> tuple[I64, int]:
    """Bytes per row, and of all together, that graphs and steps take, whatever rows are kept.

    Fewer rows have no more runs: either all runs count once, or each row with a number counts for
    its own run and the one behind it, whichever is less.
    """
    n, events = len(trace.events), trace.events
    none = np.zeros(n, np.int64)
    if not n or not _placed(trace):
        return none, 0
    sizes = varint_sizes(_place_runs(trace).ravel()).reshape(-1, 3)
    numbers = int(sizes[:, 1].max() + sizes[:, 2].max())
    numbered = (events.graph >= 0) | (events.step >= 0)
    each = len(varint_bytes(n)) + numbers + len(varint_bytes(n)) + 2
    # runs that are joined are longer, by a byte at most where their lengths add up
    together = int(sizes.sum()) + len(sizes)
    if each * int(numbered.sum()) < together:
        return numbered * np.int64(each), each
    return none, together


def arrow_costs(trace: Trace) -> tuple[I64, int]:
    """The same for flows: per flow, and of all together."""
    flows, n = trace.flows, len(trace.flows)
    if not n:
        return np.zeros(0, np.int64), 0
    widest = len(varint_bytes(n))
    width = len(varint_bytes(len(np.unique(flows.name))))
    cost = turned_arrows(trace) * np.int64(widest)
    runs = len(_name_runs(flows)) // 2
    if runs * (widest + width) * 8 > n:  # names alternate: they count where they are
        return cost + widest + width, 0
    return cost, runs * (widest + width)

"""The packet of a rank for our own reader: see :mod:`traceconv.protobuf.own_rank`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from traceconv.core.codes import Severity
from traceconv.core.model import I64, Mask, Trace
from traceconv.protobuf.own_rank import OwnRank, about_json, run_costs, runs
from traceconv.protobuf.perfetto_schema import OWN_FIELD
from traceconv.writers import Document
from traceconv.writers.perfetto.tracks import uuids
from traceconv.writers.perfetto.wire import message, number, packet, text

FOUND_AGAIN = frozenset(("nested-deep", "steps-uncovered"))
"""Issues that are found again in whatever is read back: they are not carried over."""

_OF_FLOWS = (OwnRank.FLOW_NAME, OwnRank.TURNED_FLOWS)


def rank_packet(sequence: bytes, trace: Trace, document: Document) -> bytes:
    """The packet of a rank. ``sequence`` is its encoded sequence id."""
    columns = (message(field, runs(column)) for field, column in _columns(trace).items())
    return _packet(sequence, *_facts(trace, document), *columns)


def odd_packet(sequence: bytes, rows: I64, raws: Sequence[bytes]) -> bytes:
    """The packet of rows whose arguments are other JSON than annotations say."""
    of_rows = (number(OwnRank.ODD_ROWS, row) for row in rows.tolist())
    return _packet(sequence, *of_rows, *(message(OwnRank.ODD_ARGUMENTS, raw) for raw in raws))


def costs(sequence: bytes, trace: Trace, document: Document) -> tuple[int, I64, I64]:
    """Bytes of the packet: fixed ones, per event row, and per flow; for any rows that are kept."""
    lengths = 4  # of the packet itself, which is longer with all that is in it
    fixed = len(_packet(sequence, *_facts(trace, document))) + lengths
    rows, flows = (np.zeros(len(table), np.int64) for table in (trace.events, trace.flows))
    for field, column in _columns(trace).items():
        per_row, together = run_costs(column)
        (flows if field in _OF_FLOWS else rows)[:] += per_row
        fixed += len(message(field, bytes(together)))
    return fixed, rows, flows


def turned_flows(trace: Trace) -> Mask:
    """Which flows have a target that begins before their source, or is the row before it."""
    src, dst, start = trace.flows.src, trace.flows.dst, trace.events.start_ns
    turned: Mask = (start[dst] < start[src]) | ((start[dst] == start[src]) & (dst < src))
    return turned


def _packet(sequence: bytes, *fields: bytes) -> bytes:
    return packet(sequence, message(OWN_FIELD, *fields))


def _facts(trace: Trace, document: Document) -> list[bytes]:
    """The fields of a rank packet besides its columns."""
    capture, used = trace.capture, trace.used.tolist()
    tracks = zip(uuids(trace).tolist(), trace.tracks, used, strict=True)
    hints = msgspec.structs.asdict(trace.hints)
    about = {
        "tracks": {uuid: track for uuid, track, is_used in tracks if is_used},
        "host": capture.host,
        "device": capture.device,
        "pid": capture.pid,
        "world_size": capture.world_size,
        "windows": (trace.windows - document.base_ns).tolist(),
        "hints": {key: value for key, value in hints.items() if value},
        "notes": dict(trace.notes),
        "issues": [
            [issue.code, issue.file, issue.count, list(issue.places)]
            for issue in trace.issues
            if issue.severity is not Severity.INFO and issue.code not in FOUND_AGAIN
        ],
    }
    names = [trace.strings[i] for i in np.unique(trace.flows.name).tolist()]
    return [
        text(OwnRank.ABOUT, about_json(about)),
        number(OwnRank.ROWS, len(trace.events)),
        *(text(OwnRank.FLOW_NAMES, name) for name in names),
    ]


def _columns(trace: Trace) -> dict[int, I64]:
    """Columns of rows and flows that have any value, by the number of their field."""
    flows = trace.flows
    by_field = {
        # EVERY_GRAPH, which is below -1, is not one graph
        OwnRank.GRAPHS: np.maximum(trace.events.graph.astype(np.int64) + 1, 0),
        OwnRank.STEPS: trace.events.step.astype(np.int64) + 1,
        OwnRank.FLOW_NAME: np.searchsorted(np.unique(flows.name), flows.name),
        OwnRank.TURNED_FLOWS: turned_flows(trace).astype(np.int64),
    }
    return {field: column for field, column in by_field.items() if column.any()}

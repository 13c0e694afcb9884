"""What a trace says to our own reader: packets of a rank that viewers pass over.

The format has no place for the layer of a track, the graph and step of a row, names and directions
of arrows, or what was lost on the way. ``schemas/proto/traceconv_rank.proto`` describes how they
are written. Columns are runs and distances: the rows of a track follow each other in time, so a few
runs say which step they are of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from traceconv.core.codes import Severity
from traceconv.core.model import I64, FlowTable, Mask, Trace
from traceconv.core.ordering import distinct
from traceconv.protobuf.message import varint_bytes
from traceconv.protobuf.perfetto_schema import (
    GRAPH_ADDED,
    OWN_FIELD,
    STEP_ADDED,
    OwnLane,
    OwnRank,
)
from traceconv.writers import Across, Document
from traceconv.writers.perfetto.packets import varint_sizes, varints
from traceconv.writers.perfetto.tracks import places, uuids
from traceconv.writers.perfetto.wire import message, number, packet, text

FOUND_AGAIN = frozenset(("nested-deep", "steps-uncovered"))
"""Issues that are found again in whatever is read back: they are not carried over."""

_ARROWS = 1 << 16
"""Arrows per packet."""


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
    sequence: bytes, trace: Trace, document: Document, used: Mask, numbered: Numbered
) -> bytes:
    """What is known of a rank before its events, but for arrows.

    Args:
        sequence: the encoded sequence id.
        used:     which tracks have events or samples.
    """
    about = json.dumps(_about(trace, document.base_ns), ensure_ascii=False, separators=(",", ":"))
    fields = [number(OwnRank.RANK, trace.rank), text(OwnRank.ABOUT, about)]
    fields += [message(OwnRank.LANES, one) for one in _lanes(trace, used, document.across)]
    if numbered.rows:
        pairs = np.empty((len(numbered.rows), 2), np.int64)
        pairs[:, 0] = np.diff(np.array(numbered.rows, np.int64), prepend=0)
        pairs[:, 1] = numbered.which
        fields.append(message(OwnRank.NUMBERED, varints(pairs.ravel())))
    return _packet(sequence, *fields)


def _packet(sequence: bytes, *fields: bytes) -> bytes:
    return packet(sequence, message(OWN_FIELD, *fields))


def _about(trace: Trace, base_ns: int) -> dict[str, Any]:
    """Identity, windows, hints, notes and issues of a rank, as JSON; what is not known is left
    out."""
    capture = trace.capture
    windows = (trace.windows - base_ns).tolist()
    hints = {key: value for key, value in msgspec.structs.asdict(trace.hints).items() if value}
    issues = [
        [one.code, one.file, one.count, list(one.places)]
        for one in trace.issues
        if one.severity is not Severity.INFO and one.code not in FOUND_AGAIN
    ]
    known = {
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


def _lanes(trace: Trace, used: Mask, across: Across | None) -> Iterator[bytes]:
    """What descriptors do not say of tracks."""
    ids = uuids(trace).tolist()
    for i, place in sorted(places(trace, used, across).items()):
        track = trace.tracks[i]
        fields = [number(OwnLane.UUID, ids[i]), text(OwnLane.LAYER, str(track.layer))]
        fields += [number(OwnLane.SORT, track.sort)] if track.sort else []
        fields += [text(OwnLane.UNIT, track.unit)] if track.unit else []
        fields += [number(OwnLane.LANE, track.lane)] if track.lane else []
        fields += [] if track.title else [number(OwnLane.UNTITLED, 1)]
        if not place.tells(track):
            fields += [text(OwnLane.TITLE, track.title)] if track.title else []
            fields += [text(OwnLane.GROUP, track.group)] if track.group else []
            fields.append(text(OwnLane.NAME, track.name))
        if known := track.identity:
            fields.append(message(OwnLane.IDENTITY, known))
        yield b"".join(fields)


# -- arrows ---------------------------------------------------------------------------------------


def turned_arrows(trace: Trace) -> Mask:
    """Which arrows have a target that begins before their source, or is the row before it."""
    flows, start = trace.flows, trace.events.start_ns
    src, dst = flows.src, flows.dst
    turned: Mask = (start[dst] < start[src]) | ((start[dst] == start[src]) & (dst < src))
    return turned


def arrow_packets(sequence: bytes, trace: Trace) -> Iterator[bytes]:
    """Names and directions of arrows, in the order of their ids."""
    flows = trace.flows
    if not len(flows):
        return
    used = distinct(flows.name)
    names = [text(OwnRank.ARROW_NAMES, trace.strings[i]) for i in used.tolist()]
    turned = np.flatnonzero(turned_arrows(trace))
    gaps = np.diff(turned, prepend=0)
    for first in range(0, len(flows), _ARROWS):
        part = flows.take(slice(first, first + _ARROWS))
        low, high = np.searchsorted(turned, [first, first + len(part)])
        fields = [*names, message(OwnRank.ARROW_RUNS, varints(_name_runs(part, used)))]
        if high > low:
            fields.append(message(OwnRank.ARROWS_TURNED, varints(gaps[low:high])))
        yield _packet(sequence, *fields)
        names = []


def _name_runs(flows: FlowTable, used: Any) -> I64:
    """Lengths of runs of arrows of one name, and that name, in turns."""
    which = np.searchsorted(used, flows.name)
    begins = np.flatnonzero(np.diff(which, prepend=-1))
    lengths = np.diff(np.append(begins, len(which)))
    return np.stack((lengths, which[begins]), axis=1).ravel()


# -- rows -----------------------------------------------------------------------------------------


class Rows:
    """What is said of event rows, block by block."""

    def __init__(self, sequence: bytes, trace: Trace) -> None:
        self._sequence, self._trace = sequence, trace
        self._placed = bool((trace.events.graph >= 0).any() or (trace.events.step >= 0).any())
        self._odd = 0

    def block(self, first: int, odd: Any, raws: Sequence[bytes]) -> bytes:
        """The packet of a block of rows; nothing if there is nothing to be said.

        Args:
            first: row of the block.
            odd:   uint8 per row.
            raws:  the arguments of the odd rows, as they are.
        """
        fields = []
        if self._placed:
            fields.append(message(OwnRank.PLACES, varints(self._runs(first, len(odd)))))
        if len(raws):
            rows = np.flatnonzero(odd) + first
            gaps = np.diff(rows, prepend=self._odd)
            self._odd = int(rows[-1])
            fields.append(message(OwnRank.ODD_ROWS, varints(gaps)))
            fields += [message(OwnRank.ODD_ARGUMENTS, raw) for raw in raws]
        if not fields:
            return b""
        return _packet(self._sequence, number(OwnRank.ROWS, first + len(odd)), *fields)

    def _runs(self, first: int, rows: int) -> I64:
        """Lengths of runs of rows of one graph and step, these, in turns."""
        return _runs(self._trace, first, first + rows).ravel()


def _runs(trace: Trace, first: int, stop: int) -> I64:
    graph = trace.events.graph[first:stop].astype(np.int64) + 1
    step = trace.events.step[first:stop].astype(np.int64) + 1
    new = np.ones(len(graph), bool)
    new[1:] = (graph[1:] != graph[:-1]) | (step[1:] != step[:-1])
    begins = np.flatnonzero(new)
    lengths = np.diff(np.append(begins, len(graph)))
    runs: I64 = np.stack((lengths, graph[begins], step[begins]), axis=1)
    return np.maximum(runs, 0)  # EVERY_GRAPH, which is below -1, is not one graph


# -- what it takes --------------------------------------------------------------------------------


def place_costs(sequence: bytes, trace: Trace, block: int) -> tuple[I64, int]:
    """Bytes per row, and of all together, that graphs and steps take, whatever rows are kept.

    Fewer rows have no more runs: either all runs count once, or each row with a number counts for
    its own run and the one behind it, whichever is less.
    """
    n, events = len(trace.events), trace.events
    none = np.zeros(n, np.int64)
    if not n or not ((events.graph >= 0).any() or (events.step >= 0).any()):
        return none, 0
    runs = _runs(trace, 0, n)
    sizes = varint_sizes(runs.ravel()).reshape(-1, 3)
    numbers = int(sizes[:, 1].max() + sizes[:, 2].max())
    of_block = len(varint_bytes(min(n, block))) + numbers  # a run that goes on begins again
    around = _around(sequence, min(n, block) * of_block, [number(OwnRank.ROWS, n)])
    blocks = -(-n // block)
    fixed = blocks * around + (blocks - 1) * of_block
    numbered = (events.graph >= 0) | (events.step >= 0)
    each = len(varint_bytes(n)) + numbers + len(varint_bytes(n)) + 2
    if each * int(numbered.sum()) < int(sizes.sum()):
        return numbered * np.int64(each), fixed + each
    return none, fixed + int(sizes.sum())


def _around(sequence: bytes, most: int, others: Sequence[bytes]) -> int:
    """Bytes of a packet beside a field of at most ``most`` bytes in it."""
    length = len(varint_bytes(most + 64))
    return len(_packet(sequence, *others)) + 3 * length


def arrow_costs(sequence: bytes, trace: Trace) -> tuple[I64, int]:
    """The same for arrows: per arrow, and of all together."""
    flows, n = trace.flows, len(trace.flows)
    if not n:
        return np.zeros(0, np.int64), 0
    widest = len(varint_bytes(n))
    used = distinct(flows.name)
    names = [text(OwnRank.ARROW_NAMES, trace.strings[i]) for i in used.tolist()]
    width = len(varint_bytes(len(used)))
    turned = turned_arrows(trace)
    about = sum(map(len, names)) + min(n, _ARROWS) * (2 * widest + width)
    around = _around(sequence, about, [message(OwnRank.ARROW_RUNS)])
    around += 2 + len(varint_bytes(about)) if turned.any() else 0
    packets = -(-n // _ARROWS)
    fixed = sum(map(len, names)) + packets * around + (packets - 1) * (widest + width)
    cost = turned * np.int64(widest)
    runs = len(_name_runs(flows, used)) // 2
    if runs * (widest + width) * 8 > n:  # names alternate: they count where they are
        return cost + widest + width, fixed
    return cost, fixed + runs * (widest + width)

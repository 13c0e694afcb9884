"""Tables of expert parallelism: tokens that ranks send to and receive from each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from traceconv.analysis.tables.collective import group_names
from traceconv.analysis.tables.definition import NOTHING, Column, Ranked, Table, stacked, texts
from traceconv.analysis.tables.fields import fields, is_ascend, operator_columns
from traceconv.analysis.tables.groups import Groups, numbered, share
from traceconv.analysis.tables.host import Nest, innermost_names, kernels, launches, modules
from traceconv.analysis.tables.texts import Texts
from traceconv.analysis.tables.work import grouped_rows, is_grouped
from traceconv.core.columns import I64, Mask, once_each
from traceconv.core.intervals import holding
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Layer, OpClass, Trace
from traceconv.core.name_tests import NameTest, rows_named
from traceconv.core.patterns import natural
from traceconv.core.side_tables import Columns
from traceconv.passes.places import threads

_SUMS = ("Count", "Sent", "Received", "Routed")
ALL = "all layers"
_PRODUCTS = NameTest(is_grouped)
_ALL_TO_ALL = NameTest(lambda name: name == "c10d::alltoall_base_")
"""Inputs: output, input, group, rows received from and sent to each rank (c10d/Ops.cpp)."""


@lru_cache(1 << 12)
def _split_sizes(text: str) -> tuple[int, ...]:
    """Rows for each rank, "[3, 5]"; () if they are equal ("[]") or the list was shortened."""
    try:
        sizes = msgspec.json.decode(text) if text else []
    except NOT_JSON:
        return ()
    plain = isinstance(sizes, list) and all(type(size) is int and size >= 0 for size in sizes)
    return tuple(sizes) if plain else ()


def _input(number: int, text: str) -> str:
    """One of an operator's "Concrete Inputs"."""
    try:
        return str(msgspec.json.decode(text)[number]) if text else ""
    except (*NOT_JSON, IndexError, TypeError, KeyError):
        return ""


class _Exchanges(msgspec.Struct, frozen=True):
    """All-to-all operations that state how many rows each rank gets.

    Attributes:
        rows:     event rows, by start.
        group:    their groups; "" of operators of the host.
        sent, received: rows to and from each rank of the group.
        returns:  whether each sends back what an earlier one brought.
    """

    rows: NDArray[np.intp]
    group: Texts
    sent: list[tuple[int, ...]]
    received: list[tuple[int, ...]]
    returns: Mask


@once_each
def _exchanges(trace: Trace) -> _Exchanges | None:
    """As the device states them; else as the operators of the host do."""
    device = kernels(trace, OpClass.COMM)
    host = np.flatnonzero(trace.rows_of(Layer.HOST) & rows_named(trace, _ALL_TO_ALL))
    (inputs,) = fields(trace, host, "Concrete Inputs")
    splits = fields(trace, device, "In split size", "Out split size")
    stated = [inputs.mapped(partial(_input, number)) for number in (4, 3)]
    for rows, group, (sent, received) in (
        (device, group_names(trace, device), splits),
        (host, Texts.same("", len(host)), stated),
    ):
        is_readable = np.flatnonzero(sent.fitting(_split_sizes) & received.fitting(_split_sizes))
        if not len(is_readable):
            continue
        in_time = is_readable[np.argsort(trace.events.start_ns[rows[is_readable]], kind="stable")]
        rows = rows[in_time]
        group, sent, received = group[in_time], sent[in_time], received[in_time]
        pending: Counter[tuple[str, ...]] = Counter()
        returns = np.zeros(len(rows), bool)
        columns = (group.tolist(), sent.tolist(), received.tolist())
        for i, (name, out, back) in enumerate(zip(*columns, strict=True)):
            returns[i] = pending[name, back, out] > 0
            pending[(name, back, out) if returns[i] else (name, out, back)] += (
                -1 if returns[i] else 1
            )
        to, of = ([_split_sizes(text) for text in column] for column in columns[1:])
        return _Exchanges(rows, group, to, of, returns)
    return None


def _peer_facts(trace: Trace) -> Columns:
    exchanges = _exchanges(trace)
    if exchanges is None:
        return NOTHING
    sums_by_peer: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    columns = (exchanges.group.tolist(), exchanges.sent, exchanges.received)
    for name, out, back, returns in zip(*columns, exchanges.returns.tolist(), strict=True):
        for peer, (to, of) in enumerate(zip(out, back, strict=False)):
            peer_sums = sums_by_peer[name, peer]
            for i, value in enumerate((1, to, of, 0 if returns else of)):
                peer_sums[i] += value
    sums = np.array([*sums_by_peer.values()], np.int64)
    return {
        "Group": texts([name for name, _ in sums_by_peer]),
        "Peer": np.array([peer for _, peer in sums_by_peer], np.int64),
        **dict(zip(_SUMS, sums.T, strict=True)),
    }


def _facts(trace: Trace) -> Columns:
    peers = _peer_facts(trace)
    if not peers:
        return NOTHING
    groups = Groups.of(numbered(peers["Group"]))
    return {
        "Group": peers["Group"][groups.first],
        "Peers": groups.size,
        "Count": groups.high(peers["Count"]),
        **{name: groups.total(peers[name]) for name in _SUMS[1:]},
    }


def _loads(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    groups = Groups.of(numbered(rows["Group"]))
    mean = groups.spread(groups.total(rows["Routed"])) / groups.spread(groups.size)
    return {**rows, "Load(%)": share(rows["Routed"], mean)}


# -- layers -------------------------------------------------------------------------------


def _layer_facts(trace: Trace) -> Columns:
    """Rows of the experts of a rank, by layer and by what states them."""
    parts = [part for part in (_exchanged(trace), _multiplied(trace)) if part is not None]
    found = [(source, *columns) for source, rows, group, n_rows in parts
             for columns in _by_layer(trace, source, rows, group, n_rows)]  # fmt: skip
    if not found:
        return NOTHING
    source, group, layer, count, n_rows = zip(*found, strict=True)
    return {
        "Source": texts(source), "Group": texts(group), "Layer": texts(layer),
        "Count": np.array(count, np.int64), "Rows": np.array(n_rows, np.int64),
    }  # fmt: skip


_Rows = tuple[str, NDArray[np.intp], Texts, I64]
"""What states rows of experts; event rows, their groups, and how many rows."""


def _exchanged(trace: Trace) -> _Rows | None:
    exchanges = _exchanges(trace)
    if exchanges is None:
        return None
    there = np.flatnonzero(~exchanges.returns)
    n_rows = np.array([sum(exchanges.received[i]) for i in there.tolist()], np.int64)
    return "exchange", exchanges.rows[there], exchanges.group[there], n_rows


def _multiplied(trace: Trace) -> _Rows | None:
    """Grouped products: tasks of NPUs, else operators of the host with shapes."""
    if is_ascend(trace):
        rows = kernels(trace, OpClass.COMPUTE)
        described = operator_columns(trace, rows)
        is_product = described["OP Type"].fitting(lambda name: name.startswith("GroupedMatmul"))
        rows, shapes = rows[is_product], described["Input Shapes"][is_product]
        n_rows = np.array([_first_size(text) for text in shapes.values], np.int64)[shapes.code]
    else:
        rows = np.flatnonzero(trace.rows_of(Layer.HOST) & rows_named(trace, _PRODUCTS))
        (shapes,) = fields(trace, rows, "Input Dims")
        n_rows = np.array([grouped_rows(text) for text in shapes.values], np.int64)[shapes.code]
    rows, n_rows = rows[n_rows >= 0], n_rows[n_rows >= 0]
    return ("product", rows, Texts.same("", len(rows)), n_rows) if len(rows) else None


def _first_size(shapes: str) -> int:
    """Rows of the first input, "2048,7168;256,7168,4096"; -1 unless it is a matrix."""
    sizes = shapes.strip('"').partition(";")[0].split(",")
    return natural(sizes[0]) if len(sizes) == 2 else -1


def _by_layer(
    trace: Trace, source: str, rows: NDArray[np.intp], group: Texts, n_rows: I64
) -> Iterator[tuple[str, str, int, int]]:
    """Group, layer, count and rows: of all layers, then of each."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    layers = _layers(trace, source, rows, group)
    for name, layer, value in zip(group.tolist(), layers, n_rows.tolist(), strict=True):
        for key in ((name, ALL), (name, layer)) if layer else ((name, ALL),):
            sums[key][0] += 1
            sums[key][1] += value
    for (name, layer), (count, total) in sums.items():
        yield name, layer, count, total


def _layers(trace: Trace, source: str, rows: NDArray[np.intp], group: Texts) -> list[str]:
    """The innermost module that calls each; else its number among those of its group in the step;
    "" where neither is known."""
    events = trace.events
    thread, time = threads(trace)[events.track[rows]], events.start_ns[rows].copy()
    calls = launches(trace)
    if len(calls.device):
        place = np.minimum(np.searchsorted(calls.device, rows), len(calls.device) - 1)
        launched = calls.device[place] == rows
        thread[launched] = calls.thread[place[launched]]
        time[launched] = calls.time_ns[place[launched]]
    module = innermost_names(trace, Nest.of(trace, modules(trace)), thread, time)
    steps = trace.steps
    step = events.step[rows].astype(np.int64)
    inside = holding(np.stack((steps.start_ns, steps.end_ns), axis=1), time)
    of_host = (step < 0) & (inside >= 0)
    step[of_host] = steps.step[inside[of_host]]
    seen: Counter[tuple[str, int]] = Counter()
    names = []
    for name, number, of in zip(module.tolist(), step.tolist(), group.tolist(), strict=True):
        seen[of, number] += 1
        place_in_step = f"{source} {seen[of, number]}" if number >= 0 else ""
        names.append(name or place_in_step)
    return names


def _layer_loads(ranked: Ranked) -> Columns:
    rows = stacked(ranked)
    groups = Groups.of(*(numbered(rows[name]) for name in ("Source", "Group", "Layer")))
    mean = groups.spread(groups.total(rows["Rows"]) / groups.size)
    return {**rows, "Load(%)": share(rows["Rows"], mean)}


_FORMULA = (
    "Of collectives that state how many rows each rank gets (of mixtures of experts, rows are "
    "tokens): all_to_allv on the device (In split size, Out split size), or, where those state "
    "nothing, c10d::alltoall_base_ on the host, whose group is unknown. Count = operations, Sent "
    "and Received = sums of rows, to and from the rank itself included. Routed = rows received by "
    "operations that do not return the rows of an earlier one: that send what it received, and "
    "receive what it sent. Operations with equal parts, and lists that PyTorch shortens, are left "
    "out. "
)
_NEEDS = (
    "collectives with uneven parts: In split size and Out split size of PyTorch, or "
    "c10d::alltoall_base_ recorded with record_shapes"
)

TABLES: Sequence[Table] = (
    Table(
        "expert",
        "Load of ranks by all-to-all (experts)",
        f"{_FORMULA}Load = Routed / mean Routed of the ranks read of the group: 100 = even.",
        _NEEDS,
        Column.parse("Rank, Group:text, Peers, Count, Sent, Received, Routed, Load(%)"),
        _facts,
        _loads,
    ),
    Table(
        "expert_peer",
        "Rows that ranks exchange by all-to-all (experts)",
        f"{_FORMULA}Peer = number of the other rank within the group.",
        _NEEDS,
        Column.parse("Rank, Group:text, Peer, Count, Sent, Received, Routed"),
        _peer_facts,
        capped=True,
    ),
    Table(
        "expert_layer",
        "Load of ranks by layer (experts)",
        "Rows (tokens) that the experts of a rank get, by what states them. exchange = operations "
        "of the table expert that return nothing: Rows = rows received. product = grouped matrix "
        "products (GroupedMatmul, _grouped_mm and others): Rows = rows of their first input, and a "
        "layer has several of them. Layer = the innermost module that calls them; where modules "
        "are not recorded, the number among those of the group in the step, in order; "
        f"{ALL} = whole group. Load = Rows / mean Rows of the ranks read: 100 = even.",
        f"{_NEEDS}; or grouped products with shapes",
        Column.parse("Rank, Source:text, Group:text, Layer:text, Count, Rows, Load(%)"),
        _layer_facts,
        _layer_loads,
        capped=True,
    ),
)  # fmt: skip

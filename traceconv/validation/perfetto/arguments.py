"""Arguments of Perfetto slices, read from their packets when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from traceconv.protobuf import message as wire
from traceconv.protobuf.message import Field, Value
from traceconv.validation.decoded import Argument
from traceconv.validation.lenient import json_leaves
from traceconv.validation.perfetto.events import (
    CORRELATIONS,
    GPU,
    GPU_SPECIFICATIONS,
    NAMES,
    STRINGS,
    Generation,
    Shape,
)

MAX_DEPTH = 100
"""Arguments nested deeper than this are left out."""

Lookup = Callable[[int, int], str | None]
"""Table and id to text; None if it is not defined."""

_RENAMED = str.maketrans(".[]", "___")
_PLAIN = str.maketrans("", "")


def packet_arguments(packet: bytes, shape: Shape, renamed: bool) -> list[Argument]:
    """The arguments in an event's packet; ``renamed``: with the importer's own keys."""
    last, lookup = wire.last_values(packet), shape.generation.text
    if shape.kind == GPU:
        return list(_gpu_arguments(wire.whole_fields(last.get(53, b"")), shape.generation))
    found = wire.whole_fields(last.get(11, b""))
    of, table = list(_correlations(found, lookup)), _RENAMED if renamed else _PLAIN
    for annotation in (v for n, _, v in found if n == 4):
        fields = wire.whole_fields(annotation)
        name = _name(fields, lookup, table)
        if name is not None:
            of += _leaves(fields, f"debug.{name}", lookup, table, 0)
    return of


def _correlations(found: list[Field], lookup: Lookup) -> Iterator[Argument]:
    last = {n: v for n, _, v in found}
    number_ = f"tp:#{wire.number(last[52])}" if 52 in last else None
    named = (
        wire.text(last[53]) if 53 in last else lookup(CORRELATIONS, wire.number(last.get(54, 0)))
    )
    if number_ or named is not None:
        yield Argument("correlation_id", "string", number_ or named or "")
    for links in (wire.whole_fields(v) for n, _, v in found if n == 3000):
        for n, name in ((1, "submission"), (2, "wait")):
            for i, gpu in enumerate(wire.integers(links, n)):
                key = f"gpu_correlation.render_stage_{name}_event_ids[{i}]"
                yield Argument(key, "uint", gpu)


# -- annotations -------------------------------------------------------------------------------


def _name(found: list[Field], lookup: Lookup, table: dict[int, int]) -> str | None:
    """The name of an annotation; with the importer's characters if ``table`` says so."""
    last = {n: v for n, _, v in found if n in (1, 10)}
    if wire.number(last.get(1, 0)):
        name = lookup(NAMES, wire.number(last[1]))
    else:
        name = wire.text(last[10]) if 10 in last else None
    return name if name is None else name.translate(table)


def _leaves(
    found: list[Field], key: str, lookup: Lookup, table: dict[int, int], depth: int
) -> Iterator[Argument]:
    last = {n: v for n, _, v in found}
    if depth > MAX_DEPTH:
        return
    if 11 in last:
        for child in (wire.whole_fields(v) for n, _, v in found if n == 11):
            name = _name(child, lookup, table)
            if name is None:
                return
            yield from _leaves(child, f"{key}.{name}", lookup, table, depth + 1)
    elif 12 in last:
        index = 0
        for child in (wire.whole_fields(v) for n, _, v in found if n == 12):
            entries = list(_leaves(child, f"{key}[{index}]", lookup, table, depth + 1))
            yield from entries
            index += bool(entries)
    else:
        yield from _scalar(last, key, lookup)


def _scalar(last: dict[int, Value], key: str, lookup: Lookup) -> Iterator[Argument]:
    if 2 in last:
        yield Argument(key, "bool", bool(wire.number(last[2])))
    elif 3 in last:
        yield Argument(key, "uint", wire.number(last[3]))
    elif 4 in last:
        yield Argument(key, "int", wire.signed(last[4]))
    elif 5 in last:
        yield Argument(key, "real", wire.double(last[5]))
    elif 6 in last:
        yield Argument(key, "string", wire.text(last[6]))
    elif 17 in last:
        interned = lookup(STRINGS, wire.number(last[17]))
        if interned is not None:
            yield Argument(key, "string", interned)
    elif 7 in last:
        yield Argument(key, "pointer", f"{wire.number(last[7]):#x}")
    elif 9 in last:
        yield from json_leaves(wire.text(last[9]), key)[0]


# -- GPU events --------------------------------------------------------------------------------

_GPU_NUMBERS = (
    ("context_id", 5, "uint"),
    ("render_target", 8, "uint"),
    ("render_pass", 9, "uint"),
    ("command_buffer", 12, "uint"),
    ("submission_id", 10, "int"),
)


def _gpu_arguments(found: list[Field], generation: Generation) -> Iterator[Argument]:
    """The arguments the importer gives a GPU slice.

    Left out: launch dimensions, kernels, Vulkan object names, and the number of its process.
    """
    last = {n: v for n, _, v in found}
    entry = generation.entries.get((GPU_SPECIFICATIONS, wire.number(last.get(14, 0))))
    if entry is not None:
        spec = wire.last_values(entry)
        yield Argument("render_stage_category", "int", wire.number(spec.get(4, 0)))
        yield Argument("description", "string", wire.text(spec.get(3, b"")))
    for pair in (wire.last_values(v) for n, _, v in found if n == 6):
        yield Argument(wire.text(pair.get(1, b"")), "string", wire.text(pair.get(2, b"")))
    for name, n, kind in _GPU_NUMBERS:
        yield Argument(name, kind, wire.number(last.get(n, 0)))
    for name in ("render_target_name", "render_pass_name", "command_buffer_name"):
        yield Argument(name, "string", "")
    masks = enumerate(wire.integers(found, 15))
    bits = [str(64 * i + b) for i, mask in masks for b in range(64) if mask >> b & 1]
    yield Argument("render_subpasses", "string", ",".join(bits))
    yield Argument(
        "hw_queue_id", "uint", wire.number(last.get(13, 0)) or wire.number(last.get(3, 0))
    )

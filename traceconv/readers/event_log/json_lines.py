"""JSON lines as columns of text: one object per line, numbers as they are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from traceconv.readers.event_log.mapping import Bound
from traceconv.readers.event_log.records import (
    Batch,
    Layout,
    Mine,
    batched,
    constants,
    fixed_members,
    members,
    objects,
    picked,
)
from traceconv.readers.shared.arguments import quoted
from traceconv.readers.shared.lines import BROKEN, OBJECT, Lines, Report, text

Record = dict[str, msgspec.Raw]

_NULL = msgspec.Raw(b"null")


def batches(lines: Lines, layout: Layout, report: Report) -> Iterator[Batch]:
    """The records of a log, those of the wanted rank only."""
    for numbers, kept in batched(_wanted(lines, layout, report)):
        yield _batch(numbers, kept, layout)


def _wanted(lines: Lines, layout: Layout, report: Report) -> Iterator[tuple[int, Record]]:
    rank = layout.binding.column("rank")
    key = rank.column if rank and layout.by_rank else None
    mine = Mine(layout)
    for number, line in _bodies(lines, layout):
        try:
            record = OBJECT.decode(line)
        except BROKEN as e:
            _damaged(lines, number, e, report)
            continue
        if key is None or mine[text(record.get(key, _NULL))]:
            yield number, record


def rank_texts(lines: Lines, layout: Layout, report: Report) -> Iterator[tuple[int, str]]:
    """Line number and rank of every record, as it is written."""
    rank = layout.binding.column("rank")
    assert rank is not None
    ranked = msgspec.defstruct(
        "Ranked", [("rank", msgspec.Raw, _NULL)], rename={"rank": rank.column}
    )
    decoder = msgspec.json.Decoder(ranked)
    for number, line in _bodies(lines, layout):
        try:
            record = decoder.decode(line)
        except BROKEN as e:
            _damaged(lines, number, e, report)
        else:
            yield number, text(record.rank)  # type: ignore[attr-defined]


def _bodies(lines: Lines, layout: Layout) -> Iterator[tuple[int, str]]:
    for number, line in lines.numbered():
        if number > layout.body and not line.startswith(layout.comment):
            yield number, line


def _damaged(lines: Lines, number: int, error: Exception, report: Report) -> None:
    cut = number == lines.unended and "truncated" in str(error)
    report("truncated" if cut else "malformed-record", f"line {number}: {str(error)[:80]}")


def _texts(raws: Sequence[msgspec.Raw]) -> Sequence[str]:
    joined = b"\n".join(raws)
    if b'"' not in joined and b"null" not in joined:
        return joined.decode().split("\n")
    each = joined.split(b"\n")  # a record is one line, so no value has a line end in it
    known = {raw: text(raw) for raw in set(each)}
    return [known[raw] for raw in each]


# -- records to columns ---------------------------------------------------------------------


def _batch(numbers: list[int], kept: list[Record], layout: Layout) -> Batch:
    binding = layout.binding
    present = set().union(*kept)
    columns: dict[str, Sequence[str]] = {}
    parts: list[Sequence[bytes]] = []
    for one in binding.found:
        if one.column not in present:
            continue
        raws = [record.get(one.column, _NULL) for record in kept]
        if one.target == "args":
            parts.append([_inner(bytes(raw)) for raw in raws])
        elif one.target == "bytes" or one.target.startswith("args."):
            parts.append(_members(one, raws))
        else:
            columns[one.target] = picked(_texts(raws), one)
    parts += fixed_members(binding, len(kept))
    rest = present - {b.column for b in binding.found} - binding.ignored
    if rest:
        heads = {key: quoted(key) + b":" for key in rest}
        parts.append([_rest(record, heads) for record in kept])
    columns.update(constants(binding, len(kept)))
    return Batch(numbers, columns, objects(parts, len(kept)))


def _members(one: Bound, raws: Sequence[msgspec.Raw]) -> list[bytes]:
    key = one.target.removeprefix("args.")
    if one.regex is not None:
        return members(key, picked(_texts(raws), one))
    head = quoted(key) + b":"
    return [b"" if raw == b"null" else head + raw for raw in map(bytes, raws)]


def _inner(raw: bytes) -> bytes:
    """The members of an argument object; any other value stands under "args"."""
    if raw[:1] == b"{":
        return raw[1:-1].strip()
    return b"" if raw == b"null" else b'"args":' + raw


def _rest(record: Record, heads: Mapping[str, bytes]) -> bytes:
    """The fields the mapping does not speak of, as members."""
    return b",".join([heads[k] + bytes(raw) for k, raw in record.items() if k in heads])

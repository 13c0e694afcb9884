"""What ranges of NVTX carry besides their name: a number, or the payload of NCCL.

``nvtxEventAttributes_t`` holds one number, which the export writes to the column of its type.
NCCL says of every call its communicator, the bytes of the message, the peer. An export holds this
where it was made with ``--include-blobs`` (``binaryData``) or ``--include-json`` (``jsonText``).
A blob is a head of 32 bytes - domain (u32), 4 spare, schema (u32), 4 spare, size of the payload
(u64), size of all (u64) - and the payload, whose fields are where the schema's entries say. All
is little-endian. No sample at hand holds payloads: one holds their schemas, the head is as
others describe it for 2026, and the JSON is taken to have the entries' names as its keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from traceconv.core.model import I32, I64
from traceconv.readers.shared.arguments import lookup
from traceconv.readers.shared.layouts import TableRows
from traceconv.readers.shared.sqlite.database import Database

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEAD_BYTES = 32

INTEGERS = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "i8", 8: "u8", 9: "i8", 10: "u8",
    11: "i1", 12: "u1", 13: "i2", 14: "u2", 15: "i4", 16: "u4", 17: "i8", 18: "u8", 22: "u8",
}  # fmt: skip
"""Types of entries that are whole numbers, as numpy spells them."""

_FIRST_OWN = 1 << 24
"""Types from here on are schemas and enumerations; the latter are as wide as an int of C."""

COMMUNICATOR, BYTES, RANK, RANKS = "communicator", "bytes", "rank", "ranks"
PAYLOAD = "payload"
KEYS = {
    "NCCL communicator ID": COMMUNICATOR,
    "Message size [bytes]": BYTES,
    "No. of ranks": RANKS,
    "Rank": RANK,
    "CUDA device": "device",
    "Peer rank": "peer",
    "Root": "root",
    "Reduction operation": "reduction",
}
"""How entries of NCCL are called here; other entries keep their names."""


_NO_INTEGER = int(np.iinfo(np.int64).min)
NUMBERS = {
    **dict.fromkeys(("uint64Value", "int64Value", "uint32Value", "int32Value"), _NO_INTEGER),
    **dict.fromkeys(("doubleValue", "floatValue"), float("nan")),
}
"""Columns of NVTX_EVENTS with the number of a range, by type, and the value for none."""


@dataclass(frozen=True)
class Group:
    """Ranges whose payloads have the same fields.

    Attributes:
        at:     their positions among the rows that were asked for.
        values: by key: int64, uint64 or float64, one per position.
    """

    at: I64
    values: Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Ranges:
    """The ranges of a process.

    Attributes:
        rows:     columns thread, start, end, domain.
        name:     string ids.
        payloads: what some of them carry, by position among ``rows``.
    """

    rows: TableRows
    name: I32
    payloads: Sequence[Group]


@dataclass(frozen=True)
class Schema:
    """One kind of payload.

    Attributes:
        fields: by key: where it begins, and its type.
        size:   bytes, at least.
    """

    fields: dict[str, tuple[int, np.dtype[Any]]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of the payload up to the end of the last field."""
        return max((offset + kind.itemsize for offset, kind in self.fields.values()), default=0)


def schemas(database: Database) -> dict[tuple[int, int], Schema]:
    """The schemas of the payloads of a report, by domain and number.

    Every process of a report repeats them; the first counts.
    """
    by_number: dict[tuple[int, int], Schema] = {}
    for domain, number, kind, name, offset in database.rows(
        "NVTX_PAYLOAD_SCHEMA_ENTRIES", "domainId", "schemaId", "type", "name", "offset"
    ):
        if not isinstance(kind, int) or not isinstance(name, str):
            continue
        code = "i4" if kind >= _FIRST_OWN else INTEGERS.get(kind)
        place = 0 if offset is None else offset
        if code and isinstance(place, int) and 0 <= place < 1 << 16:
            fields = by_number.setdefault((domain, number), Schema()).fields
            fields.setdefault(KEYS.get(name, name), (place, np.dtype("<" + code)))
    return by_number


def payloads(database: Database, only: I64) -> tuple[list[Group], int]:
    """The payloads of some rows of NVTX_EVENTS, and how many cannot be read.

    Args:
        only: numbers of rows; in a damaged table they are in any order.
    """
    if not len(only):  # each looks at all rows of the table
        return [], 0
    groups, bad = _binary(database, only)
    text_groups, worse = _spelled(database, only)
    return [*_single_numbers(database, only), *groups, *text_groups], bad + worse


def _single_numbers(database: Database, only: I64) -> list[Group]:
    """The number of each range that has one, as :data:`PAYLOAD`."""
    typed = {name: none for name, none in NUMBERS.items() if database.has("NVTX_EVENTS", name)}
    if not typed:
        return []
    columns = database.columns("NVTX_EVENTS", {"rowid": -1, **typed})
    at = lookup(columns["rowid"], only)
    groups = []
    for name, none in typed.items():
        numbers = columns[name][at]
        recorded = np.flatnonzero((at >= 0) & (numbers == numbers) & (numbers != none))
        unsigned = name == "uint64Value"
        values = numbers[recorded].astype(np.uint64) if unsigned else numbers[recorded]
        groups.append(Group(recorded, {PAYLOAD: values}))
    return groups


def _binary(database: Database, only: I64) -> tuple[list[Group], int]:
    known_schemas = schemas(database)
    blobs = _by_position(
        database.blobs("NVTX_EVENTS", "rowid", "binaryData") if known_schemas else {}, only
    )
    by_length: dict[int, list[int]] = {}
    for position, blob in blobs.items():
        by_length.setdefault(len(blob), []).append(position)
    groups, bad = [], len(blobs)
    for length, places in by_length.items():
        if length < HEAD_BYTES:
            continue
        raw = np.frombuffer(b"".join(blobs[position] for position in places), np.uint8).reshape(
            -1, length
        )
        head = np.stack([_column(raw, offset, np.dtype("<u4")) for offset in (0, 8)], axis=1)
        short = _column(raw, 16, np.dtype("<u8")) > length - HEAD_BYTES
        for domain, number in np.unique(head, axis=0).tolist():
            schema = known_schemas.get((domain, number))
            if not schema or schema.size > length - HEAD_BYTES:
                continue
            of_schema = np.flatnonzero((head == (domain, number)).all(axis=1) & ~short)
            values = {
                key: _column(raw[of_schema], HEAD_BYTES + offset, kind)
                for key, (offset, kind) in schema.fields.items()
            }
            groups.append(Group(np.array(places, np.int64)[of_schema], values))
            bad -= len(of_schema)
    return groups, bad


def _column(raw: NDArray[np.uint8], offset: int, kind: np.dtype[Any]) -> NDArray[Any]:
    """The numbers at an offset of every record, as wide as their kind allows."""
    numbers = np.ascontiguousarray(raw[:, offset : offset + kind.itemsize]).view(kind)[:, 0]
    return numbers.astype(np.uint64 if kind == np.dtype("<u8") else np.int64)


def _spelled(database: Database, only: I64) -> tuple[list[Group], int]:
    """Payloads in JSON; members other than those of NCCL are left out."""
    blobs = _by_position(database.blobs("NVTX_EVENTS", "rowid", "jsonText"), only)
    by_keys: dict[tuple[str, ...], list[tuple[int, dict[str, int]]]] = {}
    bad = 0
    for position, text in blobs.items():
        members = _members(text)
        bad += members is None
        if members:
            by_keys.setdefault(tuple(sorted(members)), []).append((position, members))
    return [
        Group(
            np.array([position for position, _ in payload_members], np.int64),
            {
                key: np.array([members[key] for _, members in payload_members], np.uint64)
                for key in keys
            },
        )
        for keys, payload_members in by_keys.items()
    ], bad


def _by_position(by_row_number: dict[int, bytes], rows: I64) -> dict[int, bytes]:
    """What belongs to some rows, by position among them; of a number that is there twice, the
    first."""
    keys = np.fromiter(by_row_number, np.int64, len(by_row_number))
    keys, order = keys[np.isin(keys, rows)], np.argsort(rows, kind="stable")
    positions = order[np.searchsorted(rows, keys, sorter=order)] if len(keys) else keys
    return {
        position: by_row_number[key]
        for position, key in zip(positions.tolist(), keys.tolist(), strict=True)
    }


def _members(text: bytes) -> dict[str, int] | None:
    """The values of NCCL in a JSON payload; None if it is not a JSON object."""
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(decoded, dict):
        return None
    return {
        KEYS[key]: value
        for key, value in decoded.items()
        if key in KEYS and type(value) is int and 0 <= value < 1 << 64
    }

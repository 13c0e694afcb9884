"""Records of a log on their way to columns: what table rows and JSON lines have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from traceconv.readers.event_log.mapping import Binding, Bound
from traceconv.readers.shared.arguments import quoted
from traceconv.readers.shared.lines import BROKEN, OBJECT
from traceconv.readers.shared.numbers import ABSENT, UNREADABLE, whole

BATCH_RECORDS = 32768
"""So many records are turned into columns at a time."""

_JSON_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_MAX_NUMBER = 40  # characters; anything longer is no number people mean


_Record = TypeVar("_Record")


def batched(
    records: Iterable[tuple[int, _Record]],
) -> Iterator[tuple[list[int], list[_Record]]]:
    """Line numbers and records, :data:`BATCH_RECORDS` of them at a time."""
    records = iter(records)
    while some := list(islice(records, BATCH_RECORDS)):
        yield [number for number, _ in some], [record for _, record in some]


@dataclass(frozen=True)
class Layout:
    """How one log is laid out, and which of its records are wanted.

    Attributes:
        log:       name of the mapping that fits.
        binding:   where the fields are.
        units:     of "ts", "dur" and "end".
        settings:  what the head of the log and the mapping say: clock, rank, host.
        columns:   header of a table; () for JSON lines.
        delimiter: of a table; "" for JSON lines.
        body:      number of the last line of the head; records begin behind it.
        by_rank:   only records of ``rank`` are taken. Damage was booked when ranks were looked
            for, so that it is not counted once per rank.
        otherwise: the rank of records that name none.
    """

    log: str
    binding: Binding
    units: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    delimiter: str = ""
    body: int = 0
    by_rank: bool = False
    rank: int | None = None
    otherwise: int | None = None

    @property
    def comment(self) -> str:
        """What lines begin with that hold no record."""
        return self.settings.get("comment", "#")


@dataclass
class Batch:
    """Some records as columns of text.

    Attributes:
        lines:   line number of each record.
        columns: target -> text per record, "" for none; targets no record has are missing.
        args:    JSON object per record, b"" for none.
        broken_args: line numbers of arguments that are not JSON; these are kept as text.
    """

    lines: list[int]
    columns: dict[str, Sequence[str]]
    args: list[bytes]
    broken_args: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lines)


class Mine(dict[str, bool]):
    """Whether a record is wanted, by its rank as it is written."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self._layout, self._bound = layout, layout.binding.column("rank")

    def __missing__(self, text: str) -> bool:
        rank = rank_of(text, self._bound)
        found = self._layout.otherwise if rank == ABSENT else rank
        mine = self[text] = rank != UNREADABLE and found == self._layout.rank
        return mine


def rank_of(text: str, rank: Bound | None) -> int:
    """The rank a cell spells; ABSENT or UNREADABLE where it spells none."""
    return int(whole(picked([text], rank))[0]) if rank else ABSENT


def picked(texts: Sequence[str], where: Bound) -> Sequence[str]:
    """The part of each text that the mapping asks for."""
    if where.regex is None:
        return texts
    known = {text: _first_group(where.regex, text) for text in set(texts)}
    return [known[text] for text in texts]


def _first_group(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return (match[1] or "") if match else ""


def members(key: str, texts: Sequence[str]) -> list[bytes]:
    """``"key":value`` for each text; b"" for empty ones. Numbers stay numbers."""
    head = quoted(key) + b":"
    known = {text: head + _json(text) if text else b"" for text in set(texts)}
    return [known[text] for text in texts]


def _json(text: str) -> bytes:
    if len(text) <= _MAX_NUMBER and _JSON_NUMBER.fullmatch(text):
        return text.encode()
    return quoted(text)


def inner(raw: bytes) -> bytes:
    """The members of a JSON object that is written as ``raw``, without its braces.

    Raises:
        ValueError: it is no JSON object.
    """
    try:
        OBJECT.decode(raw)
    except BROKEN as e:
        raise ValueError(str(e)) from e
    return raw.strip()[1:-1].strip()


def objects(parts: Sequence[Sequence[bytes]], count: int) -> list[bytes]:
    """One JSON object per record of its members, b"" where there are none."""
    if not parts:
        return [b""] * count
    joined = (b",".join(filter(None, row)) for row in zip(*parts, strict=True))
    return [b"{" + row + b"}" if row else b"" for row in joined]


def constants(binding: Binding, count: int) -> dict[str, Sequence[str]]:
    """The columns that are the same for every record."""
    return {
        target: [text] * count
        for target, text in binding.constants.items()
        if not target.startswith("args.")
    }


def fixed_members(binding: Binding, count: int) -> list[Any]:
    """Arguments that are the same for every record."""
    return [
        members(target.removeprefix("args."), [text]) * count
        for target, text in binding.constants.items()
        if target.startswith("args.")
    ]

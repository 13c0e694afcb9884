"""Ranges and marks of NVTX, on their threads, a lane per domain.

Names are written in the row or, by number, in StringIds. PyTorch's ``emit_nvtx`` writes numbers and
sizes behind the name of an operator ("aten::mul, op_id = 12, seq = 3, sizes = [[8, 8]]"): these
become arguments, so that equal operators have equal names. NCCL's ranges carry payloads, see
:mod:`traceconv.readers.nsight.payloads`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traceconv.core.model import I32, Kind, Layer, OpClass
from traceconv.core.ordering import distinct, factored, factored_rows
from traceconv.core.patterns import lazy_regex
from traceconv.readers.nsight.payloads import COMMUNICATOR, Group, payloads
from traceconv.readers.nsight.processes import NVTX_THREAD_NAME
from traceconv.readers.nsight.report import NAMELESS, TIMES, Report
from traceconv.readers.shared.arguments import quoted, register
from traceconv.readers.shared.gpu_kernels import step_number
from traceconv.readers.shared.sqlite.database import Column

MARK, PUSH_POP, START_END, DOMAIN = 34, 59, 60, 75
RANGES = (PUSH_POP, START_END, 70)
MARKS = (MARK, 71)

TABLE = "NVTX_EVENTS"

_NO_SCOPES = {"NVTX NCCL", "NVTX MPI"}
"""Lanes of libraries whose device work has lanes of its own, or who have none."""

_DETAIL = lazy_regex(
    r", (op_id|seq|sizes|input_op_ids) = ([0-9]+|\[.*?\](?=, (?:op_id|seq|input_op_ids) = |\Z))"
)
_NUMBER = lazy_regex(r"0|[1-9][0-9]{0,17}")

_AT_ONCE = 1 << 12
"""Ranges whose texts are in memory at a time: most have one of their own."""

_LONG = 4096
"""Longer names are taken as they are."""


@dataclass(frozen=True)
class Ranges:
    """The ranges of a process.

    Attributes:
        rows:     columns of the table: start, end, globalTid, domainId, rowid.
        name:     string ids.
        payloads: what some of them carry, by position among ``rows``.
    """

    rows: Mapping[str, Column]
    name: I32
    payloads: Sequence[Group]


def nvtx(report: Report) -> Ranges:
    """Read them; ranges that name a step carry its number.

    A range that was still open when collection stopped is closed at the last stamp of the table.
    """
    requested = {**TIMES, "eventType": 0, "textId": -1, "domainId": 0, "rowid": -1}
    rows = report.rows(TABLE, requested, "globalTid")
    span, mark = np.isin(rows["eventType"], RANGES), np.isin(rows["eventType"], MARKS)
    other = ~span & ~mark & (rows["eventType"] != NVTX_THREAD_NAME)
    report.build.skip("metadata-unused", f"table {TABLE}", int(other.sum()))
    last = int(max(rows["end"].max(initial=0), rows["start"].max(initial=0)))
    open_ = span & (rows["end"] < 0)
    report.build.skip("unfinished-slice", f"table {TABLE}", int(open_.sum()))
    rows["end"][open_] = last
    domains = _domains(report, rows)
    ranges = _added(report, {k: c[span] for k, c in rows.items()}, domains, Kind.SLICE)
    _added(report, {k: c[mark] for k, c in rows.items()}, domains, Kind.INSTANT)
    lanes = {_heading(d, domains) for d in distinct(rows["domainId"][span]).tolist()}
    report.build.hints.range_lanes = sorted(lanes - _NO_SCOPES)
    return ranges


def _added(
    report: Report, rows: dict[str, Column], domains: Mapping[int, str], kind: Kind
) -> Ranges:
    """Put ranges or marks into the trace."""
    rows, dur = report.timed(rows, TABLE, "slice" if kind is Kind.SLICE else "instant")
    names, detail = _named(report, rows)
    distinct, back = factored(names)
    strings = report.build.strings
    steps = np.array([step_number(strings[name]) for name in distinct.tolist()], np.int32)
    groups, bad = payloads(report.database, rows["rowid"])
    report.build.skip("malformed-record", f"payloads of table {TABLE}", bad)
    report.build.extend(
        track=_tracks(report, rows, domains),
        kind=kind,
        start_ns=rows["start"],
        dur_ns=dur if kind is Kind.SLICE else 0,
        name=names,
        op=OpClass.HOST,
        step=steps[back],
        args=_with_payloads(report, detail, groups),
    )
    return Ranges(rows, names, groups)


def _texts(report: Report, rows: Mapping[str, Column]) -> list[str]:
    """The name of every row."""
    inline = report.database.texts(TABLE, "rowid", "text", rows["rowid"])
    strings = report.strings(rows["textId"])
    return [
        inline.get(r) or strings.get(t, NAMELESS)
        for r, t in zip(rows["rowid"].tolist(), rows["textId"].tolist(), strict=True)
    ]


def _named(report: Report, rows: Mapping[str, Column]) -> tuple[I32, I32]:
    """Names and arguments of rows, as ids of the trace; a part of them is in memory at a time."""
    count = len(rows["rowid"])
    names, ids = np.empty(count, np.int32), np.empty(count, np.int32)
    for at in range(0, count, _AT_ONCE):
        part = slice(at, at + _AT_ONCE)
        codes: dict[str, int] = {}
        texts = _texts(report, {key: rows[key][part] for key in ("rowid", "textId")})
        code = np.array([codes.setdefault(text, len(codes)) for text in texts], np.int32)
        parsed = [*map(_split, codes)]
        named = np.array([report.build.string(name) for name, _ in parsed], np.int32)
        length = np.array([len(args) for _, args in parsed], np.int32)
        there = length > 0
        first = report.build.args_bytes(b"".join(args for _, args in parsed), length[there])
        own = np.where(there, first + np.cumsum(there) - 1, -1).astype(np.int32)
        names[part], ids[part] = named[code], own[code]
    return names, ids


def _split(text: str) -> tuple[str, bytes]:
    """As :func:`_parsed`, sooner where the two numbers of most operators are behind a name."""
    head, _, op_id = text.rpartition(", op_id = ")
    if not head or not _NUMBER.fullmatch(op_id) or len(text) > _LONG:
        return _parsed(text)
    name, _, seq = head.rpartition(", seq = ")
    numbered = bool(name and _NUMBER.fullmatch(seq))
    name = name if numbered else head
    if ", " in name:  # where there may be sizes
        return _parsed(text)
    return name, (f'{{"seq":{seq},' if numbered else "{").encode() + b'"op_id":%b}' % op_id.encode()


def _parsed(text: str) -> tuple[str, bytes]:
    """The name of an operator without what is appended to it, and that as arguments."""
    if ", " not in text or len(text) > _LONG:
        return text, b""
    found = list(_DETAIL.finditer(text))
    if not found or not found[0].start() or not _ends_with(text, found):
        return text, b""
    members = ",".join(f'"{key}":{_value(value)}' for key, value in (m.groups() for m in found))
    return text[: found[0].start()], f"{{{members}}}".encode()


def _ends_with(text: str, found: Sequence[re.Match[str]]) -> bool:
    """Whether the matches follow each other to the end."""
    return [m.start() for m in found[1:]] + [len(text)] == [m.end() for m in found]


def _value(text: str) -> str:
    """A number of usual length as it is, anything else as text."""
    return text if _NUMBER.fullmatch(text) else quoted(text).decode()


def _with_payloads(report: Report, args: I32, groups: Sequence[Group]) -> I32:
    """Arguments of rows, those of payloads where there are some."""
    for group in groups:
        values = {
            key: hexadecimal(v) if key == COMMUNICATOR else v for key, v in group.values.items()
        }
        args[group.at] = register(report.build, values)
    return args


def hexadecimal(ids: NDArray[np.uint64]) -> list[bytes]:
    """Ids of communicators as JSON: most are beyond what an int64 holds."""
    return [b'"0x%x"' % i for i in ids.tolist()]


def _domains(report: Report, rows: Mapping[str, Column]) -> dict[int, str]:
    """Names of the domains; the default one has none."""
    made = rows["eventType"] == DOMAIN
    texts = _texts(report, {k: c[made] for k, c in rows.items()})
    names = zip(rows["domainId"][made].tolist(), texts, strict=True)
    return {domain: "" if name == NAMELESS else name for domain, name in names}


def _heading(domain: int, domains: Mapping[int, str]) -> str:
    return f"NVTX {domains.get(domain, '')}".strip()


def _tracks(report: Report, rows: Mapping[str, Column], domains: Mapping[int, str]) -> I32:
    """A lane per thread and domain."""
    lanes, which = factored_rows(rows["globalTid"], rows["domainId"])
    tracks = [report.thread(tid, Layer.HOST, _heading(d, domains)) for tid, d in lanes]
    return np.array(tracks, np.int32)[which] if tracks else np.empty(0, np.int32)

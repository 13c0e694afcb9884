"""Ranges and markers of NVTX, on their threads, a track per domain.

Names are written in the row or, by number, in StringIds. PyTorch's ``emit_nvtx`` writes numbers and
sizes behind the name of an operator ("aten::mul, op_id = 12, seq = 3, sizes = [[8, 8]]"): these
become arguments, so that equal operators have equal names. NCCL's ranges carry payloads, see
:mod:`traceconv.readers.nsight.payloads`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

import numpy as np
from msgspec import structs

from traceconv.core.model import I32, Kind, TrackKind
from traceconv.core.patterns import lazy_regex
from traceconv.readers.nsight import tables
from traceconv.readers.nsight.payloads import COMMUNICATOR, PAYLOAD, Ranges, payloads
from traceconv.readers.nsight.processes import NVTX_THREAD_NAME
from traceconv.readers.nsight.report import Report
from traceconv.readers.shared.arguments import Values, quoted, register
from traceconv.readers.shared.layouts import TableRows, add_rows

MARK, PUSH_POP, START_END, DOMAIN = 34, 59, 60, 75
RANGES = (PUSH_POP, START_END, 70)
MARKS = (MARK, 71)

NAMELESS = "(no name)"

_DETAIL = lazy_regex(
    r", (op_id|seq|sizes|input_op_ids) = ([0-9]+|\[.*?\](?=, (?:op_id|seq|input_op_ids) = |\Z))"
)
_NUMBER = lazy_regex(r"0|[1-9][0-9]{0,17}")

_AT_ONCE = 1 << 12
"""Ranges whose texts are in memory at a time: most texts are different."""

_LONG = 4096
"""Longer names are taken as they are."""


def nvtx(report: Report) -> Ranges:
    """Read them; ranges that name a step carry its number.

    A range that was still open when collection stopped is closed at the last stamp of the table.
    """
    rows = report.rows(tables.NVTX)
    rows.columns["domain"] = np.maximum(rows["domain"], 0)
    kind = rows["type"]
    span, mark = np.isin(kind, RANGES), np.isin(kind, MARKS)
    unclassified = ~span & ~mark & (kind != NVTX_THREAD_NAME)
    report.build.skip("metadata-unused", rows.where, int(unclassified.sum()))
    last_ns = int(max(rows["end"].max(initial=0), rows["start"].max(initial=0)))
    unended = span & (rows["end"] < 0)
    report.build.skip("unfinished-slice", rows.where, int(unended.sum()))
    rows.columns["end"] = np.where(unended, last_ns, rows["end"])
    domain_rows = rows.take(rows["type"] == DOMAIN)
    names_by_domain = zip(domain_rows["domain"].tolist(), _texts(report, domain_rows), strict=True)
    domains = {domain: "" if name == NAMELESS else name for domain, name in names_by_domain}
    ranges = _added(report, rows.take(span), domains, Kind.SLICE)
    _added(report, rows.take(mark), domains, Kind.INSTANT)
    return ranges


def _added(report: Report, rows: TableRows, domains: Mapping[int, str], kind: Kind) -> Ranges:
    """Add ranges or markers, on a track per thread and domain."""
    names, detail = _names_and_args(report, rows)
    groups, bad = payloads(report.database, rows["rowid"])
    report.build.skip("malformed-record", f"payloads of {rows.where}", bad)
    for group in groups:
        values: dict[str, Values] = dict(group.values)
        if PAYLOAD in values and group.values[PAYLOAD].dtype.kind == "f":
            numbers = group.values[PAYLOAD].tolist()
            values[PAYLOAD] = [(repr(n) if isfinite(n) else f'"{n}"').encode() for n in numbers]
        if COMMUNICATOR in values:  # most are beyond what an int64 holds
            values[COMMUNICATOR] = [b'"0x%x"' % i for i in group.values[COMMUNICATOR].tolist()]
        detail[group.at] = register(report.build, values)
    strings = report.build.strings
    rows.columns["name"] = names
    rows.names["name"] = {i: strings[i] for i in np.unique(names).tolist()}
    added = np.full(len(rows), -1, np.int64)
    for domain in np.unique(rows["domain"]).tolist():
        name, of_domain = domains.get(domain, ""), np.flatnonzero(rows["domain"] == domain)
        track = {"kind": _KINDS.get(name, TrackKind.RANGES)}
        layout = structs.replace(tables.NVTX, kind=kind, title=f"NVTX {name}".strip(), track=track)
        added[of_domain] = add_rows(
            report.build, layout, rows.take(of_domain), args=detail[of_domain]
        )
    is_added = added >= 0
    if not is_added.all():
        rows, names = rows.take(is_added), names[is_added]
        groups, _ = payloads(report.database, rows["rowid"])
    return Ranges(rows, names, groups)


_KINDS = {"MPI": TrackKind.MESSAGES, "NCCL": TrackKind.OTHER}
"""Kinds of the tracks of domains; the work of NCCL is on tracks of the device."""


def _texts(report: Report, rows: TableRows) -> list[str]:
    """The name of every row."""
    inline = report.database.texts(tables.NVTX.table, "rowid", "text", rows["rowid"])
    strings = report.strings(np.unique(rows["name"][rows["name"] >= 0]))
    return [
        inline.get(r) or strings.get(t, NAMELESS)
        for r, t in zip(rows["rowid"].tolist(), rows["name"].tolist(), strict=True)
    ]


def _names_and_args(report: Report, rows: TableRows) -> tuple[I32, I32]:
    """Names and arguments of rows, as ids of the trace; a part of them is in memory at a time."""
    count = len(rows)
    names, ids = np.empty(count, np.int32), np.empty(count, np.int32)
    for begin in range(0, count, _AT_ONCE):
        chunk = np.arange(begin, min(begin + _AT_ONCE, count))
        codes: dict[str, int] = {}
        texts = _texts(report, rows.take(chunk))
        code = np.array([codes.setdefault(text, len(codes)) for text in texts], np.int32)
        split = [*map(parsed, codes)]
        name_ids = np.array([report.build.string(name) for name, _ in split], np.int32)
        length = np.array([len(args) for _, args in split], np.int32)
        has_args = length > 0
        first_id = report.build.args_bytes(b"".join(args for _, args in split), length[has_args])
        arg_ids = np.where(has_args, first_id + np.cumsum(has_args) - 1, -1).astype(np.int32)
        names[chunk], ids[chunk] = name_ids[code], arg_ids[code]
    return names, ids


def parsed(text: str) -> tuple[str, bytes]:
    """The name of an operator without what is appended to it, and that as arguments."""
    if ", " not in text or len(text) > _LONG:
        return text, b""
    matches = list(_DETAIL.finditer(text))
    starts = [match.start() for match in matches[1:]]
    if not matches or not matches[0].start() or [*starts, len(text)] != [m.end() for m in matches]:
        return text, b""  # matches that do not follow each other to the end
    members = b",".join(
        b'"%b":%b' % (key.encode(), value.encode() if _NUMBER.fullmatch(value) else quoted(value))
        for key, value in (match.groups() for match in matches)
    )
    return text[: matches[0].start()], b"{%b}" % members

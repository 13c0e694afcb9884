"""PyTorch flight recorder: the last collectives of every process group, dumped when a job hangs.

Written by: PyTorch 2.2 and newer; format 1.1 to 2.10 by its description, no file of a real run was
            at hand.
Files:      the JSON form only (``_dump_nccl_trace_json``), any name. The usual dump,
            ``nccl_trace_rank_<n>``, is a pickle: loading one runs whatever it holds, so it is
            refused with the way to get JSON.
Units and clock: ns, Unix time. Start and end are when the watchdog noticed them; where the length
            on the device is recorded (``duration_ms``) a collective is that long and ends when it
            was noticed to be complete, but does not begin before it was created.
Rank from:  "rank<n>" in the path; the dump does not name it.
Quirks:     a time that is not known is null, or 0 in JSON; what has not ended is what the dump is
            about: it is closed at the last stamp of the dump (golden case ``hang``).
Ignored:    stack frames, as they hold paths of the user; the state of the communicators.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import msgspec

from traceconv.build import TraceBuilder
from traceconv.clock import Anchor, Domain, to_ns
from traceconv.errors import ClockError, Issues, MalformedInputError
from traceconv.model import Capture, Layer, OpClass
from traceconv.readers._argtable import quoted
from traceconv.readers._event_log_records import BROKEN, rank_in_path, text
from traceconv.readers._event_log_slices import Slices
from traceconv.source import Source

_SIGNS = ((b'"profiling_name"', b'"time_created_ns"'), (b'"pg_status"', b'"pg_config"'))
_PICKLE_SIGNS = (b"pg_config", b"nccl_version", b"profiling_name")
_GAP = re.compile(r"[\s,]*")
_ENTRIES = re.compile(rb'"entries"\s*:\s*\[')

_CREATED, _STARTED, _COMPLETED = (
    "time_created_ns",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
)
_NOT_ARGUMENTS = {"profiling_name", "frames", _CREATED, _STARTED, _COMPLETED}

Entry = dict[str, msgspec.Raw]


class _Dump(msgspec.Struct):
    entries: list[Entry] = []
    version: str = ""
    nccl_version: str = ""


_DUMP = msgspec.json.Decoder(_Dump)
_ENTRY = msgspec.json.Decoder(Entry)


class FlightRecorderReader:
    """Reads JSON dumps of the flight recorder."""

    name = "flight_recorder"
    title = "PyTorch flight recorder, JSON dump"
    files = "nccl_trace_rank_<n>.json (any name)"
    order = 330

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per dump."""
        found = []
        for name in names:
            head = source.head(name)
            if head.startswith(b"\x80") and any(sign in head for sign in _PICKLE_SIGNS):
                if f"{name}.json" not in names:
                    _refuse_pickle(source.title(name))
            elif _is_dump(head):
                found.append(_capture(source, name))
        return found

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Every collective of a dump; see :class:`traceconv.readers.Reader`."""
        title = capture.source.title(capture.files[0])
        build.file = title
        raw = capture.source.read(capture.files[0]).removeprefix(b"\xef\xbb\xbf")
        try:
            dump = _DUMP.decode(raw)
        except BROKEN as e:
            dump = _Dump(list(_salvaged(raw)))
            if not dump.entries:
                raise MalformedInputError(title, "", f"nothing can be read: {e}") from e
            cut = "truncated" in str(e)
            build.skip("truncated" if cut else "malformed-record", str(e)[:80])
        _place(build, dump.entries)
        facts = {"version": dump.version, "nccl_version": dump.nccl_version}
        build.notes["flight_recorder"] = facts


def _is_dump(head: bytes) -> bool:
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    signed = any(all(word in head for word in words) for words in _SIGNS)
    return start == b"{" and signed and b'"traceEvents"' not in head


def _refuse_pickle(title: str) -> None:
    """Say how to get a dump that can be read.

    Raises:
        MalformedInputError: always.
    """
    raise MalformedInputError(
        title,
        "",
        "a pickled flight recorder dump; loading a pickle runs whatever it holds, so it is not "
        "read. Re-dump as JSON, in the job: "
        "torch._C._distributed_c10d._dump_nccl_trace_json()",
    )


def _capture(source: Source, name: str) -> Capture:
    title = source.title(name)
    rank = rank_in_path(title)
    return Capture(
        reader=FlightRecorderReader.name,
        source=source,
        files=(name,),
        rank=rank,
        rank_from="name" if rank is not None else "",
        clock=Anchor(Domain.UNIX, evidence="Unix time stamps"),
        label=title,
    )


def _salvaged(raw: bytes) -> Iterator[Entry]:
    """The entries of a dump that is cut off or damaged, up to the damage."""
    match = _ENTRIES.search(raw)
    if match is None:
        return
    rest = raw[match.end() :].decode(errors="replace")
    scan, at = json.JSONDecoder(parse_int=len, parse_float=len).raw_decode, 0
    while at < len(rest):
        at = _GAP.match(rest, at).end()  # type: ignore[union-attr]
        try:
            _, end = scan(rest, at)
            yield _ENTRY.decode(rest[at:end])
        except (*BROKEN, ValueError):
            return
        at = end


# -- collectives ----------------------------------------------------------------------------


def _place(build: TraceBuilder, entries: Sequence[Entry]) -> None:
    """Put the collectives on a lane per process group."""
    slices = Slices(build)
    last = max((_ns(e, key) for e in entries for key in (_CREATED, _COMPLETED)), default=0)
    for number, entry in enumerate(entries):
        where = f"entry {number}"
        span = _span(build, entry, where, last)
        if span is None:
            build.seen("slice")
            build.skip("bad-time", where, kind="slice")
        elif span[1] < span[0]:
            build.seen("slice")
            build.skip("negative-duration", where, kind="slice")
        else:
            name = text(entry.get("profiling_name", b"")) or "(no name)"
            args = _arguments(entry, unfinished=not _ns(entry, _COMPLETED))
            slices.add(_track(build, entry, name), span[0], span[1] - span[0], name, _COMM, args)
    slices.flush()


_COMM = OpClass.COMM


def _span(build: TraceBuilder, entry: Entry, where: str, last: int) -> tuple[int, int] | None:
    """Start and end of a collective; None if no time is known."""
    created, started, completed = (_ns(entry, k) for k in (_CREATED, _STARTED, _COMPLETED))
    if not (created or started):
        return None
    if not completed:
        build.skip("unfinished-slice", where)
        return started or created, last
    length = _ns(entry, "duration_ms", "ms")
    if length:
        return max(completed - length, created), completed
    if not started:
        build.skip("time-estimated", where)
    return started or created, completed


def _ns(entry: Entry, key: str, unit: str = "ns") -> int:
    """A time; 0 where it is missing, null or no time."""
    try:
        return max(to_ns(text(entry.get(key, b"0")) or "0", unit), 0)
    except ClockError:
        return 0


def _track(build: TraceBuilder, entry: Entry, name: str) -> int:
    library, colon, _ = name.partition(":")
    title = library.upper() if colon else "NCCL"
    return build.track(Layer.COMM, _group(entry), title=title)


def _group(entry: Entry) -> str:
    """The process group: its name and what it is for."""
    try:
        said = msgspec.json.decode(entry.get("process_group", b"[]"))
    except BROKEN:
        said = []
    words = [str(word) for word in said] if isinstance(said, list) else [str(said)]
    name = words[0] if words else text(entry.get("pg_id", b""))
    return f"Group {name}" + (f" ({words[1]})" if len(words) > 1 and words[1] else "")


def _arguments(entry: Entry, unfinished: bool) -> bytes:
    members = [
        quoted(key) + b":" + bytes(raw)
        for key, raw in entry.items()
        if key not in _NOT_ARGUMENTS and bytes(raw) != b"null"
    ]
    if unfinished:
        members.append(b'"unfinished":true')
    return b"{" + b",".join(members) + b"}"


READER = FlightRecorderReader()

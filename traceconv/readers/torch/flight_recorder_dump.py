"""Dumps of PyTorch's flight recorder: their collectives as slices."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import Anchor, Domain, to_ns
from traceconv.core.errors import ClockError, MalformedInputError
from traceconv.core.job_shape import Placement, parallel_groups
from traceconv.core.json_text import NOT_JSON
from traceconv.core.model import Capture, Kind, Layer, OpClass
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import Source
from traceconv.readers.shared.arguments import quoted
from traceconv.readers.shared.lines import Slices, rank_in_path, text
from traceconv.readers.torch.kineto.header import members_of
from traceconv.readers.torch.plain_pickle import Cut, Refused, json_text, label, load

_OBJECT = lazy_regex(r'\{\s*"')
_WASTE, _NESTED = 16, 2000
"""Damaged text is scanned at most this many times its length; bytes counted for an error without a
position."""

_ENTRIES = lazy_regex(rb'"entries"\s*:\s*\[')

_CREATED, _STARTED, _COMPLETED = (
    "time_created_ns",
    "time_discovered_started_ns",
    "time_discovered_completed_ns",
)
_PICKLE = b"\x80"
_AFTER_PREFIX = lazy_regex(r"(?<!\d)\d{1,6}\Z")
"""The recorder appends the rank to the path in ``TORCH_NCCL_DEBUG_INFO_TEMP_FILE``."""

_CONFIG = lazy_regex(rb'(?<!\\)"pg_config"\s*+:\s*+\{')
_WORLD = "default_pg"
_LONGEST = 16 << 20
"""Bytes of a dump that are searched for its groups; a buffer of the default length takes 2 MB."""

_NOT_ARGUMENTS = {"profiling_name", "frames", _CREATED, _STARTED, _COMPLETED}
_FRAMES = 64  # of a stack that are kept, without the folders of files

Entry = dict[str, msgspec.Raw]


class _Dump(msgspec.Struct):
    entries: list[Entry] = []
    pg_config: Any = None
    version: str = ""
    nccl_version: str = ""


_DUMP = msgspec.json.Decoder(_Dump)
_USED = frozenset(_Dump.__struct_fields__)
_KEYS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRY = msgspec.json.Decoder(Entry)


def capture_of(source: Source, name: str) -> Capture:
    """The capture that a dump is."""
    title = source.title(name)
    rank = rank_in_path(title)
    if rank is None and (match := _AFTER_PREFIX.search(title)):
        rank = int(match[0])
    groups = list(_groups(source.head(name, _LONGEST)))
    world = max((len(ranks or ()) for group, _, ranks in groups if group == _WORLD), default=-1)
    return Capture(
        reader="flight_recorder",
        source=source,
        files=(name,),
        rank=rank,
        rank_from="name" if rank is not None else "",
        clock=Anchor(Domain.UNIX, evidence="Unix time stamps"),
        label=title,
        world_size=world or -1,
        placement=Placement(parallel_groups(groups, world, "flight recorder: pg_config")),
    )


def _groups(raw: bytes) -> Iterator[tuple[str, int, list[int] | None]]:
    """What ``pg_config`` lists: what each group is for, no size, and its ranks."""
    config: object = None
    if raw.startswith(_PICKLE):
        try:
            value = load(raw)
        except (Cut, Refused):
            return
        config = value.get("pg_config") if isinstance(value, dict) else None
    elif members := list(
        _CONFIG.finditer(raw)
    ):  # of the members of a dump it comes after the entries
        text_ = raw[members[-1].end() - 1 :].decode("utf-8", "replace")
        try:
            config, _ = json.JSONDecoder().raw_decode(text_)
        except (ValueError, RecursionError):
            return
    for group in config.values() if isinstance(config, dict) else ():
        if isinstance(group, dict) and isinstance(group.get("desc"), str):
            yield group["desc"], -1, members_of(group.get("ranks"))


def read_dump(capture: Capture, build: TraceBuilder) -> None:
    """Put every collective of a dump into ``build``.

    Raises:
        MalformedInputError: not one can be read.
    """
    title = capture.source.title(capture.files[0])
    build.file = title
    raw = capture.source.read(capture.files[0]).removeprefix(b"\xef\xbb\xbf")
    dump = _unpickled(raw, build) if raw.startswith(_PICKLE) else _decoded(raw, build)
    _add_collectives(build, dump)
    facts = {"version": dump.version, "nccl_version": dump.nccl_version}
    build.notes["flight_recorder"] = facts


def _decoded(raw: bytes, build: TraceBuilder) -> _Dump:
    """A dump in JSON.

    Raises:
        MalformedInputError: not one entry can be read.
    """
    try:
        dump = _DUMP.decode(raw)
        build.skip_keys(_KEYS.decode(raw).keys() - _USED)
    except NOT_JSON as e:
        dump = _Dump(list(_salvaged(raw)))
        if not dump.entries:
            raise MalformedInputError(build.file, "", f"nothing can be read: {e}") from e
        cut = "truncated" in str(e)
        build.skip("truncated" if cut else "malformed-record", str(e)[:80])
        if not cut and not raw.rstrip().endswith(b"}"):
            build.skip("truncated", f"byte {len(raw)}")
    try:
        raw.decode()
    except UnicodeDecodeError as e:
        build.skip("bad-encoding", f"byte {e.start}")
    return dump


def _unpickled(raw: bytes, build: TraceBuilder) -> _Dump:
    """A dump of the usual form: the same keys, in a pickle of plain values.

    Raises:
        MalformedInputError: it holds other values, or nothing of it can be read.
    """
    try:
        value = load(raw)
    except Cut as e:
        values = [
            value_read for v in e.values for value_read in (v if isinstance(v, list) else [v])
        ]
        value = {
            "entries": [
                value_read
                for value_read in values
                if isinstance(value_read, dict) and _CREATED in value_read
            ]
        }
        if not value["entries"]:
            raise MalformedInputError(build.file, "", f"nothing can be read: {e}") from e
        build.skip("truncated", str(e))
    except Refused as e:
        raise MalformedInputError(
            build.file,
            "",
            f"{e}. For a dump that can be read, call in the job: "
            "torch._C._distributed_c10d._dump_nccl_trace_json()",
        ) from e
    members_of_dump = value if isinstance(value, dict) else {}
    build.skip_keys(set(map(str, members_of_dump)) - _USED)
    listed = members_of_dump.get("entries")
    entries = []
    for number, entry in enumerate(listed if isinstance(listed, list) else []):
        if not isinstance(entry, dict):
            build.skip("malformed-record", f"entry {number}")
            continue
        shown_keys = (key for key in entry if key != "frames" or entry.get(_COMPLETED) is None)
        members = {str(key): json_text(entry[key]) for key in shown_keys}
        lost = [key for key, text_ in members.items() if text_ is None]
        build.skip("malformed-record", f"entry {number}: {', '.join(lost)}"[:80], len(lost))
        entries.append({k: msgspec.Raw(v) for k, v in members.items() if v is not None})
    versions = (label(members_of_dump.get(key, "")) for key in ("version", "nccl_version"))
    return _Dump(entries, members_of_dump.get("pg_config"), *versions)


def _salvaged(raw: bytes) -> Iterator[Entry]:
    """The entries of a dump that is cut off or damaged, those behind the damage too."""
    match = _ENTRIES.search(raw)
    if not match:
        return
    text_left = raw[match.end() :].decode(errors="replace")
    scan, wasted = json.JSONDecoder(parse_int=len, parse_float=len).raw_decode, 0
    begin = _OBJECT.search(text_left)
    while begin is not None and wasted <= _WASTE * len(text_left):
        offset = begin.start()
        try:
            value, end = scan(text_left, offset)
            if _CREATED in value:
                yield _ENTRY.decode(text_left[offset:end])
        except NOT_JSON as e:
            wasted += getattr(e, "pos", offset + _NESTED) - offset
            end = offset + 1
        begin = _OBJECT.search(text_left, end)


# -- collectives ----------------------------------------------------------------------------


def _add_collectives(build: TraceBuilder, dump: _Dump) -> None:
    """Put the collectives on a lane per process group."""
    slices, entries, members = Slices(build), dump.entries, _members(dump)
    last_ns = max((_ns(e, key) for e in entries for key in (_CREATED, _COMPLETED)), default=0)
    dumped = max((_ns(e, _STARTED) for e in entries), default=0)
    free: dict[tuple[str, str], int] = {}  # when the last operation of a group ended
    for number, entry in enumerate(entries):
        where = f"entry {number}"
        span = _span(build, entry, where, last_ns, max(last_ns, dumped), free.get(_group(entry), 0))
        free[_group(entry)] = max(free.get(_group(entry), 0), _ns(entry, _COMPLETED))
        if not span or span[1] < span[0]:
            build.lose("negative-duration" if span else "bad-time", where)
            continue
        name = text(entry.get("profiling_name", b"")) or "(no name)"
        library, colon, _ = name.partition(":")
        group, purpose = _group(entry)
        heading = f"Group {group}" + (f" ({purpose})" if purpose else "")
        communicator = heading if purpose or not group.isdecimal() else ""
        title = library.upper() if colon else "NCCL" if dump.nccl_version else "Collectives"
        lane = build.track(Layer.COMM, heading, title=title, communicator=communicator)
        begun, dur_ns = span[0], span[1] - span[0]
        if _ns(entry, _COMPLETED):
            slices.add(lane, begun, dur_ns, name, OpClass.COMM, _arguments(entry, members))
        elif _retired(entry):
            build.skip("end-unknown", where)
            args = _arguments(entry, members)
            slices.add(lane, begun, 0, name, OpClass.OTHER, args, kind=Kind.INSTANT)
        else:  # its length is unknown: it is excluded from totals of communication
            args = _arguments(entry, members, unfinished=True)
            kind = Kind.SLICE if dur_ns else Kind.INSTANT  # nothing in the dump is later
            slices.add(lane, begun, dur_ns, name, OpClass.OTHER, args, kind=kind)
    slices.flush()


def _retired(entry: Entry) -> bool:
    """Whether it has ended: Gloo does not record when."""
    return bytes(entry.get("retired", b"")) == b"true"


def _span(
    build: TraceBuilder, entry: Entry, where: str, last_ns: int, dumped: int, free: int
) -> tuple[int, int] | None:
    """Start and end of a collective; None if no time is known.

    At the dump the recorder checks whether unfinished operations have started, and writes the time
    of the dump as their start. They have waited since they were created, or since the previous
    operation of their group ended.

    Args:
        last_ns:   latest time at which something was made or ended.
        dumped: latest time in the dump.
        free:   when the last operation of its group before this one ended, 0 if none has.
    """
    created, started, completed = (_ns(entry, k) for k in (_CREATED, _STARTED, _COMPLETED))
    if not (created or started):
        return None
    if not completed:
        if not _retired(entry):
            build.skip("unfinished-slice", where)
        if created and started >= last_ns:
            started = min(max(created, free), started)
        return started or created, dumped
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


def _group(entry: Entry) -> tuple[str, str]:
    """Name of the process group, and what it is for."""
    try:
        decoded = msgspec.json.decode(entry.get("process_group", b"[]"))
    except NOT_JSON:
        decoded = []
    words = [str(word) for word in decoded] if isinstance(decoded, list) else [str(decoded)]
    name = words[0] if words else text(entry.get("pg_id", b""))
    return name, words[1] if len(words) > 1 else ""


def _members(dump: _Dump) -> dict[str, bytes]:
    """The ranks of each process group, as Kineto states them."""
    config = dump.pg_config if isinstance(dump.pg_config, dict) else {}
    ranks = {
        str(name): members_of(group.get("ranks"))
        for name, group in config.items()
        if isinstance(group, dict)
    }
    return {name: quoted(str(members)) for name, members in ranks.items() if members}


def _stack(entry: Entry) -> list[str]:
    """Where an operation was issued, the innermost call first."""
    try:
        frames = msgspec.json.decode(entry.get("frames", b"[]"))
    except NOT_JSON:
        return []
    return [
        f"{label(frame.get('name', ''))} ({label(frame.get('filename', '')).rpartition('/')[2]}"
        f":{label(frame.get('line', ''))})"
        for frame in (frames if isinstance(frames, list) else [])[:_FRAMES]
        if isinstance(frame, dict)
    ]


def _arguments(entry: Entry, ranks: Mapping[str, bytes], unfinished: bool = False) -> bytes:
    members = [
        quoted(key) + b":" + bytes(raw)
        for key, raw in entry.items()
        if key not in _NOT_ARGUMENTS and bytes(raw) != b"null"
    ]
    of_group = ranks.get(_group(entry)[0])
    if of_group:
        members.append(b'"Process Group Ranks":' + of_group)
    if unfinished:
        members.append(b'"unfinished":true')
        if stack := _stack(entry):
            members.append(b'"stack":' + msgspec.json.encode(stack))
    return b"{" + b",".join(members) + b"}"

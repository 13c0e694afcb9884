"""The header of a PyTorch trace: its rank, its clock, its process groups.

Its keys are before or after the list of events, in any order. The beginning is searched first; the
end of a file is read only if the clock or the rank is missing there. Compressed files are then
unpacked once more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from traceconv.core.clock import INT64_MAX, Anchor, Domain, are_unix_us
from traceconv.core.errors import SourceError
from traceconv.core.job_shape import Placement, parallel_groups
from traceconv.core.patterns import lazy_regex
from traceconv.core.source import HEAD_BYTES, Source, pieces, tail
from traceconv.readers.shared.numbers import count_of

LONGEST_HEADER = 16 << 20
"""Process groups of very large jobs make long headers; longer ones are not searched."""

BASE = "baseTimeNanoseconds"

_NAME = lazy_regex(r".*\.pt\.trace\.json(?:\.gz)?")
_OPENING = lazy_regex(rb"(?:\xef\xbb\xbf)?\s*(?:[{\[]|\Z)")
_KEYS = lazy_regex(
    rb'"(?:schemaVersion"\s*:\s*\d|deviceProperties"\s*:|distributedInfo"\s*:|'
    + BASE.encode()
    + rb")"
)
_CATEGORIES = lazy_regex(
    rb'"cat"\s*:\s*"(?:cpu_op|user_annotation|python_function|gpu_memcpy|gpu_memset|'
    rb"gpu_user_annotation|cpu_instant_event|(?:cuda|xpu|mtia|glow|privateuse1|mlu)_(?:runtime|driver)|"
    rb'ac2g|Operator|Kernel|Runtime)"'
)
_KERNEL = lazy_regex(rb'"cat"\s*:\s*"kernel"')
_LAUNCHED = lazy_regex(rb'"(?:correlation|External id)"\s*:')
"""Other profilers (Proton) have the category of kernels in common with it, not their arguments."""

_OTHERS = lazy_regex(
    rb'"traceconv"|"cname"|"span_ind(?:x|ex)"|"schemaVersion"\s*:\s*"|async_npu|Ascend Hardware'
    rb'|"(?:RANK \d+ )?(?:HOST|DEVICE)<[^"]*"|"cat"\s*:\s*"(?:gpu_op|(?:CL_)?Flow_(?:H2D|D2H)_\d)'
)
"""Paddle, torch_npu, unitrace and our own output have keys or categories in common with it."""

_QUOTED_LIST = lazy_regex(rb'(?:\xef\xbb\xbf)?\s*\[.*?"ts"\s*:\s*"', re.DOTALL)
"""torch_npu: a bare list, its stamps in quotes."""

_BASE = lazy_regex(rb'"' + BASE.encode() + rb'"\s*:\s*"?(\d{1,19})(?!\d)')
_STAMP = lazy_regex(rb'"ts"\s*:\s*"?(\d{1,18})(?!\d)')
_parse = json.JSONDecoder().raw_decode


class Header(msgspec.Struct, frozen=True):
    """The facts known before the events are read.

    Attributes:
        rank, world_size: of ``distributedInfo``; None and -1 if it does not say.
        host:    the name of the host, "" if it does not say.
        base_ns: what stamps count from, Unix ns; None if they do not, or it is not known.
        is_unix: whether the first stamps count from 1970 themselves; None without stamps.
        placement: the process groups whose description names what they are for.
        traits:  the one process ("pid") and the one device that its first events are of.
        on_host: whether its first events are of the host only.
        merged:  what is in front of the process ids of each rank ("[TP01]"), in a file that was
            merged of several ranks' files.
    """

    rank: int | None = None
    world_size: int = -1
    host: str = ""
    base_ns: int | None = None
    is_unix: bool | None = None
    placement: Placement = msgspec.field(default_factory=Placement)
    traits: Mapping[str, int] = msgspec.field(default_factory=dict)
    on_host: bool = False
    merged: tuple[str, ...] = ()

    def clock(self) -> Anchor | None:
        """The clock of the events as they will be read: bases are added then."""
        if self.is_unix:
            return Anchor(Domain.UNIX, evidence="Unix time stamps")
        if self.base_ns is not None:
            return Anchor(Domain.UNIX, evidence=BASE)
        return None if self.is_unix is None else Anchor(Domain.RELATIVE, evidence=f"no {BASE}")


class ProcessGroup(msgspec.Struct, frozen=True):
    """One communication group: its description ("" if it has none), and how many ranks it has."""

    description: str = ""
    size: int = -1


def header(source: Source, name: str) -> Header | None:
    """The header of a file; None if it is not a PyTorch trace."""
    has_name = _NAME.fullmatch(name) is not None
    if not _OPENING.match(source.head(name, 64)):
        return Header() if has_name else None
    head = source.head(name)
    if not has_name and not is_kineto(head):
        return None
    while b'"traceEvents"' not in head and HEAD_BYTES <= len(head) < LONGEST_HEADER:
        longer = source.head(name, 16 * len(head))
        if len(longer) == len(head):
            break
        head = longer
    before, key, events = head.partition(b'"traceEvents"')
    stamps = [int(digits) for digits in _STAMP.findall(events or head)[:200]]
    result = _read(before, are_unix_us(stamps) if stamps else None)
    clockless = result.base_ns is None and not result.is_unix
    # a file recorded on demand has what names its rank behind its events
    if key and (clockless or result.rank is None or not _KEYS.search(before)):
        result = _completed(result, tail(source, name))
    pids, devices = (set(map(int, pattern.findall(events))) for pattern in (_HOST_PID, _DEVICE_PID))
    single = {"pid": pids, "device": devices}
    traits = {key: next(iter(values)) for key, values in single.items() if len(values) == 1}
    on_host = bool(pids) and not devices and len(head) < HEAD_BYTES
    merged = _merged(source, name) if _PART.search(events) else ()
    return msgspec.structs.replace(result, traits=traits, on_host=on_host, merged=merged)


_PART = lazy_regex(rb'"pid"\s*:\s*"(\[[A-Za-z]{2,4}-?\d[^\]"\\]{0,60}\])')
"""SGLang's merger of profiles (``--merge-profiles``) writes the place of the rank in front of every
process id: ``[TP01-PP00] 2000``."""


def _merged(source: Source, name: str) -> tuple[str, ...]:
    """The parts of a merged file."""
    parts: dict[bytes, None] = {}
    held = b""
    with suppress(SourceError), source.open(name) as stream:  # what precedes a break is there
        for piece in pieces(stream):
            held = held[-128:] + bytes(piece)
            parts |= dict.fromkeys(_PART.findall(held))
    return tuple(sorted(part.decode("ascii", "replace") for part in parts))


_HOST_PID = lazy_regex(
    rb'"cat"\s*:\s*"(?:cpu_op|user_annotation|python_function|cuda_runtime|cuda_driver)"'
    rb'[^{}]*?"pid"\s*:\s*(\d{1,9})(?!\d)'
)
_DEVICE_PID = lazy_regex(
    rb'"cat"\s*:\s*"(?:kernel|gpu_memcpy|gpu_memset)"[^{}]*?"pid"\s*:\s*(\d{1,9})(?!\d)'
)


def is_kineto(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a PyTorch trace."""
    if _OTHERS.search(head) or _QUOTED_LIST.match(head):
        return False
    before = head.partition(b'"traceEvents"')[0]
    if _KEYS.search(before) or _CATEGORIES.search(head):
        return True
    return bool(_KERNEL.search(head) and _LAUNCHED.search(head))


def _read(text: bytes, is_unix: bool | None) -> Header:
    info = _unpacked(_member(text, b"distributedInfo"))
    members = info if isinstance(info, Mapping) else {}
    rank, world_size = count_of(members.get("rank")), count_of(members.get("world_size"))
    listed = (
        (_description(group), count_of(group.get("pg_size")), members_of(group.get("ranks")))
        for group in _listed_groups(info)
    )
    groups = parallel_groups(listed, world_size, "distributedInfo: pg_config")
    host = _member(text, b"host_name")
    bases = _BASE.findall(text)
    base_ns = int(bases[-1]) if bases and int(bases[-1]) <= INT64_MAX else None
    return Header(
        rank if rank >= 0 else None,
        world_size,
        host if isinstance(host, str) else "",
        base_ns,
        is_unix,
        placement=Placement(groups),
    )


def _completed(head: Header, tail: bytes) -> Header:
    """Completed by the end of the file, where the beginning says nothing."""
    after = _read(tail, head.is_unix)
    return msgspec.structs.replace(
        head,
        rank=after.rank if head.rank is None else head.rank,
        world_size=max(head.world_size, after.world_size),
        host=head.host or after.host,
        base_ns=after.base_ns if head.base_ns is None else head.base_ns,
        placement=head.placement if head.placement.groups else after.placement,
    )


_KEY = lazy_regex(rb'"\w+"\s*:\s*')


def _member(text: bytes, key: bytes) -> Any:
    """The last value of a key, or None."""
    offset = text.rfind(b'"%b"' % key)
    match = _KEY.match(text, offset) if offset >= 0 else None
    try:
        return match and _parse(text[match.end() :].decode("utf-8", "replace"))[0]
    except (ValueError, RecursionError):
        return None


# -- distributedInfo ----------------------------------------------------------------------


def process_groups(info: Any) -> dict[str, ProcessGroup]:
    """The groups ``distributedInfo`` lists, by name.

    Lists in it may be written as text; the ranks of a group are not needed, but for their number.
    """
    groups = {}
    for group in _listed_groups(info):
        size = count_of(group.get("pg_size"))
        ranks = _unpacked(group.get("ranks")) if size < 0 else None
        groups[str(group["pg_name"])] = ProcessGroup(
            _description(group), len(ranks) if isinstance(ranks, list) else size
        )
    return groups


def only_group(info: Any) -> str:
    """The name of the group that all operations are of, where only one set of ranks communicates;
    "" otherwise: operations of Gloo do not name their group."""
    listed = _listed_groups(info)
    members = {tuple(members_of(group.get("ranks")) or ()) for group in listed}
    if len(members) != 1 or len(next(iter(members))) < 2:
        return ""
    return f"Group {listed[0]['pg_name']}" + (f" ({d})" if (d := _description(listed[0])) else "")


def _listed_groups(info: Any) -> list[Mapping[str, Any]]:
    info = _unpacked(info)
    groups = _unpacked(info.get("pg_config")) if isinstance(info, Mapping) else None
    listed = groups if isinstance(groups, list) else []
    return [group for group in listed if isinstance(group, Mapping) and "pg_name" in group]


def _description(group: Mapping[str, Any]) -> str:
    description = group.get("pg_desc")
    return description if isinstance(description, str) and description != "undefined" else ""


def members_of(ranks: Any) -> list[int] | None:
    """The ranks of a group as PyTorch lists them, maybe as text: -1 where a value is not a rank,
    None if it is not a list."""
    listed = _unpacked(ranks)
    return [count_of(rank) for rank in listed] if isinstance(listed, list) else None


def _unpacked(value: Any) -> Any:
    """A value that is written as JSON in a string."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None

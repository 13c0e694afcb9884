"""Any other trace-event JSON: the format of Chrome and of many tools; also what we write.

Written by: anything; by us.
Files: any whose first bytes hold trace events, plain or gzip; each is one capture. An output of
traceconv with several ranks is one capture per rank.
Units and clock: us, as numbers or text; of our own files relative to the ``base_ns`` in their
metadata, which is added back; of viztracer 1.0 and later relative to ``baseTimeNanoseconds`` behind
the events (viztracer/viztracer.py), which is added.
Rank from: the metadata of our own files; names of processes (``RANK 1 HOST<node>``, as Intel's
unitrace has them; its joined files hold several); else unknown (a file name may hold it).
Quirks: not closed, cut, with doubled commas, with unknown phases - see
:mod:`traceconv.readers.shared.trace_events.timeline`.
Kept: categories, ids, thread times, scopes, colours, stacks and fields of one tool, as the argument
``trace_event`` of slices and instants.
Ignored, and counted: ``samples``, ``stackFrames``, further fields of counters and flows.
Source: the "Trace Event Format" document of the Chromium project.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from traceconv.core.builder import TraceBuilder
from traceconv.core.clock import INT64_MAX, Anchor, Domain, are_unix_us, merged_clock
from traceconv.core.errors import Issues
from traceconv.core.job_shape import stated_in_metadata
from traceconv.core.model import Capture, stated_content
from traceconv.core.patterns import lazy_regex
from traceconv.core.rank_ranges import parse_ranges
from traceconv.core.source import Source, tail
from traceconv.readers.chrome import unitrace
from traceconv.readers.shared import perfetto_manifest

_SUFFIXES = (".json", ".json.gz", ".jsonl", ".jsonl.gz", ".trace", ".chrome_trace", ".gz")
_PHASE = lazy_regex(rb'"ph"\s*:\s*"[^"\\]"')
_TIMED = lazy_regex(rb'"(?:ts|name)"\s*:')
_LIST = lazy_regex(rb'"traceEvents"\s*:\s*\[')
_STAMP = lazy_regex(rb'"ts"\s*:\s*"?(\d{1,19})')
_SPAN = 2**60
_BASE = lazy_regex(rb'"viztracer_metadata"\s*:\s*\{[^{}]*"baseTimeNanoseconds"\s*:\s*(\d{1,19})\b')
_PID = lazy_regex(rb'"pid"\s*:\s*(\d{1,9})\b')


class ChromeJsonReader:
    """Reads trace-event files no other reader knows."""

    name = "chrome_json"
    title = "Chrome trace events, any tool"
    files = "*.json, *.json.gz, *.jsonl (trace-event)"
    order = 900

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per file, or per rank in an output of traceconv."""
        lone = len(names) == 1
        heads = {}
        for name in sorted(names):
            if lone or name.lower().endswith(_SUFFIXES):
                head = source.text_head(name)
                if _LIST.search(head) or (_PHASE.search(head) and _TIMED.search(head)):
                    heads[name] = head
        placed = perfetto_manifest.found_in(source, names, issues) if heads else {}
        return [
            capture
            for name, head in heads.items()
            for capture in _captures(source, name, head, placed.get(name))
        ]

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        from traceconv.readers.chrome.lanes import Copied, Ours, book_members, by_title
        from traceconv.readers.shared.ascend_marks import HardwareLanes
        from traceconv.readers.shared.trace_events.timeline import USED_KEYS, read_events

        name, source = capture.files[0], capture.source
        build.file = source.title(name)
        facts = _facts(_members(capture.source.head(name)))
        if facts and facts.get("copied") is not True:
            used = USED_KEYS | {"metadata"}
            placement = Ours(capture.detail.rank, build)
            read_events(source, name, build, placement, offset_ns=_base_ns, used_keys=used)
        else:
            lanes = HardwareLanes(build, Copied(capture.rank, build) if facts else by_title(build))
            shift = partial(book_members, build, capture.detail.shift_ns)
            offset = _base_ns if facts else shift
            if capture.detail.section is not None:
                source = unitrace.Section(source, *capture.detail.section)
            read_events(
                source,
                name,
                build,
                lanes,
                offset_ns=offset,
                revise=lanes.revise,
                keep_fields=True,
                used_keys=USED_KEYS | {"metadata" if facts else "samples"},
            )
            lanes.finish()
        for start, end in _windows(facts, capture.rank) if facts else ():
            build.window(start, end)


@dataclass(frozen=True)
class Detail:
    """What reading a file needs to know.

    Attributes:
        rank:     whose lanes are read of a file of ours.
        base_ns:  what the times of a file of ours count from.
        shift_ns: what a manifest adds to the times of any other file.
        section:  the bytes that are read of a file that unitrace's script joined; None for all.
    """

    rank: int | None = None
    base_ns: int = 0
    shift_ns: int = 0
    section: tuple[int, int] | None = None


def _captures(
    source: Source, name: str, head: bytes, placed: perfetto_manifest.Placement | None
) -> list[Capture]:
    facts = _facts(_members(head))
    base = _base(facts)
    stamps = [int(s) for s in _STAMP.findall(head)]
    unix = are_unix_us(base // 1000 + stamp for stamp in stamps or [0])
    common: dict[str, Any] = {
        "reader": READER.name,
        "source": source,
        "files": (name,),
        "label": source.title(name),
    }
    ranks = parse_ranges(str(facts.get("ranks", "")))
    if not ranks:
        clock = Anchor(Domain.UNIX, evidence="stamps count from 1970") if unix else None
        common |= {"clock": clock, "detail": Detail()}
        if not unix and b'"FEE"' in head and (match := _BASE.search(tail(source, name))):
            clock, pids = Anchor(Domain.UNIX, evidence="baseTimeNanoseconds"), _PID.findall(head)
            common |= {"clock": clock, "detail": Detail(shift_ns=int(match[1]))}
            common |= {"traits": {"pid": int(pids[0])}} if len(set(pids)) == 1 else {}
        if placed is not None:
            shift = Detail(shift_ns=placed.shift_ns)
            common |= {"clock": placed.clock, "host": placed.machine, "detail": shift}
        return _of_unitrace(common, unitrace.processes(source, name, head)) or [Capture(**common)]
    coordinates = facts.get("coordinates")
    return [
        Capture(
            **common,
            rank=r,
            rank_from="its metadata",
            clock=merged_clock(facts.get("clock"), r, common["label"]) if unix else None,
            placement=stated_in_metadata(coordinates, r),
            detail=Detail(r, base),
            content=stated_content(facts),
        )
        for r in ranks
    ]


def _of_unitrace(known: Mapping[str, Any], processes: Sequence[unitrace.Process]) -> list[Capture]:
    """A capture for every host process of a file of unitrace."""
    capture = Capture(**known)
    joined = len(processes) > 1
    return [
        replace(
            capture,
            detail=replace(
                capture.detail, section=(process.start, process.end) if joined else None
            ),
            rank=process.rank,
            rank_from=""
            if process.rank is None
            else "names of processes"
            if process.host
            else "flows or the name of the file",
            host=capture.host or process.host,
            pid=process.pid,
            label=f"{capture.title} (process {process.pid} of {process.host})"
            if joined
            else capture.label,
        )
        for process in processes
    ]


# -- our own files ---------------------------------------------------------------------------


def _members(head: bytes) -> Mapping[str, Any]:
    """The members of the outermost object that precede its events."""
    from traceconv.readers.shared.trace_events.keys import Keys

    keys = Keys()
    keys.feed(head)
    return keys.found


def _facts(members: Mapping[str, Any]) -> Mapping[str, Any]:
    """What we wrote of the trace as a whole; empty if the file is not ours."""
    metadata = members.get("metadata")
    facts = metadata.get("traceconv") if isinstance(metadata, dict) else None
    return facts if isinstance(facts, dict) else {}


def _base(facts: Mapping[str, Any]) -> int:
    text = str(facts.get("base_ns", ""))
    base = int(text) if re.fullmatch(r"-?[0-9]{1,19}", text) else 0
    return base if abs(base) <= INT64_MAX else 0


def _base_ns(members: Mapping[str, Any]) -> int:
    return _base(_facts(members))


def _windows(facts: Mapping[str, Any], rank: int | None) -> list[tuple[int, int]]:
    """The collection windows of a rank, ns."""
    windows = facts.get("windows")
    listed = windows.get(str(rank)) if isinstance(windows, dict) else None
    base, spans = _base(facts), []
    for window in listed if isinstance(listed, list) else []:
        match window:
            case [int(start), int(end)] if abs(start) <= _SPAN and abs(end) <= _SPAN:
                spans.append((base + start, base + end))
    return spans


READER = ChromeJsonReader()

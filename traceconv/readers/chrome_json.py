"""Any other trace-event JSON: the format of Chrome and of many tools; also what we write.

Written by: anything; by us.
Files: any whose first bytes hold trace events, plain or gzip; each is a capture of its own. A file
of ours that holds several ranks is one capture per rank.
Units and clock: us, as numbers or text; of our own files relative to the ``base_ns`` in their
metadata, which is added back.
Rank from: the metadata of our own files; else unknown (a file name may tell it).
Quirks: not closed, cut, with doubled commas, with phases nobody knows - see
:mod:`traceconv.readers._traceevents`.
Ignored: ``samples`` (counted), ``stackFrames``, colours, and everything else only one viewer knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from traceconv.build import TraceBuilder
from traceconv.clock import INT64_MAX, Anchor, Domain
from traceconv.errors import Issues
from traceconv.model import Capture, Layer, OpClass, Track
from traceconv.readers._ascend import Classifier
from traceconv.readers._lanes import DefaultPlacement
from traceconv.readers._trace_events.keys import Keys
from traceconv.readers._traceevents import Lane, Names, Placed, Skipped, read_events
from traceconv.source import Source

_SUFFIXES = (".json", ".json.gz", ".jsonl", ".jsonl.gz", ".trace", ".gz")
_PHASE = re.compile(rb'"ph"\s*:\s*"[^"\\]"')
_TIMED = re.compile(rb'"(?:ts|name)"\s*:')
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_STAMP = re.compile(rb'"ts"\s*:\s*"?(\d{1,19})')
_UNIX_US = 10**15
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_ASCEND = re.compile(r"(?:Ascend Hardware|Overlap Analysis|CANN|HCCL)(?: Rank ?\d+)?")
_OPS = {op.name.lower(): op for op in OpClass}
_MOST_RANKS = 1_000_000
_SPAN = 2**60


class ChromeJsonReader:
    """Reads trace-event files no other reader knows."""

    name = "chrome_json"
    title = "Chrome trace events, any tool"
    files = "*.json, *.json.gz, *.jsonl (trace-event)"
    order = 900

    def find(self, source: Source, names: Sequence[str], issues: Issues) -> list[Capture]:
        """One capture per file, or per rank in a file of ours."""
        lone = len(names) == 1
        found = []
        for name in sorted(names):
            if lone or name.lower().endswith(_SUFFIXES):
                head = source.head(name)
                if _is_trace(head):
                    found += _captures(source, name, head)
        return found

    def read(self, capture: Capture, build: TraceBuilder) -> None:
        """Put every event into ``build``; see :class:`traceconv.readers.Reader`."""
        name = capture.files[0]
        build.file = capture.source.title(name)
        facts = _facts(_members(capture.source.head(name)))
        if facts:
            copied = facts.get("copied") is True
            place = _Copied(capture.rank, build) if copied else _Ours(capture.detail)
            read_events(capture.source, name, build, place, offset_ns=_base_ns)
            for start, end in _windows(facts, capture.rank):
                build.window(start, end)
        else:
            told = partial(_told, build)
            read_events(capture.source, name, build, _theirs(build), offset_ns=told)


def _is_trace(head: bytes) -> bool:
    """Whether these are the first bytes of a trace-event file."""
    return bool(_LIST.search(head) or (_PHASE.search(head) and _TIMED.search(head)))


def _captures(source: Source, name: str, head: bytes) -> list[Capture]:
    facts = _facts(_members(head))
    base = _base(facts)
    stamps = [int(s) for s in _STAMP.findall(head)]
    unix = base + max(stamps, default=0) * 1000 >= _UNIX_US * 1000
    known: dict[str, Any] = {
        "reader": READER.name,
        "source": source,
        "files": (name,),
        "clock": Anchor(Domain.UNIX, evidence="stamps count from 1970") if unix else None,
        "label": source.title(name),
    }
    ranks = _ranks(facts)
    if not ranks:
        return [Capture(**known)]
    return [Capture(**known, rank=r, rank_from="its metadata", detail=r) for r in ranks]


# -- our own files ---------------------------------------------------------------------------


def _members(head: bytes) -> Mapping[str, Any]:
    """The members of the outermost object that stand before its events."""
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
    told = windows.get(str(rank)) if isinstance(windows, dict) else None
    base, found = _base(facts), []
    for window in told if isinstance(told, list) else []:
        match window:
            case [int(start), int(end)] if abs(start) <= _SPAN and abs(end) <= _SPAN:
                found.append((base + start, base + end))
    return found


def _ranks(facts: Mapping[str, Any]) -> list[int]:
    """The ranks in a file of ours ("0-3,7"), none if that cannot be known."""
    found: set[int] = set()
    for part in str(facts.get("ranks", "")).split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return []
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first + len(found) >= _MOST_RANKS:
            return []
        found.update(range(first, last + 1))
    return sorted(found)


class _Ours:
    """Lanes of a file of ours: each says itself what track it is, and of which rank."""

    def __init__(self, rank: int | None) -> None:
        self._rank = rank
        self._other = DefaultPlacement()

    def __call__(self, lane: Lane) -> Placed | Skipped | None:
        rank = lane.extra.get("rank")
        if self._rank is not None and rank != self._rank:
            return None
        track = _track(lane.extra)
        op = _OPS.get(lane.category, OpClass.OTHER)
        return Placed(track, op) if track is not None else self._other(lane)


class _Copied:
    """Lanes of a file whose events were copied: one rank's, as the file they came from has them."""

    def __init__(self, rank: int | None, build: TraceBuilder) -> None:
        self._prefix = f"Rank {rank} "
        self._place = _theirs(build)
        self._names: Names | None = None

    def __call__(self, lane: Lane) -> Placed | Skipped | None:
        if not lane.process.startswith(self._prefix):
            return None
        if self._names is None:
            own = {p: n for p, n in lane.names.processes.items() if n.startswith(self._prefix)}
            plain = {pid: name.removeprefix(self._prefix) for pid, name in own.items()}
            self._names = replace(lane.names, processes=plain)
        process = lane.process.removeprefix(self._prefix)
        return self._place(replace(lane, process=process, names=self._names))


def _track(extra: Mapping[str, str | int]) -> Track | None:
    """The track a lane's metadata spells, or None if it does not."""
    texts = [extra.get(key) for key in ("layer", "title", "group", "track")]
    numbers = [extra.get(key, 0) for key in ("sort", "lane")]
    unit = extra.get("unit")
    if not all(isinstance(t, str) for t in texts) or not all(isinstance(n, int) for n in numbers):
        return None
    layer, title, group, name = map(str, texts)
    if layer not in set(Layer):
        return None
    sort, number = map(int, numbers)
    return Track(
        Layer(layer), name, group, title, sort, str(unit) if unit is not None else None, number
    )


# -- files of others -------------------------------------------------------------------------


def _told(build: TraceBuilder, members: Mapping[str, Any]) -> int:
    """Book the samples of the profilers in browsers and phones, which stand beside the events;
    stamps stay as they are."""
    samples = members.get("samples")
    if isinstance(samples, list):
        build.skip("kind-not-read", "CPU samples", len(samples))
    return 0


def _theirs(build: TraceBuilder) -> Callable[[Lane], Placed | Skipped | None]:
    """Ascend's processes as its readers place them, everything else by what it is called."""
    default, ascend = DefaultPlacement(build.comm_words), Classifier()

    def place(lane: Lane) -> Placed | Skipped | None:
        known = any(_ASCEND.fullmatch(name) for name in lane.names.processes.values())
        return ascend(lane) if known else default(lane)

    return place


READER = ChromeJsonReader()

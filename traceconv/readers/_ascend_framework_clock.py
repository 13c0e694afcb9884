"""What stamps of a framework's own files are measured against.

MindSpore stamps with the host's counter. PyTorch does so if its ``profiler_info`` says so, and
gives the counter's speed and one stand of it there; else it writes nanoseconds of the monotonic
clock. MindSpore 2.2 and 2.3 write nanoseconds where ``info.json`` gives no decimal frequency.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from traceconv.build import TraceBuilder
from traceconv.model import I64
from traceconv.readers._ascend_identity import Identity
from traceconv.readers._ascend_known import starting
from traceconv.readers._ascend_raw_clock import Clock, Counter
from traceconv.source import Source

_UNIX_NS = 10**18
"""Nanoseconds above this count from 1970 (it is 2001); no host is up for 31 years."""

_INFO = re.compile(r"profiler_info(?:_\d+)?\.json")
_HOST_INFO = re.compile(r"PROF_[^/]+/host/info\.json")
_MHZ = re.compile(r"[0-9]{1,4}(?:\.[0-9]{0,6})?")


class FrameworkClock:
    """The clocks of the files in one ``FRAMEWORK`` folder.

    Args:
        folder: the one around it, "" for the source itself.
        host:   of the collector that ran beside.
    """

    def __init__(self, build: TraceBuilder, source: Source, folder: str, host: Clock) -> None:
        self._build, self._host = build, host
        self._identity = Identity(source, build.issues)
        inner = f"{folder}/" if folder else ""
        self._names = {n[len(inner) :]: n for n in starting(source.names(), inner)}
        self._torch: Counter | None = None

    def ticks_ns(self, ticks: I64) -> I64:
        """Times of ticks of the host's counter; -1 for those outside the clock."""
        if doubt := self._host.host.doubt:
            self._build.skip("clock-assumed", doubt)
        return self._host.host_ns(ticks)

    def old_ns(self, stamps: I64) -> I64:
        """Times of stamps of MindSpore 2.2 and 2.3."""
        info = self._json(_HOST_INFO)
        frequency = _first(info.get("CPU")).get("Frequency")
        if isinstance(frequency, str) and "." in frequency:
            return self.ticks_ns(stamps)
        return _nanoseconds(stamps, self._host.offset_ns or 0)

    def torch_ns(self, stamps: I64) -> I64:
        """Times of stamps of PyTorch."""
        if self._torch is None:
            self._torch = self._of_torch(self._json(_INFO))
        return self._torch.ns(stamps)

    def _of_torch(self, info: Mapping[str, Any]) -> Counter:
        start, end = info.get("start_info"), info.get("end_info")
        if not isinstance(start, dict):
            self._build.skip("clock-assumed", "no start_info of the framework: the host's counter")
            return self._host.host
        offset = self._host.offset_ns
        if offset is None:
            offset = _offset(end if isinstance(end, dict) else {})
        if offset is None:
            self._build.skip("clock-assumed", "nothing ties the monotonic clock to Unix time")
        base = offset or 0
        if start.get("syscnt_enable") is not True:
            return Counter(Fraction(1), 0, base)
        count, monotonic = _whole(start.get("start_cnt")), _whole(start.get("start_monotonic"))
        text = str(start.get("freq"))
        mhz = Fraction(text.rstrip(".")) if _MHZ.fullmatch(text) else Fraction(0)
        if count is None or monotonic is None or not mhz:
            return self._host.host
        return Counter(1000 / mhz, count, monotonic + base)

    def _json(self, wanted: re.Pattern[str]) -> dict[str, Any]:
        name = next((n for n in self._names if wanted.fullmatch(n)), None)
        return self._identity.read_json(self._names[name]) if name else {}


def _nanoseconds(stamps: I64, offset: int) -> I64:
    """Stamps of Unix time, or of the monotonic clock, as times; -1 for unusable ones."""
    unix = stamps >= _UNIX_NS
    reach = 2**62 - abs(offset)
    good = (stamps > 0) & (unix | (stamps < reach))
    return np.where(good, np.where(unix, stamps, np.where(good, stamps, 0) + offset), -1)


def _offset(end: Mapping[str, Any]) -> int | None:
    """Unix time minus the monotonic clock, as the end of collecting tells them."""
    unix, monotonic = (_whole(end.get(key)) for key in ("collectionTimeEnd", "MonotonicTimeEnd"))
    return unix - monotonic if unix is not None and monotonic is not None else None


def _first(entries: object) -> Mapping[str, Any]:
    first = entries[0] if isinstance(entries, list) and entries else None
    return first if isinstance(first, dict) else {}


def _whole(value: object) -> int | None:
    """A number of nanoseconds or ticks, written as number or text."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value).partition(".")[0]
    return (
        int(text) if re.fullmatch(r"[0-9]{1,18}|[0-9]{19}", text) and int(text) < 1 << 62 else None
    )

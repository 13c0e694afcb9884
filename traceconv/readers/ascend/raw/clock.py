"""Counters of host and device as nanoseconds, from the small files of a collector's folder.

``info.json`` has the frequencies of the counters, ``host_start.log`` and ``dev_start.log`` their
values at one instant of the monotonic clock, ``start_info`` the Unix time of it. Where they are
missing after a crash, times are relative to the first record, which is reported (clock-assumed).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from traceconv.core.clock import Anchor, Domain
from traceconv.core.errors import SourceError
from traceconv.core.model import I64
from traceconv.core.patterns import lazy_regex
from traceconv.readers.ascend.common.identity import Identity
from traceconv.readers.shared.numbers import whole_number

if TYPE_CHECKING:
    pass

MHZ = Fraction(100)
"""How fast a device's counter is taken to run where no file says it: most do."""

_FASTEST_MHZ = 9000
"""Remainders of slower counters, given in whole Hz, times 10**9 fit int64."""

_ROOM_NS = 3_600_000_000_000
"""The time of the first host record without an anchor: others may be an hour older than it."""

_LONGEST_NS = 1 << 61
"""73 years: the largest distance of a counter from its anchor, and of a clock from its zero."""

_SMALL_BYTES = 1 << 20
_FILE = lazy_regex(
    r"(?:^|/)(?:(?P<side>host|device_(?P<folder>\d{1,18}))/)?"
    r"(?P<what>info\.json|start_info|host_start\.log|dev_start\.log)(?:\.(?P<of>\d{1,18}))?$"
)
_PAIR = lazy_regex(rb"^[ \t]*(\w+)[ \t]*[:=][ \t]*(\d{1,19})\s*$", re.MULTILINE)


@dataclass
class Counter:
    """Ticks of one counter as nanoseconds of the trace.

    Attributes:
        tick_ns: nanoseconds of a tick.
        tick:    a value of the counter; None until the first ticks are known.
        at_ns:   the time then.
        doubt:   what had to be assumed of it, "" if nothing.
    """

    tick_ns: Fraction
    tick: int | None = None
    at_ns: int = 0
    doubt: str = ""

    def ns(self, ticks: I64) -> I64:
        """Times of ticks, rounded half up; -1 for those outside the clock.

        Without an anchor the earliest of the first ticks asked for becomes one.
        """
        if not len(ticks):
            return np.empty(0, np.int64)
        if self.tick is None:
            self.tick = int(ticks.min())
        past, least = self.tick_ns.numerator, self.tick_ns.denominator
        # ticks farther away than this would leave int64 in the products below
        reach = _LONGEST_NS // past * least
        low, high = max(self.tick - reach, 0), min(self.tick + reach, 2**63 - 1)
        usable = (ticks >= low) & (ticks <= high)
        # whole periods and the rest are multiplied apart: exact, and no product overflows
        periods, remainder = np.divmod(np.where(usable, ticks, self.tick) - self.tick, least)
        ns: I64 = periods * past + (remainder * past + least // 2) // least + self.at_ns
        return np.where(usable & (ns >= 0), ns, -1)


@dataclass
class Clock:
    """The clocks of one collector's folder.

    Attributes:
        host, device: their counters.
        domain:    what zero is.
        offset_ns: Unix time minus the host's monotonic clock, None if no file has it.
        evidence:  the files the anchors were read from.
        doubts:    what had to be assumed.
    """

    host: Counter
    device: Counter
    domain: Domain
    offset_ns: int | None = None
    evidence: str = ""
    doubts: tuple[str, ...] = ()

    def fresh(self) -> Clock:
        """The clock before it was given any tick."""
        return replace(self, host=replace(self.host), device=replace(self.device))

    def begin(self, tick: int) -> None:
        """Set the first of all device ticks: the anchor, where no file has one."""
        if self.device.tick is None:
            self.device.tick = tick

    def host_ns(self, ticks: I64) -> I64:
        """Times of host ticks, ns; -1 for unusable ticks."""
        return self.host.ns(ticks)

    def device_ns(self, ticks: I64) -> I64:
        """Times of device ticks, ns; -1 for unusable ticks."""
        return self.device.ns(ticks)

    @property
    def anchor(self) -> Anchor:
        """The clock of the capture's stamps."""
        return Anchor(self.domain, evidence=self.evidence or "no file ties the counter to a clock")


@dataclass(frozen=True)
class _Side:
    """The content of the files of the host or of one device, with None for absent numbers.

    ``unread``: ``info.json`` is there and cannot be read.
    """

    info: Mapping[str, Any]
    start: Mapping[str, Any]
    host_log: Mapping[str, int]
    device_log: Mapping[str, int]
    files: tuple[str, ...]
    unread: bool = False

    @property
    def offset_ns(self) -> int | None:
        """Unix time minus the monotonic clock."""
        unix, monotonic = (
            _number(self.start.get(key)) for key in ("collectionTimeBegin", "clockMonotonicRaw")
        )
        return unix * 1000 - monotonic if unix and unix < 10**16 and monotonic is not None else None

    @property
    def began_ns(self) -> int | None:
        """When the counters were read, on the monotonic clock."""
        if "clock_monotonic_raw" in self.host_log:
            return self.host_log["clock_monotonic_raw"]
        return _number(self.start.get("clockMonotonicRaw"))

    @property
    def cpu_mhz(self) -> Fraction | None:
        """How fast the host's counter runs."""
        return _frequency(first_object(self.info.get("CPU")).get("Frequency"))


def read_clock(identity: Identity, names: Iterable[str], device: int) -> Clock:
    """The clock of one folder.

    Args:
        names:  of its files; others than those of the clocks are passed over.
        device: whose counter it is about; those of other devices are passed over.
    """
    of_host: dict[str, str] = {}
    of_device: dict[str, str] = {}
    for name in sorted(names):
        if match := _FILE.search(name):
            number = match["folder"] or match["of"]
            if match["side"] == "host" or number is None:
                of_host[match["what"]] = name
            elif device in (-1, int(number)):
                of_device.setdefault(match["what"], name)
    return _clock(_side(identity, of_host), _side(identity, of_device))


def _clock(host: _Side, device: _Side) -> Clock:
    offsets = [s.offset_ns for s in (host, device) if s.offset_ns is not None]
    host_counter = _host_counter(host, (offsets or [0])[0])
    device_counter = _device_counter(host, device, (offsets or [0])[-1])
    doubts = [host_counter.doubt] if host_counter.doubt else []
    if _counter_mhz(device) is None:
        doubts.append(f"no frequency of the device's counter: taken as {MHZ} MHz")
    if device_counter.tick is None:
        doubts.append("no anchor of the device's counter: its times count from its first record")
    if host_counter.tick is None:
        host_counter.at_ns = max(host_counter.at_ns, _ROOM_NS)
    domain = Domain.RELATIVE
    if device_counter.tick is not None or device_counter.at_ns:
        domain = Domain.UNIX if offsets else Domain.MONOTONIC
    files = (*host.files, *device.files)
    evidence = ", ".join(dict.fromkeys(n.rpartition("/")[2] for n in files))
    offset = offsets[0] if offsets else None
    return Clock(host_counter, device_counter, domain, offset, evidence, tuple(doubts))


def _host_counter(host: _Side, offset: int) -> Counter:
    if host.cpu_mhz is None:  # stamps are nanoseconds of the monotonic clock
        doubt = "info.json cannot be read: stamps were taken for ns" if host.unread else ""
        return Counter(Fraction(1), 0, offset, doubt)
    counter = _anchored(1000 / host.cpu_mhz, host.host_log.get("cntvct"), host.began_ns, offset)
    if counter.tick is None:
        counter.doubt = "no anchor of the host's counter: its times count from its first record"
    return counter


def _device_counter(host: _Side, device: _Side, offset: int) -> Counter:
    tick_ns = 1000 / (_counter_mhz(device) or MHZ)
    ticks = device.device_log.get("cntvct")
    began = device.began_ns if device.began_ns is not None else host.began_ns
    later = device.host_log.get("cntvct_diff", 0)
    if began is not None and later:
        of_host = device.cpu_mhz or host.cpu_mhz or Fraction(1000)
        began += int(later * 1000 / of_host + Fraction(1, 2))
    return _anchored(tick_ns, ticks, began, offset)


def _counter_mhz(device: _Side) -> Fraction | None:
    """How fast the counter of a device runs, by its own file."""
    return _frequency(first_object(device.info.get("DeviceInfo")).get("hwts_frequency"))


def _anchored(tick_ns: Fraction, tick: int | None, began: int | None, offset: int) -> Counter:
    """A counter, given one value and its time, only the time, or neither."""
    at_ns = None if began is None else began + offset
    if at_ns is None or not 0 <= at_ns < _LONGEST_NS or (tick is None and offset == 0):
        return Counter(tick_ns)
    return Counter(tick_ns, tick, at_ns)


# -- the files ----------------------------------------------------------------------------


def _side(identity: Identity, files: Mapping[str, str]) -> _Side:
    def parsed(base: str) -> Mapping[str, Any]:
        return identity.read_json(files[base]) if base in files else {}

    def logged(base: str) -> Mapping[str, int]:
        return _log(identity, files[base]) if base in files else {}

    info = parsed("info.json")
    return _Side(
        info,
        parsed("start_info"),
        logged("host_start.log"),
        logged("dev_start.log"),
        tuple(name for base, name in files.items() if base != "info.json"),
        "info.json" in files and not info,
    )


def _log(identity: Identity, name: str) -> dict[str, int]:
    """``key: number`` of every line; ``{}`` and an issue if it cannot be read."""
    try:
        text = identity.source.read(name, _SMALL_BYTES)
    except SourceError as e:
        identity.issues.add("malformed-record", identity.source.title(name), str(e)[:120])
        return {}
    numbers = {key.decode(): int(digits) for key, digits in _PAIR.findall(text)}
    last_key = next(reversed(numbers), "")
    if not text.endswith(b"\n") and last_key != "cntvct_diff":  # that one is never followed by more
        identity.issues.add("unended-line", identity.source.title(name), f"key {last_key!r}")
    return {key: value for key, value in numbers.items() if value < _LONGEST_NS}


def first_object(entries: object) -> Mapping[str, Any]:
    """The first object of a list; ``{}`` without one."""
    entry = entries[0] if isinstance(entries, list) and entries else None
    return entry if isinstance(entry, dict) else {}


def _number(value: object) -> int | None:
    """A whole number as number or text, within reason."""
    return whole_number(value, _LONGEST_NS - 1)


def _frequency(value: object) -> Fraction | None:
    """MHz as number or decimal text, to the Hz; None for other values."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{0,12})?", text):
        return None
    mhz = Fraction(round(Fraction(text.rstrip(".")) * 10**6), 10**6)
    return mhz if 0 < mhz <= _FASTEST_MHZ else None

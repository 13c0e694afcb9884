"""Counters by step, where a value holds until the next sample: clocks, networks and links."""

import re
from collections import defaultdict

from .device import kernels
from .figures import UNKNOWN, Timed, percent

_CLOCK = re.compile(r"freq|clock|[sm]clk|power|voltage|temperature|\btemp\b", re.I)
_CLOCK_UNITS = {"MHz", "GHz", "Hz", "W", "mW", "°C", "C", "V", "mV"}
_LINK = re.compile(
    r"\bnic\b|\broce\b|infiniband|\bib\b|rdma|nvlink|pcie|hccs|xgmi|\bsio\b|\bub\b|network"
    r"|ethernet",
    re.I,
)

_CORES = re.compile(
    r"ai core freq.*|(gpc|sm|gfx|graphics|shader|sclk)[ _](clock|freq).*|sclk", re.IGNORECASE
)


def _clock(lane):
    return lane.unit in _CLOCK_UNITS or (lane.unit != "%" and bool(_CLOCK.search(lane.name)))


def _link(lane):
    return not lane.kind and any(
        _LINK.search(text) for text in (lane.heading, lane.group, lane.name)
    )


def frequency(ranks, every):
    """Of clocks, power and temperature."""
    return list(_rows(ranks, every, _clock))


def network(ranks, every):
    """Of networks and links."""
    return list(_rows(ranks, every, _link))


def _rows(ranks, every, wanted):
    for rank in ranks.values():
        series = defaultdict(list)
        for lane, at, value in rank.samples:
            if wanted(lane):
                series[lane].append((at, value))
        steps = [(step.number, step.start, step.end) for step in every[rank.number].measured()]
        for lane, samples in series.items():
            for number, start, end in steps or [(-1, *_span(rank))]:
                pieces = _held(samples, start, end)
                if pieces:
                    key = (rank.number, number if number >= 0 else UNKNOWN,
                           lane.group or lane.heading, lane.name)  # fmt: skip
                    yield key, _figures(samples, pieces, start, end, lane.unit)


def _span(rank):
    starts = [row.start for row in rank.rows] + [at for _, at, _ in rank.samples]
    ends = [row.end for row in rank.rows] + [at for _, at, _ in rank.samples]
    return min(starts), max(ends)


def _held(samples, start, end):
    """(length, value) of every value in a span."""
    nexts = [at for at, _ in samples[1:]] + [float("inf")]
    return [
        (min(until, end) - max(at, start), value)
        for (at, value), until in zip(samples, nexts, strict=True)
        if at < end and until > start
    ]  # fmt: skip


def _figures(samples, pieces, start, end, unit):
    values, time = [value for _, value in pieces], sum(length for length, _ in pieces)
    mean = sum(length * value for length, value in pieces) / time if time else None
    return {
        "Unit": unit or "", "Samples": sum(start <= at < end for at, _ in samples),
        "Min": min(values), "Max": max(values),
        "Mean": sum(values) / len(values) if mean is None else mean,
    }  # fmt: skip


def by_clock(ranks):
    """Kernels of the only device of a rank that started at several values of a clock."""
    timed = Timed()
    for rank in ranks.values():
        series = defaultdict(list)
        for lane, at, value in rank.samples:
            if _CORES.fullmatch(lane.name) and 0 < value < float("inf"):
                series[lane.name].append((at, value))
        devices = {lane.device for lane in rank.lanes if lane.layer == "device"}
        for clock, samples in series.items() if len(devices) == 1 else ():
            samples.sort(key=lambda sample: sample[0])
            ran = defaultdict(list)
            for row in kernels(rank, "compute"):
                before = [value for at, value in samples if at <= row.start]
                if before:
                    ran[row.name].append((50 * round(before[-1] / 50), row.dur))
            for name, rows in ran.items():
                if len({value for value, _ in rows}) > 1:
                    for value, dur in rows:
                        timed.add(rank.number, (clock, name, value), dur)
    found = timed.figures(("Clock", "Kernel", "Value"))
    for (rank, clock, name, _), row in found.items():
        alike = {key[3]: one for key, one in found.items() if key[:3] == (rank, clock, name)}
        usual = alike[max(alike)]["Avg Time(ns)"]
        row["Slower(%)"] = percent(row["Avg Time(ns)"] - usual, usual)
    return found
